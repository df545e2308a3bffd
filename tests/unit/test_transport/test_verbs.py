"""What the seed's verbs do, over both carriers and every version."""

from __future__ import annotations

from typing import Any

import pytest

from django_localqueue.exceptions import InvalidInput, LeaseExpired


def age(store: Any, seconds: float) -> None:
    """Let ``seconds`` pass for all leases and parked messages."""
    store._execute([["UPDATE messages SET lock_expiry = lock_expiry - ?", seconds]])


def rows(store: Any, table: str) -> int:
    return int(store._query(f"SELECT count(*) AS n FROM {table}")[0]["n"])


def drain(store: Any) -> list[str]:
    """Claim and ack until nothing is claimable; return the events in order."""
    events = []
    while (lease := store.claim("drain", 60)) is not None:
        events.append(lease.event)
        store.ack(lease)
    return events


def test_claim_of_an_empty_queue_is_none(store: Any) -> None:
    assert store.claim("w", 30) is None


def test_a_lease_tells_the_message_and_a_token_of_its_worker(store: Any) -> None:
    store.publish("g", '{"a": 1}')
    lease = store.claim("worker-1", 30)
    assert (lease.seq, lease.group_id, lease.event) == (1, "g", '{"a": 1}')
    assert lease.token.startswith("worker-1:")


def test_a_leased_message_is_not_claimed_again(store: Any) -> None:
    store.publish("g", "1")
    store.claim("a", 30)
    assert store.claim("b", 30) is None


def test_messages_of_a_group_come_in_order_and_one_at_a_time(store: Any) -> None:
    for event in ("1", "2", "3"):
        store.publish("g", event)
    lease = store.claim("a", 30)
    assert lease.event == "1"
    assert store.claim("b", 30) is None
    store.ack(lease)
    assert drain(store) == ["2", "3"]


def test_groups_take_turns_and_one_never_served_comes_first(store: Any) -> None:
    for event in ("a1", "a2"):
        store.publish("a", event)
    store.publish("b", "b1")
    store.ack(store.claim("w", 30))
    store.publish("c", "c1")
    assert drain(store) == ["b1", "c1", "a2"]


def test_a_floor_hides_groups_of_lower_priority(store: Any) -> None:
    store.publish("low", "l", priority=1)
    store.publish("high", "h", priority=3)
    assert store.claim("w", 30, min_priority=2).event == "h"
    assert store.claim("w", 30, min_priority=2) is None
    assert store.claim("w", 30, min_priority=1).event == "l"


def test_the_first_publish_sets_the_priority_of_a_group(store: Any) -> None:
    store.publish("g", "1", priority=1)
    store.publish("g", "2", priority=4)
    assert store._query("SELECT priority FROM groups") == [{"priority": 1}]


def test_the_row_of_a_group_goes_with_its_last_message(store: Any) -> None:
    store.publish("g", "1")
    store.publish("g", "2")
    store.ack(store.claim("w", 30))
    assert rows(store, "groups") == 1
    store.ack(store.claim("w", 30))
    assert (rows(store, "groups"), rows(store, "messages")) == (0, 0)


def test_nack_frees_the_message_at_once_and_it_stays_first(store: Any) -> None:
    store.publish("g", "1")
    store.publish("g", "2")
    store.nack(store.claim("w", 30))
    assert drain(store) == ["1", "2"]


def test_a_delayed_nack_parks_the_message_and_its_group(store: Any) -> None:
    store.publish("g", "1")
    store.publish("g", "2")
    store.nack(store.claim("w", 30), delay=60)
    assert store._query("SELECT locked_by FROM messages WHERE seq = 1") == [
        {"locked_by": "__parked__"}
    ]
    assert store.claim("w", 30) is None
    age(store, 61)
    assert drain(store) == ["1", "2"]


def test_a_lapsed_lease_is_claimed_by_another(store: Any) -> None:
    store.publish("g", "1")
    first = store.claim("a", 30)
    age(store, 31)
    second = store.claim("b", 30)
    assert (second.seq, second.token != first.token) == (first.seq, True)


@pytest.mark.parametrize("verb", ["ack", "nack", "extend"])
def test_a_verb_with_a_lost_lease_raises_and_changes_nothing(store: Any, verb: str) -> None:
    store.publish("g", "1")
    old = store.claim("a", 30)
    age(store, 31)
    new = store.claim("b", 30)
    before = store._query("SELECT * FROM messages")
    with pytest.raises(LeaseExpired) as lost:
        getattr(store, verb)(old, *([60] if verb == "extend" else []))
    assert lost.value.reason == "expired"
    assert store._query("SELECT * FROM messages") == before
    store.ack(new)


def test_a_lapsed_lease_that_nobody_took_may_still_ack(store: Any) -> None:
    store.publish("g", "1")
    lease = store.claim("a", 30)
    age(store, 31)
    store.ack(lease)
    assert rows(store, "messages") == 0


@pytest.mark.parametrize("verb", ["ack", "nack"])
def test_the_same_settle_twice_succeeds_twice(store: Any, verb: str) -> None:
    store.publish("g", "1")
    lease = store.claim("a", 30)
    getattr(store, verb)(lease)
    getattr(store, verb)(lease)


