"""Purge and prune: finished jobs go, live ones never."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from django_localqueue.backends.base import BaseQueue
from tests.contract.backends import Clock
from tests.contract.helpers import record


def finish(queue: BaseQueue, verb: str) -> str:
    queue.put(verb)
    job = queue.get_nowait()
    getattr(queue, verb)(job)
    return job.id


class TestPurge:
    def test_it_removes_what_finished_longer_ago(self, queue: BaseQueue, clock: Clock) -> None:
        old = finish(queue, "ack")
        clock.advance(60)
        young = finish(queue, "ack")
        clock.advance(30)
        assert queue.purge(60) == 1
        assert queue.lookup(old) is None
        assert record(queue, young).state == "acked"

    def test_the_age_counts_from_the_end_not_from_the_put(
        self, queue: BaseQueue, clock: Clock
    ) -> None:
        id = queue.put(1)
        clock.advance(3_600)
        queue.ack(queue.get_nowait())
        clock.advance(1)
        assert queue.purge(60) == 0
        assert queue.lookup(id) is not None

    def test_failed_jobs_stay_unless_asked_for(self, queue: BaseQueue, clock: Clock) -> None:
        dead = finish(queue, "fail")
        finish(queue, "ack")
        clock.advance(61)
        assert queue.purge(60) == 1
        assert queue.lookup(dead) is not None
        assert queue.purge(60, include_failed=True) == 1
        assert queue.lookup(dead) is None

    def test_live_jobs_stay(self, queue: BaseQueue, clock: Clock) -> None:
        queue.put_many([1, 2])
        queue.put(3, delay=999_999)
        queue.put(4, group_id="g")
        queue.put(5, group_id="g")
        queue.get_nowait()
        clock.advance(3_600)
        assert queue.purge(0, include_failed=True) == 0
        stats = queue.stats()
        assert (stats.ready, stats.processing) == (4, 1)

    def test_it_takes_any_number(self, queue: BaseQueue, clock: Clock) -> None:
        queue.put_many(range(3_000))
        for job in queue.get_many(3_000):
            queue.ack(job)
        clock.advance(1)
        assert queue.purge(0) == 3_000
        assert queue.stats().acked == 0

    def test_the_history_goes_with_the_job(self, queue: BaseQueue, clock: Clock) -> None:
        queue.put(1, "x")
        queue.nack(queue.get_nowait(), last_error="first life")
        queue.ack(queue.get_nowait())
        clock.advance(1)
        queue.purge(0)
        queue.put(2, "x")
        assert record(queue, "x").history == ()

    def test_a_wall_clock_that_steps_back_purges_nothing_early(
        self, queue: BaseQueue, clock: Clock
    ) -> None:
        finish(queue, "ack")
        clock.step_wall(-3_600)
        assert queue.purge(60) == 0


class TestPrune:
    def test_acked_jobs_past_the_retention_go(
        self, make_queue: Callable[..., BaseQueue], clock: Clock
    ) -> None:
        queue = make_queue(retention_seconds=100)
        old = finish(queue, "ack")
        clock.advance(60)
        young = finish(queue, "ack")
        clock.advance(60)
        assert queue.prune() == 1
        assert queue.lookup(old) is None
        assert queue.lookup(young) is not None

    def test_failed_jobs_stay_for_ever(
        self, make_queue: Callable[..., BaseQueue], clock: Clock
    ) -> None:
        queue = make_queue(retention_seconds=100)
        dead = finish(queue, "fail")
        clock.advance(1_000_000)
        assert queue.prune() == 0
        assert queue.lookup(dead) is not None

    def test_it_goes_in_steps(self, make_queue: Callable[..., BaseQueue], clock: Clock) -> None:
        queue = make_queue(retention_seconds=100)
        for _ in range(5):
            finish(queue, "ack")
        clock.advance(101)
        assert [queue.prune(limit=2) for _ in range(4)] == [2, 2, 1, 0]

    def test_the_default_retention_is_a_day(self, queue: BaseQueue, clock: Clock) -> None:
        finish(queue, "ack")
        clock.advance(86_399)
        assert queue.prune() == 0
        clock.advance(2)
        assert queue.prune() == 1

    def test_without_a_retention_nothing_goes(
        self, make_queue: Callable[..., BaseQueue], clock: Clock
    ) -> None:
        queue = make_queue(retention_seconds=None)
        finish(queue, "ack")
        clock.advance(10_000_000)
        assert queue.prune() == 0
        assert queue.stats().acked == 1


class TestLeftovers:
    def test_a_job_past_its_retention_may_be_found(self, queue: BaseQueue, clock: Clock) -> None:
        finish(queue, "ack")
        clock.advance(86_401)
        assert queue.has_leftovers()
        assert queue.prune() == 1

    def test_a_lapsed_lease_may_be_found(self, queue: BaseQueue, clock: Clock) -> None:
        queue.put(1)
        queue.get_nowait()
        clock.advance(61)
        assert queue.has_leftovers()
        assert queue.reclaim_expired_leases() == 1


class TestRetentionOfAJob:
    def test_it_goes_before_the_queues_be_it_shorter_or_longer(
        self, make_queue: Callable[..., BaseQueue], clock: Clock
    ) -> None:
        queue = make_queue(retention_seconds=100)
        brief = queue.put("brief", retention=10)
        usual = queue.put("usual")
        long = queue.put("long", retention=1_000)
        assert record(queue, long).retention == 1_000_000_000
        for job in queue.get_many(3):
            queue.ack(job)
        assert [queue.lookup(id) is None for id in (brief, usual, long)] == [False] * 3
        clock.advance(11)
        assert (queue.prune(), queue.lookup(brief)) == (1, None)
        clock.advance(90)
        assert (queue.prune(), queue.lookup(usual)) == (1, None)
        clock.advance(800)
        assert queue.prune() == 0
        clock.advance(100)
        assert (queue.prune(), queue.lookup(long)) == (1, None)

    def test_it_counts_where_the_queue_keeps_for_ever(
        self, make_queue: Callable[..., BaseQueue], clock: Clock
    ) -> None:
        queue = make_queue(retention_seconds=None)
        queue.put(1, retention=0)
        kept = queue.put(2)
        for job in queue.get_many(2):
            assert job.retention == (0 if job.data == 1 else None)
            queue.ack(job)
        clock.advance(1)
        assert queue.prune() == 1
        assert queue.lookup(kept) is not None

    def test_it_is_of_acked_jobs_only(self, queue: BaseQueue, clock: Clock) -> None:
        dead = queue.put(1, retention=1)
        queue.fail(queue.get_nowait())
        queue.put(2, retention=1)
        clock.advance(10)
        assert queue.prune() == 0
        assert queue.lookup(dead) is not None
        assert queue.stats().ready == 1

    def test_steps_end_at_their_limit_and_pass_over_what_is_kept(
        self, make_queue: Callable[..., BaseQueue], clock: Clock
    ) -> None:
        queue = make_queue(retention_seconds=10)
        for n in range(1_200):
            queue.put(n, retention=None if n % 3 == 0 else 5 if n % 3 == 1 else 1_000)
        for job in queue.get_many(1_200):
            queue.ack(job)
        clock.advance(11)
        assert [queue.prune(limit=300) for _ in range(4)] == [300, 300, 200, 0]
        queue.put("later")
        queue.ack(queue.get_nowait())
        clock.advance(11)
        assert queue.prune() == 1
        clock.advance(1_000)
        assert queue.prune() == 400

    def test_purge_is_a_persons_word_and_asks_for_no_retention(
        self, queue: BaseQueue, clock: Clock
    ) -> None:
        queue.put(1, retention=1_000)
        queue.ack(queue.get_nowait())
        clock.advance(1)
        assert queue.purge(0) == 1


def test_vacuum_loses_nothing(queue: BaseQueue, clock: Clock) -> None:
    if not queue.supports_vacuum:
        pytest.skip("its store needs no vacuum")
    queue.put_many(["x" * 1_000] * 500)
    live = queue.get_nowait()
    for job in queue.get_many(300):
        queue.ack(job)
    clock.advance(1)
    queue.purge(0)
    before = queue.stats()
    queue.vacuum()
    assert queue.stats() == before
    queue.ack(live)
