"""The audit sees each fault that it is there for, in ledgers made up for it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.chaos.audit import Audit
from tests.chaos.ledger import LOST, OK, REFUSED, UNKNOWN, WRONG, Call, History
from tests.chaos.stores import LEASE_SECONDS, MAX_RETRIES

Record = dict[str, Any]


class Story:
    """What happened, told call by call; each call takes a tenth of a second."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.notes: list[dict[str, Any]] = []

    def put(self, key: str, at: float, outcome: str = OK, group: str | None = None) -> Story:
        return self._call("producer", "put", at, outcome, {"messages": [[key, group, None]]})

    def put_many(self, keys: list[str], at: float) -> Story:
        return self._call("producer", "put", at, OK, {"messages": [[k, None, None] for k in keys]})

    def take(
        self, key: str, at: float, receipt: str, who: str = "worker0", group: str | None = None,
        ends: float | None = None,
    ) -> Story:  # fmt: skip
        ends = at + LEASE_SECONDS if ends is None else ends
        held = {"key": key, "group": group, "receipt": receipt, "ends": ends, "attempt": 1}
        return self._call(who, "take", at, OK, {"held": [held]})

    def settle(
        self, receipt: str, at: float, verb: str = "ack", outcome: str = OK, who: str = "worker0",
        reason: str = "",
    ) -> Story:  # fmt: skip
        held = next(
            held
            for call in self.calls
            for held in call.facts.get("held", ())
            if held["receipt"] == receipt
        )
        return self._call(who, "settle", at, outcome, held | {"verb": verb, "reason": reason})

    def act(
        self, verb: str, at: float, key: str = "", outcome: str = OK, done: bool = True
    ) -> Story:
        return self._call("operator", verb, at, outcome, {"key": key, "id": key, "done": done})

    def extend(self, receipt: str, at: float) -> Story:
        return self._call("worker0", "extend", at, OK, {"receipt": receipt})

    def _call(self, who: str, verb: str, at: float, outcome: str, facts: Any) -> Story:
        errors = {
            REFUSED: "ClusterUnavailable: no",
            UNKNOWN: "OutcomeUnknown: no",
            WRONG: "KeyError",
        }
        call = Call(
            who, len(self.calls), verb, at, at + 0.1, outcome, errors.get(outcome, ""), facts
        )
        self.calls.append(call)
        return self

    def problems(
        self, *records: Record, store: str = "queue", stats: dict[str, int] | None = None
    ) -> list[str]:
        if stats is None:
            stats = {"groups": 0}
            if store == "queue":
                stats = {"acked": sum(record["state"] == "acked" for record in records)}
        audit = Audit(store, History(self.calls, self.notes), list(records), stats)
        return [problem.split("\n")[0] for problem in audit.problems]


def record(key: str, state: str = "acked", **facts: Any) -> Record:
    given = {"id": "1", "attempts": 1, "reason": None, "finished": 5.0}
    return {"key": key, "state": state} | given | facts


def done(key: str = "a") -> Story:
    return Story().put(key, 1).take(key, 2, "r").settle("r", 3)


def test_a_run_without_fault_is_clean() -> None:
    assert done().problems(record("a")) == []


def test_a_run_of_the_transport_without_fault_is_clean() -> None:
    assert done().problems(store="transport") == []


def test_a_lost_put_is_seen() -> None:
    assert Story().put("a", 1).problems() == ["a was put and is not there"]


def test_a_message_lost_by_the_transport_is_seen() -> None:
    story = Story().put("a", 1).take("a", 2, "r").settle("r", 3, "nack")
    assert story.problems(store="transport") == ["a was put, never acked, and is gone"]


def test_a_put_stored_twice_is_seen() -> None:
    twice = [record("a", id="1"), record("a", id="2")]
    assert "is stored 2 times" in done().problems(*twice)[0]


def test_an_unknown_put_may_be_there_or_not() -> None:
    assert Story().put("a", 1, UNKNOWN).problems() == []
    story = Story().put("a", 1, UNKNOWN).take("a", 2, "r").settle("r", 3)
    assert story.problems(record("a")) == []


