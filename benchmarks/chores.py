"""How long a worker's chores keep others from the store, on SQLite.

``python -m benchmarks.chores [--scale 1]`` makes a store with 200,000 acked jobs whose retention is
over, 100,000 lapsed leases, 100,000 leases of a dead worker and 100,000 delayed jobs that are due.
Another process puts jobs into it, one after the other, and notes how long each put takes, while
this one does the chores as a worker does them. The slowest puts waited for the longest steps, and
for whatever else the machine did: the first line is that of puts beside no chore.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.fill import fill

JOBS = {"acked": 200_000, "processing": 200_000, "delayed": 100_000}
#: Delayed jobs that a claim makes ready, at most.
PROMOTIONS = 64
DEAD = "a dead worker"
#: Puts jobs until its input ends; then prints when each put began, and how long it took.
PUTS = """
import json, select, sys, time
from django_localqueue import SimpleQueue
queue = SimpleQueue(sys.argv[1], "puts", durability="normal")
seen = []
print("ready", flush=True)
while not select.select([sys.stdin], [], [], 0.0005)[0]:
    began = time.monotonic()
    queue.put({})
    seen.append((began, time.monotonic() - began))
print(json.dumps(seen), flush=True)
"""


@dataclass(frozen=True)
class Span:
    """A chore that was done, and when; ``used`` is processor time in seconds."""

    name: str
    began: float
    ended: float
    used: float


def make_store(folder: Path, scale: float) -> Path:
    """Return a store in which every chore has much to do."""
    fill(folder, {kind: round(count * scale) for kind, count in JOBS.items()})
    db = sqlite3.connect(folder / "store" / "localqueue.db", isolation_level=None)
    db.execute("PRAGMA synchronous = OFF")
    db.execute("UPDATE messages SET at = created WHERE state = 1")
    db.execute("UPDATE messages SET worker = ? WHERE state = 3 AND id % 2", (DEAD,))
    db.execute("UPDATE messages SET at = 1 WHERE state = 3 AND worker = ''")
    report = (DEAD, 7, time.time_ns() // 1_000, b"{}")
    db.execute("INSERT INTO workers(name, slot, seen, record) VALUES (?, ?, ?, ?)", report)
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
    return folder / "store"


def do_all(store: Path, due: int, alone: float) -> list[Span]:
    """Do nothing for ``alone`` seconds, then each chore."""
    from django_localqueue import SimpleQueue
    from django_localqueue.worker.chores import Prune

    spans = []

    def do(name: str, chore: Callable[[], Any]) -> None:
        began, used = time.monotonic(), time.process_time()
        chore()
        spans.append(Span(name, began, time.monotonic(), time.process_time() - used))

    with SimpleQueue(store, durability="normal", retention_seconds=60) as queue:
        do("none", lambda: time.sleep(alone))
        do("jobs of a dead worker", queue.reclaim_from_dead)
        do("lapsed leases", queue.reclaim_expired_leases)
        do("counters", lambda: queue.prune(1))
        do("retention", lambda: Prune([queue]).run("w", threading.Event()))
        claims = -(-due // PROMOTIONS)
        do("due delayed jobs", lambda: [queue.get_many(1) for _ in range(claims)])
    return spans


def measure(scale: float, alone: float) -> tuple[list[Span], list[tuple[float, float]]]:
    """Return the chores that were done, and when each put began and how long it took."""
    with tempfile.TemporaryDirectory() as folder:
        store = make_store(Path(folder), scale)
        puts = subprocess.Popen(
            [sys.executable, "-c", PUTS, str(store)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert puts.stdout
            puts.stdout.readline()
            spans = do_all(store, round(JOBS["delayed"] * scale), alone)
            out, _ = puts.communicate("\n")
        finally:
            puts.kill()
            puts.wait()
    return spans, json.loads(out)


def row(span: Span, puts: list[tuple[float, float]]) -> str:
    """Return a line of the table."""
    times = sorted(1_000 * took for at, took in puts if span.began <= at <= span.ended)
    found = [f"{times[int(part * (len(times) - 1))]:.2f}" for part in (0.5, 0.99, 1) if times]
    took = span.ended - span.began
    return f"| {span.name} | {took:.2f} | {span.used:.2f} | {len(times)} | {' / '.join(found)} |"


def main() -> int:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1, help="How many jobs: a part of these.")
    parser.add_argument("--alone", type=float, default=3, help="Seconds of puts beside no chore.")
    options = parser.parse_args()
    spans, puts = measure(options.scale, options.alone)
    print("| chore | seconds | of them processor | puts beside it | p50/p99/max ms |")
    print("| --- | --- | --- | --- | --- |")
    for span in spans:
        print(row(span, puts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
