"""The task backend: puts calls of tasks into queues and finds their results."""

from __future__ import annotations

import secrets
import time
import uuid
from typing import Any

from django.core.checks import CheckMessage, Error

from django_localqueue import conf
from django_localqueue.queues import queues
from django_localqueue.tasks import results
from django_localqueue.tasks.compat import (
    BaseTaskBackend,
    InvalidTask,
    Task,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
    task_enqueued,
)
from django_localqueue.types import MICROSECONDS


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
        super().__init__(alias, params)

    @property
    def queues(self) -> set[str]:
        """The aliases that a task may name."""
        return self._queues if self._has_queues else set(conf.queue_settings())

    @queues.setter
    def queues(self, aliases: set[str]) -> None:
        self._queues = aliases

    def enqueue(self, task: Task[Any, Any], args: Any, kwargs: Any) -> TaskResult[Any, Any]:
        """Put a call of the task into its queue; it is committed when this returns.

        The call is not part of a database transaction that may be open: a worker can
        run the task before that is committed.

        Raises:
            InvalidTask: the task can't be run by a worker.
            TypeError, ValueError: JSON can't carry an argument.
            InvalidInput: the queue refused it; nothing was stored.
            NotStored: the store could not take it; nothing was stored.
        """
        self.validate_task(task)
        _check_name(task)
        queue = queues[task.queue_name]
        now = queue.now()
        result = results.make(
            task,
            id=_new_id(),
            status=TaskResultStatus.READY,
            enqueued_at=now,
            args=args,
            kwargs=kwargs,
            backend=self.alias,
        )
        delay = 0.0
        headers: dict[str, Any] = {"backend": self.alias, "enqueued_at": now}
        if task.run_after is not None:
            due = task.run_after.timestamp()
            headers["run_after"] = round(due * MICROSECONDS)
            delay = max(0.0, due - now / MICROSECONDS)
        queue.put(
            {"args": result.args, "kwargs": result.kwargs},
            job_id=result.id,
            delay=delay,
            priority=task.priority,
            task=task.module_path,
            headers=headers,
        )
        # A receiver that raises must not make a stored task look like one that isn't.
        task_enqueued.send_robust(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> TaskResult[Any, Any]:
        """Return the result with this id as it is now stored.

        Raises:
            TaskResultDoesNotExist: there is none, or it is another backend's.
            ImportError, SuspiciousOperation: the task is no longer where it was.
            NotStored: the store could not be read.
        """
        try:
            id = str(uuid.UUID(result_id))
        except (ValueError, TypeError, AttributeError):
            raise TaskResultDoesNotExist(result_id) from None
        for alias in conf.queue_settings():
            if self.queues and alias not in self.queues:
                continue
            record = queues[alias].lookup(id)
            if record is None or record.task is None:
                continue
            if record.headers.get("backend", self.alias) == self.alias:
                return results.of_record(record, queues[alias], alias, self.alias)
        raise TaskResultDoesNotExist(result_id)

    def close(self) -> None:
        """Nothing to close: the queues are the process', this object is a thread's."""

    def check(self, **kwargs: Any) -> list[CheckMessage]:
        """Report names in QUEUES that are no aliases of LOCALQUEUE (E009)."""
        known = conf.queue_settings()
        return [
            Error(
                f"TASKS[{self.alias!r}]['QUEUES'] names {name!r}, which LOCALQUEUE doesn't have.",
                hint=f"Add it to LOCALQUEUE. {conf.suggestion(name, known)}",
                id="django_localqueue.E009",
            )
            for name in sorted(self.queues, key=str)
            if name not in known
        ]


def _new_id() -> str:
    """Return a new UUID, version 7: ordered by time, to a fraction of a microsecond."""
    milliseconds, rest = divmod(time.time_ns(), 1_000_000)
    fraction = rest * 4096 // 1_000_000
    value = milliseconds << 80 | 7 << 76 | fraction << 64 | 2 << 62 | secrets.randbits(62)
    return str(uuid.UUID(int=value))


def _check_name(task: Task[Any, Any]) -> None:
    """Refuse a task that a worker would not find by its name."""
    path = task.module_path
    if task.func.__module__ == "__main__":
        raise InvalidTask(
            f"The task {path} is defined in the script that is run, where a worker can't import"
            " it; move it into a module."
        )
    try:
        found = results.find_task(path)
    except Exception as error:
        raise InvalidTask(f"A worker can't import the task {path}: {error}") from error
    if found.func is not task.func:
        raise InvalidTask(
            f"The name {path} is another task than the one enqueued; a worker would run the wrong"
            " one."
        )
