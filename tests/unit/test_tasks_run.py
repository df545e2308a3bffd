"""Running tasks: results, errors, signals, and jobs that are no task any more."""

from __future__ import annotations

import sys
import uuid
from typing import Any

import pytest
from django.core.exceptions import SuspiciousOperation
from django.test import override_settings
from django.utils import timezone

from django_localqueue import JobFilter, queues
from django_localqueue.tasks import LocalQueueBackend, run_task
from django_localqueue.tasks.compat import (
    TaskResultDoesNotExist,
    TaskResultStatus,
    task_backends,
    task_enqueued,
    task_finished,
    task_started,
)
from django_localqueue.worker import Worker
from django_localqueue.worker.django import DjangoExecutor
from tests.unit.task_samples import (
    add,
    add_later,
    attempt_of,
    fail,
    fail_later,
    give,
    leave,
    send,
    wait_for_cancel,
)

OURS = {"BACKEND": "django_localqueue.tasks.LocalQueueBackend"}


def drain(name: str = "w") -> None:
    """Run everything that waits in every queue."""
    Worker(queues.all(), DjangoExecutor(run_task, {}), burst=True, name=name).run()


def backend() -> LocalQueueBackend:
    found = task_backends["default"]
    assert isinstance(found, LocalQueueBackend)
    return found


def test_a_task_that_returns_is_successful() -> None:
    result = add.enqueue(1, b=2)
    before = timezone.now()
    drain("w1")
    result.refresh()
    assert result.status == TaskResultStatus.SUCCESSFUL
    assert result.return_value == 3
    assert result.is_finished
    assert result.worker_ids == ["w1"]
    assert before <= result.started_at <= result.finished_at <= timezone.now()
    assert result.last_attempted_at == result.started_at
    assert result.errors == []


def test_the_traceback_of_an_asynchronous_task_begins_at_the_task_too() -> None:
    result = fail_later.enqueue("no such page")
    drain("w1")
    result.refresh()
    (error,) = result.errors
    assert "in fail_later" in error.traceback
    assert error.traceback.count("\n  File ") == 1


def test_a_task_that_raises_fails_at_once_with_its_traceback() -> None:
    result = fail.enqueue("no such page")
    drain("w1")
    result.refresh()
    record = queues["default"].lookup(result.id)
    assert (record.state, record.reason, record.attempts) == ("failed", "failed", 1)
    assert result.status == TaskResultStatus.FAILED
    (error,) = result.errors
    assert error.exception_class is ValueError
    assert "in fail" in error.traceback
    assert "ValueError: no such page" in error.traceback
    assert error.traceback.count("\n  File ") == 1  # the task's own frame
    assert result.worker_ids == ["w1"]
    with pytest.raises(ValueError, match="failed"):
        _ = result.return_value


def test_a_task_that_leaves_python_fails_alone() -> None:
    left = leave.enqueue()
    good = add.enqueue(1)
    drain()
    left.refresh()
    good.refresh()
    assert left.status == TaskResultStatus.FAILED
    assert left.errors[0].exception_class is SystemExit
    assert good.status == TaskResultStatus.SUCCESSFUL


def test_a_running_task_is_running() -> None:
    result = add.enqueue(1)
    queues["default"].get(worker="w1")
    result.refresh()
    assert result.status == TaskResultStatus.RUNNING
    assert result.worker_ids == ["w1"]
    assert result.started_at is not None
    assert result.finished_at is None


def test_a_return_value_is_normalized() -> None:
    result = give.enqueue("tuple")
    drain()
    result.refresh()
    assert result.return_value == [1, "two", {"three": 3}]


def test_none_is_a_return_value() -> None:
    result = give.enqueue("none")
    drain()
    result.refresh()
    assert result.status == TaskResultStatus.SUCCESSFUL
    assert result.return_value is None


@pytest.mark.parametrize("what", ["object", "set", "nan", "keys", "huge"])
def test_a_return_value_that_cant_be_kept_fails_the_task(what: str) -> None:
    result = give.enqueue(what)
    drain()
    result.refresh()
    assert result.status == TaskResultStatus.FAILED
    assert issubclass(result.errors[0].exception_class, (TypeError, ValueError))


def test_an_async_task_is_run() -> None:
    result = add_later.enqueue(1, 2)
    drain()
    result.refresh()
    assert result.return_value == 3


def test_a_task_with_context_knows_its_attempt_and_result() -> None:
    result = attempt_of.enqueue("note")
    drain()
    result.refresh()
    assert result.return_value == ["note", 1, result.id]


def test_attempts_of_workers_that_died_are_counted_and_named() -> None:
    result = attempt_of.enqueue("note")
    for worker in ("dead1", "dead2"):
        job = queues["default"].get(worker=worker)
        queues["default"].nack(job, last_error=ConnectionError("gone"))
    drain("w3")
    result.refresh()
    assert result.return_value == ["note", 3, result.id]
    assert result.worker_ids == ["dead1", "dead2", "w3"]
    assert [error.exception_class for error in result.errors] == [ConnectionError] * 2
    assert result.started_at < result.last_attempted_at


def test_a_task_retried_by_hand_runs_again_and_keeps_its_errors() -> None:
    result = fail.enqueue("once")
    drain()
    assert queues["default"].retry_failed(result.id)
    result.refresh()
    assert result.status == TaskResultStatus.READY
    drain()
    result.refresh()
    assert [error.exception_class for error in result.errors] == [ValueError] * 2


def test_a_task_stopped_because_it_was_cancelled_says_so() -> None:
    result = wait_for_cancel.enqueue()
    drain()
    assert queues["default"].lookup(result.id).reason == "cancelled"


