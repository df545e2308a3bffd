"""What each process writes down of its calls, before and after, beside the queue.

Times are seconds of the machine's true clock, which all processes of a run share.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from django_localqueue.exceptions import LeaseExpired, LocalQueueError, NotStored, OutcomeUnknown

#: Taken before a client's own clock is set wrong.
true_time = time.time

OK, REFUSED, UNKNOWN, LOST, WRONG = "ok", "refused", "unknown", "lost", "wrong"


@dataclass
class Call:
    """One call of a verb. ``end`` is infinite where the process died in it.

    ``facts`` are what the caller asked for and what it was told, by the verb.
    """

    who: str
    number: int
    verb: str
    begin: float
    end: float = float("inf")
    outcome: str = UNKNOWN
    error: str = ""
    facts: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        end = "never" if self.end == float("inf") else f"{self.end:.3f}"
        told = f"{self.outcome} {self.error}".strip()
        return (
            f"{self.who}#{self.number} {self.verb} {self.begin:.3f} to {end}: {told}"
            f" {json.dumps(self.facts)}"
        )


class Ledger:
    """Appends lines to a file; a line survives the death of its process."""

    def __init__(self, folder: Path, who: str) -> None:
        self.who = who
        self._file = os.open(folder / f"{who}.ledger", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._number = 0

    def call(
        self, verb: str, facts: dict[str, Any], act: Callable[[], dict[str, Any] | None]
    ) -> Call:
        """Write down the call, do it, write down what came of it, and return both.

        ``act`` returns what it was told, if anything.
        """
        self._number += 1
        # A process that is started again under its name goes on in its file.
        call = Call(f"{self.who}/{os.getpid()}", self._number, verb, true_time(), facts=facts)
        self._write({"call": vars(call) | {"end": None}})
        try:
            told, outcome, error = act() or {}, OK, ""
        except Exception as raised:
            told, outcome, error = {}, outcome_of(raised), f"{type(raised).__name__}: {raised}"
            if isinstance(raised, LeaseExpired):
                told = {"reason": raised.reason}
        call.end, call.outcome, call.error = true_time(), outcome, error
        call.facts = facts | told
        self._write({"done": vars(call)})
        return call

    def note(self, text: str, **facts: Any) -> None:
        """Write down something that is no call."""
        self._write({"note": {"at": true_time(), "text": text, **facts}})

    def _write(self, line: dict[str, Any]) -> None:
        os.write(self._file, json.dumps(line).encode() + b"\n")


def outcome_of(error: Exception) -> str:
    """Return which of the outcomes an exception tells; ``WRONG`` where it tells none."""
    if isinstance(error, LeaseExpired):
        return LOST
    if isinstance(error, OutcomeUnknown):
        return UNKNOWN
    if isinstance(error, NotStored):
        return REFUSED
    return WRONG


def lost(error: LocalQueueError | None) -> dict[str, Any]:
    """Return what one result of an exchange tells, as a call of its own would."""
    if error is None:
        return {"outcome": OK}
    reason = error.reason if isinstance(error, LeaseExpired) else ""
    return {"outcome": outcome_of(error), "reason": reason, "error": str(error)}


@dataclass
class History:
    """All ledgers of a run: its calls by their begin, and its notes."""

    calls: list[Call]
    notes: list[dict[str, Any]]

    @classmethod
    def read(cls, folder: Path) -> History:
        """Read every ledger in ``folder``."""
        return cls.of(_lines(folder))

    @classmethod
    def of(cls, lines: Iterable[dict[str, Any]]) -> History:
        """Return the history that the lines of ledgers tell."""
        calls: dict[tuple[str, int], Call] = {}
        notes = []
        for line in lines:
            if "note" in line:
                notes.append(line["note"])
                continue
            told = line.get("done") or line["call"] | {"end": float("inf")}
            call = Call(**told)
            calls[call.who, call.number] = call
        return cls(sorted(calls.values(), key=lambda call: call.begin), notes)


def _lines(folder: Path) -> Iterator[dict[str, Any]]:
    for path in sorted(folder.glob("*.ledger")):
        for line in path.read_text().splitlines():
            yield json.loads(line)
