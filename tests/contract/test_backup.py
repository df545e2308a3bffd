"""A copy of the store as of one moment, and looking for damage."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from django_localqueue.backends.base import BaseQueue
from django_localqueue.exceptions import InvalidInput, StoreUnavailable
from tests.contract.backends import Backend


def tables(file: Path) -> dict[int, int]:
    """Return how many jobs of each state the copy holds, of either kind of store."""
    with closing(sqlite3.connect(file)) as connection:
        (name,) = connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE '%messages'"
            " AND name NOT LIKE '%do_%'"
        ).fetchone()
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return dict(
            connection.execute(f"SELECT state, count(*) FROM {name} GROUP BY state").fetchall()
        )


def test_a_backup_holds_every_job_of_every_queue(
    backend: Backend, queue: BaseQueue, tmp_path: Path
) -> None:
    queue.put_many([1, 2, 3])
    queue.ack(queue.get_nowait())
    queue.get_nowait()
    backend.open("other").put(1, delay=60)
    queue.backup(tmp_path / "copy.db")
    assert tables(tmp_path / "copy.db") == {0: 1, 1: 1, 3: 1, 4: 1}
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("copy")] == ["copy.db"]


def test_a_backup_is_of_one_moment_while_others_write(queue: BaseQueue, tmp_path: Path) -> None:
    queue.put(0)
    ended = threading.Event()

    def write() -> None:
        while not ended.is_set():
            queue.put_many([1, 2])  # one transaction: an even number, or none

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for n in range(5):
            queue.backup(tmp_path / f"{n}.db")
    finally:
        ended.set()
        writer.join()
    assert [tables(tmp_path / f"{n}.db")[0] % 2 for n in range(5)] == [1] * 5


def test_a_backup_overwrites_nothing(queue: BaseQueue, tmp_path: Path) -> None:
    target = tmp_path / "copy.db"
    target.write_text("precious")
    with pytest.raises(InvalidInput, match="is there already"):
        queue.backup(target)
    assert target.read_text() == "precious"


def test_where_no_backup_can_be_written_nothing_is_left(queue: BaseQueue, tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match=r"copy\.db"):
        queue.backup(tmp_path / "missing" / "copy.db")
    assert not (tmp_path / "missing").exists()


@pytest.mark.parametrize("path", ["", 1, None, b"copy.db", "a\x00b"])
def test_a_backup_needs_the_path_of_a_file(queue: BaseQueue, path: object) -> None:
    with pytest.raises(InvalidInput, match="path must be"):
        queue.backup(path)  # type: ignore[arg-type]


def test_a_sound_store_has_no_faults(queue: BaseQueue) -> None:
    queue.put_many(range(20))
    for job in queue.get_many(10):
        queue.ack(job)
    queue.put(1, group_id="g")
    queue.put(2, group_id="g")
    queue.fail(queue.get_nowait(), "broken")
    assert queue.check() == []
