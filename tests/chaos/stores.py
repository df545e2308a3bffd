"""The two queues under test, spoken to in the same words."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from django_localqueue.backends.base import BaseQueue
from django_localqueue.backends.rqlite import RqliteQueue
from django_localqueue.transports import AsyncRqliteTransport, RqliteTransport, Timeouts
from django_localqueue.transports.messages import Lease
from django_localqueue.types import STATES, Job, JobFilter, NewJob, Settle, Verb
from tests.chaos.ledger import lost, true_time

LEASE_SECONDS = 3.0
MAX_RETRIES = 3
TIMEOUTS = Timeouts(connect=0.5, read=1.5, total=4.0)


@dataclass(frozen=True)
class Rules:
    """What a run keeps: how its queue is set up, and how its clients may be treated.

    ``margin`` is what the clocks of clients may differ by, ``longest`` how long a verb may take,
    both in seconds; ``refusals`` begin the only errors that may refuse a good request.
    """

    lease_seconds: float
    max_retries: int
    margin: float
    longest: float
    refusals: tuple[str, ...]


#: Half a round trip each, on a busy machine. A verb may read the clock and make the tables first,
#: each within the total timeout.
ON_A_CLUSTER = Rules(
    LEASE_SECONDS, MAX_RETRIES, 0.4, 3 * TIMEOUTS.total + 5, ("ClusterUnavailable:",)
)


@dataclass
class Message:
    """What a producer puts; ``id`` makes it safe to put again."""

    key: str
    group: str | None = None
    id: str | None = None
    delay: float = 0
    priority: int = 0


@dataclass
class Held:
    """A delivery: ``ends`` is when the worker believes its lease to end, in true seconds."""

    key: str
    group: str | None
    receipt: str
    ends: float
    attempt: int
    job: Any

    def facts(self) -> dict[str, Any]:
        """Return what a ledger says of it."""
        return {
            "key": self.key, "group": self.group, "receipt": self.receipt, "ends": self.ends,
            "attempt": self.attempt,
        }  # fmt: skip


class Store(Protocol):
    """What the clients do to a queue."""

    verbs: Sequence[Verb]
    lease_seconds: float

    def put(self, messages: list[Message]) -> None: ...
    def take(self, worker: str, want: int) -> list[Held]: ...
    def settle(self, held: Held, verb: Verb, delay: float) -> None: ...
    def exchange(
        self, worker: str, settles: list[tuple[Held, Verb]], want: int
    ) -> tuple[list[dict[str, Any]], list[Held]]: ...
    def extend(self, held: Held, seconds: float) -> None: ...
    def waiting(self) -> int: ...
    def records(self) -> list[dict[str, Any]]: ...
    def stats(self) -> dict[str, int]: ...
    def close(self) -> None: ...


class QueueStore:
    """A queue with all the verbs of the contract."""

    verbs: Sequence[Verb] = ("ack", "nack", "fail", "release")

    def __init__(self, queue: BaseQueue) -> None:
        self._queue = queue
        self.lease_seconds = queue.lease_seconds

    @classmethod
    def on_rqlite(cls, urls: list[str]) -> QueueStore:
        """Return the store on the cluster at these addresses."""
        return cls(
            RqliteQueue(
                urls, "chaos", lease_seconds=LEASE_SECONDS, max_retries=MAX_RETRIES,
                timeouts=TIMEOUTS,
            )
        )  # fmt: skip

    def put(self, messages: list[Message]) -> None:
        self._queue.put_many(
            NewJob({"key": one.key}, one.id, one.delay, one.priority, one.group) for one in messages
        )

    def take(self, worker: str, want: int) -> list[Held]:
        jobs = self._queue.get_many(want, block=True, timeout=0.5, worker=worker)
        return [_held(job) for job in jobs]

    def settle(self, held: Held, verb: Verb, delay: float) -> None:
        if verb == "nack":
            self._queue.nack(held.job, delay, "chaos")
        elif verb == "fail":
            self._queue.fail(held.job, "chaos")
        elif verb == "release":
            self._queue.release(held.job)
        else:
            self._queue.ack(held.job, held.key)

    def exchange(
        self, worker: str, settles: list[tuple[Held, Verb]], want: int
    ) -> tuple[list[dict[str, Any]], list[Held]]:
        done = self._queue.exchange(
            [Settle(held.job, verb) for held, verb in settles],
            want, block=True, timeout=0.5, worker=worker,
        )  # fmt: skip
        return [lost(error) for error in done.results], [_held(job) for job in done.jobs]

    def extend(self, held: Held, seconds: float) -> None:
        self._queue.extend_lease(held.job, seconds)

    def waiting(self) -> int:
        stats = self._queue.stats()
        return stats.ready + stats.processing

    def records(self) -> list[dict[str, Any]]:
        found = []
        for state in STATES:
            after = None
            while True:
                page = self._queue.list(JobFilter(state=state), limit=200, after=after)
                for record in page.records:
                    found.append(
                        {
                            "key": json.loads(record.payload)["key"],
                            "id": record.id,
                            "state": record.state,
                            "attempts": record.attempts,
                            "reason": record.reason,
                            "finished": (record.finished_at or 0) / 1e6,
                        }
                    )
                after = page.next
                if after is None:
                    break
        return found

    def stats(self) -> dict[str, int]:
        stats = self._queue.stats()
        return {name: stats[name] for name in ("ready", "processing", "acked", "failed")}

    def close(self) -> None:
        self._queue.close()


class TransportStore:
    """``RqliteTransport``: an ack removes the message, and nothing ends one but an ack."""

    verbs: Sequence[Verb] = ("ack", "nack")
    lease_seconds = LEASE_SECONDS

    def __init__(self, urls: list[str]) -> None:
        self._transport: Any = RqliteTransport.from_url(urls, timeouts=TIMEOUTS, wait=60)

    def put(self, messages: list[Message]) -> None:
        (one,) = messages
        event = json.dumps({"key": one.key})
        self._transport.publish(one.group or one.key, event, publish_id=one.id)

    def take(self, worker: str, want: int) -> list[Held]:
        # The leader's clock cannot be seen from here: the lease ends no earlier than this.
        ends = true_time() + LEASE_SECONDS
        lease = self._transport.claim(worker, LEASE_SECONDS)
        return [] if lease is None else [_leased(lease, ends)]

    def settle(self, held: Held, verb: Verb, delay: float) -> None:
        if verb == "nack":
            self._transport.nack(held.job, delay)
        else:
            self._transport.ack(held.job)

    def exchange(
        self, worker: str, settles: list[tuple[Held, Verb]], want: int
    ) -> tuple[list[dict[str, Any]], list[Held]]:
        raise NotImplementedError("the transport has no exchange")

    def extend(self, held: Held, seconds: float) -> None:
        self._transport.extend(held.job, seconds)

    def waiting(self) -> int:
        return int(self._transport._query("SELECT count(*) AS n FROM messages")[0]["n"])

    def records(self) -> list[dict[str, Any]]:
        rows = self._transport._query("SELECT seq, event FROM messages")
        return [
            {"key": json.loads(row["event"])["key"], "id": str(row["seq"]), "state": "ready"}
            for row in rows
        ]

    def stats(self) -> dict[str, int]:
        groups = self._transport._query("SELECT count(*) AS n FROM groups")[0]["n"]
        return {"ready": self.waiting(), "groups": int(groups)}

    def close(self) -> None:
        self._transport.close()


class AsyncTransportStore(TransportStore):
    """``AsyncRqliteTransport``."""

    def __init__(self, urls: list[str]) -> None:
        self._transport = Awaited(urls)


class Awaited:
    """The asynchronous transport in an event loop of its own: each verb is awaited."""

    def __init__(self, urls: list[str]) -> None:
        self._loop = asyncio.Runner()
        opening = AsyncRqliteTransport.from_url(urls, timeouts=TIMEOUTS, wait=60)
        self._transport = self._loop.run(opening)

    def __getattr__(self, verb: str) -> Any:
        method = getattr(self._transport, verb)
        return lambda *given, **named: self._loop.run(method(*given, **named))

    def close(self) -> None:
        self._loop.run(self._transport.close())
        self._loop.close()


STORES: dict[str, Callable[[list[str]], Store]] = {
    "queue": QueueStore.on_rqlite,
    "transport": TransportStore,
    "async": AsyncTransportStore,
}


def _held(job: Job) -> Held:
    ends = job.lease_expires_at / 1e6
    return Held(job.data["key"], job.group_id, job.receipt, ends, job.attempts, job)


def _leased(lease: Lease, ends: float) -> Held:
    key = json.loads(lease.event)["key"]
    return Held(key, lease.group_id, lease.token, ends, 0, lease)
