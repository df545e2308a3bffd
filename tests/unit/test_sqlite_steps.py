"""Housekeeping goes in steps: what one transaction of it changes is bounded, however much is due.

Attempts that end in one transaction end at the same microsecond, so their history tells the steps.
"""

from __future__ import annotations

import sqlite3
import threading
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from django_localqueue import JobFilter, SimpleQueue
from django_localqueue.types import NewJob
from django_localqueue.worker import chores

#: What ``LAPSES`` and ``PROMOTIONS`` of the engine are.
STEP = 64
MANY = 300


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


def steps(queue: Any) -> list[int]:
    """How many jobs each transaction gave back."""
    jobs = queue.list(JobFilter(state="ready"), limit=1_000).records
    ends = Counter(queue.lookup(job.id).history[-1].ended_at for job in jobs)
    assert sum(ends.values()) == MANY
    return [ends[at] for at in sorted(ends)]


def delayed(store: Path) -> int:
    """Jobs that no claim has made ready yet; nobody may have the store open."""
    path = f"file:{store / 'localqueue.db'}?mode=ro"
    with closing(sqlite3.connect(path, uri=True)) as db:
        return int(db.execute("SELECT count(*) FROM messages WHERE state = 1").fetchone()[0])


def test_leases_that_lapsed_are_let_go_some_at_a_time(store: Path) -> None:
    with SimpleQueue(store, lease_seconds=0.001, durability="normal") as queue:
        queue.put_many(range(MANY))
        assert len(queue.get_many(MANY)) == MANY
        while queue.stats().expired < MANY:
            pass
        assert queue.reclaim_expired_leases() == MANY
        assert steps(queue) == [STEP] * 4 + [MANY - 4 * STEP]


def test_jobs_of_a_dead_worker_are_taken_back_some_at_a_time(store: Path) -> None:
    with SimpleQueue(store, durability="normal") as queue:
        queue.put_many(range(2 * MANY))
        for _ in range(MANY):  # between jobs of a worker that lives
            queue.get_many(1, worker="dead")
            queue.get_many(1, worker="alive")
        assert queue.take_back("dead") == MANY
        assert steps(queue) == [STEP] * 4 + [MANY - 4 * STEP]
        assert queue.stats().processing == MANY


def test_a_claim_makes_some_of_the_due_jobs_ready(store: Path) -> None:
    with SimpleQueue(store, durability="normal") as queue:
        queue.put_many([NewJob(number, delay=0.001) for number in range(MANY)])
        while queue.stats().delayed:
            pass
    for claims in (1, 2):
        with SimpleQueue(store, durability="normal") as queue:
            assert len(queue.get_many(1)) == 1
        assert delayed(store) == MANY - claims * STEP


def test_the_chore_removes_old_jobs_some_at_a_time(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, int]] = []
    with SimpleQueue(store, retention_seconds=0, durability="normal") as queue:
        queue.put_many(range(MANY))
        for job in queue.get_many(MANY):
            queue.ack(job)
        prune = queue.prune

        def noting(limit: int) -> int:
            done = prune(limit)
            asked.append((limit, done))
            return done

        monkeypatch.setattr(queue, "prune", noting)
        chores.Prune([queue]).run("w", threading.Event())
        assert queue.stats().acked == 0
    assert asked == [(200, 200), (200, 100)]
