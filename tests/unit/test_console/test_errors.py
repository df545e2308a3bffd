"""The page of errors, the charts, the page of a queue, and the notice of failed jobs."""

from __future__ import annotations

import django
import pytest
from django.core import mail
from django.template import Context, Template
from django.test import RequestFactory

from django_localqueue import queues
from django_localqueue.console import charts, notice
from django_localqueue.types import Activity, ErrorRecord
from tests.unit.test_console.tools import ACT, OVERVIEW, Page, confirm, states

ERRORS = "/admin/django_localqueue/job/errors/"
BOOM = ErrorRecord("app.Boom", "no", "trace", "/srv/shop/app.py:7")


def test_dead_letters_are_grouped_by_what_went_wrong_over_all_queues(fail, viewer, page):
    fail(3, error=BOOM, task="app.run")
    fail(2, alias="emails", error=ErrorRecord("app.Other", "", "", ""))
    rows = viewer.get(ERRORS).context["rows"]
    found = [(row["alias"], row["group"].error_class, row["group"].total) for row in rows]
    assert found == [("emails", "app.Other", 2), ("default", "app.Boom", 3)]
    text = page(viewer, ERRORS).text
    assert "…/shop/app.py:7" in text
    assert "in app.run" in text


def test_a_group_leads_to_its_dead_letters(fail, viewer):
    ids = fail(2, error=BOOM)
    fail(1, error=ErrorRecord("other", "", "", ""))
    row = next(row for row in viewer.get(ERRORS).context["rows"] if row["group"].total == 2)
    listed = viewer.get(row["url"]).context["rows"]
    assert sorted(one["id"] for one in listed) == sorted(ids)


def test_the_groups_can_be_ordered_by_how_many_they_are(fail, viewer):
    fail(3, error=BOOM)
    fail(1, error=ErrorRecord("other", "", "", ""))
    rows = viewer.get(f"{ERRORS}?order=total").context["rows"]
    assert [row["group"].total for row in rows] == [3, 1]


def test_a_group_is_retried_as_a_whole_and_nothing_else(fail, operator, page):
    fail(3, error=BOOM)
    (other,) = fail(1, error=ErrorRecord("other", "", "", ""))
    rows = operator.get(f"{ERRORS}?order=total").context["rows"]
    shown = page(operator, ERRORS)
    fields = {"act": "retry-all", "filter": rows[0]["filter"], "state": "failed"}
    fields |= {name: shown.field(name) for name in ("as_of", "next")}
    response = confirm(operator, operator.post(ACT, fields))
    assert response.redirect_chain[-1][0] == ERRORS
    assert states() == (3, 1, 0)
    assert queues["default"].lookup(other).state == "failed"


def test_acts_on_a_group_are_offered_only_to_who_may_do_them(fail, viewer, login):
    fail(1, error=BOOM)
    assert viewer.get(ERRORS).context["rows"][0]["actions"] == []
    (row,) = login("view_job", "discard_job").get(ERRORS).context["rows"]
    assert [action["name"] for action in row["actions"]] == ["discard"]


def test_html_in_an_error_is_text(fail, viewer):
    evil = "<script>alert(1)</script>"
    fail(1, error=ErrorRecord(evil, evil, evil, evil), task=evil)
    html = viewer.get(ERRORS).content.decode()
    assert "<script>alert" not in html
    assert "&lt;script&gt;alert" in html
    assert Page(html).forbidden == []


@pytest.mark.parametrize("span", ["hour", "day", "week"])
def test_the_overview_draws_what_was_done_and_what_failed(span, fail, viewer, page):
    queue = queues["default"]
    queue.put_many([1, 2])
    for job in queue.get_many(2):
        queue.ack(job)
    fail(1, alias="emails")
    response = viewer.get(f"{OVERVIEW}?span={span}")
    shown = Page(response.content.decode())
    assert (response.context["acked_total"], response.context["failed_total"]) == (2, 1)
    kinds = [attrs["class"] for tag, attrs in shown.elements if tag == "rect"]
    assert sorted(kinds) == ["lq-acked", "lq-failed"]
    assert response.context["chart_table"][0][1:] == (2, 1)
    assert shown.forbidden == []


def test_a_span_that_is_none_is_the_hour(viewer):
    assert viewer.get(f"{OVERVIEW}?span=century").context["spans"][0]["is_current"]


def test_numbers_of_a_chart_are_those_of_svg_in_every_language(settings):
    settings.LANGUAGE_CODE = "de"
    settings.USE_THOUSAND_SEPARATOR = True
    steps = [Activity(n * 60_000_000, 1_234 * n, n) for n in range(5)]
    html = charts.bars(steps, charts.SPANS["hour"])
    for tag, attrs in Page(html).elements:
        if tag == "rect":
            assert all(float(attrs[name]) >= 0 for name in ("x", "y", "width", "height"))


