"""The worker on queues that are on rqlite."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from django_localqueue import Worker
from django_localqueue.backends.rqlite import RqliteQueue
from django_localqueue.types import NewJob
from tests.fakes.rqlite import FakeCluster
from tests.unit.worker_tools import running, wait_until

Open = Callable[..., RqliteQueue]


def test_a_burst_runs_the_jobs_of_several_queues(cluster: FakeCluster, open_queue: Open) -> None:
    one, two = open_queue(cluster.urls, "one"), open_queue(cluster.urls, "two")
    one.put_many([NewJob(n, group_id="g" if n % 2 else None) for n in range(20)])
    two.put_many(range(20, 30))
    seen: list[int] = []
    summary = Worker([one, two], lambda job: seen.append(job.data), burst=True, threads=3).run()
    assert sorted(seen) == list(range(30))
    assert [n for n in seen if n < 20 and n % 2] == list(range(1, 20, 2))
    assert summary.done == 30
    assert (one.stats().acked, two.stats().acked) == (20, 10)


def test_a_worker_goes_on_when_another_node_leads(cluster: FakeCluster, open_queue: Open) -> None:
    queue = open_queue(cluster.urls)
    seen: list[Any] = []
    with running(Worker(queue, lambda job: seen.append(job.data))):
        queue.put("before")
        wait_until(lambda: seen == ["before"])
        cluster.stop(0)
        cluster.leader = 1
        queue.put("after")
        wait_until(lambda: seen == ["before", "after"])
    assert queue.stats().acked == 2


def test_two_workers_with_stores_of_their_own_share_the_jobs(
    cluster: FakeCluster, open_queue: Open
) -> None:
    here, there = open_queue(cluster.urls), open_queue(cluster.urls[:1])
    both = threading.Barrier(2)
    seen: list[Any] = []

    def handler(job: Any) -> None:
        seen.append(job.data)
        both.wait(30)  # until the other worker has the other job

    here.put_many([1, 2])
    with running(Worker(here, handler)), running(Worker(there, handler)):
        wait_until(lambda: here.stats().acked == 2)
    assert sorted(seen) == [1, 2]
