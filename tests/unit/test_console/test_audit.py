"""What is kept of an act: the admin's log, the signal, the log line."""

from __future__ import annotations

import logging

import pytest
from django.contrib.admin.models import CHANGE, DELETION, LogEntry
from django.db import DatabaseError

from django_localqueue import models, queues
from django_localqueue.console import job_action
from django_localqueue.exceptions import StoreUnavailable
from tests.unit.test_console.tools import LIST, OVERVIEW, job_url, key, messages, states


def test_retrying_one_job_is_one_entry_that_links_to_its_page(fail, operator, page):
    (id,) = fail(1, job_id="a/b:c")
    operator.post(job_url("default", id, "job_retry"))
    entry = LogEntry.objects.get()
    assert entry.content_type.model_class() is models.Job
    assert entry.object_repr == "default/a/b:c"
    assert entry.get_change_message() == "Retried."
    assert entry.action_flag == CHANGE
    assert entry.user == operator.get(LIST).context["user"]
    assert entry.get_admin_url() == job_url("default", id)
    assert job_url("default", id) in page(operator, "/admin/").links, "it is in “Recent actions”"


def test_an_act_on_many_jobs_is_one_entry_with_the_filter_and_the_count(fail, operator, act):
    fail(12)
    act(operator, "purge-all", address=f"{LIST}?queue=default&text=boom")
    entry = LogEntry.objects.get()
    assert entry.content_type.model_class() is models.Queue
    assert entry.object_repr == "Purged 12 jobs"
    assert entry.action_flag == DELETION
    assert "Error, task or id contains: “boom”" in entry.get_change_message()
    assert "as of" in entry.get_change_message()


def test_an_act_on_selected_jobs_is_one_entry_with_their_ids(fail, operator, act):
    ids = fail(3)
    act(operator, "retry-selected", [key("default", id) for id in ids])
    entry = LogEntry.objects.get()
    assert entry.object_repr == "Retried 3 failed jobs"
    assert all(f"default/{id}" in entry.get_change_message() for id in ids)


def test_pausing_is_an_entry_of_the_queue_that_leads_to_its_page(operator):
    operator.post(f"{OVERVIEW}pause/", {"queue": "default"})
    entry = LogEntry.objects.get()
    assert (entry.content_type.model_class(), entry.object_repr) == (models.Queue, "default")
    assert operator.get(entry.get_admin_url()).context["title"] == "Queue default"


def test_asking_for_the_confirmation_is_no_act(fail, operator, page):
    fail(1)
    shown = page(operator, LIST)
    fields = {name: shown.field(name) for name in ("filter", "as_of", "next")}
    operator.post(f"{LIST}act/", fields | {"act": "purge-all"})
    assert not LogEntry.objects.exists()


def test_the_page_of_a_job_shows_what_operators_did_with_it(fail, operator, page):
    (id,) = fail(1)
    operator.post(job_url("default", id, "job_retry"))
    text = page(operator, job_url("default", id)).text
    assert "What operators did" in text
    assert "Retried." in text


def test_the_entry_is_written_in_the_language_of_the_project(fail, operator, settings):
    settings.LANGUAGE_CODE = "en"
    (id,) = fail(1)
    operator.post(job_url("default", id, "job_retry"), headers={"accept-language": "de"})
    assert LogEntry.objects.get().get_change_message() == "Retried."


def test_an_act_is_done_and_reported_where_the_admins_log_cannot_be_written(
    fail, operator, monkeypatch, caplog
):
    (id,) = fail(1)

    def refuse(**_fields):
        raise DatabaseError("no such table: django_admin_log")

    monkeypatch.setattr(LogEntry.objects, "create", refuse)
    response = operator.post(job_url("default", id, "job_retry"), follow=True)
    assert messages(response).startswith("Retried 1 failed job.")
    assert states() == (1, 0, 0)
    (record,) = [r for r in caplog.records if r.levelno == logging.ERROR]
    assert record.name == "django_localqueue.audit"
    assert "the admin's log could not be written" in record.getMessage()
    assert record.exc_info


def test_a_job_has_its_page_where_the_admins_log_cannot_be_read(fail, operator, monkeypatch):
    (id,) = fail(1)

    def refuse(*_args, **_fields):
        raise DatabaseError("no such table: django_admin_log")

    monkeypatch.setattr(LogEntry.objects, "filter", refuse)
    assert operator.get(job_url("default", id)).status_code == 200


@pytest.fixture
def heard():
    """What the signal told, as it comes."""
    acts = []

    def receive(sender, **told):
        acts.append((sender, told))

    job_action.connect(receive)
    yield acts
    job_action.disconnect(receive)


def test_the_signal_tells_who_did_what_to_which_jobs(fail, operator, act, heard):
    ids = fail(2)
    act(operator, "retry-selected", [key("default", id) for id in ids])
    ((sender, told),) = heard
    assert sender is models.Job
    assert told["action"] == "retry"
    assert told["user"].username == "user0"
    assert told["ids"] == [("default", id) for id in ids]
    assert told["counts"]["default"].done == 2
    assert told["queues"] == ["default"]


def test_the_signal_tells_the_filter_of_an_act_on_all(fail, operator, act, heard):
    fail(2)
    act(operator, "purge-all")
    ((_sender, told),) = heard
    assert told["ids"] is None
    assert "Queue: default, emails" in told["filter"]


def test_the_signal_of_a_pause_comes_from_the_queue_model(operator, heard):
    operator.post(f"{OVERVIEW}pause/", {"queue": "emails"})
    ((sender, told),) = heard
    assert (sender, told["action"], told["queues"]) == (models.Queue, "pause", ["emails"])


def test_a_receiver_that_raises_changes_nothing_for_the_operator(fail, operator):
    (id,) = fail(1)

    def receive(sender, **_told):
        raise RuntimeError("a bad receiver")

    job_action.connect(receive)
    try:
        response = operator.post(job_url("default", id, "job_retry"), follow=True)
    finally:
        job_action.disconnect(receive)
    assert messages(response).startswith("Retried 1 failed job.")
    assert LogEntry.objects.count() == 1


def test_the_audit_log_has_a_line_for_the_act(fail, operator, caplog):
    (id,) = fail(1, job_id="with\nline feed")
    with caplog.at_level(logging.INFO, logger="django_localqueue.audit"):
        operator.post(job_url("default", id, "job_retry"))
    (record,) = [r for r in caplog.records if r.name == "django_localqueue.audit"]
    assert "retry by 'user0' in ['default']: 1 done" in record.getMessage()
    assert "\n" not in record.getMessage(), "an id can't forge a line"


def test_a_store_that_refuses_a_pause_leaves_no_entry_of_one(operator, monkeypatch):
    def refuse():
        raise StoreUnavailable("The disk is gone.")

    monkeypatch.setattr(queues["default"], "pause", refuse)
    response = operator.post(f"{OVERVIEW}pause/", {"queue": "default"}, follow=True)
    assert "could not do it: StoreUnavailable: The disk is gone." in messages(response)
    assert not LogEntry.objects.exists()
