"""Running one job: the hook between the worker and the code that does the work."""

from __future__ import annotations

import contextlib
import contextvars
import inspect
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from django_localqueue.backends.base import BaseQueue
from django_localqueue.exceptions import (
    InvalidInput,
    JobTimeout,
    PayloadTooLarge,
    SerializationError,
)
from django_localqueue.types import ErrorRecord, Job, Settle
from django_localqueue.worker.loop import coroutines

logger = logging.getLogger("django_localqueue.worker")

Handler = Callable[[Job], Any]


class Running:
    """A job that a worker has claimed and not yet settled.

    Attributes: ``job``; ``worker``, the worker's name; ``lease_seconds``, what the
    lease is renewed to; ``cancel_requested``, whether somebody asked for the job to
    be cancelled since it was claimed; ``lost``, whether its lease is known to be
    lost; ``begun``, whether a thread runs it, rather than it waits for one; ``overdue``,
    whether it has run longer than it may; ``settle``, how it ended, None while it runs.
    """

    __slots__ = (
        "begun",
        "cancel_requested",
        "interval",
        "job",
        "lease_seconds",
        "lost",
        "overdue",
        "renew_at",
        "settle",
        "started",
        "worker",
    )

    def __init__(self, job: Job, worker: str, lease_seconds: float, interval: float) -> None:
        self.job = job
        self.worker = worker
        self.lease_seconds = lease_seconds
        self.interval = interval
        self.started = time.monotonic()
        self.renew_at = self.started + interval
        self.begun = False
        self.cancel_requested = False
        self.lost = False
        self.overdue = False
        self.settle: Settle | None = None

    def begin(self) -> None:
        """A thread begins to run it."""
        self.started = time.monotonic()
        self.begun = True

    def timeout(self, default: float | None = None) -> float | None:
        """Return how many seconds it may run; None: for ever."""
        own = self.job.headers.get("timeout")
        if isinstance(own, (int, float)) and not isinstance(own, bool) and own > 0:
            return own
        return default

    def log(
        self,
        level: int,
        message: str,
        *arguments: object,
        error: BaseException | None = None,
        fields: dict[str, Any] | None = None,
        to: logging.Logger = logger,
    ) -> None:
        """Log about this job: its id and queue are in the text, more of it in the record."""
        if to.isEnabledFor(level):
            job = self.job
            to.log(
                level,
                f"Job %s of %s {message}",
                job.id,
                job.queue.name,
                *arguments,
                exc_info=error,
                extra={
                    "job_id": job.id,
                    "queue": job.queue.name,
                    "task": job.task,
                    "attempt": job.attempts,
                    "worker": self.worker,
                    **(fields or {}),
                },
            )


_current: contextvars.ContextVar[Running | None] = contextvars.ContextVar(
    "django_localqueue_running", default=None
)


def current() -> Running | None:
    """Return the job that the calling code runs in, or None outside of one.

    A long job asks ``current().cancel_requested`` now and then.
    """
    return _current.get()


class Executor(ABC):
    """Runs jobs, one at a time in each of the worker's threads."""

    @abstractmethod
    def run(self, running: Running) -> Settle:
        """Run a job and say how it ended.

        Called in a copy of the thread's context. An exception is taken for a
        transient error of the job: it is nacked.
        """

    def open_thread(self) -> None:  # noqa: B027 - most have nothing to open
        """Make what all jobs of a thread share; called in the thread as its first act.

        What it puts into context variables every job finds, as each runs in a copy.
        """

    def close_thread(self) -> None:  # noqa: B027 - most have nothing to close
        """Give back what a thread holds; called in the thread as its last act."""

    def timed_out(self, job: Job, error: JobTimeout) -> Settle:
        """Say what becomes of a job that ran too long, after its process was ended.

        Called in the supervisor of worker processes; ``job.data`` isn't there.
        """
        return Settle(job, "nack", error=error)


class HandlerExecutor(Executor):
    """Runs a function with the job: returned, the job is acked; raised, it is nacked."""

    def __init__(self, handler: Handler) -> None:
        if not callable(handler):
            raise InvalidInput(
                f"The handler is {handler!r}; give the worker a function that takes a job."
            )
        self._call = as_plain_call(handler)

    def run(self, running: Running) -> Settle:
        return run_handler(self._call, running)


def as_plain_call(handler: Handler) -> Handler:
    """Return ``handler`` as a function that blocks, if it is a coroutine function."""
    return partial(coroutines.run, handler) if inspect.iscoroutinefunction(handler) else handler


def run_handler(handler: Handler, running: Running) -> Settle:
    """Call a handler; its result is kept where the queue can carry it."""
    job = running.job
    try:
        result = handler(job)
    except BaseException as error:
        # SystemExit too: a job must not end the worker.
        running.log(logging.WARNING, "raised %s.", type(error).__qualname__, error=error)
        return Settle(job, "nack", error=ErrorRecord.of(error))
    try:
        check_result(job.queue, result)
    except InvalidInput:
        result = None
    return Settle(job, "ack", result=result)


def check_result(queue: BaseQueue, result: Any) -> None:
    """Raise ``InvalidInput`` where the queue can't keep ``result`` with an acked job."""
    if result is None:
        return
    try:
        size = len(queue.serializer.dumps(result))
    except InvalidInput:
        raise
    except Exception as error:  # a serializer of the project's own
        raise SerializationError(f"The result can't be serialized: {error!r}.") from error
    if size > queue.max_payload_bytes:
        raise PayloadTooLarge(
            f"The result has {size} bytes, and the queue {queue.name!r} keeps at most"
            f" {queue.max_payload_bytes}; store it elsewhere and return a reference to it."
        )


def execute(executor: Executor, running: Running) -> Settle:
    """Run a job in a copy of the context; whatever happens, it ends with a settle."""
    try:
        return contextvars.copy_context().run(_execute, executor, running)
    except BaseException as error:
        return Settle(running.job, "nack", error=ErrorRecord.of(error))


def _execute(executor: Executor, running: Running) -> Settle:
    _current.set(running)
    return executor.run(running)


@contextlib.contextmanager
def closing_thread(executor: Executor) -> Iterator[None]:
    """Call ``open_thread``, and ``close_thread`` at the end; faults are logged, not raised."""
    try:
        executor.open_thread()
    except Exception:
        logger.exception("Opening what an executor thread holds failed.")
    try:
        yield
    finally:
        try:
            executor.close_thread()
        except Exception:
            logger.exception("Closing what an executor thread held failed.")
