"""What is done around each job inside Django."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.cache import caches
from django.db import connection, connections, reset_queries, transaction
from django.utils import timezone, translation

from django_localqueue import Job, SQLiteQueue, Worker
from django_localqueue.worker import Executor
from django_localqueue.worker.django import DjangoExecutor, keep_connections_healthy


def executor(queue: SQLiteQueue, handler: Any) -> Executor:
    return DjangoExecutor(None, {(queue.store_key, queue.name): handler})


def run(queue: SQLiteQueue, handler: Any) -> None:
    Worker(queue, executor(queue, handler), burst=True).run()


@pytest.fixture
def database(tmp_path: Path, django_db_blocker: Any) -> Iterator[None]:
    """The default database in a file, with Django's default CONN_MAX_AGE of 0."""
    # Put aside and not closed: with it the test database in memory would be gone.
    aside = connections["default"]
    del connections["default"]
    before = aside.settings_dict["NAME"]
    aside.settings_dict["NAME"] = str(tmp_path / "site.sqlite3")
    with django_db_blocker.unblock():
        yield
        connections["default"].close()
    aside.settings_dict["NAME"] = before
    connections["default"] = aside


def failures(queue: SQLiteQueue) -> list[str]:
    return [record.error.message for record in queue.list_failed()]


def test_a_plain_job_goes_to_the_handler_of_its_queue(queue: SQLiteQueue) -> None:
    id = queue.put({"n": 1})
    run(queue, lambda job: job.data["n"] + 1)
    assert queue.lookup(id).result == b"2"


def test_a_plain_job_of_a_queue_without_handler_fails_saying_so(queue: SQLiteQueue) -> None:
    queue.put({"n": 1})
    Worker(queue, DjangoExecutor(None, {}), burst=True).run()
    (message,) = failures(queue)
    assert "HANDLER" in message
    assert "'default'" in message


def test_a_task_without_a_tasks_framework_fails_saying_so(queue: SQLiteQueue) -> None:
    queue.put({"args": [], "kwargs": {}}, task="shop.tasks.send")
    Worker(queue, DjangoExecutor(None, {}), burst=True).run()
    assert "install django-localqueue[tasks]" in failures(queue)[0]


def test_language_and_time_zone_of_one_job_are_not_the_next_ones(queue: SQLiteQueue) -> None:
    seen = []

    def handler(job: Job) -> None:
        seen.append((translation.get_language(), timezone.get_current_timezone_name()))
        translation.activate("de")
        timezone.activate("Asia/Tokyo")

    queue.put_many([1, 2])
    with translation.override("fr"):
        run(queue, handler)
    assert seen == [("en", "UTC")] * 2


@pytest.mark.usefixtures("database")
def test_an_sqlite_connection_stays_open_from_job_to_job(queue: SQLiteQueue) -> None:
    seen = []

    def handler(job: Job) -> None:
        connection.ensure_connection()
        seen.append(connection.connection)

    queue.put_many([1, 2, 3])
    run(queue, handler)
    assert len(set(map(id, seen))) == 1


@pytest.mark.usefixtures("database")
def test_a_connection_left_without_autocommit_is_closed(queue: SQLiteQueue) -> None:
    seen = []

    def handler(job: Job) -> None:
        connection.ensure_connection()
        seen.append(connection.connection)
        assert connection.get_autocommit()
        transaction.set_autocommit(False)

    queue.put_many([1, 2])
    run(queue, handler)
    assert len(set(map(id, seen))) == 2
    assert failures(queue) == []


@pytest.mark.usefixtures("database")
def test_connections_of_a_thread_are_closed_when_it_ends(queue: SQLiteQueue) -> None:
    seen: list[sqlite3.Connection] = []

    def handler(job: Job) -> None:
        connection.ensure_connection()
        seen.append(connection.connection)

    queue.put(1)
    run(queue, handler)
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        seen[0].total_changes  # noqa: B018


class FakeConnection:
    """As much of a database connection as looking after it needs."""

    connection = None

    def __init__(self, vendor: str, in_atomic_block: bool = False) -> None:
        self.vendor = vendor
        self.in_atomic_block = in_atomic_block
        self.close_at: float | None = 1.0
        self.looked_after = 0

    def close_if_unusable_or_obsolete(self) -> None:
        self.looked_after += 1


def test_only_sqlite_connections_are_kept_whatever_their_age(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    postgresql, sqlite = FakeConnection("postgresql"), FakeConnection("sqlite")
    monkeypatch.setattr(connections, "all", lambda initialized_only: [postgresql, sqlite])
    keep_connections_healthy()
    assert (postgresql.close_at, sqlite.close_at) == (1.0, None)
    assert (postgresql.looked_after, sqlite.looked_after) == (1, 1)


def test_a_connection_in_a_transaction_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    in_test = FakeConnection("sqlite", in_atomic_block=True)
    monkeypatch.setattr(connections, "all", lambda initialized_only: [in_test])
    keep_connections_healthy()
    assert in_test.looked_after == 0


@pytest.mark.usefixtures("database")
def test_the_query_log_of_one_job_is_not_the_next_ones(queue: SQLiteQueue, settings: Any) -> None:
    settings.DEBUG = True
    seen = []

    def handler(job: Job) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        seen.append(sum(query["sql"] == "SELECT 1" for query in connection.queries))

    queue.put_many([1, 2])
    run(queue, handler)
    assert seen == [1, 1]
    reset_queries()


def test_caches_that_a_job_used_are_closed_after_it(
    queue: SQLiteQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = []

    def handler(job: Job) -> None:
        cache = caches["default"]
        monkeypatch.setattr(cache, "close", lambda: closed.append(threading.get_ident()), False)

    queue.put(1)
    run(queue, handler)
    assert len(closed) == 1
    assert failures(queue) == []


def test_jobs_of_a_thread_share_its_caches(queue: SQLiteQueue) -> None:
    seen: list[Any] = []
    queue.put_many(range(5))
    run(queue, lambda job: seen.append(caches["default"]))
    assert len(seen) == 5
    assert len({id(cache) for cache in seen}) == 1


def test_a_cache_that_cant_be_made_keeps_no_job_back(queue: SQLiteQueue, settings: Any) -> None:
    settings.CACHES = {**settings.CACHES, "broken": {"BACKEND": "no.such.Cache"}}
    id = queue.put(1)
    run(queue, lambda job: None)
    assert queue.lookup(id).state == "acked"
