"""Order of plain jobs: priority, then waiting longest, then id."""

from __future__ import annotations

from collections.abc import Callable

from django_localqueue.backends.base import BaseQueue
from tests.contract.backends import Backend, Clock
from tests.contract.helpers import data, empty, in_turn


def test_jobs_come_in_put_order(queue: BaseQueue) -> None:
    for number in range(5):
        queue.put(number)
    assert in_turn(queue) == [0, 1, 2, 3, 4]


def test_put_order_holds_when_the_wall_clock_steps_back(queue: BaseQueue, clock: Clock) -> None:
    queue.put("first")
    clock.step_wall(-3_600)
    queue.put("second")
    clock.step_wall(3_600)
    queue.put("third")
    assert in_turn(queue) == ["first", "second", "third"]


def test_put_order_holds_across_reopening(backend: Backend) -> None:
    backend.open().put("first")
    backend.close()
    queue = backend.open()
    queue.put("second")
    assert in_turn(queue) == ["first", "second"]


def test_higher_priority_comes_first(queue: BaseQueue, clock: Clock) -> None:
    for priority in (0, -100, 7, 100, -1):
        queue.put(priority, priority=priority)
        clock.advance(1)
    assert in_turn(queue) == [100, 7, 0, -1, -100]


def test_within_a_priority_the_longest_waiting_comes_first(queue: BaseQueue, clock: Clock) -> None:
    for name in ("a", "b", "c"):
        queue.put(name, priority=3)
        clock.advance(1)
    assert in_turn(queue) == ["a", "b", "c"]


def test_a_nacked_job_goes_to_the_tail(queue: BaseQueue, clock: Clock) -> None:
    queue.put_many(["a", "b", "c"])
    clock.advance(1)
    queue.nack(queue.get_nowait())
    assert in_turn(queue) == ["b", "c", "a"]


def test_a_nacked_job_goes_to_the_tail_within_its_priority(queue: BaseQueue, clock: Clock) -> None:
    queue.put("urgent", priority=5)
    queue.put("plain")
    clock.advance(1)
    queue.nack(queue.get_nowait())
    assert in_turn(queue) == ["urgent", "plain"]


def test_a_job_that_is_always_nacked_does_not_starve_others(
    make_queue: Callable[..., BaseQueue], clock: Clock
) -> None:
    queue = make_queue(max_retries=1_000)
    queue.put_many(["bad", *range(50)])
    clock.advance(1)
    acked = []
    for _ in range(51):
        job = queue.get_nowait()
        if job.data == "bad":
            queue.nack(job)
        else:
            queue.ack(job)
            acked.append(job.data)
    assert acked == list(range(50))


def test_a_released_job_keeps_its_place(queue: BaseQueue, clock: Clock) -> None:
    queue.put_many(["a", "b"])
    clock.advance(1)
    job = queue.get_nowait()
    clock.advance(1)
    queue.put("c")
    queue.release(job)
    assert in_turn(queue) == ["a", "b", "c"]


def test_a_delayed_job_takes_the_place_of_its_due_time(queue: BaseQueue, clock: Clock) -> None:
    queue.put("due at 10", delay=10)
    clock.advance(5)
    queue.put("put at 5")
    clock.advance(15)
    queue.put("put at 20")
    clock.advance(10)
    assert in_turn(queue) == ["put at 5", "due at 10", "put at 20"]


def test_a_nack_with_a_delay_takes_the_place_of_its_due_time(
    queue: BaseQueue, clock: Clock
) -> None:
    queue.put("nacked")
    queue.nack(queue.get_nowait(), delay=10)
    clock.advance(5)
    queue.put("put at 5")
    clock.advance(10)
    queue.put("put at 15")
    assert in_turn(queue) == ["put at 5", "nacked", "put at 15"]


def test_a_due_job_of_higher_priority_comes_first(queue: BaseQueue, clock: Clock) -> None:
    queue.put("waiting")
    queue.put("urgent", delay=10, priority=1)
    clock.advance(11)
    assert in_turn(queue) == ["urgent", "waiting"]


def test_a_lapsed_job_goes_to_the_tail(queue: BaseQueue, clock: Clock) -> None:
    queue.put_many(["a", "b", "c"])
    queue.get_nowait()
    clock.advance(61)
    assert in_turn(queue) == ["b", "c", "a"]


def test_a_retried_job_goes_to_the_tail(queue: BaseQueue, clock: Clock) -> None:
    id = queue.put("a")
    queue.put("b")
    queue.fail(queue.get_nowait())
    clock.advance(1)
    queue.retry_failed(id)
    assert in_turn(queue) == ["b", "a"]


class TestFloor:
    def test_jobs_below_the_floor_are_not_taken(self, queue: BaseQueue) -> None:
        for priority in (-1, 0, 1, 2):
            queue.put(priority, priority=priority)
        assert data(queue.get_many(10, min_priority=1)) == [2, 1]
        assert data(queue.get_many(10)) == [0, -1]

    def test_get_is_empty_where_all_lie_below_the_floor(self, queue: BaseQueue) -> None:
        queue.put(1)
        assert queue.get_many(1, min_priority=1) == []
        assert not empty(queue)

    def test_without_a_floor_negative_priorities_are_taken(self, queue: BaseQueue) -> None:
        queue.put(1, priority=-100)
        assert not empty(queue)

    def test_the_floor_holds_for_due_and_lapsed_jobs(self, queue: BaseQueue, clock: Clock) -> None:
        queue.put("lapsed", priority=-5)
        queue.get_nowait()
        queue.put("due", delay=1, priority=-5)
        clock.advance(61)
        assert queue.get_many(5, min_priority=0) == []
        assert queue.stats().ready == 2
