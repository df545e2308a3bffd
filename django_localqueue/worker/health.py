"""Telling others that a worker lives: a file that is touched, and two pages over HTTP."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

logger = logging.getLogger("django_localqueue.worker")

#: Seconds after which a worker that shows no life, or whose stores don't answer, is unwell.
SILENT = 30.0
TOUCH = 5.0
HOST = "127.0.0.1"
_PATIENCE = 1.0  # seconds for a client to ask
_MOST = 8_192  # bytes of a request

Look = Callable[[], float]


class Health:
    """How a worker is.

    Args:
        alive_at: returns when it was last seen to live, monotonic.
        answered_at: returns when its stores last answered.
    """

    def __init__(self, alive_at: Look, answered_at: Look) -> None:
        self._alive_at = alive_at
        self._answered_at = answered_at
        self.stopping = False

    def live(self) -> bool:
        """Whether it runs."""
        return time.monotonic() - self._alive_at() < SILENT

    def ready(self) -> bool:
        """Whether it takes jobs: it runs, isn't stopping, and its stores answer."""
        answers = time.monotonic() - self._answered_at() < SILENT
        return self.live() and answers and not self.stopping


class HealthFile:
    """A file whose time says when the worker was last seen to live.

    Raises ``OSError`` where it can't be written. What a worker before left there is removed.
    """

    def __init__(self, path: Path, health: Health) -> None:
        path.touch()
        path.unlink()
        self._path = path
        self._health = health
        self._next = 0.0

    def touch(self) -> None:
        """Touch it, if it is time to and the worker lives."""
        now = time.monotonic()
        if now < self._next or not self._health.live():
            return
        self._next = now + TOUCH
        try:
            self._path.touch()
        except OSError as error:
            logger.error("The health file can't be touched: %s", error)

    def remove(self) -> None:
        """Remove it: the worker has ended."""
        with contextlib.suppress(OSError):
            self._path.unlink()


class HealthServer:
    """``/live`` and ``/ready`` over HTTP, 200 or 503, one client at a time; loopback only.

    Raises ``OSError`` where the port can't be had.
    """

    def __init__(self, port: int, health: Health) -> None:
        self._health = health
        self._socket = socket.create_server((HOST, port))
        self._socket.settimeout(0.5)

    @property
    def port(self) -> int:
        """The port, also where 0 was asked for."""
        return int(self._socket.getsockname()[1])

    def fileno(self) -> int:
        """For ``select``: readable when a client waits."""
        return self._socket.fileno()

    def answer(self) -> None:
        """Answer the client that waits, or return after half a second without one."""
        try:
            client, _ = self._socket.accept()
        except OSError:
            return
        with contextlib.suppress(OSError), client:
            client.settimeout(_PATIENCE)
            client.sendall(self._reply(_request_line(client)))

    def close(self) -> None:
        """Answer nobody any more."""
        self._socket.close()

    @contextlib.contextmanager
    def answering(self) -> Iterator[None]:
        """Answer in a thread until the block ends."""
        ended = threading.Event()

        def serve() -> None:
            while not ended.is_set():
                self.answer()

        thread = threading.Thread(target=serve, name="localqueue-health", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join(1)
            self.close()

    def _reply(self, line: str) -> bytes:
        method, _, rest = line.partition(" ")
        path = rest.partition(" ")[0].partition("?")[0]
        pages = {"/live": self._health.live, "/ready": self._health.ready}
        if method not in ("GET", "HEAD"):
            status, text = "405 Method Not Allowed", "only GET"
        elif path not in pages:
            status, text = "404 Not Found", "there are /live and /ready"
        elif pages[path]():
            status, text = "200 OK", "ok"
        else:
            status, text = "503 Service Unavailable", "no"
        body = f"{text}\n".encode()
        head = (
            f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n"
            "Cache-Control: no-store\r\nConnection: close\r\n\r\n"
        )
        return head.encode() + (b"" if method == "HEAD" else body)


def _request_line(client: socket.socket) -> str:
    received = b""
    deadline = time.monotonic() + _PATIENCE
    while b"\r\n\r\n" not in received and len(received) < _MOST and time.monotonic() < deadline:
        part = client.recv(1_024)
        if not part:
            break
        received += part
    return received.partition(b"\r\n")[0].decode("latin-1")
