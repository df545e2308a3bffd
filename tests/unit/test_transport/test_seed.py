"""The seed's own statements and these, in turn on the same rows."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from django_localqueue.exceptions import ForeignDatabase, LeaseExpired
from django_localqueue.transports import RqliteTransport
from tests.fakes.rqlite import FakeCluster
from tests.fakes.versions import V8

requests = pytest.importorskip("requests")

Connect = Callable[..., Any]

SEED_TABLES = [
    """CREATE TABLE IF NOT EXISTS messages (
  seq          INTEGER PRIMARY KEY AUTOINCREMENT,
  group_id     TEXT NOT NULL,
  event        TEXT NOT NULL,
  locked_by    TEXT,
  lock_expiry  REAL)""",
    """CREATE TABLE IF NOT EXISTS groups (
  group_id        TEXT PRIMARY KEY,
  last_claimed_at REAL NOT NULL DEFAULT 0.0,
  priority        INT  NOT NULL DEFAULT 0)""",
]


class SeedClient:
    """A client as the seed describes it, statement for statement; its clock stands still."""

    def __init__(self, url: str, now: float) -> None:
        self._url = url
        self.now = now
        self.session = requests.Session()
        self.session.trust_env = False

    def execute(self, *statements: list[Any]) -> list[dict[str, Any]]:
        answer = self.session.post(f"{self._url}/db/execute", json=statements, timeout=30).json()
        assert not any("error" in slot for slot in answer["results"]), answer
        return list(answer["results"])

    def query(self, *statement: Any) -> list[list[Any]]:
        answer = self.session.post(
            f"{self._url}/db/query?level=strong", json=[statement], timeout=30
        ).json()
        return list(answer["results"][0].get("values", []))

    def create(self) -> None:
        self.execute(*[[sql] for sql in SEED_TABLES])

    def publish(self, group_id: str, event: str, priority: int = 0) -> None:
        self.execute(
            ["INSERT INTO messages (group_id, event) VALUES (?, ?)", group_id, event],
            ["INSERT OR IGNORE INTO groups (group_id, priority) VALUES (?, ?)", group_id, priority],
        )

    def claim(self, worker_id: str, visibility: float, min_priority: int = 0) -> Any:
        token = f"{worker_id}:{uuid.uuid4()}"
        [slot] = self.execute(
            [
                "UPDATE messages SET locked_by = ?, lock_expiry = ? WHERE seq = ("
                " SELECT m.seq FROM messages m JOIN groups g ON g.group_id = m.group_id"
                " WHERE (m.locked_by IS NULL OR m.lock_expiry < ?)"
                " AND m.group_id NOT IN (SELECT group_id FROM messages"
                " WHERE locked_by IS NOT NULL AND lock_expiry >= ?)"
                " AND g.priority >= ?"
                " ORDER BY g.last_claimed_at ASC, m.seq ASC LIMIT 1)",
                token,
                self.now + visibility,
                self.now,
                self.now,
                min_priority,
            ]
        )
        if not slot.get("rows_affected"):
            return None
        [[seq, group_id, event]] = self.query(
            "SELECT seq, group_id, event FROM messages WHERE locked_by = ?", token
        )
        self.execute(
            ["UPDATE groups SET last_claimed_at = ? WHERE group_id = ?", self.now, group_id]
        )
        return seq, group_id, event

    def ack(self, seq: int, group_id: str) -> None:
        self.execute(
            ["DELETE FROM messages WHERE seq = ?", seq],
            [
                "DELETE FROM groups WHERE group_id = ?"
                " AND NOT EXISTS (SELECT 1 FROM messages WHERE group_id = ?)",
                group_id,
                group_id,
            ],
        )

    def nack(self, seq: int, delay: float = 0) -> None:
        locked_by, expiry = ("__parked__", self.now + delay) if delay else (None, 0)
        self.execute(
            [
                "UPDATE messages SET locked_by = ?, lock_expiry = ? WHERE seq = ?",
                locked_by,
                expiry,
                seq,
            ]
        )


@pytest.fixture
def seed(urls: list[str]) -> Iterator[SeedClient]:
    """A client of the seed on the same store, on the time of its leader."""
    client = SeedClient(urls[0], 0)
    [[client.now]] = client.query("SELECT (julianday('now') - 2440587.5) * 86400.0")
    yield client
    client.session.close()


def test_messages_that_the_seed_published_are_claimed_and_acked_by_us(
    urls: list[str], connect: Connect, seed: SeedClient
) -> None:
    seed.create()
    seed.publish("a", "1", priority=2)
    seed.publish("a", "2")
    ours = connect(urls)
    events = []
    while (lease := ours.claim("w", 30)) is not None:
        events.append((lease.group_id, lease.event))
        ours.ack(lease)
    assert events == [("a", "1"), ("a", "2")]
    assert seed.query("SELECT * FROM groups") == []


def test_messages_that_we_published_are_claimed_and_acked_by_the_seed(
    store: Any, seed: SeedClient
) -> None:
    store.publish("a", "1", priority=2)
    store.publish("a", "2")
    assert seed.claim("s", 30, min_priority=3) is None
    assert seed.claim("s", 30, min_priority=2) == (1, "a", "1")
    assert seed.claim("s", 30) is None
    seed.ack(1, "a")
    assert seed.claim("s", 30) == (2, "a", "2")
    seed.ack(2, "a")
    assert seed.query("SELECT * FROM groups") == []


def test_both_work_on_one_group_in_turn(store: Any, seed: SeedClient) -> None:
    events = []
    for number in range(4):
        (store if number % 2 else seed).publish("g", str(number))
    for number in range(4):
        if number in (0, 3):
            lease = store.claim("w", 30)
            assert seed.claim("s", 30) is None
            events.append(lease.event)
            store.ack(lease)
        else:
            seq, group_id, event = seed.claim("s", 30)
            assert store.claim("w", 30) is None
            events.append(event)
            seed.ack(seq, group_id)
    assert events == ["0", "1", "2", "3"]
    assert seed.query("SELECT count(*) FROM messages") == [[0]]


def test_each_frees_and_parks_for_the_other(store: Any, seed: SeedClient) -> None:
    store.publish("g", "1")
    seq, _, _ = seed.claim("s", 30)
    seed.nack(seq)
    lease = store.claim("w", 30)
    store.nack(lease, delay=60)
    assert seed.claim("s", 30) is None
    seed.now += 120
    assert seed.claim("s", 30) == (1, "g", "1")
    seed.nack(1, delay=600)
    assert store.claim("w", 30) is None


def test_a_lapsed_lease_of_ours_goes_to_the_seed_and_our_ack_is_fenced(
    store: Any, seed: SeedClient
) -> None:
    store.publish("g", "1")
    lease = store.claim("w", 30)
    seed.now += 60
    assert seed.claim("s", 30) == (1, "g", "1")
    with pytest.raises(LeaseExpired):
        store.ack(lease)
    assert seed.query("SELECT count(*) FROM messages") == [[1]]


def test_a_message_that_the_seed_removed_is_not_published_again(
    store: Any, seed: SeedClient
) -> None:
    store.publish("g", "1", publish_id="once")
    seq, group_id, _ = seed.claim("s", 30)
    seed.ack(seq, group_id)
    store.publish("g", "1", publish_id="once")
    assert seed.query("SELECT count(*) FROM messages") == [[0]]


def test_groups_take_turns_across_both(store: Any, seed: SeedClient) -> None:
    seed.publish("a", "a1")
    store.publish("a", "a2")
    store.publish("b", "b1")
    store.ack(store.claim("w", 30))
    seq, group_id, event = seed.claim("s", 30)
    assert event == "b1"
    seed.ack(seq, group_id)
    assert store.claim("w", 30).event == "a2"


def test_the_tables_stay_as_the_seed_wrote_them(store: Any, seed: SeedClient) -> None:
    columns = "SELECT name, type, \"notnull\", dflt_value, pk FROM pragma_table_info('{}')"
    assert seed.query(columns.format("messages")) == [
        ["seq", "INTEGER", 0, None, 1],
        ["group_id", "TEXT", 1, None, 0],
        ["event", "TEXT", 1, None, 0],
        ["locked_by", "TEXT", 0, None, 0],
        ["lock_expiry", "REAL", 0, None, 0],
        ["publish_id", "TEXT", 0, None, 0],
    ]
    assert seed.query(columns.format("groups")) == [
        ["group_id", "TEXT", 0, None, 1],
        ["last_claimed_at", "REAL", 1, "0.0", 0],
        ["priority", "INT", 1, "0", 0],
    ]


def test_opening_again_writes_nothing(cluster: FakeCluster, connect: Connect) -> None:
    connect(cluster.urls)
    cluster.seen.clear()
    connect(cluster.urls)
    assert cluster.applied("execute") == []


def test_two_clients_may_make_the_tables_at_once(cluster: FakeCluster, connect: Connect) -> None:
    connect(cluster.urls).publish("g", "1")
    made = cluster.applied("execute")[0].statements
    with FakeCluster(V8) as other:
        other.fail_next("drop", endpoint="execute", applied=True)
        connect(other.urls).publish("g", "1")
        assert other.applied("execute")[0].statements == made


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE TABLE messages (id INTEGER PRIMARY KEY, body TEXT)",
        "CREATE VIEW messages AS SELECT 1 AS seq",
        "CREATE TABLE groups (group_id TEXT PRIMARY KEY)",
        "CREATE TABLE localqueue_outcomes (id TEXT PRIMARY KEY)",
    ],
)
def test_tables_of_a_stranger_are_refused_and_left_alone(
    cluster: FakeCluster, connect: Connect, sql: str
) -> None:
    cluster.database.rows(sql)
    with pytest.raises(ForeignDatabase, match="lacks"):
        connect(cluster.urls)
    assert cluster.database.rows("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL") == [(sql,)]


def test_events_that_look_like_blobs_reach_the_seeds_reader(store: Any, seed: SeedClient) -> None:
    store.publish("g", "x'6869'")
    assert seed.claim("s", 30) == (1, "g", "x'6869'")


def test_a_transport_may_be_made_without_touching_the_network() -> None:
    from django_localqueue.transports.client import RqliteClient

    with RqliteTransport(RqliteClient("http://127.0.0.1:1")) as transport:
        assert transport.nodes()[0].requests == 0
