"""Fills a store with a million jobs in seconds, by SQL, as the engine would leave them.

Ours and the bare loop start from copies of one file, so what they differ in is
not the file. Nothing may have the store open meanwhile.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import time
from pathlib import Path

from benchmarks.contestants import PAYLOAD

SCHEMA_VERSION = 2
DAY = 86_400_000_000

_NUMBERS = """
WITH RECURSIVE numbers(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM numbers WHERE i + 1 < :count)
"""
_INSERTS = {
    "ready": """
INSERT INTO messages(id, queue, state, prio, since, at, created, payload)
SELECT :first + i, :queue, 0, 0, :first + i, :first + i, :first + i, :payload FROM numbers
""",
    "delayed": """
INSERT INTO messages(id, queue, state, prio, since, at, created, payload)
SELECT :first + i, :queue, 1, 0, 0, :first + i + :day, :first + i, :payload FROM numbers
""",
    "failed": """
INSERT INTO messages(id, queue, state, prio, since, at, attempts, receipt, verb, created,
  started, worker, reason, err_class, err_message, err_place, payload)
SELECT :first + i, :queue, 5, 0, :first + i, :first + i, 1, i + 1, 3, :first + i,
  :first + i, '', 'failed', 'ValueError', 'no such file', 'tasks.py:1', :payload FROM numbers
""",
    "acked": """
INSERT INTO messages(id, queue, state, prio, since, at, attempts, receipt, verb, created,
  started, worker, payload)
SELECT :first + i, :queue, 4, 0, :first + i, :first + i, 1, i + 1, 1, :first + i,
  :first + i, '', :payload FROM numbers
""",
    "processing": """
INSERT INTO messages(id, queue, state, prio, since, at, attempts, receipt, created, started,
  worker, payload)
SELECT :first + i, :queue, 3, 0, :first + i, (1 << 62) + i, 1, i + (1 << 61), :first + i,
  :first + i, '', :payload FROM numbers
""",
    "grouped": """
INSERT INTO messages(id, queue, state, prio, since, at, created, grp, payload)
SELECT :first + i, :queue, iif(i < :groups, 0, 2), 0, :first + i, iif(i < :groups, :first + i, 0),
  :first + i, 'g' || (i % :groups), :payload FROM numbers
""",
}


def fill(folder: Path, counts: dict[str, int], groups: int = 0) -> None:
    """Make a store in ``folder`` with so many jobs of each kind (keys of ``_INSERTS``)."""
    from django_localqueue import SimpleQueue

    store = folder / "store"
    queue = SimpleQueue(store, durability="normal")
    queue.put(PAYLOAD)  # makes the queue's row
    queue.close()
    db = sqlite3.connect(store / "localqueue.db", isolation_level=None)
    found = db.execute("PRAGMA user_version").fetchone()[0]
    if found != SCHEMA_VERSION:
        raise SystemExit(f"benchmarks/fill.py knows schema {SCHEMA_VERSION}, and this is {found}.")
    db.execute("PRAGMA synchronous = OFF")
    db.execute("BEGIN")
    db.execute("DELETE FROM messages")
    first = time.time_ns() // 1_000 - DAY
    for kind, count in counts.items():
        parameters = {
            "count": count,
            "first": first,
            "queue": db.execute("SELECT id FROM queues WHERE name = 'default'").fetchone()[0],
            "payload": json.dumps(PAYLOAD, separators=(",", ":")).encode(),
            "day": 2 * DAY,
            "groups": groups,
        }
        db.execute(_NUMBERS + _INSERTS[kind], parameters)
        first += count
    db.execute("COMMIT")
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()


def copy(source: Path, target: Path) -> None:
    """Copy a filled store to a folder that is made for it."""
    shutil.copytree(source / "store", target / "store")
