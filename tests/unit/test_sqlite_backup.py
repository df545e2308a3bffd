"""Backups of the SQLite store are stores, and a check names what is damaged."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from django_localqueue import SimpleQueue

#: Changes a closed file in another process, which has another SQLite.
CHANGE = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
with connection:
    connection.executescript(sys.argv[2])
connection.close()
"""


def test_a_backup_put_in_place_of_a_store_is_one(tmp_path: Path) -> None:
    with SimpleQueue(tmp_path / "store") as queue:
        queue.put("kept", job_id="a")
        queue.put("in the hands of a worker", job_id="b")
        job = queue.get()
        queue.backup(tmp_path / "copy.db")
        queue.ack(job)
        queue.put("later")
        assert queue.stats().acked == 1
    shutil.rmtree(tmp_path / "store")
    (tmp_path / "store").mkdir()
    shutil.copy(tmp_path / "copy.db", tmp_path / "store" / "localqueue.db")
    with SimpleQueue(tmp_path / "store") as queue:
        stats = queue.stats()
        assert (stats.ready, stats.processing, stats.acked) == (1, 1, 0)
        assert queue.check() == []
        assert queue.get().id == "b"


def test_a_store_in_memory_can_be_backed_up(tmp_path: Path) -> None:
    with SimpleQueue(":memory:") as queue:
        queue.put(1)
        queue.backup(tmp_path / "localqueue.db")
        assert queue.check() == []
    with SimpleQueue(tmp_path) as queue:
        assert queue.stats().ready == 1


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ("UPDATE messages SET state = 2 WHERE grp IS NULL", "waits for a group and is in none"),
        ("UPDATE messages SET state = 2 WHERE grp IS NOT NULL", "no job leads"),
        ("UPDATE messages SET state = 3", "has no receipt"),
        ("UPDATE messages SET state = 9", "in no known state"),
        ("UPDATE messages SET reason = 'failed'", "a reason and is none"),
        ("UPDATE messages SET attempts = -1", "fewer than no deliveries"),
        ("UPDATE messages SET queue = 77", "a queue that has no name"),
    ],
)
def test_a_check_names_what_is_wrong(change: str, fault: str, tmp_path: Path) -> None:
    with SimpleQueue(tmp_path) as queue:
        queue.put(1)
        queue.put(1, group_id="g")
    command = [sys.executable, "-c", CHANGE, str(tmp_path / "localqueue.db"), change]
    subprocess.run(command, check=True, timeout=60)
    with SimpleQueue(tmp_path) as queue:
        assert any(fault in found for found in queue.check())


#: Takes an index away, changes what it has, and puts it back as it was.
UNINDEXED = """
import sqlite3, sys
def change(*statements):
    connection = sqlite3.connect(sys.argv[1])
    connection.execute("PRAGMA writable_schema = ON")
    with connection:
        for statement, *parameters in statements:
            connection.execute(statement, parameters)
    connection.close()
connection = sqlite3.connect(sys.argv[1])
row = connection.execute("SELECT * FROM sqlite_schema WHERE name = 'm_job_id'").fetchone()
connection.close()
change(("DELETE FROM sqlite_schema WHERE name = 'm_job_id'",))
change(("UPDATE messages SET job_id = 'other'",))
change(("INSERT INTO sqlite_schema VALUES (?, ?, ?, ?, ?)", *row))
"""


def test_a_check_names_damage_of_the_file(tmp_path: Path) -> None:
    with SimpleQueue(tmp_path) as queue:
        queue.put(1, job_id="a")
    command = [sys.executable, "-c", UNINDEXED, str(tmp_path / "localqueue.db")]
    subprocess.run(command, check=True, timeout=60)
    with SimpleQueue(tmp_path) as queue:
        assert any(found.startswith("SQLite: ") for found in queue.check())
