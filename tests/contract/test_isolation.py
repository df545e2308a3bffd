"""Several queues in one store don't mix."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from django_localqueue.backends.base import BaseQueue
from django_localqueue.exceptions import JobNotFound
from tests.contract.backends import Backend, Clock
from tests.contract.helpers import data, empty


@pytest.fixture
def one(make_queue: Callable[..., BaseQueue]) -> BaseQueue:
    return make_queue("one")


@pytest.fixture
def two(make_queue: Callable[..., BaseQueue]) -> BaseQueue:
    return make_queue("two")


def test_a_job_is_delivered_in_its_queue_alone(one: BaseQueue, two: BaseQueue) -> None:
    one.put(1)
    assert empty(two)
    assert data(one.get_many(5)) == [1]


def test_counts_are_each_queues_own(one: BaseQueue, two: BaseQueue) -> None:
    one.put_many([1, 2])
    one.ack(one.get_nowait())
    stats = two.stats()
    assert (stats.ready, stats.acked) == (0, 0)


def test_reclaim_stays_in_its_queue(one: BaseQueue, two: BaseQueue, clock: Clock) -> None:
    one.put(1)
    one.get_nowait()
    clock.advance(61)
    assert two.reclaim_expired_leases() == 0
    assert one.stats().expired == 1


def test_purge_stays_in_its_queue(one: BaseQueue, two: BaseQueue, clock: Clock) -> None:
    one.put(1)
    one.ack(one.get_nowait())
    clock.advance(1)
    assert two.purge(0, include_failed=True) == 0
    assert one.stats().acked == 1


def test_dead_letters_are_each_queues_own(one: BaseQueue, two: BaseQueue) -> None:
    id = one.put(1)
    one.fail(one.get_nowait())
    assert two.list_failed() == []
    with pytest.raises(JobNotFound):
        two.retry_failed(id)
    with pytest.raises(JobNotFound):
        two.cancel(id)


def test_a_claim_in_one_queue_leaves_lapsed_and_due_jobs_of_another_alone(
    one: BaseQueue, two: BaseQueue, clock: Clock
) -> None:
    one.put(1)
    one.get_nowait()
    clock.advance(61)
    assert empty(two)
    assert one.stats().expired == 1


def test_two_objects_of_one_queue_are_the_same_queue(
    make_queue: Callable[..., BaseQueue],
) -> None:
    first, second = make_queue("one"), make_queue("one")
    first.put(1)
    job = second.get_nowait()
    first.ack(job)
    assert second.stats().acked == 1


@pytest.mark.parametrize("name", ["a:b", "a/b", "%", "_", "ONE", "\N{GRINNING FACE}", " one"])
def test_odd_names_are_names_of_their_own(
    name: str, one: BaseQueue, make_queue: Callable[..., BaseQueue]
) -> None:
    odd = make_queue(name)
    one.put(1)
    assert empty(odd)
    odd.put(2)
    assert data(odd.get_many(5)) == [2]
    assert data(one.get_many(5)) == [1]


def test_two_stores_are_two_worlds(queue: BaseQueue, backend: Backend) -> None:
    queue.put(1, "x")
    elsewhere = backend.open_elsewhere()
    assert empty(elsewhere)
    assert elsewhere.put(2, "x").created
