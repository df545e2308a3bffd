"""How many jobs to claim beyond the threads that are free.

One durable transaction costs as much as running several short jobs. So where jobs are short
a claim takes some milliseconds' worth of them for the threads to go on with. It never does
where they are long, nor where one has been delivered before: a job that ends its process must
not cost others their deliveries.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from django_localqueue.types import Job

#: Seconds of work that may wait in a worker.
HORIZON = 0.01
MOST = 128
#: What one job counts that took longer, or less long, than those before.
LONGER, SHORTER = 0.5, 0.05
#: Seconds without, after a job was met that had been delivered before.
CAUTION = 5.0
UNKNOWN = 1.0


class Prefetch:
    """Learns from the jobs of one claimer."""

    def __init__(self) -> None:
        self._seconds = UNKNOWN
        self._not_before = 0.0

    def ended(self, seconds: float) -> None:
        """A job took so long."""
        if self._seconds == UNKNOWN:
            self._seconds = min(UNKNOWN, 4 * seconds)
        else:
            weight = LONGER if seconds > self._seconds else SHORTER
            self._seconds += weight * (seconds - self._seconds)

    def claimed(self, jobs: Sequence[Job]) -> None:
        """These were claimed."""
        if any(job.attempts > 1 for job in jobs):
            self._not_before = time.monotonic() + CAUTION

    def got_stuck(self) -> None:
        """Jobs waited for threads that were busy."""
        self._seconds = UNKNOWN

    def jobs(self) -> int:
        """Return how many jobs to claim beyond the threads that are free."""
        if self._seconds > HORIZON or time.monotonic() < self._not_before:
            return 0
        return min(MOST, int(HORIZON / max(self._seconds, 1e-6)))
