"""Helpers for tests of projects: run what is enqueued in the test, and ask what was enqueued.

    from django_localqueue.testing import assert_enqueued, drain

    class OrderTests(TestCase):
        def test_an_order_sends_mail(self):
            with self.captureOnCommitCallbacks(execute=True):
                place_order()
            assert_enqueued(send_mail, kwargs={"to": "ann@example.org"})
            drain()

In a test run the queues of LOCALQUEUE are in memory, each test process has its own, and nothing
of it is rolled back: ``clear()`` in ``setUp`` empties them, as the pytest fixture does by itself.
Jobs run in the thread of the test, in its transaction, and no connection is closed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from django.utils.module_loading import import_string

from django_localqueue.backends.base import BaseQueue
from django_localqueue.outbox import mover
from django_localqueue.queues import queues
from django_localqueue.tasks import run_task
from django_localqueue.types import JobFilter, JobRecord, Settle, State
from django_localqueue.worker.django import DjangoExecutor
from django_localqueue.worker.executor import Handler, Running, execute

WORKER = "test"
#: A job that enqueues itself for ever must end a test.
MOST = 10_000

_STATES: tuple[State, ...] = ("ready", "delayed", "blocked")


class JobFailed(AssertionError):
    """A job of ``drain(fail=True)`` became a dead letter; the cause is what it raised."""


@dataclass(slots=True)
class Drained:
    """What ``drain`` did: deliveries by how they ended, and the dead letters."""

    done: int = 0
    retried: int = 0
    failed: int = 0
    dead: list[JobRecord] = field(default_factory=list)

    def __len__(self) -> int:
        return self.done + self.retried + self.failed


@dataclass(frozen=True, slots=True)
class Enqueued:
    """A job that waits: a call of a task, or plain data."""

    task: str | None
    args: list[Any]
    kwargs: dict[str, Any]
    data: Any
    queue: str
    record: JobRecord


def drain(*names: str, delayed: bool = False, fail: bool = False, most: int = MOST) -> Drained:
    """Run what waits in the queues, and what that enqueues, until nothing is ready.

    Args:
        names: aliases of LOCALQUEUE; default: all.
        delayed: run delayed jobs too, as if their time had come; also retries.
        fail: raise ``JobFailed`` where a job becomes a dead letter.
        most: how many deliveries at most.

    Raises:
        AssertionError: there were more than ``most``: jobs that enqueue one another for ever.
    """
    served = {alias: queues[alias] for alias in names or queues}
    executor = _InTest(run_task, _handlers(served))
    drained = Drained()
    while True:
        mover.move()
        if delayed:
            for queue in served.values():
                queue.apply("run_now", JobFilter(state="delayed"))
        ran = 0
        for queue in served.values():
            for job in queue.get_many(1, worker=WORKER):
                ran += 1
                if len(drained) >= most:
                    queue.release(job)
                    raise AssertionError(f"drain() has run {most} jobs, and there are still more.")
                lease = queue.lease_seconds
                settle = execute(executor, Running(job, WORKER, lease, lease / 3))
                _settle(queue, settle, drained, fail)
        if not ran:
            return drained


def enqueued(task: Any = None, *, queue: str | None = None) -> list[Enqueued]:
    """Return what waits, in the order of its put; of one task, or in one queue, if named.

    Args:
        task: a task, or its dotted path.
        queue: an alias of LOCALQUEUE.
    """
    mover.move()
    path = task if task is None or isinstance(task, str) else task.module_path
    found = []
    for alias in [queue] if queue is not None else queues:
        opened = queues[alias]
        for record in _waiting(opened):
            if path is not None and record.task != path:
                continue
            data = opened.serializer.loads(record.payload)
            call = data if record.task is not None and isinstance(data, Mapping) else {}
            found.append(
                Enqueued(
                    record.task,
                    list(call.get("args", [])),
                    dict(call.get("kwargs", {})),
                    data,
                    alias,
                    record,
                )
            )
    return sorted(found, key=lambda one: one.record.created_at)


def assert_enqueued(
    task: Any,
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    queue: str | None = None,
    count: int | None = None,
) -> Enqueued:
    """Assert that a call of a task waits; return the last such one.

    Args:
        task: a task, or its dotted path.
        args, kwargs: as it was called; None: whatever they are.
        queue: an alias of LOCALQUEUE.
        count: how many there must be; None: at least one.
    """
    matching = _matching(task, args, kwargs, queue)
    name = task if isinstance(task, str) else task.module_path
    wanted = f"{name}{_shown(args, kwargs)}"
    if count is not None and len(matching) != count:
        raise AssertionError(f"{wanted} waits {len(matching)} times, not {count}. {_what_waits()}")
    if not matching:
        raise AssertionError(f"{wanted} is not enqueued. {_what_waits()}")
    return matching[-1]


def assert_not_enqueued(
    task: Any,
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    queue: str | None = None,
) -> None:
    """Assert that no such call of a task waits; arguments as ``assert_enqueued``."""
    if _matching(task, args, kwargs, queue):
        name = task if isinstance(task, str) else task.module_path
        raise AssertionError(f"{name}{_shown(args, kwargs)} is enqueued. {_what_waits()}")


def clear() -> None:
    """Remove everything from all queues; queues in memory are made anew."""
    for queue in queues.all():
        for state in _STATES:
            queue.apply("discard", JobFilter(state=state), limit=1_000_000)
        queue.purge(0, include_failed=True)
    queues.close_all()


class _InTest(DjangoExecutor):
    """Runs jobs and leaves the test's connections, and their transactions, alone."""

    def run(self, running: Running) -> Settle:
        return self._run(running)


