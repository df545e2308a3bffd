"""Fixtures that tests with real processes share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.contract.processes import Processes
from tests.integration.worker_site import Site


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A project in a folder of its own; its worker processes end with the test."""
    site = Site(tmp_path)
    yield site
    site.close()


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    """Processes that share the store of ``queue``; they end with the test."""
    with ExitStack() as stack:
        yield Processes(tmp_path / "queue", stack)
