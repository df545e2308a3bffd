"""The thread that renews the leases of running jobs."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence

from django_localqueue.exceptions import LeaseExpired
from django_localqueue.worker.claimer import Claimer
from django_localqueue.worker.executor import Running
from django_localqueue.worker.throttle import Throttle

logger = logging.getLogger("django_localqueue.worker")


class Heartbeat:
    """Renews the lease of every job that the claimers hold, from a thread of its own.

    Args:
        claimers: whose jobs.
        tick: seconds between two looks at them; at most half of the shortest
            interval of a renewal.
        job_timeout: seconds after which a job without a timeout of its own is overdue.
        supervised: somebody else ends what is overdue.
    """

    def __init__(
        self,
        claimers: Sequence[Claimer],
        tick: float,
        job_timeout: float | None = None,
        *,
        supervised: bool = False,
    ) -> None:
        self._claimers = claimers
        self._tick = tick
        self._job_timeout = job_timeout
        self._supervised = supervised
        #: When it last looked, monotonic.
        self.beat_at = time.monotonic()
        self._end = threading.Event()
        self._trouble = Throttle()
        self._thread = threading.Thread(target=self._run, name="localqueue-heartbeat", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End; leases run out by themselves from now on."""
        self._end.set()

    def join(self, timeout: float) -> None:
        """Wait until the thread has ended, for ``timeout`` seconds at most."""
        self._thread.join(timeout)

    def _run(self) -> None:
        while not self._end.wait(self._tick):
            self.beat_at = time.monotonic()
            for claimer in self._claimers:
                for running in list(claimer.live.values()):
                    if not self._supervised:
                        self._warn_if_overdue(running)
                    if running.renew_at <= time.monotonic() and not running.lost:
                        self._renew(running)

    def _warn_if_overdue(self, running: Running) -> None:
        timeout = running.timeout(self._job_timeout)
        if timeout is None or running.overdue or not running.begun or running.settle is not None:
            return
        if time.monotonic() - running.started > timeout:
            running.overdue = True
            running.log(
                logging.WARNING,
                "has run longer than its timeout of %s seconds, and a thread can't be ended;"
                " run workers with --processes or --job-timeout to have it ended.",
                timeout,
            )

    def _renew(self, running: Running) -> None:
        job = running.job
        try:
            go_on = job.extend_lease(running.lease_seconds)
        except LeaseExpired as error:
            if running.settle is None:  # else it was settled at this very moment
                running.lost = True
                running.log(
                    logging.WARNING,
                    "lost its lease while it runs (%s) and may run a second time elsewhere: %s",
                    error.reason,
                    error,
                )
        except Exception as error:
            # The lease still has time: try again well before it ends.
            running.renew_at = time.monotonic() + running.interval / 4
            if self._trouble():
                running.log(logging.ERROR, "could not be given more time; trying again: %s", error)
        else:
            running.renew_at = time.monotonic() + running.interval
            if not go_on and not running.cancel_requested:
                running.cancel_requested = True
                running.log(logging.INFO, "is asked to stop: somebody cancelled it.")
