"""Who may see and do what."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Permission, User
from django.core.management import call_command
from django.test import Client

from django_localqueue import queues
from django_localqueue.console.permissions import ACTIONS, has_permission
from django_localqueue.records import ScheduleRecord, WorkerRecord
from tests.unit.test_console.tools import (
    ACT,
    LIST,
    OPERATOR,
    OVERVIEW,
    VIEWER,
    Page,
    job_url,
    key,
    states,
)

FUTURE = "9" * 18
WORKER_ACT = "/admin/django_localqueue/worker/command/"
SCHEDULE_ACT = "/admin/django_localqueue/schedule/act/"


def posts(id):
    """Every act of the console as (name, address, fields, the permission it needs)."""
    chosen = {"selected": key("default", id), "confirmed": "1", "as_of": FUTURE}
    every = {"filter": "", "confirmed": "1", "word": "purge", "as_of": FUTURE}
    return [
        ("retry one", job_url("default", id, "job_retry"), {}, "retry_job"),
        ("retry selected", ACT, chosen | {"act": "retry-selected"}, "retry_job"),
        ("retry all", ACT, every | {"act": "retry-all"}, "retry_job"),
        ("retry all of", ACT, every | {"act": "retry-all", "filter": "queue=default"}, "retry_job"),
        ("purge selected", ACT, chosen | {"act": "purge-selected"}, "purge_queue"),
        ("purge all", ACT, every | {"act": "purge-all"}, "purge_queue"),
        ("purge by age", ACT, every | {"act": "purge-all", "state": "acked"}, "purge_queue"),
        ("discard", ACT, chosen | {"act": "discard-selected"}, "discard_job"),
        ("discard all", ACT, every | {"act": "discard-all", "state": "ready"}, "discard_job"),
        ("cancel all", ACT, every | {"act": "cancel-all", "state": "ready"}, "discard_job"),
        ("run one", job_url("default", id, "job_run"), {}, "run_job_now"),
        ("run all", ACT, every | {"act": "run_now-all", "state": "delayed"}, "run_job_now"),
        (
            "delay all",
            ACT,
            every | {"act": "delay-all", "state": "ready", "amount": "1", "unit": "hours"},
            "run_job_now",
        ),
        ("move", ACT, chosen | {"act": "move-selected", "target": "emails"}, "move_job"),
        ("pause", f"{OVERVIEW}pause/", {"queue": "default"}, "pause_queue"),
        ("resume", f"{OVERVIEW}resume/", {"queue": "default"}, "pause_queue"),
        *(
            (name, WORKER_ACT, {"worker": "w", "command": name}, "stop_worker")
            for name in ("quiet", "unquiet", "stop", "forget")
        ),
        *(
            (name, SCHEDULE_ACT, {"schedule": "s", "act": name}, needed)
            for name, needed in (
                ("pause_schedule", "pause_schedule"),
                ("resume_schedule", "pause_schedule"),
                ("run_schedule", "run_schedule"),
            )
        ),
    ]


POSTS = [name for name, *_rest in posts("x")]


@pytest.fixture
def mixed(fail):
    """A dead letter, an acked job, a waiting one, a worker and a schedule.

    Returns the dead letter's id.
    """
    queue = queues["default"]
    queue.put("done")
    queue.ack(queue.get(block=False))
    (id,) = fail(1)
    queue.put("waiting")
    queue.report_worker(WorkerRecord("w", started_at=queue.now()))
    queue.save_schedule(ScheduleRecord("s", "* * * * *", "app.run", next_at=queue.now()))
    return id


def everything():
    """Return all that an act of the console can change."""
    queue = queues["default"]
    return (
        states(),
        queue.stats().paused,
        [(one.name, one.command) for one in queue.workers()],
        [(one.name, one.paused) for one in queue.schedules()],
    )


def test_the_migration_makes_every_permission(db):
    found = Permission.objects.filter(content_type__app_label="django_localqueue")
    assert sorted(found.values_list("codename", flat=True)) == sorted(ACTIONS)


def test_makemigrations_has_nothing_to_add(db):
    call_command("makemigrations", "django_localqueue", check=True, dry_run=True, verbosity=0)


@pytest.mark.parametrize("name", POSTS)
def test_a_user_who_may_only_look_is_refused_each_act_and_nothing_changes(name, mixed, viewer):
    address, fields = {post[0]: post[1:3] for post in posts(mixed)}[name]
    before = everything()
    assert viewer.post(address, fields).status_code == 403
    assert everything() == before


@pytest.mark.parametrize("name", POSTS)
def test_every_other_permission_does_not_make_up_for_the_one_that_is_missing(name, mixed, login):
    address, fields, needed = {post[0]: post[1:] for post in posts(mixed)}[name]
    client = login(*(action for action in ACTIONS if action != needed))
    before = everything()
    assert client.post(address, fields).status_code == 403
    assert everything() == before


@pytest.mark.parametrize("name", POSTS)
def test_the_one_permission_and_looking_are_enough_for_each_act(name, mixed, login):
    address, fields, needed = {post[0]: post[1:] for post in posts(mixed)}[name]
    assert login(*VIEWER, needed).post(address, fields).status_code == 302


@pytest.mark.parametrize("name", POSTS)
def test_get_and_head_of_an_act_are_not_allowed_and_change_nothing(name, mixed, operator):
    address, fields = {post[0]: post[1:3] for post in posts(mixed)}[name]
    before = everything()
    assert operator.get(address, fields).status_code == 405
    assert operator.head(address, fields).status_code == 405
    assert everything() == before


@pytest.mark.parametrize("name", POSTS)
def test_a_post_without_the_csrf_token_is_refused(name, mixed, db):
    client = Client(enforce_csrf_checks=True)
    client.force_login(User.objects.create_superuser("root"))
    address, fields = {post[0]: post[1:3] for post in posts(mixed)}[name]
    before = everything()
    assert client.post(address, fields).status_code == 403
    assert everything() == before


@pytest.mark.parametrize("name", POSTS)
def test_an_anonymous_post_leads_to_the_login_and_changes_nothing(name, mixed, db):
    address, fields = {post[0]: post[1:3] for post in posts(mixed)}[name]
    before = everything()
    response = Client().post(address, fields)
    assert response.status_code == 302
    assert "/login/" in response["Location"]
    assert everything() == before


def pages(id):
    return [
        (OVERVIEW, "view_queue"),
        (f"{OVERVIEW}default/change/", "view_queue"),
        (f"{OVERVIEW}purge/", "purge_queue"),
        (LIST, "view_job"),
        (f"{LIST}errors/", "view_job"),
        (f"{LIST}tasks/", "view_job"),
        (f"{LIST}find/?id={id}", "view_job"),
        (job_url("default", id), "view_job"),
    ]


@pytest.mark.parametrize("index", range(8))
def test_a_page_is_refused_without_its_permission(index, mixed, login):
    address, needed = pages(mixed)[index]
    assert login().get(address).status_code == 403
    others = [action for action in ACTIONS if action != needed]
    assert login(*others).get(address).status_code == 403
    assert login(needed).get(address).status_code in (200, 302)


@pytest.mark.parametrize("index", range(8))
def test_a_page_leads_who_is_no_staff_to_the_login(index, mixed, login):
    address, _needed = pages(mixed)[index]
    for client in (Client(), login(*OPERATOR, is_staff=False)):
        response = client.get(address)
        assert response.status_code == 302
        assert "/login/" in response["Location"]


def test_an_inactive_user_sees_nothing(mixed, login):
    assert login(*OPERATOR, is_active=False).get(LIST).status_code == 302


def test_a_superuser_may_do_everything(mixed, db):
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    for address, _needed in pages(mixed):
        assert client.get(address).status_code in (200, 302)
    assert client.post(job_url("default", mixed, "job_retry")).status_code == 302
    assert queues["default"].lookup(mixed).state == "ready"


def test_who_may_only_look_is_offered_no_act(mixed, viewer, page):
    for address in (OVERVIEW, LIST, job_url("default", mixed)):
        shown = page(viewer, address)
        assert "act" not in shown.fields
        assert "selected" not in shown.fields
        assert not any("purge" in link for link in shown.links)
        formactions = [values.get("formaction") for _tag, values in shown.elements]
        assert not any(formactions)
        assert job_url("default", mixed, "job_retry") not in str(shown.elements)
        assert "pause/" not in str(shown.elements)


def test_the_payload_and_the_result_need_their_own_permission(login, viewer, page):
    queue = queues["default"]
    id = queue.put({"card": "the secret number"})
    queue.ack(queue.get(block=False), result={"answer": "the secret result"})
    shown = page(viewer, job_url("default", id)).text
    assert "the secret" not in shown
    assert "no permission to see payloads" in shown
    assert (
        "the secret number"
        in page(login("view_job", "view_job_payload"), job_url("default", id)).text
    )


def test_the_index_shows_the_console_to_who_may_look_and_to_nobody_else(viewer, login, page):
    assert LIST in page(viewer, "/admin/").links
    assert OVERVIEW in page(viewer, "/admin/").links
    assert LIST not in page(login(), "/admin/").links
    assert OVERVIEW not in page(login("view_job"), "/admin/").links


def test_the_index_offers_neither_adding_nor_changing(db, page):
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    links = page(client, "/admin/").links
    assert not any("django_localqueue" in link and "/add/" in link for link in links)
    for model in ("queue", "job", "worker", "schedule"):
        assert f"/admin/django_localqueue/{model}/" in links


def only_emails(request, action, queue):
    """A project's own rule."""
    return queue == "emails" and action in OPERATOR


