"""What the SQLite queue has beyond the contract: paths, sharing of stores, payloads."""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from django_localqueue import (
    Empty,
    InvalidInput,
    NewJob,
    QueueClosed,
    SimpleQueue,
    SQLiteQueue,
)
from django_localqueue._native import ManualClock
from tests.unit.calls import Call, wait_until


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "store"


# ---- the seed's promises


def test_simple_queue_is_the_sqlite_queue() -> None:
    assert SimpleQueue is SQLiteQueue


def test_the_example_of_the_readme_runs_as_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    processed = []
    with SimpleQueue("./data", lease_seconds=30, max_retries=3) as q:
        q.put({"type": "deploy", "app": "jarvis", "revision": "abc123"})
        job = q.get()
        try:
            processed.append(job.data)
        except Exception:
            q.nack(job)
        else:
            q.ack(job)
        assert q.stats()["acked"] == 1
    assert processed == [{"type": "deploy", "app": "jarvis", "revision": "abc123"}]
    assert (tmp_path / "data" / "localqueue.db").is_file()


def test_queue_and_worker_need_no_django_settings(tmp_path: Path) -> None:
    code = (
        "from django_localqueue import SimpleQueue, Worker\n"
        "from django.conf import settings\n"
        "with SimpleQueue('data') as queue:\n"
        "    queue.put(1)\n"
        "    Worker(queue, lambda job: None, burst=True).run()\n"
        "    assert queue.stats().acked == 1\n"
        "assert not settings.configured\n"
    )
    environment = {k: v for k, v in os.environ.items() if k != "DJANGO_SETTINGS_MODULE"}
    root = str(Path(__file__).resolve().parents[2])
    environment["PYTHONPATH"] = os.pathsep.join([root, environment.get("PYTHONPATH", "")])
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path, env=environment)


# ---- paths


@pytest.mark.parametrize("kind", [str, Path])
def test_path_is_a_folder_that_is_made(folder: Path, kind: Callable[[Path], Any]) -> None:
    with SQLiteQueue(kind(folder)):
        assert sorted(path.name for path in folder.iterdir())[0] == "localqueue.db"


def test_a_relative_path_is_of_the_directory_it_was_opened_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "one").mkdir()
    monkeypatch.chdir(tmp_path / "one")
    with SQLiteQueue("store") as queue:
        monkeypatch.chdir(tmp_path)
        queue.put({})
        assert queue.store_key == str(tmp_path / "one" / "store")


def test_the_repr_tells_name_and_folder(folder: Path) -> None:
    with SQLiteQueue(folder, "emails") as queue:
        assert repr(queue) == f"<SQLiteQueue 'emails' in {folder}>"


def test_a_lazy_queue_opens_its_store_when_it_is_used(folder: Path) -> None:
    with SQLiteQueue(folder, lazy=True) as queue:
        assert not folder.exists()
        queue.put({})
        assert (folder / "localqueue.db").is_file()


# ---- one store a folder


def test_queues_of_one_folder_share_one_store(folder: Path) -> None:
    with SQLiteQueue(folder, "a") as a, SQLiteQueue(folder, "b") as b:
        assert a._join() is b._join()
        a.put("for a")
        b.put("for b")
        assert b.get_nowait().data == "for b"
        assert a.get_nowait().data == "for a"


def test_two_paths_to_one_folder_share_one_store(folder: Path) -> None:
    folder.mkdir()
    link = folder.with_name("link")
    link.symlink_to(folder)
    with SQLiteQueue(folder) as one, SQLiteQueue(link) as other:
        assert one._join() is other._join()


