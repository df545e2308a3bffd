"""Options of tasks: retries, backoff, what they say to the queue; at the task and at the call."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import override_settings

from django_localqueue import JobFilter, queues
from django_localqueue.exceptions import InvalidInput
from django_localqueue.tasks import (
    JobOptions,
    LocalQueueBackend,
    exponential,
    job_dead_lettered,
    job_options,
    job_retried,
)
from django_localqueue.tasks.backoff import delay_of
from django_localqueue.tasks.compat import TaskResultStatus, task_backends, task_finished
from django_localqueue.types import JobRecord
from tests.unit import task_option_samples as samples
from tests.unit.test_tasks_run import OURS, drain

IMMEDIATE, DUMMY = (
    f"{task_backends.__class__.__module__}.backends.{name}"
    for name in ("immediate.ImmediateBackend", "dummy.DummyBackend")
)


@pytest.fixture(autouse=True)
def _no_attempts() -> None:
    samples.attempts.clear()


def record(result: Any, queue: str = "default") -> JobRecord:
    found = queues[queue].lookup(result.id)
    assert found is not None
    return found


class TestRetries:
    def test_a_task_that_raises_runs_again_until_it_returns(self) -> None:
        result = samples.flaky.enqueue(2)
        drain("w")
        result.refresh()
        assert result.return_value == "done"
        assert result.attempts == 3
        assert [error.exception_class for error in result.errors] == [samples.Passing] * 2

    def test_it_fails_when_its_retries_are_used_up(self) -> None:
        result = samples.flaky.enqueue(9)
        drain()
        result.refresh()
        assert (result.status, result.attempts) == (TaskResultStatus.FAILED, 3)
        assert (record(result).state, record(result).reason) == ("failed", "failed")

    def test_retries_may_be_more_than_the_queues_deliveries(self) -> None:
        result = samples.flaky.enqueue(7, job_options={"retries": 8})
        drain()
        result.refresh()
        assert (result.return_value, result.attempts) == ("done", 8)

    def test_a_task_without_options_fails_at_once(self) -> None:
        result = samples.bare.enqueue("no number", 2, 3)
        drain()
        result.refresh()
        assert (result.status, result.attempts) == (TaskResultStatus.FAILED, 1)

    def test_while_it_waits_to_run_again_it_is_ready(self) -> None:
        result = samples.choosy.enqueue("passing")
        drain()
        result.refresh()
        assert (result.status, result.attempts) == (TaskResultStatus.READY, 1)
        found = record(result)
        assert found.state == "delayed"
        assert found.due_at is not None
        assert found.history[0].ended_at + 100_000_000 <= found.due_at

    @pytest.mark.parametrize(
        ("kind", "again"), [("passing", True), ("lasting", False), ("other", False)]
    )
    def test_only_some_exceptions_are_retried(self, kind: str, again: bool) -> None:
        result = samples.choosy.enqueue(kind)
        drain()
        assert record(result).state == ("delayed" if again else "failed")

    @pytest.mark.parametrize("task", [samples.leaving, samples.interrupted])
    def test_leaving_python_is_not_retried_unless_asked_for(self, task: Any) -> None:
        result = task.enqueue()
        asked = task.enqueue(job_options={"retry_on": ["SystemExit", "KeyboardInterrupt"]})
        drain()
        result.refresh()
        asked.refresh()
        assert (result.status, result.attempts) == (TaskResultStatus.FAILED, 1)
        assert (asked.status, asked.attempts) == (TaskResultStatus.FAILED, 4)

    def test_a_backoff_that_breaks_fails_the_task_with_its_own_error(self) -> None:
        result = samples.broken_backoff.enqueue()
        drain()
        result.refresh()
        assert result.status == TaskResultStatus.FAILED
        assert "the reason" in result.errors[0].traceback

    def test_a_cancelled_task_that_raises_is_not_retried(self) -> None:
        result = samples.flaky.enqueue(9)
        job = queues["default"].get()
        assert result.cancel()
        queues["default"].nack(job)
        assert record(result).reason == "cancelled"


class TestBackoff:
    def test_it_grows_to_its_maximum(self) -> None:
        backoff = exponential(base=10, factor=3, maximum=60, jitter=0)
        waits = [delay_of(backoff, attempt, ValueError()) for attempt in (1, 2, 3, 4, 10_000)]
        assert waits == [10, 30, 60, 60, 60]

    def test_chance_shortens_it_by_its_part(self) -> None:
        backoff = exponential(base=100, jitter=0.25)
        waits = {delay_of(backoff, 1, ValueError()) for _ in range(200)}
        assert len(waits) > 100
        assert all(75 <= wait <= 100 for wait in waits)

    def test_it_is_fixed_or_a_function_or_the_path_of_one(self) -> None:
        error = ValueError()
        assert delay_of(7, 3, error) == 7
        assert delay_of(samples.wait_long, 3, error) == 300
        assert delay_of("tests.unit.task_option_samples.wait_long", 3, error) == 300

    def test_the_job_waits_as_long(self) -> None:
        result = samples.growing.enqueue()
        drain()
        found = record(result)
        assert found.due_at is not None
        wait = found.due_at - found.history[0].ended_at
        assert 10_000_000 <= wait < 11_000_000


class TestWhatTheQueueIsTold:
    def test_group_expiry_retention_and_timeout(self) -> None:
        found = record(samples.report.enqueue(2026))
        assert found.group_id == "reports"
        assert found.unique_key == "report-2026"
        assert found.retention == 50_000_000
        assert found.expires_at is not None
        assert abs(found.expires_at - found.created_at - 600_000_000) < 60_000_000
        assert found.headers["timeout"] == 30

    def test_a_call_says_otherwise(self) -> None:
        found = record(
            samples.report.enqueue(
                2026, job_options={"group": "other", "retention": 5, "unique_key": "x"}
            )
        )
        assert (found.group_id, found.retention, found.unique_key) == ("other", 5_000_000, "x")
        assert found.expires_at is not None

    def test_job_options_may_be_an_object(self) -> None:
        assert record(samples.bare.enqueue(1, job_options=JobOptions(group="g"))).group_id == "g"

    @override_settings(
        TASKS={"default": {**OURS, "OPTIONS": {"job_options": {"retries": 1, "retention": 9}}}}
    )
    def test_the_backend_says_it_for_all_its_tasks(self) -> None:
        assert record(samples.bare.enqueue(1)).retention == 9_000_000
        assert record(samples.report.enqueue(1)).retention == 50_000_000
        result = samples.choosy.enqueue("other", job_options={"retry_on": ["ValueError"]})
        queues["default"].purge(0)
        drain()
        assert record(result).state == "delayed"

    def test_a_call_of_a_held_key_is_the_call_that_holds_it(self) -> None:
        first = samples.report.enqueue(2026)
        second = samples.report.enqueue(2026, draft=True)
        other = samples.report.enqueue(2027)
        assert second == first
        assert second.kwargs == {}
        assert other != first
        drain()
        again = samples.report.enqueue(2026)
        assert (again.id, again.status) == (first.id, TaskResultStatus.SUCCESSFUL)
        assert again.return_value == 2026

    def test_a_key_of_unknown_arguments_is_refused(self) -> None:
        with pytest.raises(InvalidInput, match="nobody"):
            samples.report.enqueue(1, job_options={"unique_key": "{nobody}"})
        assert queues["default"].stats().ready == 0


class TestOtherBackends:
    @pytest.mark.parametrize("function", ["flaky", "watched_from_within"])
    def test_options_are_left_out_of_account(self, function: str) -> None:
        with override_settings(TASKS={"default": {"BACKEND": IMMEDIATE}}):
            if function == "flaky":
                result = samples.flaky.using().enqueue(0, job_options={"retries": 9})
                assert result.return_value == "done"
            else:
                result = samples.watched_from_within.using().enqueue()
                assert result.return_value == [True, False]

    def test_an_async_task_takes_them_too(self) -> None:
        with override_settings(TASKS={"default": {"BACKEND": IMMEDIATE}}):
            assert samples.later.using().enqueue(4, job_options={"group": "g"}).return_value == 4
        result = samples.later.enqueue(5, job_options={"group": "g"})
        drain()
        result.refresh()
        assert result.return_value == 5

    def test_the_dummy_backend_stores_them(self) -> None:
        with override_settings(TASKS={"default": {"BACKEND": DUMMY}}):
            samples.flaky.using().enqueue(0, job_options={"retries": 9})


class TestBadInput:
    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"retires": 1}, "Did you mean 'retries'"),
            ({"retries": -1}, "retries"),
            ({"retries": 1.5}, "retries"),
            ({"backoff": -1}, "backoff"),
            ({"backoff": "nothing"}, "dotted path"),
            ({"backoff": {"base": 1}}, "exponential"),
            ({"backoff": lambda attempt, error: 1}, "top of a module"),
            ({"retry_on": [int]}, "exception classes"),
            ({"retry_on": 5}, "exception classes"),
            ({"timeout": 0}, "timeout"),
            ({"group": ""}, "group"),
            ({"expires": "soon"}, "expires"),
            ({"retention": float("nan")}, "retention"),
            ({"enqueue_on_commit": 1}, "True or False"),
            ([], "dict"),
        ],
    )
    def test_an_option_is_refused_where_it_is_given(self, given: Any, message: str) -> None:
        with pytest.raises(InvalidInput, match=message):
            samples.bare.enqueue(1, job_options=given)
        assert queues["default"].stats().ready == 0
        if isinstance(given, dict):
            with pytest.raises(InvalidInput, match=message):
                job_options(**given)

    def test_the_decorator_belongs_on_the_function(self) -> None:
        with pytest.raises(InvalidInput, match="beneath @task"):
            job_options(retries=1)(samples.bare)


class TestSignals:
    @pytest.fixture
    def seen(self) -> Iterator[list[Any]]:
        seen: list[Any] = []

        def note(signal: Any, sender: Any, **kwargs: Any) -> None:
            seen.append((signal, sender, kwargs, sys.exc_info()[0]))

        for signal in (job_retried, job_dead_lettered, task_finished):
            signal.connect(note)
        yield seen
        for signal in (job_retried, job_dead_lettered, task_finished):
            signal.disconnect(note)

    def test_a_retry_and_the_end_are_told(self, seen: list[Any]) -> None:
        result = samples.flaky.enqueue(9)
        drain()
        assert [one[0] for one in seen] == [
            job_retried,
            job_retried,
            task_finished,
            job_dead_lettered,
        ]
        assert {one[1] for one in seen} == {LocalQueueBackend}
        retried, dead = seen[0][2], seen[3][2]
        assert (retried["job"].id, retried["delay"]) == (result.id, 0)
        assert isinstance(retried["error"], samples.Passing)
        assert retried["task_result"].status == TaskResultStatus.READY
        assert (dead["reason"], dead["task_result"].status) == ("failed", TaskResultStatus.FAILED)
        assert seen[2][3] is samples.Passing

    def test_a_job_that_is_no_task_is_told_of_without_a_result(self, seen: list[Any]) -> None:
        queues["default"].put({"args": [], "kwargs": {}}, task="no.such.task")
        drain()
        ((signal, _, kwargs, _),) = seen
        assert signal is job_dead_lettered
        assert (kwargs["task_result"], kwargs["job"].task) == (None, "no.such.task")

    def test_a_receiver_that_raises_changes_nothing(self) -> None:
        def broken(**kwargs: Any) -> None:
            raise RuntimeError("a receiver's own fault")

        job_retried.connect(broken)
        try:
            result = samples.flaky.enqueue(1)
            drain()
        finally:
            job_retried.disconnect(broken)
        result.refresh()
        assert result.return_value == "done"


@override_settings(
    TASKS={
        "default": {
            **OURS,
            "OPTIONS": {"moved_tasks": {"old.place.bare": "tests.unit.task_option_samples.bare"}},
        }
    }
)
@pytest.mark.parametrize("headers", [{"backend": "default"}, {}], ids=["enqueued", "by hand"])
def test_a_task_that_moved_is_found_by_its_old_name(headers: dict[str, str]) -> None:
    result = samples.bare.enqueue(5)
    queues["default"].purge(0)
    id = queues["default"].put(
        {"args": [7], "kwargs": {}},
        "01890000-0000-7000-8000-000000000001",
        task="old.place.bare",
        headers=headers,
    )
    drain()
    moved = task_backends["default"].get_result(id)
    assert (moved.return_value, moved.task) == (7, result.task)


def test_a_payload_of_a_newer_version_fails_and_says_so() -> None:
    id = queues["default"].put(
        {"version": 2, "args": [1], "kwargs": {}, "more": 1},
        task="tests.unit.task_option_samples.bare",
    )
    good = samples.bare.enqueue(1)
    drain()
    found = queues["default"].lookup(id)
    assert found is not None
    assert found.error is not None
    assert (found.state, "newer" in found.error.message) == ("failed", True)
    good.refresh()
    assert good.status == TaskResultStatus.SUCCESSFUL


@pytest.mark.django_db
def test_a_task_that_closes_the_database_connection_harms_no_other() -> None:
    first, second = samples.closes_the_connection.enqueue(), samples.bare.enqueue(2)
    drain()
    first.refresh()
    second.refresh()
    assert (first.return_value, second.return_value) == (1, 2)


def test_discarding_leaves_options_alone() -> None:
    result = samples.report.enqueue(2026)
    assert queues["default"].apply("discard", JobFilter(state="ready")).done == 1
    assert queues["default"].retry_failed(result.id)
    assert record(result).group_id == "reports"
