"""Judges a run by the ledgers of its clients and by what is stored at its end."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.ledger import LOST, OK, REFUSED, UNKNOWN, WRONG, Call, History
from tests.chaos.repairs import Repairs
from tests.chaos.stores import ON_A_CLUSTER, Rules

INFINITY = float("inf")


@dataclass
class Delivery:
    """One claimed message, from when its worker knew until when it relied on it."""

    key: str
    group: str | None
    receipt: str
    who: str
    claim: Call
    ends: float
    until: float = INFINITY
    settles: list[Call] = field(default_factory=list)
    #: Its lease may last until then: an extension counts from a moment within its call.
    latest: float = 0.0

    @property
    def since(self) -> float:
        return self.claim.end

    def __str__(self) -> str:
        lines = [
            f"    {self.since:.3f} to {min(self.until, self.ends):.3f}, receipt {self.receipt}"
        ]
        return "\n".join(lines + [f"    {call}" for call in (self.claim, *self.settles)])


@dataclass
class Put:
    """One message as its producer knows it, over all calls that put it."""

    key: str
    group: str | None
    calls: list[Call]

    @property
    def outcome(self) -> str:
        outcomes = {call.outcome for call in self.calls}
        return OK if OK in outcomes else REFUSED if outcomes == {REFUSED} else UNKNOWN

    @property
    def stored_by(self) -> float:
        return min((call.end for call in self.calls if call.outcome == OK), default=INFINITY)


class Audit:
    """``problems`` lists what is wrong, each with the lines that show it.

    ``records`` and ``stats`` are as a ``Store`` of the kind ``store`` told them in the end.
    """

    def __init__(
        self,
        store: str,
        history: History,
        records: list[dict[str, Any]],
        stats: dict[str, int],
        rules: Rules = ON_A_CLUSTER,
    ) -> None:
        self._rules = rules
        self._margin, self._lease = rules.margin, rules.lease_seconds
        self._longest = rules.longest
        self.problems: list[str] = []
        self._history = history
        self._queue = store == "queue"
        self._records: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for record in records:
            self._records[record["key"]].append(record)
        self._stats = stats
        self._repairs = Repairs(history.calls)
        self._puts = self._read_puts()
        self._deliveries = self._read_deliveries()
        self._by_key: dict[str, list[Delivery]] = defaultdict(list)
        for delivery in self._deliveries:
            self._by_key[delivery.key].append(delivery)
        self._calls()
        self._each_put()
        self._receipts()
        self._exclusion()
        self._group_order()
        self._settling()
        self._repairing(records)
        if self._queue:
            self._deliveries_bounded()
            self._stats_agree()
        elif stats["groups"]:
            self._wrong(f"{stats['groups']} groups are left without a message")

    def summary(self) -> str:
        """Return what was done, in a line."""
        puts = list(self._puts.values())
        told = {name: sum(put.outcome == name for put in puts) for name in (OK, UNKNOWN, REFUSED)}
        verbs: dict[str, int] = defaultdict(int)
        for call in self._history.calls:
            verbs[call.outcome] += 1
        slowest = max((c.end - c.begin for c in self._history.calls if c.end < INFINITY), default=0)
        return (
            f"{len(self._history.calls)} calls ({_counts(verbs)}), the slowest {slowest:.1f} s;"
            f" messages put: {_counts(told)}; {len(self._deliveries)} deliveries;"
            f" stored in the end: {_counts(self._stats)}"
        )

    # ---- reading

    def _read_puts(self) -> dict[str, Put]:
        puts: dict[str, Put] = {}
        for call in self._history.calls:
            for key, group, _ in call.facts.get("messages", ()):
                puts.setdefault(key, Put(key, group, [])).calls.append(call)
        return puts

    def _read_deliveries(self) -> list[Delivery]:
        deaths = {
            note["who"]: note["at"] for note in self._history.notes if note["text"] == "killed"
        }
        found: dict[tuple[str, str], Delivery] = {}
        for call in self._history.calls:
            for asked, outcome in settles_of(call):
                if (call.who, asked["receipt"]) in found:
                    delivery = found[call.who, asked["receipt"]]
                    delivery.ends = max(delivery.ends, asked["ends"])
                    delivery.until = min(delivery.until, call.begin)
                    delivery.settles.append(_as_settle(call, asked, outcome))
            if call.verb == "extend" and call.outcome in (OK, UNKNOWN):
                delivery = found[call.who, call.facts["receipt"]]
                delivery.latest = max(delivery.latest, call.end + self._lease)
            for held in call.facts.get("held", ()):
                delivery = Delivery(
                    held["key"], held["group"], held["receipt"], call.who, call, held["ends"],
                    until=deaths.get(call.who, INFINITY),
                )  # fmt: skip
                if (call.who, delivery.receipt) in found:
                    self._wrong("A receipt was handed out twice", delivery)
                found[call.who, delivery.receipt] = delivery
        return list(found.values())

    def _wrong(self, what: str, *evidence: object) -> None:
        self.problems.append("\n".join([what, *(f"    {each}".rstrip() for each in evidence)]))

    # ---- judging

    def _calls(self) -> None:
        for call in self._history.calls:
            if call.outcome == WRONG:
                self._wrong("An exception that tells no outcome", call)
            if call.outcome == REFUSED and not call.error.startswith(self._rules.refusals):
                self._wrong("A good request was refused", call)
            if call.outcome == UNKNOWN and call.error and not call.error.startswith("OutcomeUnk"):
                self._wrong("An outcome is unknown for a reason that no fault explains", call)
            if self._longest < call.end - call.begin < INFINITY and not self._was_stopped(call):
                self._wrong(f"A call took {call.end - call.begin:.1f} seconds", call)

    def _was_stopped(self, call: Call) -> bool:
        return any(
            note["text"] == "stopped" and note["who"] == call.who
            and call.begin < note["at"] < call.end
            for note in self._history.notes
        )  # fmt: skip

    def _each_put(self) -> None:
        for key, put in self._puts.items():
            stored, taken = self._records.get(key, []), self._by_key.get(key, [])
            acked = [one for one in taken if _settled(one, "ack", OK, UNKNOWN)]
            seen = bool(stored or taken)
            if len(stored) > 1:
                self._wrong(f"{key} is stored {len(stored)} times: {stored}", *put.calls)
            if put.outcome == REFUSED and seen:
                self._wrong(f"{key} was refused and is there: {stored}", *put.calls, *taken)
            purged = bool(self._repairs.of("purge", key))
            if put.outcome == OK and self._queue and not stored and not purged:
                self._wrong(f"{key} was put and is not there", *put.calls, *taken)
            if put.outcome == OK and not self._queue and not stored and not acked:
                self._wrong(f"{key} was put, never acked, and is gone", *put.calls, *taken)
            if not self._queue and stored and any(_settled(one, "ack", OK) for one in taken):
                self._wrong(f"{key} was acked and is still there", *put.calls, *taken)
        for key in {*self._records, *self._by_key} - set(self._puts):
            self._wrong(f"{key} was never put", *self._by_key.get(key, ()))
        if self._queue:
            self._batches()

    def _batches(self) -> None:
        for call in self._history.calls:
            keys = [key for key, _, _ in call.facts.get("messages", ())]
            keys = [key for key in keys if not self._repairs.of("purge", key)]
            if 0 < sum(key in self._records for key in keys) < len(keys):
                self._wrong("Part of a batch is stored", call)

    def _receipts(self) -> None:
        seen: dict[str, Delivery] = {}
        for one in self._deliveries:
            if one.receipt in seen:
                self._wrong("A receipt is shared", seen[one.receipt], one)
            seen[one.receipt] = one

    def _exclusion(self) -> None:
        for name in ("key", "group"):
            lines: dict[str, list[Delivery]] = defaultdict(list)
            for one in self._deliveries:
                if getattr(one, name) is not None:
                    lines[getattr(one, name)].append(one)
            for what, line in lines.items():
                line.sort(key=lambda one: one.since)
                last: Delivery | None = None
                for one in line:
                    if last is not None and one.since + self._margin < min(_end(last), _end(one)):
                        self._wrong(f"Two live claims of the {name} {what} at one time", last, one)
                    if last is None or _end(one) > _end(last):
                        last = one

    def _group_order(self) -> None:
        lines: dict[str, list[Put]] = defaultdict(list)
        for put in self._puts.values():
            if put.group is not None and put.stored_by < INFINITY:
                lines[put.group].append(put)
        for group, line in lines.items():
            line.sort(key=lambda put: put.stored_by)
            finished = {put.key: self._finished(put) for put in line}
            for put in line:
                begin = min(call.begin for call in put.calls)
                # One that was retried is met by those that went on while it was dead.
                elders = [
                    elder
                    for elder in line
                    if elder.stored_by < begin and not self._repairs.of("retry", elder.key)
                ]
                for one in self._by_key.get(put.key, ()):
                    for elder in elders:
                        if finished[elder.key] > one.since + self._margin:
                            self._wrong(
                                f"In {group}, {put.key} was delivered before {elder.key} was done",
                                *elder.calls, *self._by_key.get(elder.key, ()), *put.calls, one,
                            )  # fmt: skip

    def _finished(self, put: Put) -> float:
        ends = [
            call.begin
            for one in self._by_key.get(put.key, ())
            for call in one.settles
            if call.facts["verb"] in ("ack", "fail") and call.outcome in (OK, UNKNOWN)
        ]
        ends += [call.begin for call in self._repairs.of("cancel", put.key)]
        record = next(iter(self._records.get(put.key, ())), None)
        if self._queue and record is not None and record["reason"] == "exhausted":
            return record["finished"] or INFINITY
        if not ends and self._repairs.of("purge", put.key):
            # Exhausted when its last lease ran out, and no record tells it any more.
            return max(map(_end, self._by_key.get(put.key, ())), default=INFINITY)
        return min(ends, default=INFINITY)

    def _settling(self) -> None:
        for key, taken in self._by_key.items():
            ended = [one for one in taken if _settled(one, "ack", OK) or _settled(one, "fail", OK)]
            retried = len(self._repairs.of("retry", key))
            if len(ended) > 1 + retried or sum(_settled(one, "ack", OK) for one in ended) > 1:
                self._wrong(f"{key} was ended {len(ended)} times", *ended)
            for one in ended:
                told = min(c.end for c in one.settles if c.outcome == OK)
                since = min(c.begin for c in one.settles)  # retried before that was told, too
                for other in taken:
                    again = self._repairs.retried_between(key, since, other.claim.end)
                    if other.claim.begin > told and not again:
                        self._wrong(f"{key} was delivered after its end", one, other)
            if self._queue:
                self._state_agrees(key, taken, ended)
            for one in taken:
                self._verdicts(one)

    def _state_agrees(self, key: str, taken: list[Delivery], ended: list[Delivery]) -> None:
        for record in self._records.get(key, ()):
            for one in ended:
                state = "acked" if _settled(one, "ack", OK) else "failed"
                if state == "failed" and self._repairs.of("retry", key):
                    continue
                if record["state"] != state:
                    self._wrong(f"{key} should be {state}: {record}", *taken)
            if record["state"] == "acked" and not any(
                _settled(one, "ack", OK, UNKNOWN) for one in taken
            ):
                self._wrong(f"{key} is acked, and nobody did that: {record}", *taken)
            if record["reason"] == "failed" and not any(
                _settled(one, "fail", OK, UNKNOWN) for one in taken
            ):
                self._wrong(f"{key} is failed, and nobody did that: {record}", *taken)

    def _verdicts(self, one: Delivery) -> None:
        verbs = {call.facts["verb"] for call in one.settles if call.outcome == OK}
        if len(verbs) > 1:
            self._wrong("A receipt was settled by two verbs", one)
        for index, call in enumerate(one.settles):
            reason = call.facts.get("reason")
            before = one.settles[:index]
            # The queue knows the two last receipts of a job: another was claimed twice meanwhile.
            if (
                call.outcome == LOST
                and reason != "unknown"
                and any(
                    earlier.outcome == OK and earlier.facts["verb"] == call.facts["verb"]
                    for earlier in before
                )
            ):
                self._wrong("A verb that held was told to be lost when sent again", one)
            elif call.outcome == LOST and not before and reason == "settled":
                self._wrong("A lease that nobody settled is told to be settled", one)
            elif (
                call.outcome == LOST
                and call.end < one.ends - self._margin
                and not any(earlier.outcome in (OK, UNKNOWN) for earlier in before)
            ):
                self._wrong("A lease was lost before its end", one)
            elif (
                self._queue
                and call.outcome == OK
                and call.begin > max(one.ends, one.latest) + self._margin
                and not before
            ):
                self._wrong("A lease held after its end", one)
        if self._queue:
            begin, end = (
                one.claim.begin + self._lease,
                one.claim.end + self._lease,
            )
            told = next(h["ends"] for h in one.claim.facts["held"] if h["receipt"] == one.receipt)
            if not begin - self._margin < told < end + self._margin:
                self._wrong(
                    f"A lease was told to end at {told:.3f},"
                    f" and should between {begin:.3f} and {end:.3f}",
                    one,
                )

    def _deliveries_bounded(self) -> None:
        for key, taken in self._by_key.items():
            released = sum(
                any(call.facts["verb"] == "release" for call in one.settles) for one in taken
            )
            lives = 1 + len(self._repairs.of("retry", key))
            if len(taken) > lives * (self._rules.max_retries + 1) + released:
                self._wrong(f"{key} was delivered {len(taken)} times", *taken)
            for record in self._records.get(key, ()):
                if record["attempts"] > self._rules.max_retries + 1:
                    self._wrong(f"{key} has too many attempts: {record}", *taken)

    def _repairing(self, records: list[dict[str, Any]]) -> None:
        claims = {key: [one.claim for one in self._by_key.get(key, ())] for key in self._puts}
        for what, evidence in self._repairs.problems(records, claims):
            self._wrong(what, *evidence)

    def _stats_agree(self) -> None:
        states: dict[str, int] = defaultdict(int)
        for records in self._records.values():
            for record in records:
                kind = record["state"]
                states["ready" if kind in ("delayed", "blocked") else kind] += 1
        for name, count in self._stats.items():
            if states[name] != count:
                self._wrong(f"stats tells {count} {name}, and there are {states[name]}")


def settles_of(call: Call) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield what a call settled, each with what it was told."""
    if call.verb == "settle":
        yield call.facts, {"outcome": call.outcome, "reason": call.facts.get("reason")}
    for index, asked in enumerate(call.facts.get("settles", ())):
        results = call.facts.get("results")
        yield asked, results[index] if results else {"outcome": call.outcome}


def _as_settle(call: Call, asked: dict[str, Any], told: dict[str, Any]) -> Call:
    facts = asked | {"reason": told.get("reason")}
    return Call(
        call.who, call.number, call.verb, call.begin, call.end, told["outcome"], call.error, facts
    )


def _settled(one: Delivery, verb: str, *outcomes: str) -> bool:
    return any(c.facts["verb"] == verb and c.outcome in outcomes for c in one.settles)


def _end(one: Delivery) -> float:
    return min(one.ends, one.until)


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items())
