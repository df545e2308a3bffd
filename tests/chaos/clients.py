"""One producer or worker in a process of its own.

usage: python -m tests.chaos.clients ROLE NAME STORE FOLDER ADDRESS SHIFT JUMP SEED URL...

It connects from the loopback address ADDRESS, its wall clock and its clock since boot are
SHIFT seconds off from the beginning, and its wall clock jumps by JUMP more after ten seconds.
Files in FOLDER tell it what to do: ``quiet`` ends the producers, ``drain`` makes the workers
well-behaved, ``stop`` ends them.
"""

from __future__ import annotations

import functools
import os
import random
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx
from urllib3.connection import HTTPConnection

from django_localqueue.types import Verb
from tests.chaos.ledger import OK, UNKNOWN, Call, Ledger, true_time
from tests.chaos.stores import STORES, Held, Message, Store

GROUPS = 6
JUMP_AFTER = 10.0
#: How a delivery ends, and how often of a hundred.
ENDS = {"ack": 60, "nack": 10, "fail": 4, "release": 6, "lapse": 6, "late": 3, "extend": 11}


class Client:
    """What producers and workers have in common."""

    #: Seconds that it rests between two calls, at least and at most.
    pace = (0.0, 0.05)

    def __init__(self, store: Store, ledger: Ledger, folder: Path, rng: random.Random) -> None:
        self.store = store
        self.ledger = ledger
        self.rng = rng
        self._folder = folder
        self._parent = os.getppid()

    def told(self, what: str) -> bool:
        """Tell whether the run asked for this, or is gone."""
        return (self._folder / what).exists() or os.getppid() != self._parent


class Producer(Client):
    """Puts, one and several, plain and in groups, with ids of its own and without."""

    pace = (0.02, 0.12)

    def run(self) -> None:
        made = 0
        while not self.told("quiet") and not self.told("stop"):
            count = 1
            if len(self.store.verbs) > 2 and self.rng.random() < 0.2:
                count = self.rng.randint(2, 6)
            messages = []
            for _ in range(count):
                made += 1
                messages.append(self._message(f"{self.ledger.who}-{os.getpid()}-{made}"))
            call = self._put(messages)
            # Only what has an id of its own may be put again.
            for _ in range(2):
                if call.outcome == UNKNOWN and all(one.id is not None for one in messages):
                    call = self._put(messages)
            time.sleep(self.rng.uniform(*self.pace))

    def _message(self, key: str) -> Message:
        rng = self.rng
        message = Message(key)
        if rng.random() < 0.5:
            message.group = f"group {rng.randrange(GROUPS)}"
        elif rng.random() < 0.2:
            message.priority = rng.randint(-2, 2)
        if rng.random() < 0.5:
            message.id = f"id {key}"
        if rng.random() < 0.1:
            message.delay = 0.5
        return message

    def _put(self, messages: list[Message]) -> Call:
        facts = {"messages": [[one.key, one.group, one.id] for one in messages]}
        return self.ledger.call("put", facts, lambda: self.store.put(messages))


class Worker(Client):
    """Takes jobs, and ends each in one of the ways of ``ENDS``."""

    def run(self) -> None:
        exchanged: list[tuple[Held, Verb]] = []
        late: list[Held] = []
        while not self.told("stop"):
            if len(self.store.verbs) > 2 and self.rng.random() < 0.4:
                held = self._exchange(exchanged)
            else:
                for each, verb in exchanged:
                    self._settle(each, verb)
                held = self._take()
            exchanged = []
            for each in [one for one in late if one.ends < true_time()]:
                late.remove(each)
                self._settle(each, "ack")
            for each in held:
                time.sleep(self.rng.uniform(*self.pace))
                way = "ack" if self.told("drain") else self._way()
                if way == "extend":
                    self._extend(each)
                    way = "ack"
                if way == "late":
                    late.append(each)
                elif way != "lapse" and self.rng.random() < 0.3 and self.store.verbs[2:]:
                    exchanged.append((each, way))
                elif way != "lapse":
                    self._settle(each, way)
            if not held and not self.store.verbs[2:]:
                time.sleep(0.1)  # the transport's claim does not wait

    def _way(self) -> Any:
        ways = [way for way in ENDS if way in (*self.store.verbs, "lapse", "late", "extend")]
        return self.rng.choices(ways, [ENDS[way] for way in ways])[0]

    def _take(self) -> list[Held]:
        held: list[Held] = []

        def act() -> dict[str, Any]:
            held.extend(self.store.take(self.ledger.who, self.rng.randint(1, 4)))
            return {"held": [each.facts() for each in held]}

        self.ledger.call("take", {}, act)
        return held

    def _exchange(self, settles: list[tuple[Held, Verb]]) -> list[Held]:
        held: list[Held] = []

        def act() -> dict[str, Any]:
            results, jobs = self.store.exchange(self.ledger.who, settles, self.rng.randint(1, 4))
            held.extend(jobs)
            return {"held": [each.facts() for each in held], "results": results}

        asked = [each.facts() | {"verb": verb} for each, verb in settles]
        self.ledger.call("exchange", {"settles": asked}, act)
        return held

    def _settle(self, held: Held, verb: Verb) -> None:
        delay = self.rng.choice([0, 0, 0.3]) if verb == "nack" else 0

        def act() -> None:
            self.store.settle(held, verb, delay)

        call = self.ledger.call("settle", held.facts() | {"verb": verb}, act)
        if call.outcome == UNKNOWN or (call.outcome == OK and self.rng.random() < 0.05):
            self.ledger.call("settle", held.facts() | {"verb": verb, "again": True}, act)

    def _extend(self, held: Held) -> None:
        lease = self.store.lease_seconds
        begin = true_time()
        call = self.ledger.call("extend", held.facts(), lambda: self.store.extend(held, lease))
        if call.outcome == OK:
            held.ends = max(held.ends, begin + lease)


def shift_clocks(shift: float, jump: float) -> None:
    """Set this process's clocks wrong; what time passed, it still measures right."""
    began = time.monotonic()

    def off() -> float:
        return shift + (jump if time.monotonic() - began > JUMP_AFTER else 0.0)

    boot = time.clock_gettime

    def gettime(clock: int) -> float:
        if clock == time.CLOCK_REALTIME:
            return true_time() + off()
        return boot(clock) + (shift if clock == time.CLOCK_BOOTTIME else 0.0)

    time.time = lambda: true_time() + off()
    time.time_ns = lambda: round((true_time() + off()) * 1e9)
    time.clock_gettime = gettime


def connect_from(address: str) -> None:
    """Let both HTTP libraries connect from this loopback address, by which proxies know it."""
    for kind, option in (
        (HTTPConnection, {"source_address": (address, 0)}),
        (httpx.AsyncHTTPTransport, {"local_address": address}),
    ):
        kind.__init__ = functools.partialmethod(  # type: ignore[method-assign]
            kind.__init__, **option
        )


def play(
    roles: Mapping[str, Callable[..., Any]], stores: Mapping[str, Callable[[list[str]], Any]]
) -> None:
    """Run the client that the command line names."""
    role, name, store, folder, address, shift, jump, seed, *urls = sys.argv[1:]
    connect_from(address)
    shift_clocks(float(shift), float(jump))
    ledger = Ledger(Path(folder), name)
    queue = stores[store](urls)
    try:
        roles[role](queue, ledger, Path(folder), random.Random(seed)).run()
    finally:
        queue.close()


if __name__ == "__main__":
    play({"producer": Producer, "worker": Worker}, STORES)
