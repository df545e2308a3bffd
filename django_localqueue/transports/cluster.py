"""The conversation with a cluster, without I/O.

A conversation is a generator. It yields a ``Request`` to send, and is resumed with the
``Answer`` or with ``Broken``; or it yields a ``Pause``. It returns what the caller wanted, or
raises. The carriers for ``requests`` and ``httpx`` do nothing but carry it.
"""

from __future__ import annotations

import logging
import math
import random
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import NoReturn, TypeVar

from django_localqueue.exceptions import InvalidInput, OutcomeUnknown
from django_localqueue.transports import answers, errors, patience
from django_localqueue.transports.answers import (
    VERSION_HEADER,
    Answer,
    Broken,
    Call,
    Done,
    Endpoint,
    Failed,
    Level,
    Redirected,
    Result,
)
from django_localqueue.transports.nodes import FORWARDING_SECONDS, Login, Node, Nodes
from django_localqueue.transports.statements import Statement, encode

logger = logging.getLogger("django_localqueue.transports")

MAX_HOPS = 3
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0
# With less than this left of a deadline nothing more is sent: its answer would be too late.
LEAST_SECONDS = 0.1

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long to wait, in seconds: to connect, for an answer, for all attempts of a request."""

    connect: float = 2.0
    read: float = 10.0
    total: float = 30.0

    def __post_init__(self) -> None:
        for name in ("connect", "read", "total"):
            value = getattr(self, name)
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if not number or not 0 < value < math.inf:
                raise InvalidInput(f"The timeout {name!r} must be a number of seconds above 0.")


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP POST to one node. ``headers`` may hold credentials and are never shown.

    Timeouts are in seconds; ``budget`` bounds the whole attempt.
    """

    url: str
    body: bytes = field(repr=False)
    headers: dict[str, str] = field(repr=False)
    connect_timeout: float
    read_timeout: float
    budget: float


@dataclass(frozen=True, slots=True)
class Pause:
    """Nothing to send for ``seconds``."""

    seconds: float


Steps = Generator[Request | Pause, Answer | Broken | None, T]


