"""Several worker processes on each store: killed in the middle of much work, and kept to limits."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path

import pytest

from tests.integration.worker_site import Site, WorkerProcess, is_gone

pytestmark = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc")

JOBS = 500
MICROSECONDS = 1_000_000


def started(site: Site, *arguments: str, processes: int) -> WorkerProcess:
    """A worker command all of whose processes serve."""
    worker = site.start("--processes", str(processes), *arguments)
    site.wait_until(
        lambda: worker.log.count(" serves default") >= processes, "every process of a worker"
    )
    return worker


def most_at_a_time(site: Site) -> int:
    """How many jobs ran at a time, as the ledger tells."""
    running = most = 0
    for line in (site.folder / "ledger").read_text().splitlines():
        running += 1 if line.startswith("begun ") else -1
        most = max(most, running)
    return most


def test_killed_in_the_middle_of_500_jobs_none_is_lost_and_no_process_is_left(
    any_site: Site,
) -> None:
    site = any_site
    held = site.put("wait_for_gate", "held")
    ids = [held, *(site.put("work", number, 0.01) for number in range(JOBS - 1))]
    first = started(site, "--shutdown-timeout", "5", processes=4)
    children = first.children()
    assert len(children) == 4
    site.wait_until(lambda: len(site.ledger("ended")) >= 40, "some jobs")
    runner = site.queue.lookup(held).worker
    (killed,) = [worker.pid for worker in site.queue.workers() if worker.name == runner]
    first.send(signal.SIGKILL)
    os.kill(killed, signal.SIGKILL)
    assert first.wait() == -signal.SIGKILL
    site.wait_until(lambda: all(map(is_gone, children)), "the end of every process")
    interrupted = set(site.ledger("begun")) - set(site.ledger("ended"))
    assert "held" in interrupted
    site.open_gate()
    second = started(site, processes=4)
    site.wait_until(lambda: site.queue.stats().acked == JOBS, "every job acked")
    second.send(signal.SIGTERM)
    assert second.wait() == 0
    stats = site.queue.stats()
    assert (stats.ready, stats.processing, stats.failed) == (0, 0, 0)
    assert set(site.ledger("ended")) == {"held", *map(str, range(JOBS - 1))}
    begun = Counter(site.ledger("begun"))
    assert max(begun.values()) <= 2
    assert all(begun[name] == 2 for name in interrupted)
    assert max(site.queue.lookup(id).attempts for id in ids) <= 2


def test_no_more_jobs_run_at_a_time_than_the_queue_allows(any_site: Site) -> None:
    site = any_site
    site.append("settings", 'LOCALQUEUE["default"]["OPTIONS"]["max_running"] = 3')
    held = [site.put("wait_for_gate", f"held{number}") for number in range(3)]
    for number in range(60):
        site.put("work", number, 0.02)
    # With one thread each, three jobs at a time are those of three processes.
    workers = [started(site, "--threads", "1", processes=2) for _ in range(2)]
    site.wait_until(lambda: len(site.ledger("begun")) == 3, "three jobs")
    assert site.queue.stats().processing == 3
    assert len({site.queue.lookup(id).worker for id in held}) == 3
    site.open_gate()
    site.wait_until(lambda: site.queue.stats().acked == 63, "every job acked")
    assert most_at_a_time(site) == 3
    for worker in workers:
        worker.send(signal.SIGTERM)
        assert worker.wait() == 0


def test_jobs_are_begun_no_more_often_than_the_queue_allows(any_site: Site) -> None:
    site = any_site
    site.append("settings", 'LOCALQUEUE["default"]["OPTIONS"]["rate"] = "20/s"')
    workers = [started(site, "--threads", "1", processes=2) for _ in range(2)]
    # One thread begins no more than five of these a second.
    ids = [site.put("work", number, 0.2) for number in range(30)]
    site.wait_until(lambda: site.queue.stats().acked == 30, "every job acked")
    records = [site.queue.lookup(id) for id in ids]
    begun = sorted(record.started_at for record in records)
    for first, last in ((0, 10), (10, 20), (20, 29), (0, 29)):
        assert begun[last] - begun[first] >= (last - first - 1) / 20 * MICROSECONDS
    assert len({record.worker for record in records}) > 1
    for worker in workers:
        worker.send(signal.SIGTERM)
        assert worker.wait() == 0
