"""A run: rounds of processes on a new store that are killed at any moment, each round audited."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import random
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django_localqueue.backends.sqlite import SQLiteQueue
from tests.chaos.audit import Audit
from tests.chaos.ledger import History, Ledger
from tests.chaos.stores import QueueStore, Rules
from tests.crash import scan
from tests.crash.build import failpoints
from tests.crash.clients import LEASE_SECONDS, MAX_RETRIES, ledgers
from tests.crash.clients import run as run_clients

RULES = Rules(LEASE_SECONDS, MAX_RETRIES, margin=0.1, longest=60, refusals=("StoreBusy:",))
MEMBERS = ("producer", "producer", "worker", "worker", "worker", "threads", "threads", "operator")
#: Only met while a store is new; the first processes of a round may all die at one of them.
OPENING = (
    "open.checked", "open.tables_made", "open.boot_noted", "open.prepared", "shared.waiting",
    "log.room_made",
)  # fmt: skip
#: The beginnings of those that operators meet.
OPERATING = (
    "repair.", "purge.", "vacuum.", "checkpoint.", "groups.stepped_back", "fork.",
)  # fmt: skip
KILLS_A_ROUND = 40
#: Of a hundred processes, those without a failpoint; an outside kill takes one of them first.
UNARMED = 30
#: Seconds between two kills from outside, at the mean.
PACE = 0.15
DRAIN_SECONDS = 60.0


@dataclass
class Member:
    """A process, and the failpoint that it may die of."""

    name: str
    kind: str
    pid: int
    failpoint: str = ""


class Round:
    """``problems`` is what is wrong in the end, ``deaths`` counts what the processes died of.

    ``before`` are the deaths of the rounds before: failpoints that were seldom met are preferred.
    """

    def __init__(self, folder: Path, rng: random.Random, before: Counter[str]) -> None:
        self.problems: list[str] = []
        self.deaths: Counter[str] = Counter()
        self._before = before
        self._folder = folder
        self._rng = rng
        self._failpoints = failpoints()
        self._durability = rng.choice(["full", "normal"])
        self._ledger = Ledger(folder, "run")
        self._members: dict[int, Member] = {}

    def run(self, kills: int) -> str:
        """Kill, let the rest finish, and audit; return a summary in a line."""
        opening = self._seldom([point for point in OPENING if point in self._failpoints])
        try:
            for number, kind in enumerate(MEMBERS):
                self._start(f"{kind}{number}", kind, opening)
            self._kill(kills)
        finally:
            self._end_all()
        before = self._judge(self._look)
        self._drain()
        found = self._judge(self._records)
        if found is None or before is None:
            return "nothing could be read"
        history = History.read(self._folder)
        audit = Audit("queue", history, found["records"], found["stats"], RULES)
        self.problems += audit.problems
        return f"{self._durability}; {audit.summary()}"

    def _kill(self, kills: int) -> None:
        next_kill = time.monotonic()
        while self.deaths.total() < kills:
            if self._reap():
                next_kill = time.monotonic() + self._rng.expovariate(1 / PACE)
            elif time.monotonic() > next_kill:
                members = list(self._members.values())
                member = self._rng.choice([one for one in members if not one.failpoint] or members)
                os.kill(member.pid, signal.SIGKILL)
                member.failpoint = ""
                os.waitid(os.P_PID, member.pid, os.WEXITED | os.WNOWAIT)
            else:
                time.sleep(0.002)

    def _reap(self) -> bool:
        """Note a process that died, and start another in its place; tell whether there was one."""
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return False
        member = self._members.pop(pid)
        self._note_death(member)
        if os.waitstatus_to_exitcode(status) != -signal.SIGKILL:
            errors = (self._folder / f"{member.name}.errors").read_text()
            self.problems.append(f"{member.name} ended by itself ({status}):\n{errors}")
        self.deaths[member.failpoint or "outside"] += 1
        self._start(member.name, member.kind)
        return True

    def _note_death(self, member: Member) -> None:
        for who in ledgers(member.name, member.kind):
            self._ledger.note("killed", who=f"{who}/{member.pid}")

    def _seldom(self, points: list[str]) -> str:
        """Return one that was met seldom, among some."""
        some = self._rng.sample(points, min(3, len(points)))
        return min(some, key=self._met, default="")

    def _met(self, point: str) -> int:
        return self._before[point] + self.deaths[point]

    def _start(self, name: str, kind: str, failpoint: str = "") -> None:
        count = 1
        if not failpoint and self._rng.random() * 100 >= UNARMED:
            operates = kind == "operator"
            failpoint = self._seldom(
                [point for point in self._failpoints if point.startswith(OPERATING) == operates]
            )
            if self._met(failpoint):
                count += int(self._rng.lognormvariate(1, 1))
        seed = self._rng.random()
        pid = self._fork(name, lambda: self._be(name, kind, failpoint, count, seed))
        self._members[pid] = Member(name, kind, pid, failpoint)

    def _be(self, name: str, kind: str, failpoint: str, count: int, seed: float) -> None:
        if failpoint:
            os.environ["LOCALQUEUE_FAILPOINTS"] = f"{failpoint}={count}"
        alive = (self._folder / "alive").open("w")
        fcntl.flock(alive, fcntl.LOCK_SH)  # until its last child has ended, too
        run_clients(name, kind, self._folder, self._durability, seed)

    def _fork(self, name: str, act: Callable[[], object]) -> int:
        # This process never opens the store: a child has no open file nor armed failpoint of it.
        pid = os.fork()
        if pid:
            return pid
        code = 1
        try:
            act()
            code = 0
        except BaseException:
            (self._folder / f"{name}.errors").write_text(traceback.format_exc())
        finally:
            os._exit(code)

    def _end_all(self) -> None:
        for member in self._members.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(member.pid, signal.SIGKILL)
            os.waitpid(member.pid, 0)
            self._note_death(member)
        self._members.clear()
        with (self._folder / "alive").open("w") as alive:
            fcntl.flock(alive, fcntl.LOCK_EX)  # a child of one that was killed may still be putting

    def _drain(self) -> None:
        (self._folder / "drain").touch()
        points, self._failpoints = self._failpoints, []
        for number in range(2):
            self._start(f"drain{number}", "worker")
        self._failpoints = points
        deadline = time.monotonic() + DRAIN_SECONDS
        while (left := self._judge(self._waiting)) != 0:
            if left is None or time.monotonic() > deadline:
                self.problems.append(f"{left} jobs were left after {DRAIN_SECONDS:.0f} s of peace")
                break
            time.sleep(0.2)
        (self._folder / "stop").touch()
        for pid, member in self._members.items():
            _, status = os.waitpid(pid, 0)
            if status:
                self.problems.append(f"{member.name} ended with {status} when asked to stop")
        self._members.clear()

    # ---- what is asked of the store, each in a process of its own

    def _judge(self, ask: Callable[[], Any]) -> Any:
        """Return what ``ask`` finds; None where it couldn't be asked, which is a problem."""
        answer = self._folder / "answer.json"
        answer.unlink(missing_ok=True)
        pid = self._fork("judge", lambda: answer.write_text(json.dumps(ask())))
        _, status = os.waitpid(pid, 0)
        if status:
            errors = self._folder / "judge.errors"
            told = errors.read_text() if errors.exists() else f"status {status}"
            self.problems.append(f"The store can't be read:\n{told}")
            return None
        found = json.loads(answer.read_text())
        if isinstance(found, dict):
            self.problems += found["problems"]
        return found

    def _open(self, name: str = "crash") -> SQLiteQueue:
        return SQLiteQueue(self._folder / "store", name, durability=self._durability)

    def _waiting(self) -> int:
        with self._open() as queue:
            queue.resume()  # an operator may have died between pause and resume
            stats = queue.stats()
        return stats.ready + stats.processing

    def _look(self) -> dict[str, Any]:
        """Compare what the engine tells with what the file holds, while nobody works."""
        told = {}
        for name in ("crash", "ops"):
            with self._open(name) as queue:
                stats = queue.stats()
                told[name] = {key: stats[key] for key in scan.COUNTS}
        file = self._folder / "store" / "localqueue.db"
        counted = scan.counts(file)
        problems = list(scan.faults(file))
        for name, stats_told in told.items():
            there = counted.get(name, dict.fromkeys(scan.COUNTS, 0))
            if stats_told != there:
                problems.append(f"stats of {name} tells {stats_told}, and there are {there}")
        return {"problems": problems}

    def _records(self) -> dict[str, Any]:
        with self._open() as queue:
            store = QueueStore(queue)
            found = {"records": store.records(), "stats": store.stats()}
        return found | self._look()
