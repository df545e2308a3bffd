"""What the operator of a run did to jobs, and what that allows and forbids."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from tests.chaos.ledger import OK, UNKNOWN, Call


class Repairs:
    """The calls of the operator, by what they were done to."""

    def __init__(self, calls: list[Call]) -> None:
        self._by_key: dict[tuple[str, str], list[Call]] = defaultdict(list)
        self._pauses: list[Call] = []
        self._takes: list[Call] = []
        for call in calls:
            if call.verb in ("retry", "cancel", "purge"):
                # One that was told to have done nothing did nothing.
                if call.outcome == UNKNOWN or (call.outcome == OK and call.facts["done"]):
                    self._by_key[call.verb, call.facts["key"]].append(call)
            elif call.verb in ("pause", "resume"):
                self._pauses.append(call)
            elif call.facts.get("held"):
                self._takes.append(call)

    def of(self, verb: str, key: str) -> list[Call]:
        """Return the calls of a verb that did something to a job, or may have."""
        return self._by_key.get((verb, key), [])

    def retried_between(self, key: str, begin: float, end: float) -> bool:
        """Tell whether a job may have been retried in this time."""
        return any(call.begin < end and call.end > begin for call in self.of("retry", key))

    def problems(
        self, records: list[dict[str, Any]], claims: dict[str, list[Call]]
    ) -> Iterator[tuple[str, list[Call]]]:
        """Give what is wrong, and the calls that show it.

        ``records`` are stored in the end, ``claims`` those of each key that was put.
        """
        for calls in self._claims_in_a_pause():
            yield "A paused queue delivered", calls
        for record in records:
            if record["reason"] == "cancelled" and not self.of("cancel", record["key"]):
                yield f"{record['key']} is cancelled, and nobody did that: {record}", []
        stored = {record["key"] for record in records}
        for key, taken in claims.items():
            for verb in ("cancel", "purge"):
                for call in self.of(verb, key):
                    if call.outcome != OK:
                        continue
                    if verb == "purge" and key in stored:
                        yield f"{key} was purged and is still there", [call]
                    for claim in taken:
                        again = self.retried_between(key, call.begin, claim.end)
                        if claim.begin > call.end and not again:
                            yield f"{key} was delivered after a {verb}", [call, claim]

    def _claims_in_a_pause(self) -> Iterator[list[Call]]:
        last: Call | None = None
        for call in self._pauses:
            if last is not None and last.verb == "pause" and last.outcome == OK:
                for take in self._takes:
                    if last.end < take.begin and take.end < call.begin:
                        yield [last, take, call]
            last = call
