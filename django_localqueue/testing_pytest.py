"""Fixtures for pytest: ``pytest_plugins = ["django_localqueue.testing_pytest"]`` in conftest.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


class LocalQueues:
    """What the fixture gives: the functions of ``django_localqueue.testing``, and the queues."""

    def __init__(self) -> None:
        from django_localqueue import queues, testing

        self.queues = queues
        self.drain = testing.drain
        self.enqueued = testing.enqueued
        self.assert_enqueued = testing.assert_enqueued
        self.assert_not_enqueued = testing.assert_not_enqueued
        self.clear = testing.clear

    def __getitem__(self, alias: str) -> Any:
        """Return the queue of an alias."""
        return self.queues[alias]


@pytest.fixture
def localqueue() -> Iterator[LocalQueues]:
    """The queues of LOCALQUEUE, empty, and what drains and asks them; emptied afterwards."""
    helpers = LocalQueues()
    helpers.clear()
    yield helpers
    helpers.clear()
