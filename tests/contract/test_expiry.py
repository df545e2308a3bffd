"""``expires``: what was not delivered in time becomes a dead letter, and never a delivery."""

from __future__ import annotations

import pytest

from django_localqueue.backends.base import BaseQueue
from django_localqueue.exceptions import InvalidInput
from django_localqueue.types import NewJob
from tests.contract.backends import Clock
from tests.contract.helpers import data, empty, record


def test_a_job_is_delivered_in_its_time(queue: BaseQueue, clock: Clock) -> None:
    id = queue.put("in time", expires=60)
    expires_at = record(queue, id).expires_at
    assert expires_at is not None
    assert expires_at == record(queue, id).created_at + 60_000_000
    clock.advance(59)
    job = queue.get_nowait()
    assert (job.data, job.expires_at) == ("in time", expires_at)


def test_a_job_past_its_time_is_a_dead_letter_and_the_next_is_delivered(
    queue: BaseQueue, clock: Clock
) -> None:
    late = queue.put("late", expires=60)
    queue.put("next")
    clock.advance(60)
    assert queue.get_nowait().data == "next"
    assert empty(queue)
    found = record(queue, late)
    assert (found.state, found.reason, found.attempts) == ("failed", "expired", 0)
    assert found.finished_at == clock.now()


def test_many_that_are_late_hide_none_behind_them(queue: BaseQueue, clock: Clock) -> None:
    queue.put_many([NewJob(n, expires=1) for n in range(200)])
    queue.put("behind them")
    clock.advance(2)
    assert data(queue.get_many(2)) == ["behind them"]
    while not empty(queue):
        pass
    assert queue.stats().failed == 200


def test_a_job_that_began_in_time_is_retried_after_it(queue: BaseQueue, clock: Clock) -> None:
    id = queue.put("retried", expires=60)
    queue.nack(queue.get_nowait(), delay=120)
    clock.advance(121)
    job = queue.get_nowait()
    assert (job.id, job.attempts) == (id, 2)


def test_a_job_given_back_untouched_has_not_begun(queue: BaseQueue, clock: Clock) -> None:
    id = queue.put("released", expires=60)
    queue.release(queue.get_nowait())
    clock.advance(61)
    assert empty(queue)
    assert record(queue, id).reason == "expired"


def test_a_delayed_job_may_expire_too(queue: BaseQueue, clock: Clock) -> None:
    id = queue.put("delayed", delay=10, expires=20)
    clock.advance(30)
    assert empty(queue)
    assert record(queue, id).reason == "expired"


def test_an_expired_lead_lets_its_group_go_on(queue: BaseQueue, clock: Clock) -> None:
    queue.put("lead", group_id="g", expires=1)
    queue.put("second", group_id="g", expires=1)
    queue.put("third", group_id="g")
    clock.advance(2)
    assert [job.data for _ in range(3) for job in queue.get_many(1)] == ["third"]


def test_a_person_who_retries_an_expired_job_has_it_run(queue: BaseQueue, clock: Clock) -> None:
    id = queue.put("late", expires=1)
    clock.advance(2)
    assert empty(queue)
    assert queue.retry_failed(id)
    assert queue.get_nowait().id == id


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"expires": 0}, "expires"),
        ({"expires": -1}, "expires"),
        ({"expires": float("nan")}, "expires"),
        ({"expires": "soon"}, "expires"),
        ({"expires": 5, "delay": 10}, "before it may be delivered"),
        ({"expires": 5, "delay": "soon"}, "delay must be a number"),
    ],
)
def test_bad_input_is_refused(queue: BaseQueue, arguments: dict[str, float], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        queue.put(1, **arguments)
    assert queue.stats().ready == 0
