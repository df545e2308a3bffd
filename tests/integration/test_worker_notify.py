"""What a worker tells systemd, over a real socket."""

from __future__ import annotations

import signal
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.worker_site import PATIENCE, Site


@pytest.fixture(params=["path", "abstract"])
def listener(request: pytest.FixtureRequest) -> Iterator[tuple[socket.socket, str]]:
    """A socket as systemd makes one, and what ``NOTIFY_SOCKET`` says of it."""
    with (
        tempfile.TemporaryDirectory() as folder,  # short: such a path has 107 bytes at most
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as one,
    ):
        path = str(Path(folder) / "notify")
        abstract = request.param == "abstract"
        one.bind(f"\0{path}" if abstract else path)
        one.settimeout(PATIENCE)
        yield one, f"@{path}" if abstract else path


@pytest.mark.parametrize("processes", ["1", "2"])
def test_it_says_that_it_is_ready_that_it_lives_and_that_it_stops(
    site: Site, listener: tuple[socket.socket, str], processes: str
) -> None:
    heard, address = listener
    worker = site.start("--processes", processes, NOTIFY_SOCKET=address, WATCHDOG_USEC="1000000")
    assert heard.recv(100) == b"READY=1"
    assert [heard.recv(100) for _ in range(2)] == [b"WATCHDOG=1"] * 2
    worker.send(signal.SIGTERM)
    while (said := heard.recv(100)) == b"WATCHDOG=1":
        pass
    assert said == b"STOPPING=1"
    assert worker.wait() == 0


def test_a_socket_that_nobody_hears_keeps_it_from_nothing(site: Site) -> None:
    worker = site.start("--burst", NOTIFY_SOCKET=str(site.folder / "nowhere"), WATCHDOG_USEC="x")
    assert worker.wait() == 0
