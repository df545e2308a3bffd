"""Arguments, paths and files that can't be: a clear error, nothing stored, nothing changed."""

from __future__ import annotations

import datetime
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from django_localqueue import (
    ForeignDatabase,
    InvalidInput,
    LeaseExpired,
    LocalQueueError,
    NewerSchema,
    NewJob,
    NotStored,
    PayloadTooLarge,
    SerializationError,
    SQLiteQueue,
    StoreBusy,
    StoreCorrupt,
    StoreUnavailable,
)
from tests.unit.calls import call_unprivileged

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")

NAN, INFINITY = float("nan"), float("inf")
CENTURY = 100 * 365 * 86_400


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "store"


# ---- arguments


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"name": ""}, "name is empty"),
        ({"name": "x" * 256}, "name has 256 characters, and at most 255"),
        ({"name": "a\x00b"}, "name contains a NUL character"),
        ({"name": "\ud800"}, "name contains a lone surrogate"),
        ({"name": None}, "name must be text, and it is None"),
        ({"lease_seconds": 0}, "lease_seconds must be at least 0.001"),
        ({"lease_seconds": -1}, "lease_seconds must be at least 0.001"),
        ({"lease_seconds": NAN}, "lease_seconds must be a finite number"),
        ({"lease_seconds": INFINITY}, "lease_seconds must be a finite number"),
        ({"lease_seconds": CENTURY + 1}, f"at most {CENTURY} are allowed"),
        ({"lease_seconds": "60"}, "lease_seconds must be a number of seconds"),
        ({"lease_seconds": True}, "lease_seconds must be a number of seconds"),
        ({"max_retries": -1}, "max_retries must be from 0"),
        ({"max_retries": 1.0}, "max_retries must be a whole number"),
        ({"max_payload_bytes": 0}, "max_payload_bytes must be from 1"),
        ({"retention_seconds": -1}, "retention_seconds must be 0 or more"),
        ({"durability": "FULL"}, "durability must be 'full' or 'normal', and it is 'FULL'"),
        ({"busy_timeout": -1}, "busy_timeout must be 0 or more"),
        ({"busy_timeout": None}, "busy_timeout must be a number of seconds"),
        ({"serializer": object()}, r"serializer must have dumps\(\)"),
    ],
)
def test_a_constructor_argument_is_refused_before_anything_is_made(
    folder: Path, arguments: dict[str, Any], text: str
) -> None:
    with pytest.raises(InvalidInput, match=text):
        SQLiteQueue(folder, **arguments)
    assert not folder.exists()


@pytest.mark.parametrize("path", ["", "a\x00b", b"bytes", 3, None, ["folder"]])
def test_a_path_that_is_none_is_refused(path: Any) -> None:
    with pytest.raises(InvalidInput, match="path must be the path of a folder"):
        SQLiteQueue(path)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"job_id": ""}, "job_id is empty"),
        ({"job_id": "x" * 256}, "job_id has 256 characters"),
        ({"job_id": 3}, "job_id must be text"),
        ({"delay": -0.5}, "delay must be 0 or more"),
        ({"delay": NAN}, "delay must be a finite number"),
        ({"delay": INFINITY}, "delay must be a finite number"),
        ({"delay": CENTURY * 2}, "at most"),
        ({"delay": datetime.timedelta(1)}, "delay must be a number of seconds"),
        ({"priority": 101}, "priority must be from -100 to 100"),
        ({"priority": -101}, "priority must be from -100 to 100"),
        ({"priority": True}, "priority must be a whole number"),
        ({"group_id": ""}, "group_id is empty"),
        ({"group_id": "x" * 256}, "group_id has 256 characters"),
        ({"max_retries": -1}, "max_retries must be from 0"),
        ({"task": ""}, "task is empty"),
        ({"headers": {"when": datetime.date(2020, 1, 1)}}, r"data\['when'\] is a date"),
    ],
)
def test_put_refuses_an_argument_and_stores_nothing(
    queue: SQLiteQueue, arguments: dict[str, Any], text: str
) -> None:
    with pytest.raises(InvalidInput, match=text):
        queue.put({}, **arguments)
    with pytest.raises(InvalidInput, match=f"job 1: .*{text}"):
        queue.put_many([{}, NewJob({}, **arguments)])
    assert queue.stats().ready == 0


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda queue: queue.get(timeout=-1), "timeout must be 0 or more"),
        (lambda queue: queue.get(timeout=NAN), "timeout must be a finite number"),
        (lambda queue: queue.get(False, timeout=NAN), "timeout must be a finite number"),
        (lambda queue: queue.get(timeout="1"), "timeout must be a number of seconds"),
        (lambda queue: queue.get(False, lease_seconds=0), "lease_seconds must be at least"),
        (lambda queue: queue.get(False, min_priority=101), "min_priority must be from -100"),
        (lambda queue: queue.get(False, worker="x" * 256), "worker has 256 characters"),
        (lambda queue: queue.get_many(-1), "want must be from 0"),
        (lambda queue: queue.get_many("2"), "want must be a whole number"),
        (lambda queue: queue.purge(-1), "older_than must be 0 or more"),
        (lambda queue: queue.purge(NAN), "older_than must be a finite number"),
        (lambda queue: queue.prune(0), "limit must be from 1"),
        (lambda queue: queue.list(limit=0), "limit must be from 1"),
        (lambda queue: queue.list_failed(offset=-1), "offset must be from 0"),
        (lambda queue: queue.count(cap=0), "cap must be from 1"),
        (lambda queue: queue.retry_failed(""), "message_id is empty"),
        (lambda queue: queue.ack("job"), "A claimed job is needed"),
        (lambda queue: queue.extend_lease("job", 1), "A claimed job is needed"),
    ],
)
def test_a_verb_refuses_an_argument_and_changes_nothing(
    queue: SQLiteQueue, call: Callable[[SQLiteQueue], object], text: str
) -> None:
    queue.put({})
    with pytest.raises(InvalidInput, match=text):
        call(queue)
    assert queue.get_nowait().attempts == 1


