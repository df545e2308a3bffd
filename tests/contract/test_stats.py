"""Stats: one snapshot, each job counted once."""

from __future__ import annotations

from collections.abc import Callable

from django_localqueue.backends.base import BaseQueue
from django_localqueue.types import Stats
from tests.contract.backends import Backend, Clock
from tests.contract.helpers import InThread


def test_an_empty_queue_counts_nothing(queue: BaseQueue) -> None:
    assert queue.stats() == Stats()


def test_every_state_is_counted(queue: BaseQueue) -> None:
    queue.put_many(range(6))
    acked, failed, _running = queue.get_many(3)
    queue.ack(acked)
    queue.fail(failed)
    queue.put("later", delay=60)
    queue.put("lead", group_id="g")
    queue.put("follower", group_id="g")
    stats = queue.stats()
    assert (stats.ready, stats.delayed, stats.blocked) == (6, 1, 1)
    assert (stats.processing, stats.expired, stats.acked, stats.failed) == (1, 0, 1, 1)


def test_the_seeds_four_states_add_up_to_all_jobs(queue: BaseQueue, clock: Clock) -> None:
    queue.put_many(range(10))
    queue.put("later", delay=5)
    for job in queue.get_many(4)[:2]:
        queue.ack(job)
    clock.advance(61)
    stats = queue.stats()
    assert stats.ready + stats.processing + stats.acked + stats.failed == 11


def test_a_lapsed_job_counts_as_processing_and_expired_until_it_is_reclaimed(
    queue: BaseQueue, clock: Clock
) -> None:
    queue.put_many([1, 2])
    queue.get_nowait()
    clock.advance(61)
    queue.get(lease_seconds=600)  # reclaims the first, and takes the second
    clock.advance(601)
    stats = queue.stats()
    assert (stats.ready, stats.processing, stats.expired) == (1, 1, 1)
    queue.reclaim_expired_leases()
    stats = queue.stats()
    assert (stats.ready, stats.processing, stats.expired) == (2, 0, 0)


def test_a_due_job_counts_as_ready_before_anything_promoted_it(
    queue: BaseQueue, clock: Clock
) -> None:
    queue.put(1, delay=10)
    assert (queue.stats().ready, queue.stats().delayed) == (1, 1)
    clock.advance(11)
    assert (queue.stats().ready, queue.stats().delayed) == (1, 0)


def test_a_delayed_lead_and_its_followers_are_ready_in_parts(queue: BaseQueue) -> None:
    queue.put("lead", group_id="g", delay=60)
    queue.put("follower", group_id="g", delay=5)
    stats = queue.stats()
    assert (stats.ready, stats.delayed, stats.blocked) == (2, 1, 1)


def test_the_counts_of_finished_jobs_shrink_by_purge_and_retry(
    queue: BaseQueue, clock: Clock
) -> None:
    queue.put_many(range(4))
    one, two, three, four = queue.get_many(4)
    queue.ack(one)
    queue.ack(two)
    queue.fail(three)
    queue.fail(four)
    queue.retry_failed(three.id)
    clock.advance(1)
    queue.purge(0)
    stats = queue.stats()
    assert (stats.acked, stats.failed, stats.ready) == (0, 1, 1)


def test_the_counts_hold_after_reopening(backend: Backend) -> None:
    queue = backend.open()
    queue.put_many(range(5))
    for job in queue.get_many(3):
        queue.ack(job)
    before = queue.stats()
    backend.close()
    assert backend.open().stats() == before


def test_the_oldest_ready_job_is_told(queue: BaseQueue, clock: Clock) -> None:
    put_at = clock.now()
    queue.put("old")
    clock.advance(10)
    queue.put("urgent but young", priority=50)
    assert queue.stats().oldest_ready_at == put_at


def test_delayed_and_blocked_jobs_are_not_the_oldest_ready(queue: BaseQueue, clock: Clock) -> None:
    queue.put("lead", group_id="g", delay=3_600)
    queue.put("follower", group_id="g")
    assert queue.stats().oldest_ready_at is None


def test_a_due_job_waits_since_its_due_time(queue: BaseQueue, clock: Clock) -> None:
    due = clock.now() + 10_000_000
    queue.put("later", delay=10)
    clock.advance(30)
    assert queue.stats().oldest_ready_at == due


def test_a_paused_queue_says_so(queue: BaseQueue) -> None:
    queue.pause()
    assert queue.stats().paused is True
    queue.resume()
    assert queue.stats().paused is False


def test_stats_read_as_a_mapping(queue: BaseQueue) -> None:
    queue.put(1)
    assert queue.stats()["ready"] == 1
    assert dict(queue.stats())["failed"] == 0


def test_a_snapshot_never_sees_half_a_move(make_queue: Callable[..., BaseQueue]) -> None:
    queue, total = make_queue(max_retries=1_000_000), 20
    queue.put_many(range(total))
    stop: list[bool] = []

    def move() -> None:
        while not stop:
            jobs = queue.get_many(7)
            for job in jobs[:3]:
                queue.nack(job)
            for job in jobs[3:]:
                queue.release(job)

    mover = InThread(move)
    try:
        seen = {(stats.ready + stats.processing) for stats in (queue.stats() for _ in range(200))}
    finally:
        stop.append(True)
        mover.outcome()
    assert seen == {total}
