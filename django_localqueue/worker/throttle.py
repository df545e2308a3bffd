"""Saying the same thing once in a while instead of each time."""

from __future__ import annotations

import time


class Throttle:
    """Lets one thing through a period, and counts what it held back.

    Args:
        period: seconds.
    """

    def __init__(self, period: float = 30) -> None:
        self._period = period
        self._next = 0.0
        self._held_back = 0

    def __call__(self) -> bool:
        """Whether it is time to say it (again)."""
        now = time.monotonic()
        if now < self._next:
            self._held_back += 1
            return False
        self._next = now + self._period
        return True

    def held_back(self) -> int:
        """Return how many were held back since this was last asked."""
        count, self._held_back = self._held_back, 0
        return count
