"""What an answer of rqlite means: applied, not applied or unknown, and what to do next.

rqlite reports most failures inside HTTP 200, so an answer is read in one fixed order: status,
JSON, the error of the whole request, the number of results, the error of each result.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from django_localqueue.exceptions import LocalQueueError, PayloadTooLarge, StoreFull
from django_localqueue.transports import errors, statements
from django_localqueue.transports.statements import Statement

Outcome = Literal["applied", "not applied", "unknown"]
Next = Literal["retry", "other node", "stop"]
Endpoint = Literal["execute", "request", "query"]
Level = Literal["none", "weak", "linearizable", "strong"]

VERSION_HEADER = "x-rqlite-version"
# Fixed in 9.4.2: before, a failing statement with RETURNING did not roll back its transaction.
_RETURNING_ROLLS_BACK = (9, 4, 2)
_FORCED_RESEND = 10
_MAX_TEXT = 300
_RIGHT_PORT = "give the address of its HTTP API, as http://host:4001"
#: Errors of SQLite that a person can mend, and how.
_MENDS = {
    "readonly database": "the node can't write its database; look at its disk and its rights",
    "disk is full": "make room on the node's disk",
    "too big": "a value is larger than the node takes; send less",
}

# Said before anything is written to the Raft log, whoever says it.
_NEVER_APPLIED = ("leader not found", "store not open", "store not ready")
# Said by the leader itself, too; a version 10 node that forwarded has sent the write twice.
_NOT_APPLIED_BY_LEADER = (
    "not leader",
    "leadership transfer in progress",
    "timed out enqueuing operation",
    "stale read",
)
_PERMISSIONS = {
    "execute": '"execute"',
    "query": '"query"',
    "request": '"execute" and "query"',
}


@dataclass(frozen=True, slots=True)
class Call:
    """One request as the caller means it, wherever it will be sent.

    ``repeatable`` says that applying it twice is the same as once; then an unknown outcome is
    settled by sending it again. Reads always are. A failed constraint whose text holds
    ``guard`` says that an earlier copy may have been applied.
    """

    endpoint: Endpoint
    statements: Sequence[Statement]
    body: bytes = field(repr=False)
    repeatable: bool
    level: Level | None = None
    guard: str = ""

    @property
    def reads(self) -> bool:
        """Whether nothing can be changed by it."""
        return self.endpoint == "query"


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer; the names of ``headers`` are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Broken:
    """No whole answer came. ``sent`` is False only if the request surely never left."""

    sent: bool
    text: str
    tls: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one statement; what rqlite left out is 0 or empty."""

    rows_affected: int = 0
    last_insert_id: int = 0
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[Any, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Done:
    """The request was applied, or the rows were read."""

    results: tuple[Result, ...]


@dataclass(frozen=True, slots=True)
class Redirected:
    """The node does not lead and names the one that does."""

    location: str


@dataclass(frozen=True, slots=True)
class Failed:
    """The request failed: with which outcome, what to do next, and what to raise in the end."""

    outcome: Outcome
    then: Next
    text: str
    error: type[LocalQueueError] = errors.ClusterUnavailable


Verdict = Done | Redirected | Failed


def version_of(answer: Answer) -> tuple[int, ...]:
    """Return the version of the node as numbers; empty if it told none."""
    numbers: list[int] = []
    for part in answer.headers.get(VERSION_HEADER, "").lstrip("v").split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)


def read(call: Call, reply: Answer | Broken, forwarded: bool = False) -> Verdict:
    """Return what ``reply`` means for ``call``.

    ``forwarded`` says that the node was allowed to pass the request on to the leader.
    """
    if isinstance(reply, Broken):
        return _read_broken(reply)
    if reply.status in (301, 302, 303, 307, 308):
        return _read_redirect(reply, forwarded)
    if reply.status != 200:
        return _read_status(call, reply)
    try:
        answer = json.loads(reply.body)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict) or not isinstance(answer.get("results"), list):
        if VERSION_HEADER not in reply.headers:
            text = f"the answer is not rqlite's ({_quoted(reply.body)}); {_RIGHT_PORT}"
            return Failed("unknown", "other node", text, errors.NotRqlite)
        return Failed("unknown", "retry", "the answer was cut short or is not JSON")
    if answer.get("error"):
        return _read_error(str(answer["error"]), forwarded, version_of(reply))
    return _read_results(call, answer["results"], version_of(reply))


def _read_broken(reply: Broken) -> Failed:
    if reply.tls:
        outcome: Outcome = "unknown" if reply.sent else "not applied"
        return Failed(outcome, "other node", reply.text, errors.TlsFailed)
    return Failed("unknown" if reply.sent else "not applied", "retry", reply.text)


def _read_redirect(reply: Answer, forwarded: bool) -> Verdict:
    location = reply.headers.get("location", "")
    if forwarded or not location or VERSION_HEADER not in reply.headers:
        where = address_of(location)
        text = f"not rqlite: a redirect that was not asked for, to {where!r}; {_RIGHT_PORT}"
        return Failed("not applied", "other node", text, errors.NotRqlite)
    return Redirected(location)


def address_of(location: str) -> str:
    """Return the scheme, host and port of a URL, without credentials, to be shown."""
    scheme, separator, rest = location.partition("://")
    return scheme + separator + rest.partition("/")[0].rpartition("@")[2]


