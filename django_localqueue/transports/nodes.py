"""The nodes of a cluster: their URLs, who leads, and what each was last seen to do."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import SplitResult, unquote, urlsplit

from django_localqueue.exceptions import InvalidInput

FORWARDING_SECONDS = 30.0
_PORTS = {"http": 80, "https": 443}


@dataclass(slots=True, eq=False)
class Node:
    """One configured node and what is known of it.

    ``url`` never holds credentials. ``version`` is as the node tells it. ``failures`` counts
    attempts in a row that failed, ``unknown`` those ever whose outcome could not be known;
    ``latency`` is of the last answer, in seconds.
    """

    url: str
    version: str = ""
    requests: int = 0
    failures: int = 0
    unknown: int = 0
    latency: float = 0.0
    last_error: str = ""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What is known of a node, as of now; see ``Node``."""

    url: str
    leader: bool
    version: str
    requests: int
    failures: int
    unknown: int
    latency: float
    last_error: str


@dataclass(frozen=True, slots=True)
class Login:
    """Who logs in; neither name nor password is ever shown."""

    user: str = field(repr=False)
    password: str = field(repr=False)

    def header(self) -> str:
        """Return the value of the Authorization header."""
        return "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode()


@dataclass(slots=True)
class Nodes:
    """The configured nodes and the one that leads, as far as is known.

    ``forward_until`` is the time until which requests are left to the nodes to forward, since
    the leader's own address is not among the configured ones.
    """

    all: tuple[Node, ...]
    leader: Node | None = None
    forward_until: float = float("-inf")

    def find(self, location: str) -> Node | None:
        """Return the configured node that a redirect names, if any. Nothing else is followed."""
        try:
            origin = _origin(urlsplit(location))
        except ValueError:
            return None
        return next((node for node in self.all if node.url == origin), None)

    def next(self, tried: set[Node]) -> Node | None:
        """Return the most promising node that is not in ``tried``: the leader, then the healthy."""
        if self.leader is not None and self.leader not in tried:
            return self.leader
        left = [node for node in self.all if node not in tried]
        return min(left, key=lambda node: node.failures, default=None)

    def facts(self) -> list[NodeFacts]:
        """Return what is known of each node, in the order of the settings."""
        return [
            NodeFacts(
                node.url,
                node is self.leader,
                node.version,
                node.requests,
                node.failures,
                node.unknown,
                node.latency,
                node.last_error,
            )
            for node in self.all
        ]


def parse_location(
    location: str | Sequence[str], auth: tuple[str, str] | None = None
) -> tuple[Nodes, Login | None]:
    """Return the nodes that ``location`` lists, and the credentials.

    ``location`` is one URL or a list of them, ``http://`` or ``https://`` with a host, mostly a
    port, and nothing else but ``user:password@``. ``auth`` goes before credentials in a URL.
    Raises ``InvalidInput``, which tells of every URL that is wrong, never showing a password.
    """
    urls = [location] if isinstance(location, str) else list(location)
    if not urls:
        raise InvalidInput("The list of rqlite nodes is empty.")
    origins: list[str] = []
    logins: list[Login] = []
    wrong: list[str] = []
    for position, url in enumerate(urls, start=1):
        try:
            parts = _parts(url, position)
        except InvalidInput as error:
            wrong.append(str(error))
            continue
        origin = _origin(parts)
        if origin not in origins:
            origins.append(origin)
        if parts.username is not None:
            logins.append(Login(unquote(parts.username), unquote(parts.password or "")))
    if wrong:
        raise InvalidInput(" ".join(wrong))
    if len({origin.partition(":")[0] for origin in origins}) > 1:
        raise InvalidInput("All nodes must be reached by http, or all by https.")
    login = _login(auth) if auth is not None else None
    if login is None and logins:
        login = logins[0]
        if any(other != login for other in logins):
            raise InvalidInput("The rqlite nodes must all have the same user and password.")
    return Nodes(tuple(Node(origin) for origin in origins)), login


def _login(auth: tuple[str, str]) -> Login:
    if not (
        isinstance(auth, (tuple, list))
        and len(auth) == 2
        and all(isinstance(part, str) for part in auth)
    ):
        raise InvalidInput("auth must be a pair of two strings: the user and the password.")
    if ":" in auth[0]:
        raise InvalidInput("A user's name cannot hold a colon.")
    return Login(*auth)


def _parts(url: str, position: int) -> SplitResult:
    name = f"URL {position} of the rqlite nodes"
    if not isinstance(url, str):
        raise InvalidInput(f"{name} must be a str, not {type(url).__name__}.")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        # The text of the error is left out: it may quote the whole URL.
        raise InvalidInput(f"{name} cannot be read; write http://host:4001.") from None
    if parts.scheme not in _PORTS:
        raise InvalidInput(f"{name} must begin with http:// or https://.")
    if port == 0 or not parts.hostname or any(character.isspace() for character in url):
        raise InvalidInput(f"{name} has no valid host and port; write http://host:4001.")
    if parts.path not in ("", "/") or parts.query or parts.fragment:
        raise InvalidInput(f"{name} must end after the port: {_origin(parts)}")
    return parts


def _origin(parts: SplitResult) -> str:
    host = parts.hostname or ""
    if ":" in host:
        host = f"[{host}]"
    return f"{parts.scheme}://{host}:{parts.port or _PORTS.get(parts.scheme, 0)}"
