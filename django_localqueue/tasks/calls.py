"""A call of a task, made ready to be put into its queue."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Any, NamedTuple

from django_localqueue.backends.base import BaseQueue
from django_localqueue.outbox.pending import PendingJob
from django_localqueue.queues import queues
from django_localqueue.tasks import options, results
from django_localqueue.tasks.compat import InvalidTask, Task, TaskResultStatus
from django_localqueue.tasks.options import JobOptions
from django_localqueue.types import MICROSECONDS


class Call(NamedTuple):
    """One call of a task, for ``enqueue_many``; made by ``call``."""

    task: Task[Any, Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def call(task: Task[Any, Any], /, *args: Any, **kwargs: Any) -> Call:
    """Return a call of a task as ``task.enqueue(*args, **kwargs)`` would make it."""
    return Call(task, args, kwargs)


@dataclass(slots=True)
class Prepared:
    """A checked call: its queue and the alias of that, its result, its options, the job to put."""

    queue: BaseQueue
    alias: str
    result: results.LocalTaskResult
    options: JobOptions
    pending: PendingJob


def prepare(
    backend_alias: str,
    defaults: JobOptions,
    task: Task[Any, Any],
    args: Any,
    kwargs: Any,
) -> Prepared:
    """Check the arguments of a call and make its job; nothing is stored yet.

    Raises:
        TypeError, ValueError: JSON can't carry an argument.
        InvalidInput: an option was refused.
    """
    said = options.NOTHING
    if options.KEYWORD in kwargs:
        kwargs = dict(kwargs)
        given = kwargs.pop(options.KEYWORD)
        if given is not None:
            said = options.options_from(given, "job_options")
    function = task.func
    chosen = said.or_else(options.of_function(function)).or_else(defaults)
    queue = queues[task.queue_name]
    now = queue.now()
    result = results.make(
        task,
        id=new_id(),
        status=TaskResultStatus.READY,
        enqueued_at=now,
        args=args,
        kwargs=kwargs,
        backend=backend_alias,
    )
    headers: dict[str, Any] = {"backend": backend_alias, "enqueued_at": now}
    due = None
    if task.run_after is not None:
        due = round(task.run_after.timestamp() * MICROSECONDS)
        headers["run_after"] = due
    job: dict[str, Any] = {
        "data": {"args": result.args, "kwargs": result.kwargs},
        "job_id": result.id,
        "priority": task.priority,
        "task": task.module_path,
        "headers": headers,
    }
    if chosen is not options.NOTHING:
        if said is not options.NOTHING and (of_run := said.of_the_run()):
            headers["options"] = of_run
        if chosen.timeout is not None:
            headers["timeout"] = chosen.timeout
        if chosen.retries is not None and chosen.retries > queue.max_retries:
            # What bounds deliveries must leave room for the retries.
            job["max_retries"] = chosen.retries
        job.update(options.put_arguments(chosen, function, result.args, result.kwargs))
    return Prepared(queue, task.queue_name, result, chosen, PendingJob(job, now, due))


def new_id() -> str:
    """Return a new UUID, version 7: ordered by time, to a fraction of a microsecond."""
    milliseconds, rest = divmod(time.time_ns(), 1_000_000)
    fraction = rest * 4096 // 1_000_000
    random = int.from_bytes(os.urandom(8)) >> 2
    text = f"{milliseconds << 80 | 7 << 76 | fraction << 64 | 2 << 62 | random:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def check_name(task: Task[Any, Any]) -> None:
    """Refuse a task that a worker would not find by its name."""
    function = task.func
    path = task.module_path
    if function.__module__ == "__main__":
        raise InvalidTask(
            f"The task {path} is defined in the script that is run, where a worker can't import"
            " it; move it into a module."
        )
    try:
        found = results.find_task(path)
    except Exception as error:
        raise InvalidTask(f"A worker can't import the task {path}: {error}") from error
    if found.func is not function:
        raise InvalidTask(
            f"The name {path} is another task than the one enqueued; a worker would run the wrong"
            " one."
        )