def _read_status(call: Call, reply: Answer) -> Failed:
    status, text = reply.status, _quoted(reply.body)
    said = f"HTTP {status} {text}".strip()
    if status in (401, 403):
        needs = _PERMISSIONS[call.endpoint]
        text = f"HTTP {status}: the user, the password or the permission {needs} is refused"
        return Failed("not applied", "stop", text, errors.AccessRefused)
    if status == 413:
        text = f"{said}: the node, or a proxy before it, limits requests; raise that, or send less"
        return Failed("not applied", "stop", text, PayloadTooLarge)
    if status >= 500:
        if any(known in text for known in _NEVER_APPLIED):
            return Failed("not applied", "retry", text)
        if "unsupported value" in text and not call.reads:
            return Failed("applied", "stop", text, errors.AppliedUnread)
        if "unsupported value" in text:
            return Failed("not applied", "stop", text, errors.RequestRefused)
        if text.startswith("SQL rewrite"):
            return Failed("not applied", "stop", text, errors.RequestRefused)
        return Failed("unknown", "retry", said)
    if VERSION_HEADER not in reply.headers:
        outcome: Outcome = "not applied" if status >= 400 else "unknown"
        text = f"not rqlite: {said}; {_RIGHT_PORT}"
        return Failed(outcome, "other node", text, errors.NotRqlite)
    if status >= 400:
        return Failed("not applied", "stop", said, errors.RequestRefused)
    return Failed("unknown", "retry", said)


def _read_error(text: str, forwarded: bool, version: tuple[int, ...]) -> Failed:
    """Judge an error of the whole request, which rqlite sends with status 200."""
    # Since version 10 a follower sends a forwarded command a second time after any error, so
    # that what it reports in the end may be the failure of the second copy only.
    resent = forwarded and (not version or version[0] >= _FORCED_RESEND)
    if resent:
        return Failed("unknown", "retry", text)
    if "disallowed pragma" in text:
        return Failed("not applied", "stop", text, errors.RequestRefused)
    if any(known in text for known in (*_NEVER_APPLIED, *_NOT_APPLIED_BY_LEADER)):
        return Failed("not applied", "retry", text)
    if forwarded and "pool get" in text and "dial" in text:
        return Failed("not applied", "retry", text)
    return Failed("unknown", "retry", text)


def _read_results(call: Call, slots: list[Any], version: tuple[int, ...]) -> Verdict:
    if not all(isinstance(slot, dict) for slot in slots):
        return Failed("unknown", "retry", "the answer holds something other than results")
    for index, slot in enumerate(slots):
        if slot.get("error"):
            return _read_slot_error(call, slots, index, version)
    if len(slots) != len(call.statements):
        text = f"{len(slots)} results for {len(call.statements)} statements"
        return Failed("unknown", "retry", text)
    for slot, (sql, *_) in zip(slots, call.statements, strict=True):
        if not call.reads and statements.returns_rows(sql) and "columns" not in slot:
            text = "rqlite did not understand a RETURNING clause and sent no rows"
            return Failed("applied", "stop", text, errors.AppliedUnread)
    return Done(tuple(_result(slot) for slot in slots))


def _result(slot: dict[str, Any]) -> Result:
    return Result(
        slot.get("rows_affected") or 0,
        slot.get("last_insert_id") or 0,
        tuple(slot.get("columns") or ()),
        tuple(tuple(row) for row in slot.get("values") or ()),
    )


def _read_slot_error(
    call: Call, slots: list[dict[str, Any]], index: int, version: tuple[int, ...]
) -> Failed:
    text = str(slots[index]["error"])
    error = _statement_error(text)
    if call.guard and error is errors.ConstraintFailed and call.guard in text:
        # Before 9.4.2 what stands beside it may have been applied, if it has a RETURNING clause.
        return Failed("not applied", "stop", text, errors.GuardFailed)
    if not call.reads and not _rolled_back(call, slots, index, version, error):
        return Failed("unknown", "stop", text, errors.PartlyApplied)
    mend = next((mend for said, mend in _MENDS.items() if said in text.lower()), None)
    return Failed("not applied", "stop", f"{text}; {mend}" if mend else text, error)


def _rolled_back(
    call: Call,
    slots: list[dict[str, Any]],
    index: int,
    version: tuple[int, ...],
    error: type[LocalQueueError],
) -> bool:
    """Tell whether nothing of the failed request was applied.

    A transaction that stopped at the error was rolled back and its list of results ends there.
    Not so on ``/db/request`` when a statement could not even be prepared, nor before 9.4.2
    when the statement had a RETURNING clause: the others were then applied.
    """
    if len(call.statements) == 1:
        return True
    if index < len(slots) - 1:
        return False
    if index < len(call.statements) - 1:
        return True
    if call.endpoint == "request":
        return issubclass(error, errors.ConstraintFailed)
    sql = call.statements[index][0]
    return not statements.returns_rows(sql) or (
        len(version) >= 3 and version >= _RETURNING_ROLLS_BACK
    )


def _statement_error(text: str) -> type[LocalQueueError]:
    lowered = text.lower()
    if "constraint failed" in lowered:
        return errors.ConstraintFailed
    if "no such table" in lowered or "no such column" in lowered or "has no column" in lowered:
        return errors.TableMissing
    if "too big" in lowered:
        return PayloadTooLarge
    if "disk is full" in lowered:
        return StoreFull
    return errors.StatementFailed


def _quoted(body: bytes) -> str:
    words = body[: 4 * _MAX_TEXT].decode(errors="replace").split()
    return " ".join(words)[:_MAX_TEXT]
