"""One run: the cluster, the clients, the faults, the drain and the audit."""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.audit import Audit
from tests.chaos.cluster import ProxiedCluster
from tests.chaos.faults import Faults
from tests.chaos.ledger import History, Ledger
from tests.chaos.proxies import Network
from tests.chaos.stores import STORES, Store

ROOT = Path(__file__).resolve().parents[2]
PRODUCERS, WORKERS = 3, 5
DRAIN_SECONDS = 120.0
#: Of the clocks of workers by their number: off from the start, and jumping later.
CLOCKS = {0: (60.0, 0.0), 1: (-60.0, 0.0), 2: (0.0, -60.0)}


@dataclass
class Member:
    """A client's process, and how to start it again."""

    name: str
    address: str
    command: list[str]
    process: subprocess.Popen[bytes]


class Run:
    """A run on the store named ``store``; everything that it leaves is in ``folder``."""

    def __init__(self, store: str, folder: Path, rng: random.Random) -> None:
        self._store = store
        self._folder = folder
        self._rng = rng
        self._began = time.monotonic()
        self._ledger = Ledger(folder, "run")
        self._members: dict[str, Member] = {}
        self._network = Network(random.Random(rng.random()))
        self._cluster = ProxiedCluster(folder, self._network)

    def run(self, seconds: float) -> list[str]:
        """Do it all, and return what is wrong."""
        try:
            return self._run(seconds)
        finally:
            for member in self._members.values():
                member.process.kill()
                member.process.wait()
            self._cluster.close()
            self._network.close()

    def _run(self, seconds: float) -> list[str]:
        self._cluster.heal()
        store = STORES[self._store](self._cluster.urls)
        store.waiting()  # makes the tables
        for number in range(WORKERS):
            self._start("worker", number)
        for number in range(PRODUCERS):
            self._start("producer", number)
        if self._store == "queue":
            self._start("operator", 0)
        self._say(f"processes {' '.join(map(str, self._pids()))}")
        faults = Faults(self._cluster, self._network, self, self._rng, self._say)
        faults.run(seconds)
        self._network.heal()
        self._cluster.heal()
        problems = self._drain(store)
        history = History.read(self._folder)
        audit = Audit(self._store, history, store.records(), store.stats())
        store.close()
        self._say(", ".join(f"{count} x {name}" for name, count in sorted(faults.done.items())))
        self._say(", ".join(f"{n} requests lost {f}" for f, n in self._network.lost.items()))
        self._say(audit.summary())
        return problems + audit.problems

    def _drain(self, store: Store) -> list[str]:
        self._say("healed; draining")
        problems = self._end("producer", "quiet") + self._end("operator", "quiet")
        (self._folder / "drain").touch()
        deadline = time.monotonic() + DRAIN_SECONDS
        while left := store.waiting():
            if time.monotonic() > deadline:
                problems.append(f"{left} jobs were left after {DRAIN_SECONDS:.0f} s of peace")
                break
            time.sleep(0.3)
        return problems + self._end("worker", "stop")

    def _end(self, role: str, word: str) -> list[str]:
        """Ask the clients of a role to end; return what is wrong with how they did."""
        (self._folder / word).touch()
        problems = []
        for name in [name for name in self._members if name.startswith(role)]:
            member = self._members.pop(name)
            try:
                code = member.process.wait(60)
            except subprocess.TimeoutExpired:
                member.process.kill()
                member.process.wait()
                problems.append(f"{name} didn't end within a minute")
                continue
            if code:
                errors = (self._folder / f"{name}.errors").read_text()
                problems.append(f"{name} ended with {code}:\n{errors}")
        return problems

    # ---- the clients, as the schedule knows them

    def addresses(self) -> list[str]:
        """Return the address of each client."""
        return [member.address for member in self._members.values()]

    def kill_worker(self, rng: random.Random) -> None:
        """Kill one worker, and start it again under its name."""
        member = self._worker(rng)
        member.process.kill()
        member.process.wait()
        self._ledger.note("killed", who=f"{member.name}/{member.process.pid}")
        member.process = self._spawn(member.name, member.command)

    def stop_worker(self, rng: random.Random, seconds: float) -> None:
        """Stop one worker for so long that its leases run out, or nearly."""
        member = self._worker(rng)
        member.process.send_signal(signal.SIGSTOP)
        self._ledger.note("stopped", who=f"{member.name}/{member.process.pid}")
        try:
            time.sleep(seconds)
        finally:
            member.process.send_signal(signal.SIGCONT)

    def _worker(self, rng: random.Random) -> Member:
        return self._members[f"worker{rng.randrange(WORKERS)}"]

    def _start(self, role: str, number: int) -> None:
        name = f"{role}{number}"
        address = f"127.0.0.{10 + len(self._members)}"
        shift, jump = CLOCKS.get(number, (0.0, 0.0)) if role == "worker" else (0.0, 0.0)
        module = "operators" if role == "operator" else "clients"
        store = "async" if self._store == "transport" and number == 2 else self._store
        command = [sys.executable, "-m", f"tests.chaos.{module}", role, name, store]
        command += [str(self._folder), address, str(shift), str(jump), str(self._rng.random())]
        command += self._cluster.strange_urls if number % 2 else self._cluster.urls
        self._members[name] = Member(name, address, command, self._spawn(name, command))

    def _spawn(self, name: str, command: list[str]) -> subprocess.Popen[bytes]:
        with (self._folder / f"{name}.errors").open("ab") as errors:
            return subprocess.Popen(
                command, cwd=ROOT, stderr=errors, stdin=subprocess.DEVNULL, process_group=0
            )

    def _pids(self) -> list[int]:
        nodes = [process.pid for process in self._cluster.processes.values()]
        return nodes + [member.process.pid for member in self._members.values()]

    def _say(self, text: str) -> None:
        with contextlib.suppress(BrokenPipeError):
            print(f"{time.monotonic() - self._began:7.1f}  {text}", flush=True)
