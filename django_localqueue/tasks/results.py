"""Results of tasks, made from what a queue keeps of a job."""

from __future__ import annotations

import asyncio
import datetime
import random
import sys
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, cast

from asgiref.sync import sync_to_async
from django.core.exceptions import SuspiciousOperation
from django.utils import timezone
from django.utils.module_loading import import_string

from django_localqueue import conf
from django_localqueue.backends.base import BaseQueue
from django_localqueue.queues import queues
from django_localqueue.tasks.compat import Task, TaskError, TaskResult, TaskResultStatus
from django_localqueue.types import (
    Attempt,
    ErrorRecord,
    JobRecord,
    Progress,
    State,
    to_datetime,
)

if TYPE_CHECKING:
    from django_localqueue.tasks.backend import LocalQueueBackend

    _TaskResult = TaskResult[Any, Any]
else:
    _TaskResult = TaskResult

STATUSES: dict[State, TaskResultStatus] = {
    "ready": TaskResultStatus.READY,
    "delayed": TaskResultStatus.READY,
    "blocked": TaskResultStatus.READY,
    "processing": TaskResultStatus.RUNNING,
    "acked": TaskResultStatus.SUCCESSFUL,
    "failed": TaskResultStatus.FAILED,
}
#: Reasons that come from outside of an attempt, so from no attempt's error.
ENDED_BY_HAND = ("cancelled", "discarded", "expired")


#: Seconds between two looks of ``wait``: they grow from the first to the last.
FIRST_LOOK, LAST_LOOK = 0.005, 0.25

#: Tasks that were found, by their path: there are as many as the project's code has.
_known: dict[str, Task[Any, Any]] = {}
_aliases: weakref.WeakKeyDictionary[BaseQueue, str] = weakref.WeakKeyDictionary()


class LocalTaskResult(_TaskResult):
    """Django's ``TaskResult``, and what a queue can do with it beyond."""

    __slots__ = ()

    def wait(self, timeout: float | None = None) -> Self:
        """Wait until the task has finished, refresh this result and return it.

        Args:
            timeout: seconds to wait at most; None: for ever.

        Raises:
            TimeoutError: it has not finished in that time.
            TaskResultDoesNotExist: the job is gone, as after its retention.
        """
        for pause in _pauses(timeout):
            self.refresh()
            if self.is_finished:
                return self
            if pause is None:
                break
            time.sleep(pause)
        raise TimeoutError(f"The task {self.id} has not finished in {timeout} seconds.")

    async def await_(self, timeout: float | None = None) -> Self:
        """``wait`` for asynchronous code."""
        for pause in _pauses(timeout):
            await self.arefresh()
            if self.is_finished:
                return self
            if pause is None:
                break
            await asyncio.sleep(pause)
        raise TimeoutError(f"The task {self.id} has not finished in {timeout} seconds.")

    def cancel(self) -> bool:
        """Keep a waiting task from running, or ask a running one to stop.

        Returns:
            True where it was or will be cancelled, False where it had already finished.
        """
        return self._backend().cancel(self.id)

    async def acancel(self) -> bool:
        """``cancel`` for asynchronous code."""
        return await sync_to_async(self.cancel, thread_sensitive=True)()

    def progress(self) -> Progress | None:
        """Return how far the task is, as it last said itself; None where it said nothing."""
        return self._backend().progress(self.id)

    async def aprogress(self) -> Progress | None:
        """``progress`` for asynchronous code."""
        return await sync_to_async(self.progress, thread_sensitive=True)()

    def _backend(self) -> LocalQueueBackend:
        return cast("LocalQueueBackend", self.task.get_backend())


def find_task(path: str, moved: Mapping[str, str] | None = None) -> Task[Any, Any]:
    """Return the task of this dotted path.

    Args:
        path: where it was when the job was put.
        moved: where tasks are now that were renamed or moved since.

    Raises:
        ImportError: nothing has this path.
        SuspiciousOperation: what has it is not a task of this path, so it is not run.
    """
    if moved:
        path = moved.get(path, path)
    known = _known.get(path)
    if known is not None and is_at_its_name(known):
        return known
    found = import_string(path)
    if not isinstance(found, Task) or found.module_path != path:
        raise SuspiciousOperation(f"{path!r} is not a task; nothing but a declared task is run.")
    _known[path] = found
    return found


def is_at_its_name(task: Task[Any, Any]) -> bool:
    """Whether the task itself, not a variant of it, is what its module has under its name."""
    function = task.func
    return getattr(sys.modules.get(function.__module__), function.__name__, None) is task


def alias_of(queue: BaseQueue) -> str:
    """Return the alias of LOCALQUEUE that this queue has; the queue's name where it has none."""
    known = _aliases.get(queue)
    if known is not None:
        return known
    aliases = [alias for alias in queues if queues.settings(alias).name == queue.name]
    if len(aliases) > 1:
        aliases = [alias for alias in aliases if queues[alias].store_key == queue.store_key]
    if not aliases:  # in a test run on rqlite each process has names of its own
        aliases = [alias for alias in queues if queues[alias] is queue]
    if not aliases:
        return queue.name
    _aliases[queue] = aliases[0]
    return aliases[0]


