"""Groups: one job at a time, in put order, and fairly between groups and plain jobs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from django_localqueue.backends.base import BaseQueue
from django_localqueue.types import Job
from tests.contract.backends import Clock
from tests.contract.helpers import data, empty, in_turn, record


def put(queue: BaseQueue, *names: str, group: str = "g") -> list[str]:
    return [queue.put(name, group_id=group) for name in names]


def states(queue: BaseQueue, ids: list[str]) -> list[str]:
    return [record(queue, id).state for id in ids]


class TestOneAtATime:
    def test_only_the_lead_of_a_group_is_claimable(self, queue: BaseQueue) -> None:
        ids = put(queue, "a", "b", "c")
        assert states(queue, ids) == ["ready", "blocked", "blocked"]
        assert data(queue.get_many(5)) == ["a"]
        assert states(queue, ids) == ["processing", "blocked", "blocked"]
        assert empty(queue)

    @pytest.mark.parametrize("verb", ["ack", "fail"])
    def test_a_finished_lead_lets_the_next_go(self, verb: str, queue: BaseQueue) -> None:
        put(queue, "a", "b")
        getattr(queue, verb)(queue.get_nowait())
        assert data(queue.get_many(5)) == ["b"]

    def test_jobs_of_a_group_come_in_put_order(self, queue: BaseQueue, clock: Clock) -> None:
        for name in ("a", "b", "c"):
            put(queue, name)
            clock.advance(1)
        assert in_turn(queue) == ["a", "b", "c"]

    def test_within_a_group_priority_does_not_count(self, queue: BaseQueue) -> None:
        queue.put("a", group_id="g", priority=-5)
        queue.put("b", group_id="g", priority=50)
        assert in_turn(queue) == ["a", "b"]

    def test_a_lead_has_its_own_priority_among_others(self, queue: BaseQueue) -> None:
        queue.put("low lead", group_id="g", priority=-5)
        queue.put("urgent follower", group_id="g", priority=50)
        queue.put("plain")
        assert in_turn(queue) == ["plain", "low lead", "urgent follower"]

    def test_the_same_group_id_in_two_queues_is_two_groups(
        self, make_queue: Callable[..., BaseQueue]
    ) -> None:
        one, two = make_queue("one"), make_queue("two")
        put(one, "a")
        put(two, "b")
        assert data(one.get_many(5)) == ["a"]
        assert data(two.get_many(5)) == ["b"]

    def test_a_batch_takes_one_of_each_group(self, queue: BaseQueue) -> None:
        put(queue, "a1", "a2", group="a")
        put(queue, "b1", "b2", group="b")
        assert data(queue.get_many(5)) == ["a1", "b1"]

    def test_a_put_while_the_lead_runs_is_blocked(self, queue: BaseQueue) -> None:
        put(queue, "a")
        queue.get_nowait()
        assert queue.put("b", group_id="g").state == "blocked"
        assert empty(queue)

    def test_a_group_that_ran_empty_starts_anew(self, queue: BaseQueue) -> None:
        put(queue, "a")
        queue.ack(queue.get_nowait())
        assert queue.put("b", group_id="g").state == "ready"


class TestNothingOvertakesTheLead:
    def test_a_delayed_lead_blocks(self, queue: BaseQueue, clock: Clock) -> None:
        queue.put("a", group_id="g", delay=10)
        put(queue, "b")
        assert empty(queue)
        clock.advance(11)
        assert in_turn(queue) == ["a", "b"]

    def test_a_nacked_lead_leads_again(self, queue: BaseQueue, clock: Clock) -> None:
        put(queue, "a", "b")
        clock.advance(1)
        queue.nack(queue.get_nowait())
        assert in_turn(queue) == ["a", "b"]

    def test_a_lead_nacked_with_a_delay_blocks(self, queue: BaseQueue, clock: Clock) -> None:
        put(queue, "a", "b", "c")
        queue.nack(queue.get_nowait(), delay=10)
        assert empty(queue)
        clock.advance(11)
        assert in_turn(queue) == ["a", "b", "c"]

    def test_a_released_lead_leads_again(self, queue: BaseQueue) -> None:
        put(queue, "a", "b")
        queue.release(queue.get_nowait())
        assert in_turn(queue) == ["a", "b"]

    def test_a_lapsed_lead_blocks_until_it_has_run_again(
        self, queue: BaseQueue, clock: Clock
    ) -> None:
        put(queue, "a", "b")
        queue.get_nowait()
        clock.advance(61)
        assert in_turn(queue) == ["a", "b"]

    def test_a_lead_that_used_its_deliveries_up_lets_the_next_go(
        self, make_queue: Callable[..., BaseQueue], clock: Clock
    ) -> None:
        queue = make_queue(max_retries=0)
        put(queue, "a", "b", "c")
        queue.nack(queue.get_nowait())
        queue.get_nowait()
        clock.advance(61)
        assert data(queue.get_many(5)) == ["c"]

    def test_a_follower_that_is_not_due_waits_for_its_time_when_it_leads(
        self, queue: BaseQueue, clock: Clock
    ) -> None:
        put(queue, "a")
        follower = queue.put("b", group_id="g", delay=10)
        put(queue, "c")
        assert record(queue, follower).state == "blocked"
        queue.ack(queue.get_nowait())
        assert record(queue, follower).state == "delayed"
        assert empty(queue)
        clock.advance(11)
        assert in_turn(queue) == ["b", "c"]

    def test_a_follower_whose_time_came_meanwhile_leads_at_once(
        self, queue: BaseQueue, clock: Clock
    ) -> None:
        put(queue, "a")
        queue.put("b", group_id="g", delay=10)
        job = queue.get_nowait()
        clock.advance(11)
        queue.ack(job)
        assert data(queue.get_many(1)) == ["b"]

    def test_a_cancelled_lead_lets_the_next_go(self, queue: BaseQueue) -> None:
        ids = put(queue, "a", "b")
        queue.cancel(ids[0])
        assert data(queue.get_many(5)) == ["b"]

    def test_a_cancelled_follower_is_left_out(self, queue: BaseQueue) -> None:
        ids = put(queue, "a", "b", "c")
        queue.cancel(ids[1])
        assert in_turn(queue) == ["a", "c"]

    def test_a_delayed_lead_that_is_cancelled_lets_the_next_go_at_once(
        self, queue: BaseQueue, clock: Clock
    ) -> None:
        lead = queue.put("a", group_id="g", delay=60)
        put(queue, "b")
        clock.advance(1)
        queue.cancel(lead)
        stats = queue.stats()
        assert (stats.ready, stats.delayed, stats.blocked) == (1, 0, 0)
        assert data(queue.get_many(5)) == ["b"]


class TestRetriedInAGroup:
    def failed(self, queue: BaseQueue) -> str:
        job = queue.get_nowait()
        queue.fail(job)
        return job.id

    def test_a_retried_job_leads_again_and_the_unclaimed_lead_steps_back(
        self, queue: BaseQueue
    ) -> None:
        ids = put(queue, "a", "b", "c")
        queue.retry_failed(self.failed(queue))
        assert states(queue, ids) == ["ready", "blocked", "blocked"]
        assert in_turn(queue) == ["a", "b", "c"]

    def test_a_delayed_lead_steps_back_too_and_keeps_its_time(
        self, queue: BaseQueue, clock: Clock
    ) -> None:
        put(queue, "a")
        queue.put("b", group_id="g", delay=60)
        queue.retry_failed(self.failed(queue))
        assert in_turn(queue) == ["a"]
        clock.advance(61)
        assert in_turn(queue) == ["b"]

    def test_a_processing_younger_lead_is_not_disturbed(self, queue: BaseQueue) -> None:
        ids = put(queue, "a", "b", "c")
        dead = self.failed(queue)
        running = queue.get_nowait()
        queue.retry_failed(dead)
        assert states(queue, ids) == ["blocked", "processing", "blocked"]
        assert empty(queue)
        queue.ack(running)
        assert in_turn(queue) == ["a", "c"]

    @pytest.mark.parametrize("verb", ["nack", "release"])
    def test_a_younger_lead_that_comes_back_steps_behind_the_retried(
        self, verb: str, queue: BaseQueue
    ) -> None:
        put(queue, "a", "b")
        dead = self.failed(queue)
        running = queue.get_nowait()
        queue.retry_failed(dead)
        getattr(queue, verb)(running)
        assert in_turn(queue) == ["a", "b"]

    def test_a_younger_lead_that_lapses_steps_behind_the_retried(
        self, queue: BaseQueue, clock: Clock
    ) -> None:
        put(queue, "a", "b")
        dead = self.failed(queue)
        queue.get_nowait()
        queue.retry_failed(dead)
        clock.advance(61)
        assert in_turn(queue) == ["a", "b"]

    def test_a_retried_job_that_is_not_the_oldest_waits_its_turn(self, queue: BaseQueue) -> None:
        put(queue, "a", "b", "c")
        queue.ack(queue.get_nowait())
        elder, younger = self.failed(queue), self.failed(queue)
        queue.retry_failed(younger)
        queue.retry_failed(elder)
        assert in_turn(queue) == ["b", "c"]

    def test_a_retried_job_waits_since_its_retry(self, queue: BaseQueue, clock: Clock) -> None:
        put(queue, "a")
        dead = self.failed(queue)
        clock.advance(1)
        queue.put("plain")
        clock.advance(1)
        queue.retry_failed(dead)
        assert in_turn(queue) == ["plain", "a"]


class TestBetweenGroupsAndPlainJobs:
    def rounds(self, queue: BaseQueue, clock: Clock, turns: int) -> list[object]:
        """Take jobs one at a time, a second each."""
        seen: list[object] = []
        for _ in range(turns):
            job = queue.get_nowait()
            seen.append(job.data)
            clock.advance(1)
            queue.ack(job)
        return seen

    def fill(self, queue: BaseQueue, clock: Clock) -> None:
        put(queue, "a1", "a2", "a3", group="a")
        clock.advance(1)
        put(queue, "b1", "b2", "b3", group="b")
        clock.advance(1)

    def test_the_group_served_longest_ago_comes_first(self, queue: BaseQueue, clock: Clock) -> None:
        self.fill(queue, clock)
        assert self.rounds(queue, clock, 6) == ["a1", "b1", "a2", "b2", "a3", "b3"]

    def test_a_new_group_joins_at_the_tail(self, queue: BaseQueue, clock: Clock) -> None:
        self.fill(queue, clock)
        assert self.rounds(queue, clock, 1) == ["a1"]
        put(queue, "c1", group="c")
        clock.advance(1)
        assert self.rounds(queue, clock, 4) == ["b1", "a2", "c1", "b2"]

    def test_a_deep_group_does_not_starve_plain_jobs(self, queue: BaseQueue, clock: Clock) -> None:
        put(queue, *[f"a{n}" for n in range(20)], group="a")
        clock.advance(1)
        queue.put("plain")
        clock.advance(1)
        assert self.rounds(queue, clock, 3) == ["a0", "plain", "a1"]

    def test_plain_jobs_do_not_starve_a_group(self, queue: BaseQueue, clock: Clock) -> None:
        put(queue, "a1", "a2", group="a")
        clock.advance(1)
        queue.put_many(["p1", "p2"])
        clock.advance(1)
        seen: list[object] = []
        for _ in range(6):
            seen += self.rounds(queue, clock, 1)
            queue.put("more")
        assert seen[:4] == ["a1", "p1", "p2", "a2"]

    def test_a_lead_put_after_the_groups_last_claim_waits_since_its_put(
        self, queue: BaseQueue, clock: Clock
    ) -> None:
        put(queue, "a1", group="a")
        job = queue.get_nowait()
        clock.advance(1)
        queue.put("plain")
        clock.advance(1)
        put(queue, "a2", group="a")
        queue.ack(job)
        assert in_turn(queue) == ["plain", "a2"]

    def test_a_lead_waits_since_its_due_time_where_that_is_later(
        self, queue: BaseQueue, clock: Clock
    ) -> None:
        put(queue, "a1", group="a")
        queue.put("a2", group_id="a", delay=10)
        queue.ack(queue.get_nowait())
        clock.advance(5)
        queue.put("put at 5")
        clock.advance(10)
        queue.put("put at 15")
        assert in_turn(queue) == ["put at 5", "a2", "put at 15"]

    def test_a_nacked_lead_waits_since_its_nack(self, queue: BaseQueue, clock: Clock) -> None:
        put(queue, "a1", group="a")
        job = queue.get_nowait()
        clock.advance(1)
        queue.put("plain")
        clock.advance(1)
        queue.nack(job)
        assert in_turn(queue) == ["plain", "a1"]

    def test_a_released_group_job_has_had_its_turn(self, queue: BaseQueue, clock: Clock) -> None:
        self.fill(queue, clock)
        queue.release(queue.get_nowait())
        assert self.rounds(queue, clock, 2) == ["b1", "a1"]

    def test_a_follower_freed_by_a_cancel_waits_since_its_own_put(
        self, queue: BaseQueue, clock: Clock
    ) -> None:
        lead = queue.put("a1", group_id="a", delay=60)
        put(queue, "a2", group="a")
        clock.advance(1)
        queue.put("plain")
        clock.advance(1)
        queue.cancel(lead)
        assert in_turn(queue) == ["a2", "plain"]

    def test_many_groups_take_turns(self, queue: BaseQueue, clock: Clock) -> None:
        groups = [f"g{n}" for n in range(10)]
        for turn in range(3):
            for group in groups:
                put(queue, f"{group}-{turn}", group=group)
        clock.advance(1)
        expected = [f"{group}-{turn}" for turn in range(3) for group in groups]
        assert self.rounds(queue, clock, 30) == expected


def test_two_live_leases_of_one_group_never_exist(queue: BaseQueue, clock: Clock) -> None:
    put(queue, "a", "b")
    job = queue.get_nowait()
    for _ in range(10):
        clock.advance(40)
        queue.extend_lease(job, 60)
        assert empty(queue)
    queue.ack(job)
    second: Job = queue.get_nowait()
    assert second.data == "b"
