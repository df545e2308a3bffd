"""The processes of a run: forked, they work until they are killed or told to end.

A process is several clients, each in a thread with a ledger of its own, on one open queue.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from django_localqueue.backends.sqlite import SQLiteQueue
from django_localqueue.records import ScheduleRecord
from django_localqueue.types import JobFilter, NewJob
from tests.chaos.clients import Client, Producer, Worker
from tests.chaos.ledger import Ledger
from tests.chaos.stores import QueueStore

LEASE_SECONDS = 0.8
MAX_RETRIES = 3
ACTIONS = [
    ("retry", "failed"), ("discard", "ready"), ("discard", "failed"), ("purge", "failed"),
    ("purge", "acked"), ("cancel", "ready"), ("run_now", "delayed"), ("delay", "ready"),
    ("move", "ready"), ("move", "failed"),
]  # fmt: skip
#: The clients of a process of each kind.
KINDS: dict[str, tuple[str, ...]] = {
    "producer": ("producer",),
    "worker": ("worker",),
    "threads": ("producer", "producer", "producer", "producer", "worker", "worker"),
    "operator": ("operator",),
}


class HastyProducer(Producer):
    pace = (0.0, 0.02)


class HastyWorker(Worker):
    pace = (0.0, 0.004)


class Operator(Client):
    """Does everything that isn't putting and working: to jobs of its own where it ends them."""

    #: Rows of 20 kB that one call puts, so that the log grows long.
    bulk = 200

    def __init__(
        self, queue: SQLiteQueue, ledger: Ledger, folder: Path, rng: random.Random
    ) -> None:
        super().__init__(QueueStore(queue), ledger, folder, rng)
        self._queue = queue
        self._own = SQLiteQueue(folder / "store", "ops", durability=queue.durability)

    def run(self) -> None:
        does: list[Callable[[], Any]] = [
            self._deal, self._deal, self._bulk, self._retry, self._apply, self._purge, self._cancel,
            self._queue.reclaim_expired_leases, self._queue.stats, self._pause, self._fork,
            self._once, self._edit, self._schedule, self._own.prune, self._look, self._own.vacuum,
        ]  # fmt: skip
        weights = [1 if act == self._own.vacuum else 5 for act in does]
        while not self.told("stop") and not self.told("quiet"):
            act = self.rng.choices(does, weights)[0]
            self.ledger.call(act.__name__, {}, lambda act=act: (act() and {}) or {})

    def _deal(self) -> None:
        """Put, take and end some jobs, so that there are dead letters and finished ones."""
        for number in range(self.rng.randint(1, 8)):
            group = f"own {number % 3}" if self.rng.random() < 0.6 else None
            delay = self.rng.choice([0, 0, 0.05])
            own_id = f"{os.getpid()}-{self.rng.random()}"
            unique = f"key {self.rng.randrange(5)}" if self.rng.random() < 0.3 else None
            expires = 0.1 if self.rng.random() < 0.2 else None
            self._own.put(
                number,
                own_id,
                delay=delay,
                group_id=group,
                unique_key=unique,
                expires=expires,
            )
        self._own.put("nothing but a payload")
        for job in self._own.get_many(5, lease_seconds=LEASE_SECONDS):
            way = self.rng.choice([self._own.ack, self._own.fail, self._own.nack])
            way(job)

    def _bulk(self) -> None:
        """Make the log long, so that it is checkpointed."""
        self._own.put_many(["x" * 20_000] * self.bulk)

    def _retry(self) -> None:
        for record in self._own.list_failed(3):
            self._own.retry_failed(record.id)

    def _apply(self) -> None:
        action, state = self.rng.choice(ACTIONS)
        extra = {"delay": {"delay": 0.05}, "move": {"target": "ops too"}}.get(action, {})
        self._own.apply(
            action,
            JobFilter(state=state),
            as_of=self._own.now(),
            limit=300,
            **extra,  # type: ignore[arg-type]
        )

    def _purge(self) -> None:
        self._own.purge(0, include_failed=self.rng.random() < 0.5)

    def _cancel(self) -> None:
        for record in self._own.list(limit=5).records:
            self._own.cancel(record.id)

    def _once(self) -> None:
        self._own.put_many([NewJob(1, f"once {self.rng.randrange(50)}")], once=True)

    def _edit(self) -> None:
        for record in self._own.list(JobFilter(state="ready"), limit=3).records:
            self._own.edit(record.id, "edited")

    def _schedule(self) -> None:
        name = f"schedule {self.rng.randrange(3)}"
        known = {one.name: one for one in self._own.schedules()}
        if name not in known:
            self._own.save_schedule(ScheduleRecord(name, "* * * * *", "task", "ops", next_at=1))
            return
        due = known[name].next_at
        self._own.fire_schedule(name, due, due + 1, NewJob("by a schedule"))

    def _look(self) -> None:
        now = self._own.now()
        self._own.failures()
        self._own.activity(now - 3_600_000_000, now, 60)

    def _pause(self) -> None:
        self._queue.pause()
        self._queue.resume()

    def _fork(self) -> None:
        child = os.fork()
        if child == 0:
            try:
                self._own.put("from a child")
            finally:
                os._exit(0)
        os.waitpid(child, 0)


def run(
    name: str,
    kind: str,
    folder: Path,
    durability: str,
    seed: float,
    ledger_folder: Path | None = None,
) -> None:
    """Be the process ``name`` until it is told to stop.

    The store is in ``folder / "store"``, the ledgers are in ``folder`` unless another is given.
    """
    rng = random.Random(seed)
    kinds: dict[str, Any] = {"producer": HastyProducer, "worker": HastyWorker}
    with SQLiteQueue(
        folder / "store", "crash", lease_seconds=LEASE_SECONDS, max_retries=MAX_RETRIES,
        durability=durability,
    ) as queue:  # fmt: skip
        clients: list[Any] = []
        for number, role in enumerate(KINDS[kind]):
            ledger = Ledger(ledger_folder or folder, f"{name}.{number}")
            own = random.Random(rng.random())
            if role == "operator":
                clients.append(Operator(queue, ledger, folder, own))
            else:
                clients.append(kinds[role](QueueStore(queue), ledger, folder, own))
        if len(clients) == 1:
            clients[0].run()
            return
        threads = [threading.Thread(target=client.run) for client in clients]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def ledgers(name: str, kind: str) -> list[str]:
    """Return under which names a process writes its ledgers."""
    return [f"{name}.{number}" for number in range(len(KINDS[kind]))]
