"""Django tasks end to end, on this queue and beside other task systems.

    python -m benchmarks.tasks                        # this queue alone, about a minute
    python -m benchmarks.tasks --systems all --json benchmarks/results/tasks.json

One process enqueues, then one worker command runs, at its defaults. Each figure is of a small
project of its own in a fresh folder; the task writes the time at which it runs to a file, 16
bytes. Printed as Markdown: enqueues a second; tasks a second, from the first task's start to the
last's, for a task that does no more and for one that also stores a row in the project's SQLite
database; milliseconds from enqueue to start in an idle worker, median and worst of 20; processor
time and memory of the idle worker, children included; whether the task of a killed worker runs
again in a new one.

The peers are installed, at pinned versions, below ``target/``; those with Redis take part where
``redis-server`` is on PATH. Linux only.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.environment import TASK_PEERS, machine, peers_python
from benchmarks.task_project import (
    Project,
    compile_ours,
    end,
    has_redis,
    processor_seconds,
    redis_server,
    resident_mebibytes,
)
from benchmarks.task_systems import SYSTEMS

FIGURES = ("noop", "write", "wake", "kill")
WAKES = 20


class Bench:
    """Measures one system.

    Args:
        name: of ``SYSTEMS``.
        given: the arguments of the command.
        folder: where its projects are made.
    """

    def __init__(self, name: str, given: argparse.Namespace, folder: Path) -> None:
        self.name = name
        self._kind = SYSTEMS[name]
        self._given = given
        self._folder = folder
        self._options: list[str] = []
        if self._kind.is_ours:
            self._python = sys.executable
            for option in ("threads", "processes"):
                if getattr(given, option) is not None:
                    self._options += [f"--{option}", str(getattr(given, option))]
        else:
            self._python = peers_python(TASK_PEERS)

    def row(self) -> dict[str, Any]:
        """Return every figure that is asked for but ``kill``."""
        row: dict[str, Any] = {}
        for figure, measure in (("noop", self.noop), ("write", self.write), ("wake", self.wake)):
            if figure in self._given.figures:
                print(f"{self.name}: {figure} ...", file=sys.stderr, flush=True)
                row.update(measure())
        return row

    def noop(self) -> dict[str, Any]:
        enqueues, rate = self._drained("noop")
        return {"enqueues": enqueues, "noop": rate}

    def write(self) -> dict[str, Any]:
        return {"write": self._drained("write")[1]}

    def _drained(self, task: str) -> tuple[float, float]:
        with ExitStack() as stack:
            project = self._project(task, stack)
            sent, enqueues = project.client(task, "burst", self._given.n, self._given.seconds)
            worker = project.worker(*self._options)
            stack.callback(end, worker)
            project.wait(1)
            times = sorted(at for _, at in project.wait(sent, self._given.seconds))
        if len(times) < 2:
            raise RuntimeError(f"{self.name}: its worker ran {len(times)} tasks of {sent}.")
        return enqueues, (len(times) - 1) / ((times[-1] - times[0]) / 1e9)

    def wake(self) -> dict[str, Any]:
        with ExitStack() as stack:
            project = self._project("wake", stack)
            worker = project.worker(*self._options)
            stack.callback(end, worker)
            sent = project.client("noop", "paced", WAKES, 0)
            found = dict(project.wait(WAKES))
            waits = [(found[number] - at) / 1e6 for number, at in enumerate(sent)]
            before = processor_seconds(worker.pid)
            time.sleep(self._given.idle)
            return {
                "wake_median_ms": statistics.median(waits),
                "wake_worst_ms": max(waits),
                "idle_percent": 100 * (processor_seconds(worker.pid) - before) / self._given.idle,
                "rss_mib": resident_mebibytes(worker.pid),
            }

    def kill(self) -> dict[str, Any]:
        """Kill a worker in its task; a new one has ``again`` seconds to run that."""
        with ExitStack() as stack:
            project = self._project("kill", stack)
            first = project.worker(*self._options)
            stack.callback(end, first, kill=True)
            project.client("slow", "burst", 1, 60)
            project.wait(1)
            time.sleep(1)
            end(first, kill=True)
            killed_at = time.monotonic_ns()
            second = project.worker(*self._options)
            stack.callback(end, second, kill=True)
            found = project.wait(2, self._given.again)
        again = (found[1][1] - killed_at) / 1e9 if len(found) > 1 else None
        return {"again_seconds": again}

    def _project(self, figure: str, stack: ExitStack) -> Project:
        folder = self._folder / f"{list(SYSTEMS).index(self.name)}-{figure}"
        folder.mkdir()
        redis = ""
        if self._kind.needs_redis:
            redis = stack.enter_context(redis_server(folder))
        return Project(folder, self._kind, self._python, redis, self._given.synchronous)


def measured(names: list[str], given: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """Return a row a system; one that fails is told of in its row."""
    benches = [Bench(name, given, folder) for name in names]
    rows = [{"section": "tasks", "durability": "", "contestant": name} for name in names]
    with ThreadPoolExecutor(len(benches)) as pool:  # most of it is waiting: all at once
        kills = [pool.submit(bench.kill) for bench in benches if "kill" in given.figures]
        for row, kill in zip(rows, kills, strict=False):
            row.update(_kept(kill.result))
    for row, bench in zip(rows, benches, strict=True):
        row.update(_kept(bench.row))
    ours = next((row for row in rows if row["contestant"] == "ours"), {})
    for row in rows:
        for rate in {"noop", "write"} & ours.keys() & row.keys():
            row[f"{rate}_ratio"] = ours[rate] / row[rate]
    return rows


def _kept(measure: Any) -> dict[str, Any]:
    try:
        found: dict[str, Any] = measure()
    except Exception as error:
        print(f"It failed: {error}", file=sys.stderr, flush=True)
        return {"failed": str(error)}
    return found


def chosen(text: str) -> list[str]:
    """Return the names of systems; raises ``SystemExit`` for one that isn't there."""
    if text == "all":
        return [name for name, kind in SYSTEMS.items() if has_redis() or not kind.needs_redis]
    names = text.split("; ")
    for name in names:
        if name not in SYSTEMS:
            raise SystemExit(f"There is no system {name}. There are: {'; '.join(SYSTEMS)}.")
    return names


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--systems", default="ours", help="all, or names between '; '")
    parser.add_argument("--figures", default=",".join(FIGURES), help="between commas")
    parser.add_argument("--n", type=int, default=5_000, help="tasks to enqueue and run")
    parser.add_argument("--seconds", type=float, default=20, help="longest enqueuing and running")
    parser.add_argument("--idle", type=float, default=20, help="seconds to watch the idle worker")
    parser.add_argument("--again", type=float, default=90, help="seconds after a kill")
    parser.add_argument("--synchronous", default="NORMAL", help="of the project's database")
    parser.add_argument("--threads", type=int, help="of our worker")
    parser.add_argument("--processes", type=int, help="of our worker")
    parser.add_argument("--folder", type=Path, help="where the projects are made")
    parser.add_argument("--json", type=Path, help="keep the results in this file")
    given = parser.parse_args()
    given.figures = given.figures.split(",")
    names = chosen(given.systems)
    compile_ours()
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        rows = measured(names, given, Path(folder))
    command = shlex.join(["python", "-m", "benchmarks.tasks", *sys.argv[1:]])
    results = {"command": command, "machine": machine(), "rows": rows, "notes": []}
    print(report.tables(results))
    if given.json is not None:
        given.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
