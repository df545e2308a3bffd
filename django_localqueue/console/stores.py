"""Reading several queues for one page, where any store may fail to answer."""

from __future__ import annotations

import datetime
import json
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from operator import methodcaller
from typing import TypeVar

from django.core.exceptions import ImproperlyConfigured
from django.http import Http404
from django.utils.translation import gettext as _

from django_localqueue.backends.base import BaseQueue
from django_localqueue.conf import console
from django_localqueue.console.display import short
from django_localqueue.exceptions import LocalQueueError, StoreUnavailable
from django_localqueue.queues import queues
from django_localqueue.transports.patience import at_most
from django_localqueue.types import JobFilter, JobRecord, Page, Stats

logger = logging.getLogger("django_localqueue.console")

#: How long one page may look for rare jobs; the next one goes on where it stopped.
SEARCH_SECONDS = 0.5
#: How many jobs one page looks at for a text in their arguments, and how many it reads at a time.
ARGUMENTS, ARGUMENTS_PAGE = 5_000, 500

#: How long a store that kept a page waiting is not asked again: the rest of that page.
SILENCE_SECONDS = 2.0
#: Until when a store is not asked again, and what it said, by its key.
_silent: dict[str, tuple[float, StoreUnavailable]] = {}

T = TypeVar("T")


def aliases() -> list[str]:
    """Return the aliases of all queues, in the order of the settings."""
    return list(queues)


def known(alias: str) -> str:
    """Return the alias; raises ``Http404`` where the settings have no such queue."""
    if alias not in queues:
        raise Http404(_("There is no such queue."))
    return alias


@dataclass(frozen=True, slots=True)
class Unreadable:
    """What is shown in place of what a store would have answered."""

    alias: str
    error: str


def ask(alias: str, question: Callable[[BaseQueue], T]) -> T | Unreadable:
    """Return the queue's answer to a question that changes nothing, or why there is none.

    A store that doesn't answer within ``LOCALQUEUE_CONSOLE["READ_SECONDS"]`` is not asked again
    by the rest of the page.
    """
    return tell(alias, lambda queue: _impatiently(queue, question))


def _impatiently(queue: BaseQueue, question: Callable[[BaseQueue], T]) -> T:
    began, seconds = time.monotonic(), console().read_seconds
    until, error = _silent.get(queue.store_key, (began, None))
    if error is not None and began < until:
        raise type(error)(str(error))
    try:
        with at_most(seconds):
            return question(queue)
    except StoreUnavailable as error:
        now = time.monotonic()
        if now - began > seconds / 2:
            _silent[queue.store_key] = (now + SILENCE_SECONDS, error)
        raise


def tell(alias: str, question: Callable[[BaseQueue], T]) -> T | Unreadable:
    """Let the queue do something; return its answer, or why there is none.

    Errors that name a mend are shown as they are; of any other only the class, since
    its text may tell what isn't for everybody (it is in the log).
    """
    try:
        return question(queues[alias])
    except (LocalQueueError, ImproperlyConfigured) as error:
        return Unreadable(alias, f"{type(error).__name__}: {error}")
    except Exception as error:
        logger.exception("The queue %r could not be asked.", alias)
        return Unreadable(alias, _("%s; the log has the details.") % type(error).__name__)


@dataclass(frozen=True, slots=True)
class QueueRow:
    """One line of the overview."""

    alias: str
    stats: Stats | None = None
    error: str = ""
    now: int = 0

    @property
    def ready(self) -> int:
        """How many jobs a worker could take now; the statistics count the other waiting ones in."""
        stats = self.stats
        return 0 if stats is None else stats.ready - stats.delayed - stats.blocked

    @property
    def oldest_age(self) -> datetime.timedelta | None:
        """How long the job has waited that has waited longest."""
        if self.stats is None or self.stats.oldest_ready_at is None:
            return None
        return datetime.timedelta(microseconds=max(0, self.now - self.stats.oldest_ready_at))


def overview(names: Iterable[str]) -> list[QueueRow]:
    """Return a row for each queue, with its numbers or with its error."""
    rows = []
    for alias in names:
        answer = ask(alias, lambda queue: (queue.stats(), queue.now()))
        if isinstance(answer, Unreadable):
            rows.append(QueueRow(alias, error=answer.error))
        else:
            rows.append(QueueRow(alias, answer[0], now=answer[1]))
    return rows


@dataclass(frozen=True, slots=True)
class Cursor:
    """A place in the merged list: time, id, and the alias of the last queue shown there.

    The alias parts records that two stores gave one time and one id; an empty one
    means that every queue was shown up to and with this place.
    """

    at: int
    id: int
    alias: str = ""

    @classmethod
    def parse(cls, text: str) -> Cursor | None:
        """Return the cursor that ``str`` wrote, or None for anything else."""
        at, _dash, rest = text.partition("-")
        id, _dash, alias = rest.partition("-")
        numbers = (at, id)
        if not all(part.isascii() and part.isdigit() and len(part) < 20 for part in numbers):
            return None
        return cls(int(at), int(id), alias)

    def __str__(self) -> str:
        return f"{self.at}-{self.id}-{self.alias}"

    def after(self, alias: str, is_descending: bool = True) -> tuple[int, int]:
        """Return the ``after`` of one queue's own list."""
        if self.alias and alias > self.alias:  # this queue's record of that place comes yet
            return (self.at, self.id + 1 if is_descending else self.id - 1)
        return (self.at, self.id)


