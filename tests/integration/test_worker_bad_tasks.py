"""Tasks and payloads that go wrong, on one worker process that goes on through all of it."""

from __future__ import annotations

import signal
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from django_localqueue import JobFilter, JobRecord
from tests.integration.worker_site import Site, WorkerProcess

TASKS = """
import sys
import threading


@task
def exits():
    sys.exit(3)


@task
def is_interrupted():
    raise KeyboardInterrupt


@task
def raises_no_exception():
    class Odd(BaseException):
        pass

    raise Odd("odd")


@task
def closes_connections(how):
    from django.db import connection, connections

    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    connection.connection.close() if how == "beneath" else connections.close_all()


@task
def asks_the_database():
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT 41 + 1")
        return cursor.fetchone()[0]


@task
def leaves_a_transaction_open():
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE IF NOT EXISTS kept (n)")
        connection.set_autocommit(False)
        cursor.execute("INSERT INTO kept VALUES (1)")
        cursor.execute("SELECT count(*) FROM kept")
        return cursor.fetchone()[0]


@task
def leaks_a_thread(daemon):
    threading.Thread(target=threading.Event().wait, daemon=daemon, name="leaked").start()


@task
def runs_itself_again(name):
    ledger.write("again", name)
    if not (ledger.BASE_DIR / f"{name}-over").exists():
        runs_itself_again.enqueue(name)


@task
def recurses():
    recurses.call()


@task
def cant_be_told():
    class Mute(Exception):
        def __str__(self):
            raise RuntimeError("no words")

    raise Mute


@task
def says_what_no_text_is():
    raise ValueError("a \\udc80 b \\0 c")


@task
def says_much():
    raise ValueError("x" * 10_000_000)


@task
def returns_an_object():
    return object()


@task
def closes_what_is_printed_to():
    sys.stdout.close()
    sys.stderr = None


@task
def changes_the_folder():
    import os

    os.chdir("/")
"""
SETTINGS = """
TASKS["default"]["OPTIONS"] = {"moved_tasks": {"shop.old.work": "shop.tasks.work"}}
"""


class Running:
    """A site with a worker that serves it."""

    def __init__(self, folder: Path) -> None:
        self.site = Site(folder)
        self.site.append("tasks", TASKS)
        self.site.append("settings", SETTINGS)
        self.worker: WorkerProcess = self.site.start("--threads", "2")
        self.worker.wait_for_log("serves default, emails")

    def put(self, task: str, *args: Any, data: Any = None) -> str:
        call = {"args": list(args), "kwargs": {}} if data is None else data
        headers = {"backend": "default"}  # as an enqueue writes it
        return str(self.site.queue.put(call, job_id=str(uuid.uuid4()), task=task, headers=headers))

    def end_of(self, task: str, *args: Any, data: Any = None) -> JobRecord:
        """Put a job, and return its record when it has ended."""
        id = self.put(task, *args, data=data)
        ended = ("acked", "failed")
        self.site.wait_until(lambda: self.site.queue.lookup(id).state in ended, f"{task}'s end")
        return self.site.queue.lookup(id)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    running = Running(tmp_path_factory.mktemp("bad"))
    yield running
    running.site.close()


@pytest.fixture
def running(shared: Running) -> Iterator[Running]:
    """The worker, which after the test is the same and runs jobs in all its threads."""
    yield shared
    for record in [shared.end_of("shop.tasks.asks_the_database") for _ in range(4)]:
        assert (record.state, record.result) == ("acked", b"42")
    assert shared.worker.process.poll() is None
    assert shared.worker.log.count("serves default, emails") == 1


@pytest.mark.parametrize(
    ("task", "error"),
    [
        ("exits", "SystemExit"),
        ("is_interrupted", "KeyboardInterrupt"),
        ("raises_no_exception", "shop.tasks.raises_no_exception.<locals>.Odd"),
        ("recurses", "RecursionError"),
        ("cant_be_told", "shop.tasks.cant_be_told.<locals>.Mute"),
        ("says_what_no_text_is", "ValueError"),
        ("says_much", "ValueError"),
    ],
)
def test_a_task_that_leaves_by_any_exception_is_a_dead_letter(
    running: Running, task: str, error: str
) -> None:
    record = running.end_of(f"shop.tasks.{task}")
    assert (record.state, record.attempts) == ("failed", 1)
    assert record.error.error_class == error
    assert len(record.error.message) < 1_000_000


def test_a_result_that_json_cant_carry_fails_its_task(running: Running) -> None:
    record = running.end_of("shop.tasks.returns_an_object")
    assert record.state == "failed"
    assert "Unsupported type: <class 'object'>" in record.error.message


