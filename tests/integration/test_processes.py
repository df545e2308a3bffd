"""Several real processes on one file. They run on the machine's clocks and wait for each other."""

from __future__ import annotations

import statistics
import time

import pytest

from django_localqueue import SimpleQueue
from tests.contract.helpers import PATIENCE, InThread
from tests.contract.processes import HOLD_THE_WRITE_LOCK, Processes

PRODUCE = """
with SimpleQueue(folder, durability=sys.argv[2]) as queue:
    first, count = int(sys.argv[3]), int(sys.argv[4])
    for number in range(first, first + count):
        queue.put(number)
"""
CONSUME = """
seen = []
with SimpleQueue(folder, durability=sys.argv[2]) as queue:
    while True:
        job = queue.get()
        queue.ack(job)
        if job.data == "stop":
            break
        seen.append([job.data, job.receipt])
say(seen)
"""


class TestSharing:
    @pytest.mark.parametrize("durability", ["full", "normal"])
    def test_each_job_is_handed_out_exactly_once(
        self, durability: str, processes: Processes
    ) -> None:
        producers, consumers, each = 3, 4, 300
        taking = [processes.start(CONSUME, durability) for _ in range(consumers)]
        putting = [processes.start(PRODUCE, durability, n * each, each) for n in range(producers)]
        for process in putting:
            process.end()
        with SimpleQueue(processes.folder, durability=durability) as queue:
            for _ in taking:
                queue.put("stop", priority=-100)
            seen = [pair for process in taking for pair in process.hear()]
            for process in taking:
                process.end()
            assert queue.stats().acked == producers * each + consumers
        assert sorted(number for number, _ in seen) == list(range(producers * each))
        assert len({receipt for _, receipt in seen}) == len(seen)
        processes.assert_file_is_whole()

    def test_processes_that_open_a_new_store_at_once_all_get_it(self, processes: Processes) -> None:
        code = """
        say("started")
        sys.stdin.readline()
        with SimpleQueue(folder) as queue:
            queue.put(1)
        """
        started = [processes.start(code) for _ in range(6)]
        for process in started:
            process.hear()
        for process in started:
            process.tell()
        for process in started:
            process.end()
        with SimpleQueue(processes.folder) as queue:
            assert queue.stats().ready == 6

    def test_racing_puts_of_one_job_id_make_one_job(
        self, processes: Processes, queue: SimpleQueue
    ) -> None:
        code = """
        with SimpleQueue(folder) as queue:
            say("started")
            sys.stdin.readline()
            say([queue.put(number, f"id-{number}").created for number in range(50)])
        """
        started = [processes.start(code) for _ in range(4)]
        for process in started:
            process.hear()
        for process in started:
            process.tell()
        created = [process.hear() for process in started]
        assert [sum(column) for column in zip(*created, strict=True)] == [1] * 50
        assert queue.stats().ready == 50

    def test_a_snapshot_never_sees_half_a_move_of_another_process(
        self, processes: Processes, queue: SimpleQueue
    ) -> None:
        queue.put_many(range(20))
        mover = processes.start(
            """
            with SimpleQueue(folder, max_retries=1_000_000) as queue:
                say("moving")
                stop = threading.Thread(target=sys.stdin.readline)
                stop.start()
                while stop.is_alive():
                    for job in queue.get_many(7):
                        queue.nack(job) if job.data % 2 else queue.release(job)
            """
        )
        mover.hear()
        seen = {stats.ready + stats.processing for stats in (queue.stats() for _ in range(300))}
        mover.tell()
        mover.end()
        assert seen == {20}

    def test_a_pause_holds_in_every_process(self, processes: Processes, queue: SimpleQueue) -> None:
        queue.put("held back")
        queue.pause()
        waiting = processes.start("say(SimpleQueue(folder).get().data)")
        empty = processes.start("say(len(SimpleQueue(folder).get_many(5)))")
        assert empty.hear() == 0
        assert queue.stats().ready == 1
        queue.resume()
        assert waiting.hear() == "held back"

    def test_a_put_waits_for_a_write_lock_that_another_process_holds(
        self, processes: Processes, queue: SimpleQueue
    ) -> None:
        holder = processes.start(HOLD_THE_WRITE_LOCK)
        holder.hear()
        putting = InThread(lambda: queue.put("patient"))
        putting.wait_until_asleep()
        assert putting.is_alive()
        assert queue.stats().ready == 0
        holder.tell()
        putting.outcome()
        assert queue.get_nowait().data == "patient"

    def test_a_store_opens_while_another_process_holds_the_write_lock(
        self, processes: Processes, queue: SimpleQueue
    ) -> None:
        queue.put("there")
        holder = processes.start(HOLD_THE_WRITE_LOCK)
        holder.hear()
        opening = processes.start("say('opening'); say(SimpleQueue(folder).get().data)")
        opening.hear()
        opening.wait_until_asleep()
        holder.tell()
        assert opening.hear() == "there"


class TestWaking:
    def test_a_put_wakes_a_get_of_another_process(
        self, processes: Processes, queue: SimpleQueue
    ) -> None:
        waiting = processes.start(
            """
            with SimpleQueue(folder) as queue:
                say("waiting")
                say(queue.get().data)
            """
        )
        waiting.hear()
        waiting.wait_until_asleep()
        queue.put("hello")
        assert waiting.hear() == "hello"

    def test_processes_that_wake_each_other_do_not_wait_for_a_poll(
        self, processes: Processes
    ) -> None:
        echo = processes.start(
            """
            ping, pong = SimpleQueue(folder, "ping"), SimpleQueue(folder, "pong")
            while (job := ping.get()).data is not None:
                ping.ack(job)
                pong.put(job.data)
            """
        )
        trips = []
        folder = processes.folder
        with SimpleQueue(folder, "ping") as ping, SimpleQueue(folder, "pong") as pong:
            for number in range(30):
                start = time.monotonic()
                ping.put(number)
                job = pong.get(timeout=PATIENCE)
                trips.append(time.monotonic() - start)
                assert job.data == number
                pong.ack(job)
            ping.put(None)
        echo.end()
        # A trip takes milliseconds. A poll at both ends would show as tenths of a second.
        assert statistics.median(trips) < 0.1

    def test_a_job_given_back_by_one_process_wakes_another(
        self, processes: Processes, queue: SimpleQueue
    ) -> None:
        queue.put("again")
        job = queue.get_nowait()
        waiting = processes.start("say('waiting'); say(SimpleQueue(folder).get().attempts)")
        waiting.hear()
        waiting.wait_until_asleep()
        queue.nack(job)
        assert waiting.hear() == 2
