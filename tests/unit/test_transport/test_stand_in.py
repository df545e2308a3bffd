"""That the stand-in really misbehaves as it is told: else the tests on it would say nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.fakes.rqlite import FakeCluster, User
from tests.fakes.versions import V8, V9, V10, Version

requests = pytest.importorskip("requests")

INSERT = [["INSERT INTO t VALUES (?)", 1]]


@pytest.fixture
def session() -> Iterator[Any]:
    with requests.Session() as session:
        session.trust_env = False
        yield session


@pytest.fixture
def table(cluster: FakeCluster) -> FakeCluster:
    cluster.database.rows("CREATE TABLE t (n)")
    return cluster


def post(session: Any, cluster: FakeCluster, node: int = 0, options: str = "") -> Any:
    url = f"{cluster.urls[node]}/db/execute{options}"
    return session.post(url, json=INSERT, allow_redirects=False, timeout=10)


def rows(cluster: FakeCluster) -> int:
    return len(cluster.database.rows("SELECT * FROM t"))


def test_only_a_version_10_follower_applies_a_lost_forward_twice(
    table: FakeCluster, session: Any
) -> None:
    table.fail_next("lose-forwarded")
    answer = post(session, table, node=1).json()
    if table.version is V10:
        assert (rows(table), answer["results"][0]["rows_affected"]) == (2, 1)
    else:
        assert rows(table) == 1
        assert "i/o timeout" in answer["error"]


@pytest.mark.parametrize("applied", [True, False])
def test_a_dropped_request_is_applied_or_not_as_told(
    table: FakeCluster, session: Any, applied: bool
) -> None:
    table.fail_next("drop", applied=applied)
    with pytest.raises(requests.ConnectionError):
        post(session, table)
    assert rows(table) == applied
    assert post(session, table).status_code == 200


@pytest.mark.parametrize("applied", [True, False])
def test_an_error_within_status_200_is_applied_or_not_as_told(
    table: FakeCluster, session: Any, applied: bool
) -> None:
    table.fail_next("error", text="leadership lost", applied=applied)
    assert post(session, table).json() == {"results": [], "error": "leadership lost"}
    assert rows(table) == applied


def test_a_cut_answer_is_no_json(table: FakeCluster, session: Any) -> None:
    table.fail_next("truncate", applied=True)
    with pytest.raises(ValueError, match=r"Expecting|Unterminated|delimiter"):
        post(session, table).json()
    assert rows(table) == 1


def test_a_dead_leader_is_still_named_until_another_is_elected(
    table: FakeCluster, session: Any
) -> None:
    table.stop(0)
    redirect = post(session, table, node=1, options="?redirect")
    assert redirect.headers["Location"].startswith(table.urls[0])
    refused = post(session, table, node=1).json()["error"]
    assert refused.startswith("node failed to process") == (table.version is V8)
    assert "connection refused" in refused
    table.leader = 1
    assert post(session, table, node=1).status_code == 200


@pytest.mark.parametrize(("version", "status"), [(V8, 500), (V9, 503), (V10, 503)])
def test_no_leader_has_another_status_in_each_version(
    session: Any, version: Version, status: int
) -> None:
    with FakeCluster(version) as cluster:
        cluster.leader = None
        assert post(session, cluster).status_code == status
        assert post(session, cluster, options="?redirect").status_code == 500
        assert session.get(f"{cluster.urls[0]}/readyz").status_code == 500


@pytest.mark.parametrize(("version", "asks"), [(V8, False), (V10, True)])
def test_a_refused_login_has_an_empty_body(session: Any, version: Version, asks: bool) -> None:
    with FakeCluster(version, users={"a": User("b")}) as cluster:
        answer = post(session, cluster)
    assert (answer.status_code, answer.content) == (401, b"")
    assert ("WWW-Authenticate" in answer.headers) is asks
