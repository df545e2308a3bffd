"""Running a job that is a call of a task."""

from __future__ import annotations

import logging
from inspect import iscoroutinefunction
from typing import Any

from django_localqueue.exceptions import LocalQueueError, UndecodablePayload
from django_localqueue.tasks import results
from django_localqueue.tasks.compat import (
    BaseTaskBackend,
    TaskContext,
    TaskResult,
    TaskResultStatus,
    normalize_json,
    task_backends,
    task_finished,
    task_started,
)
from django_localqueue.types import Attempt, ErrorRecord, Job, Settle
from django_localqueue.worker.django import call_async
from django_localqueue.worker.executor import Running, check_result


def run_task(running: Running) -> Settle:
    """Run the task that a job is a call of, and say how it ended.

    A task that raises fails at once: the tasks framework has no retries. A task that
    is gone, or isn't one, fails its job and nothing else.
    """
    job = running.job
    try:
        result, backend = _prepare(running)
    except BaseException as error:  # SystemExit too: importing a module can do anything
        running.log(logging.ERROR, "can't be run: %s: %s", type(error).__name__, error)
        return Settle(job, "fail", error=ErrorRecord.of(error))
    sender = type(backend)
    task_started.send_robust(sender, task_result=result)
    try:
        value = _call(result)
        check_result(job.queue, value)
    except BaseException as error:
        # SystemExit too: a task must not end the worker.
        return _failed(running, result, sender, error)
    results.set_fields(
        result,
        _return_value=value,
        status=TaskResultStatus.SUCCESSFUL,
        finished_at=results.when(job.queue.now()),
    )
    task_finished.send_robust(sender, task_result=result)
    return Settle(job, "ack", result=value)


def _prepare(running: Running) -> tuple[TaskResult[Any, Any], BaseTaskBackend]:
    job = running.job
    task = results.find_task(job.task or "")
    alias = job.headers.get("backend", task.backend)
    backend = task_backends[alias]
    data = job.data
    if not (
        isinstance(data, dict)
        and isinstance(data.get("args"), list)
        and isinstance(data.get("kwargs"), dict)
    ):
        raise UndecodablePayload(
            f"The payload of a call of {job.task} must be"
            ' {"args": [...], "kwargs": {...}}, and it is something else.'
        )
    history = _history(job)
    result = results.make(
        results.variant(task, job, results.alias_of(job.queue), alias),
        id=job.id,
        status=TaskResultStatus.RUNNING,
        enqueued_at=job.headers.get("enqueued_at", job.created_at),
        args=data["args"],
        kwargs=data["kwargs"],
        backend=alias,
        started=[*(attempt.started_at for attempt in history), job.queue.now()],
        errors=results.errors_of(history),
        worker_ids=[*(attempt.worker for attempt in history), running.worker],
    )
    return result, backend


def _history(job: Job) -> tuple[Attempt, ...]:
    if job.attempts == 1:
        return ()
    try:
        record = job.queue.lookup(job.id)
    except LocalQueueError:
        return ()  # not worth failing the task for
    return record.history if record else ()


def _call(result: TaskResult[Any, Any]) -> Any:
    task = result.task
    context: list[Any] = [TaskContext(task_result=result)] if task.takes_context else []
    if iscoroutinefunction(task.func):
        value = call_async(task.func, *context, *result.args, **result.kwargs)
    else:
        value = task.func(*context, *result.args, **result.kwargs)
    return normalize_json(value)


def _failed(
    running: Running,
    result: TaskResult[Any, Any],
    sender: type[BaseTaskBackend],
    error: BaseException,
) -> Settle:
    job = running.job
    record = ErrorRecord.of(error)
    assert record is not None
    result.errors.append(results.task_error(record))
    results.set_fields(
        result, status=TaskResultStatus.FAILED, finished_at=results.when(job.queue.now())
    )
    running.log(logging.ERROR, "failed: %s: %s", record.error_class, record.message)
    # Called while the exception is handled: the receiver that logs it takes it from there.
    task_finished.send_robust(sender, task_result=result)
    return Settle(
        job, "fail", error=record, reason="cancelled" if running.cancel_requested else "failed"
    )
