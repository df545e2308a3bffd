"""What is wrong with a cluster is told once: with the node's name, the mend, and no long retry."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from django_localqueue.backends.rqlite import RqliteQueue
from django_localqueue.exceptions import (
    ForeignDatabase,
    InvalidInput,
    LocalQueueError,
    OutcomeUnknown,
    PayloadTooLarge,
)
from django_localqueue.transports import errors
from tests.fakes.rqlite import FakeCluster, User
from tests.fakes.server import stranger

Open = Callable[..., RqliteQueue]

#: A verb gives up by then; what is told at once needs a fraction of it.
TOTAL = 30.0
BRIEF = {"connect": 0.5, "read": 0.5, "total": 1.0}


def told(queue: RqliteQueue, kind: type[LocalQueueError], *words: str) -> None:
    """Put, and check what is raised: its kind and its words, long before the deadline."""
    began = time.monotonic()
    with pytest.raises(kind) as caught:
        queue.put(1)
    assert time.monotonic() - began < TOTAL / 2
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    "url", ["10.0.0.1:4001", "ftp://h:4001", "http://h:port", "http://:4001", "http://h:4001/db"]
)
def test_a_wrong_url_is_refused_by_its_place_in_the_list(url: str, open_queue: Open) -> None:
    with pytest.raises(InvalidInput, match="URL 2 of the rqlite nodes"):
        open_queue(["http://10.0.0.9:4001", url])


def test_the_port_of_something_else_is_told_with_what_it_said(open_queue: Open) -> None:
    page = b"<html>Welcome</html>"
    head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(page)
    with stranger(head + page) as url:
        queue = open_queue(url, timeouts={"total": TOTAL})
        told(queue, errors.NotRqlite, url, "Welcome", "address of its HTTP API")


def test_a_port_on_which_nothing_listens_is_given_up_at_the_deadline(open_queue: Open) -> None:
    told(open_queue("http://127.0.0.1:9", timeouts=BRIEF), errors.ClusterUnavailable, ":9")


def test_html_of_a_proxy_is_told_with_the_node(cluster: FakeCluster, queue: RqliteQueue) -> None:
    queue.stats()
    cluster.fail_next(
        "status", status=404, text="<html>No such host</html>", headers={"server": "nginx"},
        endpoint="execute", times=3,
    )  # fmt: skip
    told(queue, errors.NotRqlite, "http://127.0.0.1:", "No such host", "address of its HTTP API")


def test_an_answer_that_is_cut_short_every_time_is_unknown_at_the_deadline(
    cluster: FakeCluster, open_queue: Open
) -> None:
    queue = open_queue(cluster.urls, timeouts=BRIEF)
    queue.stats()
    queue.now()
    cluster.fail_next("truncate", applied=True, times=100_000, endpoint="execute")
    told(queue, OutcomeUnknown, cluster.urls[0], "cut short", "may be sent again")


def test_a_refused_login_is_told_at_once_with_what_it_needs(open_queue: Open) -> None:
    with FakeCluster(users={"app": User("right", {"execute", "query"})}) as cluster:
        queue = open_queue(cluster.urls, auth=("app", "wrong"), timeouts={"total": TOTAL})
        told(queue, errors.AccessRefused, "http://127.0.0.1:", "401", "permission")
        with pytest.raises(errors.AccessRefused) as caught:
            queue.put(1)
        assert "wrong" not in str(caught.value)


def test_a_permission_that_is_missing_is_named(open_queue: Open) -> None:
    with FakeCluster(users={"app": User("right", {"query"})}) as cluster:
        queue = open_queue(cluster.urls, auth=("app", "right"), timeouts={"total": TOTAL})
        told(queue, errors.AccessRefused, '"execute"')


def test_tls_where_the_node_speaks_plain_http_is_told_at_once(
    cluster: FakeCluster, open_queue: Open
) -> None:
    urls = [url.replace("http:", "https:") for url in cluster.urls]
    queue = open_queue(urls, timeouts={"total": TOTAL})
    told(queue, errors.TlsFailed, "https://127.0.0.1:", "plain http")


def test_a_node_that_cannot_write_is_told_with_what_to_look_at(
    cluster: FakeCluster, queue: RqliteQueue
) -> None:
    queue.stats()
    cluster.database.rows("PRAGMA query_only = 1")
    told(queue, errors.StatementFailed, cluster.urls[0], "readonly database", "disk")


def test_a_node_that_only_reads_hands_the_write_to_the_leader(
    cluster: FakeCluster, open_queue: Open
) -> None:
    # The list has a node that never leads, and not the one that does.
    queue = open_queue(cluster.urls[1:])
    assert queue.put(1).created
    assert queue.stats().ready == 1


def test_a_payload_over_the_limit_of_a_proxy_is_told(
    cluster: FakeCluster, queue: RqliteQueue
) -> None:
    queue.stats()
    cluster.fail_next("status", status=413, headers={"server": "nginx"}, endpoint="execute")
    told(queue, PayloadTooLarge, "http://127.0.0.1:", "raise that, or send less")


def test_a_payload_over_the_limit_of_the_queue_is_refused_before_it_is_sent(
    cluster: FakeCluster, open_queue: Open
) -> None:
    queue = open_queue(cluster.urls, max_payload_bytes=10)
    with pytest.raises(PayloadTooLarge, match="max_payload_bytes"):
        queue.put("x" * 11)
    assert cluster.seen == []


@pytest.mark.parametrize("name", ["localqueue_messages", "localqueue_ops", "localqueue_queues"])
def test_tables_of_a_stranger_are_named_and_left_alone(
    name: str, cluster: FakeCluster, queue: RqliteQueue
) -> None:
    cluster.database.rows(f"CREATE TABLE {name} (mine TEXT)")
    told(queue, ForeignDatabase, name, "cluster of its own")
    assert cluster.database.rows(f"SELECT * FROM {name}") == []


def test_a_view_that_has_the_name_of_a_table_is_told(
    cluster: FakeCluster, queue: RqliteQueue
) -> None:
    cluster.database.rows("CREATE VIEW localqueue_meta AS SELECT 1 AS one")
    told(queue, ForeignDatabase, "localqueue_meta")


def test_tables_that_go_away_under_the_queue_are_told_by_their_name(
    cluster: FakeCluster, queue: RqliteQueue
) -> None:
    queue.put(1)
    cluster.database.rows("DROP TABLE localqueue_ops")
    told(queue, errors.TableMissing, cluster.urls[0], "localqueue_ops")