def test_a_cancelled_or_discarded_task_is_failed_with_the_reason() -> None:
    cancelled, discarded = add.enqueue(1), add.enqueue(2)
    queues["default"].cancel(cancelled.id)
    queues["default"].apply("discard", JobFilter(state="ready"))
    for result, word in ((cancelled, "cancelled"), (discarded, "discarded")):
        result.refresh()
        assert result.status == TaskResultStatus.FAILED
        assert word in result.errors[-1].traceback
        assert issubclass(result.errors[-1].exception_class, Exception)


@pytest.mark.parametrize(
    "id",
    ["", "no uuid", "0" * 32, "x" * 1_000, "\x00", "\ud800", str(uuid.UUID(int=1)), 5, None, b"x"],
)
def test_an_unknown_or_malformed_id_has_no_result(id: Any) -> None:
    with pytest.raises(TaskResultDoesNotExist):
        backend().get_result(id)


def test_a_plain_job_has_no_task_result() -> None:
    id = queues["default"].put({}, job_id=str(uuid.uuid4()))
    with pytest.raises(TaskResultDoesNotExist):
        backend().get_result(id)


@override_settings(TASKS={"default": OURS, "other": OURS})
def test_a_result_of_another_backend_is_not_found() -> None:
    result = add.using(backend="other").enqueue(1)
    assert task_backends["other"].get_result(result.id) == result
    with pytest.raises(TaskResultDoesNotExist):
        backend().get_result(result.id)


def test_the_result_of_something_that_is_no_task_is_not_made() -> None:
    id = queues["default"].put(
        {"args": [], "kwargs": {}}, job_id=str(uuid.uuid4()), task="os.getcwd"
    )
    with pytest.raises(SuspiciousOperation):
        backend().get_result(id)


@pytest.mark.parametrize(
    ("task", "data", "message"),
    [
        ("tests.unit.task_samples.gone", {"args": [], "kwargs": {}}, "gone"),
        ("no_such_module.at_all", {"args": [], "kwargs": {}}, "no_such_module"),
        ("notdotted", {"args": [], "kwargs": {}}, "notdotted"),
        ("os.getcwd", {"args": [], "kwargs": {}}, "is not a task"),
        ("tests.unit.task_samples.plain", {"args": [1], "kwargs": {}}, "is not a task"),
        ("tests.unit.task_samples.under_another_name", {"args": [1], "kwargs": {}}, "not a task"),
        ("tests.unit.task_samples.add", [1, 2], "must be"),
        ("tests.unit.task_samples.add", {"args": 1, "kwargs": {}}, "must be"),
        ("tests.unit.task_samples.add", {"args": [], "kwargs": {"c": 1}}, "argument"),
    ],
)
def test_a_job_that_is_no_call_of_a_task_fails_and_the_worker_goes_on(
    task: str, data: Any, message: str
) -> None:
    bad = queues["default"].put(data, task=task)
    good = add.enqueue(1)
    drain()
    record = queues["default"].lookup(bad)
    assert (record.state, record.reason, record.attempts) == ("failed", "failed", 1)
    assert message in record.error.message
    good.refresh()
    assert good.status == TaskResultStatus.SUCCESSFUL


def test_a_task_of_a_backend_that_is_gone_fails_with_its_name() -> None:
    id = queues["default"].put(
        {"args": [1], "kwargs": {}},
        task="tests.unit.task_samples.add",
        headers={"backend": "retired"},
    )
    drain()
    assert "retired" in queues["default"].lookup(id).error.message


def test_a_task_is_run_by_the_queue_it_was_put_into() -> None:
    seen = []

    def remember(sender: type, task_result: Any, **kwargs: Any) -> None:
        seen.append((task_result.task.queue_name, task_result.task.priority))

    task_started.connect(remember)
    try:
        send.using(queue_name="default", priority=-4).enqueue("ann")
        drain()
    finally:
        task_started.disconnect(remember)
    assert seen == [("default", -4)]


def test_signals_come_from_the_class_in_order_with_the_state() -> None:
    seen: list[Any] = []
    receivers = []
    for name, signal in (
        ("enqueued", task_enqueued),
        ("started", task_started),
        ("finished", task_finished),
    ):

        def receiver(sender: type, task_result: Any, name: str = name, **kwargs: Any) -> None:
            seen.append((name, sender, str(task_result.status), sys.exc_info()[0]))

        signal.connect(receiver, sender=LocalQueueBackend, weak=False)
        receivers.append((signal, receiver))
    try:
        add.enqueue(1)
        drain()
        fail.enqueue("x")
        drain()
    finally:
        for signal, receiver in receivers:
            signal.disconnect(receiver, sender=LocalQueueBackend)
    kinds = [("enqueued", "READY", None), ("started", "RUNNING", None)]
    expected = [
        *kinds,
        ("finished", "SUCCESSFUL", None),
        *kinds,
        ("finished", "FAILED", ValueError),
    ]
    assert seen == [(name, LocalQueueBackend, status, error) for name, status, error in expected]


@pytest.mark.parametrize("signal", [task_enqueued, task_started, task_finished])
def test_a_receiver_that_raises_does_not_change_the_outcome(signal: Any) -> None:
    def broken(**kwargs: Any) -> None:
        raise RuntimeError("a receiver's own fault")

    signal.connect(broken)
    try:
        result = add.enqueue(1)
        drain()
    finally:
        signal.disconnect(broken)
    result.refresh()
    assert result.status == TaskResultStatus.SUCCESSFUL
