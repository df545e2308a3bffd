"""How long reads may take that somebody waits for, as the reader of a page does."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_deadline: ContextVar[float | None] = ContextVar("localqueue_read_deadline", default=None)


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Let all reads in the block take that long together, if ``timeouts`` doesn't say less.

    Writes go on as long as they may: one that is given up early leaves its outcome unknown.
    """
    token = _deadline.set(time.monotonic() + seconds)
    try:
        yield
    finally:
        _deadline.reset(token)


def bounded(total: float) -> float:
    """Return how many of the ``total`` seconds that a read may take are left to it."""
    deadline = _deadline.get()
    return total if deadline is None else max(0.0, min(total, deadline - time.monotonic()))