def test_an_empty_chart_is_a_chart():
    assert "<rect" not in charts.bars([], charts.SPANS["day"])
    assert "<svg" in charts.spark([], "nothing")


def test_a_queue_has_a_page_with_its_counts_and_the_settings_in_force(viewer, page):
    queues["default"].put("x")
    response = viewer.get(f"{OVERVIEW}default/change/")
    context = response.context
    assert {name: number for name, number, _url in context["states"]}["ready"] == 1
    assert dict(context["settings"])["max_retries"] == "3"
    assert dict(context["settings"])["durability"] == "normal"
    assert viewer.get(f"{OVERVIEW}nowhere/change/").status_code == 404


def test_a_location_is_shown_without_the_login_in_it():
    from django_localqueue.console.views.overview import without_login

    text = without_login("http://user:secret@10.0.0.1:4001 https://u:p@h:1/x")
    assert text == "http://10.0.0.1:4001 https://h:1/x"


def test_the_index_tells_how_many_jobs_have_failed_to_who_may_see_them(fail, viewer, login, page):
    fail(2)
    assert "default: 2 failed jobs" in page(viewer, "/admin/").text
    assert "failed jobs" not in page(login("view_queue"), "/admin/").text


def test_the_index_says_nothing_where_nothing_failed_or_it_is_switched_off(
    settings, fail, viewer, page
):
    assert "failed job" not in page(viewer, "/admin/").text
    fail(1)
    settings.LOCALQUEUE_CONSOLE = {"INDEX_NOTICE": False}
    assert "failed job" not in page(viewer, "/admin/").text


def test_a_second_admin_site_has_the_notice_with_its_own_links(fail, viewer, page):
    fail(1)
    links = page(viewer, "/ops/").links
    assert "/ops/django_localqueue/job/errors/" in links


def test_the_template_tag_shows_the_same_on_any_dashboard(fail, viewer):
    fail(1, alias="emails")
    request = RequestFactory().get("/")
    request.user = viewer.get("/admin/").wsgi_request.user
    template = Template("{% load localqueue %}{% failed_jobs 24 %}")
    assert "emails: 1 failed job" in template.render(Context({"request": request}))
    assert template.render(Context({})).strip() == ""


# which mailer a project has is its own choice; Django 6.1 warns where it chose none
@pytest.mark.filterwarnings("ignore:Django 2028 will not have a default mailer")
def test_a_digest_is_mailed_only_when_called_and_only_where_something_failed(settings, fail, db):
    is_old = django.VERSION < (6, 0)
    settings.ADMINS = [("Ann", "ann@example.com") if is_old else "ann@example.com"]
    assert notice.mail_failures() is False
    fail(2, error=BOOM, task="app.run")
    heard = []

    def hear(sender, failures, **kwargs):
        heard.append([one.alias for one in failures])

    notice.jobs_failed.connect(hear)
    assert notice.mail_failures(hours=1) is True
    notice.jobs_failed.disconnect(hear)
    assert heard == [["default"]]
    (message,) = mail.outbox
    assert "2 failed jobs" in message.body
    assert "app.Boom" in message.body


def test_a_group_says_what_its_newest_dead_letter_said(fail, viewer, page):
    fail(1, error=ErrorRecord("app.Boom", "the older words", "", "/srv/app.py:7"))
    fail(1, error=ErrorRecord("app.Boom", "the newer\nwords", "", "/srv/app.py:7"))
    text = page(viewer, ERRORS).text
    assert "the newer words" in text
    assert "the older words" not in text


def test_the_list_and_the_question_say_which_error_a_group_is(fail, operator, page):
    fail(2, error=BOOM, task="app.run")
    (row,) = operator.get(ERRORS).context["rows"]
    described = "Error: app.Boom, …/shop/app.py:7, app.run"
    assert described in page(operator, row["url"]).text
    shown = page(operator, row["url"])
    fields = {name: shown.field(name) for name in ("filter", "as_of", "next", "state")}
    response = operator.post(ACT, fields | {"act": "retry-all"})
    assert described in response.context["plan"].lines
    confirm(operator, response)
    assert "No dead letter matches." in page(operator, row["url"]).text


def test_the_axis_has_a_label_for_each_equal_part_of_the_chart(settings):
    for span in charts.SPANS.values():
        first, _until, step = charts.steps_until(0, span)
        number = span.seconds // step
        steps = [Activity(first + n * step * 1_000_000) for n in range(number)]
        labels = charts.axis(steps, span)
        assert len(labels) == span.ticks
        assert number % span.ticks == 0
        assert len(set(labels)) == span.ticks
    assert charts.axis([], charts.SPANS["hour"]) == []
