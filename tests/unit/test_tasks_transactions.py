"""Enqueuing in a database transaction: at once, on commit, and by the outbox."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured, SynchronousOnlyOperation
from django.db import connections, transaction
from django.test import override_settings

from django_localqueue import queues
from django_localqueue.exceptions import InvalidInput, StoreBusy
from django_localqueue.management.chores import Outbox
from django_localqueue.outbox import mover
from django_localqueue.outbox.models import OutboxJob
from django_localqueue.tasks import call, enqueue_many
from django_localqueue.tasks.compat import (
    TaskResultDoesNotExist,
    TaskResultStatus,
    task_backends,
    task_enqueued,
)
from tests.unit import task_option_samples as samples
from tests.unit.task_samples import add, send
from tests.unit.test_tasks_run import OURS, drain

ON_COMMIT = {"default": {**OURS, "OPTIONS": {"enqueue_on_commit": True}}}
OUTBOX = {"default": {**OURS, "OPTIONS": {"outbox": True}}}


def waiting() -> int:
    return queues["default"].stats().ready


@pytest.fixture
def enqueued() -> Iterator[list[Any]]:
    seen: list[Any] = []

    def note(task_result: Any, **kwargs: Any) -> None:
        seen.append(task_result)

    task_enqueued.connect(note)
    yield seen
    task_enqueued.disconnect(note)


@pytest.mark.django_db(transaction=True)
class TestAtOnce:
    def test_it_is_there_before_the_commit_and_after_a_rollback(self) -> None:
        with transaction.atomic():
            add.enqueue(1)
            assert waiting() == 1
            transaction.set_rollback(True)
        assert waiting() == 1


@pytest.mark.django_db(transaction=True)
class TestOnCommit:
    @pytest.fixture(autouse=True)
    def _on_commit(self) -> Iterator[None]:
        with override_settings(TASKS=ON_COMMIT):
            yield

    def test_it_is_there_after_the_commit_under_its_id(self, enqueued: list[Any]) -> None:
        with transaction.atomic():
            result = add.enqueue(1)
            assert (waiting(), result.status, result.enqueued_at) == (0, "READY", None)
            assert enqueued == []
            with pytest.raises(TaskResultDoesNotExist):
                add.get_result(result.id)
        assert add.get_result(result.id).enqueued_at == result.enqueued_at
        assert enqueued == [result]
        assert result.enqueued_at is not None

    def test_after_a_rollback_it_is_not(self) -> None:
        with transaction.atomic():
            add.enqueue(1)
            with transaction.atomic():  # a savepoint
                add.enqueue(2)
                transaction.set_rollback(True)
        assert waiting() == 1

    def test_without_a_transaction_it_is_at_once(self) -> None:
        result = add.enqueue(1)
        assert (waiting(), result.enqueued_at is None) == (1, False)

    def test_what_json_cant_carry_is_refused_at_the_call(self) -> None:
        with transaction.atomic():
            with pytest.raises(TypeError):
                add.enqueue(object())
            with pytest.raises(InvalidInput):
                add.enqueue(1, job_options={"group": ""})

    def test_a_queue_that_fails_then_tells_who_commits(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def busy(*args: Any, **kwargs: Any) -> Any:
            raise StoreBusy("somebody has the lock")

        monkeypatch.setattr(queues["default"], "put_many", busy)
        with pytest.raises(StoreBusy), transaction.atomic():
            add.enqueue(1)

    def test_a_call_may_be_at_once_all_the_same(self) -> None:
        with transaction.atomic():
            add.enqueue(1, job_options={"enqueue_on_commit": False})
            assert waiting() == 1

    def test_many_are_put_together(self) -> None:
        with transaction.atomic():
            enqueue_many([call(add, n) for n in range(3)])
            assert waiting() == 0
        assert waiting() == 3


@pytest.mark.django_db(transaction=True)
def test_a_task_may_ask_for_the_commit_itself() -> None:
    with transaction.atomic():
        samples.after_the_commit.enqueue(1)
        add.enqueue(2)
        assert waiting() == 1
    assert waiting() == 2


def test_an_unknown_database_is_refused() -> None:
    with pytest.raises(InvalidInput, match="nowhere"):
        add.enqueue(1, job_options={"enqueue_on_commit": True, "database": "nowhere"})


@pytest.mark.django_db(transaction=True)
class TestOutbox:
    @pytest.fixture(autouse=True)
    def _outbox(self) -> Iterator[None]:
        with override_settings(TASKS=OUTBOX):
            yield

    def test_it_is_moved_after_the_commit(self, enqueued: list[Any]) -> None:
        with transaction.atomic():
            result = add.enqueue(1, b=2)
            assert OutboxJob.objects.count() == 1
        assert enqueued == [result]
        assert waiting() == 0
        found = add.get_result(result.id)
        assert (found.status, found.args, found.kwargs) == ("READY", [1], {"b": 2})
        assert found.enqueued_at is None
        assert mover.move() == 1
        assert (OutboxJob.objects.count(), waiting(), mover.move()) == (0, 1, 0)
        drain()
        result.refresh()
        assert result.return_value == 3
        assert result.enqueued_at is not None

    def test_after_a_rollback_there_is_nothing(self) -> None:
        with transaction.atomic():
            result = add.enqueue(1)
            transaction.set_rollback(True)
        assert (mover.move(), waiting()) == (0, 0)
        with pytest.raises(TaskResultDoesNotExist):
            add.get_result(result.id)

    def test_all_that_was_said_of_it_arrives(self) -> None:
        task = samples.report.using(priority=7)
        result = task.enqueue(2026, job_options={"retries": 9})
        mover.move()
        found = queues["default"].lookup(result.id)
        assert found is not None
        assert (found.priority, found.group_id, found.unique_key) == (7, "reports", "report-2026")
        assert (found.max_retries, found.retention) == (9, 50_000_000)
        assert found.headers["options"] == {"retries": 9}

    def test_the_mover_leaves_connections_to_its_caller(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        connection = connections["default"]
        add.enqueue(1)
        closed: list[int] = []
        monkeypatch.setattr(connection, "close", lambda: closed.append(1))
        monkeypatch.setattr(connection, "close_at", 0.0)  # as with CONN_MAX_AGE at its default
        assert (mover.move(), closed) == (1, [])

    def test_they_arrive_in_their_order(self) -> None:
        with transaction.atomic():
            for n in range(30):
                add.enqueue(n)
        assert [mover.move(limit=20), mover.move(limit=20)] == [20, 10]
        queue = queues["default"]
        assert [job.data["args"] for job in queue.get_many(50)] == [[n] for n in range(30)]

    def test_it_is_moved_once_though_its_job_has_run_and_gone(self) -> None:
        result = add.enqueue(1)
        (row,) = OutboxJob.objects.all()
        mover.move()
        drain()
        queues["default"].purge(0)
        row.pk = None
        row.save()  # as a mover leaves it that is killed before its commit
        assert mover.move() == 1
        assert waiting() == 0
        assert queues["default"].lookup(result.id) is None

    def test_what_was_moved_long_ago_is_forgotten_unless_its_row_is_there(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        kept, gone = add.enqueue(1), add.enqueue(2)
        row = OutboxJob.objects.get(job_id=kept.id)
        mover.move()
        row.pk = None
        row.save()
        assert mover.forget() == 0
        monkeypatch.setattr(mover, "REMEMBERED", 0)
        assert mover.forget() == 1
        assert queues["default"].once_ids(0) == [kept.id]
        assert gone.id != kept.id

    def test_a_queue_that_fails_leaves_the_rows(self, monkeypatch: pytest.MonkeyPatch) -> None:
        add.enqueue(1)
        with monkeypatch.context() as patched:

            def busy(*args: Any, **kwargs: Any) -> Any:
                raise StoreBusy("somebody has the lock")

            patched.setattr(queues["default"], "put_many", busy)
            with pytest.raises(StoreBusy):
                mover.move()
        assert OutboxJob.objects.count() == 1
        assert mover.move() == 1

    def test_a_queue_that_fails_keeps_no_other_waiting(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def busy(*args: Any, **kwargs: Any) -> Any:
            raise StoreBusy("somebody has the lock")

        enqueue_many([call(add, 1), call(send, "ann")])
        with monkeypatch.context() as patched:
            patched.setattr(queues["default"], "put_many", busy)
            with pytest.raises(StoreBusy):
                mover.move(limit=1)
        assert (queues["emails"].stats().ready, OutboxJob.objects.count()) == (1, 1)

    def test_a_row_that_the_queue_refuses_stays_and_says_why(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        bad, good = add.enqueue(1), add.enqueue(2)
        row = OutboxJob.objects.get(job_id=bad.id)
        row.pending = row.pending.replace('"priority":0', '"priority":1000')
        row.save()
        assert mover.move() == 1
        assert (mover.move(), OutboxJob.objects.count()) == (0, 1)
        assert bad.id in caplog.text
        found = add.get_result(bad.id)
        assert found.status == TaskResultStatus.FAILED
        assert "priority" in found.errors[0].traceback
        assert add.get_result(good.id).status == TaskResultStatus.READY

    def test_a_row_of_a_queue_that_is_gone_stays_and_says_why(self) -> None:
        add.enqueue(1)
        OutboxJob.objects.update(queue="gone")
        assert mover.move() == 0
        assert "gone" in OutboxJob.objects.get().error

    def test_it_can_be_cancelled_before_and_after_it_is_moved(self) -> None:
        first, second = add.enqueue(1), add.enqueue(2)
        assert first.cancel()
        assert mover.move() == 1
        assert second.cancel()
        with pytest.raises(TaskResultDoesNotExist):
            first.cancel()

    def test_a_row_that_a_killed_mover_left_is_cancelled_in_its_queue(self) -> None:
        result = add.enqueue(1)
        (row,) = OutboxJob.objects.all()
        mover.move()
        row.pk = None
        row.save()
        assert result.cancel()
        mover.move()
        assert waiting() == 0

    def test_a_call_may_go_round_it(self) -> None:
        add.enqueue(1, job_options={"outbox": False})
        assert (waiting(), OutboxJob.objects.count()) == (1, 0)

    def test_calls_for_several_queues_are_written_together(self) -> None:
        results = enqueue_many([call(add, 1), call(send, "ann")])
        assert mover.move() == 2
        assert [result.id for result in results] == [
            queues[alias].get().id for alias in ("default", "emails")
        ]

    def test_asynchronous_code_writes_in_a_thread_or_is_told_before_anything_is_stored(
        self,
    ) -> None:
        async def wrong() -> None:
            add.enqueue(1)

        with pytest.raises(SynchronousOnlyOperation):
            asyncio.run(wrong())
        assert OutboxJob.objects.count() == 0


@pytest.mark.django_db
def test_the_outbox_of_a_database_must_be_named() -> None:
    with pytest.raises(InvalidInput, match="databases"):
        add.enqueue(1, job_options={"outbox": True})
    with override_settings(TASKS={"default": {**OURS, "OPTIONS": {"databases": ["default"]}}}):
        add.enqueue(1, job_options={"outbox": True})
        add.enqueue(2)
        assert (OutboxJob.objects.count(), waiting(), mover.databases()) == (1, 1, ["default"])


def test_without_an_outbox_the_mover_has_nothing_to_do() -> None:
    assert (mover.databases(), mover.move()) == ([], 0)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"enqeue_on_commit": True}, ["enqeue_on_commit", "enqueue_on_commit"]),
        ({"outbox": 1}, ["outbox", "True or False"]),
        ({"databases": "default"}, ["databases", "list"]),
        ({"moved_tasks": ["a"]}, ["moved_tasks", "dict"]),
        ({"job_options": {"retries": -1}}, ["retries"]),
        ([], ["OPTIONS"]),
    ],
)
def test_options_of_the_backend_are_checked(options: Any, words: list[str]) -> None:
    with override_settings(TASKS={"default": {**OURS, "OPTIONS": options or ["x"]}}):
        messages = task_backends["default"].check()
        assert [message.id for message in messages] == ["django_localqueue.E020"]
        text = f"{messages[0].msg} {messages[0].hint}"
        assert all(word in text for word in words), text
        with pytest.raises(ImproperlyConfigured):
            add.using(priority=1).enqueue(1)


@override_settings(TASKS=OUTBOX)
@pytest.mark.django_db(transaction=True)
def test_a_worker_says_that_the_outbox_is_not_migrated() -> None:
    with connections["default"].schema_editor() as editor:
        editor.delete_model(OutboxJob)
    try:
        with pytest.raises(ImproperlyConfigured, match=r"in the database default: run migrate"):
            Outbox().run("w1", threading.Event())
    finally:
        with connections["default"].schema_editor() as editor:
            editor.create_model(OutboxJob)
