"""Run now, delay, move, cancel; acts that go on in slices; the undo of a discard."""

from __future__ import annotations

import pytest
from django.contrib.admin.models import LogEntry

from django_localqueue import queues
from django_localqueue.console import job_action
from tests.unit.test_console.tools import ACT, LIST, Page, confirm, job_url, key, messages, states


def state_of(id, alias="default"):
    return queues[alias].lookup(id).state


def begin(client, page, act, state, selected=(), **more):
    """Send the list's form for an act; return the confirmation page."""
    shown = page(client, f"{LIST}?state={state}&queue=default")
    fields = {name: shown.field(name) for name in ("filter", "as_of", "next", "state")}
    return client.post(ACT, fields | {"act": act, "selected": list(selected)} | more)


def finish(client, response, **more):
    """Send the confirmation page's form with what was typed into it."""
    fields = Page(response.content.decode()).fields | {name: [v] for name, v in more.items()}
    return client.post(ACT, fields, follow=True)


@pytest.mark.parametrize("state", ["failed", "ready", "delayed", "blocked", "processing", "acked"])
def test_jobs_of_every_state_are_listed(state, fail, viewer, page):
    queue = queues["default"]
    queue.put("acked")
    queue.ack(queue.get_nowait())
    fail(1)
    queue.put("processing")
    queue.get(block=False, worker="w1")
    queue.put("ready", group_id="g")
    queue.put("blocked", group_id="g")
    queue.put("delayed", delay=60)
    response = viewer.get(f"{LIST}?state={state}")
    (row,) = response.context["rows"]
    assert queue.lookup(row["id"]).state == state
    assert "<time" in row["time"]
    assert [tab["is_current"] for tab in response.context["tabs"]].count(True) == 1


def test_lists_of_waiting_jobs_go_on_from_page_to_page_over_both_queues(viewer):
    expected = []
    for number in range(60):
        alias = ("default", "emails")[number % 2]
        expected.append(str(queues[alias].put(number, priority=number % 3)))
    seen, address = [], f"{LIST}?state=ready&per=25"
    while address:
        context = viewer.get(address).context
        seen += [row["id"] for row in context["rows"]]
        address = context["next_url"]
    assert sorted(seen) == sorted(expected)
    assert len(seen) == 60


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("attempts=2", ["b"]),
        ("group=g", ["c"]),
        ("id=a", ["a"]),
        ("id=gone", []),
        ("args=needle", ["b"]),
        ("args=NEEDLE", ["b"]),
        ("args=nothing", []),
    ],
)
def test_filters_find_by_attempts_group_id_and_arguments(query, found, operator):
    queue = queues["default"]
    for id, data, group in (("a", 1, None), ("b", {"x": "a Needle"}, None), ("c", 2, "g")):
        queue.put(data, id, group_id=group)
    for job in queue.get_many(3):
        (queue.nack if job.id == "b" else queue.fail)(job)
    queue.fail(queue.get_nowait())
    rows = operator.get(f"{LIST}?{query}").context["rows"]
    assert [row["id"] for row in rows] == found


def test_a_search_in_arguments_finds_nothing_for_who_may_not_see_payloads(fail, viewer):
    fail(1, data={"x": "needle"})
    context = viewer.get(f"{LIST}?args=needle").context
    assert context["rows"] == []
    assert not context["can_search_arguments"]


def test_a_search_in_arguments_offers_no_act_on_all(fail, operator, page):
    fail(1, data={"x": "needle"})
    shown = page(operator, f"{LIST}?args=needle")
    assert not [name for name in shown.fields["act"] if name.endswith("-all")]
    fields = {"act": "retry-all", "filter": "args=needle", "as_of": "1", "confirmed": "1"}
    assert operator.post(ACT, fields).status_code == 400


def test_one_click_runs_a_delayed_job_now(operator):
    id = queues["default"].put("x", delay=3_600)
    response = operator.post(job_url("default", id, "job_run"), follow=True)
    assert messages(response).startswith("Made 1 job ready to run.")
    assert state_of(id) == "ready"


def test_delayed_jobs_are_run_now_all_at_once(operator, page):
    ids = [queues["default"].put(n, delay=60 * (n + 1)) for n in range(3)]
    confirm(operator, begin(operator, page, "run_now-all", "delayed"))
    assert [state_of(id) for id in ids] == ["ready"] * 3


def test_ready_jobs_are_delayed_by_what_was_typed(operator, page):
    queue = queues["default"]
    id = queue.put("x")
    asked = begin(operator, page, "delay-all", "ready")
    response = finish(operator, asked, amount="2", unit="hours")
    assert messages(response) == "Delayed 1 job."
    assert queue.lookup(id).due_at > queue.now() + 7_100_000_000


@pytest.mark.parametrize("amount", ["", "0", "-1", "soon"])
def test_a_delay_that_was_not_understood_changes_nothing(amount, operator, page):
    id = queues["default"].put("x")
    asked = begin(operator, page, "delay-all", "ready")
    response = finish(operator, asked, amount=amount, unit="hours")
    assert response.status_code == 200
    assert state_of(id) == "ready"


def test_selected_jobs_are_moved_to_the_queue_that_was_chosen(fail, operator, page):
    (id,) = fail(1)
    asked = begin(operator, page, "move-selected", "failed", [key("default", id)])
    assert '<option value="emails">' in asked.content.decode()
    response = finish(operator, asked, target="emails")
    assert messages(response) == "Moved 1 job."
    assert queues["default"].lookup(id) is None
    assert state_of(id, "emails") == "failed"