def test_a_refused_put_that_is_there_is_seen() -> None:
    story = Story().put("a", 1, REFUSED).take("a", 2, "r").settle("r", 3)
    assert "a was refused and is there" in story.problems(record("a"))[0]


def test_a_put_refused_first_and_stored_again_is_stored() -> None:
    story = Story().put("a", 0, REFUSED).put("a", 1).take("a", 2, "r").settle("r", 3)
    assert story.problems(record("a")) == []


def test_a_message_that_nobody_put_is_seen() -> None:
    assert Story().problems(record("a"), stats={"acked": 1})[0] == "a was never put"


def test_a_batch_stored_in_part_is_seen() -> None:
    story = Story().put_many(["a", "b"], 1).take("a", 2, "r").settle("r", 3)
    assert "Part of a batch is stored" in story.problems(record("a"))


def test_a_shared_receipt_is_seen() -> None:
    story = done().put("b", 1).take("b", 2, "r", "worker1").settle("r", 3, who="worker1")
    assert "A receipt is shared" in story.problems(record("a"), record("b"))


def test_two_live_claims_of_a_job_are_seen() -> None:
    story = Story().put("a", 1).take("a", 2, "r").take("a", 3, "s", "worker1")
    story.settle("s", 4, who="worker1").settle("r", 6, outcome=LOST, reason="expired")
    assert story.problems(record("a")) == ["Two live claims of the key a at one time"]


def test_a_claim_after_a_lease_ran_out_is_right() -> None:
    story = Story().put("a", 1).take("a", 2, "r").take("a", 5.2, "s", "worker1")
    story.settle("s", 6, who="worker1").settle("r", 7, outcome=LOST, reason="expired")
    assert story.problems(record("a")) == []


def test_a_claim_after_the_death_of_a_worker_is_right() -> None:
    story = Story().put("a", 1).take("a", 2, "r").take("a", 4, "s", "worker1", ends=7.0)
    story.settle("s", 5, who="worker1")
    story.notes.append({"text": "killed", "who": "worker0", "at": 2.5})
    assert story.problems(record("a")) == []


def test_two_live_claims_of_a_group_are_seen() -> None:
    story = Story().put("a", 1, group="g").put("b", 1, group="g")
    story.take("a", 2, "r", group="g").take("b", 3, "s", "worker1", group="g")
    story.settle("r", 4.5).settle("s", 4.5, who="worker1")
    assert story.problems(record("a"), record("b")) == [
        "Two live claims of the group g at one time"
    ]


def test_a_group_out_of_order_is_seen() -> None:
    story = Story().put("a", 1, group="g").put("b", 2, group="g")
    story.take("b", 3, "s", group="g").settle("s", 3.5)
    story.take("a", 4, "r", group="g").settle("r", 4.5)
    assert story.problems(record("a"), record("b")) == ["In g, b was delivered before a was done"]


@pytest.mark.parametrize(("at", "wrong"), [(6.0, False), (4.0, True)])
def test_the_group_of_a_job_that_was_used_up_and_purged_goes_on_after_its_last_lease(
    at: float, wrong: bool
) -> None:
    story = Story().put("a", 1, group="g").put("b", 1.5, group="g")
    story.take("a", 2, "r", group="g").act("purge", 8, "a")
    story.take("b", at, "s", "worker1", group="g").settle("s", at + 0.5, who="worker1")
    found = story.problems(record("b"))
    assert ("In g, b was delivered before a was done" in found) == wrong


def test_a_job_ended_twice_is_seen() -> None:
    story = done().take("a", 3, "s", "worker1").settle("s", 4, who="worker1")
    assert "a was ended 2 times" in story.problems(record("a"))


def test_a_delivery_after_the_end_is_seen() -> None:
    story = done().take("a", 5, "s", "worker1")
    assert "a was delivered after its end" in story.problems(record("a"))


