"""Payloads: given back exactly, or kept as a dead letter where they can't be read."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import pytest

from django_localqueue.backends.base import BaseQueue
from tests.contract.backends import Backend
from tests.contract.helpers import data, empty, record

VALUES: dict[str, Any] = {
    "none": None,
    "true": True,
    "false": False,
    "zero": 0,
    "empty text": "",
    "empty list": [],
    "empty dict": {},
    "2**53+1": 2**53 + 1,
    "2**63": 2**63,
    "-2**63-1": -(2**63) - 1,
    "10**400": 10**400,
    "1e308": 1e308,
    "5e-324": 5e-324,
    "0.1": 0.1,
    "text": "plain",
    "accents": "caf\u00e9 cafe\u0301",
    "emoji": "\N{GRINNING FACE}",
    "right to left": "\u05d0\u05d1",
    "nul": "a\x00b",
    "lone surrogate": "a\ud800b",
    "line separators": "\u2028\u2029\x85\r\n",
    "quotes": "\"'\\`;--",
    "odd keys": {"": 1, "a.b": 2, "\x00": 3, "\ud800": 4},
    "nested": {"a": [1, [2, {"b": [None, True, {"c": "d"}]}]]},
    "deep": json.loads("[" * 100 + "]" * 100),
    "large": ["x" * 1_000] * 500,
}


@pytest.mark.parametrize("name", VALUES)
def test_a_payload_comes_back_exactly(name: str, queue: BaseQueue) -> None:
    value = VALUES[name]
    queue.put(value)
    back = queue.get_nowait().data
    assert back == value
    assert type(back) is type(value)


def test_a_negative_zero_keeps_its_sign(queue: BaseQueue) -> None:
    queue.put(-0.0)
    assert math.copysign(1, queue.get_nowait().data) == -1


def test_a_payload_survives_every_way_back(queue: BaseQueue) -> None:
    id = queue.put(VALUES["nested"])
    queue.nack(queue.get_nowait())
    queue.release(queue.get_nowait())
    queue.fail(queue.get_nowait())
    queue.retry_failed(id)
    assert queue.get_nowait().data == VALUES["nested"]


class Bytes:
    """A serializer that takes bytes as they are."""

    def dumps(self, data: bytes) -> bytes:
        return data

    def loads(self, payload: bytes) -> bytes:
        return payload


class Fragile(Bytes):
    def loads(self, payload: bytes) -> bytes:
        if payload == b"bad":
            raise ZeroDivisionError("loads broke")
        return payload


def test_a_serializer_of_ones_own_is_used(make_queue: Callable[..., BaseQueue]) -> None:
    queue = make_queue(serializer=Bytes())
    every_byte = bytes(range(256)) * 10
    id = queue.put(every_byte)
    assert record(queue, id).payload == every_byte
    assert queue.get_nowait().data == every_byte


class TestUndecodable:
    @pytest.mark.parametrize(
        "raw", [b"", b"{", b"\xff\xfe", b'{"n": 1', b"not json", b"\x00" * 10, b"[" * 5_000]
    )
    def test_it_becomes_a_dead_letter_with_its_raw_bytes(
        self, raw: bytes, queue: BaseQueue, backend: Backend
    ) -> None:
        id = queue.put("soon broken")
        queue.put("good")
        backend.corrupt_payload(queue, id, raw)
        assert queue.get_nowait().data == "good"
        dead = record(queue, id)
        assert (dead.state, dead.reason, dead.payload) == ("failed", "undecodable", raw)
        assert dead.error is not None
        assert dead.error.message

    def test_a_batch_goes_on_without_it(self, queue: BaseQueue, backend: Backend) -> None:
        ids = queue.put_many(range(5))
        backend.corrupt_payload(queue, ids[2], b"{")
        seen: list[int] = []
        while jobs := queue.get_many(3):
            seen += data(jobs)
        assert seen == [0, 1, 3, 4]
        assert [dead.id for dead in queue.list_failed()] == [ids[2]]

    def test_alone_in_the_queue_it_leaves_it_empty(
        self, queue: BaseQueue, backend: Backend
    ) -> None:
        id = queue.put(1)
        backend.corrupt_payload(queue, id, b"{")
        assert empty(queue)
        stats = queue.stats()
        assert (stats.ready, stats.processing, stats.failed) == (0, 0, 1)

    def test_its_group_goes_on(self, queue: BaseQueue, backend: Backend) -> None:
        id = queue.put("lead", group_id="g")
        queue.put("follower", group_id="g")
        backend.corrupt_payload(queue, id, b"{")
        assert queue.get_nowait().data == "follower"

    def test_whatever_the_serializer_raises_is_taken_so(
        self, make_queue: Callable[..., BaseQueue]
    ) -> None:
        queue = make_queue(serializer=Fragile())
        id = queue.put(b"bad")
        queue.put(b"good")
        assert queue.get_nowait().data == b"good"
        dead = record(queue, id)
        assert (dead.reason, dead.payload) == ("undecodable", b"bad")
        assert dead.error is not None
        assert "loads broke" in dead.error.traceback + dead.error.message

    def test_retried_after_a_mend_it_is_delivered(self, queue: BaseQueue, backend: Backend) -> None:
        id = queue.put(1)
        backend.corrupt_payload(queue, id, b"{")
        assert empty(queue)
        backend.corrupt_payload(queue, id, b"[2]")
        queue.retry_failed(id)
        assert queue.get_nowait().data == [2]

    def test_every_source_decodes_with_its_own_serializer(
        self, make_queue: Callable[..., BaseQueue]
    ) -> None:
        raw, plain = make_queue("raw", serializer=Bytes()), make_queue("plain")
        raw.put(b"\xff")
        plain.put({"n": 1})
        jobs = plain.exchange([], 5, sources=[raw, plain]).jobs
        assert data(jobs) == [b"\xff", {"n": 1}]
