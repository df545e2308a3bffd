"""Running jobs inside Django: what a request's start and end do, done around each job."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from inspect import iscoroutinefunction
from typing import Any

from asgiref.sync import sync_to_async
from django.core.cache import caches, close_caches
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils.connection import BaseConnectionHandler

from django_localqueue.exceptions import JobTimeout
from django_localqueue.types import ErrorRecord, Job, Settle
from django_localqueue.worker.executor import (
    Executor,
    Handler,
    Running,
    run_handler,
)
from django_localqueue.worker.loop import coroutines

TaskRunner = Callable[[Running], Settle]
#: Seconds for which connections that were looked after need not be again.
FRESH = 1.0


class DjangoExecutor(Executor):
    """Runs tasks, and plain jobs with the handler of their queue.

    Around each job, in its thread: database connections that broke are closed, the
    query log is emptied and the caches' connections are given back. Language and time
    zone are those of the settings: what a job activates ends with its context.

    Args:
        run_task: runs a job that is a call of a task; None where the project has no
            tasks framework.
        handlers: by store key and name of a queue, what runs its plain jobs.
        settle_error: says what becomes of a task's job that was ended from outside.
        shared: beside the caches, what jobs of one thread share: Django keeps it in
            context variables, and would make it anew for each job.
    """

    def __init__(
        self,
        run_task: TaskRunner | None,
        handlers: Mapping[tuple[str, str], Handler],
        settle_error: Callable[[Job, BaseException], Settle] | None = None,
        shared: Sequence[BaseConnectionHandler[Any]] = (),
    ) -> None:
        self._run_task = run_task
        self._thread = threading.local()
        self._settle_error = settle_error
        self._shared = (caches, *shared)
        self._handlers = {
            key: partial(call_async, handler) if iscoroutinefunction(handler) else handler
            for key, handler in handlers.items()
        }

    def run(self, running: Running) -> Settle:
        # What was looked after at the end of a job is not again right before the next one.
        if time.monotonic() - getattr(self._thread, "looked_after", 0.0) > FRESH:
            look_after_connections()
        try:
            return self._run(running)
        finally:
            look_after_connections()
            self._thread.looked_after = time.monotonic()

    def open_thread(self) -> None:
        for handler in self._shared:
            for alias in handler:
                # One that can't be made is told of by the job that needs it.
                with contextlib.suppress(Exception):
                    handler[alias]

    def close_thread(self) -> None:
        connections.close_all()

    def timed_out(self, job: Job, error: JobTimeout) -> Settle:
        if job.task is None:
            return super().timed_out(job, error)
        if self._settle_error is None:
            return Settle(job, "fail", error=error)
        return self._settle_error(job, error)

    def _run(self, running: Running) -> Settle:
        job = running.job
        if job.task is not None:
            if self._run_task is None:
                return _fail(
                    running,
                    "The job is a call of a task, and this project has no tasks framework:"
                    " install django-localqueue[tasks], or Django 6.",
                )
            return self._run_task(running)
        handler = self._handlers.get((job.queue.store_key, job.queue.name))
        if handler is None:
            return _fail(
                running,
                f"The job is plain data, and the queue {job.queue.name!r} has no HANDLER:"
                " set it in LOCALQUEUE to the dotted path of a function that takes the job.",
            )
        return run_handler(handler, running)


def call_async(function: Callable[..., Awaitable[Any]], *args: Any, **kwargs: Any) -> Any:
    """Run a coroutine function of a job on the worker's loop; return or raise what it does.

    Around it connections are kept healthy in the thread that the loop's database work runs in.
    """
    return coroutines.run(_with_healthy_connections, function, args, kwargs)


async def _with_healthy_connections(
    function: Callable[..., Awaitable[Any]], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    look_after = sync_to_async(look_after_connections, thread_sensitive=True)
    await look_after()
    try:
        return await function(*args, **kwargs)
    finally:
        await look_after()


def look_after_connections() -> None:
    """Do to this thread's connections what the end of a request and the next begin do."""
    for connection in connections.all(initialized_only=True):
        _keep_healthy(connection)
        connection.queries_log.clear()
    close_caches()


def keep_connections_healthy() -> None:
    """Close this thread's database connections that broke or that are too old.

    As ``close_old_connections``, but SQLite's are not closed for their age: with
    CONN_MAX_AGE at its default that would be after each job, and the last one to
    close an SQLite database in WAL mode checkpoints it and removes the WAL. Those in
    a transaction, as a test's are, are left alone.
    """
    for connection in connections.all(initialized_only=True):
        _keep_healthy(connection)


def _keep_healthy(connection: BaseDatabaseWrapper) -> None:
    if connection.in_atomic_block:
        return
    if connection.vendor == "sqlite":
        connection.close_at = None
        if connection.connection is not None and _was_closed(connection.connection):
            connection.close()
    connection.close_if_unusable_or_obsolete()


def _was_closed(connection: Any) -> bool:
    """Whether a job closed the connection of ``sqlite3`` that is beneath Django's."""
    try:
        connection.total_changes  # noqa: B018
    except connection.ProgrammingError:
        return True
    return False


def _fail(running: Running, message: str) -> Settle:
    return Settle(running.job, "fail", error=ErrorRecord.of(ImproperlyConfigured(message)))
