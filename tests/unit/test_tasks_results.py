"""Results that are waited for, cancelled and watched; contexts; many calls at once."""

from __future__ import annotations

import asyncio
import threading
import weakref
from typing import Any

import pytest
from django.test import override_settings

from django_localqueue import queues
from django_localqueue.exceptions import InvalidInput, StoreBusy
from django_localqueue.tasks import LocalQueueBackend, call, enqueue_many, results
from django_localqueue.tasks.compat import (
    TaskResultDoesNotExist,
    TaskResultStatus,
    task_backends,
)
from django_localqueue.types import Progress
from tests.unit import task_option_samples as samples
from tests.unit.task_samples import add, send
from tests.unit.test_tasks_options import IMMEDIATE
from tests.unit.test_tasks_run import OURS, drain


def backend() -> LocalQueueBackend:
    found = task_backends["default"]
    assert isinstance(found, LocalQueueBackend)
    return found


class TestWait:
    def test_it_returns_the_finished_result(self) -> None:
        result = add.enqueue(1, b=2)
        worker = threading.Thread(target=drain)
        worker.start()
        assert result.wait(60) is result
        worker.join()
        assert result.return_value == 3

    def test_a_failed_task_has_finished(self) -> None:
        result = samples.leaving.enqueue()
        drain()
        assert result.wait(60).status == TaskResultStatus.FAILED

    @pytest.mark.parametrize("timeout", [0, 0.01])
    def test_it_ends_after_its_time(self, timeout: float) -> None:
        result = add.enqueue(1)
        with pytest.raises(TimeoutError, match=result.id):
            result.wait(timeout)

    def test_a_finished_one_needs_no_time(self) -> None:
        result = add.enqueue(1)
        drain()
        assert result.wait(0).return_value == 1

    def test_asynchronous_code_waits_too(self) -> None:
        result = add.enqueue(1)
        with pytest.raises(TimeoutError):
            asyncio.run(result.await_(0.01))
        drain()
        assert asyncio.run(result.await_(60)).return_value == 1

    def test_one_that_is_gone_does_not_exist(self) -> None:
        result = add.enqueue(1)
        drain()
        queues["default"].purge(0)
        with pytest.raises(TaskResultDoesNotExist):
            result.wait(60)


class TestCancel:
    def test_a_waiting_task_never_runs(self) -> None:
        result = samples.bare.enqueue(1)
        assert result.cancel()
        samples.attempts.clear()
        drain()
        result.refresh()
        assert (result.status, samples.attempts) == (TaskResultStatus.FAILED, [])
        assert "cancelled" in result.errors[-1].traceback

    def test_a_running_one_is_asked_to_stop(self) -> None:
        result = samples.bare.enqueue(1)
        job = queues["default"].get()
        assert asyncio.run(result.acancel())
        assert not queues["default"].extend_lease(job, 60)

    def test_a_finished_one_is_not(self) -> None:
        result = samples.bare.enqueue(1)
        drain()
        assert not result.cancel()

    def test_an_unknown_one_does_not_exist(self) -> None:
        for id in ("nothing", "01890000-0000-7000-8000-000000000001"):
            with pytest.raises(TaskResultDoesNotExist):
                backend().cancel(id)

    @override_settings(TASKS={"default": OURS, "other": OURS})
    def test_another_backends_task_is_not_cancelled(self) -> None:
        result = add.using(backend="other").enqueue(1)
        with pytest.raises(TaskResultDoesNotExist):
            backend().cancel(result.id)


class TestContext:
    def test_a_task_says_how_far_it_is(self) -> None:
        result = samples.watched.enqueue(3)
        assert result.progress() is None
        drain()
        result.refresh()
        assert result.return_value == [1, False, True, True, True]
        said = result.progress()
        assert isinstance(said, Progress)
        assert (said.done, said.total, said.note, said.attempt) == (3, 3, "step 3", 1)
        assert asyncio.run(result.aprogress()) == said

    def test_so_it_does_without_a_context(self) -> None:
        result = samples.watched_from_within.enqueue()
        drain()
        result.refresh()
        assert result.return_value == [True, False]
        said = result.progress()
        assert said is not None
        assert (said.done, said.total) == (1, 2)

    def test_outside_of_a_worker_nothing_is_said(self) -> None:
        assert samples.watched_from_within.call() == [True, False]

    def test_a_store_that_is_busy_is_not_the_tasks_trouble(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        def busy(*args: Any) -> bool:
            raise StoreBusy("somebody has the lock")

        monkeypatch.setattr(type(queues["default"]), "_progress", busy)
        result = samples.watched.enqueue(1)
        drain()
        result.refresh()
        assert result.return_value == [1, False, True]
        assert "could not say how far it is" in caplog.text

    def test_bad_arguments_are(self) -> None:
        result = samples.watched.enqueue(1)
        job = queues["default"].get()
        with pytest.raises(InvalidInput):
            job.progress(-1)
        queues["default"].release(job)
        assert result.cancel()


class TestEnqueueMany:
    def test_calls_of_several_queues_come_back_in_their_order(self) -> None:
        results = enqueue_many([call(add, 1), call(send, "ann"), call(add, 2, b=3)])
        drain()
        for result in results:
            result.refresh()
        assert [result.return_value for result in results] == [1, "sent to ann", 5]

    def test_calls_of_one_queue_are_one_transaction(self, monkeypatch: pytest.MonkeyPatch) -> None:
        queue = queues["default"]
        puts: list[int] = []
        put_many = queue.put_many

        def counted(jobs: Any, **kwargs: Any) -> Any:
            puts.append(len(jobs))
            return put_many(jobs, **kwargs)

        monkeypatch.setattr(queue, "put_many", counted)
        enqueue_many([call(add, n) for n in range(50)])
        assert puts == [50]

    def test_one_that_is_refused_keeps_all_out(self) -> None:
        with pytest.raises(TypeError):
            enqueue_many([call(add, 1), call(add, object())])
        assert queues["default"].stats().ready == 0

    def test_options_are_each_calls_own(self) -> None:
        first, second, third = enqueue_many(
            [
                call(samples.bare, 1, job_options={"unique_key": "k"}),
                call(samples.bare, 2, job_options={"unique_key": "k"}),
                call(samples.bare, 3),
            ]
        )
        assert first.id == second.id != third.id
        assert second.args == [1]

    def test_asynchronous_code_does_it_too(self) -> None:
        results = asyncio.run(backend().aenqueue_many([call(add, 1), call(add, 2)]))
        assert len({result.id for result in results}) == 2

    def test_none_is_fine(self) -> None:
        assert enqueue_many([]) == []

    @override_settings(TASKS={"default": OURS, "now": {"BACKEND": IMMEDIATE}})
    def test_tasks_of_other_backends_are_enqueued_by_theirs(self) -> None:
        now, later = enqueue_many([call(add.using(backend="now"), 1), call(add, 2)])
        assert (now.return_value, later.status) == (1, TaskResultStatus.READY)


def test_a_queue_whose_name_in_a_test_run_is_another_keeps_its_alias(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queue = queues["default"]
    monkeypatch.setattr(results, "_aliases", weakref.WeakKeyDictionary())
    monkeypatch.setattr(queue, "name", "default_gw1")
    assert results.alias_of(queue) == "default"
