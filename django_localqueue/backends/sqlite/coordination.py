"""What workers share through a SQLite store."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from django_localqueue import _native
from django_localqueue.backends.arguments import Message
from django_localqueue.backends.coordination import (
    CoordinatingQueue,
    StoredSchedule,
    StoredWorker,
)
from django_localqueue.backends.sqlite.records import put_ids
from django_localqueue.types import JobId


class SQLiteCoordination(CoordinatingQueue):
    """The engine's side of it: a worker's process holds a lock, so its death is seen at once."""

    max_retries: int

    @abstractmethod
    def _open(self) -> _native.Store:
        """Return the store, opened where it isn't."""

    def reclaim_from_dead(self) -> int:
        return self._open().reclaim_from_dead(self.name, self.max_retries)

    def _report_worker(self, name: str, document: bytes, done: str) -> str | None:
        return self._open().report_worker(name, document, done)

    def _workers(self) -> Sequence[StoredWorker]:
        return [
            StoredWorker(report.name, report.seen_at, report.alive, report.command, report.record)
            for report in self._open().workers()
        ]

    def _command_worker(self, name: str, command: str) -> bool:
        return self._open().command_worker(name, command)

    def _forget_worker(self, name: str) -> bool:
        return self._open().forget_worker(name)

    def _take_back(self, worker: str) -> int:
        return self._open().take_back(self.name, worker, self.max_retries)

    def _duty(self, name: str, micros: int, worker: str) -> bool:
        return self._open().duty(name, micros, worker)

    def _schedules(self) -> Sequence[StoredSchedule]:
        return [
            StoredSchedule(
                found.name,
                found.queue,
                found.next_at,
                found.paused,
                found.last_at,
                found.last_id,
                found.seen_at,
                found.record,
            )
            for found in self._open().schedules()
        ]

    def _save_schedule(
        self, name: str, queue: str, next_at: int, timing: str, document: bytes
    ) -> None:
        self._open().save_schedule(name, queue, next_at, timing, document)

    def _fire_schedule(
        self, name: str, due_at: int, next_at: int, message: Message | None
    ) -> JobId | None:
        stored = self._open().fire_schedule(name, due_at, next_at, self.name, message)
        return put_ids([message], stored)[0] if message is not None and stored else None

    def _pause_schedule(self, name: str, paused: bool, next_at: int | None) -> bool:
        return self._open().pause_schedule(name, paused, next_at)

    def _forget_schedule(self, name: str) -> bool:
        return self._open().forget_schedule(name)
