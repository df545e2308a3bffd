"""What a worker says of a running job, and what a person changes of one that waits or failed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from django_localqueue.backends.base import BaseQueue
from django_localqueue.exceptions import InvalidInput, JobNotFound, PayloadTooLarge
from django_localqueue.types import Progress
from tests.contract.backends import Backend, Clock
from tests.contract.helpers import lost, record, with_receipt


class TestProgress:
    def test_the_last_word_is_kept(self, queue: BaseQueue, clock: Clock) -> None:
        id = queue.put(1)
        job = queue.get_nowait()
        assert record(queue, id).progress is None
        assert queue.progress(job, 1, 10)
        clock.advance(1)
        assert job.progress(2.5, note="half of <it>")
        assert record(queue, id).progress == Progress(2.5, None, "half of <it>", 1, clock.now())
        queue.ack(job)
        assert record(queue, id).progress == Progress(2.5, None, "half of <it>", 1, clock.now())

    def test_it_says_whether_to_stop(self, queue: BaseQueue) -> None:
        job = queue.get_nowait() if queue.put(1) else None
        assert job is not None
        assert queue.progress(job, 1)
        queue.cancel(job.id)
        assert not queue.progress(job, 2)
        found = record(queue, job.id)
        assert found.progress is not None
        assert found.progress.done == 2

    def test_only_the_live_receipt_may(self, queue: BaseQueue, clock: Clock) -> None:
        queue.put(1)
        job = queue.get_nowait()
        with lost("unknown"):
            queue.progress(with_receipt(job, "0123456789abcdef"), 1)
        clock.advance(61)
        with lost("expired"):
            queue.progress(job, 1)
        again = queue.get_nowait()
        queue.ack(again)
        with lost("settled"):
            queue.progress(again, 1)
        assert record(queue, job.id).progress is None

    def test_it_does_not_renew_the_lease(self, queue: BaseQueue, clock: Clock) -> None:
        queue.put(1)
        job = queue.get_nowait()
        clock.advance(59)
        queue.progress(job, 1)
        clock.advance(2)
        assert queue.get_nowait().attempts == 2

    @pytest.mark.parametrize(
        "arguments",
        [
            (-1,),
            ("1",),
            (float("nan"),),
            (True,),
            (1, -1),
            (1, "x"),
            (1, 2, "n" * 1_001),
            (1, 2, 3),
        ],
    )
    def test_bad_input_is_refused(self, queue: BaseQueue, arguments: tuple[Any, ...]) -> None:
        queue.put(1)
        job = queue.get_nowait()
        with pytest.raises(InvalidInput):
            queue.progress(job, *arguments)
        assert record(queue, job.id).progress is None


class TestEdit:
    def test_a_waiting_job_gets_another_payload_and_its_first_is_kept(
        self, queue: BaseQueue
    ) -> None:
        id = queue.put({"n": 1})
        assert record(queue, id).original_payload is None
        assert queue.edit(id, {"n": 2})
        assert queue.edit(id, {"n": 3})
        found = record(queue, id)
        assert queue.serializer.loads(found.payload) == {"n": 3}
        assert queue.serializer.loads(found.original_payload or b"") == {"n": 1}
        assert queue.get_nowait().data == {"n": 3}

    @pytest.mark.parametrize("where", ["delayed", "blocked", "failed"])
    def test_so_does_one_that_is_delayed_blocked_or_failed(
        self, queue: BaseQueue, where: str, clock: Clock
    ) -> None:
        if where == "blocked":
            queue.put(0, group_id="g")
        id = queue.put(
            1, delay=60 if where == "delayed" else 0, group_id="g" if where == "blocked" else None
        )
        if where == "failed":
            queue.fail(queue.get_nowait(), "broken")
        assert queue.edit(id, 2)
        assert record(queue, id).state == where
        if where == "failed":
            queue.retry_failed(id)
            assert queue.get_nowait().data == 2

    @pytest.mark.parametrize("state", ["processing", "acked"])
    def test_a_running_or_finished_job_is_left_alone(self, queue: BaseQueue, state: str) -> None:
        id = queue.put(1)
        job = queue.get_nowait()
        if state == "acked":
            queue.ack(job)
        assert not queue.edit(id, 2)
        found = record(queue, id)
        assert (queue.serializer.loads(found.payload), found.original_payload) == (1, None)

    def test_an_undecodable_job_can_be_mended(self, queue: BaseQueue, backend: Backend) -> None:
        id = queue.put(1)
        backend.corrupt_payload(queue, id, b"\xff{")
        assert queue.get_many(1) == []
        assert queue.edit(id, "mended")
        assert record(queue, id).original_payload == b"\xff{"
        queue.retry_failed(id)
        assert queue.get_nowait().data == "mended"

    def test_an_unknown_job_is_named(self, queue: BaseQueue) -> None:
        with pytest.raises(JobNotFound, match="nobody"):
            queue.edit("nobody", 1)

    def test_a_payload_that_put_would_refuse_is_refused(
        self, make_queue: Callable[..., BaseQueue]
    ) -> None:
        queue = make_queue(max_payload_bytes=10)
        id = queue.put(1)
        with pytest.raises(PayloadTooLarge):
            queue.edit(id, "x" * 20)
        with pytest.raises(InvalidInput):
            queue.edit(id, object())
        assert queue.get_nowait().data == 1
