"""What somebody might try who may enter the admin, or who may put jobs."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import Client

from django_localqueue import queues
from django_localqueue.records import RunningJob, ScheduleRecord, WorkerRecord
from django_localqueue.types import ErrorRecord
from tests.unit.test_console.tools import ACT, LIST, OVERVIEW, Page, job_url, key

EVIL = '"><script>alert(1)</script><img src=x onerror=alert(2)>'
ELSEWHERE = (
    *("https://evil.example/", "//evil.example/", "javascript:alert(1)", "\\\\evil.example"),
    *("///evil.example", "http:///evil.example", "/\t/evil.example", " //evil.example"),
)


@pytest.fixture
def chief(login):
    return login(
        *("view_queue", "view_job", "view_job_payload", "retry_job", "run_job_now", "pause_queue"),
        *("view_worker", "stop_worker", "view_schedule", "pause_schedule", "run_schedule"),
    )


def addresses(id):
    """Every act whose form says where to go back to: address and fields."""
    return [
        (job_url("default", id, "job_retry"), {}),
        (job_url("default", id, "job_run"), {}),
        (ACT, {"act": "retry-selected", "selected": key("default", id), "confirmed": "1"}),
        (f"{OVERVIEW}pause/", {"queue": "default"}),
        (f"{OVERVIEW}resume/", {"queue": "default"}),
        ("/admin/django_localqueue/worker/command/", {"worker": "w", "command": "quiet"}),
        ("/admin/django_localqueue/schedule/act/", {"schedule": "s", "act": "run_schedule"}),
    ]


@pytest.mark.parametrize("target", ELSEWHERE)
def test_no_act_leads_to_another_site(target, fail, chief):
    queue = queues["default"]
    queue.report_worker(WorkerRecord("w", started_at=queue.now()))
    queue.save_schedule(ScheduleRecord("s", "* * * * *", "app.run", next_at=queue.now()))
    (id,) = fail(1)
    for address, fields in addresses(id):
        response = chief.post(address, fields | {"next": target})
        assert response.status_code == 302, address
        assert response["Location"].startswith("/admin/"), address


def test_no_address_to_go_back_to_makes_a_header(fail, chief):
    (id,) = fail(1)
    target = "/admin/\r\nSet-Cookie: stolen=1\r\n\r\n<script>alert(1)</script>"
    response = chief.post(job_url("default", id, "job_retry"), {"next": target})
    assert "stolen" not in response.cookies
    assert not set("\r\n") & set(response["Location"])


def test_a_csrf_token_is_asked_for_where_arguments_are_edited(fail, db):
    client = Client(enforce_csrf_checks=True)
    client.force_login(User.objects.create_superuser("root"))
    (id,) = fail(1, data={"a": 1})
    fields = {"before": '{"a":1}', "payload": '{"a": 2}', "retry": "1"}
    assert client.post(job_url("default", id, "job_edit"), fields).status_code == 403
    record = queues["default"].lookup(id)
    assert (record.state, record.payload) == ("failed", b'{"a":1}')


@pytest.mark.parametrize(
    "name",
    [
        *("view_job", "edit", "export", "retry_job", "purge_queue", "ack", "put", "apply"),
        *("RETRY", " retry", "retry ", "retry-all", "__class__", "", "-", "ретрай"),
    ],
)
@pytest.mark.parametrize("scope", ["selected", "all", "ALL", ""])
def test_an_action_by_a_name_that_is_none_is_refused_even_to_a_superuser(name, scope, fail, db):
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    (id,) = fail(1)
    fields = {"act": f"{name}-{scope}", "selected": key("default", id), "confirmed": "1"}
    fields |= {"as_of": "9" * 18, "word": "purge", "filter": ""}
    assert client.post(ACT, fields).status_code == 400
    assert queues["default"].lookup(id).state == "failed"


def test_markup_in_names_headers_payloads_and_errors_is_text_on_every_page(fail, chief):
    queue = queues["default"]
    now = queue.now()
    (id,) = fail(
        1,
        error=ErrorRecord(EVIL, EVIL, EVIL, EVIL),
        data={EVIL: EVIL},
        job_id=EVIL,
        task=EVIL,
        headers={EVIL: EVIL},
    )
    running = (RunningJob(EVIL, EVIL, EVIL, now),)
    queue.report_worker(WorkerRecord(EVIL, EVIL, 1, EVIL, now, (EVIL,), 1, running, {EVIL: 1}))
    queue.save_schedule(ScheduleRecord(EVIL, EVIL, EVIL, args=(EVIL,), timezone=EVIL, next_at=now))
    for address in (
        "/admin/",
        OVERVIEW,
        f"{OVERVIEW}default/change/",
        LIST,
        f"{LIST}errors/",
        f"{LIST}tasks/",
        job_url("default", id),
        "/admin/django_localqueue/worker/",
        "/admin/django_localqueue/schedule/",
        f"{LIST}?text={EVIL}&task={EVIL}&id={EVIL}",
    ):
        response = chief.get(address)
        assert response.status_code == 200, address
        html = response.content.decode()
        assert "<script>alert" not in html, address
        assert Page(html).forbidden == [], address


@pytest.mark.parametrize(
    "id", ["../../etc/passwd", "..%2f..%2fetc", "/etc/passwd", "a/../b", "C:\\x", "%00", "\u202e"]
)
def test_an_id_that_looks_like_a_path_is_only_an_id(id, chief):
    assert chief.get(job_url("default", id)).status_code == 404
    queues["default"].put("x", id)
    assert chief.get(job_url("default", id)).context["job"].id == id


@pytest.mark.parametrize("object_id", ["nowhere_2Fx", "noslash", "_2F", "default", "..%2Fx"])
def test_an_address_that_names_no_job_of_a_queue_is_not_found(object_id, chief):
    assert chief.get(f"{LIST}{object_id}/change/").status_code == 404


@pytest.mark.parametrize(
    "query",
    ["state=nowhere", "state=failed&failure=1 OR 1=1", "attempts=-1", "attempts=x", "per=1000000"],
)
def test_a_filter_that_is_none_is_told_and_shows_nothing(query, fail, chief):
    fail(1)
    response = chief.get(f"{LIST}?{query}")
    assert response.status_code == 400
    assert "rows" not in response.context


@pytest.mark.parametrize("after", ["x", "1-2-3-4", "-1--1-", "9" * 40, "1e9-1-", "1-1-\x00"])
def test_a_place_in_the_list_that_is_none_is_the_first_page(after, fail, chief):
    fail(1)
    assert len(chief.get(LIST, {"after": after}).context["rows"]) in (0, 1)


def test_a_selected_job_of_a_queue_that_the_rule_forbids_is_refused(settings, fail, chief):
    settings.LOCALQUEUE_CONSOLE = {"HAS_PERMISSION": f"{__name__}.only_emails"}
    (id,) = fail(1)
    fields = {"act": "retry-selected", "selected": key("default", id), "confirmed": "1"}
    assert chief.post(ACT, fields).status_code == 403
    assert chief.get(job_url("default", id)).status_code == 403
    assert chief.get(f"{OVERVIEW}default/change/").status_code == 403
    assert queues["default"].lookup(id).state == "failed"


def only_emails(request, action, queue):
    return queue == "emails"
