"""The queue in one SQLite file, on the native engine: the only package that imports it."""

from __future__ import annotations

from django_localqueue.backends.sqlite import engine  # noqa: F401  # first: says why it can't be
from django_localqueue.backends.sqlite.queue import SimpleQueue, SQLiteQueue

__all__ = ["SQLiteQueue", "SimpleQueue"]
