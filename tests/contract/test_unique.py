"""``unique_key``: while a job of a key is live, and in its window, a queue takes no other."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from django_localqueue.backends.base import BaseQueue
from django_localqueue.exceptions import InvalidInput
from django_localqueue.types import Applied, Job, JobFilter, NewJob
from tests.contract.backends import Clock
from tests.contract.helpers import data, empty, record

ENDS: dict[str, Callable[[BaseQueue, Job], object]] = {
    "ack": lambda queue, job: queue.ack(job),
    "ack with a result": lambda queue, job: queue.ack(job, {"a": 1}),
    "fail": lambda queue, job: queue.fail(job),
    "nack, used up": lambda queue, job: queue.nack(job),
}


def test_a_second_put_stores_nothing_and_names_the_first(queue: BaseQueue) -> None:
    first = queue.put("first", unique_key="report")
    second = queue.put("second", unique_key="report")
    assert first.created
    assert (second, second.created, second.state) == (first, False, "ready")
    assert data(queue.get_many(10)) == ["first"]


def test_the_first_is_named_by_its_own_job_id(queue: BaseQueue) -> None:
    queue.put("first", "invoice-1", unique_key="k")
    for second in (queue.put(2, unique_key="k"), queue.put(3, "invoice-3", unique_key="k")):
        assert (second, second.created) == ("invoice-1", False)
    assert queue.lookup("invoice-3") is None


def test_a_generated_id_is_named_to_one_who_gave_an_id(queue: BaseQueue) -> None:
    first = queue.put("first", unique_key="k")
    second = queue.put("second", "mine", unique_key="k")
    assert (second, second.created) == (first, False)


def test_a_job_id_that_is_there_goes_before_the_key(queue: BaseQueue) -> None:
    queue.put(1, "a")
    queue.put(2, "b", unique_key="k")
    met = queue.put(3, "a", unique_key="k")
    assert (met, met.created) == ("a", False)


def test_keys_and_queues_are_apart(queue: BaseQueue, make_queue: Callable[..., BaseQueue]) -> None:
    other = make_queue("other")
    assert queue.put(1, unique_key="a").created
    assert queue.put(2, unique_key="b").created
    assert other.put(3, unique_key="a").created


@pytest.mark.parametrize("delay", [0, 60])
def test_a_waiting_job_holds_its_key(queue: BaseQueue, delay: float) -> None:
    queue.put(1, unique_key="k", delay=delay)
    assert not queue.put(2, unique_key="k").created


def test_a_running_job_holds_its_key_and_so_does_one_given_back(queue: BaseQueue) -> None:
    first = queue.put(1, unique_key="k")
    job = queue.get_nowait()
    assert job.unique_key == "k"
    met = queue.put(2, unique_key="k")
    assert (met, met.created, met.state) == (first, False, "processing")
    queue.nack(job)
    assert not queue.put(3, unique_key="k").created
    queue.release(queue.get_nowait())
    assert not queue.put(4, unique_key="k").created


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_a_finished_job_lets_its_key_go(
    queue: BaseQueue, end: Callable[[BaseQueue, Job], object]
) -> None:
    first = queue.put(1, unique_key="k", max_retries=0)
    end(queue, queue.get_nowait())
    second = queue.put(2, unique_key="k")
    assert second.created
    assert second != first
    assert record(queue, first).unique_key == "k"


def test_a_job_cancelled_discarded_or_expired_lets_its_key_go(
    queue: BaseQueue, clock: Clock
) -> None:
    queue.cancel(queue.put(1, unique_key="k"))
    assert queue.put(2, unique_key="k", expires=1).created
    clock.advance(2)
    assert empty(queue)
    assert queue.put(3, unique_key="k").created


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_in_its_window_a_finished_job_holds_its_key(
    queue: BaseQueue, clock: Clock, end: Callable[[BaseQueue, Job], object]
) -> None:
    first = queue.put(1, unique_key="k", unique_seconds=60, max_retries=0)
    end(queue, queue.get_nowait())
    clock.advance(59)
    met = queue.put(2, unique_key="k", unique_seconds=60)
    assert (met, met.created) == (first, False)
    clock.advance(1)
    assert queue.put(3, unique_key="k", unique_seconds=60).created


def test_the_window_does_not_end_the_hold_of_a_job_that_still_waits(
    queue: BaseQueue, clock: Clock
) -> None:
    queue.put(1, unique_key="k", unique_seconds=60)
    clock.advance(61)
    assert not queue.put(2, unique_key="k").created
    queue.ack(queue.get_nowait())
    assert queue.put(3, unique_key="k").created


def test_a_retried_job_holds_its_key_again(queue: BaseQueue) -> None:
    first = queue.put(1, unique_key="k")
    queue.fail(queue.get_nowait())
    queue.retry_failed(first)
    assert not queue.put(2, unique_key="k").created
    queue.ack(queue.get_nowait())
    assert queue.put(3, unique_key="k").created


def test_a_retried_job_leaves_the_key_to_whoever_has_it_by_now(queue: BaseQueue) -> None:
    first = queue.put(1, unique_key="k")
    queue.fail(queue.get_nowait())
    second = queue.put(2, unique_key="k")
    assert queue.retry_failed(first)
    queue.ack(next(job for job in queue.get_many(2) if job.id == first))
    met = queue.put(3, unique_key="k")
    assert (met, met.created) == (second, False)


def test_a_purged_job_holds_nothing(queue: BaseQueue, clock: Clock) -> None:
    queue.put(1, unique_key="k", unique_seconds=3_600)
    queue.ack(queue.get_nowait())
    clock.advance(1)
    queue.purge(0)
    assert queue.put(2, unique_key="k").created


def test_of_jobs_put_together_the_first_of_a_key_counts(queue: BaseQueue) -> None:
    queue.put("there", "x", unique_key="held")
    ids = queue.put_many(
        [
            NewJob(0),
            NewJob(1, unique_key="a"),
            NewJob(2, unique_key="held"),
            NewJob(3, "y", unique_key="a"),
            NewJob(4, "x", unique_key="b"),
            NewJob(5, "z", unique_key="b"),
            NewJob(6, unique_key="b"),
            NewJob(7),
        ]
    )
    assert [id.created for id in ids] == [True, True, False, False, False, True, False, True]
    assert (ids[2], ids[3], ids[4], ids[5], ids[6]) == ("x", ids[1], "x", "z", "z")
    assert data(queue.get_many(10)) == ["there", 0, 1, 5, 7]
    assert len(set(ids)) == 5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"unique_key": ""}, "unique_key"),
        ({"unique_key": 5}, "unique_key"),
        ({"unique_key": "k" * 256}, "unique_key"),
        ({"unique_key": "k", "unique_seconds": -1}, "unique_seconds"),
        ({"unique_seconds": 5}, "unique_key"),
    ],
)
def test_bad_input_is_refused(queue: BaseQueue, arguments: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        queue.put(1, **arguments)  # type: ignore[arg-type]
    assert queue.stats().ready == 0


def test_a_job_id_twice_with_different_keys_is_refused(queue: BaseQueue) -> None:
    with pytest.raises(InvalidInput, match="different unique keys"):
        queue.put_many([NewJob(1, "x", unique_key="a"), NewJob(2, "x")])


def test_a_job_is_not_moved_to_where_its_key_is_held(
    queue: BaseQueue, make_queue: Callable[..., BaseQueue]
) -> None:
    other = make_queue("other")
    ids = [queue.put(key, unique_key=key) for key in ("held", "free")]
    other.put("holder", unique_key="held")
    applied = queue.apply("move", JobFilter(state="ready", ids=tuple(ids)), target="other")
    assert (applied.done, applied.changed) == (1, 1)
    assert data(queue.get_many(5)) == ["held"]
    assert not other.put("again", unique_key="free").created


def test_a_dead_letter_whose_window_is_over_moves_to_where_its_key_is_held(
    queue: BaseQueue, make_queue: Callable[..., BaseQueue], clock: Clock
) -> None:
    other = make_queue("other")
    queue.put("ours", "x", unique_key="k", unique_seconds=60)
    queue.fail(queue.get_nowait())
    clock.advance(61)
    holder = other.put("theirs", unique_key="k")
    assert queue.apply("move", JobFilter(ids=("x",)), target="other") == Applied(done=1)
    assert record(other, "x").state == "failed"
    assert other.put("again", unique_key="k") == holder


def test_a_job_moves_to_where_the_window_of_its_key_is_over(
    queue: BaseQueue, make_queue: Callable[..., BaseQueue], clock: Clock
) -> None:
    other = make_queue("other")
    other.put("theirs", unique_key="k", unique_seconds=60)
    other.ack(other.get_nowait())
    clock.advance(61)
    id = queue.put("ours", unique_key="k")
    assert queue.apply("move", JobFilter(state="ready"), target="other") == Applied(done=1)
    assert other.put("again", unique_key="k") == id


def test_a_retried_job_takes_its_key_from_a_finished_one_whose_window_is_over(
    queue: BaseQueue, clock: Clock
) -> None:
    queue.put("first", "x", unique_key="k")
    queue.fail(queue.get_nowait())
    queue.put("second", unique_key="k", unique_seconds=60)
    queue.ack(queue.get_nowait())
    clock.advance(61)
    assert queue.retry_failed("x")
    assert queue.put("third", unique_key="k") == "x"
