"""Requests that go wrong on their way: each verb happens once, or says what is not known."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from django_localqueue.exceptions import NotStored, OutcomeUnknown, PayloadTooLarge, QueueClosed
from django_localqueue.transports import Timeouts, errors
from django_localqueue.transports import cluster as conversations
from tests.fakes.rqlite import FakeCluster

Connect = Callable[..., Any]
SHORT = Timeouts(total=0.8)

LOSSES: dict[str, dict[str, Any]] = {
    "dropped before it applied": {"kind": "drop"},
    "dropped after it applied": {"kind": "drop", "applied": True},
    "no leader": {"kind": "status", "status": 503, "text": "leader not found"},
    "leadership lost, not applied": {
        "kind": "error",
        "text": "leadership lost while committing log",
    },
    "leadership lost, applied": {
        "kind": "error",
        "text": "leadership lost while committing log",
        "applied": True,
    },
    "leadership moved": {"kind": "error", "text": "leadership transfer in progress"},
    "cut short": {"kind": "truncate", "applied": True},
    "a gateway's timeout": {
        "kind": "status",
        "status": 504,
        "text": "<html>",
        "headers": {"server": "nginx"},
        "applied": True,
    },
}


def messages(cluster: FakeCluster) -> list[Any]:
    return cluster.database.rows("SELECT seq, event, locked_by FROM messages ORDER BY seq")


@pytest.fixture(params=[*LOSSES])
def lose(request: pytest.FixtureRequest, cluster: FakeCluster) -> Callable[[str], None]:
    """Loses the next request to an endpoint in one of the ways there are, twice in a row."""
    return lambda endpoint: cluster.fail_next(endpoint=endpoint, times=2, **LOSSES[request.param])


def test_publish_stores_the_message_once(
    cluster: FakeCluster, transport: Any, lose: Callable[[str], None]
) -> None:
    lose("execute")
    transport.publish("g", "1")
    assert messages(cluster) == [(1, "1", None)]


def test_claim_leases_one_message_and_finds_it(
    cluster: FakeCluster, transport: Any, lose: Callable[[str], None]
) -> None:
    transport.publish("a", "1")
    transport.publish("b", "2")
    lose("request")
    lease = transport.claim("w", 30)
    assert messages(cluster) == [(1, "1", lease.token), (2, "2", None)]


def test_ack_knows_its_own_success(
    cluster: FakeCluster, transport: Any, lose: Callable[[str], None]
) -> None:
    transport.publish("g", "1")
    transport.publish("g", "2")
    lease = transport.claim("w", 30)
    lose("execute")
    transport.ack(lease)
    assert messages(cluster) == [(2, "2", None)]


def test_nack_knows_its_own_success(
    cluster: FakeCluster, transport: Any, lose: Callable[[str], None]
) -> None:
    transport.publish("g", "1")
    lease = transport.claim("w", 30)
    lose("execute")
    transport.nack(lease)
    assert messages(cluster) == [(1, "1", None)]


def test_extend_is_safe_to_send_again(
    cluster: FakeCluster, transport: Any, lose: Callable[[str], None]
) -> None:
    transport.publish("g", "1")
    lease = transport.claim("w", 30)
    lose("execute")
    transport.extend(lease, 1000)
    assert messages(cluster) == [(1, "1", lease.token)]


@pytest.mark.parametrize("applied", [True, False])
def test_a_stalled_answer_is_given_up_and_settled_by_sending_again(
    cluster: FakeCluster, connect: Connect, applied: bool
) -> None:
    transport = connect(cluster.urls, timeouts=Timeouts(connect=1, read=0.3, total=10))
    cluster.fail_next("stall", applied=applied, endpoint="execute")
    transport.publish("g", "1")
    assert messages(cluster) == [(1, "1", None)]


@pytest.mark.parametrize("verb", ["ack", "nack"])
def test_a_settle_that_was_sent_is_unknown_when_its_fate_cant_be_read(
    cluster: FakeCluster, connect: Connect, verb: str
) -> None:
    transport = connect(cluster.urls, timeouts=SHORT)
    transport.publish("g", "1")
    lease = transport.claim("w", 30)
    cluster.fail_next("drop", endpoint="execute", applied=True)
    cluster.fail_next("status", endpoint="query", status=503, text="leader not found", times=1000)
    with pytest.raises(OutcomeUnknown, match="send it again"):
        getattr(transport, verb)(lease)


def test_a_late_copy_of_a_claim_leases_nothing_more(cluster: FakeCluster, transport: Any) -> None:
    transport.publish("a", "1")
    transport.publish("b", "2")
    transport.ack(transport.claim("w", 30))
    late = cluster.applied("request")[-1].statements
    cluster.database.request(late, True)
    assert messages(cluster) == [(2, "2", None)]


def test_a_late_copy_of_a_publish_stores_nothing_more(cluster: FakeCluster, transport: Any) -> None:
    transport.publish("g", "1")
    late = cluster.applied("execute")[-1].statements
    transport.ack(transport.claim("w", 30))
    cluster.database.execute(late, True)
    assert messages(cluster) == []
    assert cluster.database.rows("SELECT * FROM groups") == []


def test_a_raw_write_is_not_sent_again_when_its_outcome_is_unknown(
    cluster: FakeCluster, transport: Any
) -> None:
    cluster.fail_next("drop", endpoint="execute", applied=True)
    with pytest.raises(OutcomeUnknown):
        transport._execute([["INSERT INTO messages (group_id, event) VALUES ('g', '1')"]])
    assert messages(cluster) == [(1, "1", None)]


def test_a_raw_write_that_was_surely_not_applied_is_sent_again(
    cluster: FakeCluster, transport: Any
) -> None:
    cluster.fail_next("error", endpoint="execute", text="not leader")
    transport._execute([["INSERT INTO messages (group_id, event) VALUES ('g', '1')"]])
    assert messages(cluster) == [(1, "1", None)]


def test_the_next_leader_is_found_and_remembered(cluster: FakeCluster, transport: Any) -> None:
    cluster.leader = 2
    cluster.seen.clear()
    transport.publish("g", "1")
    transport.publish("g", "2")
    assert [seen.node for seen in cluster.seen] == [0, 2, 2]


def test_a_killed_leader_is_replaced(cluster: FakeCluster, transport: Any) -> None:
    transport.publish("g", "1")
    cluster.stop(0)
    cluster.leader = 1
    transport.publish("g", "2")
    cluster.start(0)
    assert [event for _, event, _ in messages(cluster)] == ["1", "2"]


def test_a_dead_first_node_is_asked_once_and_then_left_alone(
    cluster: FakeCluster, connect: Connect
) -> None:
    cluster.stop(0)
    cluster.leader = 1
    transport = connect(cluster.urls)
    for number in range(5):
        transport.publish("g", str(number))
    assert transport.nodes()[0].requests == 1
    assert [facts.leader for facts in transport.nodes()] == [False, True, False]


def test_without_a_leader_the_error_holds_the_words_of_the_server(
    cluster: FakeCluster, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversations, "LEAST_SECONDS", 0.5)  # so that none is cut off unanswered
    transport = connect(cluster.urls, timeouts=SHORT)
    cluster.leader = None
    with pytest.raises(errors.ClusterUnavailable, match="leader not found"):
        transport.publish("g", "1")
    cluster.leader = 1
    connect(cluster.urls).publish("g", "2")
    assert [event for _, event, _ in messages(cluster)] == ["2"]


def test_a_cluster_that_is_away_is_given_up_at_the_deadline(
    cluster: FakeCluster, connect: Connect
) -> None:
    for node in range(3):
        cluster.stop(node)
    began = time.monotonic()
    with pytest.raises(errors.ClusterUnavailable, match=r"no connection.*more than half of its"):
        connect(cluster.urls, timeouts=SHORT, wait=0.5)
    assert time.monotonic() - began < 10


def test_from_url_waits_for_a_leader(cluster: FakeCluster, connect: Connect) -> None:
    cluster.fail_next("status", status=503, text="leader not found", times=4)
    connect(cluster.urls, wait=20).publish("g", "1")
    assert len(messages(cluster)) == 1


def test_a_leader_at_a_foreign_address_is_reached_through_the_nodes(connect: Connect) -> None:
    with FakeCluster(advertise=["http://10.255.0.1:4001"] * 3) as cluster:
        cluster.leader = 1
        transport = connect(cluster.urls)
        transport.publish("g", "1")
        transport.ack(transport.claim("w", 30))
        assert messages(cluster) == []


def test_a_raw_write_is_not_left_to_a_node_to_forward(connect: Connect) -> None:
    with FakeCluster(advertise=["http://user:secret@10.255.0.1:4001"] * 3) as cluster:
        cluster.leader = 1
        transport = connect([cluster.urls[0], cluster.urls[2]])
        with pytest.raises(NotStored, match=r"'http://10\.255\.0\.1:4001' is none") as refused:
            transport._execute([["DELETE FROM messages"]])
        assert "secret" not in str(refused.value)


@pytest.mark.parametrize("verb", ["publish", "claim", "ack"])
def test_a_write_that_a_follower_sends_twice_happens_once(
    cluster: FakeCluster, connect: Connect, verb: str
) -> None:
    cluster.advertised = ["http://10.255.0.1:4001"] * 3
    transport = connect(cluster.urls[1:])
    transport.publish("a", "1")
    transport.publish("b", "2")
    if verb == "publish":
        cluster.fail_next("lose-forwarded", endpoint="execute")
        transport.publish("c", "3")
        assert [event for _, event, _ in messages(cluster)] == ["1", "2", "3"]
        return
    if verb == "claim":
        cluster.fail_next("lose-forwarded", endpoint="request")
    lease = transport.claim("w", 30)
    assert messages(cluster) == [(1, "1", lease.token), (2, "2", None)]
    if verb == "ack":
        cluster.fail_next("lose-forwarded", endpoint="execute")
    transport.ack(lease)
    assert messages(cluster) == [(2, "2", None)]


def test_a_stranger_on_the_port_is_told(cluster: FakeCluster, connect: Connect) -> None:
    page = {"text": "<html>Welcome</html>", "headers": {"server": "nginx"}}
    cluster.fail_next("status", status=200, times=3, **page)
    with pytest.raises(errors.NotRqlite, match="Welcome"):
        connect(cluster.urls)


def test_a_request_over_a_proxys_limit_is_too_large(cluster: FakeCluster, transport: Any) -> None:
    cluster.fail_next("status", status=413, headers={"server": "nginx"}, endpoint="execute")
    with pytest.raises(PayloadTooLarge):
        transport.publish("g", "1")


def test_a_result_that_cannot_be_sent_was_applied(cluster: FakeCluster, transport: Any) -> None:
    with pytest.raises(errors.AppliedUnread, match="unsupported value"):
        transport._execute(
            [["INSERT INTO messages (group_id, event) VALUES ('g', '1') RETURNING 9e999"]]
        )
    assert len(messages(cluster)) == 1


def test_a_failed_statement_undoes_the_others(cluster: FakeCluster, transport: Any) -> None:
    write = "INSERT INTO messages (seq, group_id, event) VALUES (1, 'g', '1')"
    with pytest.raises(errors.ConstraintFailed, match="UNIQUE"):
        transport._execute([[write], [write]])
    with pytest.raises(errors.TableMissing, match="no such table: nowhere"):
        transport._execute([[write], ["DELETE FROM nowhere"]])
    assert messages(cluster) == []


def test_a_closed_transport_says_so(transport: Any) -> None:
    transport.close()
    with pytest.raises(QueueClosed):
        transport.publish("g", "1")
