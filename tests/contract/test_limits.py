"""Limits of a queue, kept by the claim itself: so many at a time, and so many in a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from django_localqueue.backends.base import BaseQueue
from django_localqueue.exceptions import InvalidInput
from django_localqueue.types import Settle
from tests.contract.backends import Backend, Clock
from tests.contract.helpers import InThread, data, empty

MakeQueue = Callable[..., BaseQueue]


class TestMaxRunning:
    def test_no_more_are_taken_than_may_run(self, make_queue: MakeQueue) -> None:
        queue = make_queue(max_running=2)
        queue.put_many(range(5))
        jobs = queue.get_many(5)
        assert data(jobs) == [0, 1]
        assert empty(queue)
        queue.ack(jobs[0])
        assert data(queue.get_many(5)) == [2]

    def test_it_counts_what_others_run(self, backend: Backend) -> None:
        one, other = backend.open(max_running=2), backend.open(max_running=2)
        one.put_many(range(5))
        assert len(one.get_many(1)) == 1
        assert len(other.get_many(5)) == 1
        assert empty(one)

    def test_settling_frees_a_place_in_the_same_exchange(self, make_queue: MakeQueue) -> None:
        queue = make_queue(max_running=1)
        queue.put_many(range(3))
        job = queue.get_nowait()
        assert data(queue.exchange([Settle(job, "ack")], 3).jobs) == [1]

    def test_a_lapsed_lease_frees_a_place(self, make_queue: MakeQueue, clock: Clock) -> None:
        queue = make_queue(max_running=1, lease_seconds=10)
        queue.put_many(range(2))
        queue.get_nowait()
        clock.advance(11)
        assert queue.get_nowait().data == 1

    def test_one_who_waits_gets_the_place_that_another_frees(self, make_queue: MakeQueue) -> None:
        queue = make_queue(max_running=1)
        queue.put_many(range(2))
        job = queue.get_nowait()
        waiting = InThread(lambda: queue.get(timeout=30))
        waiting.wait_until_asleep()
        queue.ack(job)
        assert waiting.outcome().data == 1

    def test_queues_beside_it_are_not_bounded(self, make_queue: MakeQueue) -> None:
        bounded, free = make_queue("bounded", max_running=1), make_queue("free")
        bounded.put_many(["b"] * 3)
        free.put_many(["f"] * 3)
        jobs = free.exchange((), 6, sources=(bounded, free)).jobs
        assert data(jobs) == ["b", "f", "f", "f"]

    def test_it_holds_when_queues_take_turns(self, make_queue: MakeQueue) -> None:
        bounded, free = make_queue("bounded", max_running=1), make_queue("free")
        bounded.put_many(["b"] * 3)
        free.put_many(["f"] * 3)
        jobs = free.exchange((), 6, sources=(bounded, free), round_robin=True).jobs
        assert sorted(data(jobs)) == ["b", "f", "f", "f"]


class TestRate:
    def test_deliveries_are_spread(self, make_queue: MakeQueue, clock: Clock) -> None:
        queue = make_queue(rate="60/m")
        queue.put_many(range(5))
        assert data(queue.get_many(5)) == [0]
        assert empty(queue)
        clock.advance(0.9)
        assert empty(queue)
        clock.advance(0.2)
        assert data(queue.get_many(5)) == [1]

    def test_time_without_jobs_saves_nothing_up(self, make_queue: MakeQueue, clock: Clock) -> None:
        queue = make_queue(rate=1)
        queue.put_many(range(5))
        queue.get_many(5)
        clock.advance(3_600)
        assert data(queue.get_many(5)) == [1]

    def test_a_high_rate_comes_in_small_bursts(self, make_queue: MakeQueue, clock: Clock) -> None:
        queue = make_queue(rate="1000/s")
        queue.put_many(range(200))
        assert len(queue.get_many(200)) == 50
        clock.advance(0.01)
        assert len(queue.get_many(200)) == 10

    def test_it_is_kept_across_all_who_claim(self, backend: Backend) -> None:
        one, other = backend.open(rate="1/h"), backend.open(rate="1/h")
        one.put_many(range(3))
        assert len(one.get_many(3)) == 1
        assert empty(other)

    def test_over_a_long_time_it_is_the_rate(self, make_queue: MakeQueue, clock: Clock) -> None:
        queue = make_queue(rate="10/s")
        queue.put_many(range(200))
        taken = 0
        for _ in range(100):
            taken += len(queue.get_many(10))
            clock.advance(0.1)
        assert 99 <= taken <= 101

    def test_a_wall_clock_that_steps_does_not_matter(
        self, make_queue: MakeQueue, clock: Clock
    ) -> None:
        queue = make_queue(rate=1)
        queue.put_many(range(3))
        queue.get_nowait()
        clock.step_wall(3_600)
        assert empty(queue)

    def test_both_limits_hold(self, make_queue: MakeQueue, clock: Clock) -> None:
        queue = make_queue(rate=1, max_running=1)
        queue.put_many(range(3))
        job = queue.get_nowait()
        clock.advance(2)
        assert empty(queue)
        queue.ack(job)
        assert queue.get_nowait().data == 1
        assert empty(queue)


@pytest.mark.parametrize("rate", ["10", "10/y", "x/s", 0, -1, True, float("nan"), {}, "0/s"])
def test_an_absurd_rate_is_refused(make_queue: MakeQueue, rate: Any) -> None:
    with pytest.raises(InvalidInput, match="rate"):
        make_queue(rate=rate)


@pytest.mark.parametrize("most", [0, -1, 1.5, "2", True])
def test_an_absurd_max_running_is_refused(make_queue: MakeQueue, most: Any) -> None:
    with pytest.raises(InvalidInput, match="max_running"):
        make_queue(max_running=most)
