"""What belongs to a store and not to one queue of it: workers and schedules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from django_localqueue.console.stores import Unreadable, aliases, ask
from django_localqueue.queues import queues
from django_localqueue.records import ScheduleRecord, WorkerRecord

#: Microseconds without a word after which a worker may be dead or stuck.
STALE = 90_000_000


@dataclass(frozen=True, slots=True)
class Entry:
    """The queue that was asked for a store's records, and that store's time."""

    alias: str
    now: int


@dataclass(frozen=True, slots=True)
class WorkerEntry(Entry):
    """A worker of a store."""

    record: WorkerRecord

    @property
    def is_dead(self) -> bool:
        """Whether its process has ended without a word."""
        return self.record.alive is False

    @property
    def is_silent(self) -> bool:
        """Whether it has said nothing for so long that it may be dead or stuck."""
        return not self.is_dead and self.now - self.record.seen_at > STALE


@dataclass(frozen=True, slots=True)
class ScheduleEntry(Entry):
    """A schedule of a store; ``alias`` is that of its own queue where there is one."""

    record: ScheduleRecord


def one_of_each_store(names: Iterable[str]) -> list[str]:
    """Return the first alias of each store."""
    seen: dict[str, str] = {}
    for alias in names:
        key = ask(alias, lambda queue: queue.store_key)
        if isinstance(key, str):
            seen.setdefault(key, alias)
    return list(seen.values())


def workers_of(names: Sequence[str]) -> tuple[list[WorkerEntry], list[Unreadable]]:
    """Return the workers of the stores of these queues, and who could not be asked."""
    found: list[WorkerEntry] = []
    unreadable: list[Unreadable] = []
    for alias in one_of_each_store(names):
        answer = ask(alias, lambda queue: (queue.now(), queue.workers()))
        if isinstance(answer, Unreadable):
            unreadable.append(answer)
        else:
            found += [WorkerEntry(alias, answer[0], record) for record in answer[1]]
    return found, unreadable


def schedules_of(names: Sequence[str]) -> tuple[list[ScheduleEntry], list[Unreadable]]:
    """Return the schedules of the stores of these queues, and who could not be asked."""
    found: list[ScheduleEntry] = []
    unreadable: list[Unreadable] = []
    for alias in one_of_each_store(names):
        answer = ask(alias, lambda queue: (queue.now(), queue.schedules()))
        if isinstance(answer, Unreadable):
            unreadable.append(answer)
        else:
            found += [ScheduleEntry(alias, answer[0], record) for record in answer[1]]
    known = aliases_by_queue() if found else {}
    entries = [
        replace(entry, alias=alias_near(entry.alias, entry.record.queue, known) or entry.alias)
        for entry in found
    ]
    return entries, unreadable


def aliases_by_queue() -> dict[tuple[str, str], str]:
    """Return the alias of each queue that can be opened, by its store and its name there."""
    found: dict[tuple[str, str], str] = {}
    for alias in aliases():
        answer = ask(alias, lambda queue: (queue.store_key, queue.name))
        if not isinstance(answer, Unreadable):
            found.setdefault(answer, alias)
    return found


def alias_near(near: str, name: str, known: Mapping[tuple[str, str], str]) -> str | None:
    """Return the alias of the queue of this name in the store of the queue ``near``."""
    return known.get((queues[near].store_key, name))
