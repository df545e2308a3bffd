"""``put_many(once=True)``: a job of one id is stored once, whatever became of it since."""

from __future__ import annotations

import pytest

from django_localqueue.backends.base import BaseQueue
from django_localqueue.exceptions import InvalidInput
from django_localqueue.types import NewJob
from tests.contract.backends import Clock
from tests.contract.helpers import data, empty


def put_once(queue: BaseQueue, *ids: str) -> list[bool]:
    return [id.created for id in queue.put_many([NewJob(id, id) for id in ids], once=True)]


def run_and_purge(queue: BaseQueue, clock: Clock) -> None:
    for job in queue.get_many(100):
        queue.ack(job)
    clock.advance(1)
    queue.purge(0)


def test_it_is_stored_and_delivered(queue: BaseQueue) -> None:
    assert put_once(queue, "a", "b") == [True, True]
    assert data(queue.get_many(5)) == ["a", "b"]


def test_it_is_not_stored_again_while_it_is_there(queue: BaseQueue) -> None:
    put_once(queue, "a")
    assert put_once(queue, "a", "b") == [False, True]
    queue.ack(queue.get_nowait())
    assert put_once(queue, "a") == [False]


def test_it_is_not_stored_again_when_it_is_done_and_purged(queue: BaseQueue, clock: Clock) -> None:
    put_once(queue, "a", "b")
    run_and_purge(queue, clock)
    assert queue.lookup("a") is None
    again = queue.put_many([NewJob(n, n) for n in ("a", "new", "b")], once=True)
    assert [(id, id.created) for id in again] == [("a", False), ("new", True), ("b", False)]
    assert data(queue.get_many(5)) == ["new"]
    assert put_once(queue, "a", "b") == [False, False]
    assert empty(queue)


def test_another_put_of_its_id_is_stored(queue: BaseQueue, clock: Clock) -> None:
    put_once(queue, "a")
    run_and_purge(queue, clock)
    assert queue.put("by another", "a").created


def test_what_was_put_otherwise_counts_from_its_next_put(queue: BaseQueue, clock: Clock) -> None:
    queue.put(1, "a")
    assert put_once(queue, "a") == [False]
    run_and_purge(queue, clock)
    assert put_once(queue, "a") == [False]


def test_it_is_remembered_until_it_is_forgotten(queue: BaseQueue, clock: Clock) -> None:
    put_once(queue, "a", "b")
    run_and_purge(queue, clock)
    clock.advance(60)
    put_once(queue, "c")
    assert sorted(queue.once_ids(30)) == ["a", "b"]
    assert len(queue.once_ids(30, limit=1)) == 1
    queue.forget_once(["a", "unknown"])
    assert queue.once_ids(30) == ["b"]
    assert put_once(queue, "a", "b") == [True, False]


def test_a_job_without_an_id_is_refused(queue: BaseQueue) -> None:
    with pytest.raises(InvalidInput, match="job_id"):
        queue.put_many([NewJob(1)], once=True)
    assert queue.stats().ready == 0
