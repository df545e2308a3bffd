"""Signals of a worker process: it is about to claim jobs, and its jobs have ended."""

from __future__ import annotations

from django.dispatch import Signal

from django_localqueue.worker.summary import Summary
from django_localqueue.worker.worker import Worker

#: A process of ``runqueueworker`` is about to claim jobs: ``worker``, the ``Worker``. With several
#: processes each of them sends it, in itself. A receiver that raises changes nothing.
worker_started = Signal()
#: It claims no more, and its jobs have ended or are given back: also ``summary``, or None where
#: it broke down. The process may end without Python's ``atexit``: what is held is flushed here.
worker_stopped = Signal()


class TellingWorker(Worker):
    """A worker that sends these signals."""

    def run(self) -> Summary:
        """Run jobs as ``Worker.run`` does."""
        summary = None
        worker_started.send_robust(Worker, worker=self)
        try:
            summary = super().run()
            return summary
        finally:
            worker_stopped.send_robust(Worker, worker=self, summary=summary)
