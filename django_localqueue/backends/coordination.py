"""What workers share through a store: reports and commands, duties, schedules."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

from django_localqueue.backends.arguments import HEADERS, Message, microseconds, text, whole
from django_localqueue.backends.inspection import InspectableQueue
from django_localqueue.exceptions import InvalidInput, StoreCorrupt, UndecodablePayload
from django_localqueue.records import (
    WORKER_COMMANDS,
    WORKER_STATES,
    RunningJob,
    ScheduleRecord,
    WorkerCommand,
    WorkerRecord,
)
from django_localqueue.types import MICROSECONDS, JobId, NewJob

#: Microseconds after which a worker that doesn't report is taken for dead.
SILENT = 90 * MICROSECONDS
_FAR = 1 << 62

#: What the store keeps of a record in columns of its own, or makes up.
_OF_WORKER = ("name", "seen_at", "command", "alive")
_OF_SCHEDULE = ("name", "queue", "next_at", "paused", "last_at", "last_id", "seen_at")


class StoredWorker(NamedTuple):
    """A worker's report as a store has it; ``alive`` is None where it can't know."""

    name: str
    seen_at: int
    alive: bool | None
    command: str | None
    record: bytes


class StoredSchedule(NamedTuple):
    """A schedule as a store has it."""

    name: str
    queue: str
    next_at: int
    paused: bool
    last_at: int | None
    last_id: str | None
    seen_at: int
    record: bytes


class CoordinatingQueue(InspectableQueue):
    """The part of the contract that workers use among each other.

    All of it but ``fire_schedule`` and the two that take jobs back belongs to the store, so
    any of its queues may be asked.
    """

    # ---- workers

    def report_worker(self, record: WorkerRecord) -> WorkerCommand | None:
        """Store what a worker says of itself; return what it is asked to do.

        A command is returned until the worker reports the state that fulfils it. From its
        first report on the worker's death can be seen, where the store can do that.
        """
        text(record.name, "name")
        if record.state not in WORKER_STATES:
            raise InvalidInput(f"A worker can't be {record.state!r}.")
        done = next(command for command, state in WORKER_COMMANDS.items() if state == record.state)
        document = _document(record, _OF_WORKER)
        return cast("WorkerCommand | None", self._report_worker(record.name, document, done))

    def workers(self) -> list[WorkerRecord]:
        """Return every worker of the store by name, those that died within the last day too."""
        now = self.now()
        return [_worker(row, now) for row in self._workers()]

    def command_worker(self, name: str, command: WorkerCommand) -> bool:
        """Ask a worker for ``"quiet"``, ``"resume"`` or ``"stop"``; False: there is none such.

        It hears of it within a few seconds.
        """
        if command not in WORKER_COMMANDS:
            raise InvalidInput(
                f"A worker can't be asked for {command!r}; use one of {', '.join(WORKER_COMMANDS)}."
            )
        return self._command_worker(text(name, "name"), command)

    def forget_worker(self, name: str) -> bool:
        """Remove a worker's report: it ended, or is dead. False where there was none."""
        return self._forget_worker(text(name, "name"))

    def take_back(self, worker: str) -> int:
        """Give this queue's jobs back that a worker holds who is known to be dead; return how many.

        Their deliveries count, as where a lease runs out.
        """
        return self._take_back(text(worker, "worker"))

    @abstractmethod
    def reclaim_from_dead(self) -> int:
        """Give this queue's jobs back whose worker's death is seen; return how many.

        Where death can't be seen their leases run out, and this does nothing.
        """

    def duty(self, name: str, seconds: float, worker: str = "") -> bool:
        """Return True to one of all who ask for this name, and for ``seconds`` to nobody else."""
        return self._duty(
            text(name, "name"),
            microseconds(seconds, "seconds", positive=True),
            text(worker, "worker", empty=True),
        )

    # ---- schedules

    def schedules(self) -> list[ScheduleRecord]:
        """Return every schedule of the store, by name."""
        return [_schedule(row) for row in self._schedules()]

    def save_schedule(self, record: ScheduleRecord) -> None:
        """Store what a schedule says, new or changed.

        ``record.next_at`` counts where it is new, or its expression or time zone changed. Whether
        it is paused and when it last ran stay as they are; ``seen_at`` becomes now.
        """
        text(record.name, "name")
        text(record.queue, "queue")
        whole(record.next_at, "next_at", 0, _FAR)
        timing = f"{record.expression}\n{record.timezone}"
        document = _document(record, _OF_SCHEDULE)
        self._save_schedule(record.name, record.queue, record.next_at, timing, document)

    def fire_schedule(
        self, name: str, due_at: int, next_at: int, job: NewJob | None
    ) -> JobId | None:
        """Move a schedule from ``due_at`` to ``next_at`` and put its job into this queue.

        Both in one transaction, and only if its next time is still ``due_at`` and it isn't
        paused: else nothing is done, and None returned. Without a job the time alone moves.
        """
        whole(due_at, "due_at", 0, _FAR)
        whole(next_at, "next_at", 0, _FAR)
        message = None if job is None else self._message(job, "")
        return self._fire_schedule(text(name, "name"), due_at, next_at, message)

    def pause_schedule(self, name: str, paused: bool = True, *, next_at: int | None = None) -> bool:
        """Pause a schedule, or let it go on, from ``next_at`` where given; False: no such."""
        if next_at is not None:
            whole(next_at, "next_at", 0, _FAR)
        return self._pause_schedule(text(name, "name"), bool(paused), next_at)

    def forget_schedule(self, name: str) -> bool:
        """Remove a schedule; False where there was none."""
        return self._forget_schedule(text(name, "name"))

    # ---- what a backend does

    @abstractmethod
    def _message(self, job: NewJob, where: str) -> Message: ...

    @abstractmethod
    def _report_worker(self, name: str, document: bytes, done: str) -> str | None: ...

    @abstractmethod
    def _workers(self) -> Sequence[StoredWorker]: ...

    @abstractmethod
    def _command_worker(self, name: str, command: str) -> bool: ...

    @abstractmethod
    def _forget_worker(self, name: str) -> bool: ...

    @abstractmethod
    def _take_back(self, worker: str) -> int: ...

    @abstractmethod
    def _duty(self, name: str, micros: int, worker: str) -> bool: ...

    @abstractmethod
    def _schedules(self) -> Sequence[StoredSchedule]: ...

    @abstractmethod
    def _save_schedule(
        self, name: str, queue: str, next_at: int, timing: str, document: bytes
    ) -> None: ...

    @abstractmethod
    def _fire_schedule(
        self, name: str, due_at: int, next_at: int, message: Message | None
    ) -> JobId | None: ...

    @abstractmethod
    def _pause_schedule(self, name: str, paused: bool, next_at: int | None) -> bool: ...

    @abstractmethod
    def _forget_schedule(self, name: str) -> bool: ...


