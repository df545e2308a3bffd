"""The transports on a real cluster whose leader dies, and with real users."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from django_localqueue.exceptions import LocalQueueError, NotStored, OutcomeUnknown
from django_localqueue.transports import RqliteTransport, Timeouts, errors
from tests.rqlite.nodes import RealCluster

pytestmark = pytest.mark.rqlite


@pytest.fixture
def transport(triple: RealCluster) -> Iterator[RqliteTransport]:
    with RqliteTransport.from_url(triple.urls) as transport:
        triple.execute([f"DELETE FROM {table}" for table in ("messages", "groups")])
        yield transport


@pytest.fixture
def killed(triple: RealCluster) -> Iterator[int]:
    """The index of the leader, which the test kills; started again afterwards."""
    leader = triple.leader()
    yield leader
    triple.kill(leader)
    triple.start(leader)
    triple.wait_ready()


def test_each_publish_is_stored_once_while_the_leader_is_killed(
    triple: RealCluster, transport: RqliteTransport, killed: int
) -> None:
    stored: list[str] = []
    unknown: list[str] = []
    half = threading.Event()

    def publish(name: str) -> None:
        for number in range(60):
            event = f"{name}-{number}"
            try:
                transport.publish(f"group {name}", event)
            except OutcomeUnknown:
                unknown.append(event)
            except NotStored:
                continue
            else:
                stored.append(event)
            if len(stored) > 60:
                half.set()

    threads = [threading.Thread(target=publish, args=(f"p{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    assert half.wait(60)
    triple.kill(killed)
    for thread in threads:
        thread.join(120)
    found = [row["event"] for row in transport._query("SELECT event FROM messages ORDER BY seq")]
    assert len(found) == len(set(found))
    assert set(stored) <= set(found) <= set(stored) | set(unknown)
    assert len(stored) == 240


def test_each_message_is_leased_and_acked_once_while_the_leader_is_killed(
    triple: RealCluster, transport: RqliteTransport, killed: int
) -> None:
    transport._execute(
        [
            [
                "INSERT INTO messages (group_id, event) WITH RECURSIVE n(i) AS"
                " (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 119)"
                " SELECT 'g' || (i % 20), i FROM n"
            ],
            ["INSERT INTO groups (group_id) SELECT DISTINCT group_id FROM messages"],
        ]
    )
    done: list[str] = []
    third = threading.Event()
    failures: list[LocalQueueError] = []

    def work(name: str) -> None:
        try:
            while (lease := transport.claim(name, 300)) is not None:
                transport.ack(lease)
                done.append(lease.event)
                if len(done) > 40:
                    third.set()
        except LocalQueueError as error:
            failures.append(error)
            third.set()

    threads = [threading.Thread(target=work, args=(f"w{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    assert third.wait(60)
    triple.kill(killed)
    for thread in threads:
        thread.join(120)
    assert failures == []
    assert sorted(map(int, done)) == list(range(120))
    assert transport._query("SELECT * FROM messages") == []


def test_a_frozen_leader_neither_loses_nor_doubles_a_message(triple: RealCluster) -> None:
    triple.execute(["DROP TABLE IF EXISTS messages", "DROP TABLE IF EXISTS groups"])
    timeouts = Timeouts(connect=1, read=0.5, total=30)
    with RqliteTransport.from_url(triple.urls, timeouts=timeouts) as transport:
        transport.publish("g", "before")
        leader = triple.leader()
        triple.freeze(leader)
        try:
            for number in range(20):
                transport.publish("g", str(number))
        finally:
            triple.thaw(leader)
        triple.wait_ready()
        transport.publish("g", "after")
        events = [row["event"] for row in transport._query("SELECT event FROM messages")]
    assert events == ["before", *map(str, range(20)), "after"]


def test_all_replicas_come_to_the_same_rows(
    triple: RealCluster, transport: RqliteTransport
) -> None:
    for number in range(30):
        transport.publish(f"g{number % 7}", "x'6869'", priority=number % 5)
        lease = transport.claim("w", 30)
        if lease is not None and number % 3:
            transport.nack(lease, delay=number % 2)
        elif lease is not None:
            transport.ack(lease)
    tables = ("messages", "groups", "localqueue_outcomes")
    queries = [f"SELECT * FROM {table} ORDER BY 1" for table in tables]

    def contents() -> list[object]:
        return [
            triple.post(index, "/db/query?level=none", queries).json()["results"]
            for index in range(3)
        ]

    deadline = time.monotonic() + 30
    while not (seen := contents())[0] == seen[1] == seen[2]:
        assert time.monotonic() < deadline, seen
        time.sleep(0.05)
    assert transport._query("SELECT count(*) > 0 AS some FROM messages") == [{"some": 1}]


def test_a_user_is_told_apart_on_a_real_node(tmp_path: Path) -> None:
    users = [
        {"username": "app", "password": "right secret", "perms": ["all"]},
        {"username": "reader", "password": "other secret", "perms": ["query"]},
    ]
    (tmp_path / "users.json").write_text(json.dumps(users))
    options = ("-auth", str(tmp_path / "users.json"))
    with RealCluster(tmp_path, options=options, login=("app", "right secret")) as cluster:
        with RqliteTransport.from_url(cluster.urls, auth=("app", "right secret")) as transport:
            transport.publish("g", "1")
        with pytest.raises(errors.AccessRefused) as refused:
            RqliteTransport.from_url(cluster.urls, auth=("app", "wrong secret"))
        assert "secret" not in str(refused.value)
        with (
            RqliteTransport.from_url(cluster.urls, auth=("reader", "other secret")) as reader,
            pytest.raises(errors.AccessRefused, match='"execute"'),
        ):
            reader.publish("g", "2")


def test_without_a_quorum_a_write_is_unknown_or_refused_within_the_deadline(
    tmp_path: Path,
) -> None:
    with RealCluster(tmp_path, nodes=3) as cluster:
        timeouts = Timeouts(connect=1, read=2, total=4)
        with RqliteTransport.from_url(cluster.urls, timeouts=timeouts) as transport:
            leader = cluster.leader()
            for index in range(3):
                if index != leader:
                    cluster.kill(index)
            with pytest.raises((NotStored, OutcomeUnknown)):
                transport.publish("g", "1", publish_id="one")
            for index in range(3):
                if index != leader:
                    cluster.start(index)
            cluster.wait_ready()
            transport.publish("g", "1", publish_id="one")
            assert len(transport._query("SELECT * FROM messages")) == 1
