"""cancel, pause and resume."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from django_localqueue.backends.base import BaseQueue
from django_localqueue.exceptions import Empty, JobNotFound
from tests.contract.backends import Backend, Clock
from tests.contract.helpers import data, empty, record


class TestCancel:
    @pytest.mark.parametrize("delay", [0, 60])
    def test_a_waiting_job_becomes_a_dead_letter(self, delay: float, queue: BaseQueue) -> None:
        id = queue.put(1, delay=delay)
        assert queue.cancel(id) is True
        dead = record(queue, id)
        assert (dead.state, dead.reason, dead.attempts) == ("failed", "cancelled", 0)
        assert empty(queue)

    def test_a_running_job_is_asked_to_stop(self, queue: BaseQueue) -> None:
        id = queue.put(1)
        job = queue.get_nowait()
        assert queue.cancel(id) is True
        running = record(queue, id)
        assert (running.state, running.cancel_requested) == ("processing", True)
        assert queue.extend_lease(job, 60) is False

    def test_a_job_that_nobody_cancels_is_not_asked(self, queue: BaseQueue) -> None:
        queue.put(1)
        assert queue.extend_lease(queue.get_nowait(), 60) is True

    @pytest.mark.parametrize("verb", ["nack", "release"])
    def test_a_cancelled_job_that_is_given_back_is_not_delivered_again(
        self, verb: str, queue: BaseQueue
    ) -> None:
        id = queue.put(1)
        job = queue.get_nowait()
        queue.cancel(id)
        getattr(queue, verb)(job)
        dead = record(queue, id)
        assert (dead.state, dead.reason) == ("failed", "cancelled")
        assert empty(queue)

    def test_a_cancelled_job_whose_lease_lapses_is_not_delivered_again(
        self, queue: BaseQueue, clock: Clock
    ) -> None:
        id = queue.put(1)
        queue.get_nowait()
        queue.cancel(id)
        clock.advance(61)
        assert empty(queue)
        assert record(queue, id).reason == "cancelled"

    def test_a_cancelled_job_that_finishes_first_is_acked(self, queue: BaseQueue) -> None:
        id = queue.put(1)
        job = queue.get_nowait()
        queue.cancel(id)
        queue.ack(job)
        assert record(queue, id).state == "acked"

    def test_a_cancelled_job_that_fails_keeps_the_reason_it_is_given(
        self, queue: BaseQueue
    ) -> None:
        id = queue.put(1)
        job = queue.get_nowait()
        queue.cancel(id)
        queue.fail(job, reason="expired")
        assert record(queue, id).reason == "expired"

    @pytest.mark.parametrize("verb", ["ack", "fail"])
    def test_a_finished_job_cannot_be_cancelled(self, verb: str, queue: BaseQueue) -> None:
        id = queue.put(1)
        getattr(queue, verb)(queue.get_nowait())
        before = record(queue, id)
        assert queue.cancel(id) is False
        assert record(queue, id) == before

    def test_an_unknown_id_is_not_found(self, queue: BaseQueue) -> None:
        with pytest.raises(JobNotFound):
            queue.cancel("nobody")

    def test_a_retried_job_is_no_longer_cancelled(self, queue: BaseQueue) -> None:
        id = queue.put(1)
        job = queue.get_nowait()
        queue.cancel(id)
        queue.nack(job)
        queue.retry_failed(id)
        again = queue.get_nowait()
        assert again.id == id
        assert queue.extend_lease(again, 60) is True


class TestPause:
    def test_a_paused_queue_is_empty_to_get(self, queue: BaseQueue) -> None:
        queue.put(1)
        queue.pause()
        with pytest.raises(Empty):
            queue.get_nowait()
        assert queue.exchange([], 5).jobs == []

    def test_put_goes_on(self, queue: BaseQueue) -> None:
        queue.pause()
        queue.put(1)
        assert queue.stats().ready == 1

    def test_resume_delivers_again(self, queue: BaseQueue) -> None:
        queue.put(1)
        queue.pause()
        queue.resume()
        assert data(queue.get_many(5)) == [1]

    def test_running_jobs_are_finished(self, queue: BaseQueue) -> None:
        queue.put(1)
        job = queue.get_nowait()
        queue.pause()
        assert queue.extend_lease(job, 60) is True
        queue.ack(job)
        assert queue.stats().acked == 1

    def test_pausing_and_resuming_twice_is_once(self, queue: BaseQueue) -> None:
        queue.put(1)
        queue.pause()
        queue.pause()
        queue.resume()
        queue.resume()
        assert not empty(queue)

    def test_another_queue_of_the_store_goes_on(self, make_queue: Callable[..., BaseQueue]) -> None:
        one, two = make_queue("one"), make_queue("two")
        one.put(1)
        two.put(2)
        one.pause()
        assert data(one.exchange([], 5, sources=[one, two]).jobs) == [2]

    def test_a_pause_survives_reopening(self, backend: Backend) -> None:
        queue = backend.open()
        queue.put(1)
        queue.pause()
        backend.close()
        queue = backend.open()
        assert queue.stats().paused is True
        assert empty(queue)

    def test_every_object_of_the_queue_is_paused(
        self, make_queue: Callable[..., BaseQueue]
    ) -> None:
        one, same = make_queue(), make_queue()
        one.put(1)
        same.pause()
        assert empty(one)
