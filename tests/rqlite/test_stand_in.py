"""The stand-in answers as the real nodes do, so that the tests on it say something."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.fakes.rqlite import FakeCluster
from tests.fakes.versions import Version
from tests.rqlite.nodes import RealCluster

requests = pytest.importorskip("requests")
pytestmark = pytest.mark.rqlite

SETUP = [
    "DROP TABLE IF EXISTS t",
    "CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT UNIQUE, n REAL, b BLOB)",
    "INSERT INTO t (id, name, n) VALUES (7, 'seven', 1.5)",
]
INSERT = "INSERT INTO t (name) VALUES (?)"
UNIQUE = [INSERT, "seven"]
RETURNING = "INSERT INTO t (name) VALUES (?) RETURNING id, name"
UPDATE = "UPDATE t SET n = n + 1 WHERE name = 'seven'"

EXCHANGES: dict[str, tuple[str, Any]] = {
    "insert": ("execute", [[INSERT, "a"]]),
    "insert two, in a transaction": ("execute?transaction", [[INSERT, "a"], [INSERT, "b"]]),
    "a string and a list": ("execute", ["DELETE FROM t", [INSERT, "a"]]),
    "update nothing": ("execute", ["UPDATE t SET n = 1 WHERE id = 99"]),
    "create": ("execute", ["CREATE INDEX IF NOT EXISTS t_n ON t (n)"]),
    "a select run as a write": ("execute", ["SELECT * FROM t"]),
    "numbered parameters": ("execute", [["UPDATE t SET n = ?1 WHERE n < ?1", 2]]),
    "named parameters": ("query", [["SELECT :x AS x", {"x": 1}]]),
    "too few parameters": ("query", [["SELECT ?, ?", 1]]),
    "too many parameters": ("query", [["SELECT ?", 1, 2]]),
    "error, others follow": ("execute", [UNIQUE, [INSERT, "a"]]),
    "error in a transaction": ("execute?transaction", [[INSERT, "a"], UNIQUE, [INSERT, "b"]]),
    "no such table": ("execute?transaction", [[INSERT, "a"], "DELETE FROM nowhere"]),
    "request, error": ("request?transaction", [[INSERT, "a"], UNIQUE, [INSERT, "b"]]),
    "request, prepare error": (
        "request?transaction",
        [[INSERT, "a"], "DELETE FROM nowhere", [INSERT, "b"]],
    ),
    "request, read back": ("request?transaction", [UPDATE, "SELECT name, n FROM t"]),
    "insert from a select": (
        "execute?transaction",
        ["INSERT INTO t (id, name) SELECT 40 + id, 'b' FROM t WHERE name = 'seven'"],
    ),
    "insert nothing from a select": (
        "execute?transaction",
        [[INSERT, "a"], "INSERT INTO t (name) SELECT 'b' FROM t WHERE id = 99"],
    ),
    "changes of the statement before": (
        "execute?transaction",
        [UPDATE, "INSERT INTO t (id, n) SELECT 50, changes()"],
    ),
    "a null where none may be, after a change": (
        "execute?transaction",
        [
            "CREATE TABLE IF NOT EXISTS u (n INTEGER NOT NULL)",
            UPDATE,
            "INSERT INTO u VALUES (iif(changes() = 2, 1, NULL))",
            [INSERT, "b"],
        ],
    ),
    "rows as a document": (
        "execute?transaction",
        ["UPDATE t SET n = 3 WHERE id = 7 RETURNING name,json_array(id,n,b)"],
    ),
    "returning": ("execute", [[RETURNING, "a"]]),
    "returning nothing": ("execute", ["DELETE FROM t WHERE id = 99 RETURNING id"]),
    "returning, failed": ("execute?transaction", [[INSERT, "a"], [RETURNING, "seven"]]),
    "returning, failed, then more": (
        "execute?transaction",
        [[INSERT, "a"], [RETURNING, "seven"], [INSERT, "b"]],
    ),
    "returning on a new line": ("execute", [["INSERT INTO t (name) VALUES (?) RETURNING\nid", 1]]),
    "returning unparsed": (
        "execute",
        ["DELETE FROM t WHERE id IS NOT DISTINCT FROM 7 RETURNING id"],
    ),
    "returning, noparse": ("execute?noparse", [[RETURNING, "a"]]),
    "returning through request": ("request?transaction", [[RETURNING, "a"]]),
    "associative write": ("execute?associative", [[RETURNING, "a"]]),
    "select": ("query", ["SELECT id, name, n, b FROM t"]),
    "select, strong": ("query?level=strong", ["SELECT id, name, n, b FROM t"]),
    "select nothing": ("query", ["SELECT id FROM t WHERE id = 99"]),
    "select, associative": ("query?associative", ["SELECT id, n FROM t"]),
    "expressions": ("query", ["SELECT 1 AS i, 1.0 AS r, 0.5 AS h, 'x' AS s, NULL AS z"]),
    "write through query": ("query", ["DELETE FROM t"]),
    "text like a blob": (
        "query",
        [["SELECT typeof(?) AS v, typeof(? || ?) AS w", " x'6869' ", "x", "'68'"]],
    ),
    "bytes": ("query", [["SELECT typeof(?) AS t, hex(?) AS h", [104, 255], [104, 255]]]),
    "big integers": ("query", [["SELECT ? AS v, typeof(?) AS w", 2**63 - 1, 2**63]]),
    "booleans and null": ("query", [["SELECT ? AS u, ? AS v, ? AS w", True, False, None]]),
    "infinity": ("query", ["SELECT 9e999 AS v"]),
    "table information": ("query", ["SELECT name, type FROM pragma_table_info('t')"]),
    "no statements": ("execute", []),
    "no array": ("execute", {"a": 1}),
}


def described(answer: Any) -> tuple[int, Any]:
    """Return what a client may rely on: the status and the content, JSON or text."""
    text = answer.text.strip()
    if answer.status_code != 200:
        return answer.status_code, text
    content = json.loads(text)
    content.pop("time", None)
    return answer.status_code, content


@pytest.fixture
def stand_in(version: Version) -> Iterator[FakeCluster]:
    with FakeCluster(version, nodes=1) as cluster:
        yield cluster


@pytest.fixture
def session() -> Iterator[Any]:
    with requests.Session() as session:
        session.trust_env = False
        yield session


@pytest.mark.parametrize("name", EXCHANGES)
def test_the_stand_in_answers_as_a_real_node_and_leaves_the_same_rows(
    single: RealCluster, stand_in: FakeCluster, session: Any, name: str
) -> None:
    path, body = EXCHANGES[name]
    seen = []
    for url in (single.urls[0], stand_in.urls[0]):
        session.post(f"{url}/db/execute", json=SETUP).raise_for_status()
        answer = described(session.post(f"{url}/db/{path}", json=body))
        rows = session.post(f"{url}/db/query", json=["SELECT * FROM t ORDER BY id"]).json()
        seen.append((answer, rows["results"][0].get("values")))
    assert seen[1] == seen[0]


@pytest.mark.parametrize("raw", ["", "[", '[["SELECT ?", NaN]]', "<html>"])
def test_a_body_that_is_no_json_is_refused_alike(
    single: RealCluster, stand_in: FakeCluster, session: Any, raw: str
) -> None:
    answers = [
        described(session.post(f"{url}/db/execute", data=raw))
        for url in (single.urls[0], stand_in.urls[0])
    ]
    assert answers[1] == answers[0]


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/db/execute"), ("POST", "/db/nothing"), ("GET", "/readyz"), ("GET", "/nowhere")],
)
def test_other_paths_and_methods_are_answered_alike(
    single: RealCluster, stand_in: FakeCluster, session: Any, method: str, path: str
) -> None:
    real, ours = (session.request(method, url + path) for url in (single.urls[0], stand_in.urls[0]))
    assert (ours.status_code, ours.text) == (real.status_code, real.text)


def test_every_answer_tells_a_version(
    single: RealCluster, stand_in: FakeCluster, session: Any
) -> None:
    for url in (single.urls[0], stand_in.urls[0]):
        for path in ("/db/nothing", "/readyz", "/nowhere"):
            assert session.get(url + path).headers["X-RQLITE-VERSION"]


def test_nodes_are_described_alike(
    single: RealCluster, stand_in: FakeCluster, session: Any
) -> None:
    [real], [ours] = (
        session.get(f"{url}/nodes?ver=2&timeout=2s").json()["nodes"]
        for url in (single.urls[0], stand_in.urls[0])
    )
    assert set(ours) <= set(real)
    assert {type(value) for value in ours.values()} == {str, bool}
    assert (ours["reachable"], ours["leader"]) == (real["reachable"], real["leader"])


def test_a_follower_redirects_alike(triple: RealCluster, version: Version, session: Any) -> None:
    leader = triple.leader()
    follower = (leader + 1) % 3
    path = "/db/execute?transaction&redirect"
    real = triple.post(follower, path, ["SELECT 1"])
    with FakeCluster(version) as cluster:
        cluster.leader = leader
        ours = session.post(cluster.urls[follower] + path, json=["SELECT 1"], allow_redirects=False)
        assert ours.headers["Location"] == cluster.urls[leader] + path
    assert real.headers["Location"] == triple.urls[leader] + path
    assert (ours.status_code, ours.content) == (real.status_code, real.content)


def test_a_follower_forwards_alike(triple: RealCluster, version: Version, session: Any) -> None:
    leader = triple.leader()
    follower = (leader + 1) % 3
    real = triple.post(follower, "/db/query?level=strong", ["SELECT 1 AS one"])
    with FakeCluster(version) as cluster:
        cluster.leader = leader
        url = f"{cluster.urls[follower]}/db/query?level=strong"
        ours = session.post(url, json=["SELECT 1 AS one"])
    assert described(ours) == described(real)
    assert ours.headers.keys() & {"X-RQLITE-SERVED-BY"} == real.headers.keys() & {
        "X-RQLITE-SERVED-BY"
    }


def test_a_cluster_without_a_quorum_answers_alike(
    tmp_path_factory: pytest.TempPathFactory, version: Version, session: Any
) -> None:
    paths = ["/db/execute", "/db/execute?redirect", "/db/query?level=strong&redirect"]
    with RealCluster(tmp_path_factory.mktemp("quorum"), nodes=3) as real:
        survivor = (real.leader() + 1) % 3
        for index in range(3):
            if index != survivor:
                real.kill(index)
        answers = [_once_without_leader(real, survivor, path) for path in paths]
    with FakeCluster(version) as cluster:
        cluster.leader = None
        ours = [session.post(cluster.urls[0] + path, json=["SELECT 1"]) for path in paths]
    assert [described(answer) for answer in ours] == answers


def _once_without_leader(real: RealCluster, index: int, path: str) -> tuple[int, Any]:
    """Return the answer once the node has noticed that there is no leader."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        answer = described(real.post(index, path, ["SELECT 1"]))
        if answer[0] in (500, 503) and "leader" in str(answer[1]):
            return answer
        time.sleep(0.05)
    raise AssertionError(f"the node still answers {answer}")
