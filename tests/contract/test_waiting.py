"""Waiting, closing and threads. Real time passes only while a thread or process is waited for."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from django_localqueue.backends.base import BaseQueue
from django_localqueue.exceptions import Empty, QueueClosed
from django_localqueue.types import JobFilter, Settle
from tests.contract.backends import Backend, Clock
from tests.contract.helpers import PATIENCE, InThread, data, empty, wait_for_sleep


def waiting(function: Callable[[], Any]) -> InThread:
    """Start the call in a thread and return once it waits."""
    thread = InThread(function)
    thread.wait_until_asleep()
    return thread


def pass_time(clock: Clock, thread: InThread, limit: int) -> None:
    """Let up to ``limit`` seconds of the store's clock pass, until the thread is done."""
    for _ in range(limit):
        if not thread.is_alive():
            return
        clock.advance(1)
        thread.join(0.05)


class TestWaiting:
    def test_get_raises_empty_when_its_time_is_up(self, queue: BaseQueue, clock: Clock) -> None:
        thread = waiting(lambda: queue.get(timeout=2))
        pass_time(clock, thread, 60)
        with pytest.raises(Empty):
            thread.outcome()

    def test_a_timeout_of_zero_does_not_wait(self, queue: BaseQueue) -> None:
        with pytest.raises(Empty):
            queue.get(timeout=0)

    def test_get_nowait_does_not_wait(self, queue: BaseQueue) -> None:
        with pytest.raises(Empty):
            queue.get_nowait()

    def test_a_job_that_is_there_is_taken_without_waiting(self, queue: BaseQueue) -> None:
        queue.put(1)
        assert queue.get().data == 1

    def test_a_put_from_another_thread_wakes_it(self, queue: BaseQueue) -> None:
        thread = waiting(queue.get)
        queue.put("hello")
        assert thread.outcome().data == "hello"

    def test_a_put_into_another_source_wakes_it(self, make_queue: Callable[..., BaseQueue]) -> None:
        one, two = make_queue("one"), make_queue("two")
        thread = waiting(lambda: one.exchange([], 1, sources=[one, two], block=True))
        two.put("hello")
        assert data(thread.outcome().jobs) == ["hello"]

    def test_a_delayed_job_wakes_it_when_it_is_due(self, queue: BaseQueue, clock: Clock) -> None:
        queue.put("later", delay=5)
        thread = waiting(queue.get)
        pass_time(clock, thread, 60)
        assert thread.outcome().data == "later"

    def test_a_lease_that_lapses_wakes_it(self, queue: BaseQueue, clock: Clock) -> None:
        queue.put("again")
        queue.get(lease_seconds=5)
        thread = waiting(queue.get)
        pass_time(clock, thread, 60)
        assert thread.outcome().attempts == 2

    @pytest.mark.parametrize("verb", ["nack", "release"])
    def test_a_job_given_back_wakes_it(self, verb: str, queue: BaseQueue) -> None:
        queue.put("again")
        job = queue.get_nowait()
        thread = waiting(queue.get)
        getattr(queue, verb)(job)
        assert thread.outcome().data == "again"

    def test_a_settled_lead_wakes_it_for_the_next_of_the_group(self, queue: BaseQueue) -> None:
        queue.put("a", group_id="g")
        queue.put("b", group_id="g")
        job = queue.get_nowait()
        thread = waiting(queue.get)
        queue.ack(job)
        assert thread.outcome().data == "b"

    def test_a_retried_job_wakes_it(self, queue: BaseQueue) -> None:
        id = queue.put("again")
        queue.fail(queue.get_nowait())
        thread = waiting(queue.get)
        queue.retry_failed(id)
        assert thread.outcome().data == "again"

    def test_resuming_wakes_it(self, queue: BaseQueue) -> None:
        queue.put(1)
        queue.pause()
        thread = waiting(queue.get)
        queue.resume()
        assert thread.outcome().data == 1

    def test_settles_are_done_before_it_waits(self, queue: BaseQueue) -> None:
        queue.put(1)
        job = queue.get_nowait()
        thread = waiting(lambda: queue.exchange([Settle(job, "ack")], 1, block=True))
        while thread.is_alive() and queue.stats().acked == 0:
            threading.Event().wait(0.005)
        queue.put(2)
        exchange = thread.outcome()
        assert exchange.results == [None]
        assert data(exchange.jobs) == [2]

    def test_interrupt_ends_it_with_empty(self, queue: BaseQueue) -> None:
        thread = waiting(queue.get)
        queue.interrupt()
        with pytest.raises(Empty):
            thread.outcome()

    def test_one_put_wakes_one_of_many_and_loses_nothing(self, queue: BaseQueue) -> None:
        threads = [waiting(queue.get) for _ in range(4)]
        queue.put_many(range(4))
        assert sorted(thread.outcome().data for thread in threads) == [0, 1, 2, 3]

    def test_other_verbs_work_while_a_thread_waits(self, queue: BaseQueue) -> None:
        queue.put("held")
        job = queue.get_nowait()
        thread = waiting(lambda: queue.get(min_priority=50))
        assert queue.stats().processing == 1
        assert queue.extend_lease(job, 60) is True
        queue.ack(job)
        queue.put("awaited", priority=50)
        assert thread.outcome().data == "awaited"

    @pytest.mark.parametrize("call", ["queue.get()", "queue.get(timeout=60)"])
    def test_ctrl_c_gets_through(self, call: str, backend: Backend) -> None:
        code = (
            f"{backend.opening_code()}"
            "print('waiting', flush=True)\n"
            "try:\n"
            f"    {call}\n"
            "except KeyboardInterrupt:\n"
            "    queue.put('still works')\n"
            "    print(queue.get_nowait().data)\n"
        )
        command = [sys.executable, "-c", code]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "waiting\n"
            wait_for_sleep(Path(f"/proc/{process.pid}/stat"))
            process.send_signal(signal.SIGINT)
            rest, _ = process.communicate(timeout=PATIENCE)
        assert (process.returncode, rest) == (0, "still works\n")


