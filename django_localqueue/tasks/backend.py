"""The task backend: puts calls of tasks into queues and finds their results."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterable, Sequence
from functools import partial
from importlib import import_module
from typing import Any

from asgiref.sync import sync_to_async
from django.core.checks import CheckMessage, Error
from django.core.exceptions import ImproperlyConfigured, SuspiciousOperation
from django.db import connections, transaction

from django_localqueue import conf
from django_localqueue import outbox as outbox_app
from django_localqueue.exceptions import InvalidInput, JobNotFound
from django_localqueue.queues import queues
from django_localqueue.tasks import results, settings
from django_localqueue.tasks.calls import Call, Prepared, check_name, prepare
from django_localqueue.tasks.compat import (
    BaseTaskBackend,
    Task,
    TaskResult,
    TaskResultDoesNotExist,
    task_backends,
    task_enqueued,
)
from django_localqueue.tasks.results import LocalTaskResult
from django_localqueue.types import JobId, JobRecord, Progress


class LocalQueueBackend(BaseTaskBackend):
    """Keeps tasks in the queues of LOCALQUEUE.

    A task's ``queue_name`` is an alias of LOCALQUEUE; QUEUES says which aliases the
    tasks of this backend may name, and left out it is all of them. A backend is made
    once a thread, when a module with tasks is imported: it opens nothing.
    """

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        self._has_queues = "QUEUES" in params
        self._queues: set[str] = set()
        #: Tasks that passed the checks while ``_passed_for`` were the queues, by identity.
        self._passed: dict[int, Task[Any, Any]] = {}
        self._passed_for: object = None
        super().__init__(alias, params)
        self.settings, self.problems = settings.parsed(alias, params)

    @property
    def queues(self) -> set[str]:
        """The aliases that a task may name."""
        return self._queues if self._has_queues else set(conf.queue_settings())

    @queues.setter
    def queues(self, aliases: set[str]) -> None:
        self._queues = aliases

    # ---- enqueuing

    def enqueue(self, task: Task[Any, Any], args: Any, kwargs: Any) -> TaskResult[Any, Any]:
        """Put a call of the task into its queue; it is committed when this returns.

        The call is not part of a database transaction that may be open, unless
        ``enqueue_on_commit`` or ``outbox`` say so.

        Raises:
            InvalidTask: the task can't be run by a worker.
            TypeError, ValueError: JSON can't carry an argument.
            InvalidInput: an option, or the queue, refused it; nothing was stored.
            NotStored: the store could not take it; nothing was stored.
        """
        prepared = self._prepare(task, args, kwargs)
        return self._send((prepared,), *self._transaction_of(prepared))[0]

    def enqueue_many(self, calls: Iterable[Call]) -> list[TaskResult[Any, Any]]:
        """Put many calls, those of one queue in one transaction; results in their order.

        All are checked before any is stored.

        Raises:
            As ``enqueue``. Where the calls are for several queues, those of an earlier
            queue may be stored when a later one can't be.
        """
        prepared = [self._prepare(*one) for one in calls]
        found: dict[int, TaskResult[Any, Any]] = {}
        batches: dict[tuple[str, str | None, bool], list[tuple[int, Prepared]]] = {}
        for index, one in enumerate(prepared):
            database, outbox = self._transaction_of(one)
            batches.setdefault((one.alias, database, outbox), []).append((index, one))
        for (_, database, outbox), batch in batches.items():
            sent = self._send([one for _, one in batch], database, outbox)
            found.update(zip((index for index, _ in batch), sent, strict=True))
        return [found[index] for index in range(len(prepared))]

    async def aenqueue_many(self, calls: Iterable[Call]) -> list[TaskResult[Any, Any]]:
        """``enqueue_many`` for asynchronous code."""
        return await sync_to_async(self.enqueue_many, thread_sensitive=True)(list(calls))

    def _prepare(self, task: Task[Any, Any], args: Any, kwargs: Any) -> Prepared:
        for problem in self.problems:
            raise ImproperlyConfigured(f"{problem.message} {problem.hint}")
        self._check_task(task)
        prepared = prepare(self.alias, self.settings.job_options, task, args, kwargs)
        if self.settings.tracing:
            import_module("django_localqueue.tasks.tracing").inject(prepared)
        return prepared

    def _check_task(self, task: Task[Any, Any]) -> None:
        """Refuse a task that no worker can run. One that stands in its module is checked once."""
        known = conf.queue_settings()
        if self._passed_for is not known:
            self._passed, self._passed_for = {}, known
        stands = results.is_at_its_name(task)
        if stands and self._passed.get(id(task)) is task:
            return
        self.validate_task(task)
        check_name(task)
        if stands:
            self._passed[id(task)] = task

    def _transaction_of(self, prepared: Prepared) -> tuple[str | None, bool]:
        """Return the database whose transaction the call waits for, if any, and if by outbox."""
        said = prepared.options
        outbox = self.settings.outbox if said.outbox is None else said.outbox
        on_commit = said.enqueue_on_commit
        if on_commit is None:
            on_commit = self.settings.enqueue_on_commit
        if not (outbox or on_commit):
            return None, False
        database = said.database or self.settings.databases[0]
        if database not in connections:
            raise InvalidInput(
                f"database is {database!r}, which DATABASES doesn't have."
                f" {conf.suggestion(database, connections)}"
            )
        if outbox and not (self.settings.has_outbox and database in self.settings.databases):
            raise InvalidInput(
                f"The outbox of the database {database!r} has no mover: name it in"
                f" TASKS[{self.alias!r}]['OPTIONS']['databases']."
            )
        return database, outbox

    def _send(
        self, prepared: Sequence[Prepared], database: str | None, outbox: bool
    ) -> Sequence[LocalTaskResult]:
        """Put calls of one queue, now or when their transaction is committed."""
        if database is None:
            return self._put(prepared, at_once=True)
        if not outbox and not connections[database].in_atomic_block:
            return self._put(prepared, at_once=True)
        for one in prepared:
            one.pending.new_job(one.pending.made_at)  # what the queue would refuse is refused now
            results.set_fields(one.result, enqueued_at=None)
        if outbox:
            _outbox().write(prepared, database)
            for one in prepared:
                self._tell_enqueued(one.result)
        else:
            transaction.on_commit(partial(self._put, prepared), using=database)
        return [one.result for one in prepared]

    def _put(
        self, prepared: Sequence[Prepared], *, at_once: bool = False
    ) -> Sequence[LocalTaskResult]:
        if at_once:
            queue = prepared[0].queue
            jobs = [one.pending.new_job(one.pending.made_at) for one in prepared]
        else:
            queue = queues[prepared[0].alias]  # it may have been closed and opened since
            now = queue.now()
            jobs = [one.pending.new_job(now) for one in prepared]
        ids = queue.put_many(jobs)
        sent = []
        for one, id in zip(prepared, ids, strict=True):
            if id.created:
                if one.result.enqueued_at is None:
                    results.set_fields(one.result, enqueued_at=results.when(one.pending.made_at))
                self._tell_enqueued(one.result)
                sent.append(one.result)
            else:
                sent.append(self._met(one, id))
        return sent

    def _met(self, prepared: Prepared, id: JobId) -> LocalTaskResult:
        """Return the result of the job that holds the call's unique key."""
        queue = queues[prepared.alias]
        record = queue.lookup(id)
        if record is not None and record.task is not None:
            with contextlib.suppress(ImportError, SuspiciousOperation):
                return self._result(record, prepared.alias)
        # It is no call of a task, or gone by now: what is known of it is its id.
        status = results.STATUSES[id.state]
        results.set_fields(prepared.result, id=str(id), status=status)
        return prepared.result

    def _tell_enqueued(self, result: LocalTaskResult) -> None:
        # A receiver that raises must not make a stored task look like one that isn't.
        task_enqueued.send_robust(type(self), task_result=result)

    # ---- results

    def get_result(self, result_id: str) -> LocalTaskResult:
        """Return the result with this id as it is now stored.

        Raises:
            TaskResultDoesNotExist: there is none, or it is another backend's.
            ImportError, SuspiciousOperation: the task is no longer where it was.
            NotStored: the store could not be read.
        """
        id = _checked(result_id)
        found = self._find(id)
        if found is None and self.settings.has_outbox:
            waiting: LocalTaskResult | None
            kept = self.settings
            waiting = _outbox().find(id, kept.databases, self.alias, kept.moved_tasks)
            if waiting is not None:
                return waiting
            found = self._find(id)  # it may have been moved between the two looks
        if found is None:
            raise TaskResultDoesNotExist(result_id)
        return self._result(*found)

    def cancel(self, result_id: str) -> bool:
        """Keep a waiting task from running, or ask a running one to stop.

        Returns:
            True where it was or will be cancelled, False where it had already finished.

        Raises:
            TaskResultDoesNotExist: there is no such task, or it is another backend's.
        """
        id = _checked(result_id)
        found = self._find(id)
        if found is None and self.settings.has_outbox:
            taken = _outbox().cancel(id, self.settings.databases, self.alias)
            # A mover that was killed may have put it, and left its row.
            found = self._find(id)
            if taken and found is None:
                return True
        if found is None:
            raise TaskResultDoesNotExist(result_id)
        try:
            return queues[found[1]].cancel(id)
        except JobNotFound:
            raise TaskResultDoesNotExist(result_id) from None

    def progress(self, result_id: str) -> Progress | None:
        """Return how far a task is, as it last said itself; None where it said nothing."""
        found = self._find(_checked(result_id))
        return None if found is None else found[0].progress

    def _find(self, id: str) -> tuple[JobRecord, str] | None:
        for alias in conf.queue_settings():
            if self.queues and alias not in self.queues:
                continue
            record = queues[alias].lookup(id)
            if record is None or record.task is None:
                continue
            if record.headers.get("backend", self.alias) == self.alias:
                return record, alias
        return None

    def _result(self, record: JobRecord, alias: str) -> LocalTaskResult:
        return results.of_record(
            record, queues[alias], alias, self.alias, self.settings.moved_tasks
        )

    def close(self) -> None:
        """Nothing to close: the queues are the process', this object is a thread's."""

    def check(self, **kwargs: Any) -> list[CheckMessage]:
        """Report what is wrong in QUEUES (E009) and OPTIONS (E020, E021)."""
        known = conf.queue_settings()
        messages: list[CheckMessage] = [
            Error(
                f"TASKS[{self.alias!r}]['QUEUES'] names {name!r}, which LOCALQUEUE doesn't have.",
                hint=f"Add it to LOCALQUEUE. {conf.suggestion(name, known)}",
                id="django_localqueue.E009",
            )
            for name in sorted(self.queues, key=str)
            if name not in known
        ]
        messages += [
            Error(problem.message, hint=problem.hint, id=f"django_localqueue.{problem.id}")
            for problem in self.problems
        ]
        if self.settings.has_outbox and not outbox_app.is_used():
            messages.append(
                Error(
                    f"TASKS[{self.alias!r}] uses the outbox, and its app is not installed.",
                    hint=f"Add {outbox_app.APP!r} to INSTALLED_APPS and run migrate.",
                    id="django_localqueue.E021",
                )
            )
        return messages


