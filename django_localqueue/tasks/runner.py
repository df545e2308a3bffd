"""Running a job that is a call of a task."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from inspect import iscoroutinefunction
from typing import Any

from django_localqueue.exceptions import LocalQueueError, UndecodablePayload
from django_localqueue.tasks import options, results
from django_localqueue.tasks.backend import LocalQueueBackend
from django_localqueue.tasks.compat import (
    BaseTaskBackend,
    InvalidTaskBackend,
    Task,
    TaskResultStatus,
    normalize_json,
    task_backends,
    task_finished,
    task_started,
)
from django_localqueue.tasks.context import JobContext
from django_localqueue.tasks.signals import job_dead_lettered, job_retried
from django_localqueue.types import Attempt, ErrorRecord, Job, JobRecord, Reason, Settle
from django_localqueue.worker import loop
from django_localqueue.worker.counts import is_last_delivery
from django_localqueue.worker.django import call_async
from django_localqueue.worker.executor import Running, check_result

#: The newest form of a payload that this version reads; one without a version is of form 1.
PAYLOAD_VERSION = 1

#: The files whose frames stand above a task's own.
_CALLERS = frozenset((__file__, call_async.__code__.co_filename, loop.__file__))
_is_async = lru_cache(1_000)(iscoroutinefunction)


@dataclass(slots=True)
class _Run:
    running: Running
    result: results.LocalTaskResult
    backend: BaseTaskBackend

    @property
    def sender(self) -> type[BaseTaskBackend]:
        return type(self.backend)


def run_task(running: Running) -> Settle:
    """Run the task that a job is a call of, and say how it ended.

    A task that raises fails at once unless its options retry it. A task that is gone, or
    isn't one, fails its job and nothing else.
    """
    try:
        run = _prepare(running)
    except BaseException as error:  # SystemExit too: importing a module can do anything
        running.log(logging.ERROR, "can't be run: %s: %s", type(error).__name__, error)
        return _bury(running.job, LocalQueueBackend, None, error, "failed")
    if getattr(getattr(run.backend, "settings", None), "tracing", False):
        tracing = import_module("django_localqueue.tasks.tracing")
        with tracing.running(running.job, run.result) as span:
            settle = _run(run)
            tracing.ended(span, settle)
        return settle
    return _run(run)


def settle_error(job: Job, error: BaseException) -> Settle:
    """Say what becomes of a task's job whose attempt was ended from outside, as by a timeout."""
    try:
        policy = policy_of(job)
    except Exception:
        return Settle(job, "fail", error=ErrorRecord.of(error))
    delay = _delay_before_retry(job, policy, error)
    if delay is None:
        return Settle(job, "fail", error=ErrorRecord.of(error))
    return Settle(job, "nack", delay=delay, error=ErrorRecord.of(error))


def policy_of(job: Job) -> options.JobOptions:
    """Return the options of the task that a job is a call of; raises what importing it raises."""
    alias = job.headers.get("backend")
    task = called_task(job)
    settings = getattr(task_backends[alias or task.backend], "settings", None)
    policy = options.of_function(task.func)
    if "options" in job.headers:
        policy = options.options_from(job.headers["options"], "job_options").or_else(policy)
    return policy if settings is None else policy.or_else(settings.job_options)


def _run(run: _Run) -> Settle:
    running, result = run.running, run.result
    job = running.job
    task_started.send_robust(run.sender, task_result=result)
    try:
        value = _call(run)
        check_result(job.queue, value)
    except BaseException as error:
        # SystemExit too: a task must not end the worker.
        return _raised(run, error)
    results.set_fields(
        result,
        _return_value=value,
        status=TaskResultStatus.SUCCESSFUL,
        finished_at=results.when(job.queue.now()),
    )
    task_finished.send_robust(run.sender, task_result=result)
    return Settle(job, "ack", result=value)


def _prepare(running: Running) -> _Run:
    job = running.job
    headers = job.headers
    alias = headers.get("backend")
    backend = None if alias is None else task_backends[alias]
    task = called_task(job)
    if backend is None:
        alias = task.backend
        backend = task_backends[alias]
    data = job.data
    if isinstance(data, dict) and data.get("version", PAYLOAD_VERSION) != PAYLOAD_VERSION:
        raise UndecodablePayload(
            f"The payload of a call of {job.task} is of version {data['version']!r}, and this"
            f" worker knows {PAYLOAD_VERSION}: a newer django-localqueue wrote it. Upgrade the"
            " worker, then retry the job."
        )
    if not (
        isinstance(data, dict)
        and isinstance(data.get("args"), list)
        and isinstance(data.get("kwargs"), dict)
    ):
        raise UndecodablePayload(
            f"The payload of a call of {job.task} must be"
            ' {"args": [...], "kwargs": {...}}, and it is something else.'
        )
    started, errors, workers = [job.queue.now()], [], [running.worker]
    if job.attempts > 1:
        history = _history(job)
        started = [*(attempt.started_at for attempt in history), *started]
        errors = results.errors_of(history)
        workers = [*(attempt.worker for attempt in history), *workers]
    result = results.make(
        results.variant(task, job.priority, headers, results.alias_of(job.queue), alias or ""),
        id=job.id,
        status=TaskResultStatus.RUNNING,
        enqueued_at=headers.get("enqueued_at", job.created_at),
        args=data["args"],
        kwargs=data["kwargs"],
        backend=alias or "",
        started=started,
        errors=errors,
        worker_ids=workers,
    )
    return _Run(running, result, backend)


