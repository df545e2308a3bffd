"""The faults of a run and their schedule."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from typing import Protocol

from tests.chaos.cluster import NODES, ProxiedCluster
from tests.chaos.proxies import Network

#: Seconds a fault lasts; nodes elect a new leader after one to three.
SHORTEST, LONGEST = 1.0, 6.0
PAUSE = 3.0


class Clients(Protocol):
    """What the schedule does to the clients."""

    def addresses(self) -> list[str]: ...
    def kill_worker(self, rng: random.Random) -> None: ...
    def stop_worker(self, rng: random.Random, seconds: float) -> None: ...


class Faults:
    """Does one fault after another, as ``rng`` has it; ``done`` counts them."""

    def __init__(
        self,
        cluster: ProxiedCluster,
        network: Network,
        clients: Clients,
        rng: random.Random,
        say: Callable[[str], None],
    ) -> None:
        self.done: Counter[str] = Counter()
        self._cluster = cluster
        self._network = network
        self._clients = clients
        self._rng = rng
        self._say = say
        self._all: dict[str, Callable[[int, float], None]] = {
            "leader killed": self._kill,
            "leader stopped": self._stop,
            "leader restarted": self._restart,
            "leadership moved": self._move,
            "clients cut from the leader": self._cut_clients,
            "leader cut from its peers": self._cut_leader,
            "follower cut from its peers": self._cut_follower,
            "follower killed": self._kill_follower,
            "quorum lost": self._lose_quorum,
            "requests lost": self._lose_requests,
            "worker killed": self._kill_worker,
            "worker stopped": self._stop_worker,
        }

    def run(self, seconds: float) -> None:
        """Go on for so long; the last fault may end a little later. Every kind has its turn."""
        deadline = time.monotonic() + seconds
        turn: list[str] = []
        while (left := deadline - time.monotonic()) > 0:
            time.sleep(min(left, self._rng.uniform(0.5, PAUSE)))
            if not turn:
                turn = self._rng.sample(sorted(self._all), len(self._all))
            fault = turn.pop()
            lasts = min(self._rng.uniform(SHORTEST, LONGEST), max(0.5, left))
            leader = self._cluster.leader()
            if leader is None:
                raise AssertionError("no node leads, though all faults are mended")
            # A few requests are lost at any time.
            self._network.loss = self._rng.choice([0, 0, 0.02])
            self._say(f"{fault}, for {lasts:.1f} s (node {leader} leads)")
            self._all[fault](leader, lasts)
            self.done[fault] += 1
        self._network.loss = 0.0

    def _kill(self, leader: int, seconds: float) -> None:
        self._cluster.stop(leader)
        time.sleep(seconds)
        self._cluster.start(leader)

    def _stop(self, leader: int, seconds: float) -> None:
        self._cluster.signal(leader, signal.SIGSTOP)
        time.sleep(seconds)
        self._cluster.signal(leader, signal.SIGCONT)

    def _restart(self, leader: int, seconds: float) -> None:
        self._cluster.stop(leader, signal.SIGTERM)
        self._cluster.start(leader)

    def _move(self, leader: int, seconds: float) -> None:
        if not self._cluster.transfer(leader):
            self._say("the leader refused to hand over")

    def _cut_clients(self, leader: int, seconds: float) -> None:
        addresses = self._clients.addresses()
        some = self._rng.sample(addresses, self._rng.randint(1, len(addresses)))
        self._cut({(address, leader) for address in some}, seconds)

    def _cut_leader(self, leader: int, seconds: float) -> None:
        self._isolate(leader, seconds)

    def _cut_follower(self, leader: int, seconds: float) -> None:
        self._isolate(self._follower(leader), seconds)

    def _kill_follower(self, leader: int, seconds: float) -> None:
        self._kill(self._follower(leader), seconds)

    def _lose_quorum(self, leader: int, seconds: float) -> None:
        followers = [node for node in range(NODES) if node != leader]
        for node in followers:
            self._cluster.stop(node)
        time.sleep(seconds)
        for node in followers:
            self._cluster.start(node)

    def _lose_requests(self, leader: int, seconds: float) -> None:
        self._network.loss = self._rng.uniform(0.1, 0.4)
        time.sleep(seconds)

    def _kill_worker(self, leader: int, seconds: float) -> None:
        self._clients.kill_worker(self._rng)

    def _stop_worker(self, leader: int, seconds: float) -> None:
        self._clients.stop_worker(self._rng, seconds)

    def _follower(self, leader: int) -> int:
        return self._rng.choice([node for node in range(NODES) if node != leader])

    def _isolate(self, node: int, seconds: float) -> None:
        others = [other for other in range(NODES) if other != node]
        self._cut({(a, b) for other in others for a, b in ((node, other), (other, node))}, seconds)

    def _cut(self, pairs: set[tuple[str | int, int]], seconds: float) -> None:
        self._network.cut(pairs, reset=self._rng.random() < 0.5)
        time.sleep(seconds)
        self._network.heal()