def test_a_delivery_of_the_transport_after_the_ack_is_seen() -> None:
    story = done().take("a", 5, "s", "worker1")
    assert "a was delivered after its end" in story.problems(store="transport")


def test_a_message_that_the_transport_keeps_after_its_ack_is_seen() -> None:
    problems = done().problems(record("a", "ready"), store="transport")
    assert "a was acked and is still there" in problems


def test_a_state_that_nobody_caused_is_seen() -> None:
    story = Story().put("a", 1).take("a", 2, "r").settle("r", 3, "nack")
    assert "a is acked, and nobody did that" in story.problems(record("a"))[0]


def test_an_ack_that_did_not_last_is_seen() -> None:
    problems = done().problems(record("a", "failed", reason="exhausted"), stats={"failed": 1})
    assert "a should be acked" in problems[0]


def test_a_receipt_settled_by_two_verbs_is_seen() -> None:
    story = done().settle("r", 4, "nack")
    assert "A receipt was settled by two verbs" in story.problems(record("a"))


def test_a_lease_lost_before_its_end_is_seen() -> None:
    story = Story().put("a", 1).take("a", 2, "r")
    story.settle("r", 3, outcome=LOST, reason="expired").settle("r", 3.2, outcome=UNKNOWN)
    assert "A lease was lost before its end" in story.problems(record("a"))


def test_a_lease_that_holds_after_its_end_is_seen() -> None:
    story = Story().put("a", 1).take("a", 2, "r").settle("r", 8)
    assert "A lease held after its end" in story.problems(record("a"))


def test_a_verb_sent_again_may_find_that_its_job_was_claimed_twice_meanwhile() -> None:
    story = Story().put("a", 1).take("a", 2, "r").settle("r", 2.2, "nack")
    story.settle("r", 2.4, "nack", outcome=LOST, reason="unknown")
    story.take("a", 4, "s", "worker1").settle("s", 4.2, who="worker1")
    assert story.problems(record("a")) == []


def test_a_lease_may_last_from_the_end_of_the_call_that_extended_it() -> None:
    story = Story().put("a", 1).take("a", 2, "r").extend("r", 3).settle("r", 6)
    assert story.problems(record("a")) == []
    late = Story().put("a", 1).take("a", 2, "r").extend("r", 3).settle("r", 7)
    assert "A lease held after its end" in late.problems(record("a"))


def test_a_lease_told_to_end_at_a_wrong_time_is_seen() -> None:
    story = Story().put("a", 1).take("a", 2, "r", ends=9.0).settle("r", 3)
    assert "A lease was told to end at 9.000" in story.problems(record("a"))[0]


def test_a_verb_that_forgets_its_success_is_seen() -> None:
    story = done().settle("r", 4, outcome=LOST, reason="settled")
    assert story.problems(record("a")) == ["A verb that held was told to be lost when sent again"]


def test_too_many_deliveries_are_seen() -> None:
    story = Story().put("a", 1)
    for turn in range(MAX_RETRIES + 2):
        story.take("a", 2 + turn, f"r{turn}").settle(f"r{turn}", 2.5 + turn, "nack")
    failed = record("a", "failed", reason="exhausted", attempts=4)
    assert story.problems(failed, stats={"failed": 1}) == ["a was delivered 5 times"]


def test_a_released_delivery_does_not_count() -> None:
    story = Story().put("a", 1).take("a", 1.2, "q").settle("q", 1.5, "release")
    for turn in range(MAX_RETRIES + 1):
        story.take("a", 2 + turn, f"r{turn}").settle(f"r{turn}", 2.5 + turn, "nack")
    failed = record("a", "failed", reason="exhausted", attempts=4)
    assert story.problems(failed, stats={"failed": 1}) == []


def test_stats_that_disagree_are_seen() -> None:
    assert done().problems(record("a"), stats={"acked": 2}) == [
        "stats tells 2 acked, and there are 1"
    ]


def test_a_group_left_without_messages_is_seen() -> None:
    problems = done().problems(store="transport", stats={"groups": 1})
    assert problems == ["1 groups are left without a message"]


