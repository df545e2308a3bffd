"""Doing one thing to jobs of several queues, and counting what became of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import methodcaller
from typing import Any, Final

from django.utils.formats import localize
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_localqueue.backends.inspection import SUITS
from django_localqueue.console.audit import Act, added
from django_localqueue.console.filters import ACT_LIMIT, COUNT_CAP, bounded
from django_localqueue.console.stores import Unreadable, ask, merged_page, tell
from django_localqueue.queues import queues
from django_localqueue.types import Action, Applied, JobFilter, JobRecord, State

#: The permission that each action needs.
NEEDS: Final[Mapping[str, str]] = {
    "retry": "retry_job",
    "run_now": "run_job_now",
    "delay": "run_job_now",
    "move": "move_job",
    "cancel": "discard_job",
    "discard": "discard_job",
    "purge": "purge_queue",
}
SAMPLE = 10
#: What must be typed before a purge by filter; the same in every language.
PURGE_WORD = "purge"
#: How long one request goes on with an act on many jobs, and how many it does at a time.
SLICE_SECONDS, SLICE = 4.0, 5_000


def suits(action: str, state: State) -> bool:
    """Return whether an action can be done to jobs of that state."""
    return state in SUITS.get(action, ())


def store_of(alias: str) -> str:
    """Return what is equal for the queues of one store."""
    return queues[alias].store_key


@dataclass(frozen=True, slots=True)
class Deed:
    """An action with what it needs to know."""

    action: Action
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def to(self, filter: JobFilter, as_of: int, limit: int) -> Callable[[Any], Applied]:
        """Return what does it to the jobs of a queue that match."""
        return methodcaller(
            "apply", self.action, filter, as_of=as_of, limit=limit, **self.arguments
        )

    def can_be_cut(self, filter: JobFilter) -> bool:
        """Whether jobs that are done match no longer, so that a next request can go on."""
        lasting = {("cancel", "processing"), ("delay", "delayed")}
        return (self.action, filter.state) not in lasting


@dataclass(frozen=True, slots=True)
class Counted:
    """How many jobs an act would touch, the first of them, and who could not be asked."""

    count: int
    capped: bool
    sample: list[tuple[str, JobRecord]]
    unreadable: list[Unreadable]

    @property
    def lines(self) -> list[str]:
        """The sample as text, a line for each job."""
        return [f"{alias}: {record.id}" for alias, record in self.sample]

    @property
    def text(self) -> str:
        """The number of jobs in words."""
        return count_text(self.count, self.capped)


def count_text(number: int, is_capped: bool = False) -> str:
    """Return a number of jobs in words."""
    if is_capped:
        return _("%s jobs or more") % localize(number)
    return ngettext("%s job", "%s jobs", number) % localize(number)


def count(names: Sequence[str], filter: JobFilter) -> tuple[int, bool, list[Unreadable]]:
    """Return how many jobs match in all the queues, and whether counting stopped at the cap."""
    found, unreadable = 0, []
    for alias in names:
        answer: int | Unreadable = ask(alias, methodcaller("count", filter, cap=COUNT_CAP))
        if isinstance(answer, Unreadable):
            unreadable.append(answer)
        else:
            found += answer
    return min(found, COUNT_CAP), found >= COUNT_CAP, unreadable


def preview(names: Sequence[str], filter: JobFilter, as_of: int) -> Counted:
    """Return what an act on all that match ``filter`` as of that time would touch."""
    filter = bounded(filter, as_of)
    found, capped, unreadable = count(names, filter)
    sample = merged_page(names, filter, SAMPLE, None).records
    return Counted(found, capped, sample, unreadable)


def on_all(
    deed: Deed,
    names: Sequence[str],
    filter: JobFilter,
    as_of: int,
    description: str,
    limit: int = ACT_LIMIT,
    seconds: float | None = None,
) -> Act:
    """Do it to every job that matches and was in its state at ``as_of``.

    Stops at ``limit`` jobs, and after ``seconds`` where given and it can be cut; what is
    left is told by ``more`` of the counts.
    """
    counts: dict[str, Applied] = {}
    errors: dict[str, str] = {}
    deadline = None
    if seconds is not None and deed.can_be_cut(filter):
        deadline = time.monotonic() + seconds
    left = limit
    is_first = True  # a request does at least one part
    for alias in names:
        total = Applied(more=True)
        while left > 0 and total.more and (is_first or not is_late(deadline)):
            is_first = False
            part = left if deadline is None else min(left, SLICE)
            answer: Applied | Unreadable = tell(alias, deed.to(filter, as_of, part))
            if isinstance(answer, Unreadable):
                errors[alias] = answer.error
                total = replace(total, more=False)
                break
            left -= answer.done
            total = added(total, answer)
            if answer.more and not answer.done:  # nothing that it may do is left
                total = replace(total, more=False)
        if alias not in errors or total.done:
            counts[alias] = total
    return Act(deed.action, names, counts, filter=description, errors=errors)


def is_late(deadline: float | None) -> bool:
    """Return whether the time is up."""
    return deadline is not None and time.monotonic() >= deadline


def on_chosen(deed: Deed, ids: Sequence[tuple[str, str]], filter: JobFilter, as_of: int) -> Act:
    """Do it to these jobs, as far as they still are what they were at ``as_of``."""
    counts: dict[str, Applied] = {}
    errors: dict[str, str] = {}
    chosen: dict[str, list[str]] = {}
    for alias, id in ids:
        chosen.setdefault(alias, []).append(id)
    for alias, own in chosen.items():
        of_queue = replace(filter, ids=tuple(own))
        answer: Applied | Unreadable = tell(alias, deed.to(of_queue, as_of, ACT_LIMIT))
        if isinstance(answer, Unreadable):
            errors[alias] = answer.error
        else:
            counts[alias] = answer
    return Act(deed.action, list(chosen), counts, ids=list(ids), errors=errors)
