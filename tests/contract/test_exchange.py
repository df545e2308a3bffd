"""Exchange and batches: settle what is done, claim what is next, in one step."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from django_localqueue.backends.base import BaseQueue
from django_localqueue.exceptions import InvalidInput, LeaseExpired, LocalQueueError
from django_localqueue.types import Settle
from tests.contract.backends import Backend, Clock
from tests.contract.helpers import SETTLING, data, record, with_receipt


def reason(result: LocalQueueError | None) -> str:
    assert isinstance(result, LeaseExpired)
    return result.reason


class TestSettling:
    @pytest.mark.parametrize("verb", SETTLING)
    def test_each_verb_does_what_it_does_alone(self, verb: str, queue: BaseQueue) -> None:
        queue.put(1)
        job = queue.get_nowait()
        done = queue.exchange([Settle(job, verb)], 0)  # type: ignore[arg-type]
        assert done.results == [None]
        assert done.jobs == []
        expected = {"ack": "acked", "fail": "failed"}.get(verb, "ready")
        assert record(queue, job.id).state == expected

    def test_results_come_one_an_item_in_order(self, queue: BaseQueue) -> None:
        queue.put_many([1, 2, 3])
        one, two, three = queue.get_many(3)
        queue.ack(two)
        settles = [Settle(one, "ack"), Settle(two, "fail"), Settle(three, "ack")]
        results = queue.exchange(settles, 0).results
        assert (results[0], results[2]) == (None, None)
        assert reason(results[1]) == "settled"

    def test_a_lost_lease_is_a_result_and_the_rest_is_done(
        self, queue: BaseQueue, clock: Clock
    ) -> None:
        queue.put_many([1, 2, 3])
        slow = queue.get_nowait()
        clock.advance(61)
        quick = queue.get_nowait()
        assert quick.data == 2
        done = queue.exchange([Settle(slow, "ack"), Settle(quick, "ack")], 1)
        assert reason(done.results[0]) == "expired"
        assert done.results[1] is None
        assert data(done.jobs) == [3]

    def test_an_unknown_receipt_is_a_result(self, queue: BaseQueue) -> None:
        queue.put(1)
        job = queue.get_nowait()
        results = queue.exchange([Settle(with_receipt(job, "made up"), "ack")], 0).results
        assert reason(results[0]) == "unknown"
        queue.ack(job)

    def test_a_job_of_another_store_is_a_result_and_the_rest_is_done(
        self, queue: BaseQueue, backend: Backend
    ) -> None:
        queue.put(1)
        own = queue.get_nowait()
        elsewhere = backend.open_elsewhere()
        elsewhere.put(2)
        strange = elsewhere.get_nowait()
        results = queue.exchange([Settle(strange, "ack"), Settle(own, "ack")], 0).results
        assert reason(results[0]) == "unknown"
        assert results[1] is None
        elsewhere.ack(strange)

    def test_the_same_job_twice_is_settled_by_the_first(self, queue: BaseQueue) -> None:
        queue.put(1)
        job = queue.get_nowait()
        results = queue.exchange([Settle(job, "ack"), Settle(job, "ack")], 0).results
        assert results == [None, None]

    def test_another_verb_for_the_same_job_in_one_exchange_is_settled(
        self, queue: BaseQueue
    ) -> None:
        queue.put(1)
        job = queue.get_nowait()
        results = queue.exchange([Settle(job, "ack"), Settle(job, "nack")], 0).results
        assert results[0] is None
        assert reason(results[1]) == "settled"
        assert record(queue, job.id).state == "acked"

    def test_it_carries_delay_result_error_and_reason(self, queue: BaseQueue, clock: Clock) -> None:
        queue.put_many([1, 2, 3])
        one, two, three = queue.get_many(3)
        queue.exchange(
            [
                Settle(one, "ack", result={"rows": 3}),
                Settle(two, "nack", delay=10, error="busy"),
                Settle(three, "fail", error=KeyError("x"), reason="expired"),
            ],
            0,
        )
        assert record(queue, one.id).result == b'{"rows":3}'
        nacked, failed = record(queue, two.id), record(queue, three.id)
        assert (nacked.state, nacked.error and nacked.error.message) == ("delayed", "busy")
        assert failed.reason == "expired"
        assert failed.error is not None
        assert failed.error.error_class == "KeyError"

    def test_it_settles_jobs_of_any_queue_of_the_store(
        self, make_queue: Callable[..., BaseQueue]
    ) -> None:
        one, two = make_queue("one"), make_queue("two")
        one.put(1)
        two.put(2)
        jobs = [one.get_nowait(), two.get_nowait()]
        assert one.exchange([Settle(job, "ack") for job in jobs], 0).results == [None, None]
        assert (one.stats().acked, two.stats().acked) == (1, 1)

    def test_each_queues_own_max_retries_counts(self, make_queue: Callable[..., BaseQueue]) -> None:
        patient, strict = make_queue("patient", max_retries=5), make_queue("strict", max_retries=0)
        patient.put(1)
        strict.put(2)
        jobs = [patient.get_nowait(), strict.get_nowait()]
        patient.exchange([Settle(job, "nack") for job in jobs], 0)
        assert (patient.stats().ready, strict.stats().failed) == (1, 1)


class TestClaiming:
    def test_want_zero_takes_nothing(self, queue: BaseQueue) -> None:
        queue.put(1)
        assert queue.exchange([], 0).jobs == []
        assert queue.stats().ready == 1

    def test_it_takes_up_to_want(self, queue: BaseQueue) -> None:
        queue.put_many(range(5))
        assert data(queue.exchange([], 3).jobs) == [0, 1, 2]
        assert data(queue.exchange([], 3).jobs) == [3, 4]
        assert queue.exchange([], 3).jobs == []

    def test_it_sees_what_its_settles_freed(self, queue: BaseQueue) -> None:
        queue.put("a", group_id="g")
        queue.put("b", group_id="g")
        job = queue.get_nowait()
        assert data(queue.exchange([Settle(job, "ack")], 5).jobs) == ["b"]

    def test_a_nacked_job_may_come_back_at_once(self, queue: BaseQueue) -> None:
        queue.put("a")
        job = queue.get_nowait()
        again = queue.exchange([Settle(job, "nack")], 1).jobs
        assert [(job.data, job.attempts) for job in again] == [("a", 2)]

    def test_the_floor_holds(self, queue: BaseQueue) -> None:
        queue.put("low", priority=1)
        queue.put("high", priority=2)
        assert data(queue.exchange([], 5, min_priority=2).jobs) == ["high"]

    def test_the_worker_is_recorded(self, queue: BaseQueue) -> None:
        id = queue.put(1)
        queue.exchange([], 1, worker="w7")
        assert record(queue, id).worker == "w7"


class TestSources:
    @pytest.fixture
    def three(self, make_queue: Callable[..., BaseQueue]) -> list[BaseQueue]:
        queues = [make_queue(name) for name in ("one", "two", "three")]
        for queue in queues:
            queue.put_many([f"{queue.name}-{n}" for n in range(4)])
        return queues

    def test_an_earlier_source_is_emptied_first(self, three: list[BaseQueue]) -> None:
        one, two, _ = three
        assert data(one.exchange([], 6, sources=[two, one]).jobs) == [
            *("two-0", "two-1", "two-2", "two-3"),
            *("one-0", "one-1"),
        ]

    def test_a_priority_does_not_lift_a_job_over_an_earlier_source(
        self, three: list[BaseQueue]
    ) -> None:
        one, two, _ = three
        two.put("urgent", priority=100)
        assert data(one.exchange([], 1, sources=[one, two]).jobs) == ["one-0"]

    def test_only_the_sources_are_served(self, three: list[BaseQueue]) -> None:
        one, two, three_ = three
        jobs = one.exchange([], 100, sources=[two, three_]).jobs
        assert {job.queue.name for job in jobs} == {"two", "three"}
        assert one.stats().ready == 4

    def test_a_job_knows_the_queue_it_came_from(self, three: list[BaseQueue]) -> None:
        one, two, _ = three
        job = one.exchange([], 1, sources=[two]).jobs[0]
        assert job.queue is two

    def test_round_robin_takes_one_of_each_in_turn(self, three: list[BaseQueue]) -> None:
        jobs = three[0].exchange([], 6, sources=three, round_robin=True).jobs
        names = [job.queue.name for job in jobs]
        assert sorted(names[:3]) == sorted(names[3:]) == ["one", "three", "two"]
        for queue in three:
            mine = [job.data for job in jobs if job.queue is queue]
            assert mine == [f"{queue.name}-0", f"{queue.name}-1"]

    def test_round_robin_passes_over_an_empty_source(self, three: list[BaseQueue]) -> None:
        three[1].get_many(10)
        jobs = three[0].exchange([], 100, sources=three, round_robin=True).jobs
        assert [job.queue.name for job in jobs].count("one") == 4
        assert [job.queue.name for job in jobs].count("three") == 4

    def test_round_robin_serves_all_sources_when_one_job_is_taken_at_a_time(
        self, three: list[BaseQueue]
    ) -> None:
        served = set()
        for _ in range(6):
            jobs = three[0].exchange([], 1, sources=three, round_robin=True).jobs
            served.add(jobs[0].queue.name)
        assert served == {"one", "two", "three"}

    def test_each_source_gives_its_own_lease(
        self, make_queue: Callable[..., BaseQueue], clock: Clock
    ) -> None:
        short, long = make_queue("short", lease_seconds=10), make_queue("long", lease_seconds=100)
        short.put(1)
        long.put(2)
        jobs = short.exchange([], 2, sources=[short, long]).jobs
        ends = [(job.lease_expires_at - clock.now()) / 1_000_000 for job in jobs]
        assert ends == [10, 100]

    def test_a_given_lease_is_that_of_all(self, three: list[BaseQueue], clock: Clock) -> None:
        jobs = three[0].exchange([], 8, sources=three, lease_seconds=7).jobs
        assert {job.lease_expires_at for job in jobs} == {clock.now() + 7_000_000}

    def test_lapsed_and_due_jobs_of_every_source_are_found(
        self, make_queue: Callable[..., BaseQueue], clock: Clock
    ) -> None:
        one, two = make_queue("one"), make_queue("two")
        one.put("lapsed")
        one.get_nowait()
        two.put("due", delay=60)
        clock.advance(61)
        assert data(one.exchange([], 5, sources=[one, two]).jobs) == ["lapsed", "due"]

    def test_a_source_of_another_store_is_refused(self, queue: BaseQueue, backend: Backend) -> None:
        with pytest.raises(InvalidInput, match="store"):
            queue.exchange([], 1, sources=[queue, backend.open_elsewhere()])


class TestGetMany:
    def test_it_takes_as_many_turns_as_jobs(self, queue: BaseQueue) -> None:
        queue.put_many([1, 2, 3])
        assert data(queue.get_many(2)) == [1, 2]
        assert data(queue.get_many(2)) == [3]
        assert queue.get_many(2) == []

    def test_each_job_settles_by_itself(self, queue: BaseQueue, clock: Clock) -> None:
        queue.put_many([1, 2, 3])
        one, two, three = queue.get_many(3)
        queue.ack(one)
        queue.fail(two)
        queue.release(three)
        stats = queue.stats()
        assert (stats.acked, stats.failed, stats.ready) == (1, 1, 1)

    def test_a_batch_is_what_as_many_single_gets_would_be(
        self, make_queue: Callable[..., BaseQueue]
    ) -> None:
        one, two = make_queue("one"), make_queue("two")
        for queue in (one, two):
            for number in range(12):
                queue.put(number, priority=number % 3, group_id=f"g{number % 4}")
        assert data(one.get_many(12)) == [two.get_nowait().data for _ in range(4)]
