"""Doing one thing to jobs of several queues, and counting what became of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import methodcaller

from django.utils.formats import localize
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_localqueue.console.audit import Act
from django_localqueue.console.filters import ACT_LIMIT, COUNT_CAP, bounded
from django_localqueue.console.stores import Unreadable, ask, merged_page
from django_localqueue.types import Action, Applied, JobFilter, JobRecord

#: The permission that each action needs.
NEEDS: Mapping[str, str] = {
    "retry": "retry_job",
    "purge": "purge_queue",
    "discard": "discard_job",
}
SAMPLE = 10
#: What must be typed before a purge by filter; the same in every language.
PURGE_WORD = "purge"


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
    action: Action, names: Sequence[str], filter: JobFilter, as_of: int, description: str
) -> Act:
    """Do it to every job that matches and was in its state at ``as_of``, up to a limit."""
    counts: dict[str, Applied] = {}
    errors: dict[str, str] = {}
    left = ACT_LIMIT
    for alias in names:
        if left <= 0:
            counts[alias] = Applied(more=True)
            continue
        answer: Applied | Unreadable = ask(
            alias, methodcaller("apply", action, filter, as_of=as_of, limit=left)
        )
        if isinstance(answer, Unreadable):
            errors[alias] = answer.error
        else:
            counts[alias] = answer
            left -= answer.done
    return Act(action, names, counts, filter=description, errors=errors)


def on_chosen(action: Action, ids: Sequence[tuple[str, str]], filter: JobFilter, as_of: int) -> Act:
    """Do it to these jobs, as far as they still are what they were at ``as_of``."""
    counts: dict[str, Applied] = {}
    errors: dict[str, str] = {}
    chosen: dict[str, list[str]] = {}
    for alias, id in ids:
        chosen.setdefault(alias, []).append(id)
    for alias, own in chosen.items():
        of_queue = replace(filter, ids=tuple(own))
        answer: Applied | Unreadable = ask(
            alias, methodcaller("apply", action, of_queue, as_of=as_of, limit=ACT_LIMIT)
        )
        if isinstance(answer, Unreadable):
            errors[alias] = answer.error
        else:
            counts[alias] = answer
    return Act(action, list(chosen), counts, ids=list(ids), errors=errors)