def test_the_same_name_twice_is_the_same_queue(folder: Path) -> None:
    with SQLiteQueue(folder) as one, SQLiteQueue(folder) as other:
        one.put("shared")
        job = other.get_nowait()
        one.ack(job)
        assert other.stats().acked == 1


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"durability": "normal"}, "durability 'normal'"),
        ({"busy_timeout": 5}, "busy_timeout 5"),
        ({"clock": ManualClock()}, "a clock of its own"),
    ],
)
def test_a_store_that_is_open_otherwise_is_refused(
    folder: Path, options: dict[str, Any], text: str
) -> None:
    with SQLiteQueue(folder, "a"):
        with pytest.raises(InvalidInput, match="durability 'full', busy_timeout 30") as caught:
            SQLiteQueue(folder, "b", **options)
        assert text in str(caught.value)
    with SQLiteQueue(folder, "b", **options) as queue:  # once it is closed, it is free
        queue.put({})


def test_closing_one_queue_leaves_the_others_of_its_store_open(folder: Path) -> None:
    a, b = SQLiteQueue(folder, "a"), SQLiteQueue(folder, "b")
    a.close()
    b.put({})
    assert b.stats().ready == 1
    b.close()


def test_the_last_queue_to_close_closes_the_store(folder: Path) -> None:
    a, b = SQLiteQueue(folder, "a"), SQLiteQueue(folder, "b")
    store = a._join().store
    a.close()
    b.close()
    with pytest.raises(QueueClosed):
        store.put_one("a", b"1")
    assert not (folder / "localqueue.db-wal").exists()


def test_a_queue_that_is_dropped_without_close_frees_its_store(folder: Path) -> None:
    queue = SQLiteQueue(folder)
    queue.put("kept")
    store = weakref.ref(queue._join())
    del queue
    gc.collect()
    assert store() is None
    with SQLiteQueue(folder, durability="normal") as again:
        assert again.get_nowait().data == "kept"


def test_memory_is_a_store_of_its_own_for_each_queue() -> None:
    with SQLiteQueue(":memory:") as one, SQLiteQueue(":memory:") as other:
        one.put({})
        assert other.stats().ready == 0
        assert one.store_key != other.store_key


def test_memory_with_a_name_is_shared_by_that_name() -> None:
    with SQLiteQueue(":memory:x") as one, SQLiteQueue(":memory:x") as other:
        one.put({})
        assert other.stats().ready == 1
    with SQLiteQueue(":memory:x") as later:
        assert later.stats().ready == 0


def test_opening_one_folder_from_many_threads_opens_one_store(folder: Path) -> None:
    start = threading.Barrier(8)

    def open_queue() -> SQLiteQueue:
        start.wait()
        return SQLiteQueue(folder)

    opened = [call.result() for call in [Call(open_queue) for _ in range(8)]]
    assert len({id(queue._join()) for queue in opened}) == 1
    for queue in opened:
        queue.close()


# ---- put and get


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"delay": 0},
        {"priority": 0},
        {"headers": {}},
        {"job_id": None, "group_id": None, "max_retries": None, "task": None},
    ],
)
def test_put_with_defaults_in_any_spelling_stores_a_plain_job(
    queue: SQLiteQueue, arguments: dict[str, Any]
) -> None:
    id = queue.put({"a": 1}, **arguments)
    assert (id.created, id.state) == (True, "ready")
    record = queue.lookup(id)
    assert record is not None
    assert (record.payload, record.priority, record.headers) == (b'{"a":1}', 0, {})


@pytest.mark.parametrize("priority", [False, 0.0, "", None])
def test_put_takes_no_other_kind_of_zero_for_a_priority(queue: SQLiteQueue, priority: Any) -> None:
    with pytest.raises(InvalidInput, match="priority must be a whole number"):
        queue.put({}, priority=priority)


def test_a_job_has_everything_that_was_put(queue: SQLiteQueue) -> None:
    queue.put(
        [1, 2],
        "mine",
        priority=7,
        group_id="g",
        max_retries=9,
        task="a.b",
        headers={"h": 1},
    )
    job = queue.get_nowait()
    assert (job.id, job.data, job.priority, job.group_id) == ("mine", [1, 2], 7, "g")
    assert (job.max_retries, job.task, job.headers) == (9, "a.b", {"h": 1})
    assert (job.attempts, job.queue) == (1, queue)


