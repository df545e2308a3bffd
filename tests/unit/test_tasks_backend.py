"""The task backend: what it enqueues and what it refuses."""

from __future__ import annotations

import asyncio
import datetime
import json
import sys
import uuid
from typing import Any

import pytest
from django.test import override_settings
from django.utils import timezone

from django_localqueue import InvalidInput, UnknownQueue, queues
from django_localqueue.tasks import LocalQueueBackend
from django_localqueue.tasks.calls import new_id as _new_id
from django_localqueue.tasks.compat import (
    InvalidTask,
    TaskResultStatus,
    task_backends,
)
from tests.unit import task_samples
from tests.unit.task_samples import (
    add,
    first_replaced,
    send,
    under_another_name,
)

OURS = {"BACKEND": "django_localqueue.tasks.LocalQueueBackend"}


def backend() -> LocalQueueBackend:
    found = task_backends["default"]
    assert isinstance(found, LocalQueueBackend)
    return found


def test_an_enqueued_task_waits_in_the_queue_of_its_name() -> None:
    result = send.enqueue("ann@example.org")
    record = queues["emails"].lookup(result.id)
    assert (record.state, record.priority) == ("ready", 7)
    assert record.task == "tests.unit.task_samples.send"
    assert json.loads(record.payload) == {"args": ["ann@example.org"], "kwargs": {}}
    assert record.headers["backend"] == "default"
    assert queues["default"].stats().ready == 0


def test_enqueue_returns_a_ready_result() -> None:
    before = timezone.now()
    result = add.enqueue(1, b=2)
    assert result.status == TaskResultStatus.READY
    assert (result.args, result.kwargs) == ([1], {"b": 2})
    assert before <= result.enqueued_at <= timezone.now()
    assert (result.started_at, result.finished_at, result.attempts) == (None, None, 0)
    assert result.backend == "default"
    assert result.errors == []


def test_get_result_is_equal_to_what_enqueue_returned() -> None:
    result = add.using(priority=3).enqueue(1, b=2)
    assert backend().get_result(result.id) == result
    assert add.get_result(result.id) == result


def test_get_result_is_equal_for_a_delayed_task() -> None:
    due = timezone.now() + datetime.timedelta(hours=1)
    result = add.using(run_after=due).enqueue(1)
    found = backend().get_result(result.id)
    assert found == result
    assert found.task.run_after == due
    assert found.status == TaskResultStatus.READY


def test_a_task_with_run_after_is_not_run_before() -> None:
    clock_now = queues["default"].now() / 1_000_000
    due = timezone.now() + datetime.timedelta(hours=1)
    result = add.using(run_after=due).enqueue(1)
    record = queues["default"].lookup(result.id)
    assert record.state == "delayed"
    assert record.due_at / 1_000_000 == pytest.approx(due.timestamp(), abs=5)
    assert due.timestamp() > clock_now


def test_a_task_with_run_after_in_the_past_is_ready() -> None:
    result = add.using(run_after=timezone.now() - datetime.timedelta(days=9)).enqueue(1)
    assert queues["default"].lookup(result.id).state == "ready"


def test_a_task_with_run_after_beyond_a_century_is_refused() -> None:
    far = datetime.datetime(9999, 12, 31, tzinfo=datetime.UTC)
    with pytest.raises(InvalidInput, match="delay"):
        add.using(run_after=far).enqueue(1)
    assert queues["default"].stats().ready == 0


@override_settings(USE_TZ=False, TIME_ZONE="America/New_York")
def test_times_are_naive_and_local_without_use_tz() -> None:
    due = datetime.datetime.now() + datetime.timedelta(hours=1)
    result = add.using(run_after=due).enqueue(1)
    assert result.enqueued_at.tzinfo is None
    assert abs(result.enqueued_at - datetime.datetime.now()) < datetime.timedelta(minutes=1)
    found = backend().get_result(result.id)
    assert found == result
    assert found.task.run_after == due


