"""Each action as each role, on each store: what a role may not do isn't offered, the rest works."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.auth.models import Permission, User

from django_localqueue import queues
from django_localqueue.console import shared
from django_localqueue.console.permissions import ACTIONS, ROLES
from django_localqueue.records import ScheduleRecord, WorkerRecord
from django_localqueue.types import JobFilter
from tests.fakes.rqlite import FakeCluster
from tests.fakes.versions import V10
from tests.rqlite.nodes import RealCluster, find_rqlited

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

BASE = "/admin/django_localqueue"
ONE = f"{BASE}/job/?state={{state}}&id={{id}}"
JOB = f"{BASE}/job/default_2F{{id}}/change/"
WORKER, SCHEDULE = "web1:12:ab", "nightly"
ROLE_ACTIONS = {**ROLES, "superuser": ACTIONS}


@dataclass(frozen=True)
class Deed:
    """What can be done: the permission it needs, the button, and what becomes of it.

    ``says`` is the message afterwards, "" where a file comes instead, None for what is only to
    be seen. ``state`` is that of the job it is tried on; ``then`` are the steps after the button,
    a selector to click or a selector and a text; ``leaves`` tells whether it was done.
    """

    needs: str
    where: str
    press: str
    says: str | None
    leaves: Callable[[str], bool] = lambda _id: True
    state: str = "failed"
    then: tuple[str | tuple[str, str], ...] = ()
    before: Callable[[], Any] = field(default=lambda: None)


def job(*states: str | None) -> Callable[[str], bool]:
    """Return whether the job is in one of the states; None: it is gone."""

    def is_in(id: str) -> bool:
        record = queues["default"].lookup(id)
        return (record and record.state) in states

    return is_in


def asked(command: str) -> Callable[[str], bool]:
    return lambda _id: [one.command for one in queues["default"].workers()] == [command]


def schedule_is_paused(paused: bool) -> Callable[[str], bool]:
    return lambda _id: [one.paused for one in queues["default"].schedules()] == [paused]


def report(state: Any = "running") -> None:
    queue = queues["default"]
    queue.report_worker(
        WorkerRecord(WORKER, "web1", 12, "0.1", queue.now(), ("default",), 4, state=state)
    )


def act(name: str) -> str:
    return f"button[value={name}]"


TICK = "tbody input[type=checkbox]"
WORKERS, SCHEDULES = f"{BASE}/worker/", f"{BASE}/schedule/"
PAUSE = "tr:has(th a:text-is('default')) button"
YES = ".lq-buttons button"
DEEDS = {
    "pause": Deed(
        *("pause_queue", f"{BASE}/queue/", f"{PAUSE}:has-text('Pause')", "is paused"),
        lambda _id: queues["default"].stats().paused,
    ),
    "resume": Deed(
        *("pause_queue", f"{BASE}/queue/", f"{PAUSE}:has-text('Resume')", "is resumed"),
        lambda _id: not queues["default"].stats().paused,
        before=lambda: queues["default"].pause(),
    ),
    "retry in the list": Deed(
        "retry_job", ONE, "tbody button", "Retried 1 failed job.", job("ready")
    ),
    "retry on the page": Deed(
        *("retry_job", JOB, "button:text-is('Retry')", "Retried 1 failed job."), job("ready")
    ),
    "retry selected": Deed(
        *("retry_job", ONE, act("retry-selected"), "Retried 1 failed job."),
        job("ready"),
        then=(YES,),
    ),
    "retry all": Deed(
        *("retry_job", ONE, act("retry-all"), "Retried 1 failed job."), job("ready"), then=(YES,)
    ),
    "retry a group": Deed(
        *("retry_job", f"{BASE}/job/errors/", act("retry-all"), "Retried 1 failed job."),
        job("ready"),
        then=(YES,),
    ),
    "edit and retry": Deed(
        *("edit_job", JOB, "text=Edit arguments", "Retried 1 failed job."),
        lambda id: queues["default"].lookup(id).payload == b'{"n":2}',
        then=(("#lq-payload", '{"n": 2}'), "text=Save and retry"),
    ),
    "run now": Deed(
        *("run_job_now", ONE, "tbody button", "Made 1 job ready"), job("ready"), "delayed"
    ),
    "run now selected": Deed(
        *("run_job_now", ONE, act("run_now-selected"), "Made 1 job ready", job("ready")),
        *("delayed", (YES,)),
    ),
    "delay": Deed(
        *("run_job_now", ONE, act("delay-all"), "Delayed 1 job.", job("delayed"), "ready"),
        then=(("#lq-amount", "3"), YES),
    ),
    "move": Deed(
        *("move_job", JOB, act("move-selected"), "Moved 1 job."),
        lambda _id: queues["emails"].stats().failed == 1,
        then=(YES,),
    ),
    "cancel": Deed(
        *("discard_job", JOB, act("cancel-selected"), "Cancelled 1 job.", job("failed"), "ready"),
        then=(YES,),
    ),
    "discard, and undo": Deed(
        *("discard_job", ONE, act("discard-all"), "Retried 1 failed job.", job("ready")),
        then=(YES, "text=Undo", "button:has-text('Restore')"),
    ),
    "purge": Deed(
        *("purge_queue", ONE, act("purge-selected"), "Purged 1 job.", job(None), "acked", (YES,)),
    ),
    "purge all": Deed(
        *("purge_queue", ONE, act("purge-all"), "Purged 1 job.", job(None)),
        then=(("#lq-word", "purge"), YES),
    ),
    "purge by age": Deed(
        *("purge_queue", f"{BASE}/queue/", "text=Purge finished jobs by age", "Purged 1 job."),
        *(job(None), "acked"),
        then=(("#lq-age", "0"), "input[value='Count them']", ("#lq-word", "purge"), YES),
    ),
    "quiet a worker": Deed(
        *("stop_worker", WORKERS, act("quiet"), "is asked to claim no more", asked("quiet")),
        before=report,
    ),
    "resume a worker": Deed(
        *("stop_worker", WORKERS, act("unquiet"), "is asked to claim jobs", asked("resume")),
        before=lambda: report("quiet"),
    ),
    "stop a worker": Deed(
        *("stop_worker", WORKERS, act("stop"), "is asked to stop", asked("stop")), before=report
    ),
    "forget a worker": Deed(
        *("stop_worker", WORKERS, act("forget"), "is forgotten"),
        lambda _id: queues["default"].workers() == [],
        before=report,
    ),
    "pause a schedule": Deed(
        *("pause_schedule", SCHEDULES, act("pause_schedule"), "is paused"), schedule_is_paused(True)
    ),
    "resume a schedule": Deed(
        *("pause_schedule", SCHEDULES, act("resume_schedule"), "goes on"),
        schedule_is_paused(False),
        before=lambda: queues["default"].pause_schedule(SCHEDULE, True),
    ),
    "run a schedule": Deed(
        *("run_schedule", SCHEDULES, act("run_schedule"), "was put."),
        lambda _id: queues["default"].stats().ready == 1,
    ),
    "export": Deed("export_job", ONE, "text=Export CSV", ""),
    "see the payload": Deed("view_job_payload", JOB, "#lq-payload", None),
    "search in arguments": Deed("view_job_payload", ONE, "#lq-args", None),
}


@pytest.fixture(scope="module")
def real_urls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    if find_rqlited() is None:
        pytest.skip("rqlited is neither on PATH nor named by RQLITED")
    with RealCluster(tmp_path_factory.mktemp("rqlite"), nodes=1) as cluster:
        yield cluster.urls


@pytest.fixture(params=["sqlite", "stand-in", pytest.param("rqlite", marks=pytest.mark.rqlite)])
def store(request: Any, site: None, settings: Any) -> Iterator[str]:
    """Both queues on the store of that name."""
    backend = "django_localqueue.backends.rqlite.RqliteQueue"
    if request.param == "sqlite":
        yield request.param
    elif request.param == "stand-in":
        with FakeCluster(V10, nodes=1) as cluster:
            settings.LOCALQUEUE = {
                "default": {"BACKEND": backend, "LOCATION": cluster.urls},
                "emails": {},
            }
            yield request.param
            queues.close_all()
    else:
        urls = request.getfixturevalue("real_urls")
        settings.LOCALQUEUE = {"default": {"BACKEND": backend, "LOCATION": urls}, "emails": {}}
        yield request.param


def empty() -> None:
    """Leave nothing of the deed before, nor of the test before, but a schedule that isn't due."""
    for alias in ("default", "emails"):
        queue = queues[alias]
        queue.resume()
        for state in ("ready", "delayed"):
            queue.apply("discard", JobFilter(state=state))
        for state in ("failed", "acked"):
            queue.apply("purge", JobFilter(state=state))
    queue.forget_worker(WORKER)
    queue.save_schedule(
        ScheduleRecord(
            SCHEDULE, "0 3 * * *", "shop.tasks.report", next_at=queue.now() + 3_600_000_000
        )
    )
    queue.pause_schedule(SCHEDULE, False)


