"""What every statement must be, so that all replicas come to the same rows; and the clock."""

from __future__ import annotations

import re
from typing import Any

import pytest

from django_localqueue.transports import RqliteTransport
from django_localqueue.transports.answers import Answer
from django_localqueue.transports.clock import LeaderClock
from django_localqueue.transports.cluster import Cluster
from django_localqueue.transports.nodes import parse_location
from tests.fakes.rqlite import FakeCluster

# Evaluated by each replica for itself, or rendered anew by rqlite.
FORBIDDEN = re.compile(
    r"\b(random|randomblob|datetime|date|time|julianday|unixepoch|strftime|timediff)\s*\("
    r"|current_(time|date|timestamp)|'now'|\breturning\b|\bpragma\b",
    re.IGNORECASE,
)


def test_no_write_depends_on_a_clock_or_on_chance() -> None:
    pytest.importorskip("requests")
    with FakeCluster() as cluster, RqliteTransport.from_url(cluster.urls) as transport:
        for _ in range(2):
            transport.publish("g", "1")
        lease = transport.claim("w", 30)
        assert lease is not None
        transport.extend(lease, 60)
        transport.nack(lease)
        again = transport.claim("w", 30)
        assert again is not None
        transport.ack(again)
    writes = [seen for seen in cluster.seen if seen.endpoint != "query"]
    assert len(writes) == 8
    for seen in writes:
        assert "redirect" in seen.options
        assert ("transaction" in seen.options) == (len(seen.statements) > 1)
        assert "db_timeout" not in seen.options
        for sql, *_ in seen.statements:
            assert FORBIDDEN.search(sql) is None, sql


class Times:
    """A leader's clock and a local one, set by the test, and how often the first was read."""

    def __init__(self) -> None:
        self.leader_us = 1_000_000_000
        self.local = 50.0
        self.readings = 0
        self.slow: list[float] = []  # how long the next readings take; the usual time after that
        nodes, _ = parse_location(["http://a:1", "http://b:1"])
        self.cluster = Cluster(nodes, None)
        self.clock = LeaderClock(self.cluster, lambda: self.local)

    def now(self) -> int:
        steps: Any = self.clock.now()
        reply = None
        try:
            while True:
                request = steps.send(reply)
                assert "level=weak" in request.url
                self.readings += 1
                took = self.slow.pop(0) if self.slow else 0.02
                self.local += took
                # A leader that was waited for tells its time at the end.
                self.leader_us += round(took * 1_000_000)
                body = b'{"results":[{"columns":["t"],"values":[[%d]]}]}' % self.leader_us
                reply = Answer(200, {"x-rqlite-version": "10.2.7"}, body)
        except StopIteration as end:
            return int(end.value)


def test_the_time_is_the_leaders_within_half_the_reading() -> None:
    times = Times()
    assert abs(times.now() - times.leader_us) <= 10_000


def test_a_reading_that_waited_for_an_election_does_not_count() -> None:
    times = Times()
    times.slow = [3.0, 0.3]
    assert abs(times.now() - times.leader_us) <= 10_000
    assert times.readings == 3


def test_of_slow_readings_the_quickest_counts() -> None:
    times = Times()
    times.slow = [3.0, 0.2, 5.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    assert abs(times.now() - times.leader_us) <= 100_000


def test_a_reading_is_carried_forward_for_a_minute() -> None:
    times = Times()
    first = times.now()
    times.local += 59
    assert times.now() == first + 59_000_000
    assert times.readings == 1
    times.local += 2
    times.now()
    assert times.readings == 2


def test_a_new_leaders_clock_is_read_at_once() -> None:
    times = Times()
    times.now()
    times.cluster.nodes.leader = times.cluster.nodes.all[1]
    times.leader_us += 5_000_000
    assert abs(times.now() - times.leader_us) <= 10_000
    assert times.readings == 2
