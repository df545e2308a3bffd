"""A stand-in for an rqlite cluster: HTTP servers of our own on one real SQLite database.

It answers as rqlite 8, 9 or 10 does, the ways in which answers mislead included, and fails as
the test tells it to. "facts" is explained in ``versions``.
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import parse_qs, urlsplit

from tests.fakes.database import Database, Refused, Unencodable
from tests.fakes.server import Connection, Reply, Server, free_port
from tests.fakes.versions import V10, Version

Kind = Literal["drop", "stall", "error", "status", "truncate", "lose-forwarded"]


@dataclass(slots=True)
class Fault:
    """One thing to go wrong; see ``FakeCluster.fail_next``."""

    kind: Kind
    applied: bool
    times: int
    endpoint: str | None
    node: int | None
    text: str
    status: int
    headers: dict[str, str]
    seconds: float


@dataclass(frozen=True, slots=True)
class Seen:
    """A request that a node received."""

    node: int
    endpoint: str
    options: frozenset[str]
    statements: list[Any]
    authorization: str | None


@dataclass(slots=True)
class User:
    """facts 6: a user of the ``-auth`` file."""

    password: str
    permissions: set[str] = field(default_factory=lambda: {"all"})


class FakeCluster:
    """``nodes`` nodes, the first of which leads; use as a context manager.

    ``advertise`` replaces the URLs that redirects name. ``tls`` is an ``ssl.SSLContext``.
    """

    def __init__(
        self,
        version: Version = V10,
        nodes: int = 3,
        users: dict[str, User] | None = None,
        advertise: Sequence[str] | None = None,
        tls: Any = None,
    ) -> None:
        self.version = version
        self.users = users
        self.database = Database(version)
        self.leader: int | None = 0
        self.seen: list[Seen] = []
        self._faults: list[Fault] = []
        self._lock = threading.Lock()
        self._released = threading.Event()
        self.servers = [Server(free_port(), self._handler(index), tls) for index in range(nodes)]
        self.urls = [server.url for server in self.servers]
        self.advertised = list(advertise or self.urls)

    def __enter__(self) -> FakeCluster:
        for server in self.servers:
            server.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._released.set()
        for server in self.servers:
            server.stop()
        self.database.close()
        crashes = [crash for server in self.servers for crash in server.crashes]
        assert not crashes, crashes

    def fail_next(
        self,
        kind: Kind,
        *,
        applied: bool = False,
        times: int = 1,
        endpoint: str | None = None,
        node: int | None = None,
        text: str = "",
        status: int = 0,
        headers: dict[str, str] | None = None,
        seconds: float = 30.0,
    ) -> None:
        """Let the next ``times`` requests go wrong, after having applied them or not.

        ``drop`` closes the connection; ``stall`` holds it for ``seconds`` and then closes it;
        ``error`` is an error of the whole request within HTTP 200; ``status`` any answer, as
        of a proxy if ``headers`` are given; ``truncate`` cuts the JSON; ``lose-forwarded`` loses
        the answer between the leader and a forwarding follower (facts 0.3). Faults wait for a
        request that is carried out, or for any that reaches ``node``.
        """
        self._faults.append(
            Fault(kind, applied, times, endpoint, node, text, status, headers or {}, seconds)
        )

    def release(self) -> None:
        """End all stalls."""
        self._released.set()

    def stop(self, node: int) -> None:
        """Kill a node: its connections break, new ones are refused."""
        self.servers[node].stop()

    def start(self, node: int) -> None:
        """Start a killed node again on its port."""
        self.servers[node] = Server(
            self.servers[node].port, self._handler(node), self.servers[node].tls
        )
        self.servers[node].start()

    def applied(self, endpoint: str) -> list[Seen]:
        """Return the requests to ``/db/<endpoint>`` that nodes received."""
        return [seen for seen in self.seen if seen.endpoint == endpoint]

    def _handler(self, node: int) -> Any:
        return lambda connection: self._handle(node, connection)

    def _handle(self, node: int, connection: Connection) -> Reply | None:
        """Return the answer, None to close the connection without one."""
        parts = urlsplit(connection.path)
        options = {name: values[-1] for name, values in parse_qs(parts.query, True).items()}
        login = connection.header("authorization")
        if parts.path.startswith("/db/"):
            reply = self._db(node, parts.path[4:], options, connection, login)
        else:
            reply = self._other(node, parts.path, login)
        if reply is not None and "server" not in reply.headers:
            reply.headers.setdefault("X-RQLITE-VERSION", self.version.header)  # facts 1
            if self.users is not None and self.version.asks_for_login:  # facts 1, 401
                reply.headers.setdefault("WWW-Authenticate", 'Basic realm="rqlite"')
        return reply

    def _other(self, node: int, path: str, login: str | None) -> Reply:
        # facts 5 and 6: which permission each of them needs
        needs = {"/readyz": "ready", "/nodes": "status", "/leader": "leader-ops"}.get(path)
        if needs is None:
            return Reply(404)
        if not self._may(login, needs):
            return Reply(401)
        leader = self.leader
        if path == "/readyz":
            if leader is None:  # facts 0.9: 500 on /readyz from 8.40.0 to 10.2.7
                return Reply.text(500, "leader address: leader not found")
            lines = ["[+]node ok", "[+]leader ok", "[+]store ok"]
            lines += ["[+]db ok"] if self.version.readyz_reads else []
            return Reply(200, "\n".join(lines).encode())
        described = [self._describe(index) for index in range(len(self.servers))]
        if path == "/leader":
            if leader is None:
                return Reply.text(503, "leader not found")  # facts 5
            return Reply.json(described[leader])
        return Reply.json({"nodes": described})  # facts 5, with ver=2

    def _describe(self, index: int) -> dict[str, Any]:
        return {
            "id": f"n{index + 1}",
            "api_addr": self.advertised[index],
            "addr": f"127.0.0.1:{self.servers[index].port + 1}",
            "version": self.version.header,
            "voter": True,
            "reachable": self.servers[index].running,
            "leader": index == self.leader,
        }

    def _db(
        self,
        node: int,
        endpoint: str,
        options: dict[str, str],
        connection: Connection,
        login: str | None,
    ) -> Reply | None:
        if endpoint == "backup" and connection.method == "GET":
            if not self._may(login, "backup"):
                return Reply(401)
            return Reply(200, self.database.file())
        # facts 6: /db/request needs both permissions
        needs = {"execute": {"execute"}, "query": {"query"}, "request": {"execute", "query"}}
        if endpoint not in needs:
            return Reply(404)  # facts 1, 404 and 405: an empty body
        if not all(self._may(login, permission) for permission in needs[endpoint]):
            return Reply(401)  # facts 1, 401: an empty body
        if connection.method != "POST":
            return Reply(405)
        try:
            statements = json.loads(connection.body, parse_constant=_refuse)
        except ValueError:
            return Reply.text(400, "invalid JSON body")  # facts 1, 400
        if not isinstance(statements, list) or not statements:
            return Reply.text(400, "no statements" if statements == [] else "invalid request")
        with self._lock:
            self.seen.append(Seen(node, endpoint, frozenset(options), statements, login))
        fault = self._fault(endpoint, node, False)
        local = node == self.leader or (endpoint == "query" and options.get("level") == "none")
        if fault is None and not local:
            if "redirect" in options:
                return self._redirect(connection.path)
            if self.leader is None:
                return Reply.text(*self.version.no_leader)
            fault = self._fault(endpoint, None, True)
            return self._forward(endpoint, options, statements, fault)
        fault = fault or self._fault(endpoint, None, False)
        return self._carry_out(endpoint, options, statements, fault)

    def _redirect(self, path: str) -> Reply:
        if self.leader is None:
            return Reply.text(500, "leader not found")  # facts 0.9, with ?redirect in all versions
        # facts 1, 301: an empty body for POST, the leader's own address with path and query
        return Reply(301, headers={"Location": self.advertised[self.leader] + path})

    def _forward(
        self, endpoint: str, options: dict[str, str], statements: list[Any], fault: Fault | None
    ) -> Reply | None:
        assert self.leader is not None
        address = f"127.0.0.1:{self.servers[self.leader].port + 1}"
        lost = f"read tcp 127.0.0.1:40000->{address}: i/o timeout"
        refused = f"dial tcp {address}: connect: connection refused"
        prefix = f"node failed to process {endpoint.capitalize()} on remote node at {address}: "
        if not self.servers[self.leader].running:
            return _error((prefix if self.version.prefixes_forwarded else "") + refused)
        if fault is not None and fault.kind == "lose-forwarded":
            self._answer(endpoint, options, statements)
            if self.version.sends_twice:
                return self._answer(endpoint, options, statements)
            return _error((prefix if self.version.prefixes_forwarded else "") + lost)
        reply = self._carry_out(endpoint, options, statements, fault)
        if reply is not None:
            reply.headers["X-RQLITE-SERVED-BY"] = address
        return reply

    def _carry_out(
        self, endpoint: str, options: dict[str, str], statements: list[Any], fault: Fault | None
    ) -> Reply | None:
        if fault is None:
            reply = self._answer(endpoint, options, statements)
            if self.version.names_itself and self.leader is not None:
                reply.headers["X-RQLITE-SERVED-BY"] = self.urls[self.leader]
            return reply
        reply = self._answer(endpoint, options, statements) if fault.applied else Reply(200)
        if fault.kind == "error":
            return _error(fault.text)
        if fault.kind == "status":
            return Reply(fault.status, fault.text.encode(), dict(fault.headers))
        if fault.kind == "truncate":
            reply = reply if fault.applied else Reply.json({"results": [{}]})
            return Reply(200, reply.body[: len(reply.body) // 2])
        if fault.kind == "stall":
            self._released.wait(fault.seconds)
        return None

    def _answer(self, endpoint: str, options: dict[str, str], statements: list[Any]) -> Reply:
        flags = {name: name in options for name in ("associative", "blob_array", "noparse")}
        if endpoint == "execute" and not self.version.associative_writes:
            flags["associative"] = flags["blob_array"] = False
        try:
            if endpoint == "query":
                slots = self.database.query(statements, **flags)
            elif endpoint == "execute":
                slots = self.database.execute(statements, "transaction" in options, **flags)
            else:
                slots = self.database.request(statements, "transaction" in options, **flags)
        except Refused as error:
            return Reply.text(400, str(error))
        except Unencodable as error:
            return Reply.text(500, str(error))
        return Reply.json({"results": slots})

    def _may(self, login: str | None, permission: str) -> bool:
        if self.users is None:
            return True
        name, _, password = base64.b64decode((login or " ").split(" ")[1]).decode().partition(":")
        user = self.users.get(name)
        if user is None or user.password != password:
            user = self.users.get("*", User("", set()))
        return bool(user.permissions & {permission, "all"})

    def _fault(self, endpoint: str, node: int | None, forwarded: bool) -> Fault | None:
        with self._lock:
            for fault in self._faults:
                fits = forwarded or fault.kind != "lose-forwarded"
                if fits and fault.node == node and fault.endpoint in (None, endpoint):
                    fault.times -= 1
                    if fault.times == 0:
                        self._faults.remove(fault)
                    return fault
        return None


def _error(text: str) -> Reply:
    """facts 0.1: the failure of a whole request arrives as HTTP 200."""
    return Reply.json({"results": [], "error": text})


def _refuse(constant: str) -> None:
    raise ValueError(constant)  # facts 9: NaN and Infinity are no JSON to rqlite
