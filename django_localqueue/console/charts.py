"""Charts as SVG made on the server: attributes and classes only, so that any policy allows them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.utils import formats
from django.utils.formats import localize
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_localqueue.console.display import local
from django_localqueue.types import MICROSECONDS, Activity

WIDTH, HEIGHT = 720, 140
SPARK_WIDTH, SPARK_HEIGHT = 112, 24


@dataclass(frozen=True, slots=True)
class Span:
    """A time that a chart shows: its whole length and that of a bar, in seconds.

    ``ticks`` is how many equal parts of it have a label, each at its begin.
    """

    name: str
    label: Any
    seconds: int
    step: int
    ticks: int


SPANS = {
    span.name: span
    for span in (
        Span("hour", gettext_lazy("Hour"), 3_600, 60, 6),
        Span("day", gettext_lazy("Day"), 86_400, 1_800, 6),
        Span("week", gettext_lazy("Week"), 7 * 86_400, 3 * 3_600, 7),
    )
}


def added(rows: Sequence[Sequence[Activity]]) -> list[Activity]:
    """Return the sum of what several queues did in the same steps."""
    total: dict[int, Activity] = {}
    for row in rows:
        for one in row:
            met = total.get(one.at, Activity(one.at))
            total[one.at] = Activity(one.at, met.acked + one.acked, met.failed + one.failed)
    return [total[at] for at in sorted(total)]


def label(at: int, span: Span) -> str:
    """Return the begin of a step as a table has it."""
    when = local(at)
    clock = formats.time_format(when.time(), "H:i")
    if span.seconds <= 86_400:
        return clock
    return f"{formats.date_format(when, 'SHORT_DATE_FORMAT')} {clock}"


def axis(steps: Sequence[Activity], span: Span) -> list[str]:
    """Return the labels below the chart, each for an equal part of it."""
    if not steps:
        return []
    starts = [steps[index * len(steps) // span.ticks].at for index in range(span.ticks)]
    if span.seconds <= 86_400:
        return [label(at, span) for at in starts]
    return [formats.date_format(local(at), "D j") for at in starts]


def most(steps: Sequence[Activity]) -> str:
    """Return how many jobs the highest bar stands for, in words."""
    return _("%s at most in one step") % localize(_top(steps))


def _top(steps: Sequence[Activity]) -> int:
    return max([one.acked + one.failed for one in steps], default=0)


def bars(steps: Sequence[Activity], span: Span) -> SafeString:
    """Return the chart of what was done and what failed, a bar a step."""
    top = _top(steps)
    width = WIDTH / max(1, len(steps))
    shapes: list[tuple[str, str, str, str, str, str]] = []
    for index, one in enumerate(steps):
        base = float(HEIGHT)
        for kind, number in (("acked", one.acked), ("failed", one.failed)):
            if not number:
                continue
            height = max(1.0, (HEIGHT - 2) * number / top)
            base -= height
            tip = f"{label(one.at, span)}: {localize(number)} {KINDS[kind]}"
            wide = max(0.5, width - 1)
            shapes.append((f"lq-{kind}", _n(index * width), _n(base), _n(wide), _n(height), tip))
    return format_html(
        '<svg class="lq-chart" viewBox="0 0 {} {}" role="img" aria-label="{}"'
        ' preserveAspectRatio="none"><line x1="0" y1="{}" x2="{}" y2="{}"/>{}</svg>',
        WIDTH,
        HEIGHT,
        summary(steps, span),
        HEIGHT,
        WIDTH,
        HEIGHT,
        format_html_join(
            "",
            '<rect class="{}" x="{}" y="{}" width="{}" height="{}"><title>{}</title></rect>',
            shapes,
        ),
    )


KINDS = {"acked": gettext_lazy("done"), "failed": gettext_lazy("failed")}


def summary(steps: Sequence[Activity], span: Span) -> str:
    """Return the chart in one sentence, for who can't see it."""
    numbers = {
        "acked": localize(sum(one.acked for one in steps)),
        "failed": localize(sum(one.failed for one in steps)),
        "span": span.label,
    }
    return _("%(span)s: %(acked)s jobs done, %(failed)s failed. The table has the steps.") % numbers


def spark(series: Sequence[int], text: str) -> SafeString:
    """Return a small chart of one series, with what it says as its name."""
    top = max(series, default=0)
    width = SPARK_WIDTH / max(1, len(series))
    shapes = []
    for index, number in enumerate(series):
        if number:
            height = max(1.5, (SPARK_HEIGHT - 2) * number / top)
            place = (_n(index * width), _n(SPARK_HEIGHT - height))
            shapes.append((*place, _n(max(0.5, width - 1)), _n(height)))
    return format_html(
        '<svg class="lq-chart lq-spark" viewBox="0 0 {} {}" role="img" aria-label="{}">'
        '<line x1="0" y1="{}" x2="{}" y2="{}"/>{}</svg>',
        SPARK_WIDTH,
        SPARK_HEIGHT,
        text,
        SPARK_HEIGHT,
        SPARK_WIDTH,
        SPARK_HEIGHT,
        format_html_join(
            "", '<rect class="lq-failed" x="{}" y="{}" width="{}" height="{}"/>', shapes
        ),
    )


def table(steps: Sequence[Activity], span: Span) -> list[tuple[str, int, int]]:
    """Return the steps in which anything happened: begin, done, failed."""
    return [
        (label(one.at, span), one.acked, one.failed) for one in steps if one.acked or one.failed
    ]


def per_minute(number: int, span: Span) -> str:
    """Return a number of jobs in a span as a rate."""
    return localize(round(number * 60 / span.seconds, 2))


def steps_until(now: int, span: Span) -> tuple[int, int, int]:
    """Return the arguments of ``activity`` for a span that ends now."""
    step = span.step * MICROSECONDS
    first = (now - span.seconds * MICROSECONDS) // step * step + step
    return first, now + 1, span.step


def _n(number: float) -> str:
    """Return a number as SVG takes it, whatever the language."""
    return f"{number:.2f}"
