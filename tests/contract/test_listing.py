"""list, count and apply: filters, pages by key, actions as of a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from django_localqueue.backends.base import BaseQueue
from django_localqueue.types import Applied, ErrorRecord, JobFilter, JobRecord, NewJob
from tests.contract.backends import Clock
from tests.contract.helpers import data, listed, pages, record

FAILED = JobFilter(state="failed")


def kill(queue: BaseQueue, jobs: list[NewJob], error: ErrorRecord | None = None) -> list[str]:
    """Put the jobs and make each a dead letter; return the ids."""
    ids = queue.put_many(jobs)
    for job in queue.get_many(len(jobs)):
        queue.fail(job, last_error=error)
    return list(ids)


def ids(records: list[JobRecord]) -> list[str]:
    return [one.id for one in records]


class TestFilters:
    @pytest.fixture
    def letters(self, queue: BaseQueue, clock: Clock) -> dict[str, str]:
        """Two dead letters of different kinds, a minute apart, by name."""
        (mail,) = kill(
            queue,
            [NewJob(1, "Mail-1", task="app.tasks.send_mail", group_id="customer 7")],
            ErrorRecord("smtplib.SMTPException", "Mailbox FULL: 100%", "Traceback", "smtp.py:12"),
        )
        clock.advance(60)
        (scan,) = kill(
            queue,
            [NewJob(2, "scan-1", task="app.tasks.scan")],
            ErrorRecord("OSError", "No such file", "Traceback", "scan_files.py:99"),
        )
        return {"mail": mail, "scan": scan}

    @pytest.mark.parametrize(
        ("filter", "found"),
        [
            ({}, ["scan", "mail"]),
            ({"task": "app.tasks.scan"}, ["scan"]),
            ({"task": "app.tasks"}, []),
            ({"error_class": "OSError"}, ["scan"]),
            ({"error_class": "oserror"}, []),
            ({"group_id": "customer 7"}, ["mail"]),
            ({"group_id": "customer"}, []),
            ({"reason": "failed"}, ["scan", "mail"]),
            ({"reason": "exhausted"}, []),
            ({"ids": ("Mail-1",)}, ["mail"]),
            ({"ids": ("scan-1", "Mail-1", "nobody")}, ["scan", "mail"]),
            ({"ids": ()}, []),
            ({"text": "mailbox full"}, ["mail"]),
            ({"text": "SMTPEXCEPTION"}, ["mail"]),
            ({"text": "SCAN_FILES.py:9"}, ["scan"]),
            ({"text": "TASKS.SEND"}, ["mail"]),
            ({"text": "MAIL-1"}, ["mail"]),
            ({"text": "100%"}, ["mail"]),
            ({"text": "%"}, ["mail"]),
            ({"text": "_such_"}, []),
            ({"text": "nothing like it"}, []),
            ({"task": "app.tasks.scan", "text": "full"}, []),
        ],
        ids=str,
    )
    def test_a_filter_finds_what_it_says(
        self, filter: dict[str, Any], found: list[str], letters: dict[str, str], queue: BaseQueue
    ) -> None:
        assert ids(listed(queue, **filter)) == [letters[name] for name in found]
        assert queue.count(JobFilter(**filter)) == len(found)

    def test_since_and_until_bound_the_time_it_finished(
        self, letters: dict[str, str], queue: BaseQueue, clock: Clock
    ) -> None:
        middle = clock.now() - 30_000_000
        assert ids(listed(queue, since=middle)) == [letters["scan"]]
        assert ids(listed(queue, until=middle)) == [letters["mail"]]

    def test_letters_beyond_ascii_are_found(self, queue: BaseQueue) -> None:
        found = kill(queue, [NewJob(1)], ErrorRecord("E", "Der Drucker in M\u00fcnchen brennt"))
        assert ids(listed(queue, text="M\u00fcnchen")) == found


class TestOrder:
    @pytest.mark.parametrize(("verb", "state"), [("ack", "acked"), ("fail", "failed")])
    def test_finished_jobs_are_listed_newest_first(
        self, verb: str, state: str, queue: BaseQueue, clock: Clock
    ) -> None:
        queue.put_many([1, 2, 3])
        one, two, three = queue.get_many(3)
        for job in (two, three, one):
            getattr(queue, verb)(job)
            clock.advance(1)
        assert ids(listed(queue, state=state)) == [one.id, three.id, two.id]

    def test_ready_jobs_are_listed_in_the_order_they_will_be_taken(
        self, queue: BaseQueue, clock: Clock
    ) -> None:
        for priority in (0, 5, -5, 5):
            queue.put(priority, priority=priority)
            clock.advance(1)
        expected = ids(listed(queue, 2, state="ready"))
        assert expected == [job.id for job in queue.get_many(4)]

    def test_delayed_jobs_are_listed_by_due_time(self, queue: BaseQueue) -> None:
        late, soon = queue.put(1, delay=60), queue.put(2, delay=5)
        assert ids(listed(queue, state="delayed")) == [soon, late]

    def test_running_jobs_are_listed_by_the_end_of_their_lease(self, queue: BaseQueue) -> None:
        long, short = queue.put(1), queue.put(2)
        queue.get(lease_seconds=600)
        queue.get(lease_seconds=10)
        assert ids(listed(queue, state="processing")) == [short, long]

    def test_blocked_jobs_are_listed_in_put_order(self, queue: BaseQueue) -> None:
        _, first, second = (queue.put(n, group_id="g") for n in range(3))
        assert ids(listed(queue, state="blocked")) == [first, second]

    def test_a_record_tells_its_state(self, queue: BaseQueue) -> None:
        queue.put(1, delay=60)
        assert [one.state for one in listed(queue, state="delayed")] == ["delayed"]


class TestPages:
    def test_pages_have_no_holes_and_no_repeats(self, queue: BaseQueue, clock: Clock) -> None:
        expected = kill(queue, [NewJob(n) for n in range(25)])  # all at one time
        clock.advance(1)
        expected += kill(queue, [NewJob(n) for n in range(10)])
        assert ids(listed(queue, 10)) == expected[::-1]

    @pytest.mark.parametrize("state", ["ready", "delayed", "processing", "acked", "blocked"])
    def test_pages_are_whole_in_every_state(self, state: str, queue: BaseQueue) -> None:
        group = "g" if state == "blocked" else None
        delay = 60 if state == "delayed" else 0
        priorities = [n % 3 for n in range(25)]
        queue.put_many([NewJob(0, priority=p, group_id=group, delay=delay) for p in priorities])
        if state in ("processing", "acked"):
            for job in queue.get_many(25):
                if state == "acked":
                    queue.ack(job)
        found = ids(listed(queue, 7, state=state))
        assert len(found) == len(set(found)) == (24 if group else 25)

    def test_a_filtered_list_pages_to_its_end(self, queue: BaseQueue) -> None:
        kill(queue, [NewJob(n, task="rare" if n % 50 == 0 else "common") for n in range(200)])
        assert len(listed(queue, 3, task="rare")) == 4

    def test_new_dead_letters_do_not_shift_the_pages_behind(
        self, queue: BaseQueue, clock: Clock
    ) -> None:
        old = kill(queue, [NewJob(n) for n in range(20)])
        reading = pages(queue, FAILED, 5)
        seen = ids(next(reading))
        clock.advance(1)
        kill(queue, [NewJob(n) for n in range(7)])
        seen += [id for page in reading for id in ids(page)]
        assert seen == old[::-1]

    def test_retried_letters_leave_no_hole(self, queue: BaseQueue) -> None:
        old = kill(queue, [NewJob(n) for n in range(20)])[::-1]
        reading = pages(queue, FAILED, 5)
        seen = ids(next(reading))
        for id in old[:5]:
            queue.retry_failed(id)
        seen += [id for page in reading for id in ids(page)]
        assert seen == old

    def test_a_records_cursor_goes_on_behind_it(self, queue: BaseQueue) -> None:
        kill(queue, [NewJob(n) for n in range(5)])
        first, second, *_ = queue.list(FAILED).records
        assert queue.list(FAILED, after=first.cursor).records[0] == second

    def test_the_last_page_says_so(self, queue: BaseQueue) -> None:
        kill(queue, [NewJob(1)])
        assert queue.list(FAILED, limit=10).next is None


def test_count_stops_at_its_cap(queue: BaseQueue) -> None:
    kill(queue, [NewJob(n) for n in range(20)])
    assert queue.count(cap=7) == 7
    assert queue.count() == 20


class TestApply:
    def test_retry_takes_every_dead_letter_that_matches(self, queue: BaseQueue) -> None:
        bad = kill(queue, [NewJob(n, task="app.bad") for n in range(3)])
        good = kill(queue, [NewJob(n, task="app.good") for n in range(2)])
        applied = queue.apply("retry", JobFilter(task="app.bad"))
        assert (applied.done, applied.more) == (3, False)
        assert {record(queue, id).state for id in bad} == {"ready"}
        assert {record(queue, id).state for id in good} == {"failed"}

    def test_a_retried_job_starts_over_and_keeps_its_history(self, queue: BaseQueue) -> None:
        (id,) = kill(queue, [NewJob(1)])
        queue.apply("retry", FAILED)
        retried = record(queue, id)
        assert (retried.attempts, len(retried.history)) == (0, 1)

    def test_purge_removes_dead_letters(self, queue: BaseQueue) -> None:
        gone = kill(queue, [NewJob(n) for n in range(3)])
        queue.put("live")
        assert queue.apply("purge", FAILED).done == 3
        assert [queue.lookup(id) for id in gone] == [None] * 3
        assert queue.stats().ready == 1

    def test_purge_acts_on_the_filters_state_alone(self, queue: BaseQueue) -> None:
        kill(queue, [NewJob(1)])
        queue.put(2)
        queue.ack(queue.get_nowait())
        assert queue.apply("purge", JobFilter(state="acked")).done == 1
        stats = queue.stats()
        assert (stats.acked, stats.failed) == (0, 1)

    @pytest.mark.parametrize("state", ["ready", "delayed", "blocked"])
    def test_discard_makes_waiting_jobs_dead_letters(self, state: Any, queue: BaseQueue) -> None:
        queue.put("lead", group_id="g")
        queue.put("follower", "blocked", group_id="g")
        queue.put("later", "delayed", delay=60)
        queue.put("plain", "ready")
        applied = queue.apply("discard", JobFilter(state=state, ids=(state,)))
        assert applied == Applied(done=1)
        dead = record(queue, state)
        assert (dead.state, dead.reason) == ("failed", "discarded")
        assert queue.stats().ready == 3

    def test_discarding_a_lead_lets_its_group_go_on(self, queue: BaseQueue) -> None:
        lead = queue.put("lead", group_id="g")
        queue.put("follower", group_id="g")
        queue.apply("discard", JobFilter(state="ready", ids=(lead,)))
        assert data(queue.get_many(5)) == ["follower"]

    def test_jobs_that_failed_after_the_time_are_left_alone(
        self, queue: BaseQueue, clock: Clock
    ) -> None:
        kill(queue, [NewJob(1)])
        seen = clock.now()
        clock.advance(1)
        (later,) = kill(queue, [NewJob(2)])
        assert queue.apply("retry", FAILED, as_of=seen).done == 1
        assert record(queue, later).state == "failed"

    def test_a_job_that_failed_again_after_the_time_is_left_alone(
        self, queue: BaseQueue, clock: Clock
    ) -> None:
        (id,) = kill(queue, [NewJob(1)])
        seen = clock.now()
        clock.advance(1)
        queue.retry_failed(id)
        queue.fail(queue.get_nowait())
        applied = queue.apply("purge", JobFilter(ids=(id,)), as_of=seen)
        assert (applied.done, applied.changed) == (0, 1)
        assert queue.lookup(id) is not None

    def test_jobs_put_after_the_time_are_not_discarded(
        self, queue: BaseQueue, clock: Clock
    ) -> None:
        queue.put("seen")
        seen = clock.now()
        clock.advance(1)
        queue.put("unseen")
        assert queue.apply("discard", JobFilter(state="ready"), as_of=seen).done == 1
        assert data(queue.get_many(5)) == ["unseen"]

    def test_chosen_jobs_that_changed_or_went_are_reported(
        self, queue: BaseQueue, clock: Clock
    ) -> None:
        dead = kill(queue, [NewJob(n) for n in range(10)])
        queue.retry_failed(dead[0])
        queue.retry_failed(dead[1])
        queue.apply("purge", JobFilter(ids=tuple(dead[2:5])))
        applied = queue.apply("retry", JobFilter(ids=tuple(dead)))
        assert applied == Applied(done=5, changed=2, not_found=3, more=False)

    def test_a_limit_leaves_the_rest_and_says_so(self, queue: BaseQueue) -> None:
        kill(queue, [NewJob(n) for n in range(10)])
        assert queue.apply("purge", FAILED, limit=4) == Applied(done=4, more=True)
        assert queue.apply("purge", FAILED) == Applied(done=6)

    def test_any_number_is_done_in_one_call(self, queue: BaseQueue) -> None:
        kill(queue, [NewJob(n) for n in range(3_000)])
        assert queue.apply("retry", FAILED).done == 3_000
        assert queue.stats().ready == 3_000

    def test_it_stays_within_its_queue(self, make_queue: Callable[..., BaseQueue]) -> None:
        one, two = make_queue("one"), make_queue("two")
        kill(one, [NewJob(1)])
        kill(two, [NewJob(2)])
        assert one.apply("purge", FAILED).done == 1
        assert two.stats().failed == 1

    def test_retried_jobs_of_one_group_come_in_put_order(self, queue: BaseQueue) -> None:
        queue.put_many([NewJob(n, group_id="g") for n in range(3)])
        while jobs := queue.get_many(1):
            queue.fail(jobs[0])
        queue.apply("retry", FAILED)
        seen = []
        while jobs := queue.get_many(5):
            seen += data(jobs)
            queue.ack(jobs[0])
        assert seen == [0, 1, 2]
