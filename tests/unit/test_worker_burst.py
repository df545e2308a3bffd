"""When a burst is over."""

from __future__ import annotations

from django_localqueue.worker.burst import Burst


def test_a_burst_is_over_when_every_store_was_found_empty() -> None:
    burst = Burst(2)
    assert not burst.found_empty(1, burst.look())
    assert burst.found_empty(2, burst.look())


def test_a_store_found_empty_twice_is_one_store() -> None:
    burst = Burst(2)
    assert not burst.found_empty(1, burst.look())
    assert not burst.found_empty(1, burst.look())


def test_a_burst_is_not_over_while_a_job_runs() -> None:
    burst = Burst(1)
    burst.claimed(1)
    assert burst.look() is None
    assert not burst.found_empty(1, burst.look())
    burst.finished()
    assert burst.found_empty(1, burst.look())


def test_a_look_from_before_a_job_ran_does_not_count() -> None:
    burst = Burst(1)
    look = burst.look()
    burst.claimed(1)  # by another thread, and the job puts another one
    burst.finished()
    assert not burst.found_empty(1, look)


def test_a_store_found_empty_before_a_job_ran_is_looked_at_again() -> None:
    burst = Burst(2)
    burst.found_empty(1, burst.look())
    burst.claimed(1)  # of the second store; it may put a job into the first
    burst.finished()
    assert not burst.found_empty(2, burst.look())
    assert burst.found_empty(1, burst.look())
