"""What workers do beside running jobs: removing what is old, taking back from the dead, and more.

Each chore has a thread of its own: a store that is busy, or a chore that is slow, must delay
neither a heartbeat nor a signal nor another chore.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence

from django_localqueue.backends.base import BaseQueue
from django_localqueue.worker.throttle import Throttle

logger = logging.getLogger("django_localqueue.worker")

RECLAIM_INTERVAL = 2.0
PRUNE_INTERVAL = 60.0
#: Jobs that one step removes: a few milliseconds' worth of the write lock.
PRUNE_STEP = 200
AFTER_TROUBLE = 5.0


class Chore(ABC):
    """Something that is done again and again, as long as the worker runs."""

    #: For its thread and the log.
    name: str

    @abstractmethod
    def run(self, worker: str, ended: threading.Event) -> float:
        """Do what is due; return in how many seconds to be called again.

        ``worker`` is the worker's name; a long run ends early once ``ended`` is set.
        """


class Reclaim(Chore):
    """Gives back the jobs of workers whose death is seen. Looking costs no write."""

    name = "reclaim"

    def __init__(self, queues: Sequence[BaseQueue]) -> None:
        self._queues = queues

    def run(self, worker: str, ended: threading.Event) -> float:
        take_back_from_dead(self._queues)
        return RECLAIM_INTERVAL


def take_back_from_dead(queues: Iterable[BaseQueue]) -> None:
    """Give back the jobs of workers whose death is seen, and log it."""
    for queue in queues:
        taken = queue.reclaim_from_dead()
        if taken:
            logger.warning("Took %d jobs of %s back from workers that are dead.", taken, queue.name)


class Prune(Chore):
    """Removes finished jobs past their retention and lets lapsed leases go: one of all workers."""

    name = "prune"

    def __init__(self, queues: Sequence[BaseQueue]) -> None:
        self._queues = queues

    def run(self, worker: str, ended: threading.Event) -> float:
        for queue in self._queues:
            if not queue.has_leftovers():  # on rqlite even the duty costs an entry of its log
                continue
            if not queue.duty(f"prune {queue.name}", PRUNE_INTERVAL * 0.9, worker):
                continue
            queue.reclaim_expired_leases()
            while not ended.is_set():
                began = time.monotonic()
                if queue.prune(PRUNE_STEP) < PRUNE_STEP:
                    break
                # Others get the store for at least as long as this had it.
                ended.wait(max(0.002, 2 * (time.monotonic() - began)))
        return PRUNE_INTERVAL


@contextlib.contextmanager
def doing(chores: Sequence[Chore], worker: str) -> Iterator[None]:
    """Do chores in threads, until the block ends."""
    ended = threading.Event()
    threads = [
        threading.Thread(
            target=_do, args=(chore, worker, ended), name=f"localqueue-{chore.name}", daemon=True
        )
        for chore in chores
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        deadline = time.monotonic() + 1  # a store that hangs must not keep the worker
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))


def do_once(chores: Iterable[Chore], worker: str) -> None:
    """Do each chore once, now; one that fails is logged."""
    for chore in chores:
        try:
            chore.run(worker, threading.Event())
        except Exception as error:
            logger.warning("The chore %r failed: %s", chore.name, error)
            logger.debug("The chore %r failed:", chore.name, exc_info=True)


def _do(chore: Chore, worker: str, ended: threading.Event) -> None:
    trouble = Throttle()
    pause = 0.0
    while not ended.wait(pause):
        try:
            pause = chore.run(worker, ended)
        except Exception as error:
            pause = AFTER_TROUBLE
            if trouble():
                logger.warning("The chore %r failed; trying again: %s", chore.name, error)
                logger.debug("The chore %r failed:", chore.name, exc_info=True)
