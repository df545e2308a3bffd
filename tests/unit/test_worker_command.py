"""``manage.py runqueueworker``: options, environment, settings, messages, exit codes."""

from __future__ import annotations

import io
import logging
import threading
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from django.test import override_settings

from django_localqueue import Job, StoreUnavailable, queues
from django_localqueue.management import run as running
from django_localqueue.management.code import choose_queues
from django_localqueue.management.commands import runqueueworker
from django_localqueue.tasks import LocalQueueBackend
from tests.unit.task_samples import add, fail, send

HANDLED: list[Any] = []
LOCALQUEUE = {
    "default": {"LOCATION": ":memory:", "HANDLER": "tests.unit.test_worker_command.handle"},
    "emails": {},
}


@pytest.fixture(autouse=True)
def _no_other_apps(settings: Any) -> None:
    """The worker imports the tasks of every installed app: here there is only ours."""
    ours = ("django_localqueue", "django_tasks")
    settings.INSTALLED_APPS = [app for app in settings.INSTALLED_APPS if app in ours]


def handle(job: Job) -> None:
    HANDLED.append((job.queue.name, job.data))


def run(*arguments: str, **options: Any) -> str:
    out = io.StringIO()
    call_command("runqueueworker", "--burst", *arguments, stdout=out, **options)
    return out.getvalue()


@pytest.mark.parametrize("given", ["emails", ["emails"], ["emails,emails"]])
def test_call_command_takes_queues_as_text_or_as_a_list(given: Any) -> None:
    queues["default"].put("left")
    queues["emails"].put("sent")
    run(queue=given)
    assert queues["default"].stats().ready == 1
    assert queues["emails"].stats().ready == 0


def usage_error(*arguments: str) -> str:
    with pytest.raises(CommandError) as caught:
        run(*arguments)
    assert caught.value.returncode == 2
    return str(caught.value)


