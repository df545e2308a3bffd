"""The list as a file: what is in it, what is hidden, what a spreadsheet can't run."""

from __future__ import annotations

import csv
import io
import json

import pytest
from django.contrib.admin.models import LogEntry

from django_localqueue import queues
from django_localqueue.console.views import export

EXPORT = "/admin/django_localqueue/job/export/"


def text(response):
    assert response.status_code == 200
    return b"".join(response.streaming_content).decode()


def as_csv(response):
    return list(csv.DictReader(io.StringIO(text(response))))


def as_json(response):
    return [json.loads(line) for line in text(response).splitlines()]


def test_csv_and_json_lines_hold_the_jobs_that_match(fail, operator):
    fail(1, error=ValueError("no"), task="app.run")
    (id,) = fail(1, alias="emails", error=KeyError("other"))
    for read, kind in ((as_csv, "csv"), (as_json, "jsonl")):
        rows = read(operator.get(f"{EXPORT}?as={kind}"))
        assert [row["queue"] for row in rows] == ["emails", "default"]
        assert rows[1]["error_class"] == "ValueError"
        (row,) = read(operator.get(f"{EXPORT}?as={kind}&error=KeyError"))
        assert row["id"] == id


def test_the_file_is_an_attachment_with_the_name_of_its_state(operator):
    response = operator.get(f"{EXPORT}?as=csv&state=acked")
    assert response["Content-Disposition"] == 'attachment; filename="jobs-acked.csv"'
    assert response["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r", " =", "=cmd|' /C calc'!A0"])
def test_no_cell_begins_as_a_formula_does(start, fail, operator):
    value = f"{start}1+1"
    fail(1, error=Exception(value), task=value, group_id=value)
    (row,) = as_csv(operator.get(f"{EXPORT}?as=csv"))
    for name in ("error_message", "task", "group"):
        assert row[name].startswith("'"), name
    assert not row["id"].startswith(("=", "+", "-", "@"))


def test_payloads_are_there_only_for_who_may_see_them_and_without_secrets(fail, login):
    fail(1, data={"password": "hunter2", "file": "a.txt"})
    (row,) = as_json(login("view_job", "export_job").get(f"{EXPORT}?as=jsonl"))
    assert row["payload"] is None
    reader = login("view_job", "export_job", "view_job_payload")
    (row,) = as_json(reader.get(f"{EXPORT}?as=jsonl"))
    assert "hunter2" not in row["payload"]
    assert "a.txt" in row["payload"]


def test_a_file_has_at_most_so_many_jobs(fail, operator, monkeypatch):
    monkeypatch.setattr(export, "EXPORT_LIMIT", 7)
    monkeypatch.setattr(export, "PAGE", 3)
    fail(9)
    assert len(as_csv(operator.get(f"{EXPORT}?as=csv"))) == 7


def test_rows_are_read_while_the_file_is_sent(fail, operator, monkeypatch):
    monkeypatch.setattr(export, "PAGE", 2)
    fail(6)
    lines = iter(operator.get(f"{EXPORT}?as=csv").streaming_content)
    next(lines)
    next(lines)
    queues["default"].purge(0, include_failed=True)
    assert len(list(lines)) < 5


@pytest.mark.parametrize("query", ["as=xml", "as=csv&state=nowhere", "as=csv&since=yesterday"])
def test_what_is_not_understood_is_a_bad_request(query, operator):
    assert operator.get(f"{EXPORT}?{query}").status_code == 400


@pytest.mark.parametrize("missing", ["export_job", "view_job"])
def test_it_needs_its_own_permission_and_that_of_the_list(missing, fail, login):
    fail(1)
    held = {"export_job", "view_job", "view_job_payload", "retry_job"} - {missing}
    response = login(*held).get(f"{EXPORT}?as=csv")
    assert response.status_code == 403 or as_csv(response) == []


def test_an_export_is_logged_with_its_filter(fail, operator):
    fail(1)
    text(operator.get(f"{EXPORT}?as=csv&error=ValueError"))
    (entry,) = LogEntry.objects.all()
    assert "ValueError" in entry.change_message
