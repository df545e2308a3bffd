"""Delivery and attempts: at least once, at most ``max_retries + 1`` times."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from django_localqueue.backends.base import BaseQueue
from django_localqueue.types import MICROSECONDS, Job
from tests.contract.backends import Backend, Clock
from tests.contract.helpers import data, empty, record


def nack(queue: BaseQueue, job: Job, clock: Clock) -> None:
    queue.nack(job)


def nack_late(queue: BaseQueue, job: Job, clock: Clock) -> None:
    queue.nack(job, delay=3_600)
    clock.advance(3_601)


def lapse(queue: BaseQueue, job: Job, clock: Clock) -> None:
    clock.advance(queue.lease_seconds + 1)


def lapse_and_reclaim(queue: BaseQueue, job: Job, clock: Clock) -> None:
    lapse(queue, job, clock)
    queue.reclaim_expired_leases()


ENDINGS = [nack, nack_late, lapse, lapse_and_reclaim]


class TestWhatIsDelivered:
    def test_a_job_carries_what_was_put(self, queue: BaseQueue, clock: Clock) -> None:
        queue.put(
            {"n": 1},
            "x",
            priority=7,
            group_id="g",
            max_retries=2,
            task="app.tasks.run",
            headers={"trace": "abc", "n": 1},
        )
        put_at = clock.now()
        clock.advance(5)
        job = queue.get_nowait()
        assert (job.id, job.data, job.attempts) == ("x", {"n": 1}, 1)
        assert (job.priority, job.group_id, job.max_retries) == (7, "g", 2)
        assert (job.task, job.headers) == ("app.tasks.run", {"trace": "abc", "n": 1})
        assert job.created_at == put_at
        assert job.queue is queue

    def test_a_job_put_with_nothing_but_data_has_nothing_else(self, queue: BaseQueue) -> None:
        queue.put(1)
        job = queue.get_nowait()
        assert (job.priority, job.group_id, job.max_retries) == (0, None, None)
        assert (job.task, job.headers) == (None, {})

    def test_the_lease_is_the_queues(
        self, make_queue: Callable[..., BaseQueue], clock: Clock
    ) -> None:
        queue = make_queue(lease_seconds=45)
        queue.put(1)
        assert queue.get_nowait().lease_expires_at == clock.now() + 45 * MICROSECONDS

    def test_get_may_ask_for_another_lease(self, queue: BaseQueue, clock: Clock) -> None:
        queue.put(1)
        job = queue.get(lease_seconds=600)
        assert job.lease_expires_at == clock.now() + 600 * MICROSECONDS
        clock.advance(599)
        queue.ack(job)

    def test_a_job_is_given_to_one_caller_at_a_time(self, queue: BaseQueue, clock: Clock) -> None:
        queue.put(1)
        queue.get_nowait()
        clock.advance(59)
        assert empty(queue)

    def test_an_acked_job_never_comes_back(self, queue: BaseQueue, clock: Clock) -> None:
        id = queue.put(1)
        queue.ack(queue.get_nowait())
        clock.advance(3_600)
        assert empty(queue)
        assert record(queue, id).state == "acked"


@pytest.mark.parametrize("end", ENDINGS)
class TestAttempts:
    @pytest.mark.parametrize("max_retries", [0, 1, 2])
    def test_a_job_is_delivered_max_retries_and_one_times(
        self,
        max_retries: int,
        end: Callable[[BaseQueue, Job, Clock], None],
        make_queue: Callable[..., BaseQueue],
        clock: Clock,
    ) -> None:
        queue = make_queue(max_retries=max_retries)
        id = queue.put(1)
        seen = []
        while jobs := queue.get_many(1):
            seen.append(jobs[0].attempts)
            end(queue, jobs[0], clock)
        assert seen == list(range(1, max_retries + 2))
        dead = record(queue, id)
        assert (dead.state, dead.reason, dead.attempts) == ("failed", "exhausted", len(seen))

    def test_the_puts_own_max_retries_decides(
        self,
        end: Callable[[BaseQueue, Job, Clock], None],
        make_queue: Callable[..., BaseQueue],
        clock: Clock,
    ) -> None:
        queue = make_queue(max_retries=5)
        id = queue.put(1, max_retries=0)
        end(queue, queue.get_nowait(), clock)
        assert empty(queue)
        assert record(queue, id).state == "failed"

    def test_an_ended_delivery_leaves_the_job_for_another(
        self, end: Callable[[BaseQueue, Job, Clock], None], queue: BaseQueue, clock: Clock
    ) -> None:
        id = queue.put("again")
        end(queue, queue.get_nowait(), clock)
        job = queue.get_nowait()
        assert (job.id, job.data, job.attempts) == (id, "again", 2)


class TestNack:
    def test_nack_with_a_delay_holds_the_job_back(self, queue: BaseQueue, clock: Clock) -> None:
        id = queue.put(1)
        queue.nack(queue.get_nowait(), delay=30)
        assert record(queue, id).state == "delayed"
        clock.advance(29)
        assert empty(queue)
        clock.advance(2)
        assert queue.get_nowait().attempts == 2

    def test_the_last_nack_fails_the_job_whatever_its_delay(
        self, make_queue: Callable[..., BaseQueue]
    ) -> None:
        queue = make_queue(max_retries=0)
        id = queue.put(1)
        queue.nack(queue.get_nowait(), delay=3_600)
        assert record(queue, id).state == "failed"

    def test_nack_keeps_the_error(self, queue: BaseQueue) -> None:
        id = queue.put(1)
        queue.nack(queue.get_nowait(), last_error="the printer is on fire")
        error = record(queue, id).error
        assert error is not None
        assert error.message == "the printer is on fire"


class TestFail:
    def test_fail_makes_a_dead_letter_at_once(self, queue: BaseQueue) -> None:
        id = queue.put(1)
        queue.fail(queue.get_nowait())
        dead = record(queue, id)
        assert (dead.state, dead.reason, dead.attempts) == ("failed", "failed", 1)
        assert empty(queue)

    @pytest.mark.parametrize("reason", ["exhausted", "expired", "undecodable", "discarded"])
    def test_fail_takes_a_reason(self, reason: str, queue: BaseQueue) -> None:
        id = queue.put(1)
        queue.fail(queue.get_nowait(), reason=reason)  # type: ignore[arg-type]
        assert record(queue, id).reason == reason

    def test_fail_keeps_the_error(self, queue: BaseQueue) -> None:
        id = queue.put(1)
        queue.fail(queue.get_nowait(), ValueError("no such file"))
        error = record(queue, id).error
        assert error is not None
        assert (error.error_class, error.message) == ("ValueError", "no such file")


class TestRelease:
    def test_release_takes_the_delivery_back(self, queue: BaseQueue) -> None:
        id = queue.put(1)
        queue.release(queue.get_nowait())
        assert record(queue, id).attempts == 0
        assert queue.get_nowait().attempts == 1

    def test_releasing_never_uses_a_job_up(self, make_queue: Callable[..., BaseQueue]) -> None:
        queue = make_queue(max_retries=0)
        queue.put(1)
        for _ in range(5):
            queue.release(queue.get_nowait())
        assert queue.get_nowait().attempts == 1

    def test_release_keeps_the_earlier_attempts(self, queue: BaseQueue) -> None:
        queue.put(1)
        queue.nack(queue.get_nowait())
        queue.release(queue.get_nowait())
        assert queue.get_nowait().attempts == 2


class TestLapse:
    def test_a_job_that_kills_its_worker_every_time_is_a_dead_letter_saying_so(
        self, make_queue: Callable[..., BaseQueue], clock: Clock
    ) -> None:
        queue = make_queue(max_retries=1, lease_seconds=10)
        id = queue.put("deadly")
        for _ in range(2):
            queue.get(worker="w1")
            clock.advance(11)
        assert empty(queue)
        dead = queue.list_failed()[0]
        assert (dead.id, dead.reason) == (id, "exhausted")
        assert dead.error is not None
        assert "lease" in dead.error.message.lower()
        assert [one.outcome for one in record(queue, id).history] == ["lapsed", "lapsed"]

    def test_reclaim_tells_how_many_it_gave_back(self, queue: BaseQueue, clock: Clock) -> None:
        queue.put_many([1, 2, 3])
        queue.get_many(2)
        clock.advance(61)
        assert queue.reclaim_expired_leases() == 2
        assert queue.reclaim_expired_leases() == 0
        assert queue.stats().ready == 3

    def test_reclaim_leaves_live_leases_alone(self, queue: BaseQueue, clock: Clock) -> None:
        queue.put_many([1, 2])
        queue.get_nowait()
        clock.advance(30)
        live = queue.get_nowait()
        clock.advance(31)
        assert queue.reclaim_expired_leases() == 1
        queue.ack(live)

    def test_reclaim_takes_all_however_many(self, queue: BaseQueue, clock: Clock) -> None:
        queue.put_many(range(300))
        queue.get_many(300)
        clock.advance(61)
        assert queue.reclaim_expired_leases() == 300
        assert queue.stats().ready == 300

    def test_claims_alone_bring_back_any_number_of_lapsed_jobs(
        self, queue: BaseQueue, clock: Clock
    ) -> None:
        queue.put_many(range(200))
        queue.get_many(200)
        clock.advance(61)
        again = set()
        while jobs := queue.get_many(50):
            again.update(data(jobs))
        assert again == set(range(200))

    def test_claims_alone_bring_any_number_of_due_jobs(
        self, queue: BaseQueue, clock: Clock
    ) -> None:
        for number in range(200):
            queue.put(number, delay=10)
        clock.advance(11)
        seen = []
        while jobs := queue.get_many(50):
            seen += data(jobs)
        assert seen == list(range(200))

    def test_after_a_reboot_every_lease_has_lapsed(self, backend: Backend) -> None:
        if not backend.boot_clock:
            pytest.skip("its leases don't run on a boot clock")
        queue = backend.open()
        queue.put(1)
        queue.get(lease_seconds=86_400)
        backend.reboot()
        queue = backend.open()
        assert queue.stats().expired == 1
        assert queue.get_nowait().attempts == 2


def test_a_lowered_max_retries_is_kept_at_the_next_claim(backend: Backend) -> None:
    queue = backend.open(max_retries=5)
    id = queue.put("worn")
    queue.put("fresh")
    for _ in range(2):
        job = next(job for job in queue.get_many(2) if job.data == "worn")
        queue.nack(job)
    backend.close()
    backend.clock.advance(61)
    queue = backend.open(max_retries=1)
    assert data(queue.get_many(5)) == ["fresh"]
    dead = record(queue, id)
    assert (dead.state, dead.reason, dead.attempts) == ("failed", "exhausted", 2)


def test_a_lead_that_is_used_up_at_the_claim_lets_its_group_go_on(backend: Backend) -> None:
    queue = backend.open(max_retries=5)
    queue.put("worn", group_id="g")
    queue.put("next", group_id="g")
    for _ in range(2):
        queue.nack(queue.get_nowait())
    backend.close()
    assert data(backend.open(max_retries=1).get_many(5)) == ["next"]
