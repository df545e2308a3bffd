"""Housekeeping looks before it writes: an idle cluster's log holds heartbeats and nothing else."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from django_localqueue.backends.rqlite import RqliteQueue
from django_localqueue.types import JobFilter
from django_localqueue.worker.chores import Prune
from tests.contract.rqlite_backends import TwoClocks
from tests.fakes.rqlite import FakeCluster

Open = Callable[..., RqliteQueue]


def leave_a_lapsed_lease(queue: RqliteQueue) -> None:
    queue.put(1)
    queue.get_nowait()


def leave_an_acked_job(queue: RqliteQueue) -> None:
    queue.put(1)
    queue.ack(queue.get_nowait())


def leave_a_job_with_a_retention_of_its_own(queue: RqliteQueue) -> None:
    queue.put(1, retention=100)
    queue.ack(queue.get_nowait())


def leave_a_discarded_job(queue: RqliteQueue) -> None:
    id = queue.put(1)
    queue.apply("discard", JobFilter(state="ready", ids=(id,)))


LEAVE = [
    leave_a_lapsed_lease,
    leave_an_acked_job,
    leave_a_job_with_a_retention_of_its_own,
    leave_a_discarded_job,
]


def writes(cluster: FakeCluster) -> int:
    return len(cluster.applied("execute")) + len(cluster.applied("request"))


@pytest.mark.parametrize("leave", LEAVE)
def test_what_is_left_over_is_seen_when_its_time_has_come_and_then_removed(
    leave: Callable[[RqliteQueue], None], cluster: FakeCluster, open_queue: Open
) -> None:
    clock = TwoClocks()
    queue = open_queue(cluster.urls, clock=clock.times, retention_seconds=1_000)
    leave(queue)
    before = writes(cluster)
    assert not queue.has_leftovers()
    clock.advance(2_000)
    assert queue.has_leftovers()
    assert writes(cluster) == before
    Prune([queue]).run("worker", threading.Event())
    assert not queue.has_leftovers()


def test_housekeeping_of_a_quiet_queue_writes_nothing(
    cluster: FakeCluster, queue: RqliteQueue
) -> None:
    leave_an_acked_job(queue)
    queue.fail((queue.put(2), queue.get_nowait())[1])
    before = writes(cluster)
    for _ in range(3):
        Prune([queue]).run("worker", threading.Event())
    assert writes(cluster) == before


def test_a_job_that_is_kept_longer_than_its_queue_says_is_passed_over_once(
    cluster: FakeCluster, open_queue: Open
) -> None:
    clock = TwoClocks()
    queue = open_queue(cluster.urls, clock=clock.times, retention_seconds=1_000)
    queue.put(1, retention=100_000)
    queue.ack(queue.get_nowait())
    clock.advance(2_000)
    assert queue.has_leftovers()
    assert queue.prune() == 0
    assert not queue.has_leftovers()