@pytest.fixture
def made_workers(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The workers that the command makes; they don't run."""
    made: list[Any] = []

    class Idle(running.TellingWorker):
        def run(self) -> Any:
            made.append(self)
            self.stop()
            return super().run()

    monkeypatch.setattr(running, "TellingWorker", Idle)
    return made


def test_burst_runs_the_tasks_of_every_queue_and_says_what_it_did() -> None:
    results = [add.enqueue(1), send.enqueue("ann"), fail.enqueue("x")]
    out = run()
    for result in results:
        result.refresh()
    assert [str(result.status) for result in results] == ["SUCCESSFUL", "SUCCESSFUL", "FAILED"]
    assert "2 done, 1 failed, 0 retried" in out


def test_the_banner_names_version_queues_store_threads_and_process() -> None:
    out = run("--threads", "3", "--name", "w1")
    assert "django-localqueue" in out
    assert "w1, pid " in out
    assert "default, emails (in turns)" in out
    assert "SQLiteQueue in :memory:" in out
    assert "durability full" in out
    assert "threads  3" in out


def test_verbosity_0_says_nothing() -> None:
    assert run("--verbosity", "0") == ""


def test_plain_jobs_go_to_the_handler() -> None:
    HANDLED.clear()
    with override_settings(LOCALQUEUE=LOCALQUEUE):
        queues["default"].put({"n": 1})
        run()
    assert HANDLED == [("default", {"n": 1})]


def test_only_the_queues_that_are_named_are_served() -> None:
    other, mine = add.enqueue(1), send.enqueue("ann")
    run("--queue", "emails")
    other.refresh()
    mine.refresh()
    assert (str(other.status), str(mine.status)) == ("READY", "SUCCESSFUL")


@pytest.mark.parametrize(
    ("wanted", "excluded", "chosen"),
    [
        ([], [], (["default", "emails"], True)),
        (["*"], [], (["default", "emails"], True)),
        (["emails", "default"], [], (["emails", "default"], False)),
        (["emails", "emails"], [], (["emails"], False)),
        (["*", "emails"], [], (["default", "emails"], True)),
        ([], ["emails"], (["default"], True)),
        (["emails", "default"], ["default"], (["emails"], False)),
    ],
)
def test_queues_are_chosen_in_order_or_in_turns(
    wanted: list[str], excluded: list[str], chosen: tuple[list[str], bool]
) -> None:
    assert choose_queues(wanted, excluded) == chosen


@pytest.mark.parametrize("option", ["--queue", "--exclude-queue"])
def test_an_unknown_queue_is_a_usage_error_that_names_the_known_ones(option: str) -> None:
    message = usage_error(option, "nowhere")
    assert "'nowhere'" in message
    assert "default, emails" in message


def test_excluding_every_queue_is_a_usage_error() -> None:
    assert "No queue is left" in usage_error("--exclude-queue", "default,emails")


@pytest.mark.parametrize(
    "arguments",
    [
        ("--threads", "0"),
        ("--threads", "-1"),
        ("--threads", "many"),
        ("--threads", "1.5"),
        ("--lease", "-1"),
        ("--lease", "nan"),
        ("--lease", "0"),
        ("--shutdown-timeout", "inf"),
        ("--shutdown-timeout", "soon"),
        ("--name", ""),
        ("--name", "x" * 300),
    ],
    ids=" ".join,
)
def test_absurd_options_are_usage_errors(arguments: tuple[str, str]) -> None:
    with pytest.raises(CommandError):
        run(*arguments)


def test_an_option_comes_before_the_environment_and_that_before_settings(
    monkeypatch: pytest.MonkeyPatch, made_workers: list[Any]
) -> None:
    with override_settings(LOCALQUEUE_WORKER={"THREADS": 2, "QUEUES": ["emails"]}):
        run()
        monkeypatch.setenv("LOCALQUEUE_THREADS", "3")
        monkeypatch.setenv("LOCALQUEUE_QUEUE", "emails,default")
        run()
        run("--threads", "4", "--queue", "default")
    assert [worker.threads for worker in made_workers] == [2, 3, 4]
    names = [[queue.name for queue in worker.queues] for worker in made_workers]
    assert names == [["emails"], ["emails", "default"], ["default"]]


def test_every_option_may_stand_in_the_environment(
    monkeypatch: pytest.MonkeyPatch, made_workers: list[Any]
) -> None:
    for name, value in {
        "EXCLUDE_QUEUE": "emails",
        "BURST": "1",
        "FAIL_ON_ERROR": "yes",
        "LEASE": "12.5",
        "SHUTDOWN_TIMEOUT": "7",
        "NAME": "w9",
    }.items():
        monkeypatch.setenv(f"LOCALQUEUE_{name}", value)
    call_command("runqueueworker", stdout=io.StringIO())
    (worker,) = made_workers
    assert [queue.name for queue in worker.queues] == ["default"]
    assert (worker.burst, worker.lease_seconds, worker.name) == (True, 12.5, "w9")
    assert worker.shutdown_timeout == 7


def test_a_bad_value_in_the_environment_names_the_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LOCALQUEUE_THREADS", "many")
    assert "LOCALQUEUE_THREADS" in usage_error()
    monkeypatch.setenv("LOCALQUEUE_THREADS", "2")
    monkeypatch.setenv("LOCALQUEUE_FAIL_ON_ERROR", "maybe")
    assert "LOCALQUEUE_FAIL_ON_ERROR" in usage_error()


def test_the_heartbeat_interval_is_that_of_the_settings(made_workers: list[Any]) -> None:
    with override_settings(LOCALQUEUE_WORKER={"HEARTBEAT_INTERVAL": 3}):
        run()
    assert made_workers[0].heartbeat_interval == 3


def test_fail_on_error_exits_with_4_where_a_job_failed() -> None:
    fail.enqueue("x")
    with pytest.raises(SystemExit) as caught:
        run("--fail-on-error")
    assert caught.value.code == 4


def test_fail_on_error_ends_cleanly_where_none_failed() -> None:
    add.enqueue(1)
    assert "1 done" in run("--fail-on-error")


def test_a_handler_that_cant_be_imported_is_a_configuration_error() -> None:
    broken = {"default": {"LOCATION": ":memory:", "HANDLER": "no.such.handler"}}
    with override_settings(LOCALQUEUE=broken):
        assert "no.such.handler" in usage_error()


def test_a_tasks_module_that_cant_be_imported_is_a_configuration_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(name: str) -> None:
        raise SyntaxError("in shop/tasks.py")

    monkeypatch.setattr(runqueueworker, "autodiscover_modules", broken)
    assert "shop/tasks.py" in usage_error()


def test_the_tasks_module_that_cant_be_imported_is_named_with_its_line(
    settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_shop").mkdir()
    (tmp_path / "broken_shop" / "__init__.py").touch()
    (tmp_path / "broken_shop" / "tasks.py").write_text("import json\n\nimport not_there\n")
    monkeypatch.syspath_prepend(tmp_path)
    settings.INSTALLED_APPS = [*settings.INSTALLED_APPS, "broken_shop"]
    message = usage_error()
    assert "broken_shop.tasks, line 3, can't be imported" in message
    assert "No module named 'not_there'" in message


def test_a_pidfile_that_cant_be_written_is_named(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "worker.pid"
    assert f"The pidfile {path} can't be written" in usage_error("--pidfile", str(path))


def test_without_any_queue_it_says_that_one_is_missing() -> None:
    with override_settings(LOCALQUEUE={}):
        assert "LOCALQUEUE has no queue" in usage_error()


def test_a_store_that_cant_be_opened_exits_with_3(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Any) -> None:
        raise StoreUnavailable("the folder can't be written")

    monkeypatch.setattr(type(queues["default"]), "workers", broken)
    with pytest.raises(CommandError, match="can't be written") as caught:
        run()
    assert caught.value.returncode == 3


def test_a_thread_makes_its_task_backend_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    before = LocalQueueBackend.__init__

    def counting(self: Any, alias: str, params: dict[str, Any]) -> None:
        made.append(threading.current_thread().name)
        before(self, alias, params)

    monkeypatch.setattr(LocalQueueBackend, "__init__", counting)
    for number in range(8):
        add.enqueue(number)
    made.clear()
    assert "8 done" in run("--threads", "1")
    in_executor = [name for name in made if name.startswith("localqueue-executor")]
    assert len(in_executor) <= len(settings.TASKS)


def test_the_log_is_left_as_it_was_found() -> None:
    logger = logging.getLogger("django_localqueue")
    before = (list(logger.handlers), logger.level)
    run()
    assert (list(logger.handlers), logger.level) == before
