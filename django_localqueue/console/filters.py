"""Which jobs a page or an act means: the filter in the URL, read and described."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from django import forms
from django.core.exceptions import ValidationError
from django.http import QueryDict
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_localqueue.console.stores import error_in_words
from django_localqueue.types import REASONS, JobFilter, Reason, State

PAGE_SIZES = (25, 50, 100)
DEFAULT_PAGE_SIZE = 50
COUNT_CAP = 10_000
#: How many jobs one act touches at most; what is left is said and can be done next.
ACT_LIMIT = 100_000
#: The states in the order of the lists: what needs somebody first.
LISTED: tuple[State, ...] = ("failed", "ready", "delayed", "blocked", "processing", "acked")

UNIT_SECONDS = {"minutes": 60, "hours": 3_600, "days": 86_400, "weeks": 7 * 86_400}

REASON_LABELS: Mapping[str, Any] = {
    "exhausted": gettext_lazy("attempts exhausted"),
    "failed": gettext_lazy("failed"),
    "cancelled": gettext_lazy("cancelled"),
    "expired": gettext_lazy("expired"),
    "undecodable": gettext_lazy("payload undecodable"),
    "discarded": gettext_lazy("discarded"),
}
STATE_LABELS: Mapping[str, Any] = {
    "ready": gettext_lazy("ready"),
    "delayed": gettext_lazy("delayed"),
    "blocked": gettext_lazy("blocked behind its group"),
    "processing": gettext_lazy("processing"),
    "acked": gettext_lazy("done"),
    "failed": gettext_lazy("failed (dead letter)"),
}


class RawCharField(forms.CharField):
    """Text that is searched for as it stands, spaces at its ends included."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(strip=False, required=False, **kwargs)


class DateTimeInput(forms.DateTimeInput):
    input_type = "datetime-local"

    def __init__(self) -> None:
        super().__init__(format="%Y-%m-%dT%H:%M:%S", attrs={"step": "1"})


class FilterForm(forms.Form):
    """The filter of a list of jobs, as the URL carries it.

    Args:
        data: the URL's query.
        aliases: the queues that this user may see; no other is ever meant.
    """

    state = forms.ChoiceField(
        label=gettext_lazy("State"),
        required=False,
        choices=[(state, STATE_LABELS[state]) for state in LISTED],
        widget=forms.HiddenInput,
    )

    queue = forms.MultipleChoiceField(
        label=gettext_lazy("Queue"), required=False, widget=forms.CheckboxSelectMultiple
    )
    text = RawCharField(
        label=gettext_lazy("Error, task or id contains"), widget=forms.TextInput(), max_length=1_000
    )
    task = RawCharField(label=gettext_lazy("Task"), max_length=1_000)
    error = RawCharField(label=gettext_lazy("Error class"), max_length=500)
    reason = forms.ChoiceField(label=gettext_lazy("Reason"), required=False)
    since = forms.DateTimeField(label=gettext_lazy("Since"), required=False, widget=DateTimeInput)
    until = forms.DateTimeField(label=gettext_lazy("Until"), required=False, widget=DateTimeInput)
    attempts = forms.IntegerField(
        label=gettext_lazy("Attempts at least"), required=False, min_value=0, max_value=1_000_000
    )
    group = RawCharField(label=gettext_lazy("Group"), max_length=255)
    id = RawCharField(label=gettext_lazy("Id"), max_length=600)
    args = RawCharField(label=gettext_lazy("Arguments contain"), max_length=1_000)
    failure = forms.RegexField(r"^[0-9]{1,18}$", required=False, widget=forms.HiddenInput)
    per = forms.TypedChoiceField(
        label=gettext_lazy("Jobs a page"),
        required=False,
        coerce=int,
        choices=[(size, str(size)) for size in PAGE_SIZES],
    )

    def __init__(self, data: QueryDict, aliases: Sequence[str]) -> None:
        super().__init__(data, auto_id="lq-%s")
        self.aliases = list(aliases)
        cast(forms.MultipleChoiceField, self.fields["queue"]).choices = [
            (alias, alias) for alias in self.aliases
        ]
        cast(forms.ChoiceField, self.fields["reason"]).choices = [
            ("", _("Any")),
            *((reason, REASON_LABELS[reason]) for reason in REASONS),
        ]

    def chosen(self) -> list[str]:
        """Return the aliases that are meant: those ticked, or all that may be seen."""
        return self.cleaned_data["queue"] or self.aliases

    def per_page(self) -> int:
        """Return the number of jobs a page."""
        return int(self.cleaned_data["per"] or DEFAULT_PAGE_SIZE)

    def state_name(self) -> State:
        """Return the state whose jobs are meant; dead letters where none is named."""
        return cast(State, self.cleaned_data["state"] or "failed")

    def job_filter(self) -> JobFilter:
        """Return what the queues are asked for."""
        data = self.cleaned_data
        is_failed = self.state_name() == "failed"
        return JobFilter(
            state=self.state_name(),
            task=data["task"] or None,
            error_class=data["error"] or None,
            text=data["text"] or None,
            reason=(cast(Reason, data["reason"]) or None) if is_failed else None,
            group_id=data["group"] or None,
            ids=(data["id"],) if data["id"] else None,
            min_attempts=data["attempts"],
            failure=(data["failure"] or None) if is_failed else None,
            since=_microseconds(data["since"]),
            until=_microseconds(data["until"]),
        )

    def clean(self) -> dict[str, Any]:
        data = super().clean() or self.cleaned_data
        since, until = data.get("since"), data.get("until")
        if since and until and since > until:
            raise ValidationError(_("“Since” is after “Until”: no job can match."))
        return data

    def needs_scan(self) -> bool:
        """Return whether counting must look at each dead letter, not only at an index."""
        scanned = ("text", "task", "error", "reason", "attempts", "args")
        return any(self.cleaned_data[name] for name in scanned)

    def query(self, without: Sequence[str] = ()) -> str:
        """Return the filter as a query, without page and counts: for links and forms."""
        query = QueryDict(mutable=True)
        for name in self.fields:
            if name in without:
                continue
            values = [value for value in cast(QueryDict, self.data).getlist(name) if value]
            if values:
                query.setlist(name, values)
        return query.urlencode()

    def describe(self) -> list[str]:
        """Return the filter in words, a line for each part that narrows it."""
        data = self.cleaned_data
        lines = [f"{_('Queue')}: {', '.join(self.chosen())}"]
        if data["failure"]:
            lines.append(f"{_('Error')}: {error_in_words(self.chosen(), data['failure'])}")
        for name in ("text", "task", "error", "attempts", "group", "id", "args"):
            if data[name]:
                lines.append(f"{self.fields[name].label}: “{data[name]}”")
        if data["reason"]:
            lines.append(f"{_('Reason')}: {REASON_LABELS[data['reason']]}")
        for name in ("since", "until"):
            if data[name]:
                lines.append(f"{self.fields[name].label}: {data[name].isoformat(' ')}")
        return lines


