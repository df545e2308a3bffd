"""Tasks with options, that the tests enqueue."""

from __future__ import annotations

from typing import Any

from django.db import connection

from django_localqueue.tasks import JobContext, exponential, job_options, progress, should_stop

try:
    from django.tasks import task
except ImportError:
    from django_tasks import task

attempts: list[Any] = []


class Passing(Exception):
    """Goes away by itself."""


class Lasting(Passing):
    """Doesn't."""


def wait_long(attempt: int, error: BaseException) -> float:
    return 100.0 * attempt


def wait_wrongly(attempt: int, error: BaseException) -> float:
    raise RuntimeError("the backoff itself is broken")


@task
@job_options(retries=2, backoff=0)
def flaky(fails: int) -> str:
    """Fails so many times."""
    attempts.append(fails)
    if len(attempts) <= fails:
        raise Passing(f"attempt {len(attempts)}")
    return "done"


@task
@job_options(retries=5, backoff=wait_long, retry_on=(Passing,), no_retry_on=(Lasting,))
def choosy(kind: str) -> None:
    raise {"passing": Passing, "lasting": Lasting, "other": ValueError}[kind](kind)


@task
@job_options(retries=5, backoff=exponential(base=10, factor=3, maximum=60, jitter=0))
def growing() -> None:
    raise Passing


@task
@job_options(retries=5, backoff=wait_wrongly)
def broken_backoff() -> None:
    raise Passing("the reason")


@task
@job_options(retries=3, backoff=0)
def leaving() -> None:
    raise SystemExit(3)


@task
@job_options(retries=3, backoff=0)
def interrupted() -> None:
    raise KeyboardInterrupt


@task
@job_options(
    group="reports",
    unique_key="report-{year}",
    unique_seconds=60,
    expires=600,
    retention=50,
    timeout=30,
)
def report(year: int, draft: bool = False) -> int:
    return year


@task
def bare(a: int = 0) -> int:
    attempts.append(a)
    return a


@task
@job_options(retries=1)
async def later(a: int) -> int:
    return a


@task(takes_context=True)
@job_options()
def watched(context: JobContext, steps: int) -> list[Any]:
    seen = [context.attempt, context.should_stop]
    for step in range(1, steps + 1):
        seen.append(context.progress(step, steps, f"step {step}"))
    return seen


@task
def watched_from_within() -> list[bool]:
    return [progress(1, 2), should_stop()]


@task
def closes_the_connection() -> int:
    connection.close()
    return 1


@task
@job_options(enqueue_on_commit=True)
def after_the_commit(a: int) -> int:
    return a
