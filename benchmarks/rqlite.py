"""Measures ``RqliteQueue`` on three real nodes, beside a bare loop of one HTTP write at a time.

usage: python -m benchmarks.rqlite [--rounds 20] [--n 40] [--waiting 200000] [--groups 50000]
    [--idle 60] [--json FILE]

rqlited is found on PATH or named by RQLITED; its three nodes run on this machine's loopback,
with their data in the temporary folder. All verbs are measured in turns, round by round, and
each round's times are divided by the bare loop's of the same round, so that what else the
machine does falls on both.

The bare loop posts one INSERT at a time with ``requests``, as the transport's design does. A
second one, "bare, http.client", does the same with the leanest client that Python has: beside
it nothing is gained by how a request is sent. "floor" is the least that a claim and an exchange
can be: a table of four columns and one index, without any rule of a queue, over our own client.
"""

from __future__ import annotations

import argparse
import http.client
import json
import secrets
import shlex
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchmarks.environment import machine
from django_localqueue.backends.rqlite import RqliteQueue
from django_localqueue.transports.client import RqliteClient
from django_localqueue.types import Job, NewJob, Settle
from django_localqueue.worker import Worker
from tests.rqlite.nodes import RealCluster, find_rqlited

PAYLOAD = {"path": "media/2024/06/report.pdf", "owner": 17, "formats": ["thumb", "page"]}
EXCHANGED, BATCH, FILL = 20, 500, 2_000
SHALLOW = 1_000
NAMES = ("shallow", "deep", "groups", "batch")
BARE, LEAN = "bare", "bare, http.client"

_FLOOR_HEAD = "SELECT id FROM floor INDEXED BY floor_ready WHERE st=0 ORDER BY id"

Verb = Callable[[], int]
"""Does something once and returns how many jobs that was."""


