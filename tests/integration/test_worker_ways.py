"""Every option of the worker command, given by its flag, in the environment and in settings."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from django_localqueue.worker.options import OPTIONS
from tests.fakes.rqlite import FakeCluster
from tests.integration.worker_site import Site, WorkerProcess

BY_NAME = {option.name: option for option in OPTIONS}


def by_flags(site: Site, options: dict[str, Any]) -> WorkerProcess:
    arguments = []
    for name, value in options.items():
        option = BY_NAME[name]
        if value is True:
            arguments.append(option.flag)
        elif value is False:
            arguments.append(f"--no-{name}")
        else:
            for one in value if option.repeatable else [value]:
                arguments += [option.flag, str(one)]
    return site.start(*arguments)


def by_environment(site: Site, options: dict[str, Any]) -> WorkerProcess:
    given = {
        BY_NAME[name].variable: ",".join(value) if isinstance(value, list) else str(value)
        for name, value in options.items()
    }
    return site.start(**given)


def by_settings(site: Site, options: dict[str, Any]) -> WorkerProcess:
    given = {BY_NAME[name].key: value for name, value in options.items()}
    site.append("settings", f"LOCALQUEUE_WORKER |= {given!r}")
    return site.start()


Start = Callable[[Site, dict[str, Any]], WorkerProcess]
each_way = pytest.mark.parametrize(
    "start", [by_flags, by_environment, by_settings], ids=["flags", "environment", "settings"]
)
#: The options that the tests below give, each of them in every way.
GIVEN: set[str] = set()


def given(options: dict[str, Any]) -> dict[str, Any]:
    GIVEN.update(options)
    return options


NAMED = given(
    {
        "queue": ["emails", "default"],
        "threads": 3,
        "name": "w",
        "log_format": "json",
        "health_port": 0,
        "pidfile": "worker.pid",
        "health_file": "alive",
        "shutdown_timeout": 0.2,
        "lease": 3600.0,
    }
)
BURST = given({"burst": True, "fail_on_error": True, "exclude_queue": ["emails"]})
LIMITS = [
    given({"max_jobs": 1, "max_jobs_jitter": 2}),
    given({"max_idle": 0.2}),
    given({"max_memory": 1.0}),
    given({"max_lifetime": 0.2}),
]
TIMEOUT = given({"processes": 2, "job_timeout": 0.5})
POLL = given({"poll_interval": 0.01})
RELOAD = given({"reload": True})


@each_way
def test_what_is_served_by_whom_and_how_it_is_seen(site: Site, start: Start) -> None:
    worker = start(site, NAMED)
    worker.wait_for_log("serves emails, default")
    held = site.put("wait_for_gate", "a")
    site.wait_until(lambda: site.ledger("begun"), "the job")
    assert "queues   emails, default (the first before the next)" in worker.log
    assert "threads  3, until TERM or INT" in worker.log
    assert "health   http://127.0.0.1:" in worker.log
    record = site.queue.lookup(held)
    assert record.worker == "w"
    assert record.lease_expires_at - record.started_at > 3_000_000_000
    assert (site.folder / "worker.pid").read_text() == f"{worker.process.pid}\n"
    site.wait_until((site.folder / "alive").exists, "the health file")
    worker.send(signal.SIGTERM)
    assert worker.wait() == 1
    assert site.queue.lookup(held).state == "ready"
    lines = [json.loads(line) for line in worker.log.splitlines() if line.startswith("{")]
    (told,) = [line for line in lines if line.get("job_id") == held]
    assert (told["level"], told["queue"], told["worker"]) == ("WARNING", "default", "w")


@each_way
def test_a_burst_that_leaves_a_queue_out_and_fails(site: Site, start: Start) -> None:
    with type(site.queue)(site.folder / "queue", "emails", durability="normal") as emails:
        emails.put({"n": 1})
        site.put("fail")
        assert start(site, BURST).wait() == 4
        assert emails.stats().ready == 1
    assert site.queue.stats().failed == 1


@each_way
@pytest.mark.parametrize("limit", LIMITS, ids=[next(iter(limit)) for limit in LIMITS])
def test_a_limit_ends_it(site: Site, start: Start, limit: dict[str, Any]) -> None:
    for number in range(5):
        site.put("work", number)
    worker = start(site, {"threads": 1, **limit})
    assert worker.wait() == 0
    name = next(iter(limit)).replace("_", "-")
    assert f"{name} was reached" in worker.log
    if "max_jobs" in limit:
        assert 1 <= site.queue.stats().acked <= 3


@each_way
def test_processes_end_a_job_past_its_time(site: Site, start: Start) -> None:
    id = site.put("hang", "a")
    worker = start(site, TIMEOUT)
    site.wait_until(lambda: site.queue.lookup(id).state == "failed", "the failure")
    assert site.queue.lookup(id).error.error_class == "django_localqueue.exceptions.JobTimeout"
    assert "in each of 2 processes" in worker.log
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0


@each_way
def test_an_idle_worker_on_rqlite_looks_as_often_as_told(tmp_path: Path, start: Start) -> None:
    with FakeCluster() as often, FakeCluster() as seldom, ExitStack() as stack:
        sites = []
        for name, cluster in (("often", often), ("seldom", seldom)):
            (tmp_path / name).mkdir()
            sites.append(Site(tmp_path / name, cluster.urls))
            stack.callback(sites[-1].close)
        start(sites[0], POLL).wait_for_log("serves default, emails")
        sites[1].start("--poll-interval", "60").wait_for_log("serves default, emails")
        # At first both look often. Then one soon asks for nothing but what it is to do.
        sites[1].wait_until(lambda: len(seldom.seen) >= 20, "the first looks")
        before = len(often.seen), len(seldom.seen)
        sites[1].wait_until(lambda: len(seldom.seen) >= before[1] + 6, "more requests")
        ratio = (len(often.seen) - before[0]) / (len(seldom.seen) - before[1])
        assert ratio > 3


@each_way
def test_it_starts_anew_when_code_changes(site: Site, start: Start) -> None:
    worker = start(site, RELOAD)
    worker.wait_for_log("serves default, emails")
    site.append("tasks", "@task\ndef added():\n    ledger.write('added', 1)")
    site.wait_until(lambda: worker.log.count("serves default, emails") == 2, "a new start")
    site.put("added")
    site.wait_until(lambda: site.ledger("added"), "the new task")
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0


def test_with_debug_it_starts_anew_unless_told_not_to(site: Site) -> None:
    site.append("settings", "DEBUG = True")
    anew, stays = site.start(), site.start("--no-reload")
    stays.wait_for_log("serves default, emails")
    for times in (1, 2):  # each change is seen a second after the last one at the earliest
        anew.wait_for_log("serves default, emails")
        site.append("tasks", "MORE = True")
        site.wait_until(
            lambda times=times: anew.log.count("serves default, emails") == times + 1, "a new start"
        )
    for worker in (anew, stays):
        worker.send(signal.SIGTERM)
        assert worker.wait() == 0
    assert stays.log.count("serves default, emails") == 1


@pytest.mark.parametrize("processes", ["1", "2"])
def test_told_to_stop_it_does_not_start_anew(site: Site, processes: str) -> None:
    site.put("wait_for_gate", "a")
    worker = site.start("--reload", "--processes", processes)
    site.wait_until(lambda: site.ledger("begun"), "the job")
    site.append("tasks", "MORE = True")
    worker.wait_for_log("The worker stops (asked to)")  # and starts anew when the job is done
    worker.send(signal.SIGTERM)
    site.append("tasks", "MORE = False")
    worker.wait_for_log("Received SIGTERM while stopping already")
    site.open_gate()
    assert worker.wait() == 0
    assert worker.log.count("worker   ") == 1
    assert site.queue.stats().acked == 1


def test_a_flag_comes_before_the_environment_and_that_before_settings(site: Site) -> None:
    site.append("settings", "LOCALQUEUE_WORKER |= {'THREADS': 2, 'NAME': 'set', 'BURST': True}")
    variables = {"LOCALQUEUE_THREADS": "3", "LOCALQUEUE_NAME": "env"}
    workers = []
    for flags, environment in (((), {}), ((), variables), (("--threads", "5"), variables)):
        workers.append(site.start(*flags, **environment))
        assert workers[-1].wait() == 0  # two of one name at a time are refused
    for worker, name, threads in zip(workers, ("set", "env", "env"), (2, 3, 5), strict=True):
        assert f"worker   {name}, pid {worker.process.pid}" in worker.log
        assert f"threads  {threads}, until the queues are empty" in worker.log


@pytest.mark.parametrize(
    ("variables", "named"),
    [
        ({"LOCALQUEUE_THREADS": "many"}, "LOCALQUEUE_THREADS"),
        ({"LOCALQUEUE_LEASE": "nan"}, "LOCALQUEUE_LEASE"),
        ({"LOCALQUEUE_BURST": "maybe"}, "LOCALQUEUE_BURST"),
    ],
)
def test_a_wrong_variable_ends_with_2_and_its_name(
    site: Site, variables: dict[str, str], named: str
) -> None:
    worker = site.start(**variables)
    assert worker.wait() == 2
    assert named in worker.log
    assert "Traceback" not in worker.log


def test_a_wrong_setting_ends_with_2_and_its_name(site: Site) -> None:
    site.append("settings", "LOCALQUEUE_WORKER |= {'THREADS': 0, 'MAX_JOB': 7}")
    worker = site.start()
    assert worker.wait() == 2
    assert "MAX_JOB" in worker.log
    assert "THREADS" in worker.log


def test_the_log_as_text_is_there_whatever_the_project_says(site: Site) -> None:
    site.append("settings", "LOGGING = {'version': 1, 'disable_existing_loggers': True}")
    id = site.put("work", 1)
    worker = site.start("--burst", "--log-format", "text")
    assert worker.wait() == 0
    assert f"INFO Job {id} of default ended with ack after " in worker.log


def test_verbosity_goes_from_silence_to_a_line_a_job(site: Site) -> None:
    site.append(
        "settings", "SILENCED_SYSTEM_CHECKS = [f'django_localqueue.W00{n}' for n in (5, 6)]"
    )
    said = []
    for verbosity in "012":
        site.put("work", verbosity)
        worker = site.start("--burst", "-v", verbosity)
        assert worker.wait() == 0
        said.append(worker.log)
    assert said[0] == ""
    assert "1 done" in said[1]
    assert "ended with ack" not in said[1]
    assert "ended with ack" in said[2]


def test_no_option_is_left_out_here() -> None:
    assert set(BY_NAME) == GIVEN