@pytest.mark.parametrize("how", ["through Django", "beneath"])
def test_a_task_that_closes_the_database_connection(running: Running, how: str) -> None:
    assert running.end_of("shop.tasks.closes_connections", how).state == "acked"


def test_a_task_that_leaves_a_transaction_open(running: Running) -> None:
    for _ in range(6):  # each finds its own row only, and none waits for another's transaction
        record = running.end_of("shop.tasks.leaves_a_transaction_open")
        assert (record.error, record.result) == (None, b"1")


def test_a_task_that_leaks_threads(running: Running) -> None:
    for _ in range(10):
        assert running.end_of("shop.tasks.leaks_a_thread", True).state == "acked"


@pytest.mark.parametrize("task", ["closes_what_is_printed_to", "changes_the_folder"])
def test_a_task_that_changes_its_process(running: Running, task: str) -> None:
    assert running.end_of(f"shop.tasks.{task}").state == "acked"


def test_a_task_that_moved_is_found_where_it_is_named(running: Running) -> None:
    assert running.end_of("shop.old.work", "moved").state == "acked"
    assert "moved" in running.site.ledger("ended")


@pytest.mark.parametrize(
    ("task", "data", "words"),
    [
        ("shop.older.work", None, "shop.older"),
        ("shop.tasks.renamed", None, "renamed"),
        ("shop.ledger.write", None, "is not a task"),
        ("os.getcwd", None, "is not a task"),
        ("shop.tasks.work", {"version": 2, "args": [], "kwargs": {}}, "newer"),
        ("shop.tasks.work", ["x"], "must be"),
    ],
    ids=["moved", "renamed", "a function", "a function of Python", "newer payload", "no call"],
)
def test_a_job_that_is_no_call_of_a_task_is_a_dead_letter_that_says_so(
    running: Running, task: str, data: Any, words: str
) -> None:
    record = running.end_of(task, "x", data=data)
    assert (record.state, record.attempts) == ("failed", 1)
    assert words in record.error.message
    assert running.site.ledger("ended").count("x") == 0


def test_a_task_that_enqueues_itself_for_ever_is_seen_and_others_get_their_turn(
    running: Running,
) -> None:
    site = running.site
    running.put("shop.tasks.runs_itself_again", "r")
    site.wait_until(lambda: len(site.ledger("again")) > 50, "many runs")
    assert running.end_of("shop.tasks.work", "between").state == "acked"
    before = site.queue.stats()
    site.wait_until(lambda: site.queue.stats().acked > before.acked + 50, "a count that climbs")
    assert before.ready + before.processing <= 4  # it is one job at a time, and no flood
    site.queue.pause()  # as an operator does
    site.wait_until(lambda: site.queue.stats().processing == 0, "the end of the one that runs")
    (left,) = site.queue.list(JobFilter(state="ready")).records
    assert left.task == "shop.tasks.runs_itself_again"
    (site.folder / "r-over").touch()
    site.queue.resume()
    site.wait_until(lambda: site.queue.stats().ready == 0, "its end")


def test_a_task_that_never_ends_does_not_keep_the_worker(tmp_path: Path) -> None:
    alone = Running(tmp_path)
    try:
        id = alone.put("shop.tasks.hang", "h")
        alone.site.wait_until(lambda: alone.site.ledger("begun"), "the job")
        assert alone.end_of("shop.tasks.work", 1).state == "acked"  # in the other thread
        alone.worker.send(signal.SIGQUIT)
        assert alone.worker.wait() == 1
        assert alone.site.queue.lookup(id).state == "ready"
    finally:
        alone.site.close()


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_thread_that_a_task_left_does_not_keep_the_worker(site: Site, processes: str) -> None:
    site.append("tasks", TASKS)
    for _ in range(3):
        site.put("leaks_a_thread", False)  # Python would wait for these at its end
    worker = site.start("--processes", processes)
    site.wait_until(lambda: site.queue.stats().acked == 3, "the jobs")
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0
    assert "3 done" in worker.log


def test_waiting_jobs_of_unknown_tasks_are_told_when_a_worker_starts(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.append("settings", SETTINGS)
    for task in ("shop.gone.one", "shop.tasks.gone", "shop.tasks.work", "shop.old.work"):
        for delay in (0, 3_600):
            data = {"args": ["a"], "kwargs": {}}
            site.queue.put(data, task=task, delay=delay, headers={"backend": "default"})
    told = "'default' call tasks that this code doesn't have, and fail when they are run:"
    names = "shop.gone.one, shop.tasks.gone. Deploy"
    for options in (["--check"], ["--burst"]):
        worker = site.start(*options)
        assert worker.wait() == 0
        assert f"{told} {names}" in worker.log
