"""When a worker ends by itself: after so many jobs, so much memory, so long, so long idle."""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from django_localqueue.backends.arguments import seconds, whole

Reason = Literal["max-jobs", "max-memory", "max-lifetime", "max-idle"]
MEBIBYTE = 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """What ends a worker; None: nothing does.

    ``max_jobs`` deliveries, give or take up to ``max_jobs_jitter`` so that workers started
    together don't end together; ``max_memory`` in MiB; ``max_lifetime`` and ``max_idle`` in
    seconds. Running jobs are finished first.

    Raises ``InvalidInput`` where one is of the wrong type or out of range.
    """

    max_jobs: int | None = None
    max_jobs_jitter: int = 0
    max_memory: float | None = None
    max_lifetime: float | None = None
    max_idle: float | None = None

    def __post_init__(self) -> None:
        whole(self.max_jobs_jitter, "max_jobs_jitter", 0, 1_000_000_000)
        if self.max_jobs is not None:
            whole(self.max_jobs, "max_jobs", 1, 1_000_000_000)
        for name in ("max_memory", "max_lifetime", "max_idle"):
            value = getattr(self, name)
            if value is not None:
                seconds(value, name, positive=True)

    def budget(self) -> Budget:
        """Return a new budget of jobs."""
        if self.max_jobs is None:
            return Budget(None)
        return Budget(self.max_jobs + random.randint(0, self.max_jobs_jitter))

    def reached(self, began: float, idle_since: float | None) -> Reason | None:
        """Return which of the other limits is reached; both times are monotonic."""
        now = time.monotonic()
        if self.max_lifetime is not None and now - began >= self.max_lifetime:
            return "max-lifetime"
        idle = 0.0 if idle_since is None else now - idle_since
        if self.max_idle is not None and idle >= self.max_idle:
            return "max-idle"
        if self.max_memory is not None and rss() >= self.max_memory * MEBIBYTE:
            return "max-memory"
        return None


class Budget:
    """How many jobs may still be claimed; shared by the claimers of a worker."""

    def __init__(self, jobs: int | None) -> None:
        self._lock = threading.Lock()
        self._left = self._unused = jobs

    def take(self, jobs: int) -> int:
        """Reserve up to so many; return how many were left to reserve."""
        if self._left is None:
            return jobs
        with self._lock:
            taken = min(jobs, self._left)
            self._left -= taken
            return taken

    def claimed(self, jobs: int, of: int) -> None:
        """So many of those that were reserved are claimed."""
        if self._left is not None and self._unused is not None:
            with self._lock:
                self._unused -= jobs
                self._left += of - jobs

    def give_back(self, jobs: int) -> None:
        """So many that were claimed were given back unused."""
        self.claimed(-jobs, 0)

    @property
    def is_used_up(self) -> bool:
        """Whether all were claimed."""
        return self._unused is not None and self._unused <= 0


def rss() -> int:
    """Return the memory of this process in bytes, now; 0 where that can't be known."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return _largest_rss()
    return pages * os.sysconf("SC_PAGE_SIZE")


def _largest_rss() -> int:
    try:
        import resource
    except ImportError:
        return 0
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return largest if sys.platform == "darwin" else largest * 1024