USES: dict[str, Callable[[BaseQueue], object]] = {
    "put": lambda queue: queue.put(1),
    "put_many": lambda queue: queue.put_many([1, 2]),
    "get": lambda queue: queue.get_nowait(),
    "exchange": lambda queue: queue.exchange([], 1),
    "stats": lambda queue: queue.stats(),
    "lookup": lambda queue: queue.lookup("7"),
    "list": lambda queue: queue.list(),
    "count": lambda queue: queue.count(),
    "list_failed": lambda queue: queue.list_failed(),
    "retry_failed": lambda queue: queue.retry_failed("7"),
    "apply": lambda queue: queue.apply("retry", JobFilter()),
    "cancel": lambda queue: queue.cancel("7"),
    "purge": lambda queue: queue.purge(0),
    "prune": lambda queue: queue.prune(),
    "reclaim": lambda queue: queue.reclaim_expired_leases(),
    "pause": lambda queue: queue.pause(),
    "resume": lambda queue: queue.resume(),
}


class TestClosing:
    @pytest.mark.parametrize("use", USES)
    def test_use_after_close_is_refused(self, use: str, queue: BaseQueue) -> None:
        queue.close()
        with pytest.raises(QueueClosed):
            USES[use](queue)

    @pytest.mark.parametrize("use", USES)
    def test_use_after_close_is_refused_where_the_store_is_still_open(
        self, use: str, make_queue: Callable[..., BaseQueue]
    ) -> None:
        queue, _other = make_queue("one"), make_queue("two")
        queue.close()
        with pytest.raises(QueueClosed):
            USES[use](queue)

    def test_a_job_cannot_be_settled_through_a_closed_queue(self, queue: BaseQueue) -> None:
        queue.put(1)
        job = queue.get_nowait()
        queue.close()
        with pytest.raises(QueueClosed):
            queue.ack(job)
        with pytest.raises(QueueClosed):
            job.extend_lease(60)

    def test_closing_twice_is_closing_once(self, queue: BaseQueue) -> None:
        queue.close()
        queue.close()

    def test_a_with_block_closes(self, make_queue: Callable[..., BaseQueue]) -> None:
        with make_queue() as queue:
            queue.put(1)
        with pytest.raises(QueueClosed):
            queue.stats()

    def test_the_other_queues_of_the_store_go_on(
        self, make_queue: Callable[..., BaseQueue]
    ) -> None:
        one, two = make_queue("one"), make_queue("two")
        one.close()
        two.put(2)
        assert two.get_nowait().data == 2

    def test_another_object_of_the_same_queue_goes_on(
        self, make_queue: Callable[..., BaseQueue]
    ) -> None:
        one, same = make_queue(), make_queue()
        one.put(1)
        one.close()
        assert same.get_nowait().data == 1

    def test_closing_ends_a_waiting_get(self, queue: BaseQueue) -> None:
        thread = waiting(queue.get)
        queue.close()
        with pytest.raises((Empty, QueueClosed)):
            thread.outcome()


