"""The conversation with a cluster, without any I/O: replies in, requests and outcomes out."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from django_localqueue.exceptions import InvalidInput, NotStored, OutcomeUnknown
from django_localqueue.transports import errors
from django_localqueue.transports.answers import Answer, Broken
from django_localqueue.transports.cluster import Cluster, Pause, Request, Timeouts
from django_localqueue.transports.nodes import parse_location

URLS = ["http://a:4001", "http://b:4001", "http://c:4001"]
RQLITE = {"x-rqlite-version": "10.2.7"}
NO_LEADER = Answer(503, RQLITE, b"leader not found\n")
REFUSED = Broken(False, "no connection (refused)")
LOST = Broken(True, "no answer within the timeout")


def answer(value: Any, version: str = "10.2.7", status: int = 200) -> Answer:
    return Answer(status, {"x-rqlite-version": version}, json.dumps(value).encode())


def error(text: str, version: str = "10.2.7") -> Answer:
    return answer({"results": [], "error": text}, version)


def moved(location: str) -> Answer:
    return Answer(301, {**RQLITE, "location": location}, b"")


DONE = answer({"results": [{"rows_affected": 1}]})


@dataclass
class Talk:
    """Answers each request from a list and lets time pass as pauses say."""

    replies: list[Answer | Broken | Callable[[Request], Answer | Broken]]
    seconds_each: float = 0.0
    urls: list[str] = field(default_factory=lambda: list(URLS))
    requests: list[Request] = field(default_factory=list)
    pauses: list[float] = field(default_factory=list)
    now: float = 100.0

    def __post_init__(self) -> None:
        nodes, login = parse_location(self.urls)
        self.cluster = Cluster(
            nodes, login, Timeouts(1, 2, 20), lambda: self.now, lambda low, high: high
        )

    def write(self, *statements: list[Any], repeatable: bool = True, request: bool = False) -> Any:
        verb = self.cluster.request if request else self.cluster.execute
        return self.run(verb(statements or [["INSERT"]], repeatable=repeatable))

    def read(self, level: Any = "strong") -> Any:
        return self.run(self.cluster.query([["SELECT 1"]], level=level))

    def run(self, steps: Any) -> Any:
        reply = None
        while True:
            try:
                step = steps.send(reply)
            except StopIteration as end:
                return end.value
            if isinstance(step, Pause):
                self.pauses.append(step.seconds)
                self.now += step.seconds
                reply = None
                continue
            self.requests.append(step)
            self.now += self.seconds_each
            last = len(self.replies) == 1
            reply = self.replies[0] if last else self.replies.pop(0)
            if callable(reply):
                reply = reply(step)

    def hosts(self) -> list[str]:
        return [request.url.split("/")[2][0] for request in self.requests]


def test_a_write_is_one_transaction_sent_to_the_leader_only() -> None:
    talk = Talk([answer({"results": [{"rows_affected": 1}, {}]})])
    statements = [["INSERT INTO t VALUES (?)", 1], ["DELETE FROM t"]]
    result, _ = talk.run(talk.cluster.execute(statements, repeatable=False))
    assert result.rows_affected == 1
    [request] = talk.requests
    assert request.url == "http://a:4001/db/execute?transaction&redirect"
    assert json.loads(request.body) == statements


def test_one_statement_is_a_transaction_by_itself() -> None:
    talk = Talk([DONE])
    talk.write(["INSERT INTO t VALUES (?)", 1])
    assert talk.requests[0].url == "http://a:4001/db/execute?redirect"


def test_missing_keys_mean_zero_and_no_rows() -> None:
    [result] = Talk([answer({"results": [{}]})]).write()
    assert (result.rows_affected, result.last_insert_id, result.rows) == (0, 0, ())


def test_a_redirect_is_posted_again_to_the_leader_and_remembered() -> None:
    talk = Talk([moved("http://b:4001/db/execute?transaction&redirect"), DONE])
    talk.write()
    talk.write()
    assert talk.hosts() == ["a", "b", "b"]
    assert talk.requests[1].body == talk.requests[0].body
    assert talk.pauses == []


@pytest.mark.parametrize(
    "location",
    [
        "http://evil:4001/db/execute",
        "https://b:4001/db/execute",
        "http://b:4002/db/execute",
        "http://b:4001@evil:4001/db/execute",
        "ftp://b:4001/",
        "/db/execute",
        "http://[b",
    ],
)
def test_a_redirect_to_another_address_is_never_followed(location: str) -> None:
    talk = Talk([moved(location)])
    with pytest.raises(NotStored, match="none of the configured nodes"):
        talk.write(repeatable=False)
    assert talk.hosts() == ["a", "b", "c"]


def test_a_repeatable_write_is_forwarded_when_the_leader_cannot_be_addressed() -> None:
    strange = moved("http://10.0.0.7:4001/db/execute")
    talk = Talk([strange, strange, strange, DONE])
    talk.write()
    talk.write()
    assert ["redirect" in request.url for request in talk.requests] == [True] * 3 + [False] * 2


def test_what_a_version_10_node_says_of_a_forwarded_write_is_never_a_no() -> None:
    strange = moved("http://10.0.0.7:4001/db/execute")
    talk = Talk([strange, strange, strange, error("not leader")])
    with pytest.raises(OutcomeUnknown, match="not leader"):
        talk.write()


def test_a_redirect_of_something_else_than_rqlite_is_told_once_for_each_node() -> None:
    talk = Talk([Answer(301, {"location": "https://u:secret@a/db/execute"}, b"")])
    with pytest.raises(errors.NotRqlite, match="'https://a'"):
        talk.write()
    assert talk.hosts() == ["a", "b", "c"]


def test_a_node_that_redirects_a_request_to_forward_is_not_asked_again_and_again() -> None:
    talk = Talk([moved("http://10.0.0.7:4001/db/execute")])
    with pytest.raises(errors.NotRqlite):
        talk.write()
    assert len(talk.requests) == 6


def test_a_deadline_of_nothing_still_sends_once() -> None:
    talk = Talk([NO_LEADER])
    with pytest.raises(errors.ClusterUnavailable):
        talk.run(talk.cluster.query([["SELECT 1"]], total=0))
    assert len(talk.requests) == 1


def test_redirects_in_circles_end_at_the_deadline_with_pauses_between() -> None:
    def circle(request: Request) -> Answer:
        host = {"a": "b", "b": "a", "c": "a"}[request.url.split("/")[2][0]]
        return moved(f"http://{host}:4001/db/execute")

    talk = Talk([circle])
    with pytest.raises(errors.ClusterUnavailable, match="redirect"):
        talk.write(repeatable=False)
    assert len(talk.requests) <= 4 * (len(talk.pauses) + 1)


def test_a_redirect_to_the_node_that_just_failed_waits_for_an_election() -> None:
    talk = Talk([DONE, REFUSED, moved("http://a:4001/x"), moved("http://c:4001/x"), DONE])
    talk.write()
    talk.write()
    assert (talk.hosts(), talk.pauses) == (["a", "a", "b", "b", "c"], [0.05])


def test_nodes_without_a_leader_are_asked_again_until_the_deadline() -> None:
    talk = Talk([NO_LEADER])
    with pytest.raises(errors.ClusterUnavailable, match=r"http://.:4001: leader not found"):
        talk.write()
    assert talk.now == pytest.approx(120, abs=0.11)
    assert set(talk.hosts()) == {"a", "b", "c"}


def test_pauses_grow_to_a_bound() -> None:
    talk = Talk([NO_LEADER])
    with pytest.raises(errors.ClusterUnavailable):
        talk.write()
    assert talk.pauses[:6] == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0]
    assert max(talk.pauses) == 1.0


def test_a_cluster_may_be_waited_for_as_long_as_one_likes() -> None:
    talk = Talk([NO_LEADER])
    with pytest.raises(errors.ClusterUnavailable):
        talk.run(talk.cluster.query([["SELECT 1"]], total=5000))
    assert len(talk.pauses) > 4000


def test_timeouts_shrink_to_what_is_left_of_the_total() -> None:
    talk = Talk([LOST], seconds_each=7)
    with pytest.raises(OutcomeUnknown):
        talk.write()
    assert [round(request.read_timeout, 1) for request in talk.requests] == [2, 2, 2]
    talk = Talk([LOST], seconds_each=9.5)
    with pytest.raises(OutcomeUnknown):
        talk.write()
    assert talk.requests[-1].read_timeout == pytest.approx(1.0)


def test_a_refused_connection_moves_on_without_a_pause() -> None:
    talk = Talk([REFUSED, DONE])
    talk.write(repeatable=False)
    assert (talk.hosts(), talk.pauses) == (["a", "b"], [])


def test_a_node_that_failed_is_asked_last() -> None:
    talk = Talk([REFUSED, DONE, REFUSED, DONE])
    talk.write()
    talk.write()
    assert talk.hosts() == ["a", "b", "b", "c"]


def test_a_write_that_may_not_repeat_is_not_sent_again_after_an_unknown_outcome() -> None:
    talk = Talk([LOST])
    with pytest.raises(OutcomeUnknown, match="cannot be known"):
        talk.write(repeatable=False)
    assert len(talk.requests) == 1


def test_a_repeatable_write_is_sent_again_after_an_unknown_outcome() -> None:
    talk = Talk([LOST, DONE])
    talk.write()
    assert len(talk.requests) == 2
    assert talk.requests[0].body == talk.requests[1].body


def test_a_later_no_does_not_hide_an_earlier_unknown() -> None:
    talk = Talk([LOST, REFUSED])
    with pytest.raises(OutcomeUnknown):
        talk.write()


def test_a_read_whose_answers_are_lost_changed_nothing() -> None:
    with pytest.raises(errors.ClusterUnavailable):
        Talk([LOST]).read()


@pytest.mark.parametrize(
    "text",
    [
        "leadership lost while committing log",
        "raft is already shutdown",
        "snapshot restored while committing log",
        "read protobuf length: EOF",
        "write tcp: broken pipe",
        "something nobody has seen yet",
    ],
)
def test_errors_that_leave_the_outcome_open(text: str) -> None:
    with pytest.raises(OutcomeUnknown, match=text):
        Talk([error(text)]).write(repeatable=False)


@pytest.mark.parametrize(
    "text",
    [
        "not leader",
        "leadership transfer in progress",
        "timed out enqueuing operation",
        "store not open",
        "store not ready",
    ],
)
def test_errors_of_the_leader_that_mean_not_applied_are_tried_again(text: str) -> None:
    talk = Talk([error(text), DONE])
    talk.write(repeatable=False)
    assert len(talk.requests) == 2


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (503, b"leader not found\n"),
        (500, b"leader not found\n"),
        (500, b"leader address: leader not found\n"),
    ],
)
def test_no_leader_is_told_by_its_text_not_by_the_status(status: int, body: bytes) -> None:
    talk = Talk([Answer(status, RQLITE, body), DONE])
    talk.write(repeatable=False)
    assert len(talk.requests) == 2


def test_an_error_of_the_whole_request_counts_more_than_results() -> None:
    reply = answer({"results": [{"rows_affected": 1}], "error": "leadership lost"})
    with pytest.raises(OutcomeUnknown, match="leadership lost"):
        Talk([reply]).write(repeatable=False)


@pytest.mark.parametrize("results", [[], [{}, {}], ["x"], [None]])
def test_results_of_the_wrong_number_or_kind_leave_the_outcome_open(results: list[Any]) -> None:
    with pytest.raises(OutcomeUnknown):
        Talk([answer({"results": results})]).write(repeatable=False)


@pytest.mark.parametrize(
    "body", [b"", b"[]", b'{"results":[{"rows', b"null", b"<html>", b"\xff", b"[" * 100_000]
)
def test_an_answer_that_is_not_whole_leaves_the_outcome_open(body: bytes) -> None:
    with pytest.raises(OutcomeUnknown):
        Talk([Answer(200, RQLITE, body)]).write(repeatable=False)


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (Answer(401, RQLITE, b""), errors.AccessRefused),
        (Answer(400, RQLITE, b"invalid JSON body"), errors.RequestRefused),
        (Answer(405, RQLITE, b""), errors.RequestRefused),
        (error("disallowed pragma"), errors.RequestRefused),
        (answer({"results": [{"error": "UNIQUE constraint failed"}]}), errors.ConstraintFailed),
        (answer({"results": [{"error": "no such table: t"}]}), errors.TableMissing),
        (Answer(500, RQLITE, b"json: unsupported value: +Inf"), errors.AppliedUnread),
    ],
)
def test_what_waiting_cannot_mend_is_raised_at_once(
    reply: Answer, expected: type[Exception]
) -> None:
    talk = Talk([reply])
    with pytest.raises(expected, match="http://a:4001"):
        talk.write()
    assert len(talk.requests) == 1


def test_a_stranger_on_every_port_is_not_rqlite_and_not_asked_twice() -> None:
    talk = Talk([Answer(404, {"server": "nginx"}, b"<html>not found</html>")])
    with pytest.raises(errors.NotRqlite, match="not found"):
        talk.write()
    assert talk.hosts() == ["a", "b", "c"]


def test_a_stranger_on_one_port_does_not_stop_the_others() -> None:
    talk = Talk([Answer(404, {}, b"<html>"), DONE])
    talk.write()
    assert talk.hosts() == ["a", "b"]


TWO = (["INSERT 1"], ["INSERT 2"])
FAILED = {"error": "no such table: t"}


@pytest.mark.parametrize(
    ("request_endpoint", "version", "results", "expected"),
    [
        (False, "10.2.7", [FAILED], errors.TableMissing),
        (False, "10.2.7", [{}, FAILED], errors.TableMissing),
        (True, "10.2.7", [FAILED, {}], errors.PartlyApplied),
        (True, "10.2.7", [{}, FAILED], errors.PartlyApplied),
        (True, "10.2.7", [FAILED], errors.TableMissing),
    ],
)
def test_a_failed_statement_tells_whether_the_others_were_rolled_back(
    request_endpoint: bool, version: str, results: list[Any], expected: type[Exception]
) -> None:
    talk = Talk([answer({"results": results}, version)])
    with pytest.raises(expected):
        talk.write(*TWO, request=request_endpoint)


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("8.43.4", errors.PartlyApplied),
        ("9.4.1", errors.PartlyApplied),
        ("9.4.2", errors.ConstraintFailed),
        ("v10.2.7", errors.ConstraintFailed),
        ("10", errors.PartlyApplied),
    ],
)
def test_a_failed_returning_is_not_trusted_to_roll_back_before_9_4_2(
    version: str, expected: type[Exception]
) -> None:
    results = [{"rows_affected": 1}, {"error": "UNIQUE constraint failed: t.id"}]
    talk = Talk([answer({"results": results}, version)])
    with pytest.raises(expected):
        talk.write(["INSERT 1"], ["INSERT 2 RETURNING id"])


def test_a_returning_without_rows_is_applied_but_unread() -> None:
    with pytest.raises(errors.AppliedUnread):
        Talk([DONE]).write(["INSERT INTO t VALUES (1) RETURNING id"])


def test_a_returning_that_rqlite_would_not_see_is_refused() -> None:
    with pytest.raises(InvalidInput, match="RETURNING"):
        Talk([DONE]).write(["INSERT INTO t VALUES (1) RETURNING\nid"])


def test_a_local_read_takes_any_node_and_makes_none_the_leader() -> None:
    talk = Talk([answer({"results": [{"columns": ["1"], "values": [[1]]}]})])
    talk.read(level="none")
    assert talk.requests[0].url == "http://a:4001/db/query?level=none"
    assert not any(node.leader for node in talk.cluster.nodes.facts())


def test_the_facts_tell_who_leads_and_what_failed() -> None:
    talk = Talk([REFUSED, DONE], seconds_each=0.25)
    talk.write()
    first, second, _ = talk.cluster.nodes.facts()
    assert (first.failures, first.last_error, first.leader) == (1, REFUSED.text, False)
    assert (second.leader, second.version, second.latency) == (True, "10.2.7", 0.25)


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), "2", True, None])
def test_a_timeout_must_be_a_number_of_seconds(value: Any) -> None:
    with pytest.raises(InvalidInput, match="read"):
        Timeouts(read=value)