class DelayForm(forms.Form):
    """For how long jobs are to be delayed."""

    amount = forms.IntegerField(label=gettext_lazy("Delay by"), min_value=1, max_value=100_000)
    unit = forms.ChoiceField(
        label=gettext_lazy("Unit"),
        choices=[
            ("minutes", gettext_lazy("minutes")),
            ("hours", gettext_lazy("hours")),
            ("days", gettext_lazy("days")),
        ],
    )

    def seconds(self) -> int:
        """Return the delay in seconds."""
        return int(self.cleaned_data["amount"]) * UNIT_SECONDS[self.cleaned_data["unit"]]


class TargetForm(forms.Form):
    """The queue that jobs are to be moved to."""

    target = forms.ChoiceField(label=gettext_lazy("Move to"))

    def __init__(self, data: QueryDict | None, aliases: Sequence[str], **kwargs: Any) -> None:
        super().__init__(data, **kwargs)
        cast(forms.ChoiceField, self.fields["target"]).choices = [
            (alias, alias) for alias in aliases
        ]


class AgeForm(forms.Form):
    """What a purge by age removes."""

    queue = forms.MultipleChoiceField(
        label=gettext_lazy("Queue"), required=False, widget=forms.CheckboxSelectMultiple
    )
    state = forms.ChoiceField(
        label=gettext_lazy("Jobs that are"),
        choices=[("acked", STATE_LABELS["acked"]), ("failed", STATE_LABELS["failed"])],
    )
    age = forms.IntegerField(
        label=gettext_lazy("Finished longer ago than"), min_value=0, max_value=100_000
    )
    unit = forms.ChoiceField(
        label=gettext_lazy("Unit"),
        choices=[
            ("days", gettext_lazy("days")),
            ("hours", gettext_lazy("hours")),
            ("weeks", gettext_lazy("weeks")),
        ],
    )

    def __init__(self, data: QueryDict | None, aliases: Sequence[str]) -> None:
        super().__init__(data, auto_id="lq-%s", initial={"age": 30})
        self.aliases = list(aliases)
        cast(forms.MultipleChoiceField, self.fields["queue"]).choices = [
            (alias, alias) for alias in self.aliases
        ]

    def chosen(self) -> list[str]:
        """Return the aliases that are meant."""
        return self.cleaned_data["queue"] or self.aliases

    def seconds(self) -> int:
        """Return the age in seconds."""
        return int(self.cleaned_data["age"]) * UNIT_SECONDS[self.cleaned_data["unit"]]


def bounded(filter: JobFilter, as_of: int) -> JobFilter:
    """Return the filter, without what came into its state after ``as_of``, for a preview.

    The order of the delayed and of the running ones doesn't tell.
    """
    if filter.state in ("delayed", "processing"):
        return filter
    until = as_of if filter.until is None else min(filter.until, as_of)
    return replace(filter, until=until)


def _microseconds(moment: datetime.datetime | None) -> int | None:
    if moment is None:
        return None
    if timezone.is_naive(moment):  # USE_TZ is off: the settings' zone is meant
        moment = timezone.make_aware(moment, timezone.get_default_timezone())
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return (moment - epoch) // datetime.timedelta(microseconds=1)