@pytest.mark.parametrize("target", ["default", "nowhere", ""])
def test_a_target_that_is_no_other_queue_of_the_store_is_refused(target, fail, operator, page):
    (id,) = fail(1)
    asked = begin(operator, page, "move-selected", "failed", [key("default", id)])
    assert finish(operator, asked, target=target).status_code == 200
    assert state_of(id) == "failed"


def test_jobs_are_moved_only_into_queues_where_the_rule_allows_it(settings, fail, operator, page):
    settings.LOCALQUEUE_CONSOLE = {"HAS_PERMISSION": f"{__name__}.not_into_emails"}
    (id,) = fail(1)
    asked = begin(operator, page, "move-selected", "failed", [key("default", id)])
    assert "<option" not in asked.content.decode()
    finish(operator, asked, target="emails")
    assert state_of(id) == "failed"


def not_into_emails(request, action, queue):
    return not (action == "move_job" and queue == "emails")


def test_running_jobs_are_asked_to_stop(operator, page):
    queue = queues["default"]
    queue.put("x")
    job = queue.get_nowait()
    response = confirm(operator, begin(operator, page, "cancel-all", "processing"))
    assert messages(response) == "Cancelled 1 job."
    assert queue.extend_lease(job, 5) is False


@pytest.mark.parametrize(
    "act", ["retry-none", "destroy-all", "retry", "-all", "retry-all-all", "run_now-all", ""]
)
def test_an_act_that_is_none_or_does_not_suit_the_state_is_refused(act, fail, operator):
    (id,) = fail(1)
    fields = {"act": act, "state": "failed", "filter": "", "as_of": "9" * 16, "confirmed": "1"}
    assert operator.post(ACT, fields).status_code == 400
    assert state_of(id) == "failed"


def test_a_discard_says_where_to_undo_it_and_retry_restores_the_job(fail, operator, act):
    (id,) = fail(1)
    response = act(operator, "discard-all")
    assert "Undo: show what was discarded" in messages(response)
    (link,) = [a for a in Page(response.content.decode()).links if "reason=discarded" in a]
    rows = operator.get(link).context["rows"]
    assert [(row["id"], str(row["do_label"])) for row in rows] == [(id, "Restore")]
    operator.post(job_url("default", id, "job_retry"))
    assert state_of(id) == "ready"


@pytest.fixture
def slices(monkeypatch):
    """Acts that stop after each slice of ten jobs."""
    monkeypatch.setattr("django_localqueue.console.acts.SLICE", 10)
    monkeypatch.setattr("django_localqueue.console.views.act.SLICE_SECONDS", 0.000_001)


def go_on(client, response):
    """Send the progress page's form until the act is done; return the pages."""
    pages = []
    while getattr(response, "template_name", "") == "admin/django_localqueue/progress.html":
        pages.append(response)
        fields = Page(response.content.decode()).fields
        response = client.post(ACT, fields)
    return [*pages, response]


def test_an_act_on_many_jobs_goes_on_from_request_to_request(slices, fail, operator, page):
    fail(35)
    asked = begin(operator, page, "retry-all", "failed")
    fields = Page(asked.content.decode()).fields
    *pages, last = go_on(operator, operator.post(ACT, fields))
    assert states() == (35, 0, 0)
    assert [one.context["described"] for one in pages] == [
        "Retried 10 failed jobs",
        "Retried 20 failed jobs",
        "Retried 30 failed jobs",
    ]
    assert last.status_code == 302
    (entry,) = LogEntry.objects.all()
    assert entry.object_repr == "Retried 35 failed jobs"


def test_what_fails_again_meanwhile_is_left_alone_by_later_slices(slices, fail, operator, page):
    fail(12)
    asked = begin(operator, page, "retry-all", "failed")
    response = operator.post(ACT, Page(asked.content.decode()).fields)
    job = queues["default"].get_nowait()
    queues["default"].fail(job, "again")
    go_on(operator, response)
    assert state_of(job.id) == "failed"
    assert states() == (11, 1, 0)


@pytest.mark.parametrize("broken", ["", "nonsense", "eyJhIjoxfQ:x:y"])
def test_progress_that_this_console_did_not_sign_is_refused(broken, fail, operator):
    fail(1)
    fields = {"act": "retry-all", "filter": "", "as_of": "9" * 16, "confirmed": "1"}
    assert operator.post(ACT, fields | {"so_far": broken}).status_code == 400
    assert states() == (0, 1, 0)


def test_progress_of_another_user_is_refused(slices, fail, operator, login, page):
    fail(25)
    asked = begin(operator, page, "retry-all", "failed")
    response = operator.post(ACT, Page(asked.content.decode()).fields)
    fields = Page(response.content.decode()).fields
    other = login("view_job", "retry_job")
    assert other.post(ACT, fields).status_code == 400


def test_each_slice_is_told_by_the_signal(slices, fail, operator, page):
    heard = []

    def hear(sender, **values):
        heard.append(values["counts"]["default"].done)

    job_action.connect(hear)
    fail(15)
    asked = begin(operator, page, "retry-all", "failed")
    go_on(operator, operator.post(ACT, Page(asked.content.decode()).fields))
    job_action.disconnect(hear)
    assert heard == [10, 5]


def test_a_read_only_console_refuses_every_act_and_shows_everything(settings, fail, operator, page):
    settings.LOCALQUEUE_CONSOLE = {"READ_ONLY": True}
    (id,) = fail(1)
    assert operator.post(job_url("default", id, "job_retry")).status_code == 403
    refused = operator.post("/admin/django_localqueue/queue/pause/", {"queue": "default"})
    assert refused.status_code == 403
    shown = page(operator, job_url("default", id))
    assert "act" not in shown.fields
    assert "act" not in page(operator, LIST).fields
    assert state_of(id) == "failed"
