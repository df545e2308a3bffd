"""What a page hides of payloads, results and headers, and how it folds tracebacks."""

from __future__ import annotations

import pytest

from django_localqueue import queues
from django_localqueue.console.redact import HIDDEN
from django_localqueue.console.tracebacks import parts
from tests.unit.test_console.tools import Page, job_url


def shown(client, id):
    return Page(client.get(job_url("default", id)).content.decode()).text


@pytest.mark.parametrize("name", ["password", "DB_PASSWORD", "apiKey", "access_token", "Cookie"])
def test_values_of_secret_keys_are_hidden_at_any_depth(name, operator):
    id = queues["default"].put(
        {"args": [{"deep": [{name: "hunter2", "file": "a.txt"}]}]}, headers={name: "hunter2"}
    )
    text = shown(operator, id)
    assert "hunter2" not in text
    assert HIDDEN in text
    assert "a.txt" in text


def test_results_are_hidden_as_payloads_are(operator):
    queue = queues["default"]
    id = queue.put("x")
    queue.ack(queue.get_nowait(), result={"token": "hunter2"})
    assert "hunter2" not in shown(operator, id)


def test_a_project_names_its_own_keys(settings, operator):
    settings.LOCALQUEUE_CONSOLE = {"HIDDEN_KEYS": ["patient"]}
    id = queues["default"].put({"patient_name": "Jane", "password": "seen"})
    text = shown(operator, id)
    assert "Jane" not in text
    assert "seen" in text


def hide_numbers(data, record):
    return {name: value for name, value in data.items() if not isinstance(value, int)} | {
        "task was": record.task
    }


def fail_to_hide(data, record):
    raise RuntimeError("hunter2")


def test_a_projects_own_function_has_its_say(settings, operator):
    settings.LOCALQUEUE_CONSOLE = {"REDACT": f"{__name__}.hide_numbers"}
    id = queues["default"].put({"account": 4711, "kind": "x"}, task="app.pay")
    text = shown(operator, id)
    assert "4711" not in text
    assert "app.pay" in text


@pytest.mark.parametrize("path", [f"{__name__}.fail_to_hide", "no.such.function"])
def test_nothing_is_shown_where_that_function_fails(path, settings, operator):
    settings.LOCALQUEUE_CONSOLE = {"REDACT": path}
    id = queues["default"].put({"password": "hunter2", "other": "hunter2"})
    text = shown(operator, id)
    assert "hunter2" not in text
    assert HIDDEN in text


def test_payload_nested_deeper_than_anybody_reads_does_not_break_the_page(operator):
    data = value = {}
    for _ in range(400):
        value["x"] = {}
        value = value["x"]
    value["password"] = "hunter2"
    assert "hunter2" not in shown(operator, queues["default"].put(data))


TRACEBACK = """Traceback (most recent call last):
  File "/usr/lib/python3.12/site-packages/django/core/handlers.py", line 5, in inner
    return get_response(request)
  File "/usr/lib/python3.12/contextlib.py", line 7, in call
    return func()
           ^^^^^^
  File "/srv/shop/tasks.py", line 12, in send
    raise ValueError("no")
ValueError: no
"""


def test_frames_of_libraries_are_folded_and_the_projects_own_are_not():
    found = parts(TRACEBACK)
    assert [part.frames for part in found] == [0, 2, 0]
    assert "shop/tasks.py" in found[2].text
    assert "ValueError: no" in found[2].text


@pytest.mark.parametrize("text", [TRACEBACK, "", "no traceback", "\n\n", '  File "x", line 1\n'])
def test_the_parts_together_are_the_whole_traceback(text):
    assert "".join(part.text for part in parts(text)) == text
