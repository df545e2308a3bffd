"""How records look on a page: times, ages, payloads. Nothing here imports user code."""

from __future__ import annotations

import datetime
import json
from dataclasses import dataclass

from django.conf import settings
from django.utils import formats, timezone
from django.utils.formats import localize
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.timesince import timesince
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_localqueue.console.redact import redacted
from django_localqueue.types import ErrorRecord, JobRecord, to_datetime

MAX_SHOWN = 200_000
MAX_ERROR_IN_ROW = 160
HEX_ROW = 16
MAX_HEX_BYTES = 4_096


def local(microseconds: int) -> datetime.datetime:
    """Return the time in the current zone, or in that of the settings where USE_TZ is off."""
    zone = timezone.get_current_timezone() if settings.USE_TZ else timezone.get_default_timezone()
    return to_datetime(microseconds).astimezone(zone)


def moment(microseconds: int | None) -> SafeString | str:
    """Return a ``<time>`` with the local time, UTC in its title; a dash for None."""
    if microseconds is None:
        return "-"
    utc = to_datetime(microseconds)
    here = local(microseconds)
    return format_html(
        '<time datetime="{}" title="{}">{}</time>',
        utc.isoformat(),
        utc.strftime("%Y-%m-%d %H:%M:%S.%f UTC"),
        f"{formats.date_format(here, 'SHORT_DATE_FORMAT')} {here:%H:%M:%S}",
    )


def age(span: datetime.timedelta | None) -> str:
    """Return how long that is, in words; a dash for None."""
    if span is None:
        return "-"
    whole = int(span.total_seconds())
    if whole < 60:
        return ngettext("%d second", "%d seconds", whole) % whole
    now = timezone.now()
    return timesince(now - span, now)


def in_row(error: ErrorRecord | None) -> str:
    """Return ``class: message`` on one line, cut to fit a row."""
    if error is None:
        return "-"
    return in_line(": ".join(part for part in (error.error_class, error.message) if part))


def duration(microseconds: float) -> str:
    """Return how long something took, as exactly as anybody reads."""
    if microseconds < 1_000_000:
        return f"{localize(round(microseconds / 1_000, 1))} ms"
    if microseconds < 60_000_000:
        return f"{localize(round(microseconds / 1_000_000, 1))} s"
    return age(datetime.timedelta(microseconds=microseconds))


def short(place: str) -> str:
    """Return a place with no more of its path than tells it from others."""
    parts = place.replace("\\", "/").split("/")
    return place if len(parts) <= 3 else f"…/{'/'.join(parts[-2:])}"


def in_line(text: str) -> str:
    """Return a text on one line, cut to fit a row."""
    text = " ".join(text[: MAX_ERROR_IN_ROW * 4].split())
    return text if len(text) <= MAX_ERROR_IN_ROW else f"{text[: MAX_ERROR_IN_ROW - 1]}…"


@dataclass(frozen=True, slots=True)
class Shown:
    """A stored payload or result, ready for the page.

    ``text`` is the JSON, indented, or the bytes read as UTF-8 as far as they are
    that; ``hex`` is filled where it isn't JSON; ``note`` says what was left out.
    """

    text: str
    size: int
    hex: str = ""
    note: str = ""


def shown(payload: bytes, record: JobRecord | None = None) -> Shown:
    """Return a payload or result as text; works for any bytes.

    Of JSON of a ``record`` the secrets are hidden, see ``redact``.

    JSON is read whatever the queue's serializer is: another one may be anybody's
    code, and reading what is stored must not run it.
    """
    try:
        data = json.loads(payload.decode())
        if record is not None:
            data = redacted(data, record)
        text = json.dumps(data, indent=2, ensure_ascii=False, default=str)
    except (ValueError, RecursionError):
        return Shown(
            cut(payload[: MAX_SHOWN * 4].decode("utf-8", "backslashreplace"))[0],
            len(payload),
            _hex(payload[:MAX_HEX_BYTES]),
            _("This is not JSON, so it is shown as stored: as text and as hexadecimal bytes."),
        )
    # a lone surrogate is valid in JSON's escapes, and can't be sent in a page
    text, note = cut(text.encode("utf-8", "backslashreplace").decode())
    return Shown(text, len(payload), note=note)


def cut(text: str) -> tuple[str, str]:
    """Return as much of the text as a page should hold, and a note about the rest."""
    if len(text) <= MAX_SHOWN:
        return text, ""
    left = len(text) - MAX_SHOWN
    note = ngettext("%d more character is not shown.", "%d more characters are not shown.", left)
    return text[:MAX_SHOWN], note % left


def _hex(data: bytes) -> str:
    rows = []
    for start in range(0, len(data), HEX_ROW):
        row = data[start : start + HEX_ROW]
        shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        rows.append(f"{start:06x}  {row.hex(' '):<{3 * HEX_ROW}} {shown}")
    return "\n".join(rows)