class Bench:
    """A filled cluster and what was measured on it."""

    def __init__(self, cluster: RealCluster, given: argparse.Namespace) -> None:
        self.cluster = cluster
        self.given = given
        self.leader = cluster.leader()
        self.rounds: list[dict[str, float]] = []
        self._held: list[Job] = []
        self._claimed: list[Job] = []
        self._body = json.dumps([["INSERT INTO bare (payload) VALUES (?)", json.dumps(PAYLOAD)]])
        self._lean = http.client.HTTPConnection(urlsplit(cluster.urls[self.leader]).netloc)
        cluster.execute(["CREATE TABLE bare (id INTEGER PRIMARY KEY, payload TEXT NOT NULL)"])
        self._floor = Floor(cluster, (given.rounds + 1) * given.n * (EXCHANGED // 5 + 1))

    def measure(self) -> None:
        """Fill the queues, then measure every verb in every round; the first one warms up."""
        with ExitStack() as stack:
            queues = {name: stack.enter_context(self._queue(name)) for name in NAMES}
            self._fill(queues["shallow"], SHALLOW, 0)
            self._fill(queues["deep"], self.given.waiting, 0)
            self._fill(queues["groups"], self.given.waiting, self.given.groups)
            verbs = self._verbs(queues)
            for turn in range(self.given.rounds + 1):
                times = {name: self._time(verb, count) for name, (verb, count) in verbs.items()}
                if turn:
                    self.rounds.append(times)
                print(f"round {turn} of {self.given.rounds}", file=sys.stderr)

    def idle_writes(self) -> int:
        """Return the Raft entries that one worker without jobs makes in the time given."""
        with self._queue("idle") as queue:
            queue.put(PAYLOAD)
            worker = Worker(queue, lambda job: None)
            thread = threading.Thread(target=worker.run)
            thread.start()
            try:
                while queue.stats().acked == 0:
                    time.sleep(0.1)
                before = self._raft_index()
                time.sleep(self.given.idle)
                return self._raft_index() - before
            finally:
                worker.stop()
                thread.join()

    def _verbs(self, queues: dict[str, RqliteQueue]) -> dict[str, tuple[Verb, int]]:
        """Return what is measured and how often a round; a claim's depth stays what it was."""
        shallow, deep, groups, batch = (queues[name] for name in NAMES)
        n = self.given.n
        return {
            BARE: (self._bare, n),
            LEAN: (self._bare_and_lean, n),
            "put": (lambda: self._put(shallow), n),
            "claim": (lambda: self._claim(shallow), n),
            "ack": (self._ack, n),
            "put_many of 500": (lambda: self._put_many(batch), max(1, n // 20)),
            "exchange of 20": (lambda: self._exchange(batch), max(1, n // 5)),
            "floor, claim": (self._floor.claim, n),
            "floor, exchange of 20": (self._floor.exchange, max(1, n // 5)),
            "claim, deep": (lambda: self._claim(deep), n),
            "put, deep": (lambda: self._put(deep), n),
            "claim, groups": (lambda: self._claim(groups), n),
            "put, groups": (lambda: self._put(groups), n),
        }

    def _time(self, verb: Verb, count: int) -> float:
        """Return the median of the seconds a job."""
        times = []
        for _ in range(count):
            start = time.perf_counter()
            jobs = verb()
            times.append((time.perf_counter() - start) / jobs)
        return statistics.median(times)

    def _bare(self) -> int:
        answer = self.cluster.session.post(
            f"{self.cluster.urls[self.leader]}/db/execute", data=self._body, timeout=30
        )
        if "error" in answer.text:
            raise RuntimeError(answer.text)
        return 1

    def _bare_and_lean(self) -> int:
        headers = {"content-type": "application/json"}
        self._lean.request("POST", "/db/execute", self._body, headers)
        answer = self._lean.getresponse().read()
        if b"error" in answer:
            raise RuntimeError(answer)
        return 1

    def _put(self, queue: RqliteQueue) -> int:
        group = None
        if queue.name == "groups":
            group = f"group {len(self._claimed) % self.given.groups}"
        queue.put(PAYLOAD, group_id=group)
        return 1

    def _claim(self, queue: RqliteQueue) -> int:
        self._claimed.append(queue.get(block=False))
        return 1

    def _ack(self) -> int:
        job = self._claimed.pop()
        job.queue.ack(job)
        return 1

    def _exchange(self, queue: RqliteQueue) -> int:
        done = queue.exchange([Settle(job, "ack") for job in self._held], EXCHANGED)
        self._held = done.jobs
        return len(done.jobs)

    def _put_many(self, queue: RqliteQueue) -> int:
        return len(queue.put_many([PAYLOAD] * BATCH))

    @contextmanager
    def _queue(self, name: str) -> Iterator[RqliteQueue]:
        with RqliteQueue(self.cluster.urls, name, lease_seconds=3_600) as queue:
            yield queue

    def _fill(self, queue: RqliteQueue, count: int, groups: int) -> None:
        for start in range(0, count, FILL):
            numbers = range(start, min(start + FILL, count))
            queue.put_many(
                NewJob(PAYLOAD, group_id=f"group {n % groups}" if groups else None) for n in numbers
            )
        print(f"{queue.name}: {count:,} jobs wait", file=sys.stderr)

    def _raft_index(self) -> int:
        url = f"{self.cluster.urls[self.leader]}/status"
        raft = self.cluster.session.get(url, timeout=30).json()["store"]["raft"]
        return int(raft["last_log_index"])


class Floor:
    """Rows that are claimed and acked in the fewest words there are."""

    def __init__(self, cluster: RealCluster, rows: int) -> None:
        self._client = RqliteClient(cluster.urls)
        self._held: list[Any] = []
        self._token = ""
        cluster.execute(
            [
                "CREATE TABLE floor"
                " (id INTEGER PRIMARY KEY, st INTEGER NOT NULL, tok TEXT, payload TEXT NOT NULL)",
                "CREATE INDEX floor_ready ON floor (id) WHERE st = 0",
                [
                    "INSERT INTO floor (st, payload) WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL"
                    " SELECT i + 1 FROM n WHERE i < ?2) SELECT 0, ?1 FROM n",
                    json.dumps(PAYLOAD), rows + 1_000,
                ],
            ]
        )  # fmt: skip

    def claim(self) -> int:
        sql = f"UPDATE floor SET st=1,tok=? WHERE id=({_FLOOR_HEAD} LIMIT 1) RETURNING id,payload"
        return len(self._client.execute([[sql, self._next()]])[0].rows)

    def exchange(self) -> int:
        ack = "UPDATE floor SET st=2 WHERE id IN(SELECT value FROM json_each(?)) AND tok=?"
        sql = f"UPDATE floor SET st=1,tok=? WHERE id IN({_FLOOR_HEAD} LIMIT ?) RETURNING id,payload"
        statements: list[list[Any]] = [[ack, json.dumps(self._held), self._token]]
        statements.append([sql, self._next(), EXCHANGED])
        rows = self._client.execute(statements)[-1].rows
        self._held = [row[0] for row in rows]
        return len(rows)

    def _next(self) -> str:
        self._token = secrets.token_urlsafe(16)
        return self._token


def summary(rounds: list[dict[str, float]]) -> list[dict[str, Any]]:
    """Return medians over the rounds: of each verb, and of its ratios to the bare loops."""
    rows = []
    for name in rounds[0]:
        slower, lean = (
            statistics.median(times[name] / times[bare] for times in rounds)
            for bare in (BARE, LEAN)
        )
        rows.append(
            {
                "verb": name,
                "us": statistics.median(times[name] for times in rounds) * 1e6,
                "times": slower,
                "faster": 1 / slower,
                "times_lean": lean,
            }
        )
    return rows


def table(results: dict[str, Any]) -> str:
    """Return the results as Markdown."""
    lines = [
        f"Command: `{results['command']}`, rqlite {results['rqlite']}",
        "",
        "| a job | us | jobs/s | time, bare = 1 | rate, bare = 1 | time, http.client = 1 |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for row in results["rows"]:
        lines.append(
            f"| {row['verb']} | {row['us']:,.0f} | {1e6 / row['us']:,.0f}"
            f" | {row['times']:.2f} | {row['faster']:.1f} | {row['times_lean']:.2f} |"
        )
    lines += ["", f"An idle worker's Raft entries in {results['idle']:.0f} s: {results['writes']}"]
    return "\n".join(lines)


def main() -> int:
    """Run what the command line asks for and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rqlite", description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--n", type=int, default=40, help="operations of a verb in a round")
    parser.add_argument("--waiting", type=int, default=200_000, help="jobs that wait")
    parser.add_argument("--groups", type=int, default=50_000, help="groups that as many wait in")
    parser.add_argument("--idle", type=float, default=60.0, help="seconds to watch a worker")
    parser.add_argument("--json", type=Path, help="write the results to this file too")
    given = parser.parse_args()
    if find_rqlited() is None:
        print("rqlited is neither on PATH nor named by RQLITED.", file=sys.stderr)
        return 2
    with (
        tempfile.TemporaryDirectory(prefix="benchmark-") as folder,
        RealCluster(Path(folder), nodes=3) as cluster,
    ):
        bench = Bench(cluster, given)
        bench.measure()
        writes = bench.idle_writes()
        version = ".".join(map(str, cluster.version))
    results = {
        "command": shlex.join(["python", "-m", "benchmarks.rqlite", *sys.argv[1:]]),
        "machine": machine(),
        "rqlite": version,
        "rows": summary(bench.rounds),
        "idle": given.idle,
        "writes": writes,
    }
    if given.json:
        given.json.write_text(json.dumps(results, indent=1) + "\n")
    print(table(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
