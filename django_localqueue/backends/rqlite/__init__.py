"""The queue on an rqlite cluster, over ``django_localqueue.transports``."""

from __future__ import annotations

from django_localqueue.backends.rqlite.queue import RqliteQueue

__all__ = ["RqliteQueue"]
