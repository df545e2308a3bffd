"""Counts are exact while several processes change the store, and when one dies in between."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from django_localqueue import SimpleQueue
from tests.crash.build import CannotBuild, build

JOBS = 400
#: Moves jobs between states until its standard input ends, and neither adds nor removes any.
MOVER = """
import random, sys, threading
from django_localqueue import LeaseExpired, SimpleQueue
ended = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
queue = SimpleQueue(sys.argv[1], max_retries=1_000_000, durability="normal")
print("ready", flush=True)
while not ended.is_set():
    for job in queue.get_many(random.randrange(1, 4), timeout=0.01):
        random.choice([queue.ack, queue.nack, queue.fail, queue.release])(job)
    for record in queue.list_failed(limit=3):
        queue.retry_failed(record.id)
"""


def totals(folder: Path) -> dict[int, int]:
    with closing(sqlite3.connect(folder / "localqueue.db")) as connection:
        sql = "SELECT state, count(*) FROM messages GROUP BY state"
        return dict(connection.execute(sql).fetchall())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with SimpleQueue(tmp_path / "store", durability="normal") as queue:
        queue.put_many(range(JOBS))
    return tmp_path / "store"


def mover(folder: Path, **environment: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", MOVER, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_every_snapshot_is_whole_while_processes_move_jobs(folder: Path) -> None:
    movers = [mover(folder) for _ in range(3)]
    with SimpleQueue(folder, durability="normal") as queue:
        acked = 0
        while acked < JOBS // 2:
            assert [process.poll() for process in movers] == [None] * 3
            stats = queue.stats()
            assert stats.ready + stats.processing + stats.acked + stats.failed == JOBS
            assert stats.acked >= acked
            acked = stats.acked
        for process in movers:
            process.communicate(timeout=60)
            assert process.returncode == 0
        stats = queue.stats()
    found = totals(folder)
    assert (stats.ready, stats.acked) == (found.get(0, 0), found[4])
    assert (stats.processing, stats.failed) == (found.get(3, 0), found.get(5, 0))


FAILING = """
import sys
from pathlib import Path
from tests.crash.build import use
use(Path(sys.argv[2]))
from django_localqueue import SimpleQueue
queue = SimpleQueue(sys.argv[1], durability="normal")
queue.put("never counted by this process", priority=1)
raise SystemExit("the failpoint was not reached")
"""


def test_a_commit_whose_process_died_before_it_told_is_counted(folder: Path) -> None:
    try:
        module = build()
    except CannotBuild as error:
        pytest.skip(str(error))
    command = [sys.executable, "-c", FAILING, str(folder), str(module)]
    environment = os.environ | {"LOCALQUEUE_FAILPOINTS": "transact.uncounted=2"}
    with SimpleQueue(folder, durability="normal") as queue:
        assert queue.stats().ready == JOBS
        # The first transaction opens the store; the second is the put.
        died = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert died.returncode == -9, died.stderr
        assert totals(folder) == {0: JOBS + 1}
        assert queue.stats().ready == JOBS + 1
        queue.put(1)
        assert queue.stats().ready == JOBS + 2