@pytest.mark.parametrize(("first", "second"), [("ack", "nack"), ("nack", "ack")])
def test_another_settle_with_the_same_lease_is_settled(store: Any, first: str, second: str) -> None:
    store.publish("g", "1")
    lease = store.claim("a", 30)
    getattr(store, first)(lease)
    with pytest.raises(LeaseExpired) as lost:
        getattr(store, second)(lease)
    assert lost.value.reason == "settled"


def test_a_second_nack_leaves_the_next_lease_alone(store: Any) -> None:
    store.publish("g", "1")
    first = store.claim("a", 30)
    store.nack(first)
    second = store.claim("b", 30)
    store.nack(first)
    store.ack(second)
    assert rows(store, "messages") == 0


def test_a_message_that_is_gone_without_our_doing_is_unknown(store: Any) -> None:
    store.publish("g", "1")
    lease = store.claim("a", 30)
    store._execute([["DELETE FROM messages"]])
    with pytest.raises(LeaseExpired) as lost:
        store.ack(lease)
    assert lost.value.reason == "unknown"


def test_extend_moves_the_deadline_and_never_back(store: Any) -> None:
    store.publish("g", "1")
    lease = store.claim("a", 60)
    store.extend(lease, 1000)
    store.extend(lease, 1)
    age(store, 900)
    assert store.claim("b", 30) is None


def test_a_publish_id_is_stored_once_while_it_waits_and_after(store: Any) -> None:
    store.publish("g", "1", publish_id="p")
    store.publish("g", "2", publish_id="p")
    assert drain(store) == ["1"]
    store.publish("g", "3", publish_id="p")
    assert drain(store) == []
    assert rows(store, "groups") == 0


def test_old_outcomes_are_forgotten_a_few_at_a_time(store: Any) -> None:
    for number in range(3):
        store._execute([["INSERT INTO localqueue_outcomes VALUES (?, 'ack', 0)", str(number)]])
    store.publish("g", "1")
    store.ack(store.claim("a", 30))
    assert store._query("SELECT verb FROM localqueue_outcomes ORDER BY verb") == [
        {"verb": "ack"},
        {"verb": "publish"},
    ]


@pytest.mark.parametrize(
    "event",
    ["x'6869'", " X'' ", "x'zz'", "", "\0nul\0", "émoji 🎉", '{"a":  1.0}', "1e400", "'; DROP --"],
)
def test_an_event_comes_back_verbatim(store: Any, event: str) -> None:
    store.publish(f"group {event}", event, publish_id=event or None)
    lease = store.claim("w", 30)
    assert (lease.group_id, lease.event) == (f"group {event}", event)
    assert store._query("SELECT typeof(event) AS kind FROM messages") == [{"kind": "text"}]
    store.ack(lease)


def test_a_group_named_like_a_blob_is_one_group(store: Any) -> None:
    store.publish("x'6869'", "1")
    store.publish("x'6869'", "2")
    store.publish("hi", "3")
    first = store.claim("w", 30)
    assert store.claim("w", 30).event == "3"
    store.ack(first)
    assert rows(store, "groups") == 2


@pytest.mark.parametrize(
    ("verb", "arguments"),
    [
        ("publish", ("", "1")),
        ("publish", (1, "1")),
        ("publish", ("g", {"a": 1})),
        ("publish", ("g", "\ud800")),
        ("publish", ("g", "1", 5)),
        ("publish", ("g", "1", -1)),
        ("publish", ("g", "1", True)),
        ("claim", ("", 30)),
        ("claim", ("w", 0)),
        ("claim", ("w", float("nan"))),
        ("claim", ("w", float("inf"))),
        ("claim", ("w", "30")),
        ("claim", ("w", 30, 5)),
    ],
)
def test_a_wrong_argument_is_refused_before_anything_is_sent(
    store: Any, verb: str, arguments: tuple[Any, ...]
) -> None:
    with pytest.raises(InvalidInput):
        getattr(store, verb)(*arguments)
    assert rows(store, "messages") == 0


@pytest.mark.parametrize(
    "parameter", ["x'6869'", 2**63, float("nan"), float("inf"), "\udfff", object()]
)
def test_a_parameter_that_rqlite_would_change_is_refused(store: Any, parameter: Any) -> None:
    with pytest.raises(InvalidInput):
        store._query("SELECT ? AS value", [parameter])


@pytest.mark.parametrize("parameter", [None, 0, -(2**63), 2**63 - 1, 1.5, "text", ""])
def test_a_parameter_comes_back_as_it_was(store: Any, parameter: Any) -> None:
    assert store._query("SELECT ? AS value", [parameter]) == [{"value": parameter}]


def test_bytes_are_stored_as_a_blob(store: Any) -> None:
    store._execute([["INSERT INTO groups (group_id) VALUES (?)", b"\x00\xff"]])
    assert store._query("SELECT typeof(group_id) AS t, hex(group_id) AS h FROM groups") == [
        {"t": "blob", "h": "00FF"}
    ]


def test_the_transport_needs_no_clock_of_its_own(store: Any) -> None:
    store.publish("g", "1")
    store.claim("w", 30)
    [row] = store._query(
        "SELECT lock_expiry - (julianday('now') - 2440587.5) * 86400.0 AS left FROM messages"
    )
    assert 10 < row["left"] < 40
