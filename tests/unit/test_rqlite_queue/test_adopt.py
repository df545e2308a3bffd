"""``manage.py localqueue adopt``: messages of the transport become jobs of a queue."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import override_settings

from django_localqueue import conf, queues
from django_localqueue.backends.rqlite import RqliteQueue
from django_localqueue.exceptions import OutcomeUnknown
from django_localqueue.transports import RqliteTransport
from tests.fakes.rqlite import FakeCluster

Open = Callable[..., RqliteQueue]


@pytest.fixture
def transport(cluster: FakeCluster) -> Iterator[RqliteTransport]:
    with RqliteTransport.from_url(cluster.urls) as transport:
        yield transport


def in_turn(queue: RqliteQueue) -> list[tuple[str | None, Any]]:
    seen = []
    while jobs := queue.get_many(1):
        seen.append((jobs[0].group_id, jobs[0].data))
        queue.ack(jobs[0])
    return seen


def test_messages_keep_their_group_order_priority_and_text(
    transport: RqliteTransport, queue: RqliteQueue
) -> None:
    transport.publish("a", '{"n":  1}')
    transport.publish("b", "2", priority=3)
    transport.publish("a", "3")
    assert queue.adopt() == (3, 0)
    first = queue.get_nowait()
    assert (first.group_id, first.priority, first.data) == ("b", 3, 2)
    queue.ack(first)
    (lead,) = queue.list(_ready()).records
    assert lead.payload == b'{"n":  1}'
    assert in_turn(queue) == [("a", {"n": 1}), ("a", 3)]
    assert transport.claim("w", 30) is None


def _ready() -> Any:
    from django_localqueue.types import JobFilter

    return JobFilter(state="ready")


def test_a_second_run_moves_only_what_came_since(
    transport: RqliteTransport, queue: RqliteQueue
) -> None:
    transport.publish("a", "1")
    assert queue.adopt() == (1, 0)
    transport.publish("a", "2")
    assert queue.adopt() == (1, 0)
    assert queue.adopt() == (0, 0)
    assert in_turn(queue) == [("a", 1), ("a", 2)]


def test_more_than_one_request_takes_are_all_moved(
    transport: RqliteTransport, queue: RqliteQueue, cluster: FakeCluster
) -> None:
    rows = [("g", str(n)) for n in range(1_201)]
    with cluster.database.lock:
        connection = cluster.database._connection
        connection.executemany("INSERT INTO messages (group_id, event) VALUES (?, ?)", rows)
    assert queue.adopt() == (1_201, 0)
    assert queue.stats().ready == 1_201
    assert queue.get_nowait().data == 0


def test_a_group_in_flight_is_left_whole_until_it_ended(
    transport: RqliteTransport, queue: RqliteQueue
) -> None:
    for event in ("1", "2"):
        transport.publish("busy", event)
    transport.publish("idle", "3")
    lease = transport.claim("w", 30)
    assert lease is not None
    assert queue.adopt() == (1, 2)
    transport.ack(lease)
    assert queue.adopt() == (1, 0)
    assert in_turn(queue) == [("idle", 3), ("busy", 2)]


def test_a_message_whose_lease_lapsed_is_moved(
    transport: RqliteTransport, queue: RqliteQueue
) -> None:
    transport.publish("a", "1")
    transport.claim("w", 0.001)
    while (adopted := queue.adopt()).left:
        pass
    assert adopted == (1, 0)


def test_a_parked_message_is_delayed(transport: RqliteTransport, queue: RqliteQueue) -> None:
    transport.publish("a", "1")
    lease = transport.claim("w", 30)
    assert lease is not None
    transport.nack(lease, delay=60)
    before = queue.now()
    assert queue.adopt() == (1, 0)
    assert queue.stats().delayed == 1
    from django_localqueue.types import JobFilter

    (job,) = queue.list(JobFilter(state="delayed")).records
    assert job.due_at is not None
    assert 50_000_000 < job.due_at - before < 61_000_000


@pytest.mark.parametrize("applied", [True, False], ids=["after", "before"])
def test_a_request_whose_answer_is_lost_moves_each_message_once(
    applied: bool, transport: RqliteTransport, queue: RqliteQueue, cluster: FakeCluster
) -> None:
    queue.resume()
    for n in range(3):
        transport.publish("a", str(n))
    cluster.fail_next("drop", applied=applied, endpoint="request")
    assert queue.adopt() == (3, 0)
    assert in_turn(queue) == [("a", 0), ("a", 1), ("a", 2)]


def test_a_late_copy_of_the_request_removes_nothing(
    transport: RqliteTransport, queue: RqliteQueue, cluster: FakeCluster
) -> None:
    transport.publish("a", "1")
    queue.adopt()
    late = cluster.applied("request")[-1].statements
    # A message of the same number, as if the copy had found it free only now.
    cluster.database.rows("INSERT INTO messages (seq, group_id, event) VALUES (1, 'a', '2')")
    cluster.database.request(late, True)
    assert queue.stats().ready == 1
    assert queue.adopt() == (1, 0)


def test_a_run_that_was_cut_off_is_taken_up_by_the_next(
    transport: RqliteTransport, cluster: FakeCluster, open_queue: Open
) -> None:
    queue = open_queue(cluster.urls, timeouts={"total": 0.3})
    queue.resume()
    transport.publish("a", "1")
    cluster.fail_next("drop", applied=True, times=100_000, endpoint="request")
    with pytest.raises(OutcomeUnknown):
        queue.adopt()
    cluster._faults.clear()
    assert queue.adopt() == (0, 0)
    assert in_turn(queue) == [("a", 1)]


def test_a_cluster_without_the_transports_tables_has_nothing_to_move(queue: RqliteQueue) -> None:
    assert queue.adopt() == (0, 0)


# ---- the command


def adopt(*arguments: str) -> str:
    out = io.StringIO()
    call_command("localqueue", "adopt", *arguments, stdout=out)
    return out.getvalue()


def test_the_command_says_what_it_moved_and_left(
    transport: RqliteTransport, cluster: FakeCluster
) -> None:
    for event in ("1", "2"):
        transport.publish("busy", event)
    transport.publish("idle", "3")
    transport.claim("w", 30)
    settings = {"default": {}, "orders": {"BACKEND": conf.RQLITE_BACKEND, "LOCATION": cluster.urls}}
    with override_settings(LOCALQUEUE=settings):
        told = adopt("orders")
        assert queues["orders"].stats().ready == 1
    assert "Moved 1 messages into the queue 'orders'" in told
    assert "Left 2 messages" in told


@pytest.mark.parametrize(
    ("arguments", "code"), [((), 2), (("nobody",), 2), (("away",), 3)], ids=str
)
def test_the_command_says_what_is_wrong(arguments: tuple[str, ...], code: int) -> None:
    away = {
        "BACKEND": conf.RQLITE_BACKEND,
        "LOCATION": "http://127.0.0.1:1",
        "OPTIONS": {"timeouts": 0.05},
    }
    settings = {"default": {"LOCATION": ":memory:"}, "away": away}
    with override_settings(LOCALQUEUE=settings), pytest.raises(CommandError) as caught:
        adopt(*arguments)
    assert caught.value.returncode == code
