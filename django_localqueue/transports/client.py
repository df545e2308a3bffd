"""Carries conversations with a cluster over ``requests``.

Sessions, their TLS and their pools of connections are those of ``requests``; what is sent goes
to a connection at once, which takes a quarter of the time of ``Session.post``.
"""

from __future__ import annotations

import http.client
import os
import threading
import time
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar, cast

from django_localqueue.exceptions import QueueClosed, StoreUnavailable
from django_localqueue.transports.answers import Answer, Broken, Level, Result
from django_localqueue.transports.carrier import Carrier, missing
from django_localqueue.transports.cluster import Pause, Request, Steps, Timeouts
from django_localqueue.transports.nodes import Node
from django_localqueue.transports.statements import Statement
from django_localqueue.transports.tls import Tls, refused_by_peer, tls_error, tls_text

if TYPE_CHECKING:
    import requests
    import urllib3

MAX_ANSWER_BYTES = 256 * 1024 * 1024
_CHUNK = 1024 * 1024

T = TypeVar("T")


class _Posting:
    """What is added to a connection of urllib3: a POST and its answer as ``http.client`` has them.

    The head is sent together with the body: in two pieces the node would be woken twice, and
    read twice.
    """

    _pieces: list[bytes] | None = None

    def post(self, path: str, body: bytes, headers: dict[str, str]) -> http.client.HTTPResponse:
        connection = cast(http.client.HTTPConnection, self)
        pieces: list[bytes] = []
        self._pieces = pieces
        try:
            http.client.HTTPConnection.request(connection, "POST", path, body, headers)
        finally:
            self._pieces = None
        self.send(b"".join(pieces))
        return http.client.HTTPConnection.getresponse(connection)

    def send(self, data: bytes) -> None:
        if self._pieces is None:
            super().send(data)  # type: ignore[misc]
        else:
            self._pieces.append(data)