def _document(record: WorkerRecord | ScheduleRecord, without: tuple[str, ...]) -> bytes:
    fields = {key: value for key, value in dataclasses.asdict(record).items() if key not in without}
    for key, value in fields.items():
        if isinstance(value, tuple):
            fields[key] = list(value)
    return HEADERS.dumps(fields)


def _loaded(name: str, document: bytes, kind: type[Any]) -> dict[str, Any]:
    """Return the fields of a record; those of a newer version are left out."""
    try:
        fields = HEADERS.loads(document)
    except UndecodablePayload as error:
        raise StoreCorrupt(f"What is stored of {name!r} can't be read: {error}") from error
    known = {
        field.name: fields[field.name] for field in dataclasses.fields(kind) if field.name in fields
    }
    return {key: tuple(value) if isinstance(value, list) else value for key, value in known.items()}


def _worker(row: StoredWorker, now: int) -> WorkerRecord:
    fields = _loaded(row.name, row.record, WorkerRecord)
    known = {field.name for field in dataclasses.fields(RunningJob)}
    fields["running"] = tuple(
        RunningJob(**{key: value for key, value in job.items() if key in known})
        for job in fields.get("running", ())
    )
    alive = row.alive
    if alive is None and now - row.seen_at > SILENT:
        alive = False
    return WorkerRecord(
        **fields,
        name=row.name,
        seen_at=row.seen_at,
        command=cast("WorkerCommand | None", row.command),
        alive=alive,
    )


def _schedule(row: StoredSchedule) -> ScheduleRecord:
    return ScheduleRecord(
        **_loaded(row.name, row.record, ScheduleRecord),
        name=row.name,
        queue=row.queue,
        next_at=row.next_at,
        paused=row.paused,
        last_at=row.last_at,
        last_id=row.last_id,
        seen_at=row.seen_at,
    )
