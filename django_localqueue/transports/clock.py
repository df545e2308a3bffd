"""The leader's clock, read seldom and carried forward: workers may disagree about the time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from django_localqueue.transports.answers import Result
from django_localqueue.transports.cluster import Cluster, Steps
from django_localqueue.transports.nodes import Node

# A weak read is answered from the leader's own clock, and nothing of it enters the Raft log.
_READING = "SELECT CAST((julianday('now') - 2440587.5) * 86400000000.0 AS INTEGER)"
REFRESH_SECONDS = 60.0
# A reading that took longer than this, as while a new leader was elected, is taken again.
GOOD_SECONDS = 0.05
READINGS = 8


def since_boot() -> float:
    """Return seconds on a clock that nobody sets and that goes on while the machine sleeps."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


class LeaderClock:
    """Tells the leader's time, within half the time that its reading took.

    It is read again every minute and when the leader has changed; between, this machine's
    clock since boot carries it forward. A machine whose own clock is wrong does no harm. Of
    several readings the quickest counts: none may have waited for an election.
    """

    def __init__(self, cluster: Cluster, local: Callable[[], float] = since_boot) -> None:
        self._cluster = cluster
        self._local = local
        self._offset = 0
        self._read_at: float | None = None
        self._read_from: Node | None = None

    def now(self) -> Steps[int]:
        """Return the time in microseconds since the epoch; reads it first if that is due."""
        if self._is_due():
            yield from self._read()
        return round(self._local() * 1_000_000) + self._offset

    def _read(self) -> Steps[None]:
        quickest = math.inf
        offset, after = 0, 0.0
        for _ in range(READINGS):
            before = self._local()
            results: tuple[Result, ...] = yield from self._cluster.query([[_READING]], level="weak")
            after = self._local()
            if after - before < quickest:
                quickest = after - before
                leader_time = int(results[0].rows[0][0])
                offset = leader_time - round((before + after) / 2 * 1_000_000)
            if quickest <= GOOD_SECONDS:
                break
        self._offset = offset
        self._read_at = after
        self._read_from = self._cluster.nodes.leader

    def _is_due(self) -> bool:
        return (
            self._read_at is None
            or self._local() - self._read_at > REFRESH_SECONDS
            or self._read_from is not self._cluster.nodes.leader
        )