def test_a_job_of_another_queue_of_the_store_is_acked_by_any_of_them(folder: Path) -> None:
    with SQLiteQueue(folder, "a") as a, SQLiteQueue(folder, "b") as b:
        a.put({})
        b.ack(a.get_nowait())
        assert a.stats().acked == 1


def test_an_undecodable_job_is_passed_over_by_a_get_that_waits(queue: SQLiteQueue) -> None:
    queue._join().store.put_one(queue.name, b"\xff not JSON")
    call = Call(lambda: queue.get(timeout=30))
    wait_until(lambda: queue.stats().failed == 1)
    assert call.is_alive()
    queue.put("good")
    assert call.result().data == "good"


def test_undecodable_jobs_are_passed_over_by_get_nowait(queue: SQLiteQueue) -> None:
    store = queue._join().store
    for _ in range(5):
        store.put_one(queue.name, b"not JSON")
    queue.put("good")
    assert queue.get_nowait().data == "good"
    with pytest.raises(Empty):
        queue.get_nowait()
    assert queue.stats().failed == 5


def test_an_undecodable_job_among_good_ones_costs_none_of_them(queue: SQLiteQueue) -> None:
    queue.put(1)
    queue._join().store.put_one(queue.name, b"not JSON")
    queue.put(3)
    assert [job.data for job in queue.get_many(10)] == [1, 3]
    assert queue.stats().failed == 1


def test_an_undecodable_job_keeps_its_bytes_and_says_why(queue: SQLiteQueue) -> None:
    queue._join().store.put_one(queue.name, b"\xff\x00 not JSON")
    assert queue.get_many(1) == []
    (record,) = queue.list_failed()
    assert record.reason == "undecodable"
    assert record.payload == b"\xff\x00 not JSON"
    assert record.error is not None
    assert record.error.error_class == "django_localqueue.exceptions.UndecodablePayload"
    assert "not valid JSON" in record.error.message


def test_whatever_a_serializer_raises_makes_an_undecodable_job(folder: Path) -> None:
    class Moody:
        def dumps(self, data: Any) -> bytes:
            return pickle.dumps(data)

        def loads(self, payload: bytes) -> Any:
            raise ZeroDivisionError("moody")

    with SQLiteQueue(folder, serializer=Moody()) as queue:
        queue.put(1)
        assert queue.get_many(1) == []
        (record,) = queue.list_failed()
        assert record.error is not None
        assert "ZeroDivisionError('moody')" in record.error.message


def test_headers_that_cannot_be_decoded_make_an_undecodable_job(queue: SQLiteQueue) -> None:
    plain = (b"1", "id", 0, 0, None, None, None)
    queue._join().store.put(queue.name, [(*plain, b"not JSON", None, None, 0, None)])
    assert queue.get_many(1) == []
    assert queue.stats().failed == 1


def test_each_source_of_an_exchange_decodes_with_its_own_serializer(folder: Path) -> None:
    class Hex:
        def dumps(self, data: Any) -> bytes:
            return data.encode().hex().encode()  # type: ignore[no-any-return]

        def loads(self, payload: bytes) -> Any:
            return bytes.fromhex(payload.decode()).decode()

    with SQLiteQueue(folder, "a") as a, SQLiteQueue(folder, "b", serializer=Hex()) as b:
        a.put("plain")
        b.put("hex")
        jobs = a.exchange((), 2, sources=[b, a]).jobs
        assert [(job.data, job.queue) for job in jobs] == [("hex", b), ("plain", a)]


def test_put_many_takes_payloads_and_new_jobs_alike(queue: SQLiteQueue) -> None:
    first, second = queue.put_many([{"plain": 1}, NewJob({"named": 2}, job_id="n")])
    assert second == "n"
    assert queue.lookup(first) is not None