class TestThreads:
    def test_each_job_is_handed_out_once(self, queue: BaseQueue) -> None:
        makers, takers, each = 4, 4, 50
        total = makers * each
        seen: list[tuple[int, str]] = []
        enough = threading.Semaphore(total)

        def make(maker: int) -> None:
            for number in range(each):
                queue.put(maker * each + number)

        def take() -> None:
            while enough.acquire(blocking=False):
                job = queue.get()
                seen.append((job.data, job.receipt))
                queue.ack(job)

        threads = [InThread(take) for _ in range(takers)]
        threads += [InThread(lambda maker=maker: make(maker)) for maker in range(makers)]
        for thread in threads:
            thread.outcome()
        assert sorted(number for number, _ in seen) == list(range(total))
        assert len({receipt for _, receipt in seen}) == total
        assert queue.stats().acked == total

    def test_many_threads_exchange_without_loss(self, queue: BaseQueue) -> None:
        queue.put_many(range(400))
        seen: list[int] = []

        def work() -> None:
            done: list[Settle] = []
            while True:
                exchange = queue.exchange(done, 5)
                assert all(result is None for result in exchange.results)
                if not exchange.jobs:
                    return
                seen.extend(data(exchange.jobs))
                done = [Settle(job, "ack") for job in exchange.jobs]

        for thread in [InThread(work) for _ in range(6)]:
            thread.outcome()
        assert sorted(seen) == list(range(400))
        assert queue.stats().acked == 400

    def test_racing_puts_of_one_job_id_make_one_job(self, queue: BaseQueue) -> None:
        start = threading.Barrier(8)

        def put() -> bool:
            start.wait(PATIENCE)
            return queue.put(1, "x").created

        created = [thread.outcome() for thread in [InThread(put) for _ in range(8)]]
        assert created.count(True) == 1
        assert queue.stats().ready == 1

    def test_racing_acks_and_fails_of_one_receipt_have_one_winner(self, queue: BaseQueue) -> None:
        queue.put(1)
        job = queue.get_nowait()
        start = threading.Barrier(2)

        def settle(verb: Any) -> bool:
            start.wait(PATIENCE)
            return queue.exchange([Settle(job, verb)], 0).results == [None]

        threads = [InThread(lambda: settle("ack")), InThread(lambda: settle("fail"))]
        assert sorted(thread.outcome() for thread in threads) == [False, True]

    def test_a_queue_opened_by_one_thread_serves_another(self, queue: BaseQueue) -> None:
        InThread(lambda: queue.put(1)).outcome()
        assert not empty(queue)