def called_task(job: Job | JobRecord) -> Task[Any, Any]:
    """Return the task that a job is a call of; raises what importing it raises."""
    return results.find_task(job.task or "", _moved_tasks(job.headers.get("backend")))


def _moved_tasks(alias: str | None) -> Mapping[str, str]:
    """Return where tasks are now; for a job that names no backend, as all of them say."""
    if alias is not None:
        return _moved_of(alias)
    return {old: new for one in task_backends for old, new in _moved_of(one).items()}


def _moved_of(alias: str) -> Mapping[str, str]:
    try:
        backend = task_backends[alias]
    except InvalidTaskBackend:
        return {}  # not this job's, or the job is told of it otherwise
    return getattr(getattr(backend, "settings", None), "moved_tasks", None) or {}


def _history(job: Job) -> tuple[Attempt, ...]:
    try:
        record = job.queue.lookup(job.id)
    except LocalQueueError:
        return ()  # not worth failing the task for
    return record.history if record else ()


def _call(run: _Run) -> Any:
    result = run.result
    task = result.task
    context: list[Any] = []
    if task.takes_context:
        context = [JobContext(task_result=result, running=run.running)]
    # What @job_options wraps is called itself: it takes no options from here.
    function = getattr(task.func, options.ORIGINAL, task.func)
    if _is_async(function):
        value = call_async(function, *context, *result.args, **result.kwargs)
    else:
        value = function(*context, *result.args, **result.kwargs)
    return normalize_json(value)


def _raised(run: _Run, error: BaseException) -> Settle:
    running, result = run.running, run.result
    job = running.job
    _begin_at_the_task(error)
    record = ErrorRecord.of(error)
    assert record is not None
    result.errors.append(results.task_error(record))
    delay = None
    if not running.cancel_requested:
        try:
            delay = _delay_before_retry(job, policy_of(job), error)
        except Exception as broken:  # a backoff function of the project's, say
            running.log(logging.ERROR, "can't be retried: its options raised %r", broken)
    if delay is not None:
        results.set_fields(result, status=TaskResultStatus.READY)
        running.log(
            logging.WARNING,
            "raised %s in attempt %d and runs again in %.1f s: %s",
            record.error_class,
            job.attempts,
            delay,
            record.message,
        )
        with contextlib.suppress(Exception):
            job_retried.send_robust(
                run.sender, job=job, task_result=result, delay=delay, error=error
            )
        return Settle(job, "nack", delay=delay, error=record)
    results.set_fields(
        result, status=TaskResultStatus.FAILED, finished_at=results.when(job.queue.now())
    )
    running.log(logging.WARNING, "failed: %s: %s", record.error_class, record.message)
    # Called while the exception is handled: the receiver that logs it takes it from there.
    task_finished.send_robust(run.sender, task_result=result)
    reason: Reason = "cancelled" if running.cancel_requested else "failed"
    return _bury(job, run.sender, result, error, reason, record)


def _begin_at_the_task(error: BaseException) -> None:
    """Leave out of an error's traceback what called the task; all of it, where nothing else is."""
    own = frame = error.__traceback__
    while frame is not None:
        if frame.tb_frame.f_code.co_filename in _CALLERS:
            own = frame.tb_next
        frame = frame.tb_next
    if own is not None:
        error.__traceback__ = own


def _delay_before_retry(job: Job, policy: options.JobOptions, error: BaseException) -> float | None:
    if is_last_delivery(job):
        return None
    return policy.delay_before_retry(job.attempts, error)


def _bury(
    job: Job,
    sender: type[BaseTaskBackend],
    result: results.LocalTaskResult | None,
    error: BaseException,
    reason: Reason,
    record: ErrorRecord | None = None,
) -> Settle:
    job_dead_lettered.send_robust(sender, job=job, task_result=result, error=error, reason=reason)
    return Settle(job, "fail", error=record or ErrorRecord.of(error), reason=reason)
