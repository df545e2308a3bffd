"""When a burst is over: no store has work, and no job runs that could put some."""

from __future__ import annotations

import threading


class Burst:
    """What the claimers of one worker know together about the work that is left.

    Args:
        stores: how many claimers there are.
    """

    def __init__(self, stores: int) -> None:
        self._stores = stores
        self._lock = threading.Lock()
        self._running = 0
        self._claims = 0
        self._empty: set[int] = set()

    def look(self) -> int | None:
        """To be called before a claim: what to give ``found_empty``, None while a job runs."""
        with self._lock:
            return None if self._running else self._claims

    def claimed(self, jobs: int) -> None:
        """Jobs were claimed: what the claimers saw before counts no more."""
        with self._lock:
            self._running += jobs
            self._claims += 1
            self._empty.clear()

    def finished(self) -> None:
        """A job has ended."""
        with self._lock:
            self._running -= 1

    def found_empty(self, store: int, look: int | None) -> bool:
        """A claim found nothing in a store; returns whether the burst is over."""
        with self._lock:
            if look is None or look != self._claims or self._running:
                return False
            self._empty.add(store)
            return len(self._empty) == self._stores
