"""Looking at the jobs of a SQLite store, and changing them from outside."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Literal

from django_localqueue import _native
from django_localqueue.backends.arguments import Act, microseconds, optional_microseconds
from django_localqueue.backends.inspection import InspectableQueue
from django_localqueue.backends.sqlite.records import failure_group, job_record, native_filter
from django_localqueue.exceptions import JobNotFound
from django_localqueue.types import (
    Activity,
    Applied,
    FailureGroup,
    JobFilter,
    JobRecord,
    Page,
    Stats,
)


class SQLiteInspection(InspectableQueue):
    """The engine's side of it."""

    max_retries: int

    @abstractmethod
    def _open(self) -> _native.Store:
        """Return the store, opened where it isn't."""

    # ---- looking

    def stats(self) -> Stats:
        stats = self._open().stats(self.name)
        return Stats(
            stats.ready,
            stats.delayed,
            stats.blocked,
            stats.processing,
            stats.expired,
            stats.acked,
            stats.failed,
            stats.paused,
            stats.oldest_ready_at,
        )

    def lookup(self, id: str) -> JobRecord | None:
        record = self._open().lookup(self.name, str(id))
        return None if record is None else job_record(self.name, record)

    def _list(self, filter: JobFilter, limit: int, after: tuple[int, int] | None) -> Page:
        records, cursor = self._open().list(self.name, native_filter(filter), limit, after)
        return Page([job_record(self.name, record) for record in records], cursor)

    def _count(self, filter: JobFilter, cap: int) -> int:
        return self._open().count(self.name, native_filter(filter), cap)

    def _failures(self, limit: int, after: tuple[int, int] | None) -> list[FailureGroup]:
        groups = self._open().failures(self.name, limit, after)
        return [failure_group(group) for group in groups]

    def _activity(self, since: int, until: int, step: int) -> list[Activity]:
        steps = self._open().activity(self.name, since, until, step)
        return [Activity(*one) for one in steps]

    def _list_failed(self, limit: int, offset: int) -> list[JobRecord]:
        records = self._open().list_failed(self.name, limit, offset)
        return [job_record(self.name, record) for record in records]

    # ---- repairing

    def _retry_failed(self, id: str) -> bool:
        return self._known(self._open().retry_failed(self.name, id), id)

    def _cancel(self, id: str) -> bool:
        return self._known(self._open().cancel(self.name, id), id)

    def _edit(self, id: str, payload: bytes) -> bool:
        return self._known(self._open().edit(self.name, id, payload), id)

    def _known(self, done: bool | None, id: str) -> bool:
        if done is None:
            raise JobNotFound(f"The queue {self.name!r} has no job {id!r}.")
        return done

    def _apply(self, act: Act, filter: JobFilter, as_of: int, limit: int) -> Applied:
        return Applied(
            *self._open().apply(
                self.name, act.action, native_filter(filter), as_of, limit, act.delay, act.target
            )
        )

    def _purge(self, older_than: float, include_failed: bool) -> int:
        store = self._open()
        before = store.now() - microseconds(older_than, "older_than")
        kinds: Sequence[Literal["acked", "failed"]] = ("acked", "failed")
        return store.purge(self.name, before, kinds[: 1 + include_failed], None)

    def _prune(self, limit: int) -> int:
        retention = optional_microseconds(self.retention_seconds, "retention_seconds")
        return self._open().prune(self.name, retention, limit)

    def reclaim_expired_leases(self) -> int:
        return self._open().reclaim(self.name, self.max_retries)

    def pause(self) -> None:
        self._open().set_paused(self.name, True)

    def resume(self) -> None:
        self._open().set_paused(self.name, False)

    def check(self) -> list[str]:
        return self._open().check()

    def _backup(self, target: str) -> None:
        self._open().backup(target)

    def vacuum(self) -> None:
        self._open().vacuum()
