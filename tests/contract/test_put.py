"""Putting: ids, dedup by job_id, put_many, delay."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from django_localqueue.backends.base import BaseQueue
from django_localqueue.exceptions import InvalidInput
from django_localqueue.types import JobId, NewJob
from tests.contract.backends import Backend, Clock
from tests.contract.helpers import data, empty, record


class TestIds:
    def test_put_returns_the_id_under_which_the_job_is_found(self, queue: BaseQueue) -> None:
        id = queue.put("a")
        assert isinstance(id, str)
        assert record(queue, id).id == id
        assert queue.get_nowait().id == id

    def test_a_new_job_says_that_it_was_created_ready(self, queue: BaseQueue) -> None:
        id = queue.put("a")
        assert (id.created, id.state) == (True, "ready")

    def test_a_delayed_job_says_so(self, queue: BaseQueue) -> None:
        assert queue.put("a", delay=5).state == "delayed"

    def test_a_job_behind_its_group_says_that_it_is_blocked(self, queue: BaseQueue) -> None:
        queue.put("a", group_id="g")
        assert queue.put("b", group_id="g").state == "blocked"

    def test_ids_grow_in_put_order(self, queue: BaseQueue, clock: Clock) -> None:
        ids = [queue.put(1), queue.put(2)]
        clock.advance(1)
        ids.append(queue.put(3))
        assert [int(id) for id in ids] == sorted({int(id) for id in ids})

    def test_ids_grow_even_when_the_wall_clock_steps_back(
        self, queue: BaseQueue, clock: Clock
    ) -> None:
        first = queue.put(1)
        clock.step_wall(-3600)
        assert int(queue.put(2)) > int(first)

    def test_an_id_is_not_used_again_after_purge_and_reopening(self, backend: Backend) -> None:
        queue = backend.open()
        id = queue.put(1)
        queue.ack(queue.get_nowait())
        backend.clock.advance(1)
        assert queue.purge(0) == 1
        backend.clock.step_wall(-3600)
        backend.close()
        assert int(backend.open().put(2)) > int(id)

    def test_a_put_survives_closing_and_reopening(self, backend: Backend) -> None:
        id = backend.open().put({"n": 1})
        backend.close()
        job = backend.open().get_nowait()
        assert (job.id, job.data) == (id, {"n": 1})


class TestJobId:
    def bring_to(self, state: str, queue: BaseQueue) -> None:
        """Make the job "x" and bring it to ``state``."""
        if state == "blocked":
            queue.put("lead", group_id="g")
            queue.put("first", "x", group_id="g")
            return
        queue.put("first", "x", delay=60 if state == "delayed" else 0)
        if state in ("processing", "acked", "failed"):
            job = queue.get_nowait()
            if state == "acked":
                queue.ack(job)
            if state == "failed":
                queue.fail(job)

    def test_a_job_id_is_the_public_id(self, queue: BaseQueue) -> None:
        id = queue.put("a", "order-7")
        assert id == "order-7"
        assert record(queue, "order-7").job_id == "order-7"
        assert queue.get_nowait().id == "order-7"

    @pytest.mark.parametrize(
        "state", ["ready", "delayed", "blocked", "processing", "acked", "failed"]
    )
    def test_a_second_put_meets_the_first_in_every_state(
        self, state: str, queue: BaseQueue
    ) -> None:
        self.bring_to(state, queue)
        before = record(queue, "x")
        stats = queue.stats()
        again = queue.put("second", "x")
        assert (again, again.created, again.state) == ("x", False, state)
        assert record(queue, "x") == before
        assert queue.stats() == stats

    def test_the_first_payload_stays(self, queue: BaseQueue) -> None:
        queue.put("first", "x")
        queue.put("second", "x", priority=9)
        assert data(queue.get_many(5)) == ["first"]

    def test_a_purged_job_id_is_free_again(self, queue: BaseQueue, clock: Clock) -> None:
        queue.put("first", "x")
        queue.ack(queue.get_nowait())
        clock.advance(1)
        queue.purge(0)
        assert queue.put("second", "x").created
        assert queue.get_nowait().data == "second"

    def test_a_job_id_belongs_to_its_queue(self, make_queue: Callable[..., BaseQueue]) -> None:
        one, two = make_queue("one"), make_queue("two")
        assert one.put(1, "x").created
        assert two.put(2, "x").created
        assert (one.get_nowait().data, two.get_nowait().data) == (1, 2)

    @pytest.mark.parametrize(
        "job_id",
        [
            *("a:b", "a/b", "../x", "%2F", "?#", "'; DROP TABLE messages; --", " x "),
            *("\N{GRINNING FACE}", "\u05d0\u05d1", "caf\u00e9", "cafe\u0301", "x" * 255),
        ],
    )
    def test_odd_job_ids_are_kept_to_the_letter(self, job_id: str, queue: BaseQueue) -> None:
        queue.put(1, job_id)
        assert record(queue, job_id).job_id == job_id
        assert queue.get_nowait().id == job_id

    def test_composed_and_decomposed_accents_are_two_ids(self, queue: BaseQueue) -> None:
        queue.put(1, "caf\u00e9")
        assert queue.put(2, "cafe\u0301").created


class TestPutMany:
    def test_ids_come_in_the_order_given(self, queue: BaseQueue) -> None:
        ids = queue.put_many(["a", "b", "c"])
        assert [job.id for job in queue.get_many(3)] == ids

    def test_payloads_and_new_jobs_may_be_mixed(self, queue: BaseQueue) -> None:
        queue.put_many(["plain", NewJob("urgent", priority=5)])
        assert data(queue.get_many(2)) == ["urgent", "plain"]

    def test_any_iterable_will_do(self, queue: BaseQueue) -> None:
        assert len(queue.put_many(n for n in range(3))) == 3

    def test_nothing_is_put_for_nothing(self, queue: BaseQueue) -> None:
        assert queue.put_many([]) == []

    def test_a_duplicate_of_a_stored_job_is_named(self, queue: BaseQueue) -> None:
        queue.put("old", "x")
        ids = queue.put_many([NewJob(1, "w"), NewJob(2, "x"), NewJob(3)])
        assert [id.created for id in ids] == [True, False, True]
        assert ids[:2] == ["w", "x"]

    def test_a_duplicate_within_the_batch_is_named(self, queue: BaseQueue) -> None:
        ids = queue.put_many([NewJob("first", "x"), NewJob("second", "x")])
        assert [(id, id.created) for id in ids] == [("x", True), ("x", False)]
        assert data(queue.get_many(5)) == ["first"]

    def test_one_bad_job_keeps_all_out_and_is_named(self, queue: BaseQueue) -> None:
        with pytest.raises(InvalidInput, match=r"job 1: .*priority"):
            queue.put_many([NewJob(1), NewJob(2, priority=101), NewJob(3)])
        assert queue.stats().ready == 0

    def test_a_job_that_is_refused_alone_has_no_index(self, queue: BaseQueue) -> None:
        with pytest.raises(InvalidInput, match=r"^priority"):
            queue.put_many([NewJob(1, priority=1_000)])

    def test_groups_and_delays_hold_within_a_batch(self, queue: BaseQueue) -> None:
        ids = queue.put_many(
            [NewJob(1, group_id="g"), NewJob(2, group_id="g"), NewJob(3, delay=60)]
        )
        assert [id.state for id in ids] == ["ready", "blocked", "delayed"]

    def test_a_large_batch_is_stored_whole(self, queue: BaseQueue) -> None:
        queue.put_many(range(2_000))
        assert queue.stats().ready == 2_000


class TestDelay:
    def test_a_delayed_job_comes_when_it_is_due_and_not_before(
        self, queue: BaseQueue, clock: Clock
    ) -> None:
        queue.put("later", delay=60)
        clock.advance(59)
        assert empty(queue)
        clock.advance(2)
        assert queue.get_nowait().data == "later"

    def test_a_fraction_of_a_second_counts(self, queue: BaseQueue, clock: Clock) -> None:
        queue.put("later", delay=0.5)
        clock.advance(0.4)
        assert empty(queue)
        clock.advance(0.2)
        assert not empty(queue)

    def test_a_delay_ends_by_the_wall_clock(self, queue: BaseQueue, clock: Clock) -> None:
        queue.put("later", delay=60)
        clock.step_wall(61)
        assert queue.get_nowait().data == "later"

    def test_a_delay_is_no_attempt(self, queue: BaseQueue, clock: Clock) -> None:
        queue.put("later", delay=60)
        clock.advance(61)
        assert queue.get_nowait().attempts == 1

    def test_a_delay_longer_than_the_lease_is_one_delivery(
        self, queue: BaseQueue, clock: Clock
    ) -> None:
        queue.put("later", delay=600)
        clock.advance(601)
        assert data(queue.get_many(5)) == ["later"]
        assert empty(queue)


class TestThreads:
    def test_the_same_job_ids_put_by_all_are_stored_once_each(self, queue: BaseQueue) -> None:
        def put(thread: int) -> list[JobId]:
            return [queue.put(thread, job_id=str(number)) for number in range(20)]

        with ThreadPoolExecutor(8) as pool:
            told = list(pool.map(put, range(8)))
        stored = {job.id: job.data for job in queue.get_many(160)}
        assert len(stored) == 20
        for number, ids in enumerate(zip(*told, strict=True)):
            (winner,) = (thread for thread, id in enumerate(ids) if id.created)
            assert set(ids) == {str(number)}
            assert stored[str(number)] == winner

    def test_a_refused_put_of_one_is_no_error_of_another(self, queue: BaseQueue) -> None:
        def put(number: int) -> bool:
            try:
                queue.put(number, priority=200 if number % 5 == 0 else 3)
            except InvalidInput:
                return False
            return True

        with ThreadPoolExecutor(8) as pool:
            stored = list(pool.map(put, range(60)))
        assert stored == [number % 5 != 0 for number in range(60)]
        assert queue.stats().ready == 48
