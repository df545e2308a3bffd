"""What is measured of this queue alone: full stores, waking up, and what grows with use.

usage: python -m benchmarks.alone at_depth FOLDER ROUNDS
       python -m benchmarks.alone steady FOLDER JOBS
       python -m benchmarks.alone waking FOLDER PUTS IDLE_SECONDS
       python -m benchmarks.alone wait FOLDER PUTS IDLE_SECONDS   (the other end of waking)

Each prints one line of JSON.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.contestants import PAYLOAD
from benchmarks.environment import ROOT

STATES = ("ready", "delayed", "blocked", "processing", "acked", "failed")
MANY = 1_000
PAGE = 50


def run(command: str, folder: Path, *arguments: object) -> Any:
    """Run one of the commands above in a process of its own and return its answer."""
    line = [sys.executable, "-m", "benchmarks.alone", command, str(folder)]
    line += [str(argument) for argument in arguments]
    done = subprocess.run(line, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def _median(action: Callable[[], object], rounds: int) -> float:
    """Return the median time of ``action``, in microseconds."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e6


def at_depth(folder: Path, rounds: int) -> dict[str, float]:
    """Measure every operation on a store that is full of jobs in every state."""
    from django_localqueue import JobFilter, Settle, SimpleQueue

    queue = SimpleQueue(folder / "store", durability="normal")
    held = [queue.get()]

    def get_and_ack() -> None:
        queue.ack(queue.get())

    def exchange() -> None:
        held.append(queue.exchange([Settle(held.pop(), "ack")], want=1).jobs[0])

    actions: dict[str, Callable[[], object]] = {
        "put": lambda: queue.put(PAYLOAD),
        "get, ack": get_and_ack,
        "exchange": exchange,
        f"put_many of {MANY:,}": lambda: queue.put_many([PAYLOAD] * MANY),
        "stats": queue.stats,
    }
    for state in STATES:
        wanted = JobFilter(state=state)
        after = queue.list(wanted, limit=PAGE).next
        actions[f"list, {PAGE} {state}"] = partial(queue.list, wanted, limit=PAGE, after=after)
    actions["count to 1,000"] = lambda: queue.count(JobFilter(state="failed"), cap=1_000)
    last = queue.list(JobFilter(state="failed"), limit=1).records[0].id
    actions["lookup"] = lambda: queue.lookup(last)
    start = time.perf_counter()
    queue.stats()
    first = (time.perf_counter() - start) * 1e6
    measured = {"stats, the first": first}
    for name, action in actions.items():
        action()
        few = name.startswith("put_many")
        measured[name] = _median(action, max(3, rounds // 50) if few else rounds)
    queue.ack(held.pop())
    queue.close()
    return measured


def steady(folder: Path, jobs: int) -> dict[str, Any]:
    """Put and drain ``jobs`` jobs in ten rounds, purging; return sizes in bytes, round by round."""
    from django_localqueue import SimpleQueue

    queue = SimpleQueue(folder / "store", durability="normal")
    database = folder / "store" / "localqueue.db"
    log = folder / "store" / "localqueue.db-wal"
    rounds: list[dict[str, int]] = []
    for _ in range(10):
        longest = 0
        for _ in range(max(1, jobs // 10 // MANY)):
            queue.put_many([PAYLOAD] * MANY)
            done = 0
            while done < MANY:
                got = queue.get_many(100)
                for job in got:
                    queue.ack(job)
                done += len(got)
            longest = max(longest, log.stat().st_size)
            queue.purge(0)
        rounds.append({"file": database.stat().st_size, "log": longest, "memory": _memory()})
    queue.close()
    return {"rounds": rounds}


def _memory() -> int:
    """Return the resident memory of this process, in bytes; 0 where that can't be known."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS"))


def waking(folder: Path, puts: int, idle: float) -> dict[str, Any]:
    """Put now and then for a process that waits, and return how soon it had each job."""
    from django_localqueue import SimpleQueue

    queue = SimpleQueue(folder / "store", durability="normal")
    command = [sys.executable, "-m", "benchmarks.alone", "wait", str(folder), str(puts), str(idle)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as waiter:
        assert waiter.stdout is not None
        waiter.stdout.readline()  # it has measured its idle time and waits now
        for _ in range(puts):
            time.sleep(0.005)
            queue.put(time.monotonic_ns())
        answer: dict[str, Any] = json.loads(waiter.stdout.readline())
    queue.close()
    return answer


def wait(folder: Path, puts: int, idle: float) -> dict[str, Any]:
    """Wait for nothing, then for ``puts`` jobs that say when they were put."""
    from django_localqueue import Empty, SimpleQueue

    queue = SimpleQueue(folder / "store", durability="normal")
    cpu, start = time.process_time(), time.perf_counter()
    with contextlib.suppress(Empty):
        queue.get(timeout=idle)
    share = (time.process_time() - cpu) / (time.perf_counter() - start)
    print("ready", flush=True)
    latencies = []
    for _ in range(puts):
        job = queue.get()
        latencies.append((time.monotonic_ns() - job.data) // 1_000)
        queue.ack(job)
    queue.close()
    return {"latencies": latencies, "idle_percent": share * 100}


COMMANDS: dict[str, Callable[..., dict[str, Any]]] = {
    "at_depth": lambda folder, rounds: at_depth(folder, int(rounds)),
    "steady": lambda folder, jobs: steady(folder, int(jobs)),
    "waking": lambda folder, puts, idle: waking(folder, int(puts), float(idle)),
    "wait": lambda folder, puts, idle: wait(folder, int(puts), float(idle)),
}

if __name__ == "__main__":
    name, place, *rest = sys.argv[1:]
    print(json.dumps(COMMANDS[name](Path(place), *rest)), flush=True)
