"""Fixtures that all tests share."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from django_localqueue._native import ManualClock
    from django_localqueue.backends.sqlite import SQLiteQueue


# Started in the background by a shell, tests ignore SIGINT, and so would the processes that
# tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[SQLiteQueue]:
    """A queue "default" in a folder of its own, on the machine's clock."""
    from django_localqueue import SimpleQueue

    with SimpleQueue(tmp_path / "queue") as opened:
        yield opened


@pytest.fixture
def clock() -> ManualClock:
    """A clock that moves only when told; give it to a queue as ``clock=``."""
    from django_localqueue._native import ManualClock

    return ManualClock()


@pytest.fixture(autouse=True)
def _queues_of_the_settings_start_empty() -> Iterator[None]:
    """Close the queues of LOCALQUEUE after each test: those in memory are then gone."""
    yield
    from django_localqueue import queues

    queues.close_all()