def test_ids_are_uuids_in_the_order_of_time() -> None:
    ids = [_new_id() for _ in range(1_000)]
    assert {uuid.UUID(id).version for id in ids} == {7}
    assert len(set(ids)) == len(ids)
    moments = [uuid.UUID(id).int >> 64 for id in ids]
    assert moments == sorted(moments)


@pytest.mark.parametrize(
    "value",
    [..., {1, 2}, datetime.date(2024, 1, 1), uuid.UUID(int=1), float("nan"), {1: 2}, b"\xff"],
    ids=repr,
)
def test_an_argument_that_json_cant_carry_is_refused(value: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        add.enqueue(value)
    assert queues["default"].stats().ready == 0


def test_tuples_and_bytes_are_normalized_as_django_does() -> None:
    assert add.enqueue((1, (2,)), b=b"text").args == [[1, [2]]]


def test_aenqueue_and_aget_result_work_in_an_event_loop() -> None:
    async def both() -> tuple[Any, Any]:
        result = await add.aenqueue(1, 2)
        return result, await add.aget_result(result.id)

    result, found = asyncio.run(both())
    assert found == result


def test_a_task_of_the_main_script_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_samples.plain, "__module__", "__main__")
    monkeypatch.setattr(sys.modules["__main__"], "plain", under_another_name, raising=False)
    with pytest.raises(InvalidTask, match="can't import it"):
        under_another_name.enqueue(1)


def test_a_task_that_a_worker_would_not_find_is_refused() -> None:
    with pytest.raises(InvalidTask, match="is not a task"):
        under_another_name.enqueue(1)
    with pytest.raises(InvalidTask, match="another task"):
        first_replaced.enqueue()


def test_a_task_that_passed_is_checked_again_where_its_name_or_the_queues_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = send.enqueue("ann@example.org").task
    with monkeypatch.context() as changed:
        changed.setattr(task_samples, "send", add)
        with pytest.raises(InvalidTask, match="not a task"):
            known.enqueue("ann@example.org")
    only_default = override_settings(LOCALQUEUE={"default": {}})
    with only_default, pytest.raises(InvalidTask, match="'emails'"):
        known.enqueue("ann@example.org")
    assert known.enqueue("ann@example.org").status == TaskResultStatus.READY


def test_a_queue_that_is_no_alias_is_refused() -> None:
    with pytest.raises(InvalidTask, match="'nowhere'"):
        add.using(queue_name="nowhere")


@override_settings(TASKS={"default": {**OURS, "QUEUES": ["emails"]}})
def test_queues_says_which_aliases_a_task_may_name() -> None:
    with pytest.raises(InvalidTask, match="'default'"):
        add.enqueue(1)
    assert send.enqueue("ann").status == TaskResultStatus.READY


@override_settings(TASKS={"default": {**OURS, "QUEUES": []}})
def test_with_empty_queues_an_unknown_alias_is_refused_at_enqueue() -> None:
    with pytest.raises(UnknownQueue, match="nowhere"):
        add.using(queue_name="nowhere").enqueue(1)


def test_the_queues_follow_override_settings() -> None:
    found = backend()
    assert found.queues == {"default", "emails"}
    with override_settings(LOCALQUEUE={"default": {"LOCATION": ":memory:"}, "orders": {}}):
        assert found.queues == {"default", "orders"}


def test_making_a_backend_opens_nothing() -> None:
    queues.close_all()
    LocalQueueBackend("other", {})
    assert queues._open == {}


def test_the_backend_says_what_it_supports() -> None:
    flags = ("defer", "async_task", "get_result", "priority")
    assert all(getattr(LocalQueueBackend, f"supports_{flag}") for flag in flags)


def test_a_name_in_queues_that_is_no_alias_is_an_error_of_check() -> None:
    (error,) = LocalQueueBackend("default", {"QUEUES": ["emails", "e-mails"]}).check()
    assert error.id == "django_localqueue.E009"
    assert "e-mails" in error.msg
    assert "'emails'" in error.hint


@pytest.mark.parametrize("params", [{}, {"QUEUES": ["emails"]}])
def test_check_is_content_with_aliases(params: dict[str, Any]) -> None:
    assert LocalQueueBackend("default", params).check() == []
