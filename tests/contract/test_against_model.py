"""Queue and model driven together, with what Hypothesis thinks of, and compared after each step.

``LOCALQUEUE_MODEL_EXAMPLES=5000 pytest tests/contract/test_against_model.py`` looks further.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from django_localqueue.backends.base import BaseQueue
from django_localqueue.exceptions import LeaseExpired
from django_localqueue.types import Job, JobFilter, NewJob, Settle
from tests.contract import model as oracle
from tests.contract.backends import MODELLED, Backend

EXAMPLES = int(os.environ.get("LOCALQUEUE_MODEL_EXAMPLES", "0"))
BUDGET: dict[str, Any] = {"max_examples": EXAMPLES} if EXAMPLES else {"derandomize": True}

# Leases end between whole seconds and delays too, and time passes in whole seconds:
# so nothing depends on which side of a boundary is which.
QUEUES: dict[str, dict[str, Any]] = {
    "one": {"lease_seconds": 30.5, "max_retries": 1},
    "two": {"lease_seconds": 60.5, "max_retries": 3},
}
names = st.sampled_from(list(QUEUES))
delays = st.sampled_from([0, 0, 0, 5.25, 40.25])
verbs = st.sampled_from(["ack", "ack", "nack", "fail", "release"])
new_jobs = st.fixed_dictionaries(
    {
        "delay": delays,
        "priority": st.sampled_from([0, 0, 0, 5, -1]),
        "group": st.sampled_from([None, None, "g", "g", "h"]),
        "job_id": st.sampled_from([None, None, None, "x", "y"]),
        "max_retries": st.sampled_from([None, None, 0, 2]),
    }
)
MEMORY = Path("/dev/shm")  # a new store costs several syncs, and nothing here is about disks
FAR_FUTURE = 2**62
picks = st.integers(0, 40)  # one of a list that grows; small numbers are its latest items


class QueueAgainstModel(RuleBasedStateMachine):
    backend_name: str

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None)
        self.backend: Backend = MODELLED[self.backend_name](Path(self.folder.name))
        self.model = oracle.Model(self.backend.clock.now())
        for name, options in QUEUES.items():
            lease = round(options["lease_seconds"] * oracle.SECOND)
            self.model.queues[name] = oracle.Queue(name, lease, options["max_retries"])
        self.queues: dict[str, BaseQueue] = {}
        self.open_all()
        self.put_so_far = 0
        self.held: list[tuple[str, Job, oracle.Job]] = []  # all deliveries, old ones too

    def open_all(self) -> None:
        self.queues = {name: self.backend.open(name, **options) for name, options in QUEUES.items()}

    def teardown(self) -> None:
        try:
            self.finish_everything()
        finally:
            self.backend.end()
            self.folder.cleanup()

    # ---- putting

    @rule(name=names, new=new_jobs)
    def put(self, name: str, new: dict[str, Any]) -> None:
        self.put_many(name, [new])

    @rule(name=names, news=st.lists(new_jobs, min_size=2, max_size=4))
    def put_many(self, name: str, news: list[dict[str, Any]]) -> None:
        jobs = []
        expected = []
        for new in news:
            self.put_so_far += 1
            options = {("group_id" if key == "group" else key): new[key] for key in new}
            jobs.append(NewJob(self.put_so_far, **options))
            met, created = self.model.put(self.model.queues[name], self.put_so_far, **new)
            expected.append((met, created, met.state))
        ids = self.queues[name].put_many(jobs)
        assert len(ids) == len(expected)
        for id, (met, created, state) in zip(ids, expected, strict=True):
            assert (id, id.created) == (met.id, created)
            assert id.state == state or self.model.due(met)

    # ---- claiming

    def delivered(self, name: str, jobs: list[Job], expected: list[oracle.Job]) -> None:
        """The queue gave these jobs where the model gives those."""
        assert [job.id for job in jobs] == [job.id for job in expected]
        for job, twin in zip(jobs, expected, strict=True):
            assert (job.data, job.attempts) == (twin.data, twin.attempts)
            assert job.queue is self.queues[name]
            assert all(job.receipt != other.receipt for _, other, _ in self.held)
            twin.deliveries[-1].receipt = job.receipt
            self.held.append((name, job, twin))

    @rule(name=names, n=st.sampled_from([1, 1, 2, 5]), floor=st.sampled_from([-100, -100, 0, 1]))
    def get_many(self, name: str, n: int, floor: int) -> None:
        jobs = self.queues[name].get_many(n, min_priority=floor)
        self.delivered(name, jobs, self.model.claim(self.model.queues[name], n, floor))

    @rule(
        name=names,
        settled=st.lists(st.tuples(picks, verbs, delays), max_size=3),
        want=st.sampled_from([0, 1, 3]),
        sources=st.sampled_from([["one"], ["two"], ["one", "two"], ["two", "one"]]),
    )
    def exchange(
        self,
        name: str,
        settled: list[tuple[int, str, float]],
        want: int,
        sources: list[str],
    ) -> None:
        settles, answers = self.settles(settled)
        done = self.queues[name].exchange(
            settles, want, sources=[self.queues[source] for source in sources]
        )
        self.answered(done.results, answers)
        rest = done.jobs
        for source in sources if want else []:
            self.model.promote(self.model.queues[source])
        for source in sources:
            expected = self.model.claim(self.model.queues[source], want)
            self.delivered(source, rest[: len(expected)], expected)
            rest = rest[len(expected) :]
            want -= len(expected)
        assert rest == []

    @rule(settled=st.lists(st.tuples(picks, verbs, delays), max_size=2), want=st.integers(2, 5))
    def exchange_round_robin(self, settled: list[tuple[int, str, float]], want: int) -> None:
        settles, answers = self.settles(settled)
        sources = list(self.queues.values())
        done = sources[0].exchange(settles, want, sources=sources, round_robin=True)
        self.answered(done.results, answers)
        counts = {}
        for name, queue in self.queues.items():
            mine = [job for job in done.jobs if job.queue is queue]
            counts[name] = len(mine)
            twin = self.model.queues[name]
            self.model.promote(twin)
            self.delivered(name, mine, self.model.claim(twin, len(mine)))
        for name, count in counts.items():
            twin = self.model.queues[name]
            if (more := not twin.paused and self.model.line(twin)) and len(done.jobs) < want:
                raise AssertionError(f"{name} had {more} left and was passed over")
            if more:
                assert count >= max(counts.values()) - 1, "turns were not fair"

    # ---- settling

    def settles(
        self, settled: list[tuple[int, str, float]]
    ) -> tuple[list[Settle], list[set[str | None]]]:
        """Settles of held jobs, and what the model answers to them."""
        settles, answers = [], []
        for pick, verb, delay in settled if self.held else []:
            name, job, twin = self.held[-1 - pick % len(self.held)]
            delay = delay if verb == "nack" else 0
            settles.append(Settle(job, verb, delay=delay, result=pick))  # type: ignore[arg-type]
            answers.append(
                self.model.settle(
                    self.model.queues[name], twin, job.receipt, verb, delay, result=pick
                )
            )
        return settles, answers

    def answered(self, results: list[Any], answers: list[set[str | None]]) -> None:
        assert len(results) == len(answers)
        for result, right in zip(results, answers, strict=True):
            assert result is None or isinstance(result, LeaseExpired)
            assert (result and result.reason) in right

    @precondition(lambda self: self.held)
    @rule(pick=picks, verb=verbs, delay=delays)
    def settle(self, pick: int, verb: str, delay: float) -> None:
        settles, answers = self.settles([(pick, verb, delay)])
        name = self.held[-1 - pick % len(self.held)][0]
        self.answered(self.queues[name].exchange(settles, 0).results, answers)

    @precondition(lambda self: self.held)
    @rule(pick=picks, seconds=st.sampled_from([1.5, 10.5, 100.5]))
    def extend_lease(self, pick: int, seconds: float) -> None:
        name, job, twin = self.held[-1 - pick % len(self.held)]
        right = self.model.extend(self.model.queues[name], twin, job.receipt, seconds)
        if right == {None}:
            assert self.queues[name].extend_lease(job, seconds) is not twin.cancelled
            return
        with pytest.raises(LeaseExpired) as caught:
            self.queues[name].extend_lease(job, seconds)
        assert caught.value.reason in right

    # ---- time

    @rule(seconds=st.sampled_from([1, 1, 10, 35, 70]))
    def advance(self, seconds: float) -> None:
        self.backend.clock.advance(seconds)
        self.model.advance(seconds)

    @rule(seconds=st.sampled_from([-3600, -7, 7, 50]))
    def step_wall(self, seconds: float) -> None:
        self.backend.clock.step_wall(seconds)
        self.model.step_wall(seconds)

    # ---- repairing

    @rule(name=names)
    def reclaim(self, name: str) -> None:
        count = self.queues[name].reclaim_expired_leases()
        assert count == self.model.reclaim(self.model.queues[name])

    def pick_job(self, name: str, pick: int, *states: str) -> oracle.Job | None:
        jobs = [
            job
            for job in self.model.queues[name].jobs.values()
            if not states or job.state in states
        ]
        return jobs[-1 - pick % len(jobs)] if jobs else None

    @rule(name=names, pick=picks, any_state=st.booleans())
    def retry_failed(self, name: str, pick: int, any_state: bool) -> None:
        states = () if any_state else ("failed",)
        if job := self.pick_job(name, pick, *states):
            retried = self.queues[name].retry_failed(job.id)
            assert retried is self.model.retry(self.model.queues[name], job)

    @rule(name=names, pick=picks)
    def cancel(self, name: str, pick: int) -> None:
        if job := self.pick_job(name, pick):
            cancelled = self.queues[name].cancel(job.id)
            assert cancelled is self.model.cancel(self.model.queues[name], job)

    @rule(name=names, pick=picks)
    def discard_one(self, name: str, pick: int) -> None:
        job = self.pick_job(name, pick, *oracle.WAITING)
        if job is not None and not self.model.due(job):
            filter = JobFilter(state=job.state, ids=(job.id,))  # type: ignore[arg-type]
            assert self.queues[name].apply("discard", filter, as_of=FAR_FUTURE).done == 1
            self.model.discard(self.model.queues[name], job)

    @rule(name=names)
    def retry_all(self, name: str) -> None:
        twin = self.model.queues[name]
        dead = [job for job in self.model.failed(twin) if job.finished <= self.model.wall]
        assert self.queues[name].apply("retry", JobFilter()).done == len(dead)
        for job in dead:
            self.model.retry(twin, job)

    @rule(name=names, older_than=st.sampled_from([0, 20.5]), include_failed=st.booleans())
    def purge(self, name: str, older_than: float, include_failed: bool) -> None:
        count = self.queues[name].purge(older_than, include_failed)
        assert count == self.model.purge(self.model.queues[name], older_than, include_failed)

    @rule(name=names, paused=st.booleans())
    def pause_or_resume(self, name: str, paused: bool) -> None:
        self.queues[name].pause() if paused else self.queues[name].resume()
        self.model.queues[name].paused = paused

    @rule()
    def reopen(self) -> None:
        self.backend.close()
        self.open_all()

    # ---- comparing

    @invariant()
    def all_jobs_agree(self) -> None:
        for name, queue in self.queues.items():
            for id, twin in self.model.queues[name].jobs.items():
                found = queue.lookup(id)
                assert found is not None, f"the job {id} is gone"
                seen = (found.state, found.attempts, found.reason)
                expected = twin.state
                if self.model.due(twin) and found.state == "ready":
                    expected = "ready"  # due, and not promoted yet: either will do
                assert seen == (expected, twin.attempts, twin.reason), f"the job {id}"
                if twin.state == "ready":
                    assert found.waiting_since == twin.since, f"the job {id}"
                if twin.state == "acked":
                    assert found.result == str(twin.result).encode()

    @invariant()
    def stats_agree(self) -> None:
        for name, queue in self.queues.items():
            assert dict(queue.stats()) == self.model.stats(self.model.queues[name])

    @invariant()
    def dead_letters_agree(self) -> None:
        for name, queue in self.queues.items():
            expected = [job.id for job in self.model.failed(self.model.queues[name])]
            assert [dead.id for dead in queue.list_failed()] == expected

    def finish_everything(self) -> None:
        """Whatever happened: in the end every job is acked or failed."""
        for name, queue in self.queues.items():
            queue.resume()
            self.model.queues[name].paused = False
        self.advance(1_000_000)
        for name, queue in self.queues.items():
            twin = self.model.queues[name]
            while jobs := queue.get_many(3):
                self.delivered(name, jobs, self.model.claim(twin, 3))
                for job in jobs:
                    queue.ack(job)
                    same = twin.jobs[job.id]
                    assert self.model.settle(twin, same, job.receipt, "ack") == {None}
            assert self.model.claim(twin, 3) == []
            stats = queue.stats()
            assert (stats.ready, stats.processing) == (0, 0)


@pytest.mark.timeout(EXAMPLES or 300)
@pytest.mark.parametrize("name", list(MODELLED))
def test_the_queue_does_what_the_model_does(name: str) -> None:
    machine: Callable[[], QueueAgainstModel] = type(
        "Machine", (QueueAgainstModel,), {"backend_name": name}
    )
    run_state_machine_as_test(
        machine,
        settings=settings(
            # Statements that Python runs cost several times the engine's.
            **{"max_examples": 200 if name.startswith("sqlite") else 40, **BUDGET},
            stateful_step_count=50,
            deadline=None,
            phases=(Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
            database=None,
            print_blob=True,
        ),
    )