@pytest.fixture
def own_rule(settings):
    settings.LOCALQUEUE_CONSOLE = {"HAS_PERMISSION": f"{__name__}.only_emails"}


def test_a_rule_of_the_projects_own_decides_for_each_queue(own_rule, fail, login, page):
    (other,) = fail(1)
    (mine,) = fail(1, alias="emails")
    client = login()
    text = page(client, LIST).text
    assert mine in text
    assert other not in text
    assert client.get(job_url("default", other)).status_code == 403
    assert client.get(job_url("emails", mine)).status_code == 200
    assert client.post(job_url("default", other, "job_retry")).status_code == 403
    assert "default" not in [row["row"].alias for row in client.get(OVERVIEW).context["rows"]]


def test_an_act_on_all_stays_in_the_queues_that_the_rule_allows(own_rule, fail, login):
    fail(2)
    fail(2, alias="emails")
    fields = {"act": "purge-all", "filter": "", "as_of": FUTURE, "confirmed": "1", "word": "purge"}
    client = login()
    assert client.post(ACT, fields).status_code == 302
    assert states("default") == (0, 2, 0)
    assert states("emails") == (0, 0, 0)


def test_an_act_on_jobs_of_two_queues_is_refused_whole_where_one_is_not_allowed(
    own_rule, fail, login
):
    (other,) = fail(1)
    (mine,) = fail(1, alias="emails")
    fields = {
        "act": "retry-selected",
        "confirmed": "1",
        "selected": [key("emails", mine), key("default", other)],
    }
    assert login().post(ACT, fields).status_code == 403
    assert states("emails") == (0, 1, 0)


def test_asking_about_an_unknown_action_is_an_error(rf):
    with pytest.raises(ValueError, match="no action 'fly'"):
        has_permission(rf.get("/"), "fly", "default")


def test_no_page_may_be_cached(mixed, operator):
    for address, _needed in pages(mixed):
        assert "no-store" in operator.get(address)["Cache-Control"]


def test_the_page_of_an_unknown_queue_is_not_found(operator):
    assert operator.get(job_url("nothing", "1")).status_code == 404
    assert operator.post(f"{OVERVIEW}pause/", {"queue": "nothing"}).status_code == 404
    assert operator.post(job_url("nothing", "1", "job_retry")).status_code == 404


def test_a_page_says_which_buttons_belong_to_which_job(mixed, operator):
    html = operator.get(LIST).content.decode()
    assert f"Select job {mixed} of default" in html
    assert Page(html).field("selected") == key("default", mixed)
