"""What an operator does to jobs: run now, delay, move, cancel, discard."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from django_localqueue.backends.base import BaseQueue
from django_localqueue.exceptions import InvalidInput
from django_localqueue.types import Applied, JobFilter, NewJob
from tests.contract.backends import Clock
from tests.contract.helpers import data, empty, in_turn, listed, record

Make = Callable[..., BaseQueue]
READY = JobFilter(state="ready")
DELAYED = JobFilter(state="delayed")
FAILED = JobFilter(state="failed")
PROCESSING = JobFilter(state="processing")


def fail(queue: BaseQueue, *payloads: Any, **options: Any) -> list[str]:
    """Make dead letters; return their ids."""
    ids = []
    for payload in payloads:
        ids.append(str(queue.put(payload, **options)))
        queue.fail(queue.get_nowait(), "no")
    return ids


class TestRunNow:
    def test_a_delayed_job_is_delivered_at_once(self, queue: BaseQueue) -> None:
        queue.put(1, delay=3_600)
        assert queue.apply("run_now", DELAYED) == Applied(done=1)
        assert queue.stats().delayed == 0
        assert queue.get_nowait().data == 1

    def test_jobs_due_at_any_time_are_meant(self, queue: BaseQueue) -> None:
        queue.put_many([NewJob(n, delay=60 * (n + 1)) for n in range(5)])
        assert queue.apply("run_now", DELAYED).done == 5
        assert sorted(in_turn(queue)) == [0, 1, 2, 3, 4]

    def test_only_jobs_due_in_the_time_of_the_filter_are_meant(
        self, queue: BaseQueue, clock: Clock
    ) -> None:
        queue.put_many([NewJob(1, delay=60), NewJob(2, delay=7_200)])
        soon = JobFilter(state="delayed", until=clock.now() + 3_600_000_000)
        assert queue.apply("run_now", soon).done == 1
        assert in_turn(queue) == [1]

    def test_a_delayed_lead_lets_its_group_go_on(self, queue: BaseQueue) -> None:
        queue.put(1, group_id="g", delay=60)
        queue.put(2, group_id="g")
        assert queue.apply("run_now", DELAYED).done == 1
        assert in_turn(queue) == [1, 2]

    def test_one_that_came_due_meanwhile_has_changed(self, queue: BaseQueue, clock: Clock) -> None:
        id = str(queue.put(1, delay=60))
        queue.put(2)
        clock.advance(61)
        assert queue.get_nowait().data in (1, 2)  # promotes what is due
        applied = queue.apply("run_now", JobFilter(state="delayed", ids=(id, "gone")))
        assert applied == Applied(changed=1, not_found=1)

    def test_jobs_put_after_the_page_are_left_alone(self, queue: BaseQueue, clock: Clock) -> None:
        queue.put(1, delay=60)
        seen = clock.now()
        clock.advance(1)
        queue.put(2, delay=60)
        assert queue.apply("run_now", DELAYED, as_of=seen).done == 1
        assert in_turn(queue) == [1]

    def test_jobs_given_back_with_a_delay_after_the_page_are_left_alone(
        self, queue: BaseQueue, clock: Clock
    ) -> None:
        queue.put(1)
        job = queue.get_nowait()
        seen = clock.now()
        clock.advance(1)
        queue.nack(job, delay=60)
        assert queue.apply("run_now", DELAYED, as_of=seen).done == 0
        assert queue.apply("run_now", DELAYED).done == 1


class TestDelay:
    def test_a_ready_job_waits_for_its_time(self, queue: BaseQueue, clock: Clock) -> None:
        id = str(queue.put(1))
        assert queue.apply("delay", READY, delay=60) == Applied(done=1)
        assert (record(queue, id).state, record(queue, id).due_at) == (
            "delayed",
            clock.now() + 60_000_000,
        )
        assert empty(queue)
        clock.advance(61)
        assert queue.get_nowait().data == 1

    def test_delayed_jobs_get_another_time_each_once(self, queue: BaseQueue, clock: Clock) -> None:
        queue.put_many([NewJob(n, delay=7 * (n + 1)) for n in range(20)])
        assert queue.apply("delay", DELAYED, delay=100) == Applied(done=20)
        assert {one.due_at for one in listed(queue, state="delayed")} == {clock.now() + 100_000_000}

    def test_a_delayed_lead_holds_its_group_back(self, queue: BaseQueue, clock: Clock) -> None:
        queue.put_many([NewJob(1, group_id="g"), NewJob(2, group_id="g"), NewJob(3)])
        lead = JobFilter(state="ready", group_id="g")
        assert queue.apply("delay", lead, delay=60).done == 1
        assert in_turn(queue) == [3]
        clock.advance(61)
        assert in_turn(queue) == [1, 2]

    def test_a_running_job_has_changed(self, queue: BaseQueue) -> None:
        id = str(queue.put(1))
        queue.get_nowait()
        applied = queue.apply("delay", JobFilter(state="ready", ids=(id,)), delay=5)
        assert applied == Applied(changed=1)

    @pytest.mark.parametrize("delay", [None, 0, -1, "soon", float("nan")])
    def test_it_needs_a_positive_delay(self, delay: Any, queue: BaseQueue) -> None:
        with pytest.raises(InvalidInput, match="delay"):
            queue.apply("delay", READY, delay=delay)


class TestMove:
    def test_a_ready_job_goes_on_waiting_in_the_other_queue(
        self, queue: BaseQueue, make_queue: Make, clock: Clock
    ) -> None:
        other = make_queue("other")
        id = str(queue.put(1, priority=3, headers={"a": 1}))
        waits = record(queue, id).waiting_since
        clock.advance(5)
        assert queue.apply("move", READY, target="other") == Applied(done=1)
        assert queue.lookup(id) is None
        moved = record(other, id)
        assert (moved.queue, moved.state, moved.waiting_since) == ("other", "ready", waits)
        job = other.get_nowait()
        assert (job.data, job.priority, job.headers) == (1, 3, {"a": 1})
        other.ack(job)

    def test_a_queue_that_nobody_has_opened_can_be_the_target(
        self, queue: BaseQueue, make_queue: Make
    ) -> None:
        queue.put(1)
        assert queue.apply("move", READY, target="new").done == 1
        assert make_queue("new").get_nowait().data == 1

    def test_a_delayed_job_keeps_its_time(
        self, queue: BaseQueue, make_queue: Make, clock: Clock
    ) -> None:
        id = str(queue.put(1, delay=60))
        due = record(queue, id).due_at
        assert queue.apply("move", DELAYED, target="other").done == 1
        other = make_queue("other")
        assert (record(other, id).state, record(other, id).due_at) == ("delayed", due)

    def test_a_dead_letter_stays_one_with_its_history(
        self, queue: BaseQueue, make_queue: Make
    ) -> None:
        (id,) = fail(queue, 1)
        assert queue.apply("move", FAILED, target="other").done == 1
        other = make_queue("other")
        moved = record(other, id)
        assert (moved.state, moved.reason, len(moved.history)) == ("failed", "failed", 1)
        assert other.retry_failed(id)
        assert other.get_nowait().data == 1

    def test_the_group_that_it_leaves_goes_on(self, queue: BaseQueue, make_queue: Make) -> None:
        ids = [str(queue.put(n, group_id="g")) for n in range(3)]
        queue.apply("move", JobFilter(state="ready", ids=(ids[0],)), target="other")
        assert in_turn(queue) == [1, 2]
        assert in_turn(make_queue("other")) == [0]

    def test_a_job_whose_lead_went_ahead_is_led_by_it_again(
        self, queue: BaseQueue, make_queue: Make
    ) -> None:
        """Blocked ones first: the first to arrive leads, until its elder comes."""
        queue.put_many([NewJob(n, group_id="g") for n in range(3)])
        for state in ("blocked", "ready"):
            queue.apply("move", JobFilter(state=state), target="other")
        assert in_turn(make_queue("other")) == [0, 1, 2]

    def test_it_waits_behind_the_job_of_its_group_that_runs_there(
        self, queue: BaseQueue, make_queue: Make
    ) -> None:
        other = make_queue("other")
        queue.put("moved", group_id="g")
        other.put("there", group_id="g")
        running = other.get_nowait()
        queue.apply("move", READY, target="other")
        assert empty(other)
        other.ack(running)
        assert in_turn(other) == ["moved"]

    def test_one_whose_job_id_the_other_queue_has_stays(
        self, queue: BaseQueue, make_queue: Make
    ) -> None:
        make_queue("other").put("theirs", "x")
        queue.put_many([NewJob("ours", "x"), NewJob("free", "y")])
        applied = queue.apply("move", JobFilter(state="ready", ids=("x", "y")), target="other")
        assert applied == Applied(done=1, changed=1)
        assert in_turn(queue) == ["ours"]

    @pytest.mark.parametrize("target", [None, "", "default", 7, "x" * 256])
    def test_the_target_must_be_another_queue(self, target: Any, queue: BaseQueue) -> None:
        with pytest.raises(InvalidInput, match="target"):
            queue.apply("move", READY, target=target)

    def test_other_actions_take_neither_target_nor_delay(self, queue: BaseQueue) -> None:
        with pytest.raises(InvalidInput, match="takes no target"):
            queue.apply("retry", FAILED, target="other")
        with pytest.raises(InvalidInput, match="takes no delay"):
            queue.apply("run_now", DELAYED, delay=1)


class TestCancel:
    @pytest.mark.parametrize("state", ["ready", "delayed", "blocked"])
    def test_waiting_jobs_become_dead_letters(self, state: Any, queue: BaseQueue) -> None:
        queue.put_many([NewJob(1, group_id="g"), NewJob(2, group_id="g"), NewJob(3, delay=60)])
        assert queue.apply("cancel", JobFilter(state=state)).done == 1
        (dead,) = listed(queue)
        assert (dead.reason, dead.payload) == (
            "cancelled",
            {"ready": b"1", "blocked": b"2", "delayed": b"3"}[state],
        )

    def test_running_jobs_are_asked_to_stop(self, queue: BaseQueue) -> None:
        queue.put_many([1, 2])
        jobs = queue.get_many(2)
        assert queue.apply("cancel", PROCESSING).done == 2
        assert [queue.extend_lease(job, 60) for job in jobs] == [False, False]

    def test_jobs_that_began_after_the_page_go_on(self, queue: BaseQueue, clock: Clock) -> None:
        queue.put_many([1, 2])
        queue.get_nowait()
        seen = clock.now()
        clock.advance(1)
        later = queue.get_nowait()
        assert queue.apply("cancel", PROCESSING, as_of=seen).done == 1
        assert queue.extend_lease(later, 60)


class TestDiscard:
    def test_a_dead_letter_is_marked_and_kept(self, queue: BaseQueue, clock: Clock) -> None:
        (id,) = fail(queue, 1)
        clock.advance(5)
        assert queue.apply("discard", FAILED) == Applied(done=1)
        dead = record(queue, id)
        assert (dead.state, dead.reason, dead.finished_at) == ("failed", "discarded", clock.now())
        assert len(dead.history) == 1

    def test_a_second_time_changes_nothing(self, queue: BaseQueue, clock: Clock) -> None:
        (id,) = fail(queue, 1)
        queue.apply("discard", FAILED)
        clock.advance(5)
        at = record(queue, id).finished_at
        again = queue.apply("discard", JobFilter(ids=(id,)))
        assert again == Applied(changed=1)
        assert record(queue, id).finished_at == at

    @pytest.mark.parametrize("state", ["ready", "failed"])
    def test_retry_restores_it(self, state: Any, queue: BaseQueue) -> None:
        if state == "failed":
            fail(queue, 1)
        else:
            queue.put(1)
        queue.apply("discard", JobFilter(state=state))
        assert empty(queue)
        assert queue.apply("retry", JobFilter(reason="discarded")).done == 1
        assert queue.get_nowait().data == 1

    def test_it_is_pruned_after_the_retention_and_other_dead_letters_are_not(
        self, make_queue: Make, clock: Clock
    ) -> None:
        queue = make_queue(retention_seconds=60)
        ids = fail(queue, 1, 2)
        queue.apply("discard", JobFilter(ids=(ids[0],)))
        clock.advance(59)
        assert queue.prune() == 0
        clock.advance(2)
        assert queue.prune() == 1
        assert [one.id for one in listed(queue)] == ids[1:]

    def test_all_delayed_ones_are_meant_whenever_they_are_due(self, queue: BaseQueue) -> None:
        queue.put_many([NewJob(n, delay=60 * (n + 1)) for n in range(3)])
        assert queue.apply("discard", DELAYED).done == 3


def test_a_filter_by_attempts_means_at_least_so_many(queue: BaseQueue) -> None:
    queue.put_many(["once", "twice"])
    first, second = queue.get_many(2)
    queue.fail(first)
    queue.nack(second)
    queue.fail(queue.get_nowait())
    assert data_of(queue, 1) == [b'"once"', b'"twice"']
    assert data_of(queue, 2) == [b'"twice"']
    assert queue.count(JobFilter(min_attempts=2)) == 1
    assert queue.apply("retry", JobFilter(min_attempts=2)).done == 1
    assert data(queue.get_many(5)) == ["twice"]


def data_of(queue: BaseQueue, min_attempts: int) -> list[bytes]:
    return sorted(one.payload for one in listed(queue, min_attempts=min_attempts))