class Cluster:
    """Several nodes as one database.

    ``monotonic`` gives seconds; ``jitter(low, high)`` a number between its arguments.
    """

    def __init__(
        self,
        nodes: Nodes,
        login: Login | None = None,
        timeouts: Timeouts | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        jitter: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self.nodes = nodes
        self.timeouts = timeouts or Timeouts()
        self._monotonic = monotonic
        self._jitter = jitter
        self.headers = {"content-type": "application/json"}
        if login is not None:
            self.headers["authorization"] = login.header()

    def execute(
        self,
        statements: Sequence[Statement],
        *,
        repeatable: bool,
        total: float | None = None,
        guard: str = "",
    ) -> Steps[tuple[Result, ...]]:
        """Apply ``statements`` in one transaction and return a result for each.

        ``repeatable`` promises that applying them twice is the same as once, so that they may
        be sent again when the outcome is unknown; see ``call`` for ``total`` and the errors.
        ``guard`` names a table of which a constraint fails where they were applied before:
        then ``GuardFailed`` is raised, whatever became of earlier copies. Where the guarded
        statement has a RETURNING clause, the others must do no harm without it.
        """
        return self.call(self._call("execute", statements, repeatable, guard=guard), total)

    def request(
        self, statements: Sequence[Statement], *, repeatable: bool, total: float | None = None
    ) -> Steps[tuple[Result, ...]]:
        """Apply writes and reads in one transaction: the reads see the writes. As ``execute``.

        A statement that cannot be prepared (a missing table) does not roll the others back.
        """
        return self.call(self._call("request", statements, repeatable), total)

    def query(
        self,
        statements: Sequence[Statement],
        *,
        level: Level = "strong",
        total: float | None = None,
    ) -> Steps[tuple[Result, ...]]:
        """Read, at a level of consistency, and return a result for each statement."""
        return self.call(self._call("query", statements, True, level), total)

    def _call(
        self,
        endpoint: Endpoint,
        statements: Sequence[Statement],
        repeatable: bool,
        level: Level | None = None,
        guard: str = "",
    ) -> Call:
        return Call(endpoint, statements, encode(statements), repeatable, level, guard)

    def call(self, call: Call, total: float | None = None) -> Steps[tuple[Result, ...]]:
        """Send ``call`` until its outcome is known or ``total`` seconds have passed.

        Raises a subclass of ``NotStored`` if it was surely not applied, of ``OutcomeUnknown`` if
        that cannot be known, ``AppliedUnread`` if it was applied but its result is lost.
        """
        total = self.timeouts.total if total is None else total
        if call.reads:
            total = patience.bounded(total)
        attempt = _Attempts(call, self._monotonic() + total)
        node = self._first(attempt)
        while True:
            left = attempt.deadline - self._monotonic()
            if left < LEAST_SECONDS and attempt.has_failed:
                attempt.give_up()
            left = max(left, LEAST_SECONDS)
            began = self._monotonic()
            forwarded = attempt.forwards
            reply = yield self._to(node, call, forwarded, left)
            assert reply is not None, "a carrier must answer a Request"
            verdict = answers.read(call, reply, forwarded)
            self._note(node, reply, verdict, began)
            if isinstance(verdict, Done):
                if not forwarded and call.level != "none":
                    self._lead(node)
                return verdict.results
            following = self._after(attempt, node, verdict)
            if following is None:
                left = attempt.deadline - self._monotonic()
                yield Pause(max(0.0, min(attempt.pause(self._jitter), left)))
                following = self._first(attempt)
            node = following

    def _first(self, attempt: _Attempts) -> Node:
        attempt.forwards = attempt.call.repeatable and self._monotonic() < self.nodes.forward_until
        node = self.nodes.next(set(attempt.refused))
        assert node is not None, "a call ends when all nodes are unusable"
        return node

    def _after(self, attempt: _Attempts, node: Node, verdict: Redirected | Failed) -> Node | None:
        """Return the node to send to next, None after a pause; raise if it is over."""
        if isinstance(verdict, Redirected):
            if self.nodes.leader is node:
                self.nodes.leader = None
            target = self.nodes.find(verdict.location)
            if target is not None:
                return attempt.follow(node, target)
            attempt.strange(node, verdict.location)
            if self.nodes.next(attempt.tried | set(attempt.refused)) is None:
                return self._forward(attempt, node)
        else:
            if self.nodes.leader is node:
                self.nodes.leader = None
            attempt.fail(node, verdict, len(self.nodes.all))
        return self.nodes.next(attempt.tried | set(attempt.refused))

    def _forward(self, attempt: _Attempts, node: Node) -> Node:
        """Let the nodes forward: none of the configured URLs is the leader's own address."""
        if not attempt.call.repeatable:
            # A forwarded write may be applied twice by a version 10 node.
            attempt.give_up()
        self.nodes.forward_until = self._monotonic() + FORWARDING_SECONDS
        attempt.forwards = True
        return node

    def _lead(self, node: Node) -> None:
        if self.nodes.leader is not node:
            logger.info("The leader of the rqlite cluster is %s.", node.url)
            self.nodes.leader = node

    def _to(self, node: Node, call: Call, forwarded: bool, left: float) -> Request:
        # One statement is a transaction by itself, which costs each node less.
        options = [] if call.reads or len(call.statements) == 1 else ["transaction"]
        if call.level is not None:
            options.append(f"level={call.level}")
        if not forwarded and call.level != "none":
            options.append("redirect")
        return Request(
            f"{node.url}/db/{call.endpoint}?{'&'.join(options)}",
            call.body,
            self.headers,
            min(self.timeouts.connect, left),
            min(self.timeouts.read, left),
            left,
        )

    def _note(
        self, node: Node, reply: Answer | Broken, verdict: answers.Verdict, began: float
    ) -> None:
        node.requests += 1
        if isinstance(reply, Answer):
            node.version = reply.headers.get(VERSION_HEADER, node.version)
            node.latency = self._monotonic() - began
        if isinstance(verdict, Failed) and verdict.then != "stop":
            node.failures += 1
            node.last_error = verdict.text
            logger.debug("%s: %s (%s)", node.url, verdict.text, verdict.outcome)
        else:
            node.failures = 0
        if isinstance(verdict, Failed) and verdict.outcome == "unknown":
            node.unknown += 1


#: That one node doesn't answer is no reason: a call ends so when none could take it.
NO_MAJORITY = (
    "No node took the request in time; a cluster works while more than half of its nodes run and"
    " reach each other"
)


class _Attempts:
    """What has been tried for one call."""

    def __init__(self, call: Call, deadline: float) -> None:
        self.call = call
        self.deadline = deadline
        self.forwards = False
        self.tried: set[Node] = set()
        self.refused: dict[Node, Failed] = {}
        self._hops = 0
        self._pause = FIRST_PAUSE
        self._last: tuple[Node, Failed] | None = None
        self._unknown = False
        self._is_strange = False  # whether the last failure is a leader that isn't listed

    @property
    def has_failed(self) -> bool:
        return self._last is not None

    def follow(self, node: Node, target: Node) -> Node | None:
        """Return where a redirect leads, None if a pause is due first."""
        if target in self.refused:
            self._raise(target, self.refused[target])
        self._hops += 1
        if self._last is None:
            text = f"no answer but a redirect to {target.url}"
            self._last = (node, Failed("not applied", "retry", text))
        if target in self.tried or self._hops > MAX_HOPS:
            return None
        return target

    def strange(self, node: Node, location: str) -> None:
        """Remember that ``node`` names a leader that is not among the configured nodes."""
        text = (
            f"the leader's address {answers.address_of(location)!r} is none of the configured"
            " nodes; list it, or set -http-adv-addr on the node"
        )
        self.tried.add(node)
        self._last = (node, Failed("not applied", "retry", text))
        self._is_strange = True

    def fail(self, node: Node, failed: Failed, nodes: int) -> None:
        """Remember a failure; raise if sending again is useless or not allowed."""
        self.tried.add(node)
        self._last = (node, failed)
        self._is_strange = False
        self._unknown = self._unknown or failed.outcome == "unknown"
        if failed.then == "other node":
            self.refused[node] = failed
        if (
            failed.then == "stop"
            or (failed.outcome == "unknown" and not self.call.repeatable)
            or len(self.refused) == nodes
        ):
            self._raise(node, failed)

    def pause(self, jitter: Callable[[float, float], float]) -> float:
        """Begin a new round over all nodes, and return the seconds to wait before it."""
        longest = self._pause
        self._pause = min(LONGEST_PAUSE, 2 * longest)
        self._hops = 0
        self.tried.clear()
        return jitter(longest / 2, longest)

    def give_up(self) -> NoReturn:
        """Raise what the last failure was: the deadline has passed."""
        assert self._last is not None, "a deadline passes after a failed attempt"
        node, failed = self._last
        if failed.error is errors.ClusterUnavailable and not self._is_strange:
            failed = replace(failed, text=f"{failed.text}. {NO_MAJORITY}")
        self._raise(node, failed)

    def _raise(self, node: Node, failed: Failed) -> NoReturn:
        message = f"{node.url}: {failed.text}"
        if self.call.reads or not self._unknown:
            raise failed.error(message)
        told = (OutcomeUnknown, errors.AppliedUnread, errors.GuardFailed)
        if issubclass(failed.error, told):
            raise failed.error(message)
        raise OutcomeUnknown(
            f"{message}. Whether the write was applied cannot be known; it may be sent again."
            if self.call.repeatable
            else f"{message}. Whether the write was applied cannot be known."
        )
