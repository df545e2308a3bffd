"""Ours, the peers, plain sqlite3 and a bare loop, side by side in one run.

Every contestant has a process of its own. They are measured in turns, a short burst
each, round after round, so that what else the machine does falls on all alike;
the median of the rounds is what counts.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import alone, environment, page, report
from benchmarks.contestants import CONTESTANTS, OWN
from benchmarks.fill import copy, fill
from benchmarks.process import ContestantError, Process, Programs

EXCHANGES = ("ours", "bare")
FULL_PUTS = 5  # a durable operation takes several times longer than another


@dataclass(frozen=True)
class Scenario:
    """What lies in the store while put and get are measured: jobs of each kind, and groups."""

    name: str
    counts: dict[str, int]
    groups: int = 0

    @property
    def ready(self) -> int:
        return self.counts.get("ready", 0)

    def is_for(self, name: str) -> bool:
        """Peers are only asked to hold ready jobs."""
        return name in EXCHANGES or (not self.groups and set(self.counts) == {"ready"})


@dataclass
class Run:
    """The arguments of a run and what it has measured."""

    programs: Programs
    names: list[str]
    folder: Path
    n: int
    rounds: int
    limit: float
    fill_limit: float
    rows: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    _folders: int = 0

    def new_folder(self) -> Path:
        self._folders += 1
        folder = self.folder / str(self._folders)
        folder.mkdir()
        return folder

    def note(self, text: str) -> None:
        print(text, file=sys.stderr)
        self.notes.append(text)

    def contestants(self, durability: str) -> list[str]:
        return [
            name
            for name in self.names
            if name == "bare" or durability in CONTESTANTS[name].durabilities
        ]


def scenarios(depths: list[int], beside: int, groups: int, grouped: int) -> list[Scenario]:
    """Return what ``--depths``, ``--beside``, ``--groups`` and ``--grouped`` ask for."""
    found = [Scenario(f"{depth:,} ready", {"ready": depth}) for depth in depths]
    if beside:
        counts = {"delayed": beside, "failed": beside, "acked": beside, "ready": 10_000}
        found.append(Scenario(f"10,000 ready beside 3 x {beside:,}", counts))
    if grouped:
        name = f"{grouped:,} in {groups:,} groups"
        found.append(Scenario(name, {"grouped": grouped}, groups))
    return found


@contextmanager
def opened(
    run: Run, durability: str, wanted: list[Scenario]
) -> Iterator[list[tuple[str, Process]]]:
    """Start a filled process for every scenario and contestant."""
    processes: list[tuple[str, Process]] = []
    try:
        for scenario in wanted:
            model = run.new_folder()
            fill(model, scenario.counts, scenario.groups)
            for name in run.contestants(durability):
                if not scenario.is_for(name):
                    continue
                folder = run.new_folder()
                if name in EXCHANGES:
                    copy(model, folder)
                process = Process(run.programs, name, folder, durability, scenario.groups)
                if name in EXCHANGES or _filled(run, process, scenario):
                    processes.append((scenario.name, process))
                else:
                    process.close()
            shutil.rmtree(model)
        yield processes
    finally:
        for _, process in processes:
            process.close()
            shutil.rmtree(process.folder)


def _filled(run: Run, process: Process, scenario: Scenario) -> bool:
    filled = process.call("fill", scenario.ready, run.fill_limit)["ops"]
    if filled >= scenario.ready:
        return True
    run.note(
        f"{process.name} was left out at {scenario.name}:"
        f" it stored {filled:,} jobs in {run.fill_limit:.0f} seconds."
    )
    return False


def one_process(run: Run, durability: str, wanted: list[Scenario]) -> None:
    """Measure put, get and ack, and exchange, all scenarios and contestants in turns."""
    n = run.n if durability == "normal" else max(1, run.n // FULL_PUTS)
    samples: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    with opened(run, durability, wanted) as processes:
        for turn in range(run.rounds + 1):
            start = turn % len(processes)
            for scenario, process in processes[start:] + processes[:start]:
                verbs = ["put", "get_ack"]
                if process.name in EXCHANGES:
                    verbs += ["put", "exchange"]
                for verb in verbs:
                    answer = process.call(verb, n, run.limit)
                    if turn:  # the first warms up
                        samples.setdefault((scenario, process.name, verb), []).append(answer)
            print(f"{durability}: round {turn} of {run.rounds}", file=sys.stderr)
    order = [scenario.name for scenario in wanted]
    for (scenario, name, verb), answers in sorted(
        samples.items(), key=lambda item: (order.index(item[0][0]), run.names.index(item[0][1]))
    ):
        run.rows.append(
            {
                "section": "one process",
                "durability": durability,
                "scenario": scenario,
                "contestant": name,
                "verb": verb,
                **report.per_operation(answers),
            }
        )


def threads(run: Run, durability: str, counts: list[int]) -> None:
    """Measure puts from several threads of one process."""
    n = run.n if durability == "normal" else max(1, run.n // FULL_PUTS * 2)
    for name in run.contestants(durability):
        if name == "bare":
            continue
        for count in counts:
            answers = []
            for _ in range(min(3, run.rounds)):
                process = Process(run.programs, name, run.new_folder(), durability)
                try:
                    answers.append(process.call("threads", max(n, count), count))
                except ContestantError as error:
                    run.note(f"{count} threads, {durability}: {error}")
                finally:
                    process.close()
            if answers:
                run.rows.append(
                    {
                        "section": "threads",
                        "durability": durability,
                        "scenario": f"{count} threads",
                        "contestant": name,
                        "verb": "put",
                        **report.together(answers),
                    }
                )


def processes(run: Run, durability: str, producers: int, consumers: int) -> None:
    """Measure ``producers`` processes that put and ``consumers`` that get and ack, at once."""
    total = run.n * 2 if durability == "normal" else max(producers, run.n)
    for name in run.contestants(durability):
        if name == "bare":
            continue
        for verb in ("get_ack", "exchange") if name in EXCHANGES else ("get_ack",):
            place = f"{producers}:{consumers}, {durability}"
            try:
                put, got, wall = _produce_and_consume(
                    run, name, durability, verb, total // producers, producers, consumers
                )
            except ContestantError as error:
                run.note(f"{place}: {error}")
                continue
            delivered, stored = (sum(each["ops"] for each in side) for side in (got, put))
            if delivered != stored:
                run.note(f"{place}: {name} took {stored:,} jobs and delivered {delivered:,}.")
            run.rows.append(
                {
                    "section": "processes",
                    "durability": durability,
                    "scenario": f"{producers}:{consumers}",
                    "contestant": name,
                    "verb": verb,
                    "jobs_per_second": delivered / wall,
                    "put": report.spread(put),
                    "get": report.spread(got),
                    "least": min(each["ops"] for each in got),
                    "most": max(each["ops"] for each in got),
                }
            )


def _produce_and_consume(
    run: Run, name: str, durability: str, verb: str, each: int, producers: int, consumers: int
) -> tuple[list[dict[str, Any]], list[dict[str, Any]], float]:
    folder = run.new_folder()
    stop = folder / "stop"
    everyone: list[Process] = []
    try:
        for _ in range(producers + consumers):
            everyone.append(Process(run.programs, name, folder, durability))
        putting, getting = everyone[:producers], everyone[producers:]
        start = time.perf_counter()
        for process in getting:
            process.tell("consume", stop, verb)
        for process in putting:
            process.tell("produce", each, run.fill_limit)
        put = [process.answer() for process in putting]
        stop.touch()
        got = [process.answer() for process in getting]
        return put, got, time.perf_counter() - start
    finally:
        for process in everyone:
            process.close()
        shutil.rmtree(folder)


def ours_alone(run: Run, each: list[int], drain: int, puts: int, idle: float) -> None:
    """Measure what no peer is asked for: see ``benchmarks.alone``."""

    def add(scenario: str, verb: str, **measured: Any) -> None:
        kept = {"section": verb, "durability": "normal", "scenario": scenario}
        run.rows.append({**kept, "contestant": "ours", "verb": verb, **measured})

    for depth in each:
        folder = run.new_folder()
        kinds = ("ready", "delayed", "failed", "acked", "processing")
        fill(folder, dict.fromkeys(kinds, depth) | {"grouped": depth}, max(1, depth // 10))
        add(f"{depth:,} of each state", "at depth", us=alone.run("at_depth", folder, run.n // 4))
        shutil.rmtree(folder)
    if drain:
        folder = run.new_folder()
        add(f"{drain:,} jobs in ten rounds", "steady", **alone.run("steady", folder, drain))
        shutil.rmtree(folder)
    if puts:
        folder = run.new_folder()
        answer = alone.run("waking", folder, puts, idle)
        waited = {"get": report.spread([answer]), "idle_percent": answer["idle_percent"]}
        add(f"{puts} puts", "waking", **waited)
        shutil.rmtree(folder)


def arguments(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    names = [*CONTESTANTS, "bare"]
    parser.add_argument("--only", help=f"some of {','.join(names)}, separated by commas")
    parser.add_argument("--depths", default="2000,100000,1000000", help="ready jobs waiting")
    parser.add_argument("--beside", type=int, default=1_000_000, help="delayed, failed, acked each")
    parser.add_argument("--grouped", type=int, default=1_000_000, help="jobs in groups; 0: none")
    parser.add_argument("--groups", type=int, default=100_000)
    parser.add_argument("--threads", default="1,8,16", help="numbers of threads; empty: none")
    parser.add_argument("--processes", default="1:1,4:8", help="producers:consumers; empty: none")
    parser.add_argument("--each", default="1000,1000000", help="jobs in each state, ours alone")
    parser.add_argument("--drain", type=int, default=1_000_000, help="jobs put and drained; 0: no")
    parser.add_argument("--waking", type=int, default=300, help="puts for one that waits; 0: no")
    parser.add_argument("--idle", type=float, default=10.0, help="seconds that one waits in vain")
    parser.add_argument("--durability", default="normal,full")
    parser.add_argument("--n", type=int, default=2_000, help="operations in a burst")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument(
        "--dir", type=Path, help="where the files go; default: the temporary folder"
    )
    parser.add_argument("--json", type=Path, help="write the results to this file too")
    parser.add_argument(
        "--docs",
        action="store_true",
        help="measure nothing: write docs/benchmarks.md and its plots anew from the results kept",
    )
    parser.add_argument("--quick", action="store_true", help="small numbers: does it run?")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Run what the command line asks for and print the tables."""
    given = arguments(argv)
    if given.docs:
        page.rewrite()
        return 0
    if given.quick:
        given.each, given.drain, given.waking, given.idle = "200,2000", 20_000, 20, 1.0
        given.depths, given.beside, given.grouped, given.groups = "500,5000", 5_000, 5_000, 500
        given.n, given.rounds, given.threads, given.processes = 200, 3, "2", "1:2"
    from django_localqueue import _native

    if _native.BUILD_PROFILE == "debug":
        print(
            "The engine is a debug build: maturin develop --release, then again.", file=sys.stderr
        )
        return 2
    names = given.only.split(",") if given.only else [*CONTESTANTS, "bare"]
    unknown = set(names) - {*CONTESTANTS, "bare"}
    if unknown:
        print(f"There is no contestant {', '.join(sorted(unknown))}.", file=sys.stderr)
        return 2
    programs = Programs(
        peers=environment.peers_python() if set(names) - {*OWN, "bare"} else "",
        bare=environment.bare_program() if "bare" in names else "",
    )
    with tempfile.TemporaryDirectory(dir=given.dir, prefix="benchmark-") as folder:
        run = Run(
            programs, names, Path(folder), given.n, given.rounds,
            limit=0.3 if given.quick else 2.0, fill_limit=5.0 if given.quick else 60.0,
        )  # fmt: skip
        depths = _numbers(given.depths)
        for durability in given.durability.split(","):
            if durability == "normal":
                wanted = scenarios(depths, given.beside, given.groups, given.grouped)
            else:
                wanted = scenarios(depths[:1], 0, 0, 0)
            one_process(run, durability, wanted)
            threads(run, durability, _numbers(given.threads))
            for pair in filter(None, given.processes.split(",")):
                producers, consumers = map(int, pair.split(":"))
                processes(run, durability, producers, consumers)
        if "ours" in names:
            ours_alone(run, _numbers(given.each), given.drain, given.waking, given.idle)
    results = {
        "command": shlex.join(
            ["python", "-m", "benchmarks", *(sys.argv[1:] if argv is None else argv)]
        ),
        "machine": environment.machine(),
        "versions": environment.versions(),
        "rows": run.rows,
        "notes": run.notes,
    }
    if given.json:
        given.json.write_text(json.dumps(results, indent=1) + "\n")
    print(report.tables(results))
    return 0


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",") if number]
