"""What workers share: their reports, commands to them, and duties."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from django_localqueue.backends.base import BaseQueue
from django_localqueue.exceptions import InvalidInput, LeaseExpired
from django_localqueue.records import RunningJob, WorkerRecord
from tests.contract.backends import Clock
from tests.contract.helpers import record

FULL = WorkerRecord(
    name="w1",
    host="shop-1",
    pid=12,
    version="1.0",
    started_at=5,
    queues=("default", "emails"),
    concurrency=4,
    running=(
        RunningJob("j1", "shop.tasks.send", "emails", 7),
        RunningJob("j2", None, "default", 8),
    ),
    counts={"done": 3, "failed": 1},
    rss=4096,
)


def only(queue: BaseQueue) -> WorkerRecord:
    (found,) = queue.workers()
    return found


class TestReports:
    def test_a_report_comes_back_as_it_was_given(self, queue: BaseQueue, clock: Clock) -> None:
        assert queue.report_worker(FULL) is None
        found = only(queue)
        assert found.seen_at == clock.now()
        for name in ("name", "host", "pid", "queues", "concurrency", "running", "counts", "rss"):
            assert getattr(found, name) == getattr(FULL, name)

    def test_the_latest_report_stands(self, queue: BaseQueue, clock: Clock) -> None:
        queue.report_worker(FULL)
        clock.advance(10)
        queue.report_worker(WorkerRecord("w1", state="quiet"))
        found = only(queue)
        assert (found.state, found.running, found.seen_at) == ("quiet", (), clock.now())

    def test_every_queue_of_the_store_sees_them_by_name(
        self, make_queue: Callable[..., BaseQueue]
    ) -> None:
        make_queue("a").report_worker(WorkerRecord("w2"))
        make_queue("b").report_worker(WorkerRecord("w1"))
        assert [worker.name for worker in make_queue("c").workers()] == ["w1", "w2"]

    def test_a_forgotten_worker_is_gone(self, queue: BaseQueue) -> None:
        queue.report_worker(FULL)
        assert queue.forget_worker("w1") is True
        assert queue.workers() == []
        assert queue.forget_worker("w1") is False

    def test_a_worker_silent_for_a_day_is_forgotten_with_the_next_report(
        self, queue: BaseQueue, clock: Clock
    ) -> None:
        queue.report_worker(FULL)
        clock.advance(86_401)
        queue.report_worker(WorkerRecord("w2"))
        assert [worker.name for worker in queue.workers()] == ["w2"]

    def test_a_worker_of_this_process_is_not_said_to_be_dead(self, queue: BaseQueue) -> None:
        queue.report_worker(FULL)
        assert only(queue).alive is not False

    @pytest.mark.parametrize("name", ["", "x" * 256, "a\x00b"])
    def test_an_absurd_name_is_refused(self, queue: BaseQueue, name: str) -> None:
        with pytest.raises(InvalidInput, match="name"):
            queue.report_worker(WorkerRecord(name))

    def test_an_unknown_state_is_refused(self, queue: BaseQueue) -> None:
        with pytest.raises(InvalidInput, match="asleep"):
            queue.report_worker(WorkerRecord("w", state="asleep"))  # type: ignore[arg-type]


class TestCommands:
    def test_a_command_is_told_until_its_state_is_reported(self, queue: BaseQueue) -> None:
        queue.report_worker(FULL)
        assert queue.command_worker("w1", "quiet") is True
        assert only(queue).command == "quiet"
        assert queue.report_worker(FULL) == "quiet"
        assert queue.report_worker(FULL) == "quiet"
        assert queue.report_worker(WorkerRecord("w1", state="quiet")) is None
        assert only(queue).command is None

    def test_a_later_command_takes_the_place_of_an_earlier_one(self, queue: BaseQueue) -> None:
        queue.report_worker(FULL)
        queue.command_worker("w1", "quiet")
        queue.command_worker("w1", "stop")
        assert queue.report_worker(WorkerRecord("w1", state="quiet")) == "stop"

    def test_an_unknown_worker_is_told_apart(self, queue: BaseQueue) -> None:
        assert queue.command_worker("nobody", "stop") is False

    def test_an_unknown_command_is_refused(self, queue: BaseQueue) -> None:
        with pytest.raises(InvalidInput, match="explode"):
            queue.command_worker("w1", "explode")  # type: ignore[arg-type]


class TestTakingBack:
    def test_the_jobs_of_a_dead_worker_are_ready_again_and_count(self, queue: BaseQueue) -> None:
        queue.put_many([1, 2, 3])
        lost = queue.get_many(2, worker="dead")
        kept = queue.get(worker="alive")
        assert queue.take_back("dead") == 2
        assert queue.take_back("dead") == 0
        stats = queue.stats()
        assert (stats.ready, stats.processing) == (2, 1)
        found = record(queue, lost[0].id)
        assert [attempt.outcome for attempt in found.history] == ["lapsed"]
        assert "its process is gone" in found.history[0].error.message  # type: ignore[union-attr]
        with pytest.raises(LeaseExpired) as caught:
            queue.ack(lost[0])
        assert caught.value.reason == "expired"
        queue.ack(kept)

    def test_a_job_whose_deliveries_are_used_up_is_a_dead_letter(
        self, make_queue: Callable[..., BaseQueue]
    ) -> None:
        queue = make_queue(max_retries=0)
        id = queue.put(1)
        queue.get(worker="dead")
        assert queue.take_back("dead") == 1
        assert record(queue, id).reason == "exhausted"

    def test_jobs_of_other_queues_stay(self, make_queue: Callable[..., BaseQueue]) -> None:
        other = make_queue("other")
        other.put(1)
        other.get(worker="dead")
        assert make_queue("mine").take_back("dead") == 0
        assert other.stats().processing == 1

    def test_any_number_is_taken_back(self, queue: BaseQueue) -> None:
        queue.put_many(range(150))
        queue.get_many(150, worker="dead")
        assert queue.take_back("dead") == 150
        assert queue.stats().ready == 150

    def test_nothing_is_taken_from_the_living(self, queue: BaseQueue) -> None:
        queue.report_worker(FULL)
        queue.put(1)
        queue.get(worker="w1")
        assert queue.reclaim_from_dead() == 0
        assert queue.stats().processing == 1


class TestDuties:
    def test_one_of_all_gets_it_for_its_time(self, queue: BaseQueue, clock: Clock) -> None:
        assert [queue.duty("prune", 60, worker) for worker in "abc"] == [True, False, False]
        clock.advance(59)
        assert queue.duty("prune", 60, "b") is False
        clock.advance(2)
        assert [queue.duty("prune", 60, worker) for worker in "bb"] == [True, False]

    def test_duties_of_other_names_are_apart(self, queue: BaseQueue) -> None:
        assert queue.duty("a", 60) is True
        assert queue.duty("b", 60) is True

    def test_a_wall_clock_that_steps_back_does_not_prolong_it(
        self, queue: BaseQueue, clock: Clock
    ) -> None:
        queue.duty("a", 60)
        clock.step_wall(-86_400)
        clock.advance(61)
        assert queue.duty("a", 60) is True

    def test_it_belongs_to_the_store(self, make_queue: Callable[..., BaseQueue]) -> None:
        assert make_queue("a").duty("x", 60) is True
        assert make_queue("b").duty("x", 60) is False

    def test_a_time_of_nothing_is_refused(self, queue: BaseQueue) -> None:
        with pytest.raises(InvalidInput, match="seconds"):
            queue.duty("x", 0)
