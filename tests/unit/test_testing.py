"""The helpers for tests of projects, in each kind of test."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Group
from django.db import connection, transaction
from django.test import TestCase, TransactionTestCase, override_settings

from django_localqueue import queues
from django_localqueue.testing import (
    JobFailed,
    assert_enqueued,
    assert_not_enqueued,
    clear,
    drain,
    enqueued,
)
from tests.unit import task_option_samples as samples
from tests.unit.task_samples import add, fail, send
from tests.unit.test_tasks_run import OURS

pytest_plugins = ["django_localqueue.testing_pytest"]

OUTBOX = {"default": {**OURS, "OPTIONS": {"outbox": True}}}
ON_COMMIT = {"default": {**OURS, "OPTIONS": {"enqueue_on_commit": True}}}


class InATransaction(TestCase):
    def test_jobs_run_in_the_transaction_of_the_test(self) -> None:
        Group.objects.create(name="seen")
        result = samples.bare.enqueue(1)
        assert drain(fail=True).done == 1
        result.refresh()
        assert result.return_value == 1
        assert connection.in_atomic_block
        assert Group.objects.filter(name="seen").exists()

    def test_what_waits_for_the_commit_runs_where_that_is_captured(self) -> None:
        with override_settings(TASKS=ON_COMMIT):
            with self.captureOnCommitCallbacks(execute=True):
                add.enqueue(1)
                assert_not_enqueued(add)
            assert_enqueued(add, [1])

    def test_the_outbox_is_moved_first(self) -> None:
        with override_settings(TASKS=OUTBOX):
            with transaction.atomic():
                result = add.enqueue(1, b=1)
            assert_enqueued(add, [1], {"b": 1})
            assert drain().done == 1
            result.refresh()
            assert result.return_value == 2


class WithRealCommits(TransactionTestCase):
    def test_jobs_run(self) -> None:
        Group.objects.create(name="seen")
        add.enqueue(1)
        assert drain().done == 1
        assert Group.objects.filter(name="seen").exists()


def test_jobs_that_jobs_enqueue_are_run_too() -> None:
    add.enqueue(1)
    send.enqueue("ann")
    drained = drain()
    assert (drained.done, drained.failed, len(drained)) == (2, 0, 2)


def test_only_the_named_queues_are_drained() -> None:
    add.enqueue(1)
    send.enqueue("ann")
    assert drain("emails").done == 1
    assert_enqueued(add)


def test_retries_and_delayed_jobs_wait_unless_asked_for() -> None:
    samples.attempts.clear()
    samples.flaky.enqueue(1, job_options={"backoff": 3_600})
    assert (drain().retried, drain().done) == (1, 0)
    assert drain(delayed=True).done == 1


def test_dead_letters_are_told_or_raised() -> None:
    fail.enqueue("no such page")
    drained = drain()
    assert drained.failed == 1
    assert drained.dead[0].error is not None
    assert drained.dead[0].error.message == "no such page"
    fail.enqueue("again")
    with pytest.raises(JobFailed, match="ValueError: again"):
        drain(fail=True)


def test_jobs_without_an_end_end_the_test() -> None:
    for n in range(5):
        add.enqueue(n)
    with pytest.raises(AssertionError, match="3 jobs"):
        drain(most=3)
    assert queues["default"].stats().processing == 0


def test_plain_jobs_run_with_their_handler() -> None:
    settings = {"default": {"LOCATION": ":memory:", "HANDLER": "builtins.len"}}
    with override_settings(LOCALQUEUE=settings):
        queues["default"].put({"n": 1})
        assert [(one.task, one.data) for one in enqueued()] == [(None, {"n": 1})]
        assert (drain(delayed=True).failed, queues["default"].stats().failed) == (1, 1)


def test_it_says_what_waits_where_the_assertion_fails() -> None:
    with pytest.raises(AssertionError, match="What waits: nothing"):
        assert_enqueued(add)
    add.enqueue(1, b=2)
    with pytest.raises(AssertionError, match=r"task_samples\.add\(1, b=2\)"):
        assert_enqueued(add, [2])
    with pytest.raises(AssertionError, match="is enqueued"):
        assert_not_enqueued(add)
    with pytest.raises(AssertionError, match="waits 1 times, not 2"):
        assert_enqueued(add, count=2)
    assert_not_enqueued(add, [2])
    assert_enqueued("tests.unit.task_samples.add", kwargs={"b": 2}, count=1)


def test_what_is_enqueued_is_told_in_its_order() -> None:
    send.enqueue("ann")
    add.enqueue(2)
    assert [(one.queue, one.args) for one in enqueued()] == [("emails", ["ann"]), ("default", [2])]
    assert [one.args for one in enqueued(add)] == [[2]]
    assert enqueued(queue="emails")[0].record.priority == 7


def test_clear_removes_everything() -> None:
    add.enqueue(1)
    clear()
    assert enqueued() == []
