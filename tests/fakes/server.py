"""A small HTTP server in a thread, which can die as a killed process does."""

from __future__ import annotations

import collections
import contextlib
import json
import random
import socket
import socketserver
import ssl
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any


@dataclass(slots=True)
class Reply:
    """An HTTP answer. With a header ``server`` it is a stranger's and stays as it is."""

    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)

    @classmethod
    def text(cls, status: int, text: str) -> Reply:
        return cls(status, f"{text}\n".encode(), {"Content-Type": "text/plain; charset=utf-8"})

    @classmethod
    def json(cls, value: Any) -> Reply:
        body = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
        return cls(200, body, {"Content-Type": "application/json; charset=utf-8"})


class Connection(BaseHTTPRequestHandler):
    """One connection; ``handle_request`` of the server answers each of its requests."""

    protocol_version = "HTTP/1.1"
    server: _Listener
    body: bytes

    @property
    def method(self) -> str:
        return self.command

    def header(self, name: str) -> str | None:
        return self.headers.get(name)

    def setup(self) -> None:
        if isinstance(self.request, ssl.SSLSocket):
            self.request.do_handshake()
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().setup()

    def do_POST(self) -> None:
        self.body = self.rfile.read(int(self.headers.get("content-length") or 0))
        reply = self.server.owner.handle_request(self)
        if reply is None:
            self.close_connection = True
            return
        lines = [f"HTTP/1.1 {reply.status} {HTTPStatus(reply.status).phrase}"]
        headers = reply.headers | {"Content-Length": str(len(reply.body))}
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self.wfile.write("\r\n".join([*lines, "", ""]).encode() + reply.body)

    do_GET = do_POST  # noqa: N815

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""


class _Listener(socketserver.ThreadingMixIn, socketserver.TCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, owner: Server) -> None:
        self.owner = owner
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        super().__init__(("127.0.0.1", owner.port), Connection)

    def get_request(self) -> tuple[Any, Any]:
        connection, address = super().get_request()
        if self.owner.tls is not None:
            connection = self.owner.tls.wrap_socket(
                connection, server_side=True, do_handshake_on_connect=False
            )
        with self._lock:
            self._open.add(connection)
        return connection, address

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        error = sys.exception()
        if not isinstance(error, OSError) and error is not None:
            self.owner.crashes.append(error)

    def break_connections(self) -> None:
        with self._lock:
            for connection in self._open:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)


class Server:
    """Listens on ``port`` of the loopback while it runs. ``crashes`` are errors of its own."""

    def __init__(
        self, port: int, handle_request: Callable[[Connection], Reply | None], tls: Any = None
    ) -> None:
        self.port = port
        self.handle_request = handle_request
        self.tls: ssl.SSLContext | None = tls
        self.running = False
        self.crashes: list[BaseException] = []
        scheme, host = ("http", "127.0.0.1") if tls is None else ("https", "localhost")
        self.url = f"{scheme}://{host}:{port}"

    def start(self) -> None:
        self._listener = _Listener(self)
        self._thread = threading.Thread(
            target=self._listener.serve_forever, args=(0.01,), daemon=True
        )
        self._thread.start()
        self.running = True

    def stop(self) -> None:
        if not self.running:
            return
        self.running = False
        self._listener.shutdown()
        self._listener.server_close()
        self._listener.break_connections()
        self._thread.join()


@contextlib.contextmanager
def stranger(said: bytes) -> Iterator[str]:
    """The URL of something that answers every connection with these bytes, whatever it asks."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(65536)
                    connection.sendall(said)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
    thread.join(10)


_chance = random.SystemRandom()  # tests seed the shared one, so that all would pick the same
_reserved: collections.deque[socket.socket] = collections.deque(maxlen=200)


def free_port() -> int:
    """Return a free port below those that outgoing connections take (facts 5).

    It stays reserved until 200 more were asked for: a server that reuses addresses, as all
    here do, can bind it, and this function, also in another process, doesn't give it again.
    """
    while True:
        port = _chance.randrange(20000, 32000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        reservation = socket.socket()
        reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            reservation.bind(("127.0.0.1", port))
        except OSError:
            reservation.close()
            continue
        if len(_reserved) == _reserved.maxlen:
            _reserved.popleft().close()
        _reserved.append(reservation)
        return port
