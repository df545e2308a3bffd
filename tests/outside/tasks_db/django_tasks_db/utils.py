"""Named by test cases that are left out: our queue is in no database of Django."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager


def normalize_uuid(id: str) -> str:
    """Return an id as the other package compares them."""
    return str(uuid.UUID(id))


@contextmanager
def exclusive_transaction() -> Iterator[None]:
    """Lock nothing."""
    yield
