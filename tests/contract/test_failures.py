"""Dead letters grouped by what went wrong, and what was done by the minute."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from django_localqueue.backends.base import BaseQueue
from django_localqueue.exceptions import InvalidInput
from django_localqueue.types import ErrorRecord, FailureGroup, JobFilter
from tests.contract.backends import Clock
from tests.contract.helpers import listed, record

Make = Callable[..., BaseQueue]
HOUR = 3_600
BOOM = ErrorRecord("app.Boom", "no. 1", "trace", "app.py:7")


def fail(
    queue: BaseQueue, number: int = 1, error: ErrorRecord = BOOM, task: str | None = "app.run"
) -> list[str]:
    """Make dead letters with an error; return their ids."""
    ids = queue.put_many([{"n": n} for n in range(number)]) if task is None else None
    if ids is None:
        ids = [queue.put({"n": n}, task=task) for n in range(number)]
    for job in queue.get_many(number):
        queue.fail(job, error)
    return [str(id) for id in ids]


def totals(queue: BaseQueue) -> list[int]:
    return [group.total for group in queue.failures()]


def only(queue: BaseQueue) -> FailureGroup:
    (group,) = queue.failures()
    return group


class TestFailures:
    def test_one_error_at_one_place_in_one_task_is_one_group(
        self, queue: BaseQueue, clock: Clock
    ) -> None:
        fail(queue, 2)
        first = clock.now()
        clock.advance(10)
        fail(queue, 1, ErrorRecord("app.Boom", "another message", "t", "app.py:7"))
        group = only(queue)
        assert (group.error_class, group.place, group.task) == ("app.Boom", "app.py:7", "app.run")
        assert (group.total, group.first_at, group.last_at) == (3, first, clock.now())

    @pytest.mark.parametrize(
        ("error", "task"),
        [
            (ErrorRecord("app.Other", "", "", "app.py:7"), "app.run"),
            (ErrorRecord("app.Boom", "", "", "app.py:8"), "app.run"),
            (BOOM, "app.other"),
            (BOOM, None),
        ],
    )
    def test_another_class_place_or_task_is_another_group(
        self, error: ErrorRecord, task: str | None, queue: BaseQueue, clock: Clock
    ) -> None:
        fail(queue)
        clock.advance(1)
        fail(queue, 1, error, task)
        assert totals(queue) == [1, 1]
        assert queue.failures()[0].task == (task or "")

    def test_counts_are_of_an_hour_a_day_and_a_week(self, queue: BaseQueue, clock: Clock) -> None:
        for pause in (5 * 24 * HOUR, 3 * 24 * HOUR, 2 * HOUR, 60):
            fail(queue)
            clock.advance(pause)
        group = only(queue)
        assert (group.total, group.week, group.day, group.hour) == (4, 3, 2, 1)
        assert sum(group.series) == 3
        assert len(group.series) == 28
        assert group.series[-1] == 2 or group.series[-2:] == (1, 1)

    def test_the_one_seen_last_comes_first_and_a_page_goes_on_behind_a_group(
        self, queue: BaseQueue, clock: Clock
    ) -> None:
        for line in range(5):
            fail(queue, 1, ErrorRecord("E", "", "", f"a:{line}"))
            clock.advance(1)
        first = queue.failures(limit=2)
        rest = queue.failures(limit=10, after=first[-1].cursor)
        assert [one.place for one in first + rest] == ["a:4", "a:3", "a:2", "a:1", "a:0"]

    def test_what_is_retried_purged_or_discarded_leaves_its_group(
        self, queue: BaseQueue, clock: Clock
    ) -> None:
        ids = fail(queue, 4)
        assert queue.retry_failed(ids[0])
        assert totals(queue) == [3]
        queue.apply("discard", JobFilter(ids=(ids[1],)))
        assert totals(queue) == [2]
        queue.apply("purge", JobFilter(ids=(ids[2],)))
        group = only(queue)
        assert (group.total, group.hour, sum(group.series)) == (1, 1, 1)
        queue.purge(0, include_failed=True)
        assert queue.failures() == []

    def test_a_group_ends_with_its_last_job_and_begins_anew(
        self, queue: BaseQueue, clock: Clock
    ) -> None:
        (id,) = fail(queue)
        queue.retry_failed(id)
        assert queue.failures() == []
        clock.advance(5)
        queue.fail(queue.get_nowait(), BOOM)
        assert (only(queue).total, only(queue).first_at) == (1, clock.now())

    def test_cancelled_and_discarded_jobs_are_in_no_group(self, queue: BaseQueue) -> None:
        queue.cancel(queue.put(1))
        queue.put(2)
        queue.apply("discard", JobFilter(state="ready"))
        assert queue.failures() == []

    def test_jobs_whose_deliveries_are_used_up_are_counted(
        self, make_queue: Make, clock: Clock
    ) -> None:
        queue = make_queue(max_retries=0)
        queue.put_many([1, 2])
        nacked, _lost = queue.get_many(2)
        queue.nack(nacked, last_error=BOOM)
        clock.advance(61)
        assert queue.reclaim_expired_leases() == 1
        assert sorted(group.error_class for group in queue.failures()) == ["", "app.Boom"]

    def test_a_moved_dead_letter_is_counted_where_it_is(
        self, queue: BaseQueue, make_queue: Make
    ) -> None:
        ids = fail(queue, 2)
        queue.apply("move", JobFilter(ids=(ids[0],)), target="other")
        other = make_queue("other")
        assert (totals(queue), totals(other)) == ([1], [1])
        assert only(other).key != only(queue).key
        assert [one.id for one in listed(other, failure=only(other).key)] == ids[:1]

    def test_a_filter_by_group_finds_its_jobs_newest_first_by_pages(
        self, queue: BaseQueue, clock: Clock
    ) -> None:
        ids = []
        for _ in range(5):
            ids += fail(queue)
            clock.advance(1)
            fail(queue, 1, ErrorRecord("other", "", "", ""))
        key = next(group.key for group in queue.failures() if group.place)
        assert [one.id for one in listed(queue, limit=2, failure=key)] == ids[::-1]
        assert queue.count(JobFilter(failure=key)) == 5
        assert record(queue, ids[0]).failure == key
        assert queue.apply("retry", JobFilter(failure=key)).done == 5
        assert totals(queue) == [5]

    @pytest.mark.parametrize("key", ["", "nonsense", "-1", "9" * 30, "1 OR 1=1"])
    def test_a_key_that_no_group_has_finds_nothing(self, key: str, queue: BaseQueue) -> None:
        ids = fail(queue)
        assert listed(queue, failure=key) == []
        assert queue.apply("retry", JobFilter(failure=key, ids=tuple(ids))).done == 0

    def test_queues_of_one_store_have_groups_of_their_own(
        self, queue: BaseQueue, make_queue: Make
    ) -> None:
        fail(queue)
        assert make_queue("other").failures() == []

    def test_errors_are_told_as_they_were(self, queue: BaseQueue) -> None:
        strange = ErrorRecord("base64:x", "m", "t", "ünïcode <b>:\x00 1")
        fail(queue, 1, strange)
        assert (only(queue).error_class, only(queue).place) == (strange.error_class, strange.place)

    @pytest.mark.parametrize("limit", [0, 1_001, "many"])
    def test_a_limit_out_of_range_is_refused(self, limit: int, queue: BaseQueue) -> None:
        with pytest.raises(InvalidInput, match="limit"):
            queue.failures(limit)


def done(queue: BaseQueue, number: int) -> None:
    queue.put_many(list(range(number)))
    for job in queue.get_many(number):
        queue.ack(job)


def minutes(queue: BaseQueue, clock: Clock, back: int = 600, step: int = 60) -> list[list[int]]:
    """Return [acked, failed] of the steps in which anything happened."""
    steps = queue.activity(clock.now() - back * 1_000_000, clock.now() + 1, step)
    return [[one.acked, one.failed] for one in steps if one.acked or one.failed]


class TestActivity:
    def test_jobs_are_counted_in_the_minute_in_which_they_ended(
        self, queue: BaseQueue, clock: Clock
    ) -> None:
        done(queue, 3)
        clock.advance(60)
        done(queue, 1)
        fail(queue, 2)
        assert minutes(queue, clock) == [[3, 0], [1, 2]]
        steps = queue.activity(clock.now() - 600_000_000, clock.now())
        assert all(one.at % 60_000_000 == 0 for one in steps)
        assert len(steps) in (10, 11)

    def test_what_was_counted_is_not_counted_again(self, queue: BaseQueue, clock: Clock) -> None:
        for _ in range(3):
            done(queue, 2)
            clock.advance(40)
            assert sum(acked for acked, _ in minutes(queue, clock)) % 2 == 0
        clock.advance(100)
        for _ in range(2):
            assert sum(acked for acked, _ in minutes(queue, clock)) == 6

    def test_purged_and_pruned_jobs_stay_counted(self, make_queue: Make, clock: Clock) -> None:
        queue = make_queue(retention_seconds=1)
        done(queue, 2)
        fail(queue, 1)
        queue.purge(0, include_failed=True)
        clock.advance(1)
        done(queue, 3)
        clock.advance(2)
        assert queue.prune() == 3
        clock.advance(1)
        done(queue, 1)
        queue.apply("purge", JobFilter(state="acked"))
        clock.advance(120)
        assert [sum(column) for column in zip(*minutes(queue, clock), strict=True)] == [6, 1]

    def test_a_failure_that_was_retried_did_happen(self, queue: BaseQueue, clock: Clock) -> None:
        (id,) = fail(queue)
        queue.retry_failed(id)
        assert minutes(queue, clock) == [[0, 1]]

    def test_steps_begin_at_multiples_of_their_length(self, queue: BaseQueue, clock: Clock) -> None:
        done(queue, 2)
        clock.advance(1_800)
        done(queue, 1)
        steps = queue.activity(clock.now() - 86_400_000_000, clock.now(), HOUR)
        assert all(one.at % 3_600_000_000 == 0 for one in steps)
        assert sum(one.acked for one in steps) == 3
        assert len(steps) in (24, 25)

    def test_a_queue_that_did_nothing_has_steps_too(self, queue: BaseQueue, clock: Clock) -> None:
        steps = queue.activity(clock.now() - 60_000_000 * 5, clock.now())
        assert {(one.acked, one.failed) for one in steps} == {(0, 0)}

    @pytest.mark.parametrize("step", [0, 59, 61, -60, 1.5])
    def test_steps_are_whole_minutes(self, step: int, queue: BaseQueue) -> None:
        with pytest.raises(InvalidInput, match="step"):
            queue.activity(0, 60_000_000, step)

    def test_too_many_steps_are_refused(self, queue: BaseQueue) -> None:
        with pytest.raises(InvalidInput, match="longer step"):
            queue.activity(0, 60_000_000 * 5_001)
