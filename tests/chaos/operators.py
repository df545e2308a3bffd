"""What a person does to a queue meanwhile: retry, cancel, purge, pause, adopt.

usage: python -m tests.chaos.operators, as ``tests.chaos.clients``
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from typing import Any

from django_localqueue.backends.rqlite import RqliteQueue
from django_localqueue.exceptions import LocalQueueError
from django_localqueue.transports import RqliteTransport
from django_localqueue.types import JobFilter, State
from tests.chaos.clients import Client, play
from tests.chaos.ledger import OK, Call, true_time
from tests.chaos.stores import TIMEOUTS, Message, QueueStore

#: How often of a hundred it does what.
ACTS = {"retry": 35, "cancel": 25, "purge": 15, "pause": 10, "adopt": 15}
SETTLING_SECONDS = 45.0
PAUSED_SECONDS = 1.0


class OperatedStore(QueueStore):
    """The queue as an operator sees it, and the transport whose messages it adopts."""

    def __init__(self, urls: list[str]) -> None:
        super().__init__(QueueStore.on_rqlite(urls)._queue)
        self._urls = urls
        self._transport: RqliteTransport | None = None

    def find(self, state: State) -> list[dict[str, Any]]:
        """Return key and id of some jobs in a state."""
        page = self._queue.list(JobFilter(state=state), limit=50)
        return [
            {"key": json.loads(record.payload)["key"], "id": record.id} for record in page.records
        ]

    def act(self, verb: str, id: str) -> bool:
        """Retry, cancel or purge a job; return whether that did anything."""
        if verb == "purge":
            ended: tuple[State, ...] = ("acked", "failed")
            done = [self._queue.apply("purge", JobFilter(state, ids=(id,))).done for state in ended]
            return any(done)
        return self._queue.retry_failed(id) if verb == "retry" else self._queue.cancel(id)

    def pause(self) -> None:
        self._queue.pause()

    def resume(self) -> None:
        self._queue.resume()

    def publish(self, message: Message) -> None:
        """Leave a message in the transport's tables of the same cluster."""
        if self._transport is None:
            self._transport = RqliteTransport.from_url(self._urls, timeouts=TIMEOUTS, wait=10)
        event = json.dumps({"key": message.key})
        self._transport.publish(message.group or message.key, event, publish_id=message.id)

    def adopt(self) -> dict[str, int]:
        """Move the messages of the transport's tables into the queue."""
        assert isinstance(self._queue, RqliteQueue)
        return self._queue.adopt()._asdict()

    def close(self) -> None:
        super().close()
        if self._transport is not None:
            self._transport.close()


class Operator(Client):
    """Changes jobs from outside, one call after another; there is one of them in a run."""

    pace = (0.05, 0.4)
    store: OperatedStore

    def run(self) -> None:
        while not self.told("quiet") and not self.told("stop"):
            (act,) = self.rng.choices(list(ACTS), list(ACTS.values()))
            with contextlib.suppress(LocalQueueError):  # of looking for a job
                getattr(self, f"_{act}")()
            time.sleep(self.rng.uniform(*self.pace))
        deadline = true_time() + SETTLING_SECONDS
        while self._resume().outcome != OK or self._move().facts.get("left") != 0:
            if true_time() > deadline:
                raise SystemExit("the queue could not be resumed, or not all messages adopted")

    def _retry(self) -> None:
        self._act("retry", "failed")

    def _cancel(self) -> None:
        states: list[State] = ["ready", "delayed", "blocked", "processing"]
        self._act("cancel", self.rng.choice(states))

    def _purge(self) -> None:
        states: list[State] = ["acked", "failed"]
        self._act("purge", self.rng.choice(states))

    def _act(self, verb: str, state: State) -> None:
        found = self.store.find(state)
        if verb == "purge":  # a producer may put a job with an id of its own again
            found = [one for one in found if not one["id"].startswith("id ")]
        if not found:
            return
        one = self.rng.choice(found)
        self.ledger.call(verb, one, lambda: {"done": self.store.act(verb, one["id"])})

    def _pause(self) -> None:
        self.ledger.call("pause", {}, self.store.pause)
        time.sleep(self.rng.uniform(0, PAUSED_SECONDS))
        self._resume()

    def _resume(self) -> Call:
        return self.ledger.call("resume", {}, self.store.resume)

    def _adopt(self) -> None:
        for _ in range(self.rng.randint(1, 3)):
            self._publish()
        self._move()

    def _publish(self) -> None:
        key = f"{self.ledger.who}-{os.getpid()}-{true_time():.6f}"
        message = Message(key, f"adopted {self.rng.randrange(2)}", f"id {key}")
        facts = {"messages": [[key, message.group, message.id]]}
        self.ledger.call("put", facts, lambda: self.store.publish(message))

    def _move(self) -> Call:
        return self.ledger.call("adopt", {}, self.store.adopt)


if __name__ == "__main__":
    play({"operator": Operator}, {"queue": OperatedStore})
