"""Receipts and leases: one live receipt a job, and nothing happens without it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from django_localqueue.backends.base import BaseQueue
from django_localqueue.exceptions import LeaseExpired
from django_localqueue.types import MICROSECONDS, Job
from tests.contract.backends import Backend, Clock
from tests.contract.helpers import SETTLING, VERBS, lost, record, with_receipt

every_verb = pytest.mark.parametrize("verb", VERBS)
every_settling_verb = pytest.mark.parametrize("verb", SETTLING)


def claimed(queue: BaseQueue, data: object = "data") -> Job:
    queue.put(data)
    return queue.get_nowait()


def refused(queue: BaseQueue, verb: str, job: Job, reason: str) -> None:
    """The verb is refused for this reason, and the job stays as it was."""
    before, stats = record(queue, job.id), queue.stats()
    with lost(reason):
        VERBS[verb](queue, job)
    assert record(queue, job.id) == before
    assert queue.stats() == stats


@every_verb
class TestReceiptsThatAreNotLive:
    def test_a_lapsed_lease_is_expired(self, verb: str, queue: BaseQueue, clock: Clock) -> None:
        job = claimed(queue)
        clock.advance(61)
        refused(queue, verb, job, "expired")

    def test_a_lapsed_and_reclaimed_lease_is_expired(
        self, verb: str, queue: BaseQueue, clock: Clock
    ) -> None:
        job = claimed(queue)
        clock.advance(61)
        queue.reclaim_expired_leases()
        refused(queue, verb, job, "expired")

    def test_a_lease_that_another_worker_took_over_is_expired(
        self, verb: str, queue: BaseQueue, clock: Clock
    ) -> None:
        job = claimed(queue)
        clock.advance(61)
        second = queue.get_nowait()
        refused(queue, verb, job, "expired")
        queue.ack(second)

    def test_a_lapse_that_made_a_dead_letter_is_expired(
        self, verb: str, make_queue: Callable[..., BaseQueue], clock: Clock
    ) -> None:
        queue = make_queue(max_retries=0)
        job = claimed(queue)
        clock.advance(61)
        queue.reclaim_expired_leases()
        refused(queue, verb, job, "expired")

    @pytest.mark.parametrize("first", ["nack", "release"])
    def test_a_given_back_job_that_another_has_takes_only_the_same_verb_again(
        self, first: str, verb: str, queue: BaseQueue
    ) -> None:
        job = claimed(queue)
        VERBS[first](queue, job)
        second = queue.get_nowait()
        if verb == first:  # sent again by a caller who missed the answer
            before = record(queue, job.id)
            VERBS[verb](queue, job)
            assert record(queue, job.id) == before
        else:
            refused(queue, verb, job, "settled")
        queue.ack(second)

    def test_the_receipt_of_another_job_is_unknown(self, verb: str, queue: BaseQueue) -> None:
        job, other = claimed(queue), claimed(queue)
        refused(queue, verb, with_receipt(job, other.receipt), "unknown")
        queue.ack(job)
        queue.ack(other)

    @pytest.mark.parametrize("receipt", ["", "0", "made up", "\N{GRINNING FACE}", "x" * 10_000])
    def test_an_invented_receipt_is_unknown(
        self, receipt: str, verb: str, queue: BaseQueue
    ) -> None:
        job = claimed(queue)
        refused(queue, verb, with_receipt(job, receipt), "unknown")

    def test_a_purged_job_is_unknown(self, verb: str, queue: BaseQueue, clock: Clock) -> None:
        job = claimed(queue)
        queue.ack(job)
        clock.advance(1)
        queue.purge(0)
        with lost("unknown"):
            VERBS[verb](queue, job)

    def test_a_purged_job_that_was_put_again_is_unknown(
        self, verb: str, queue: BaseQueue, clock: Clock
    ) -> None:
        queue.put("first", "x")
        job = queue.get_nowait()
        queue.ack(job)
        clock.advance(1)
        queue.purge(0)
        queue.put("second", "x")
        live = queue.get_nowait()
        with lost("unknown"):
            VERBS[verb](queue, job)
        queue.ack(live)

    def test_a_job_of_another_store_is_refused(
        self, verb: str, queue: BaseQueue, backend: Backend
    ) -> None:
        elsewhere = backend.open_elsewhere()
        job = claimed(elsewhere)
        with lost("unknown"):
            VERBS[verb](queue, job)
        elsewhere.ack(job)

    def test_a_receipt_lives_through_reopening(self, verb: str, backend: Backend) -> None:
        job = claimed(backend.open())
        backend.close()
        queue = backend.open()
        VERBS[verb](queue, job)
        state = {"ack": "acked", "fail": "failed", "extend_lease": "processing"}
        assert record(queue, job.id).state == state.get(verb, "ready")


@pytest.mark.parametrize(
    ("first", "then"),
    [(first, then) for first in SETTLING for then in VERBS if first != then],
)
def test_a_settled_job_refuses_every_other_verb(first: str, then: str, queue: BaseQueue) -> None:
    job = claimed(queue)
    VERBS[first](queue, job)
    refused(queue, then, job, "settled")


@every_settling_verb
class TestTheSameVerbAgain:
    def test_it_succeeds_and_changes_nothing(
        self, verb: str, queue: BaseQueue, clock: Clock
    ) -> None:
        job = claimed(queue)
        VERBS[verb](queue, job)
        before, stats = record(queue, job.id), queue.stats()
        clock.advance(1)
        VERBS[verb](queue, job)
        assert record(queue, job.id) == before
        assert queue.stats() == stats

    def test_it_succeeds_after_the_lease_would_have_ended(
        self, verb: str, queue: BaseQueue, clock: Clock
    ) -> None:
        job = claimed(queue)
        VERBS[verb](queue, job)
        clock.advance(3_600)
        VERBS[verb](queue, job)


def test_a_second_nack_does_not_delay_again(queue: BaseQueue, clock: Clock) -> None:
    job = claimed(queue)
    queue.nack(job, delay=10)
    clock.advance(9)
    queue.nack(job, delay=10)
    clock.advance(2)
    assert queue.get_nowait().id == job.id


def test_a_second_ack_keeps_the_first_result(queue: BaseQueue) -> None:
    job = claimed(queue)
    queue.ack(job, result=1)
    queue.ack(job, result=2)
    assert record(queue, job.id).result == b"1"


def test_each_delivery_has_a_receipt_of_its_own(queue: BaseQueue) -> None:
    queue.put_many(range(50))
    receipts = [job.receipt for job in queue.get_many(50)]
    again = claimed(queue)
    receipts.append(again.receipt)
    queue.release(again)
    receipts.append(queue.get_nowait().receipt)
    assert len(set(receipts)) == 52


class TestExtendLease:
    def test_an_extended_job_stays_with_its_worker(self, queue: BaseQueue, clock: Clock) -> None:
        job = claimed(queue)
        for _ in range(5):
            clock.advance(50)
            queue.extend_lease(job, 60)
        assert queue.reclaim_expired_leases() == 0
        queue.ack(job)

    def test_it_counts_from_now(self, queue: BaseQueue, clock: Clock) -> None:
        job = claimed(queue)
        clock.advance(30)
        queue.extend_lease(job, 60)
        assert record(queue, job.id).lease_expires_at == clock.now() + 60 * MICROSECONDS
        assert job.lease_expires_at == clock.now() + 60 * MICROSECONDS

    def test_it_never_shortens_a_lease(self, queue: BaseQueue, clock: Clock) -> None:
        job = claimed(queue)
        queue.extend_lease(job, 600)
        queue.extend_lease(job, 1)
        clock.advance(599)
        queue.ack(job)

    def test_the_job_has_it_as_a_method(self, queue: BaseQueue, clock: Clock) -> None:
        job = claimed(queue)
        assert job.extend_lease(600) is True
        clock.advance(599)
        queue.ack(job)

    def test_it_is_no_attempt(self, queue: BaseQueue) -> None:
        job = claimed(queue)
        queue.extend_lease(job, 60)
        assert record(queue, job.id).attempts == 1

    def test_it_tells_that_the_job_was_cancelled_and_extends_all_the_same(
        self, queue: BaseQueue, clock: Clock
    ) -> None:
        job = claimed(queue)
        queue.cancel(job.id)
        assert queue.extend_lease(job, 600) is False
        clock.advance(599)
        queue.ack(job)


class TestLeaseClock:
    def test_a_wall_clock_that_jumps_ahead_ends_no_lease(
        self, queue: BaseQueue, clock: Clock
    ) -> None:
        job = claimed(queue)
        clock.step_wall(86_400)
        assert queue.reclaim_expired_leases() == 0
        queue.ack(job)

    def test_a_wall_clock_that_jumps_back_prolongs_no_lease(
        self, queue: BaseQueue, clock: Clock
    ) -> None:
        job = claimed(queue)
        clock.step_wall(-86_400)
        clock.advance(61)
        with pytest.raises(LeaseExpired):
            queue.ack(job)
        assert queue.get_nowait().attempts == 2

    def test_a_jump_ahead_between_two_extensions_shortens_nothing(
        self, queue: BaseQueue, clock: Clock
    ) -> None:
        job = claimed(queue)
        queue.extend_lease(job, 600)
        clock.step_wall(-3_600)
        queue.extend_lease(job, 60)
        clock.advance(599)
        queue.ack(job)
