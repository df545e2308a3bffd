"""The pages of workers and schedules, and what can be asked of them."""

from __future__ import annotations

import pytest
from django.contrib.admin.models import LogEntry

from django_localqueue import models, queues
from django_localqueue.records import RunningJob, ScheduleRecord, WorkerRecord
from tests.unit.test_console.tools import Page, messages

WORKERS = "/admin/django_localqueue/worker/"
COMMAND = f"{WORKERS}command/"
SCHEDULES = "/admin/django_localqueue/schedule/"
ACT = f"{SCHEDULES}act/"


def report(name="web1:12:ab", **values):
    """Report a worker as it would itself."""
    queue = queues["default"]
    record = WorkerRecord(name, "web1", 12, "0.1.0", queue.now(), ("default",), 4, **values)
    return queue.report_worker(record)


def schedule(name="nightly", **values):
    """Save a schedule as a worker would."""
    queue = queues["default"]
    options = {"expression": "0 3 * * *", "task": "shop.report", "queue": "emails", **values}
    options.setdefault("next_at", queue.now() + 60_000_000)
    queue.save_schedule(ScheduleRecord(name, **options))


@pytest.fixture
def chief(login):
    """A user who may do everything with workers and schedules."""
    return login(
        *("view_worker", "stop_worker", "view_schedule", "pause_schedule", "run_schedule"),
        *("view_job", "view_job_payload"),
    )


def test_a_worker_shows_what_it_runs_and_how_it_is(chief):
    id = queues["emails"].put("x", task="shop.send")
    job = queues["emails"].get_nowait()
    began = queues["default"].now() - 65_000_000
    running = (RunningJob(str(id), "shop.send", "emails", began),)
    report(running=running, counts={"done": 7}, rss=50 << 20)
    response = chief.get(WORKERS)
    (row,) = response.context["rows"]
    assert (row["use"], row["percent"]) == ("1/4", 25)
    text = Page(response.content.decode()).text
    for expected in ("web1:12:ab", "0.1.0", "shop.send", "1\xa0minute", "50.0", "done: 7"):
        assert expected in text
    assert row["jobs"][0]["url"].endswith(f"emails_2F{id}/change/")
    queues["emails"].ack(job)


def test_a_worker_of_a_queue_that_the_user_may_not_see_hides_the_id_of_its_job(login):
    now = queues["default"].now()
    report(running=(RunningJob("secret-id", "shop.send", "emails", now),))
    html = login("view_worker").get(WORKERS).content.decode()
    assert "secret-id" not in html
    assert "shop.send" in html


def test_a_worker_that_is_not_heard_of_is_flagged(chief, monkeypatch):
    report()
    monkeypatch.setattr("django_localqueue.console.shared.STALE", -1)
    (row,) = chief.get(WORKERS).context["rows"]
    assert row["is_silent"] or row["is_dead"]


@pytest.mark.parametrize(
    ("command", "asked"), [("quiet", "quiet"), ("stop", "stop"), ("unquiet", "resume")]
)
def test_a_worker_hears_what_it_is_asked(command, asked, chief):
    report(state="quiet" if command == "unquiet" else "running")
    response = chief.post(COMMAND, {"worker": "web1:12:ab", "command": command}, follow=True)
    assert "is asked to" in messages(response)
    assert report(state="quiet" if command == "unquiet" else "running") == asked
    entry = LogEntry.objects.get()
    assert (entry.content_type.model_class(), entry.object_repr) == (models.Worker, "web1:12:ab")


def test_a_worker_is_forgotten(chief):
    report()
    chief.post(COMMAND, {"worker": "web1:12:ab", "command": "forget"})
    assert queues["default"].workers() == []


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"worker": "web1:12:ab", "command": "format"}, 400),
        ({"worker": "web1:12:ab"}, 400),
        ({"worker": "nobody", "command": "stop"}, 404),
        ({"worker": "../../etc", "command": "stop"}, 404),
    ],
)
def test_a_command_that_is_none_or_for_nobody_is_refused(fields, status, chief):
    report()
    assert chief.post(COMMAND, fields).status_code == status


