"""What the verbs cost: requests, writes to the Raft log, and work that must not grow."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from django_localqueue.backends.rqlite import RqliteQueue, stores
from django_localqueue.exceptions import Empty
from django_localqueue.types import JobFilter, NewJob, Settle
from tests.contract.rqlite_backends import TwoClocks
from tests.fakes.rqlite import FakeCluster

# "SCAN m", where m is a table; JSON documents and what was picked before are walked.
TABLE_WALK = re.compile(r"SCAN (?!CONSTANT|\(|.* VIRTUAL TABLE)")
Open = Callable[..., RqliteQueue]


def steps(cluster: FakeCluster, act: Callable[[], Any]) -> int:
    """Return how many instructions SQLite runs for ``act``."""
    count = 0

    def one() -> None:
        nonlocal count
        count += 1

    cluster.database._connection.set_progress_handler(one, 1)
    try:
        act()
    finally:
        cluster.database._connection.set_progress_handler(None, 1)
    return count


def fill(queue: RqliteQueue, kind: str, jobs: int) -> None:
    new: dict[str, Callable[[int], NewJob]] = {
        "plain": lambda n: NewJob(n),
        "groups of one": lambda n: NewJob(n, group_id=str(n)),
        "deep groups": lambda n: NewJob(n, group_id=str(n % 10)),
        "delayed": lambda n: NewJob(n, delay=3_600),
        "dead": lambda n: NewJob(n),
    }
    queue.put_many([new[kind](n) for n in range(jobs)])
    if kind == "dead":
        for _ in range(jobs // 1_000):
            queue.exchange([Settle(job, "fail") for job in queue.get_many(1_000)], 0)
    queue.put_many([NewJob(n, priority=9) for n in range(5)])


def purge(queue: RqliteQueue, id: str) -> None:
    queue.cancel(id)
    queue.apply("purge", JobFilter(state="failed", ids=(id,)))


@pytest.mark.parametrize("kind", ["plain", "groups of one", "deep groups", "delayed", "dead"])
def test_put_claim_and_ack_cost_the_same_at_twenty_times_the_backlog(
    kind: str, cluster: FakeCluster, queue: RqliteQueue
) -> None:
    def costs() -> dict[str, int]:
        jobs: list[Any] = []
        return {
            "put": steps(cluster, lambda: queue.put(1)),
            "put in a group": steps(cluster, lambda: queue.put(1, "x", group_id="new")),
            "put again": steps(cluster, lambda: queue.put(1, "x", group_id="new")),
            "purge": steps(cluster, lambda: purge(queue, "x")),
            "get": steps(cluster, lambda: jobs.append(queue.get_nowait())),
            "exchange": steps(cluster, lambda: queue.exchange([Settle(jobs[0], "nack")], 1)),
            "look": steps(cluster, lambda: queue.get_many(1, min_priority=99)),
        }

    fill(queue, kind, 1_000)
    few = costs()
    fill(queue, kind, 20_000)
    many = costs()
    assert {name: many[name] for name in few if many[name] > 1.5 * few[name] + 200} == {}


def test_no_plan_of_the_daily_verbs_walks_a_table(cluster: FakeCluster, queue: RqliteQueue) -> None:
    queue.put_many([NewJob(n, group_id="g") for n in range(3)])
    before = len(cluster.seen)
    queue.put(1)
    queue.put(1, "x")
    job = queue.get_nowait()
    queue.extend_lease(job, 60)
    queue.exchange([Settle(job, "nack"), Settle(queue.get_nowait(), "ack")], 3)
    queue.get_many(1, min_priority=99)
    walks = []
    for seen in cluster.seen[before:]:
        for sql, *parameters in seen.statements:
            plan = cluster.database.rows(f"EXPLAIN QUERY PLAN {sql}", *parameters)
            walks += [step[3] for step in plan if TABLE_WALK.match(step[3])]
    assert walks == []


def test_an_exchange_is_one_request(cluster: FakeCluster, open_queue: Open) -> None:
    one, two = open_queue(cluster.urls, "one"), open_queue(cluster.urls, "two")
    one.put_many(range(30))
    two.put_many(range(30))
    jobs = one.exchange([], 20, sources=[one, two]).jobs
    before = len(cluster.seen)
    settles = [Settle(job, "ack") for job in jobs[:10]]
    settles += [Settle(job, "nack", error="no") for job in jobs[10:]]
    done = one.exchange(settles, 20, sources=[one, two], round_robin=True)
    assert (len(done.results), len(done.jobs)) == (20, 20)
    assert len(cluster.seen) - before == 1


@pytest.mark.parametrize("verb", [lambda q: q.put(1), lambda q: q.get_nowait()], ids=["put", "get"])
def test_the_other_verbs_are_one_request_while_there_is_work(
    verb: Callable[[RqliteQueue], Any], cluster: FakeCluster, queue: RqliteQueue
) -> None:
    queue.put_many(range(5))
    queue.get_nowait()
    before = len(cluster.seen)
    verb(queue)
    assert len(cluster.seen) - before == 1


def test_waiting_for_a_job_writes_nothing(cluster: FakeCluster, queue: RqliteQueue) -> None:
    queue.resume()
    writes = len(cluster.applied("execute")) + len(cluster.applied("request"))
    looks = len(cluster.applied("query"))
    with pytest.raises(Empty):
        queue.get(timeout=0.3)
    assert len(cluster.applied("execute")) + len(cluster.applied("request")) == writes
    assert len(cluster.applied("query")) > looks + 2


def test_the_pause_between_looks_grows_with_jitter_up_to_a_second(
    queue: RqliteQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    def wait(self: stores.Bell, seen: int, seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 12:
            queue.interrupt()

    monkeypatch.setattr(stores.Bell, "wait", wait)
    with pytest.raises(Empty):
        queue.get()
    bounds = [min(1.0, 0.02 * 2**n) for n in range(12)]
    assert all(bound / 2 <= pause <= bound for pause, bound in zip(pauses, bounds, strict=True))
    assert len(set(pauses)) == 12


def test_a_put_by_another_process_is_found_by_one_that_waits(
    cluster: FakeCluster, queue: RqliteQueue, open_queue: Open
) -> None:
    other = open_queue(cluster.urls[:1])  # a store of its own in this process, so as far away
    assert other.store_key != queue.store_key
    other.put("from afar")
    assert queue.get(timeout=20).data == "from afar"


def test_operations_are_forgotten_after_a_while(cluster: FakeCluster, open_queue: Open) -> None:
    clock = TwoClocks()
    queue = open_queue(cluster.urls, clock=clock.times)
    queue.put_many(range(3))
    for _ in range(stores.FORGETTING):
        queue.put(1)
    clock.advance(1_000)
    for _ in range(stores.FORGETTING):
        queue.put(1)
    ((left,),) = cluster.database.rows("SELECT count(*) FROM localqueue_ops")
    assert left <= stores.FORGETTING