@dataclass(frozen=True, slots=True)
class MergedPage:
    """Records of several queues in the order of their state, each with its alias."""

    records: list[tuple[str, JobRecord]] = field(default_factory=list)
    next: Cursor | None = None
    unreadable: list[Unreadable] = field(default_factory=list)
    #: True where the search for more stopped at ``next`` before the page was full.
    partial: bool = False


def merged_page(
    names: Sequence[str], filter: JobFilter, limit: int, after: Cursor | None
) -> MergedPage:
    """Return up to ``limit`` jobs of one state of all the queues, in the order of the state.

    Finished ones come newest first, others next first. A queue whose search stopped early
    bounds the page: what others have behind that place is left for the next page, so nothing
    is shown out of order.
    """
    is_descending = filter.state in ("acked", "failed")
    found: list[tuple[str, JobRecord]] = []
    unreadable: list[Unreadable] = []
    bounds: list[tuple[int, int]] = []
    for alias in names:
        place = after.after(alias, is_descending) if after else None
        page: Page | Unreadable = ask(alias, methodcaller("list", filter, limit=limit, after=place))
        if isinstance(page, Unreadable):
            unreadable.append(page)
            continue
        found += [(alias, record) for record in page.records]
        if page.next is not None:
            bounds.append(page.next)
    found.sort(key=lambda item: item[0])
    found.sort(key=lambda item: item[1].cursor, reverse=is_descending)
    bound = (max if is_descending else min)(bounds, default=None)
    shown = [
        item
        for item in found
        if bound is None or (item[1].cursor >= bound if is_descending else item[1].cursor <= bound)
    ]
    if len(shown) > limit:
        shown = shown[:limit]
        alias, last = shown[-1]
        return MergedPage(shown, Cursor(*last.cursor, alias), unreadable)
    if bound is None:
        return MergedPage(shown, None, unreadable)
    return MergedPage(shown, Cursor(*bound), unreadable, partial=len(shown) < limit)


def error_in_words(names: Sequence[str], failure: str) -> str:
    """Return class, place and task of a group of failures; its key where it has no jobs."""
    for _alias, record in merged_page(names, JobFilter("failed", failure=failure), 1, None).records:
        error = record.error
        words = (error.error_class, short(error.place), record.task) if error else (record.task,)
        return ", ".join(word for word in words if word)
    return f"#{failure}"


def search(names: Sequence[str], filter: JobFilter, limit: int, after: Cursor | None) -> MergedPage:
    """``merged_page``, going on for ``SEARCH_SECONDS`` where a search stopped early."""
    deadline = time.monotonic() + SEARCH_SECONDS
    page = merged_page(names, filter, limit, after)
    while page.partial and time.monotonic() < deadline:
        more = merged_page(names, filter, limit - len(page.records), page.next)
        records = page.records + more.records
        page = MergedPage(records, more.next, more.unreadable, more.partial)
    return page


@dataclass(frozen=True, slots=True)
class ArgumentsPage:
    """What a search in the arguments found, and how many jobs it looked at."""

    page: MergedPage
    looked_at: int


def search_arguments(
    names: Sequence[str], filter: JobFilter, needle: str, limit: int, after: Cursor | None
) -> ArgumentsPage:
    """Look for a text in the payloads of the next ``ARGUMENTS`` jobs that match otherwise.

    No index helps here, so the search has a bound, and the page says so.
    """
    wanted = {needle.lower(), json.dumps(needle)[1:-1].lower()}
    found: list[tuple[str, JobRecord]] = []
    unreadable: list[Unreadable] = []
    looked_at = 0
    place = after
    deadline = time.monotonic() + SEARCH_SECONDS
    while looked_at < ARGUMENTS and time.monotonic() < deadline:
        part = merged_page(names, filter, ARGUMENTS_PAGE, place)
        unreadable = part.unreadable
        for alias, record in part.records:
            looked_at += 1
            place = Cursor(*record.cursor, alias)
            text = record.payload.decode("utf-8", "replace").lower()
            if any(form in text for form in wanted):
                found.append((alias, record))
                if len(found) == limit:
                    return ArgumentsPage(MergedPage(found, place, unreadable), looked_at)
        place = part.next
        if place is None:
            break
    is_partial = place is not None
    return ArgumentsPage(MergedPage(found, place, unreadable, partial=is_partial), looked_at)


def as_of(names: Iterable[str]) -> int:
    """Return the time of the page: no store's clock was past it when it was asked.

    Taken before the records are read, so that a job shown too late is left alone by
    an act on "all", and none is touched that could not be seen.
    """
    times = [
        now for alias in names if isinstance(now := ask(alias, lambda queue: queue.now()), int)
    ]
    return min(times, default=0)