def enqueue_many(calls: Iterable[Call]) -> list[TaskResult[Any, Any]]:
    """Enqueue many calls of tasks, made by ``call``; results in their order.

    Calls of one of our backends that are for one queue go into one transaction; those
    of other backends are enqueued one by one.
    """
    calls = list(calls)
    found: dict[int, TaskResult[Any, Any]] = {}
    ours: dict[str, list[int]] = {}
    for index, (task, args, kwargs) in enumerate(calls):
        if isinstance(task_backends[task.backend], LocalQueueBackend):
            ours.setdefault(task.backend, []).append(index)
        else:
            found[index] = task.enqueue(*args, **kwargs)
    for alias, indexes in ours.items():
        backend = task_backends[alias]
        assert isinstance(backend, LocalQueueBackend)
        found.update(
            zip(indexes, backend.enqueue_many([calls[index] for index in indexes]), strict=True)
        )
    return [found[index] for index in range(len(calls))]


def _checked(result_id: Any) -> str:
    try:
        return str(uuid.UUID(result_id))
    except (ValueError, TypeError, AttributeError):
        raise TaskResultDoesNotExist(result_id) from None


def _outbox() -> Any:
    """Return the module of the outbox, whose models need its app to be installed."""
    if not outbox_app.is_used():
        raise ImproperlyConfigured(
            f"The outbox needs its app: add {outbox_app.APP!r} to INSTALLED_APPS and run migrate."
        )
    return import_module("django_localqueue.tasks.outbox")


__all__ = [
    "LocalQueueBackend",
    "enqueue_many",
]
