"""Tasks that the tests enqueue."""

from __future__ import annotations

import asyncio
from typing import Any

from django_localqueue.tasks import job_options
from django_localqueue.tasks.compat import TaskContext
from django_localqueue.worker import current

try:
    from django.tasks import task
except ImportError:
    from django_tasks import task

calls: list[Any] = []


@task
def add(a: int, b: int = 0) -> int:
    calls.append((a, b))
    return a + b


@task(queue_name="emails", priority=7)
def send(to: str) -> str:
    return f"sent to {to}"


@task
async def fail_later(message: str) -> None:
    raise ValueError(message)


@task
def fail(message: str) -> None:
    raise ValueError(message)


@task
def leave() -> None:
    raise SystemExit(3)


@task
def give(what: str) -> Any:
    return {
        "tuple": (1, "two", {"three": 3}),
        "object": object(),
        "set": {1},
        "nan": float("nan"),
        "keys": {1: 2},
        "none": None,
        "huge": "x" * (2 << 20) if what == "huge" else "",
    }[what]


@task
async def add_later(a: int, b: int) -> int:
    await asyncio.sleep(0)
    return a + b


@task(takes_context=True)
def attempt_of(context: TaskContext, note: str) -> list[Any]:
    return [note, context.attempt, context.task_result.id]


@task
def wait_for_cancel() -> None:
    running = current()
    assert running is not None
    running.cancel_requested = True
    raise RuntimeError("stopped as asked")


def plain(a: int) -> int:
    return a


under_another_name = task(plain)


@task
def replaced() -> int:
    return 1


first_replaced = replaced


@task  # the same name again, as a decorator that wraps does
def replaced() -> int:
    return 2


@task
@job_options(timeout=7, group="mails")
def patient(name: str) -> None:
    """One with options of its own."""
