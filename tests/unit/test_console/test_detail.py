"""The page of one job: everything that is stored, whatever it is."""

from __future__ import annotations

import json
import sqlite3

import pytest

from django_localqueue import ErrorRecord, queues
from django_localqueue.console import display
from django_localqueue.console.keys import from_form, make_key, split_key, to_form
from django_localqueue.exceptions import StoreUnavailable
from tests.unit.test_console.tools import LIST, Page, job_url, states


def broken():
    def inner():
        raise KeyError("missing")

    try:
        inner()
    except KeyError as error:
        return error


def test_a_dead_letter_shows_payload_headers_error_and_traceback(operator, page):
    queue = queues["default"]
    id = queue.put(
        {"file": "report.pdf", "pages": [1, 2]},
        task="shop.tasks.read",
        headers={"trace": "abc"},
        priority=5,
        max_retries=2,
    )
    queue.fail(queue.get(block=False, worker="host:12:ab"), broken())
    response = operator.get(job_url("default", id))
    html = response.content.decode()
    text = Page(html).text
    assert response.context["last_error"]["parts"][0].text.startswith("Traceback (most recent call")
    for expected in ("report.pdf", "shop.tasks.read", "trace", '"abc"', "host:12:ab", "KeyError"):
        assert expected in text
    assert 'raise KeyError("missing")' in text
    assert "failed (dead letter)" in text
    assert "    raise KeyError(&quot;missing&quot;)" in html, "the indentation is kept"
    assert '{\n  "file": "report.pdf"' in text


def test_every_attempt_is_shown_with_its_own_error(operator, page):
    queue = queues["default"]
    id = queue.put("x", max_retries=1)
    queue.nack(queue.get(block=False, worker="first"), last_error=ValueError("one"))
    queue.nack(queue.get(block=False, worker="second"), last_error=TypeError("two"))
    context = operator.get(job_url("default", id)).context
    assert [row["worker"] for row in context["attempts"]] == ["first", "second"]
    assert [row["error"]["message"] for row in context["attempts"]] == ["one", "two"]
    assert context["job"].reason == "exhausted"


STATES = ["ready", "delayed", "blocked", "processing", "acked", "failed"]


@pytest.mark.parametrize("state", STATES)
def test_a_job_in_any_state_has_its_page_with_the_acts_that_suit_it(state, operator, page):
    queue = queues["default"]
    options = {"delayed": {"delay": 60}, "blocked": {"group_id": "g"}}.get(state, {})
    if state == "blocked":
        queue.put("lead", group_id="g")
    id = queue.put("x", **options)
    if state in ("processing", "acked", "failed"):
        job = queue.get(block=False)
        if state == "acked":
            queue.ack(job, result={"answer": 42})
        if state == "failed":
            queue.fail(job, "boom")
    response = operator.get(job_url("default", id))
    context = response.context
    assert context["job"].state == state
    actions = {action["name"] for action in context["actions"]}
    assert bool(context["do_url"]) == (state in ("failed", "delayed"))
    assert ("purge" in actions) == (state in ("acked", "failed"))
    assert ("discard" in actions) == (state in ("ready", "delayed", "blocked", "failed"))
    assert ("cancel" in actions) == (state in ("ready", "delayed", "blocked", "processing"))
    assert ("move" in actions) == (state not in ("acked", "processing"))
    assert ("delay" in actions) == (state in ("ready", "delayed"))
    if state == "acked":
        assert "42" in Page(response.content.decode()).text


def test_a_job_that_is_gone_has_a_page_that_says_so(operator):
    response = operator.get(job_url("default", "gone"))
    assert response.status_code == 404
    assert "has no job with this id. It may have been purged." in response.content.decode()


def test_a_store_that_cannot_be_read_is_said_on_the_page(operator, monkeypatch):
    def refuse(_id):
        raise StoreUnavailable("The disk is gone.")

    monkeypatch.setattr(queues["default"], "lookup", refuse)
    response = operator.get(job_url("default", "x"))
    assert response.status_code == 503
    assert "StoreUnavailable: The disk is gone." in response.content.decode()


def overwrite(settings, payload):
    """Write these bytes over every payload, past the queue."""
    path = settings.LOCALQUEUE["default"]["LOCATION"] / "localqueue.db"
    queues.close_all()
    with sqlite3.connect(path) as database:
        database.execute("UPDATE messages SET payload = ?", (payload,))
    database.close()


GARBAGE = [b"\xff\xfe\x00garbage", b'{"cut": ', b"", b"\x00" * 40, "ünïcode".encode("latin-1")]


@pytest.mark.parametrize("payload", GARBAGE)
def test_a_payload_that_is_not_json_is_shown_as_text_and_bytes(payload, fail, operator, settings):
    (id,) = fail(1)
    overwrite(settings, payload)
    response = operator.get(job_url("default", id))
    assert response.status_code == 200
    text = Page(response.content.decode()).text
    assert "This is not JSON" in text
    assert payload[:16].hex(" ") in text
    assert operator.get(LIST).status_code == 200


def test_a_job_whose_payload_cannot_be_decoded_is_listed_and_can_be_retried(
    fail, operator, settings
):
    queues["default"].put("x", job_id="poison")
    overwrite(settings, b"\xff\xfe")
    assert queues["default"].get_many(1) == []
    record = queues["default"].lookup("poison")
    assert (record.state, record.reason) == ("failed", "undecodable")
    (row,) = operator.get(LIST).context["rows"]
    assert row["reason"] == "payload undecodable"
    operator.post(job_url("default", "poison", "job_retry"))
    assert states() == (1, 0, 0)