@pytest.mark.parametrize(
    "call",
    [
        lambda queue, job: queue.nack(job, delay=-1),
        lambda queue, job: queue.nack(job, delay=NAN),
        lambda queue, job: queue.extend_lease(job, 0),
        lambda queue, job: queue.extend_lease(job, INFINITY),
        lambda queue, job: queue.ack(job, result={1, 2}),
    ],
)
def test_a_settling_verb_refuses_an_argument_and_leaves_the_lease(
    queue: SQLiteQueue, call: Callable[..., object]
) -> None:
    queue.put({})
    job = queue.get_nowait()
    with pytest.raises(InvalidInput):
        call(queue, job)
    queue.ack(job)
    assert queue.stats().acked == 1


def test_a_payload_over_the_limit_is_refused_and_the_limit_itself_is_not(folder: Path) -> None:
    with SQLiteQueue(folder) as queue:
        queue.put("x" * ((1 << 20) - 2))
        with pytest.raises(
            PayloadTooLarge, match=r"1048577 bytes.*at most 1048576; store the data"
        ):
            queue.put("x" * ((1 << 20) - 1))
        assert queue.stats().ready == 1


def test_a_payload_that_json_cannot_carry_is_refused(queue: SQLiteQueue) -> None:
    with pytest.raises(SerializationError, match=r"data\['when'\] is a datetime"):
        queue.put({"when": datetime.datetime(2020, 1, 1)})
    assert queue.stats().ready == 0


def test_a_job_of_another_store_is_not_settled(queue: SQLiteQueue, tmp_path: Path) -> None:
    with SQLiteQueue(tmp_path / "other") as other:
        other.put({})
        job = other.get_nowait()
        for verb in (queue.ack, queue.nack, queue.fail, queue.release):
            with pytest.raises(LeaseExpired, match="not claimed from this store"):
                verb(job)
        with pytest.raises(LeaseExpired, match="not claimed from this store"):
            queue.extend_lease(job, 5)
        other.ack(job)


# ---- the folder


def refusal(folder: Path | str) -> StoreUnavailable:
    with pytest.raises(StoreUnavailable) as caught:
        SQLiteQueue(folder)
    assert isinstance(caught.value, NotStored)
    assert str(folder) in str(caught.value)
    return caught.value


def test_a_path_that_is_a_file_is_refused_and_the_file_kept(folder: Path) -> None:
    folder.write_text("precious")
    refusal(folder)
    assert folder.read_text() == "precious"


def test_a_path_below_a_file_is_refused(folder: Path) -> None:
    folder.write_text("precious")
    refusal(folder / "store")


def test_a_path_whose_parent_is_missing_is_refused(folder: Path) -> None:
    refusal(folder / "deeper")
    assert not folder.exists()


def test_a_database_file_that_is_a_folder_is_refused(folder: Path) -> None:
    (folder / "localqueue.db").mkdir(parents=True)
    refusal(folder)


def test_a_dangling_link_is_refused(folder: Path) -> None:
    folder.symlink_to(folder.with_name("nowhere") / "deeper")
    with pytest.raises(StoreUnavailable):
        SQLiteQueue(folder)