def test_who_may_only_look_at_workers_can_ask_nothing(login, viewer):
    report()
    client = login("view_worker")
    (row,) = client.get(WORKERS).context["rows"]
    assert row["commands"] == []
    fields = {"worker": "web1:12:ab", "command": "stop"}
    assert client.post(COMMAND, fields).status_code == 403
    assert viewer.get(WORKERS).status_code == 403
    assert report() is None


def test_a_schedule_shows_when_it_runs_and_is_late(chief):
    schedule(args=(1,), kwargs={"token": "hunter2", "kind": "full"})
    schedule("late", next_at=queues["default"].now() - 600_000_000)
    rows = {row["record"].name: row for row in chief.get(SCHEDULES).context["rows"]}
    assert (rows["nightly"]["is_late"], rows["late"]["is_late"]) == (False, True)
    assert "hunter2" not in rows["nightly"]["arguments"]
    assert "full" in rows["nightly"]["arguments"]


def test_arguments_of_a_schedule_are_hidden_from_who_may_not_see_payloads(login):
    schedule(args=("private",))
    assert "private" not in login("view_schedule").get(SCHEDULES).content.decode()


def test_a_schedule_is_paused_and_goes_on(chief):
    schedule()
    fields = {"schedule": "nightly", "act": "pause_schedule"}
    assert "is paused" in messages(chief.post(ACT, fields, follow=True))
    assert queues["default"].schedules()[0].paused
    chief.post(ACT, fields | {"act": "resume_schedule"})
    assert not queues["default"].schedules()[0].paused
    assert LogEntry.objects.count() == 2


def test_running_a_schedule_now_puts_its_job_and_leaves_its_times(chief):
    schedule(args=(1,), kwargs={"a": 2})
    before = queues["default"].schedules()[0].next_at
    chief.post(ACT, {"schedule": "nightly", "act": "run_schedule"})
    job = queues["emails"].get_nowait()
    assert (job.task, job.data) == ("shop.report", {"args": [1], "kwargs": {"a": 2}})
    assert queues["default"].schedules()[0].next_at == before


def test_the_admins_log_leads_from_an_act_to_the_list(chief):
    report()
    schedule()
    chief.post(COMMAND, {"worker": "web1:12:ab", "command": "quiet"})
    chief.post(ACT, {"schedule": "nightly", "act": "pause_schedule"})
    addresses = [entry.get_admin_url() for entry in LogEntry.objects.order_by("pk")]
    assert [len(chief.get(address).context["rows"]) for address in addresses] == [1, 1]


@pytest.mark.parametrize("act", ["pause_schedule", "resume_schedule", "run_schedule"])
def test_who_may_only_look_at_schedules_changes_nothing(act, login):
    schedule()
    client = login("view_schedule")
    assert client.post(ACT, {"schedule": "nightly", "act": act}).status_code == 403
    assert queues["emails"].stats().ready == 0


@pytest.mark.parametrize(
    "fields", [{"schedule": "nightly", "act": "drop"}, {"act": "run_schedule"}]
)
def test_an_act_on_no_schedule_is_refused(fields, chief):
    schedule()
    assert chief.post(ACT, fields).status_code == 404


def test_the_overview_tells_of_schedules_that_are_due(login):
    schedule(next_at=queues["default"].now() - 1)
    shown = login("view_queue", "view_schedule").get("/admin/django_localqueue/queue/")
    assert shown.context["schedules"]["due"] == 1
    assert login("view_queue").get("/admin/django_localqueue/queue/").context["schedules"] is None


def test_the_overview_tells_how_many_workers_run_to_who_may_see_them(login, page, monkeypatch):
    overview = "/admin/django_localqueue/queue/"
    client = login("view_queue", "view_worker")
    assert "No worker has reported itself." in page(client, overview).text
    report()
    assert "1 worker runs." in page(client, overview).text
    assert "worker" not in page(login("view_queue"), overview).text
    monkeypatch.setattr("django_localqueue.console.shared.STALE", -1)
    assert "No worker runs: the jobs wait." in page(client, overview).text


def test_a_schedule_without_arguments_shows_none(chief):
    schedule()
    assert chief.get(SCHEDULES).context["rows"][0]["arguments"] == ""
