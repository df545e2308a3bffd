"""Refused arguments: a clear error, and nothing stored or changed."""

from __future__ import annotations

import datetime
import decimal
import enum
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from django_localqueue.backends.base import BaseQueue
from django_localqueue.exceptions import InvalidInput, PayloadTooLarge, SerializationError
from django_localqueue.types import JobFilter, Settle


class Colour(enum.Enum):
    RED = "red"


BAD_SECONDS = [-1, -0.001, float("nan"), float("inf"), -float("inf"), 1e12, "5", True]
BAD_TEXT = ["", "x" * 256, "nul \x00", "lone \ud800", 7, b"x"]

BAD_PUT: list[tuple[str, Any]] = [
    *[("delay", value) for value in BAD_SECONDS if value is not True],
    *[("priority", value) for value in (-101, 101, 1.5, "1", True, None)],
    *[("job_id", value) for value in BAD_TEXT],
    *[("group_id", value) for value in BAD_TEXT],
    *[("max_retries", value) for value in (-1, 1.5, "3", True)],
    *[("task", value) for value in ("", "x" * 1_001, 7)],
]


@pytest.mark.parametrize(("argument", "value"), BAD_PUT)
def test_put_refuses_and_names_the_argument(argument: str, value: Any, queue: BaseQueue) -> None:
    with pytest.raises(InvalidInput, match=argument):
        queue.put("data", **{argument: value})
    assert queue.stats().ready == 0