def test_a_path_that_is_too_long_is_refused(tmp_path: Path) -> None:
    refusal(tmp_path / ("x" * 300))


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_a_file_system_that_takes_no_files_is_refused() -> None:
    refusal("/proc/localqueue")


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder whose parents everybody may read."""
    path = Path(tempfile.mkdtemp(dir="/tmp"))
    path.chmod(0o755)
    yield path
    path.chmod(0o755)
    shutil.rmtree(path)


def attempt(folder: Path) -> str:
    try:
        SQLiteQueue(folder).put({})
    except LocalQueueError as error:
        return f"{type(error).__name__}: {error}"
    return "stored"


def test_a_folder_that_may_not_be_made_is_refused(open_folder: Path) -> None:
    open_folder.chmod(0o555)
    answer = call_unprivileged(lambda: attempt(open_folder / "store"))
    assert answer.startswith("StoreUnavailable: ")
    assert str(open_folder / "store") in answer


def test_a_folder_that_may_not_be_written_is_refused(open_folder: Path) -> None:
    (open_folder / "store").mkdir(mode=0o555)
    answer = call_unprivileged(lambda: attempt(open_folder / "store"))
    assert answer.startswith("StoreUnavailable: ")
    assert str(open_folder / "store") in answer


def test_a_database_that_may_not_be_written_is_refused(open_folder: Path) -> None:
    with SQLiteQueue(open_folder / "store") as queue:
        queue.put("kept")
    for path in (open_folder / "store").iterdir():
        path.chmod(0o444)
    (open_folder / "store").chmod(0o555)
    answer = call_unprivileged(lambda: attempt(open_folder / "store"))
    assert answer.startswith("StoreUnavailable: ")
    for path in (open_folder / "store", *(open_folder / "store").iterdir()):
        path.chmod(0o755)
    with SQLiteQueue(open_folder / "store") as queue:
        assert queue.get_nowait().data == "kept"


# ---- the file


def database(folder: Path) -> Path:
    return folder / "localqueue.db"


def test_a_file_that_is_not_a_database_is_refused_and_kept(folder: Path) -> None:
    folder.mkdir()
    database(folder).write_bytes(b"this is no database at all, " * 500)
    with pytest.raises(StoreCorrupt, match="damaged or not a database"):
        SQLiteQueue(folder)
    assert database(folder).read_bytes() == b"this is no database at all, " * 500


def test_a_damaged_database_is_refused_by_the_call_that_meets_it(folder: Path) -> None:
    with SQLiteQueue(folder) as queue:
        queue.put_many(["x" * 500] * 200)
    content = bytearray(database(folder).read_bytes())
    size = int.from_bytes(content[16:18], "big")
    content[size:] = b"\xff" * (len(content) - size)  # all pages but the first
    database(folder).write_bytes(content)
    with pytest.raises(StoreCorrupt), SQLiteQueue(folder) as queue:
        queue.get_nowait()


def test_a_truncated_database_is_refused(folder: Path) -> None:
    with SQLiteQueue(folder) as queue:
        queue.put_many(["x" * 500] * 200)
    os.truncate(database(folder), 5000)
    with pytest.raises(StoreCorrupt), SQLiteQueue(folder) as queue:
        queue.get_nowait()


def test_a_newer_schema_is_refused_by_its_number_and_not_changed(folder: Path) -> None:
    with SQLiteQueue(folder) as queue:
        queue.put({})
    with sqlite3.connect(database(folder)) as connection:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        connection.execute(f"PRAGMA user_version = {version + 1}")
    connection.close()
    with pytest.raises(NewerSchema, match=f"schema version {version + 1}.*knows {version}"):
        SQLiteQueue(folder)


def test_a_database_of_somebody_else_is_refused_and_kept(folder: Path) -> None:
    folder.mkdir()
    with sqlite3.connect(database(folder)) as connection:
        connection.execute("CREATE TABLE auth_user (id INTEGER PRIMARY KEY)")
    connection.close()
    before = database(folder).read_bytes()
    with pytest.raises(ForeignDatabase, match="did not make; give the queue a folder of its own"):
        SQLiteQueue(folder)
    assert database(folder).read_bytes() == before


@pytest.mark.parametrize("how", ["same path", "link to the folder", "link to the file"])
def test_a_file_that_django_opens_too_is_refused_without_opening_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    folder.mkdir()
    database(folder).write_bytes(b"")
    name = database(folder)
    if how == "link to the folder":
        folder.with_name("link").symlink_to(folder)
        name = database(folder.with_name("link"))
    elif how == "link to the file":
        os.link(database(folder), folder.with_name("hard.db"))
        name = folder.with_name("hard.db")
    other = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(name)}
    monkeypatch.setitem(settings.DATABASES, "other", other)
    with pytest.raises(ForeignDatabase, match="also the database 'other' of DATABASES"):
        SQLiteQueue(folder)
    assert os.listdir(folder) == ["localqueue.db"]


def test_a_database_of_django_beside_the_queue_is_no_fault(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = {"ENGINE": "django.db.backends.sqlite3", "NAME": folder / "db.sqlite3"}
    monkeypatch.setitem(settings.DATABASES, "other", other)
    with SQLiteQueue(folder) as queue:
        queue.put({})


HOLD = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.read()
"""


def test_a_lock_held_too_long_says_whose_and_how_long(folder: Path) -> None:
    with SQLiteQueue(folder, busy_timeout=0.2) as queue:
        queue.put("kept")
        holder = subprocess.Popen(
            [sys.executable, "-c", HOLD, database(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(StoreBusy, match=r"localqueue\.db was not free within 0\.\d s"):
            queue.put({})
        holder.communicate()
        queue.put("after")
        assert [job.data for job in queue.get_many(5)] == ["kept", "after"]