def _matching(
    task: Any, args: Sequence[Any] | None, kwargs: Mapping[str, Any] | None, queue: str | None
) -> list[Enqueued]:
    return [
        one
        for one in enqueued(task, queue=queue)
        if (args is None or one.args == list(args))
        and (kwargs is None or one.kwargs == dict(kwargs))
    ]


def _what_waits() -> str:
    calls = [f"{one.task or 'a plain job'}{_shown(one.args, one.kwargs)}" for one in enqueued()]
    return f"What waits: {', '.join(calls) if calls else 'nothing'}."


def _shown(args: Iterable[Any] | None, kwargs: Mapping[str, Any] | None) -> str:
    if args is None and kwargs is None:
        return ""
    parts = [*map(repr, args or ()), *(f"{key}={value!r}" for key, value in (kwargs or {}).items())]
    return f"({', '.join(parts)})"


def _waiting(queue: BaseQueue) -> Iterator[JobRecord]:
    for state in _STATES:
        after = None
        while True:
            page = queue.list(JobFilter(state=state), limit=1_000, after=after)
            yield from page.records
            after = page.next
            if after is None:
                break


def _settle(queue: BaseQueue, settle: Settle, drained: Drained, fail: bool) -> None:
    lost = queue.exchange([settle], 0).results[0]
    if lost is not None:
        raise lost
    record = queue.lookup(settle.job.id)
    state: State | Literal["gone"] = "gone" if record is None else record.state
    if state != "failed" or record is None:
        drained.done += settle.verb == "ack"
        drained.retried += settle.verb != "ack"
        return
    drained.failed += 1
    drained.dead.append(record)
    if fail:
        error = record.error
        raise JobFailed(
            f"{record.task or 'A plain job'} failed: {error.traceback or error.message}"
            if error
            else f"{record.task or 'A plain job'} failed."
        )


def _handlers(served: Mapping[str, BaseQueue]) -> dict[tuple[str, str], Handler]:
    found = {}
    for alias, queue in served.items():
        path = queues.settings(alias).handler
        if path is not None:
            found[queue.store_key, queue.name] = import_string(path)
    return found
