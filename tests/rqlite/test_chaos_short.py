"""A short round of the chaos on real nodes, and what it can't bring about at will."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from django_localqueue.backends.rqlite import RqliteQueue
from django_localqueue.types import NewJob, Settle
from tests.rqlite.nodes import RealCluster

pytestmark = pytest.mark.rqlite

ROOT = Path(__file__).resolve().parents[2]
CHAOS = [sys.executable, "-m", "tests.chaos"]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("store", ["queue", "transport"])
def test_no_fault_loses_doubles_or_disorders_anything(store: str) -> None:
    command = [*CHAOS, "--seconds", "15", "--store", store]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.timeout(120)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_round_leaves_no_process(number: signal.Signals) -> None:
    command = [*CHAOS, "--seconds", "600", "--store", "queue"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as chaos:
        assert chaos.stdout is not None
        line = next(line for line in chaos.stdout if "processes" in line)
        pids = [int(word) for word in line.partition("processes")[2].split()]
        ran = [pid for pid in pids if _runs(pid)]
        chaos.send_signal(number)
        chaos.stdout.read()
        assert chaos.wait(60) != 0
    # Three nodes, five workers, three producers and an operator.
    assert len(pids) == 12
    assert ran == pids
    assert not [pid for pid in pids if _runs(pid)]


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


class Forwarded:
    """Sends the next write of a queue through a follower that doesn't wait for the answer.

    A follower of version 10 then sends it to the leader again; where it says instead that it
    had no answer, the client does. The leader applies both copies.
    """

    def __init__(self, cluster: RealCluster, queue: RqliteQueue) -> None:
        self._cluster = cluster
        self._client = queue._store().client
        self._post: Any = self._client._post
        self.leader = cluster.leader()
        self.follower = (self.leader + 1) % 3
        self.sent = 0

    def arm(self) -> None:
        """Do it to the next write."""
        self._client._post = self._forward  # type: ignore[method-assign]

    def _forward(self, request: Any) -> Any:
        if "/db/query" in request.url:
            return self._post(request)
        self._client._post = self._post  # type: ignore[method-assign]
        self.sent += 1
        return self._through_follower(request)

    def _through_follower(self, request: Any) -> Any:
        path = request.url.partition("/db/")[2].replace("&redirect", "")
        url = f"{self._cluster.urls[self.follower]}/db/{path}&timeout=300ms"
        self._cluster.freeze(self.leader)
        thaw = threading.Timer(0.45, self._cluster.thaw, (self.leader,))
        thaw.start()
        try:
            return self._post(replace(request, url=url))
        finally:
            thaw.join()


@pytest.fixture
def queue(triple: RealCluster) -> Iterator[RqliteQueue]:
    with closing(RqliteQueue(triple.urls, f"doubled {time.time_ns()}")) as queue:
        queue.stats()
        yield queue


@pytest.fixture
def forwarded(triple: RealCluster, queue: RqliteQueue) -> Forwarded:
    return Forwarded(triple, queue)


@pytest.mark.timeout(120)
def test_a_put_that_was_applied_twice_stores_one_job(
    triple: RealCluster, queue: RqliteQueue, forwarded: Forwarded
) -> None:
    triple.execute(
        [
            "CREATE TABLE applications (n INTEGER)",
            "CREATE TRIGGER count_puts INSTEAD OF INSERT ON localqueue_do_put BEGIN"
            " INSERT INTO applications VALUES (1); END",
        ]
    )
    try:
        forwarded.arm()
        queue.put_many([NewJob(1, group_id="g"), NewJob(2)])
        (applied,) = queue._store().client.query([["SELECT count(*) FROM applications"]])
        assert applied.rows[0][0] >= 2
        assert queue.stats().ready == 2
    finally:
        triple.execute(["DROP TRIGGER count_puts", "DROP TABLE applications"])


@pytest.mark.timeout(120)
@pytest.mark.parametrize("jobs", [[1], [1, 2], [NewJob(1, group_id="g")]], ids=["one", "two", "g"])
def test_a_put_by_the_short_way_that_was_applied_twice_stores_its_jobs_once(
    queue: RqliteQueue, forwarded: Forwarded, jobs: list[Any]
) -> None:
    queue.resume()  # the queue is known, so that the short way is open
    forwarded.arm()
    ids = queue.put_many(jobs)
    assert (forwarded.sent, len(set(ids))) == (1, len(jobs))
    assert all(id.created for id in ids)
    assert queue.stats().ready == len(jobs)


@pytest.mark.timeout(120)
def test_a_claim_that_was_applied_twice_leases_only_what_it_returns(
    queue: RqliteQueue, forwarded: Forwarded
) -> None:
    queue.put_many(range(9))
    queue.get_many(1)
    forwarded.arm()
    jobs = queue.get_many(3)
    assert forwarded.sent == 1
    assert [job.data for job in jobs] == [1, 2, 3]
    assert queue.stats().processing == 4


@pytest.mark.timeout(120)
def test_an_exchange_that_was_applied_twice_settles_and_claims_once(
    queue: RqliteQueue, forwarded: Forwarded
) -> None:
    queue.put_many(range(4))
    held = queue.get_many(2)
    forwarded.arm()
    done = queue.exchange([Settle(held[0], "ack"), Settle(held[1], "nack")], 1)
    assert forwarded.sent == 1
    assert done.results == [None, None]
    assert [job.data for job in done.jobs] == [2]
    assert (queue.stats().acked, queue.stats().processing) == (1, 1)
