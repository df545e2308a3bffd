"""Waits of the SQLite queue, and what ends them; use after close."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from django_localqueue import (
    Empty,
    Job,
    QueueClosed,
    Settle,
    SQLiteQueue,
)
from tests.unit.calls import Call, sleeps, wait_until


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def pair(folder: Path) -> Iterator[tuple[SQLiteQueue, SQLiteQueue]]:
    with SQLiteQueue(folder, "a") as a, SQLiteQueue(folder, "b") as b:
        yield a, b


def test_interrupt_ends_a_get_that_waits(queue: SQLiteQueue) -> None:
    call = Call(queue.get)
    wait_until(lambda: sleeps(call))
    queue.interrupt()
    assert isinstance(call.result(), Empty)


def test_interrupt_before_the_wait_ends_the_next_one(queue: SQLiteQueue) -> None:
    queue.interrupt()
    with pytest.raises(Empty):
        queue.get()


def test_interrupt_after_an_exchange_keeps_what_it_settled(queue: SQLiteQueue) -> None:
    queue.put({})
    job = queue.get_nowait()
    call = Call(lambda: queue.exchange([Settle(job, "ack")], 1, block=True))
    wait_until(lambda: queue.stats().acked == 1)
    queue.interrupt()
    exchange = call.result()
    assert (exchange.results, exchange.jobs) == ([None], [])


def test_close_ends_a_get_that_waits(folder: Path) -> None:
    queue = SQLiteQueue(folder)
    call = Call(queue.get)
    wait_until(lambda: sleeps(call))
    queue.close()
    assert isinstance(call.result(), QueueClosed)


def test_closing_a_queue_ends_its_waits_and_not_those_of_others(
    pair: tuple[SQLiteQueue, SQLiteQueue],
) -> None:
    a, b = pair
    calls_of_a = [Call(a.get) for _ in range(3)]
    calls_of_b = [Call(b.get) for _ in range(3)]
    wait_until(lambda: all(sleeps(call) for call in calls_of_a + calls_of_b))
    a.close()
    assert [type(call.result()) for call in calls_of_a] == [QueueClosed] * 3
    assert all(call.is_alive() for call in calls_of_b)
    b.put_many([1, 2, 3])
    assert sorted(call.result().data for call in calls_of_b) == [1, 2, 3]


def test_closing_a_queue_does_not_shorten_a_later_wait_of_another(
    pair: tuple[SQLiteQueue, SQLiteQueue],
) -> None:
    a, b = pair
    a.close()
    call = Call(lambda: b.get(timeout=30))
    wait_until(lambda: sleeps(call))
    b.put("came later")
    assert call.result().data == "came later"


def test_a_timeout_ends_a_wait_on_time(queue: SQLiteQueue) -> None:
    start = time.monotonic()
    with pytest.raises(Empty):
        queue.get(timeout=0.05)
    assert time.monotonic() - start >= 0.05


def test_a_waiting_get_lets_other_threads_use_the_queue(queue: SQLiteQueue) -> None:
    call = Call(queue.get)
    wait_until(lambda: sleeps(call))
    assert queue.stats().ready == 0
    queue.put("woken")
    assert call.result().data == "woken"


USES: list[Callable[[SQLiteQueue, Job], object]] = [
    lambda queue, job: queue.put(1),
    lambda queue, job: queue.put(1, "id"),
    lambda queue, job: queue.put_many([1]),
    lambda queue, job: queue.get(),
    lambda queue, job: queue.get_nowait(),
    lambda queue, job: queue.get_many(1),
    lambda queue, job: queue.exchange((), 1),
    lambda queue, job: queue.ack(job),
    lambda queue, job: queue.nack(job),
    lambda queue, job: queue.fail(job),
    lambda queue, job: queue.release(job),
    lambda queue, job: queue.extend_lease(job, 60),
    lambda queue, job: queue.stats(),
    lambda queue, job: queue.lookup("1"),
    lambda queue, job: queue.list(),
    lambda queue, job: queue.count(),
    lambda queue, job: queue.list_failed(),
    lambda queue, job: queue.retry_failed("1"),
    lambda queue, job: queue.cancel("1"),
    lambda queue, job: queue.purge(0),
    lambda queue, job: queue.prune(),
    lambda queue, job: queue.reclaim_expired_leases(),
    lambda queue, job: queue.pause(),
    lambda queue, job: queue.resume(),
    lambda queue, job: queue.vacuum(),
    lambda queue, job: queue.now(),
]


@pytest.mark.parametrize("number", range(len(USES)))
def test_use_after_close_raises_queue_closed(folder: Path, number: int) -> None:
    with SQLiteQueue(folder) as queue:
        queue.put({})
        job = queue.get_nowait()
    with pytest.raises(QueueClosed, match=r"'default' in .* was closed; open it again"):
        USES[number](queue, job)


def test_close_twice_and_interrupt_after_close_do_nothing(folder: Path) -> None:
    queue = SQLiteQueue(folder)
    queue.close()
    queue.close()
    queue.interrupt()
    with SQLiteQueue(folder) as again:
        again.put({})