def make(state: str) -> str:
    """Put a job and bring it into a state; return its id."""
    queue = queues["default"]
    id = str(queue.put({"n": 1}, task="shop.tasks.send", delay=3_600 if state == "delayed" else 0))
    if state in ("failed", "acked"):
        taken = queue.get(block=False, worker=WORKER)
        if state == "failed":
            queue.fail(taken, ValueError("no such address"))
        else:
            queue.ack(taken)
    return id


def carry_out(page: Page, deed: Deed) -> None:
    """Press the button as a person would, and what comes after it."""
    if deed.press.endswith("-selected]") and page.locator(TICK).count():
        page.check(TICK)
    if deed.says is None:
        return
    if not deed.says:
        with page.expect_download():
            page.click(deed.press)
        return
    page.click(deed.press)
    for step in deed.then:
        if isinstance(step, str):
            page.click(step)
        else:
            page.fill(*step)
    page.wait_for_selector(f".messagelist >> text={deed.says}")


@pytest.mark.parametrize("role", ROLE_ACTIONS)
def test_a_role_is_offered_what_it_may_do_and_that_works(
    role, store, open_page, screenshot, monkeypatch
):
    may = ROLE_ACTIONS[role]
    user = User.objects.create_user(
        role, password="a long password", is_staff=True, is_superuser=role == "superuser"
    )
    if role != "superuser":
        user.user_permissions.set(Permission.objects.filter(codename__in=may))
    page = open_page(role)
    wrong = []
    for name, deed in DEEDS.items():
        empty()
        id = make(deed.state)
        deed.before()
        monkeypatch.setattr(shared, "STALE", -1 if name == "forget a worker" else 90_000_000)
        page.goto(deed.where.format(state=deed.state, id=id))
        is_offered = page.locator(deed.press).count() > 0
        if is_offered != (deed.needs in may):
            wrong.append(f"{name}: {'offered' if is_offered else 'not offered'}")
        elif is_offered:
            carry_out(page, deed)
            if not deed.leaves(id):
                wrong.append(f"{name}: not done")
    empty()
    make("failed")
    for shown, address in {"list": f"{BASE}/job/", "overview": f"{BASE}/queue/"}.items():
        page.goto(address)
        screenshot(page, f"role-{role.replace(' ', '-')}-{store}-{shown}".lower())
    assert wrong == []
