"""The thread that removes acked jobs past their retention, in small steps."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

from django_localqueue.backends.base import BaseQueue
from django_localqueue.worker.throttle import Throttle

logger = logging.getLogger("django_localqueue.worker")

INTERVAL = 60.0
STEP = 1_000
PAUSE = 0.05


class Pruner:
    """Calls ``prune`` of each queue at the start and then every minute.

    A thread of its own: a store that is busy must delay neither a heartbeat nor a
    signal.
    """

    def __init__(self, queues: Sequence[BaseQueue]) -> None:
        self._queues = queues
        self._end = threading.Event()
        self._trouble = Throttle()
        self._thread = threading.Thread(target=self._run, name="localqueue-pruner", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End after the step that runs."""
        self._end.set()

    def join(self, timeout: float) -> None:
        """Wait until the thread has ended, for ``timeout`` seconds at most."""
        self._thread.join(timeout)

    def _run(self) -> None:
        while not self._end.is_set():
            for queue in self._queues:
                while self._prune(queue) and not self._end.wait(PAUSE):
                    pass
            self._end.wait(INTERVAL)

    def _prune(self, queue: BaseQueue) -> bool:
        """Remove some; return whether there may be more."""
        try:
            return queue.prune(STEP) == STEP
        except Exception as error:
            if self._trouble():
                logger.warning("Pruning the queue %s failed; trying later: %s", queue.name, error)
            return False
