"""Editing arguments: its own permission, nothing but the payload, the first one kept."""

from __future__ import annotations

import json

import pytest

from django_localqueue import queues
from tests.unit.test_console.tools import OPERATOR, Page, job_url, messages

ALL = (*OPERATOR, "edit_job")


@pytest.fixture
def editor(login):
    return login(*ALL)


def address(id):
    return job_url("default", id, "job_edit")


def form(client, id):
    """Return the fields of the form as they are."""
    shown = Page(client.get(address(id)).content.decode())
    return {"before": shown.field("before")}


def test_the_list_that_a_job_was_opened_from_is_kept_through_editing(fail, page, login):
    (id,) = fail(1, data={"a": 1})
    client = login("view_job", "view_job_payload", "edit_job", "retry_job")
    opened = f"{job_url('default', id)}?list=state%3Dfailed%26text%3Dboom"
    edit = next(link for link in page(client, opened).links if "/edit/" in link)
    shown = client.get(edit)
    assert shown.context["back_url"] == opened
    fields = {"before": shown.context["before"], "payload": '{"a": 2}', "retry": "1"}
    assert client.post(edit, fields)["Location"] == opened


def test_an_edited_dead_letter_is_retried_with_its_new_arguments(fail, editor):
    (id,) = fail(1, data={"args": [1], "kwargs": {}}, task="shop.send")
    fields = form(editor, id) | {"payload": '{"args": [2], "kwargs": {}}', "retry": "1"}
    response = editor.post(address(id), fields, follow=True)
    assert "Retried 1 failed job." in messages(response)
    record = queues["default"].lookup(id)
    assert (record.state, record.task) == ("ready", "shop.send")
    assert json.loads(record.payload) == {"args": [2], "kwargs": {}}
    assert json.loads(record.original_payload) == {"args": [1], "kwargs": {}}
    assert "as it was put" in Page(editor.get(job_url("default", id)).content.decode()).text


def test_saving_alone_leaves_the_job_where_it_is(fail, editor):
    (id,) = fail(1, data={"n": 1})
    editor.post(address(id), form(editor, id) | {"payload": '{"n": 2}'})
    record = queues["default"].lookup(id)
    assert (record.state, record.payload) == ("failed", b'{"n":2}')


def test_what_is_no_json_changes_nothing_and_the_text_is_kept(fail, editor):
    (id,) = fail(1, data={"n": 1})
    response = editor.post(address(id), form(editor, id) | {"payload": "{nonsense"})
    assert response.status_code == 400
    assert "{nonsense" in response.content.decode()
    assert queues["default"].lookup(id).payload == b'{"n":1}'


def test_a_payload_that_was_changed_meanwhile_is_not_overwritten(fail, editor):
    (id,) = fail(1, data={"n": 1})
    fields = form(editor, id) | {"payload": '{"n": 3}'}
    queues["default"].edit(id, {"n": 2})
    assert editor.post(address(id), fields).status_code == 409
    assert queues["default"].lookup(id).payload == b'{"n":2}'


def test_a_running_job_is_not_edited(editor):
    queue = queues["default"]
    id = queue.put({"n": 1})
    fields = form(editor, id)
    job = queue.get_nowait()
    response = editor.post(address(id), fields | {"payload": "{}"}, follow=True)
    assert "Only a job that waits or failed" in messages(response)
    assert queue.lookup(id).payload == b'{"n":1}'
    queue.ack(job)


def test_hidden_values_can_be_neither_seen_nor_overwritten_by_editing(fail, editor):
    (id,) = fail(1, data={"password": "hunter2"})
    response = editor.get(address(id))
    assert "hunter2" not in response.content.decode()
    editor.post(address(id), {"before": '{"password":"hunter2"}', "payload": "{}"})
    assert b"hunter2" in queues["default"].lookup(id).payload


@pytest.mark.parametrize("missing", ["edit_job", "view_job", "view_job_payload"])
def test_editing_needs_its_own_permission_and_that_of_seeing(missing, fail, login):
    (id,) = fail(1, data={"n": 1})
    client = login(*(name for name in ALL if name != missing))
    assert client.get(address(id)).status_code == 403
    fields = {"before": '{"n":1}', "payload": "{}", "retry": "1"}
    assert client.post(address(id), fields).status_code == 403
    assert queues["default"].lookup(id).payload == b'{"n":1}'


def test_saving_with_retry_needs_the_permission_to_retry_and_saves_nothing_else(fail, login):
    (id,) = fail(1, data={"n": 1})
    client = login(*(name for name in ALL if name != "retry_job"))
    fields = {"before": '{"n":1}', "payload": "{}", "retry": "1"}
    assert client.post(address(id), fields).status_code == 403
    assert queues["default"].lookup(id).payload == b'{"n":1}'


def test_a_job_that_is_gone_is_not_found(editor):
    assert editor.get(address("gone")).status_code == 404


def test_a_read_only_console_offers_no_editing(settings, fail, editor):
    settings.LOCALQUEUE_CONSOLE = {"READ_ONLY": True}
    (id,) = fail(1, data={"n": 1})
    assert editor.get(address(id)).status_code == 403
    assert "edit" not in editor.get(job_url("default", id)).context["edit_url"]
