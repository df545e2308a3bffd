"""A run under the shim, and what becomes of it when the power is cut at any moment.

usage, by itself: python -m tests.crash.power KIND NAME FOLDER DURABILITY SEED
"""

from __future__ import annotations

import contextlib
import itertools
import json
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from django_localqueue.backends.sqlite import SQLiteQueue
from django_localqueue.exceptions import LocalQueueError
from tests.chaos.audit import Audit
from tests.chaos.ledger import OK, Call, History
from tests.chaos.stores import QueueStore, Rules
from tests.crash import clients, scan, shim
from tests.crash.disk import Disk, Event, read

MEMBERS = ("producer", "producer", "worker", "worker", "threads", "operator")
RULES = Rules(
    clients.LEASE_SECONDS, clients.MAX_RETRIES, margin=0.5, longest=60, refusals=("StoreBusy:",)
)
PATIENCE = 60.0


def record(folder: Path, durability: str, calls: int, rng: random.Random) -> list[Event]:
    """Let processes make at least so many calls on a new store; return all that they did."""
    store, file = folder / "store", folder / "record"
    store.mkdir(parents=True)
    processes = []
    for number, kind in enumerate(MEMBERS):
        command = [sys.executable, "-m", "tests.crash.power", kind, f"{kind}{number}", str(folder)]
        command += [durability, str(rng.random())]
        environment = shim.environment(store, file)
        processes.append(subprocess.Popen(command, cwd=shim.ROOT, env=environment))
    try:
        deadline = time.monotonic() + 2 * PATIENCE
        while not _are_made(calls, store) and time.monotonic() < deadline:
            time.sleep(0.1)
        (folder / "quiet").touch()
        (folder / "stop").touch()
        codes = [process.wait(PATIENCE) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert not any(codes), codes
    return read(file)


def _are_made(calls: int, store: Path) -> bool:
    """Whether there were so many calls, and every process had its share in them."""
    done: dict[str, int] = {}
    for path in store.glob("*.ledger"):
        process = path.name.partition(".")[0]
        done[process] = done.get(process, 0) + path.read_bytes().count(b'{"done": ')
    return (
        len(done) == len(MEMBERS)
        and sum(done.values()) >= calls
        and min(done.values()) >= calls // 25
    )


class Player:
    """Plays a record, and looks at what a power cut leaves at the moments that it is told."""

    def __init__(self, events: list[Event], folder: Path, durability: str) -> None:
        self.disk = Disk()
        self.lines: list[dict[str, Any]] = []
        self._events = events
        self._folder = folder
        self._durability = durability
        self._rest: dict[str, bytes] = {}

    def told(self) -> list[str]:
        """Return each call whose caller was told before the log that it wrote was synced."""
        early = []
        for event in self._events:
            for line in self._play(event):
                call = line.get("done")
                if call is None or call["outcome"] != OK or event.name.startswith("threads"):
                    continue  # of threads it can't be said whose write it was
                if not _promises(call):
                    continue
                # Nothing but zeros is room in the log, which a thread makes and nobody waits for.
                if any(any(write.data) for write in self.disk.unsynced(event.pid, "-wal")):
                    early.append(str(Call(**call)))
        return early

    def cuts(self, count: int, rng: random.Random) -> dict[str, list[str]]:
        """Cut the power at ``count`` moments; return what was wrong after each that was not well.

        ``lost`` are promises that were not kept, ``unsound`` what is wrong with the file itself.
        """
        moments = sorted(rng.sample(range(len(self._events)), min(count, len(self._events))))
        found: dict[str, list[str]] = {"lost": [], "unsound": []}
        for number, event in enumerate(self._events):
            self._play(event)
            while moments and moments[0] == number:
                moments.pop(0)
                where = self._folder / f"cut{number}"
                seed = rng.random()
                self.disk.cut(where, random.Random(seed))
                for kind, problems in self._judge(where).items():
                    found[kind] += [f"cut at {number}, seed {seed}: {text}" for text in problems]
                shutil.rmtree(where)
        return found

    def _play(self, event: Event) -> list[dict[str, Any]]:
        """Let an event happen; return the lines that a ledger has more by it."""
        if not event.name.endswith(".ledger"):
            self.disk.play(event)
            return []
        *whole, rest = (self._rest.pop(event.name, b"") + event.data).split(b"\n")
        self._rest[event.name] = rest
        lines = [json.loads(line) for line in whole]
        self.lines += lines
        return lines

    def _judge(self, folder: Path) -> dict[str, list[str]]:
        # Nobody but us has it open, so the engine and SQLite may look at it one after the other.
        history = History.of(self.lines)
        try:
            with SQLiteQueue(folder, "crash", durability=self._durability) as queue:
                store = QueueStore(queue)
                records, stats = store.records(), store.stats()
        except LocalQueueError as error:
            stored = [call for call in history.calls if call.verb == "put" and call.outcome == OK]
            return {"lost": [f"all: {call}" for call in stored[:1]], "unsound": [str(error)]}
        lost = Audit("queue", history, records, stats, RULES).problems
        lost += _uncounted(history, records)
        return {"lost": lost, "unsound": list(scan.faults(folder / "localqueue.db"))}


def _promises(call: dict[str, Any]) -> bool:
    """Whether a call that went well told its caller anything that must last."""
    if call["verb"] in ("take", "exchange"):
        return bool(call["facts"].get("held") or call["facts"].get("settles"))
    return call["verb"] in ("put", "settle", "extend", "_deal", "_bulk", "_once")


def _uncounted(history: History, records: list[dict[str, Any]]) -> list[str]:
    """Return each job whose worker had it, though the store doesn't know of that delivery."""
    attempts = {record["key"]: record["attempts"] for record in records}
    released = {
        asked["receipt"]
        for call in history.calls
        for asked in itertools.chain([call.facts], call.facts.get("settles", ()))
        if asked.get("verb") == "release"
    }
    return [
        f"delivery {held['attempt']} of {held['key']} is not counted"
        for call in history.calls
        if call.outcome == OK
        for held in call.facts.get("held", ())
        if held["receipt"] not in released and attempts.get(held["key"], 0) < held["attempt"]
    ]


def main() -> None:
    """Be one process of a run."""
    kind, name, folder, durability, seed = sys.argv[1:]
    clients.Operator.bulk = 2  # all of it is recorded
    with contextlib.suppress(KeyboardInterrupt):
        where = Path(folder)
        clients.run(name, kind, where, durability, float(seed), where / "store")


if __name__ == "__main__":
    main()