class RqliteClient(Carrier):
    """A cluster, carried over ``requests``: one session a thread and process.

    Safe across threads and ``fork``. ``location``, ``auth`` as ``parse_location`` takes them.
    Raises ``MissingExtra``, which names ``user``, without ``requests``. Nothing is sent before the
    first verb.
    """

    def __init__(
        self,
        location: str | Sequence[str],
        *,
        auth: tuple[str, str] | None = None,
        tls: Tls | None = None,
        timeouts: Timeouts | None = None,
        user: str = "RqliteTransport",
    ) -> None:
        try:
            import requests
            import urllib3  # comes with requests
        except ImportError as error:
            raise missing(user, "requests", "rqlite") from error
        super().__init__(location, auth, tls, timeouts)
        self._requests, self._urllib3 = requests, urllib3
        self._begin_process()

    def execute(
        self, statements: Sequence[Statement], *, repeatable: bool = False, guard: str = ""
    ) -> tuple[Result, ...]:
        """Apply writes in one transaction; see ``Cluster.execute``."""
        steps = self.cluster.execute(statements, repeatable=repeatable, guard=guard)
        return self.run(steps)

    def request(
        self, statements: Sequence[Statement], *, repeatable: bool = False
    ) -> tuple[Result, ...]:
        """Apply writes and reads in one transaction; see ``Cluster.request``."""
        return self.run(self.cluster.request(statements, repeatable=repeatable))

    def query(
        self, statements: Sequence[Statement], *, level: Level = "strong"
    ) -> tuple[Result, ...]:
        """Read; see ``Cluster.query``."""
        return self.run(self.cluster.query(statements, level=level))

    def fetch_backup(self, file: BinaryIO) -> None:
        """Write the database, as a SQLite file of one moment, to ``file``.

        Any node gives it, a follower by way of the leader. Raises ``StoreUnavailable`` with what
        each of them answered.
        """
        refusals, tried = [], set[Node]()
        while (node := self.cluster.nodes.next(tried)) is not None:
            tried.add(node)
            file.seek(0)
            file.truncate()
            try:
                refusal = self._fetch(node, file)
            except (self._urllib3.exceptions.HTTPError, self._requests.RequestException) as error:
                refusal = self._broken(error).text
            if refusal is None:
                return
            refusals.append(f"{node.url}: {refusal}")
        raise StoreUnavailable(f"No node gave a backup: {'; '.join(refusals)}.")

    def _fetch(self, node: Node, file: BinaryIO) -> str | None:
        """Write a node's backup; return why there is none."""
        timeouts = self.cluster.timeouts
        response = self._pool(node.url).urlopen(
            "GET",
            "/db/backup",
            headers=self.cluster.headers,
            retries=False,
            redirect=False,
            timeout=self._urllib3.Timeout(timeouts.connect, timeouts.read),
            preload_content=False,
        )
        if response.status != 200:
            text = response.read(200).decode("utf-8", "replace").strip()
            response.close()
            return f"HTTP {response.status} {text}".strip()
        first = True
        while piece := response.read(_CHUNK):
            if first and not piece.startswith(b"SQLite format 3\0"):
                response.close()
                return "the answer is no SQLite file"
            first = False
            file.write(piece)
        return "the answer is empty" if first else None

    def close(self) -> None:
        """Close the connections of this process; every later verb raises ``QueueClosed``."""
        self._closed = True
        if self._pid == os.getpid():
            with self._lock:
                sessions = list(self._sessions)
            for session in sessions:
                session.close()

    def run(self, steps: Steps[T]) -> T:
        """Carry a conversation to its end and return or raise what it does."""
        reply: Answer | Broken | None = None
        try:
            while True:
                try:
                    step = steps.send(reply)
                except StopIteration as end:
                    return cast(T, end.value)
                if isinstance(step, Pause):
                    time.sleep(step.seconds)
                    reply = None
                else:
                    reply = self._post(step)
        finally:
            steps.close()

    def _post(self, request: Request) -> Answer | Broken:
        deadline = time.monotonic() + request.budget
        slash = request.url.index("/", len("https://"))
        connection: Any = None
        sent = answered = False
        try:
            pool = self._pool(request.url[:slash])
            connection = pool._get_conn()
            if connection.sock is None:
                connection.timeout = request.connect_timeout
                connection.connect()
            connection.sock.settimeout(request.read_timeout)
            sent = True
            response = connection.post(request.url[slash:], request.body, request.headers)
            body = response.read(_CHUNK)
            while rest := response.read(_CHUNK):
                body += rest
                if len(body) > MAX_ANSWER_BYTES or time.monotonic() > deadline:
                    return Broken(True, "the answer is too long or too slow")
            if response.length:  # what Content-Length promised beyond the end of the connection
                return Broken(True, "the answer was cut short")
            answered = True
            headers = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, headers, body)
        except (self._urllib3.exceptions.HTTPError, http.client.HTTPException, OSError) as error:
            return self._broken(error, sent)
        finally:
            if connection is not None:
                if not answered:
                    connection.close()
                pool._put_conn(connection)

    def _broken(self, error: Exception, sent: bool = True) -> Broken:
        """Return what went wrong; ``sent`` unless it did before anything was sent."""
        tls = tls_error(error)
        if tls is not None:
            return Broken(not refused_by_peer(tls), tls_text(tls), tls=True)
        exceptions = self._urllib3.exceptions
        if isinstance(error, exceptions.NewConnectionError):  # a subclass of the next
            return Broken(False, f"no connection ({_innermost(error)})")
        if isinstance(error, exceptions.ConnectTimeoutError):
            return Broken(False, "no connection within the timeout")
        if isinstance(error, (exceptions.ReadTimeoutError, TimeoutError)):
            return Broken(sent, f"no {'answer' if sent else 'connection'} within the timeout")
        if not sent:
            return Broken(False, f"no connection ({_innermost(error)})")
        return Broken(True, f"the connection broke ({_innermost(error)})")

    def _begin_process(self) -> None:
        self._pid = os.getpid()
        self._local = threading.local()
        self._lock = threading.Lock()
        self._sessions: weakref.WeakSet[requests.Session] = weakref.WeakSet()

    def _session(self) -> requests.Session:
        """Return this thread's session; a forked child never uses its parent's connections."""
        if self._closed:
            raise QueueClosed("This rqlite client was closed.")
        if self._pid != os.getpid():
            self._begin_process()
        session: requests.Session | None = getattr(self._local, "session", None)
        if session is None:
            session = self._local.session = self._requests.Session()
            # Neither proxies nor .netrc nor CA bundles of the environment: only what was given.
            session.trust_env = False
            session.verify = self._tls.ca or True
            if self._tls.cert is not None:
                key = self._tls.key
                session.cert = self._tls.cert if key is None else (self._tls.cert, key)
            with self._lock:
                self._sessions.add(session)
            self._local.pools = {}
        return session

    def _pool(self, origin: str) -> urllib3.HTTPConnectionPool:
        """Return this thread's connections to a node."""
        session = self._session()
        pool: urllib3.HTTPConnectionPool | None = self._local.pools.get(origin)
        if pool is None:
            adapter = cast("requests.adapters.HTTPAdapter", session.get_adapter(origin))
            request = self._requests.Request("POST", origin).prepare()
            pool = adapter.get_connection_with_tls_context(
                request, session.verify, None, session.cert
            )
            pool.ConnectionCls = type("Connection", (_Posting, pool.ConnectionCls), {})
            self._local.pools[origin] = pool
        return pool


def _innermost(error: BaseException) -> str:
    while True:
        cause = error.__cause__ or error.__context__
        if cause is None:
            return str(error) or type(error).__name__
        error = cause