@pytest.mark.parametrize(
    "value",
    [
        *(float("nan"), float("inf"), (1, 2), {1}, b"x", {1: "int key"}, object()),
        *(datetime.datetime(2024, 1, 1), datetime.date(2024, 1, 1), datetime.timedelta(1)),
        *(decimal.Decimal("1.5"), uuid.UUID(int=7), Colour.RED),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_payload_that_json_would_change_is_refused_with_its_place(
    value: Any, queue: BaseQueue
) -> None:
    with pytest.raises(SerializationError, match=r"data\['rows'\]\[1\]"):
        queue.put({"rows": [0, value]})
    assert queue.stats().ready == 0


def test_a_payload_that_contains_itself_is_refused(queue: BaseQueue) -> None:
    knot: list[Any] = []
    knot.append(knot)
    with pytest.raises(SerializationError):
        queue.put(knot)


def test_a_payload_over_the_limit_is_refused(make_queue: Callable[..., BaseQueue]) -> None:
    queue = make_queue(max_payload_bytes=100)
    with pytest.raises(PayloadTooLarge, match=r"101 bytes.*100"):
        queue.put("x" * 99)  # and two quotes
    assert queue.stats().ready == 0


def test_a_payload_at_the_limit_is_taken(make_queue: Callable[..., BaseQueue]) -> None:
    queue = make_queue(max_payload_bytes=100)
    queue.put("x" * 98)
    assert queue.get_nowait().data == "x" * 98


def test_headers_that_are_not_json_are_refused(queue: BaseQueue) -> None:
    with pytest.raises(InvalidInput):
        queue.put("data", headers={"when": datetime.date(2024, 1, 1)})
    assert queue.stats().ready == 0


@pytest.mark.parametrize("timeout", BAD_SECONDS)
def test_get_refuses_a_bad_timeout(timeout: Any, queue: BaseQueue) -> None:
    queue.put("data")
    with pytest.raises(InvalidInput, match="timeout"):
        queue.get(timeout=timeout)
    assert queue.stats().processing == 0


@pytest.mark.parametrize("lease", [*BAD_SECONDS, 0, 0.0001])
def test_get_refuses_a_bad_lease(lease: Any, queue: BaseQueue) -> None:
    queue.put("data")
    with pytest.raises(InvalidInput, match="lease_seconds"):
        queue.get(lease_seconds=lease)
    assert queue.stats().processing == 0


@pytest.mark.parametrize("floor", [-101, 101, 0.5, "0"])
def test_get_refuses_a_bad_floor(floor: Any, queue: BaseQueue) -> None:
    queue.put("data")
    with pytest.raises(InvalidInput, match="min_priority"):
        queue.get(min_priority=floor)
    assert queue.stats().processing == 0


@pytest.mark.parametrize("n", [-1, 1.5, "1", True, 100_001])
def test_get_many_refuses_a_bad_number(n: Any, queue: BaseQueue) -> None:
    queue.put("data")
    with pytest.raises(InvalidInput, match="want"):
        queue.get_many(n)
    assert queue.stats().processing == 0


@pytest.mark.parametrize("seconds", [*BAD_SECONDS, 0])
def test_extend_lease_refuses_bad_seconds(seconds: Any, queue: BaseQueue) -> None:
    queue.put("data")
    job = queue.get_nowait()
    before = queue.lookup(job.id)
    with pytest.raises(InvalidInput):
        queue.extend_lease(job, seconds)
    assert queue.lookup(job.id) == before


@pytest.mark.parametrize("delay", [value for value in BAD_SECONDS if value is not True])
def test_nack_refuses_a_bad_delay(delay: Any, queue: BaseQueue) -> None:
    queue.put("data")
    job = queue.get_nowait()
    with pytest.raises(InvalidInput, match="delay"):
        queue.nack(job, delay=delay)
    assert queue.stats().processing == 1


@pytest.mark.parametrize("job", [None, "7", 7])
def test_a_verb_refuses_what_is_not_a_claimed_job(job: Any, queue: BaseQueue) -> None:
    with pytest.raises(InvalidInput):
        queue.ack(job)


def test_a_bad_settle_keeps_the_whole_exchange_out(queue: BaseQueue) -> None:
    queue.put_many([1, 2, 3])
    one, two = queue.get_many(2)
    with pytest.raises(InvalidInput):
        queue.exchange([Settle(one, "ack"), Settle(two, "nack", delay=-1)], 1)
    assert queue.stats().processing == 2


def test_a_verb_that_does_not_exist_is_refused(queue: BaseQueue) -> None:
    queue.put(1)
    job = queue.get_nowait()
    with pytest.raises(InvalidInput):
        queue.exchange([Settle(job, "acknowledge")], 0)  # type: ignore[arg-type]
    assert queue.stats().processing == 1


@pytest.mark.parametrize("result", [object(), float("nan")])
def test_a_result_that_is_not_json_is_refused_and_the_job_kept(
    result: Any, queue: BaseQueue
) -> None:
    queue.put("data")
    job = queue.get_nowait()
    with pytest.raises(SerializationError):
        queue.ack(job, result=result)
    queue.ack(job)


def test_a_result_over_the_limit_is_refused_and_the_job_kept(
    make_queue: Callable[..., BaseQueue],
) -> None:
    queue = make_queue(max_payload_bytes=100)
    queue.put("data")
    job = queue.get_nowait()
    with pytest.raises(PayloadTooLarge):
        queue.ack(job, result="x" * 99)
    queue.ack(job)


@pytest.mark.parametrize("older_than", BAD_SECONDS)
def test_purge_refuses_a_bad_age(older_than: Any, queue: BaseQueue) -> None:
    with pytest.raises(InvalidInput, match="older_than"):
        queue.purge(older_than)


@pytest.mark.parametrize(
    ("action", "state"),
    [("retry", "acked"), ("purge", "ready"), ("discard", "acked"), ("destroy", "failed")],
)
def test_apply_refuses_an_action_that_does_not_suit_the_state(
    action: Any, state: Any, queue: BaseQueue
) -> None:
    with pytest.raises(InvalidInput):
        queue.apply(action, JobFilter(state=state))


def test_list_refuses_a_state_that_does_not_exist(queue: BaseQueue) -> None:
    with pytest.raises(InvalidInput, match="done"):
        queue.list(JobFilter(state="done"))  # type: ignore[arg-type]


@pytest.mark.parametrize("limit", [0, -1, 1_001, 1.5])
def test_list_refuses_a_bad_limit(limit: Any, queue: BaseQueue) -> None:
    with pytest.raises(InvalidInput, match="limit"):
        queue.list(limit=limit)


@pytest.mark.parametrize(
    "options",
    [
        *({"name": ""}, {"name": "x" * 256}, {"name": "\x00"}, {"lease_seconds": 0}),
        *({"lease_seconds": -1}, {"lease_seconds": float("nan")}, {"max_retries": -1}),
        *({"max_retries": None}, {"max_payload_bytes": 0}, {"retention_seconds": -1}),
    ],
    ids=str,
)
def test_a_queue_refuses_bad_options(
    options: dict[str, Any], make_queue: Callable[..., BaseQueue]
) -> None:
    with pytest.raises(InvalidInput):
        make_queue(**options)
