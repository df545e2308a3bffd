"""Every verb that writes: what it needs, what it answers, and what is then so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django_localqueue.backends.rqlite import RqliteQueue
from django_localqueue.types import Applied, JobFilter, NewJob, Settle


@dataclass(frozen=True)
class Verb:
    """``counts`` are the stats that differ from 0 afterwards; ``check`` judges the answer.

    ``begun`` are those where only the first of several requests was applied.
    """

    endpoint: str
    prepare: Callable[[RqliteQueue], Any]
    do: Callable[[RqliteQueue, Any], Any]
    check: Callable[[Any], bool]
    counts: dict[str, int]
    begun: dict[str, int] | None = None


def nothing(queue: RqliteQueue) -> None:
    queue.resume()  # the tables and the queue are made


def three(queue: RqliteQueue) -> None:
    queue.put_many([1, 2, 3])


def claimed(queue: RqliteQueue) -> Any:
    queue.put(1)
    return queue.get_nowait()


def claimed_in_group(queue: RqliteQueue) -> Any:
    queue.put_many([NewJob(n, group_id="g") for n in range(2)])
    return queue.get_nowait()


def dead(queue: RqliteQueue) -> Any:
    ids = queue.put_many([1, 2, 3])
    for job in queue.get_many(3):
        queue.fail(job)
    return ids


def acked(queue: RqliteQueue) -> None:
    queue.put_many([1, 2, 3])
    for job in queue.get_many(3):
        queue.ack(job)


def lapsed(queue: RqliteQueue) -> None:
    queue.put_many([1, 2])
    queue.get_many(2, lease_seconds=0.001)
    while queue.stats().expired < 2:
        pass


MIXED = [
    NewJob(1),
    NewJob(2, "x"),
    NewJob(3, group_id="g"),
    NewJob(4, "x"),
    NewJob(5, group_id="g", delay=60),
    NewJob(6, delay=60),
]


def told(ids: Any) -> list[tuple[bool, str]]:
    return [(id.created, id.state) for id in ids]


def holds(exchange: Any) -> bool:
    return bool(exchange.results == [None])


VERBS: dict[str, Verb] = {
    "put": Verb("execute", nothing, lambda q, _: q.put(1), lambda id: id.created, {"ready": 1}),
    "put delayed": Verb(
        "execute",
        nothing,
        lambda q, _: q.put(1, delay=60),
        lambda id: (id.created, id.state) == (True, "delayed"),
        {"ready": 1, "delayed": 1},
    ),
    "put with a job_id": Verb(
        "execute", nothing, lambda q, _: q.put(1, "x"), lambda id: id.created, {"ready": 1}
    ),
    "put that leads a group": Verb(
        "execute",
        nothing,
        lambda q, _: q.put(1, group_id="g"),
        lambda id: (id.created, id.state) == (True, "ready"),
        {"ready": 1},
    ),
    "put behind a lead": Verb(
        "execute",
        claimed_in_group,
        lambda q, _: q.put(1, group_id="g", delay=60),
        lambda id: (id.created, id.state) == (True, "blocked"),
        {"ready": 2, "blocked": 2, "processing": 1},
    ),
    "put_many, plain": Verb(
        "execute",
        nothing,
        lambda q, _: q.put_many([1, NewJob(2, delay=60), NewJob(3, "x"), NewJob(4, priority=3)]),
        lambda ids: (
            told(ids) == [(True, "ready"), (True, "delayed"), (True, "ready"), (True, "ready")]
        ),
        {"ready": 4, "delayed": 1},
    ),
    "put_many": Verb(
        "request",
        nothing,
        lambda q, _: q.put_many(MIXED),
        lambda ids: (
            told(ids)
            == [
                *((True, "ready"), (True, "ready"), (True, "ready"), (False, "ready")),
                *((True, "blocked"), (True, "delayed")),
            ]
        ),
        {"ready": 5, "blocked": 1, "delayed": 1},
    ),
    "get": Verb(
        "execute",
        three,
        lambda q, _: q.get_nowait(),
        lambda job: (job.data, job.attempts) == (1, 1),
        {"ready": 2, "processing": 1},
    ),
    "get_many": Verb(
        "execute",
        three,
        lambda q, _: q.get_many(2),
        lambda jobs: [job.data for job in jobs] == [1, 2],
        {"ready": 1, "processing": 2},
    ),
    "ack": Verb(
        "execute",
        claimed,
        lambda q, job: q.exchange([Settle(job, "ack")], 0),
        holds,
        {"acked": 1},
    ),
    "ack in a group": Verb(
        "execute",
        claimed_in_group,
        lambda q, job: q.exchange([Settle(job, "ack")], 0),
        holds,
        {"acked": 1, "ready": 1},
    ),
    "nack": Verb(
        "execute",
        claimed,
        lambda q, job: q.exchange([Settle(job, "nack", error="no")], 0),
        holds,
        {"ready": 1},
    ),
    "fail": Verb(
        "execute",
        claimed,
        lambda q, job: q.exchange([Settle(job, "fail")], 0),
        holds,
        {"failed": 1},
    ),
    "release": Verb(
        "execute",
        claimed,
        lambda q, job: q.exchange([Settle(job, "release")], 0),
        holds,
        {"ready": 1},
    ),
    "exchange that claims what it gives back": Verb(
        "execute",
        claimed,
        lambda q, job: q.exchange([Settle(job, "nack")], 1),
        lambda done: holds(done) and [job.attempts for job in done.jobs] == [2],
        {"processing": 1},
    ),
    "extend_lease": Verb(
        "request",
        claimed,
        lambda q, job: q.extend_lease(job, 600),
        lambda goes_on: goes_on is True,
        {"processing": 1},
    ),
    "retry_failed": Verb(
        "request",
        dead,
        lambda q, ids: q.retry_failed(ids[0]),
        lambda done: done is True,
        {"failed": 2, "ready": 1},
    ),
    "cancel": Verb(
        "request",
        lambda q: q.put(1),
        lambda q, id: q.cancel(id),
        lambda done: done is True,
        {"failed": 1},
    ),
    "apply": Verb(
        "request",
        dead,
        lambda q, ids: q.apply("purge", JobFilter(ids=(*ids, "none"))),
        lambda applied: applied == Applied(done=3, not_found=1),
        {},
    ),
    "purge": Verb(
        "request", acked, lambda q, _: q.purge(0), lambda count: count == 3, {}, {"acked": 3}
    ),
    "reclaim": Verb(
        "request",
        lapsed,
        lambda q, _: q.reclaim_expired_leases(),
        lambda count: count == 2,
        {"ready": 2},
    ),
    "pause": Verb("execute", nothing, lambda q, _: q.pause(), lambda _: True, {"paused": 1}),
}


def counts(queue: RqliteQueue) -> dict[str, int]:
    """Return the stats that differ from 0."""
    return {
        name: int(value)
        for name, value in queue.stats().items()
        if value and name != "oldest_ready_at"
    }
