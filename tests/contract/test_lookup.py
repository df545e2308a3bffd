"""lookup: one job with all that is known of it, its attempts included."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from django_localqueue.backends.base import BaseQueue
from django_localqueue.types import MAX_ERROR_MESSAGE, MAX_TRACEBACK, ErrorRecord
from tests.contract.backends import Backend, Clock
from tests.contract.helpers import record


def raised(message: str) -> ValueError:
    try:
        raise ValueError(message)
    except ValueError as error:
        return error


@pytest.mark.parametrize("id", ["7", "nobody", "", "-1", "9" * 40, "a/b", "\N{GRINNING FACE}"])
def test_an_unknown_id_is_none(id: str, queue: BaseQueue) -> None:
    queue.put(1)
    assert queue.lookup(id) is None


def test_a_job_of_another_queue_is_none(make_queue: Callable[..., BaseQueue]) -> None:
    id = make_queue("one").put(1)
    assert make_queue("two").lookup(id) is None


def test_a_waiting_job_tells_since_when_it_waits(queue: BaseQueue, clock: Clock) -> None:
    id = queue.put(1)
    put_at = clock.now()
    clock.advance(5)
    waiting = record(queue, id)
    assert (waiting.state, waiting.waiting_since, waiting.attempts) == ("ready", put_at, 0)
    assert waiting.created_at == put_at
    assert waiting.finished_at is None


def test_a_delayed_job_tells_when_it_is_due(queue: BaseQueue, clock: Clock) -> None:
    id = queue.put(1, delay=60)
    later = record(queue, id)
    assert (later.state, later.due_at) == ("delayed", clock.now() + 60_000_000)


def test_a_running_job_tells_its_worker_and_its_lease(queue: BaseQueue, clock: Clock) -> None:
    id = queue.put(1)
    clock.advance(5)
    queue.get(worker="web-1:77")
    running = record(queue, id)
    assert (running.state, running.worker, running.attempts) == ("processing", "web-1:77", 1)
    assert running.started_at == clock.now()
    assert running.lease_expires_at == clock.now() + 60_000_000


def test_an_acked_job_tells_its_end_and_its_result(queue: BaseQueue, clock: Clock) -> None:
    id = queue.put(1)
    job = queue.get_nowait()
    clock.advance(5)
    queue.ack(job, result={"rows": 3})
    done = record(queue, id)
    assert (done.state, done.finished_at) == ("acked", clock.now())
    assert done.result == b'{"rows":3}'


def test_a_job_acked_without_a_result_has_none(queue: BaseQueue) -> None:
    id = queue.put(1)
    queue.ack(queue.get_nowait())
    assert record(queue, id).result is None


def test_task_and_headers_are_kept(queue: BaseQueue) -> None:
    id = queue.put(1, task="app.tasks.run", headers={"trace": "\u00e9", "depth": 2})
    kept = record(queue, id)
    assert (kept.task, kept.headers) == ("app.tasks.run", {"trace": "\u00e9", "depth": 2})


def test_the_payload_is_kept_as_it_was_serialized(queue: BaseQueue) -> None:
    assert record(queue, queue.put({"n": [1, 2]})).payload == b'{"n":[1,2]}'


class TestErrors:
    def test_an_exception_is_kept_with_class_message_and_place(self, queue: BaseQueue) -> None:
        id = queue.put(1)
        queue.fail(queue.get_nowait(), raised("no such printer"))
        error = record(queue, id).error
        assert error is not None
        assert (error.error_class, error.message) == ("ValueError", "no such printer")
        assert "test_lookup.py:" in error.place

    def test_an_exceptions_traceback_is_kept_with_the_attempt(self, queue: BaseQueue) -> None:
        id = queue.put(1)
        queue.fail(queue.get_nowait(), raised("no such printer"))
        error = record(queue, id).history[-1].error
        assert error is not None
        assert error.traceback.startswith("Traceback (most recent call last)")
        assert error.traceback.endswith("ValueError: no such printer\n")

    def test_an_error_of_ones_own_is_kept_to_the_letter(self, queue: BaseQueue) -> None:
        id = queue.put(1)
        given = ErrorRecord("app.Error", "message", "trace\n  back", "app.py:1")
        queue.nack(queue.get_nowait(), last_error=given)
        assert record(queue, id).history[-1].error == given

    @pytest.mark.parametrize("verb", ["nack", "fail"])
    @pytest.mark.parametrize("text", ["lone \ud800 surrogate", "nul \x00 byte", "", "\u2028"])
    def test_any_text_can_be_recorded(self, text: str, verb: str, queue: BaseQueue) -> None:
        id = queue.put(1, max_retries=0)
        getattr(queue, verb)(queue.get_nowait(), last_error=ValueError(text))
        dead = record(queue, id)
        assert dead.state == "failed"
        assert dead.error is not None
        assert dead.error.message == text.encode("utf-8", "backslashreplace").decode()

    def test_a_huge_error_is_cut(self, queue: BaseQueue) -> None:
        id = queue.put(1)
        queue.fail(queue.get_nowait(), raised("x" * 1_000_000))
        error = record(queue, id).error
        assert error is not None
        assert len(error.message) < MAX_ERROR_MESSAGE + 100
        assert len(error.traceback) < MAX_TRACEBACK + 100


class TestHistory:
    def test_each_ended_attempt_is_recorded(self, queue: BaseQueue, clock: Clock) -> None:
        id = queue.put(1)
        start = clock.now()
        job = queue.get(worker="w1")
        clock.advance(5)
        queue.nack(job, last_error=raised("first"))
        clock.advance(5)
        queue.get(worker="w2")
        clock.advance(61)
        job = queue.get(worker="w3")
        clock.advance(1)
        queue.fail(job, last_error="third")
        first, second, third = record(queue, id).history
        assert (first.number, first.worker, first.outcome) == (1, "w1", "nack")
        assert (first.started_at - start, first.ended_at - start) == (0, 5_000_000)
        assert first.error is not None
        assert (first.error.error_class, first.error.message) == ("ValueError", "first")
        assert "Traceback" in first.error.traceback
        assert "test_lookup.py:" in first.error.place
        assert (second.number, second.worker, second.outcome) == (2, "w2", "lapsed")
        assert second.started_at - start == 10_000_000
        assert (third.number, third.worker, third.outcome) == (3, "w3", "fail")
        assert third.error is not None
        assert third.error.message == "third"

    def test_a_job_that_was_never_delivered_has_none(self, queue: BaseQueue) -> None:
        assert record(queue, queue.put(1)).history == ()

    def test_a_running_attempt_is_not_in_it_yet(self, queue: BaseQueue) -> None:
        id = queue.put(1)
        queue.get_nowait()
        assert record(queue, id).history == ()

    def test_a_released_delivery_leaves_no_trace(self, queue: BaseQueue) -> None:
        id = queue.put(1)
        queue.release(queue.get_nowait())
        assert record(queue, id).history == ()

    def test_an_acked_job_ends_with_its_ack(self, queue: BaseQueue) -> None:
        id = queue.put(1)
        queue.nack(queue.get_nowait(), last_error="first")
        queue.ack(queue.get(worker="w2"))
        done = record(queue, id)
        assert [one.outcome for one in done.history] == ["nack", "ack"]
        assert done.history[1].worker == "w2"
        assert done.error is None

    def test_it_is_bounded_and_keeps_the_latest(self, make_queue: Callable[..., BaseQueue]) -> None:
        queue = make_queue(max_retries=1_000)
        id = queue.put(1)
        for number in range(300):
            queue.nack(queue.get_nowait(), last_error=f"error {number}")
        history = record(queue, id).history
        assert 5 <= len(history) < 300
        assert history[-1].error is not None
        assert history[-1].error.message == "error 299"
        assert history[-1].number == 300

    def test_it_survives_reopening(self, backend: Backend) -> None:
        queue = backend.open()
        id = queue.put(1)
        queue.nack(queue.get_nowait(), last_error="first")
        before = record(queue, id)
        backend.close()
        assert record(backend.open(), id) == before

    def test_lists_leave_it_out(self, queue: BaseQueue) -> None:
        queue.put(1)
        queue.fail(queue.get_nowait(), last_error="first")
        assert queue.list_failed()[0].history == ()