@pytest.mark.parametrize(
    ("outcome", "error", "problem"),
    [
        (WRONG, "KeyError: 1", "An exception that tells no outcome"),
        (REFUSED, "StatementFailed: no", "A good request was refused"),
        (UNKNOWN, "PartlyApplied: no", "An outcome is unknown for a reason that no fault explains"),
    ],
)
def test_an_error_that_no_fault_explains_is_seen(outcome: str, error: str, problem: str) -> None:
    story = Story().put("a", 1, outcome)
    story.calls[0].error = error
    assert problem in story.problems()


def test_a_call_that_does_not_end_in_time_is_seen() -> None:
    story = done()
    story.calls[0].begin -= 60
    assert "A call took 60.1 seconds" in story.problems(record("a"))


def dead() -> Story:
    return Story().put("a", 1).take("a", 2, "r").settle("r", 3, "fail")


def test_a_dead_letter_that_was_retried_runs_again() -> None:
    story = dead().act("retry", 4, "a").take("a", 5, "s").settle("s", 6)
    assert story.problems(record("a")) == []


def test_a_dead_letter_may_be_retried_before_its_worker_was_told_of_its_end() -> None:
    story = dead().act("retry", 2.95, "a").take("a", 5, "s").settle("s", 6)
    assert story.problems(record("a")) == []


@pytest.mark.parametrize(("outcome", "done"), [(REFUSED, True), (OK, False)])
def test_a_retry_that_did_nothing_explains_no_delivery(outcome: str, done: bool) -> None:
    story = dead().act("retry", 4, "a", outcome, done).take("a", 5, "s").settle("s", 6)
    assert "a was delivered after its end" in story.problems(record("a"))


def test_a_retry_gives_as_many_deliveries_again_and_no_more() -> None:
    story = dead().act("retry", 3.5, "a")
    for turn in range(2 * MAX_RETRIES + 2):
        story.take("a", 4 + turn, f"r{turn}").settle(f"r{turn}", 4.5 + turn, "nack")
    failed = record("a", "failed", reason="exhausted", attempts=4)
    assert story.problems(failed, stats={"failed": 1}) == ["a was delivered 9 times"]


def test_a_cancelled_job_is_not_delivered_again() -> None:
    story = Story().put("a", 1).act("cancel", 2, "a")
    cancelled = record("a", "failed", reason="cancelled")
    assert story.problems(cancelled, stats={"failed": 1}) == []
    story.take("a", 3, "r")
    problems = story.problems(cancelled, stats={"failed": 1})
    assert "a was delivered after a cancel" in problems


def test_a_cancelled_job_lets_its_group_go_on() -> None:
    story = Story().put("a", 1, group="g").put("b", 2, group="g").act("cancel", 3, "a")
    story.take("b", 4, "r", group="g").settle("r", 5)
    cancelled = record("a", "failed", reason="cancelled")
    assert story.problems(cancelled, record("b"), stats={"acked": 1, "failed": 1}) == []


def test_a_cancelled_job_that_nobody_cancelled_is_seen() -> None:
    problems = (
        Story().put("a", 1).problems(record("a", "failed", reason="cancelled"), stats={"failed": 1})
    )
    assert "a is cancelled, and nobody did that" in problems[0]


def test_a_purged_job_is_gone() -> None:
    assert done().act("purge", 4, "a").problems() == []
    assert done().act("purge", 4, "a").problems(record("a")) == ["a was purged and is still there"]


def test_a_claim_while_the_queue_is_paused_is_seen() -> None:
    story = Story().put("a", 1).act("pause", 2).take("a", 3, "r").settle("r", 4).act("resume", 5)
    assert story.problems(record("a")) == ["A paused queue delivered"]


def test_a_claim_before_and_after_a_pause_is_right() -> None:
    story = done().act("pause", 3.5).act("resume", 4)
    story.put("b", 1).take("b", 5, "s").settle("s", 6)
    assert story.problems(record("a"), record("b")) == []