JSONS = [
    "a lone surrogate \ud800",
    "nul \x00 and \x1b[31m",
    {"deep": [[[[[[]]]]]]},
    2**80,
    None,
    "right ‮to left",
    1e308,
]


@pytest.mark.parametrize("data", JSONS, ids=range(len(JSONS)))
def test_every_payload_that_a_queue_takes_has_a_page(data, fail, operator):
    (id,) = fail(1, data={"is": data})
    response = operator.get(job_url("default", id))
    assert response.status_code == 200
    assert "This is not JSON" not in response.content.decode()


@pytest.mark.parametrize("payload", [b"[" * 100_000, b"1" * 6_000, b'"\\ud83d"'])
def test_json_that_python_cannot_read_or_send_is_still_shown(payload):
    shown = display.shown(payload)
    assert shown.size == len(payload)
    assert shown.text.encode()


def test_a_large_payload_is_cut_and_the_page_says_so():
    shown = display.shown(json.dumps("x" * 500_000).encode())
    assert len(shown.text) == display.MAX_SHOWN
    assert shown.note == "300002 more characters are not shown."


def test_the_serializer_of_the_project_is_never_called_by_the_console(fail, operator, monkeypatch):
    (id,) = fail(1)

    def explode(_payload):
        raise AssertionError("the console ran the project's code")

    monkeypatch.setattr(queues["default"].serializer, "loads", explode)
    assert operator.get(job_url("default", id)).status_code == 200


def test_the_task_of_a_job_is_never_imported(fail, operator):
    (id,) = fail(1, task="tests.unit.test_console.no_such_module.task")
    assert "no_such_module" in Page(operator.get(job_url("default", id)).content.decode()).text


STRANGE_IDS = [
    "a:b",
    "a/b",
    "../x",
    "..",
    ".",
    "/",
    "%2F",
    "%",
    "?#",
    "a b",
    " spaces at both ends ",
    "+&=;,",
    "_5F_2F",
    "~0~1",
    "emoji 🦄",
    "‮right to left",
    "é composed",
    "é decomposed",
    "line\nfeed",
    "carriage\r\nreturn",
    "tab\t",
    '"><img src=x onerror=alert(1)>',
    "back\\slash",
    "change/",
    "x/retry",
    "find/",
    "0",
    "🦄" * 255,
]


@pytest.mark.parametrize("id", STRANGE_IDS, ids=range(len(STRANGE_IDS)))
def test_a_job_of_any_id_is_listed_opened_retried_and_purged(id, fail, operator, page, act):
    fail(1, job_id=id)
    listed = page(operator, LIST)
    assert job_url("default", id) in listed.links
    shown = page(operator, job_url("default", id))
    retry = [values.get("action") for tag, values in shown.elements if tag == "form"]
    assert job_url("default", id, "job_retry") in retry
    operator.post(job_url("default", id, "job_retry"))
    queue = queues["default"]
    assert queue.lookup(id).state == "ready"
    queue.fail(queue.get(block=False), "again")
    act(operator, "purge-selected", [page(operator, LIST).field("selected")])
    assert queue.lookup(id) is None


@pytest.mark.parametrize("alias", [*STRANGE_IDS[:-1], "a~b/c", "a~1b"])
def test_a_queue_of_any_alias_is_shown_filtered_and_repaired(alias, fail, operator, page, settings):
    settings.LOCALQUEUE = {**settings.LOCALQUEUE, alias: {"NAME": "strange"}}
    (id,) = fail(1, alias=alias)
    overview = operator.get("/admin/django_localqueue/queue/")
    (row,) = [row for row in overview.context["rows"] if row["row"].alias == alias]
    (letter,) = operator.get(row["dead_letters_url"]).context["rows"]
    assert (letter["id"], letter["alias"]) == (id, alias)
    assert operator.get(job_url(alias, id)).status_code == 200
    assert operator.post(job_url(alias, id, "job_retry")).status_code == 302
    assert states(alias) == (1, 0, 0)


@pytest.mark.parametrize("alias", ["a", "a/b", "a~1b", "~", "/"])
@pytest.mark.parametrize("id", ["1", "a/b", "~1", "/"])
def test_a_key_names_one_alias_and_one_id(alias, id):
    assert split_key(make_key(alias, id)) == (alias, id)
    assert from_form(to_form(alias, id)) == (alias, id)


def test_an_address_that_names_no_job_is_not_found(operator):
    assert operator.get(f"{LIST}nonsense/change/").status_code == 404
    assert operator.post(f"{LIST}nonsense/retry/").status_code == 404


def test_the_way_back_keeps_the_filter_of_the_list(fail, operator, page):
    fail(1)
    address = f"{LIST}?queue=default&text=boom"
    (row,) = operator.get(address).context["rows"]
    assert address in page(operator, row["url"]).links


def test_an_error_without_a_traceback_shows_its_message(operator, fail):
    (id,) = fail(1, error=ErrorRecord("some.Class", "its message", "", "file.py:3"))
    text = Page(operator.get(job_url("default", id)).content.decode()).text
    assert "some.Class" in text
    assert "its message" in text
    assert "file.py:3" in text
