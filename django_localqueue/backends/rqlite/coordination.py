"""What workers share through an rqlite cluster. The death of a worker isn't seen: leases end."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from django_localqueue.backends.arguments import Message
from django_localqueue.backends.coordination import (
    CoordinatingQueue,
    StoredSchedule,
    StoredWorker,
)
from django_localqueue.backends.rqlite import repairs, statements
from django_localqueue.backends.rqlite.records import document, loaded, put_ids, put_row, stored
from django_localqueue.backends.rqlite.stores import SharedStore
from django_localqueue.transports.statements import Statement
from django_localqueue.types import JobId

#: Microseconds that the report of a worker that is gone is kept.
KEPT = 86_400_000_000

_FORGET_OLD = "DELETE FROM localqueue_workers WHERE seen < ?1"
_REPORT = """INSERT INTO localqueue_workers (name, seen, record) VALUES (?1 ->> 0, ?2, ?3)
  ON CONFLICT (name) DO UPDATE SET seen = excluded.seen, record = excluded.record,
    command = nullif(command, ?4)"""
_COMMAND = "SELECT command FROM localqueue_workers WHERE name = ?1 ->> 0"
_WORKERS = "SELECT name, seen, command, record FROM localqueue_workers ORDER BY name"
_ASK = "UPDATE localqueue_workers SET command = ?2 WHERE name = ?1 ->> 0"
_KNOWN_WORKER = "SELECT 1 FROM localqueue_workers WHERE name = ?1 ->> 0"
_FORGET_WORKER = "DELETE FROM localqueue_workers WHERE name = ?1 ->> 0"

_IS_TAKEN = "SELECT 1 FROM localqueue_duties WHERE name = ?1 ->> 0 AND until > ?2"
_TAKE = """INSERT INTO localqueue_duties (name, until, holder) VALUES (?1 ->> 0, ?3, ?4)
  ON CONFLICT (name) DO UPDATE SET until = excluded.until, holder = excluded.holder
    WHERE until <= ?2"""
_HOLDER = "SELECT holder FROM localqueue_duties WHERE name = ?1 ->> 0"

_SCHEDULES = """SELECT name, queue, next, paused, last, last_id, seen, record
  FROM localqueue_schedules ORDER BY name"""
_SAVE = """INSERT INTO localqueue_schedules (name, queue, next, seen, timing, record)
  VALUES (?1 ->> 0, ?1 ->> 1, ?2, ?3, ?1 ->> 2, ?4)
  ON CONFLICT (name) DO UPDATE SET queue = excluded.queue, seen = excluded.seen,
    next = iif(timing = excluded.timing, next, excluded.next),
    timing = excluded.timing, record = excluded.record"""
_IS_DUE = """EXISTS (SELECT 1 FROM localqueue_schedules
    WHERE name = ?{name} ->> 0 AND next = ?{due} AND paused = 0)"""
_PUT_IF_DUE = f"""INSERT INTO localqueue_do_put (op, now, queue, jobs)
  SELECT ?1, ?2, ?3 ->> 0, ?4 WHERE {_IS_DUE.format(name=5, due=6)}"""
_MOVE = """UPDATE localqueue_schedules SET next = ?3 WHERE name = ?1 ->> 0 AND next = ?2
  AND paused = 0"""
_MOVE_AND_NOTE = """UPDATE localqueue_schedules SET next = ?3, last = ?2,
    last_id = coalesce(?5 ->> 0, (SELECT answer FROM localqueue_ops WHERE op = ?4))
  WHERE name = ?1 ->> 0 AND next = ?2 AND paused = 0"""
_PAUSE = """UPDATE localqueue_schedules SET paused = ?2, next = coalesce(?3, next)
  WHERE name = ?1 ->> 0"""
_KNOWN_SCHEDULE = "SELECT 1 FROM localqueue_schedules WHERE name = ?1 ->> 0"
_FORGET_SCHEDULE = "DELETE FROM localqueue_schedules WHERE name = ?1 ->> 0"


class RqliteCoordination(CoordinatingQueue):
    """Its side on rqlite: everything may be sent twice, as all verbs of that queue."""

    max_retries: int

    @abstractmethod
    def _store(self) -> SharedStore:
        """Return the cluster as this process uses it."""

    def reclaim_from_dead(self) -> int:
        return 0

    def _report_worker(self, name: str, document_: bytes, done: str) -> str | None:
        shared = self._store()
        now, _ = shared.times()
        named = document([name])
        results = shared.request(
            [
                [_FORGET_OLD, now - KEPT],
                [_REPORT, named, now, stored(document_), done],
                [_COMMAND, named],
            ]
        )
        command: str | None = results[2].rows[0][0]
        return command

    def _workers(self) -> Sequence[StoredWorker]:
        (found,) = self._store().read([[_WORKERS]])
        return [
            StoredWorker(name, seen, None, command, loaded(record))
            for name, seen, command, record in found.rows
        ]

    def _command_worker(self, name: str, command: str) -> bool:
        named = document([name])
        return self._is_known([_ASK, named, command], [_KNOWN_WORKER, named])

    def _forget_worker(self, name: str) -> bool:
        named = document([name])
        return self._was_known([_FORGET_WORKER, named], [_KNOWN_WORKER, named])

    def _take_back(self, worker: str) -> int:
        return repairs.reclaim(self._store(), self.name, self.max_retries, worker)

    def _duty(self, name: str, micros: int, worker: str) -> bool:
        shared = self._store()
        named = document([name])
        now, boot = shared.times()
        if shared.read([[_IS_TAKEN, named, boot]])[0].rows:
            return False
        holder = f"{statements.operation(now)} {worker}"
        results = shared.request([[_TAKE, named, boot, boot + micros, holder], [_HOLDER, named]])
        return bool(results[1].rows[0][0] == holder)

    def _schedules(self) -> Sequence[StoredSchedule]:
        (found,) = self._store().read([[_SCHEDULES]])
        return [
            StoredSchedule(
                name, queue, next_at, bool(paused), last_at, last_id, seen, loaded(record)
            )
            for name, queue, next_at, paused, last_at, last_id, seen, record in found.rows
        ]

    def _save_schedule(
        self, name: str, queue: str, next_at: int, timing: str, document_: bytes
    ) -> None:
        shared = self._store()
        now, _ = shared.times()
        what = document([name, queue, timing])
        shared.request([[_SAVE, what, next_at, now, stored(document_)]])

    def _fire_schedule(
        self, name: str, due_at: int, next_at: int, message: Message | None
    ) -> JobId | None:
        shared = self._store()
        named = document([name])
        if message is None:
            shared.request([[_MOVE, named, due_at, next_at]])
            return None
        now, _ = shared.times()
        op = statements.operation(now)
        rows = [put_row(message)]
        results = shared.request(
            [
                [_PUT_IF_DUE, op, now, document([self.name]), document(rows), named, due_at],
                [_MOVE_AND_NOTE, named, due_at, next_at, op, document([message.job_id])],
                *statements.put_outcome(op, self.name, rows),
            ]
        )
        if not results[2].rows:
            return None
        shared.bell.ring()
        return put_ids([message], int(results[2].rows[0][0]), now, results[3].rows)[0]

    def _pause_schedule(self, name: str, paused: bool, next_at: int | None) -> bool:
        named = document([name])
        return self._is_known([_PAUSE, named, int(paused), next_at], [_KNOWN_SCHEDULE, named])

    def _forget_schedule(self, name: str) -> bool:
        named = document([name])
        return self._was_known([_FORGET_SCHEDULE, named], [_KNOWN_SCHEDULE, named])

    def _is_known(self, change: Statement, known: Statement) -> bool:
        return bool(self._store().request([change, known])[1].rows)

    def _was_known(self, change: Statement, known: Statement) -> bool:
        # Sent again after a lost answer, it is told that it was gone: that is all the same.
        return bool(self._store().request([known, change])[0].rows)
