"""``manage.py localqueue``: what it prints, what it does, how it ends."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from django_localqueue import queues
from django_localqueue.records import ScheduleRecord, WorkerRecord


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    queues.close_all()
    yield
    queues.close_all()


def run(*arguments: str) -> str:
    out = io.StringIO()
    call_command("localqueue", *arguments, stdout=out)
    return out.getvalue()


def answer(*arguments: str) -> Any:
    return json.loads(run(*arguments, "--json"))


def refused(*arguments: str) -> tuple[int, str]:
    with pytest.raises(CommandError) as caught:
        run(*arguments)
    return caught.value.returncode, str(caught.value)


def fail_one(data: Any = 1, error: str = "no such page") -> str:
    queue = queues["default"]
    queue.put(data, task="shop.tasks.send")
    job = queue.get_nowait()
    queue.fail(job, ValueError(error))
    return job.id


class TestStats:
    def test_it_counts_each_queue(self) -> None:
        queues["emails"].put(1)
        found = {row["queue"]: row for row in answer("stats")}
        assert found["emails"]["ready"] == 1
        assert found["default"]["ready"] == 0
        assert found["emails"]["oldest_ready_seconds"] >= 0
        assert found["default"]["oldest_ready_seconds"] is None

    def test_it_is_a_table_for_people(self) -> None:
        lines = run("stats", "default").splitlines()
        assert lines[0].split()[:2] == ["queue", "ready"]
        assert lines[1].split()[:2] == ["default", "0"]

    def test_an_unknown_queue_ends_with_2(self) -> None:
        code, message = refused("stats", "nowhere")
        assert code == 2
        assert "nowhere" in message

    def test_options_of_django_may_follow_the_action(self) -> None:
        arguments = ["localqueue", "stats", "--settings", "tests.settings", "--no-color"]
        done = subprocess.run(
            [sys.executable, "-m", "django", *arguments],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("queue")

    def test_what_is_no_number_is_told_so(self) -> None:
        _, message = refused("purge", "--older-than", "1d")
        assert "'1d' can't be: it must be a number" in message


class TestFailed:
    def test_it_lists_them_with_their_error(self) -> None:
        id = fail_one()
        (row,) = answer("failed", "list")
        assert (row["id"], row["task"], row["error"]) == (id, "shop.tasks.send", "ValueError")
        assert row["message"] == "no such page"

    def test_it_shows_one_with_its_traceback_and_history(self) -> None:
        id = fail_one()
        shown = answer("failed", "show", id)
        assert "ValueError: no such page" in shown["traceback"]
        assert len(shown["history"]) == 1

    def test_a_queue_named_as_an_id_is_not_taken_for_an_empty_list(self) -> None:
        fail_one()
        code, message = refused("failed", "list", "emails")
        assert code == 1
        assert "has no dead letter emails; another queue is named by --queue" in message

    def test_one_is_retried_by_id(self) -> None:
        id = fail_one()
        assert answer("failed", "retry", id)["done"] == 1
        assert queues["default"].lookup(id).state == "ready"

    def test_all_that_match_are_retried_only_when_asked_for(self) -> None:
        fail_one(1, "one")
        fail_one(2, "other")
        code, message = refused("failed", "retry", "--text", "other")
        assert code == 2
        assert "--all" in message
        assert answer("failed", "retry", "--text", "other", "--all")["done"] == 1
        assert queues["default"].stats().failed == 1

    def test_a_dry_run_does_nothing(self) -> None:
        fail_one()
        assert answer("failed", "purge", "--all", "--dry-run") == {"matching": 1}
        assert queues["default"].stats().failed == 1

    def test_purging_removes_them(self) -> None:
        id = fail_one()
        assert "1 done" in run("failed", "purge", id)
        assert queues["default"].lookup(id) is None

    def test_a_job_that_is_not_there_ends_with_1(self) -> None:
        assert refused("failed", "show", "123")[0] == 1
        assert refused("failed", "retry", "123")[0] == 1


class TestPurge:
    def test_it_removes_by_age_and_state(self) -> None:
        fail_one()
        queue = queues["default"]
        queue.put(1)
        queue.ack(queue.get_nowait())
        assert answer("purge", "--older-than", "3600") == {"removed": 0}
        assert answer("purge", "--older-than", "0", "--dry-run") == {"matching": 1}
        assert answer("purge", "--older-than", "0") == {"removed": 1}
        assert queue.stats().failed == 1
        assert answer("purge", "--older-than", "0", "--state", "failed") == {"removed": 1}

    def test_it_needs_an_age(self) -> None:
        with pytest.raises(CommandError):
            run("purge")


def test_queues_are_paused_and_resumed() -> None:
    assert answer("pause", "default", "emails") == {"paused": ["default", "emails"]}
    assert queues["emails"].stats().paused
    assert "Resumed emails" in run("resume", "emails")
    assert not queues["emails"].stats().paused


class TestWorkers:
    def test_they_are_listed(self) -> None:
        queues["default"].report_worker(
            WorkerRecord("w1", "shop", 7, queues=("default",), counts={"done": 3})
        )
        (row,) = answer("workers")
        assert (row["name"], row["host"], row["pid"], row["done"]) == ("w1", "shop", 7, 3)

    def test_one_is_told_something(self) -> None:
        queues["default"].report_worker(WorkerRecord("w1"))
        assert "Asked w1 to be quiet" in run("workers", "quiet", "w1")
        assert queues["default"].workers()[0].command == "quiet"

    def test_one_that_is_not_there_ends_with_1(self) -> None:
        assert refused("workers", "stop", "nobody") == (1, "There is no worker 'nobody'.")


class TestCheck:
    def test_all_is_well(self) -> None:
        queues["default"].report_worker(WorkerRecord("w1"))
        assert answer("check", "--worker", "w1") == {"well": True, "faults": []}

    def test_processes_of_a_worker_count_as_it(self) -> None:
        queues["default"].report_worker(WorkerRecord("w1/1"))
        assert answer("check", "--worker", "w1")["well"]

    def test_a_missing_worker_ends_with_1(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as caught:
            run("check", "--worker", "w1")
        assert caught.value.code == 1

    def test_an_old_report_ends_with_1(self, monkeypatch: pytest.MonkeyPatch) -> None:
        queues["default"].report_worker(WorkerRecord("w1"))
        late = queues["default"].now() + 120_000_000
        for queue in queues.all():
            monkeypatch.setattr(queue, "now", lambda: late)
        with pytest.raises(SystemExit) as caught:
            run("check", "--worker", "w1")
        assert caught.value.code == 1
        assert "All is well" in run("check", "--worker", "w1", "--max-age", "300")

    def test_with_a_max_age_each_queue_needs_a_live_worker(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        queue = queues["default"]
        queue.report_worker(WorkerRecord("w1", queues=(queue.name,)))
        assert answer("check", "default", "--max-age", "60")["well"]
        with pytest.raises(SystemExit):
            run("check", "default", "emails", "--max-age", "60")
        late = queue.now() + 120_000_000
        for one in queues.all():
            monkeypatch.setattr(one, "now", lambda: late)
        with pytest.raises(SystemExit) as caught:
            run("check", "default", "--max-age", "60")
        assert caught.value.code == 1
        assert "All is well" in run("check", "default", "--max-age", "300")


class TestSchedule:
    @pytest.fixture(autouse=True)
    def _one(self) -> None:
        queues["default"].save_schedule(
            ScheduleRecord("nightly", "0 3 * * *", "shop.tasks.clean", next_at=10)
        )

    def test_it_is_listed_with_its_times(self) -> None:
        (row,) = answer("schedule")
        assert (row["name"], row["task"]) == ("nightly", "shop.tasks.clean")
        assert row["next"] == "1970-01-01T00:00:00+00:00"
        assert row["last"] is None

    def test_it_is_run_now(self) -> None:
        id = answer("schedule", "run", "nightly")["nightly"]
        job = queues["default"].get_nowait()
        assert (job.id, job.task) == (id, "shop.tasks.clean")

    def test_it_is_paused_and_resumed(self) -> None:
        run("schedule", "pause", "nightly")
        assert queues["default"].schedules()[0].paused
        assert answer("schedule", "resume", "nightly")["nightly"].endswith("T03:00:00+00:00")
        assert not queues["default"].schedules()[0].paused

    def test_an_unknown_one_ends_with_1_and_the_known(self) -> None:
        code, message = refused("schedule", "run", "nobody")
        assert code == 1
        assert "nightly" in message


def test_adopt_refuses_a_queue_that_is_not_on_rqlite() -> None:
    code, message = refused("adopt")
    assert code == 2
    assert "not on rqlite" in message