def when(microseconds: Any) -> datetime.datetime | None:
    """Return the time that a record means, aware or naive as the project's times are."""
    if not isinstance(microseconds, int):
        return None
    try:
        moment = to_datetime(microseconds)
    except OverflowError:
        return None
    return moment if conf.setting("USE_TZ") else timezone.make_naive(moment)


def variant(
    task: Task[Any, Any],
    priority: int,
    headers: Mapping[str, Any],
    queue_alias: str,
    backend: str,
) -> Task[Any, Any]:
    """Return the task as it was enqueued: with its priority, queue, backend and time."""
    if (
        task.run_after is None
        and "run_after" not in headers
        and task.priority == priority
        and task.queue_name == queue_alias
        and task.backend == backend
    ):
        return task
    wanted: dict[str, Any] = {
        "priority": priority,
        "queue_name": queue_alias,
        "backend": backend,
        "run_after": when(headers.get("run_after")),
    }
    if all(getattr(task, name) == value for name, value in wanted.items()):
        return task
    return task.using(**wanted)


def make(
    task: Task[Any, Any],
    *,
    id: str,
    status: TaskResultStatus,
    enqueued_at: int | None,
    args: Any,
    kwargs: Any,
    backend: str,
    started: Sequence[int] = (),
    finished_at: int | None = None,
    errors: Sequence[TaskError] = (),
    worker_ids: Sequence[str] = (),
) -> LocalTaskResult:
    """Return a result; times in microseconds. Its arguments are normalized to JSON."""
    started_at = when(started[0]) if started else None
    return LocalTaskResult(
        task=task,
        id=id,
        status=status,
        enqueued_at=when(enqueued_at),
        started_at=started_at,
        last_attempted_at=when(started[-1]) if len(started) > 1 else started_at,
        finished_at=when(finished_at),
        args=args,
        kwargs=kwargs,
        backend=backend,
        errors=list(errors),
        worker_ids=list(worker_ids),
    )


def of_record(
    record: JobRecord,
    queue: BaseQueue,
    alias: str,
    backend: str,
    moved: Mapping[str, str] | None = None,
) -> LocalTaskResult:
    """Return the result of a stored job; see ``get_result`` for what is raised."""
    task = find_task(record.task or "", moved)
    undecodable = record.reason == "undecodable"
    payload = {} if undecodable else queue.serializer.loads(record.payload)
    started = [attempt.started_at for attempt in record.history]
    workers = [attempt.worker for attempt in record.history]
    if record.state == "processing":
        started.append(record.started_at or record.created_at)
        workers.append(record.worker or "")
    status = STATUSES[record.state]
    errors = errors_of(record.history)
    if record.reason in ENDED_BY_HAND:
        errors.append(task_error(ErrorRecord(message=f"The job was {record.reason}.")))
    result = make(
        variant(task, record.priority, record.headers, alias, backend),
        id=record.id,
        status=status,
        enqueued_at=record.headers.get("enqueued_at", record.created_at),
        args=payload.get("args", []),
        kwargs=payload.get("kwargs", {}),
        backend=backend,
        started=started,
        finished_at=record.finished_at,
        errors=errors,
        worker_ids=workers,
    )
    if status == TaskResultStatus.SUCCESSFUL and record.result is not None:
        set_fields(result, _return_value=queue.serializer.loads(record.result))
    return result


def errors_of(history: Sequence[Attempt]) -> list[TaskError]:
    """Return what went wrong in each attempt that failed."""
    return [task_error(attempt.error) for attempt in history if attempt.error is not None]


def task_error(error: ErrorRecord) -> TaskError:
    """Return an error as tasks have it; a text without an exception is a ``LocalQueueError``."""
    path = error.error_class or "django_localqueue.exceptions.LocalQueueError"
    return TaskError(
        exception_class_path=path if "." in path else f"builtins.{path}",
        traceback=error.traceback or error.message,
    )


def set_fields(result: TaskResult[Any, Any], **fields: Any) -> None:
    """Change a result, which Django declares frozen and changes like this itself."""
    for name, value in fields.items():
        object.__setattr__(result, name, value)


def _pauses(timeout: float | None) -> Iterator[float | None]:
    """Yield how long to wait before each next look; None before the last one is given up."""
    deadline = None if timeout is None else time.monotonic() + timeout
    pause = FIRST_LOOK
    while True:
        rest = pause * random.uniform(0.7, 1)
        if deadline is not None:
            left = deadline - time.monotonic()
            if left <= 0:
                yield None
                return
            rest = min(rest, left)
        yield rest
        pause = min(1.5 * pause, LAST_LOOK)
