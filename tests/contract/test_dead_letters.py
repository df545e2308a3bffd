"""Dead letters: listed newest first, and retried as the jobs they were."""

from __future__ import annotations

import pytest

from django_localqueue.backends.base import BaseQueue
from django_localqueue.exceptions import JobNotFound
from django_localqueue.types import NewJob
from tests.contract.backends import Clock
from tests.contract.helpers import empty, record


def kill(queue: BaseQueue, clock: Clock, count: int) -> list[str]:
    """Make dead letters, a second apart; return their ids, oldest first."""
    ids = []
    for number in range(count):
        queue.put(number)
        job = queue.get_nowait()
        queue.fail(job, last_error=f"error {number}")
        ids.append(job.id)
        clock.advance(1)
    return ids


class TestListFailed:
    def test_newest_first(self, queue: BaseQueue, clock: Clock) -> None:
        ids = kill(queue, clock, 3)
        assert [dead.id for dead in queue.list_failed()] == ids[::-1]

    def test_newest_means_failed_last_not_put_last(self, queue: BaseQueue, clock: Clock) -> None:
        queue.put_many(["a", "b"])
        first, second = queue.get_many(2)
        queue.fail(second)
        clock.advance(1)
        queue.fail(first)
        assert [dead.id for dead in queue.list_failed()] == [first.id, second.id]

    def test_limit_and_offset(self, queue: BaseQueue, clock: Clock) -> None:
        ids = kill(queue, clock, 5)[::-1]
        assert [dead.id for dead in queue.list_failed(limit=2)] == ids[:2]
        assert [dead.id for dead in queue.list_failed(limit=2, offset=3)] == ids[3:]
        assert queue.list_failed(offset=5) == []

    def test_only_failed_jobs_are_listed(self, queue: BaseQueue, clock: Clock) -> None:
        ids = kill(queue, clock, 1)
        queue.put_many([1, 2])
        queue.ack(queue.get_nowait())
        assert [dead.id for dead in queue.list_failed()] == ids

    def test_a_dead_letter_tells_all_about_itself(self, queue: BaseQueue, clock: Clock) -> None:
        queue.put({"n": 1}, "x", priority=3, group_id="g", task="app.run", headers={"a": 1})
        created = clock.now()
        clock.advance(1)
        queue.fail(queue.get(worker="w1"), last_error=ValueError("no"))
        dead = queue.list_failed()[0]
        assert (dead.id, dead.job_id, dead.queue, dead.state) == ("x", "x", "default", "failed")
        assert (dead.payload, dead.task, dead.headers) == (b'{"n":1}', "app.run", {"a": 1})
        assert (dead.priority, dead.group_id, dead.attempts) == (3, "g", 1)
        assert (dead.created_at, dead.finished_at) == (created, clock.now())
        assert dead.error is not None
        assert dead.error.message == "no"


class TestRetryFailed:
    def test_a_retried_job_is_delivered_again_with_attempts_from_the_start(
        self, queue: BaseQueue, clock: Clock
    ) -> None:
        (id,) = kill(queue, clock, 1)
        assert queue.retry_failed(id) is True
        assert record(queue, id).attempts == 0
        job = queue.get_nowait()
        assert (job.id, job.attempts) == (id, 1)

    def test_it_has_all_its_deliveries_again(self, queue: BaseQueue) -> None:
        id = queue.put(1, max_retries=1)
        for _ in range(2):
            queue.nack(queue.get_nowait())
        assert empty(queue)
        queue.retry_failed(id)
        for _ in range(2):
            queue.nack(queue.get_nowait())
        assert empty(queue)
        assert record(queue, id).reason == "exhausted"

    def test_it_keeps_what_it_was(self, queue: BaseQueue, clock: Clock) -> None:
        queue.put_many([NewJob({"n": 1}, "x", 0, 3, "g", 2, "app.run", {"a": 1})])
        queue.nack(queue.get(worker="w1"), last_error="first")
        queue.fail(queue.get(worker="w2"), last_error="second")
        before = record(queue, "x")
        clock.advance(10)
        queue.retry_failed("x")
        after = record(queue, "x")
        for name in ("id", "job_id", "payload", "created_at", "priority", "group_id"):
            assert getattr(after, name) == getattr(before, name)
        for name in ("max_retries", "task", "headers", "history"):
            assert getattr(after, name) == getattr(before, name)
        assert len(after.history) == 2

    def test_a_second_retry_changes_nothing_and_says_so(
        self, queue: BaseQueue, clock: Clock
    ) -> None:
        (id,) = kill(queue, clock, 1)
        queue.retry_failed(id)
        before = record(queue, id)
        clock.advance(1)
        assert queue.retry_failed(id) is False
        assert record(queue, id) == before

    @pytest.mark.parametrize("state", ["ready", "delayed", "processing", "acked"])
    def test_a_job_that_is_not_failed_is_left_alone(self, state: str, queue: BaseQueue) -> None:
        id = queue.put(1, delay=60 if state == "delayed" else 0)
        if state in ("processing", "acked"):
            job = queue.get_nowait()
            if state == "acked":
                queue.ack(job)
        before = record(queue, id)
        assert queue.retry_failed(id) is False
        assert record(queue, id) == before

    @pytest.mark.parametrize("id", ["7", "no such job", "-1", "9" * 30, "\N{GRINNING FACE}"])
    def test_an_unknown_id_is_not_found(self, id: str, queue: BaseQueue) -> None:
        queue.put(1)
        with pytest.raises(JobNotFound):
            queue.retry_failed(id)

    def test_a_purged_job_is_not_found(self, queue: BaseQueue, clock: Clock) -> None:
        (id,) = kill(queue, clock, 1)
        queue.purge(0, include_failed=True)
        with pytest.raises(JobNotFound):
            queue.retry_failed(id)

    def test_failing_again_makes_no_second_letter(self, queue: BaseQueue, clock: Clock) -> None:
        ids = kill(queue, clock, 20)
        for _ in range(3):
            for id in ids:
                queue.retry_failed(id)
            for job in queue.get_many(100):
                queue.fail(job)
        assert sorted(dead.id for dead in queue.list_failed()) == sorted(ids)
        assert queue.stats().failed == 20

    def test_a_retried_job_can_be_acked(self, queue: BaseQueue, clock: Clock) -> None:
        (id,) = kill(queue, clock, 1)
        queue.retry_failed(id)
        queue.ack(queue.get_nowait())
        done = record(queue, id)
        assert (done.state, done.reason, done.error) == ("acked", None, None)
        assert queue.list_failed() == []
