"""What a running task can ask and say: its attempt, its progress, and whether it should stop."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django_localqueue.exceptions import InvalidInput, LeaseExpired, LocalQueueError
from django_localqueue.tasks.compat import TaskContext
from django_localqueue.worker.executor import Running, current

if TYPE_CHECKING:
    _TaskContext = TaskContext[Any, Any]
else:
    _TaskContext = TaskContext


@dataclass(frozen=True, slots=True, kw_only=True)
class JobContext(_TaskContext):  # type: ignore[misc]  # the stubs don't know that it is frozen
    """The context of a task with ``takes_context``: Django's, and what the queue adds.

    ``attempt`` and ``task_result`` are Django's.
    """

    running: Running

    @property
    def should_stop(self) -> bool:
        """Whether the task should end soon: it was cancelled, or its lease is lost.

        Known within a heartbeat; ``progress`` asks at once.
        """
        return _should_stop(self.running)

    def progress(self, done: float, total: float | None = None, note: str = "") -> bool:
        """Say how far the task is; return whether it should go on. One write to the queue.

        A store that can't be reached is logged and not the task's trouble.

        Raises:
            InvalidInput: an argument is of the wrong type or out of range.
        """
        return _progress(self.running, done, total, note)


def progress(done: float, total: float | None = None, note: str = "") -> bool:
    """``context.progress`` of the task that the calling code runs in; also without a context.

    True, and nothing else, where no worker runs it, as under another backend or in a test.
    """
    running = current()
    return True if running is None else _progress(running, done, total, note)


def should_stop() -> bool:
    """``context.should_stop`` of the task that the calling code runs in; else False."""
    running = current()
    return False if running is None else _should_stop(running)


def _should_stop(running: Running) -> bool:
    return running.cancel_requested or running.lost


def _progress(running: Running, done: float, total: float | None, note: str) -> bool:
    try:
        go_on = running.job.progress(done, total, note)
    except InvalidInput:
        raise
    except LeaseExpired:
        running.lost = True
        return False
    except LocalQueueError as error:
        running.log(logging.WARNING, "could not say how far it is: %s", error)
        return not _should_stop(running)
    if not go_on:
        running.cancel_requested = True
    return go_on and not running.lost
