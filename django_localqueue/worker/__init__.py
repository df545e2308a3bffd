"""The worker: claims jobs, runs them, renews their leases and stops cleanly.

It needs no Django settings and knows no SQL; what it knows of a queue is
``BaseQueue``.
"""

from __future__ import annotations

from django_localqueue.worker.executor import Executor, Handler, HandlerExecutor, Running, current
from django_localqueue.worker.lifecycle import worker_started, worker_stopped
from django_localqueue.worker.summary import Summary
from django_localqueue.worker.worker import Worker

__all__ = [
    "Executor",
    "Handler",
    "HandlerExecutor",
    "Running",
    "Summary",
    "Worker",
    "current",
    "worker_started",
    "worker_stopped",
]
