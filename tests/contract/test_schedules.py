"""Schedules in a store: each due time gives one job, whoever asks and however often."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from django_localqueue.backends.base import BaseQueue
from django_localqueue.exceptions import InvalidInput
from django_localqueue.records import ScheduleRecord
from django_localqueue.types import NewJob
from tests.contract.backends import Backend, Clock
from tests.contract.helpers import InThread

NIGHTLY = ScheduleRecord(
    name="nightly",
    expression="0 3 * * *",
    timezone="Europe/Berlin",
    task="shop.tasks.clean",
    args=(1, "x"),
    kwargs={"deep": {"a": [1]}},
    missed="all",
    overlap="skip",
    next_at=1_000,
)


def only(queue: BaseQueue) -> ScheduleRecord:
    (found,) = queue.schedules()
    return found


def test_a_schedule_comes_back_as_it_was_saved(queue: BaseQueue, clock: Clock) -> None:
    queue.save_schedule(NIGHTLY)
    assert only(queue) == dataclasses.replace(NIGHTLY, seen_at=clock.now())


def test_what_it_says_may_change_and_its_next_time_stays(queue: BaseQueue) -> None:
    queue.save_schedule(NIGHTLY)
    queue.save_schedule(dataclasses.replace(NIGHTLY, args=(), queue="slow", next_at=9_000))
    found = only(queue)
    assert (found.args, found.queue, found.next_at) == ((), "slow", 1_000)


@pytest.mark.parametrize("change", [{"expression": "0 4 * * *"}, {"timezone": "UTC"}])
def test_another_timing_has_another_next_time(queue: BaseQueue, change: dict[str, str]) -> None:
    queue.save_schedule(NIGHTLY)
    queue.save_schedule(dataclasses.replace(NIGHTLY, next_at=9_000, **change))  # type: ignore[arg-type]
    assert only(queue).next_at == 9_000


def test_firing_puts_the_job_and_moves_on(queue: BaseQueue) -> None:
    queue.save_schedule(NIGHTLY)
    id = queue.fire_schedule("nightly", 1_000, 2_000, NewJob({"n": 1}, task="shop.tasks.clean"))
    assert id is not None
    assert id.created
    job = queue.get_nowait()
    assert (job.id, job.data, job.task) == (id, {"n": 1}, "shop.tasks.clean")
    found = only(queue)
    assert (found.next_at, found.last_at, found.last_id) == (2_000, 1_000, id)


def test_an_id_of_the_callers_is_noted(queue: BaseQueue) -> None:
    queue.save_schedule(NIGHTLY)
    assert queue.fire_schedule("nightly", 1_000, 2_000, NewJob(1, "my-id")) == "my-id"
    assert only(queue).last_id == "my-id"
    assert queue.get_nowait().id == "my-id"


def test_a_due_time_gives_one_job(queue: BaseQueue) -> None:
    queue.save_schedule(NIGHTLY)
    assert queue.fire_schedule("nightly", 1_000, 2_000, NewJob(1)) is not None
    assert queue.fire_schedule("nightly", 1_000, 2_000, NewJob(1)) is None
    assert queue.fire_schedule("nightly", 1_000, 3_000, NewJob(1)) is None
    assert queue.stats().ready == 1
    assert only(queue).next_at == 2_000


def test_of_many_that_fire_at_once_one_does(backend: Backend) -> None:
    queues = [backend.open() for _ in range(4)]
    queues[0].save_schedule(NIGHTLY)
    fired = [
        InThread(lambda q=q: q.fire_schedule("nightly", 1_000, 2_000, NewJob(1))) for q in queues
    ]
    assert sum(thread.outcome() is not None for thread in fired) == 1
    assert queues[0].stats().ready == 1


def test_without_a_job_the_time_alone_moves(queue: BaseQueue) -> None:
    queue.save_schedule(NIGHTLY)
    assert queue.fire_schedule("nightly", 1_000, 2_000, None) is None
    found = only(queue)
    assert (found.next_at, found.last_at) == (2_000, None)
    assert queue.stats().ready == 0


def test_a_paused_schedule_does_not_fire(queue: BaseQueue) -> None:
    queue.save_schedule(NIGHTLY)
    assert queue.pause_schedule("nightly") is True
    assert only(queue).paused
    assert queue.fire_schedule("nightly", 1_000, 2_000, NewJob(1)) is None
    assert queue.fire_schedule("nightly", 1_000, 2_000, None) is None
    assert only(queue).next_at == 1_000


def test_it_goes_on_where_it_is_told_to(queue: BaseQueue) -> None:
    queue.save_schedule(NIGHTLY)
    queue.pause_schedule("nightly")
    assert queue.pause_schedule("nightly", False, next_at=5_000) is True
    found = only(queue)
    assert (found.paused, found.next_at) == (False, 5_000)


def test_saving_does_not_end_a_pause(queue: BaseQueue) -> None:
    queue.save_schedule(NIGHTLY)
    queue.pause_schedule("nightly")
    queue.save_schedule(NIGHTLY)
    assert only(queue).paused


def test_an_unknown_schedule_is_told_apart(queue: BaseQueue) -> None:
    assert queue.pause_schedule("nobody") is False
    assert queue.forget_schedule("nobody") is False
    assert queue.fire_schedule("nobody", 0, 1, NewJob(1)) is None
    assert queue.stats().ready == 0


def test_a_forgotten_schedule_is_gone(queue: BaseQueue) -> None:
    queue.save_schedule(NIGHTLY)
    assert queue.forget_schedule("nightly") is True
    assert queue.schedules() == []


def test_schedules_belong_to_the_store_and_jobs_to_the_queue_that_fires(
    make_queue: Callable[..., BaseQueue],
) -> None:
    one, other = make_queue("one"), make_queue("other")
    one.save_schedule(NIGHTLY)
    assert other.fire_schedule("nightly", 1_000, 2_000, NewJob(1)) is not None
    assert (one.stats().ready, other.stats().ready) == (0, 1)


def test_they_outlive_the_store(backend: Backend) -> None:
    backend.open().save_schedule(NIGHTLY)
    backend.close()
    assert only(backend.open()).name == "nightly"


def test_a_refused_job_moves_nothing(queue: BaseQueue) -> None:
    queue.save_schedule(NIGHTLY)
    with pytest.raises(InvalidInput):
        queue.fire_schedule("nightly", 1_000, 2_000, NewJob(object()))
    assert only(queue).next_at == 1_000
