"""The tables: made once, by whoever comes first, and never in the place of others."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from django_localqueue.backends.rqlite import RqliteQueue, creation, schema
from django_localqueue.exceptions import ForeignDatabase, NewerSchema, NotStored
from django_localqueue.types import JobFilter
from tests.contract.helpers import InThread
from tests.fakes.rqlite import FakeCluster

Open = Callable[..., RqliteQueue]


def test_nothing_is_sent_before_the_first_verb(cluster: FakeCluster, queue: RqliteQueue) -> None:
    assert repr(queue) == f"<RqliteQueue 'default' in {' '.join(sorted(cluster.urls))}>"
    assert cluster.seen == []


def test_tables_that_are_there_are_not_made_again(cluster: FakeCluster, open_queue: Open) -> None:
    open_queue(cluster.urls).put(1)
    made = len(cluster.applied("execute"))
    assert open_queue(cluster.urls[:1]).stats().ready == 1
    assert len(cluster.applied("execute")) == made


def test_many_that_come_first_at_once_all_succeed(cluster: FakeCluster, open_queue: Open) -> None:
    queues = [open_queue(cluster.urls[:n]) for n in (1, 2, 3)]
    ids = [thread.outcome() for thread in [InThread(lambda q=q: q.put(1)) for q in queues]]
    assert all(id.created for id in ids)
    assert queues[0].stats().ready == 3


def test_making_the_tables_is_sent_again_after_a_lost_answer(
    cluster: FakeCluster, queue: RqliteQueue
) -> None:
    cluster.fail_next("drop", applied=True, endpoint="execute")
    assert queue.put(1).created


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE TABLE localqueue_messages (id INTEGER PRIMARY KEY)",
        "CREATE TABLE localqueue_meta (name TEXT, value TEXT, more TEXT)",
        "CREATE VIEW localqueue_do_put AS SELECT 1 AS one",
    ],
)
def test_a_stranger_of_the_same_name_is_left_alone(
    sql: str, cluster: FakeCluster, queue: RqliteQueue
) -> None:
    cluster.database.rows(sql)
    with pytest.raises(ForeignDatabase, match=sql.split()[2]):
        queue.put(1)
    assert len(cluster.database.rows("SELECT * FROM sqlite_master WHERE type <> 'index'")) == 1


def test_tables_of_a_newer_version_are_refused(cluster: FakeCluster, open_queue: Open) -> None:
    open_queue(cluster.urls).put(1)
    cluster.database.rows("UPDATE localqueue_meta SET value = 99 WHERE name = 'schema'")
    with pytest.raises(NewerSchema, match="schema 99"):
        open_queue(cluster.urls[:1]).put(1)


def test_tables_that_seem_missing_are_looked_for_again_before_they_are_made(
    cluster: FakeCluster, queue: RqliteQueue
) -> None:
    queue.stats()
    asked = [seen.endpoint for seen in cluster.seen if seen.node == 0]
    # The time first; then what the node has, and what the leader's log says.
    assert asked[: asked.index("execute")] == ["query", "query", "query"]


def test_no_statement_of_the_schema_depends_on_the_node() -> None:
    forbidden = ("random", "current_", "'now'", "datetime(", "julianday", "unixepoch")
    text = " ".join(sql for sql, *_ in creation.creation()).lower()
    assert [word for word in forbidden if word in text] == []


def test_vacuum_says_what_to_do_instead(queue: RqliteQueue) -> None:
    with pytest.raises(NotStored, match="-auto-vacuum-int"):
        queue.vacuum()


def version_1() -> list[list[Any]]:
    """The statements with which the first version made its tables."""
    path = Path(__file__).parent / "data" / "schema_1.json"
    return cast("list[list[Any]]", json.loads(path.read_text()))


def test_tables_of_the_first_version_are_brought_up_to_date_with_their_jobs(
    cluster: FakeCluster, queue: RqliteQueue
) -> None:
    for statement in version_1():
        cluster.database.rows(*statement)
    cluster.database.rows("INSERT INTO localqueue_queues (name) VALUES ('default')")
    cluster.database.rows(
        "INSERT INTO localqueue_messages (id, queue, state, prio, since, at, created, payload)"
        " VALUES (7, 1, 0, 0, 7, 7, 7, '1')"
    )
    assert queue.apply("delay", JobFilter(state="ready"), delay=60).done == 1
    (version,) = cluster.database.rows("SELECT value FROM localqueue_meta WHERE name = 'schema'")
    assert list(version) == [schema.VERSION]
    columns = cluster.database.rows("SELECT name FROM pragma_table_info('localqueue_messages')")
    assert {name for (name,) in columns} == schema.columns("localqueue_messages")


def test_two_that_bring_the_tables_up_to_date_at_once_both_succeed(
    cluster: FakeCluster, open_queue: Open
) -> None:
    for statement in version_1():
        cluster.database.rows(*statement)
    queues = [open_queue(cluster.urls[:n]) for n in (1, 2, 3)]
    ids = [thread.outcome() for thread in [InThread(lambda q=q: q.put(1)) for q in queues]]
    assert all(id.created for id in ids)
