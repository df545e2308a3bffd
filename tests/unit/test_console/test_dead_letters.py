"""The list of dead letters: order, pages, filters, counts."""

from __future__ import annotations

from itertools import chain
from urllib.parse import urlencode

import pytest

from django_localqueue import queues
from django_localqueue.console import stores
from django_localqueue.console.stores import Cursor, merged_page
from django_localqueue.exceptions import StoreUnavailable
from django_localqueue.types import JobFilter, JobRecord, Page
from tests.unit.test_console.tools import LIST, job_url


def ids(client, address):
    """Return the ids on a page, and the address of the next."""
    response = client.get(address)
    assert response.status_code == 200
    return [row["id"] for row in response.context["rows"]], response.context["next_url"]


def walk(client, address):
    """Return the ids of all pages."""
    found = []
    while address:
        shown, address = ids(client, address)
        found.append(shown)
    return found


def test_three_pages_show_every_dead_letter_once_newest_first(fail, viewer):
    expected = fail(60)[::-1]
    pages = walk(viewer, f"{LIST}?per=25")
    assert [len(shown) for shown in pages] == [25, 25, 10]
    assert [*chain(*pages)] == expected


def test_the_letters_of_two_queues_are_merged_by_the_time_they_failed(fail, viewer):
    expected = []
    for index in range(60):
        expected += fail(1, alias=("default", "emails")[index % 3 == 0])
    pages = walk(viewer, f"{LIST}?per=25")
    assert [*chain(*pages)] == expected[::-1]


def test_a_letter_that_comes_while_one_reads_moves_no_page(fail, viewer):
    old = fail(30)
    first, next_url = ids(viewer, f"{LIST}?per=25")
    fail(3)
    second, _end = ids(viewer, next_url)
    assert first + second == old[::-1]


def test_a_row_shows_what_the_job_was_and_why_it_failed(fail, viewer):
    (id,) = fail(1, error=ValueError("no such file"), task="shop.tasks.send")
    (row,) = viewer.get(LIST).context["rows"]
    assert (row["id"], row["alias"], row["task"]) == (id, "default", "shop.tasks.send")
    assert row["error"] == "ValueError: no such file"
    assert row["attempts"] == 1
    assert "<time" in row["time"]
    assert row["url"].startswith(job_url("default", id))


def test_a_long_error_is_cut_to_fit_its_row(fail, viewer):
    fail(1, error="x" * 5_000)
    (row,) = viewer.get(LIST).context["rows"]
    assert len(row["error"]) == 160


FILTERS = [
    ("queue", {"queue": "emails"}, ["email"]),
    ("both queues", {"queue": ["emails", "default"]}, ["email", "odd", "plain"]),
    ("task", {"task": "shop.tasks.odd"}, ["odd"]),
    ("text of the error", {"text": "NOT a NUMBER"}, ["odd"]),
    ("text of the id", {"text": "ema"}, ["email"]),
    ("error class", {"error": "ValueError"}, ["odd"]),
    ("reason", {"reason": "cancelled"}, ["email"]),
    ("nothing that there is", {"task": "shop.tasks.none"}, []),
    ("two at once", {"queue": "default", "reason": "cancelled"}, []),
]


@pytest.fixture
def letters(fail):
    """Three letters that each filter tells apart."""
    fail(1, job_id="plain")
    fail(1, job_id="odd", task="shop.tasks.odd", error=ValueError("not a number"))
    queue = queues["emails"]
    queue.put({}, job_id="email")
    queue.fail(queue.get(block=False), "stopped", reason="cancelled")


@pytest.mark.parametrize(
    ("query", "expected"), [row[1:] for row in FILTERS], ids=[r[0] for r in FILTERS]
)
def test_the_address_filters_by(query, expected, letters, viewer):
    shown, _next = ids(viewer, f"{LIST}?{urlencode(query, doseq=True)}")
    assert shown == expected


def test_a_time_span_filters_by_when_the_jobs_failed(letters, viewer):
    assert ids(viewer, f"{LIST}?since=2000-01-01T00:00")[0] == ["email", "odd", "plain"]
    assert ids(viewer, f"{LIST}?until=2000-01-01T00:00")[0] == []


def test_a_time_span_that_ends_before_it_starts_is_refused(letters, viewer):
    response = viewer.get(f"{LIST}?since=2001-01-01T00:00&until=2000-01-01T00:00")
    assert response.status_code == 400
    assert "rows" not in response.context


@pytest.mark.parametrize(
    "query", ["queue=nothing", "reason=magic", "since=yesterday", "per=7", "text=%00"]
)
def test_a_filter_that_is_not_understood_shows_no_jobs_and_offers_no_act(query, letters, operator):
    response = operator.get(f"{LIST}?{query}")
    assert response.status_code == 400
    html = response.content.decode()
    assert "The filter was not understood" in html
    assert 'name="act"' not in html


def test_the_filter_is_kept_from_page_to_page(fail, viewer):
    fail(30, error=ValueError("one"))
    fail(5, error="two")
    _shown, next_url = ids(viewer, f"{LIST}?per=25&text=one")
    assert "text=one" in next_url
    assert "per=25" in next_url
    assert len(ids(viewer, next_url)[0]) == 5


def test_a_damaged_cursor_shows_the_first_page(fail, viewer):
    expected = fail(3)[::-1]
    for cursor in ("x", "1", "1-x", f"{'9' * 30}-1", "-1-1", "²-1"):
        assert ids(viewer, f"{LIST}?{urlencode({'after': cursor})}")[0] == expected


def test_the_count_stops_at_its_cap(fail, viewer, page, monkeypatch):
    fail(12)
    assert "12 dead letters" in page(viewer, LIST).text
    monkeypatch.setattr("django_localqueue.console.acts.COUNT_CAP", 10)
    monkeypatch.setattr("django_localqueue.console.views.jobs.COUNT_CAP", 10)
    assert "10+ dead letters" in page(viewer, LIST).text


def test_a_count_that_must_look_at_each_letter_is_made_only_when_asked_for(letters, viewer, page):
    shown = page(viewer, f"{LIST}?text=number")
    assert "Count all that match" in shown.text
    (link,) = [link for link in shown.links if "count=1" in link]
    assert "1 dead letter" in page(viewer, link).text


def test_numbers_have_separators_where_the_project_wants_them_and_forms_stay_whole(
    fail, operator, settings, page, monkeypatch
):
    settings.USE_THOUSAND_SEPARATOR = True
    fail(2)
    monkeypatch.setattr("django_localqueue.console.views.jobs.count", lambda *_: (1_234, False, []))
    shown = page(operator, LIST)
    assert "1,234 dead letters" in shown.text
    assert shown.field("as_of").isdigit()


def test_an_empty_list_says_so(viewer, page):
    assert "There are no dead letters." in page(viewer, LIST).text
    assert "No dead letter matches." in page(viewer, f"{LIST}?text=x").text


class Scripted:
    """A queue that answers ``list`` from a script, by what it is asked to go on behind."""

    store_key = "scripted"

    def __init__(self, answers):
        self.answers = answers

    def list(self, filter, *, limit, after):
        return self.answers[after]


def letter(at, id):
    return JobRecord(str(id), "q", "failed", b"1", (at, id), 0, finished_at=at)


@pytest.fixture
def scripted(monkeypatch):
    def scripted(**queues):
        monkeypatch.setattr(stores, "queues", queues)

    return scripted


def test_a_search_that_stopped_early_shows_what_it_found_and_where_to_go_on(scripted):
    scripted(a=Scripted({None: Page([letter(90, 1)], next=(50, 9))}))
    page = merged_page(["a"], JobFilter(), 25, None)
    assert [record.id for _alias, record in page.records] == ["1"]
    assert page.partial
    assert page.next == Cursor(50, 9)


def test_a_search_that_found_nothing_yet_still_goes_on(scripted):
    scripted(a=Scripted({None: Page([], next=(50, 9)), (50, 9): Page([letter(40, 1)])}))
    first = merged_page(["a"], JobFilter(), 25, None)
    assert (first.records, first.partial) == ([], True)
    second = merged_page(["a"], JobFilter(), 25, first.next)
    assert [record.id for _alias, record in second.records] == ["1"]
    assert second.next is None


def test_what_another_queue_has_behind_the_place_of_a_search_waits_for_its_turn(scripted):
    scripted(
        a=Scripted({None: Page([letter(90, 1)], next=(50, 9)), (50, 9): Page([letter(45, 2)])}),
        b=Scripted({None: Page([letter(60, 3), letter(40, 4)]), (50, 9): Page([letter(40, 4)])}),
    )
    first = merged_page(["a", "b"], JobFilter(), 25, None)
    assert [record.id for _alias, record in first.records] == ["1", "3"]
    second = merged_page(["a", "b"], JobFilter(), 25, first.next)
    assert [record.id for _alias, record in second.records] == ["2", "4"]


def test_letters_with_one_time_and_one_id_in_two_stores_are_both_shown_once(scripted):
    a, b = letter(90, 1), letter(90, 1)
    scripted(
        a=Scripted({None: Page([a]), (90, 1): Page([])}),
        b=Scripted({None: Page([b]), (90, 2): Page([b]), (90, 1): Page([])}),
    )
    first = merged_page(["a", "b"], JobFilter(), 1, None)
    second = merged_page(["a", "b"], JobFilter(), 1, Cursor.parse(str(first.next)))
    assert [alias for alias, _record in first.records + second.records] == ["a", "b"]
    assert second.next is None


def test_a_page_goes_on_searching_for_a_while_before_it_stops(scripted, monkeypatch):
    monkeypatch.setattr(stores, "SEARCH_SECONDS", 60)
    answers = {
        None: Page([letter(90, 1)], next=(80, 9)),
        (80, 9): Page([], next=(70, 9)),
        (70, 9): Page([letter(60, 2), letter(55, 3)], next=(55, 3)),
        (60, 2): Page([letter(55, 3)]),
    }
    scripted(a=Scripted(answers))
    page = stores.search(["a"], JobFilter(), 2, None)
    assert [record.id for _alias, record in page.records] == ["1", "2"]
    assert not page.partial
    assert page.next == Cursor(60, 2, "a")


def test_the_page_says_how_far_a_search_has_come(scripted, viewer, page, monkeypatch):
    class Found(Scripted):
        def now(self):
            return 100

        def count(self, *_args, **_options):
            return 0

    monkeypatch.setattr(stores, "SEARCH_SECONDS", 0)
    scripted(a=Found({None: Page([], next=(50, 9))}))
    shown = page(viewer, f"{LIST}?text=rare")
    assert "The search has looked at all that ended since" in shown.text
    assert "Search on" in shown.text
    assert any("after=50-9-" in link for link in shown.links)


def test_a_queue_that_cannot_be_read_is_named_and_the_others_are_shown(fail, viewer, monkeypatch):
    (id,) = fail(1)

    def refuse(*_args, **_options):
        raise StoreUnavailable("The disk is gone.")

    monkeypatch.setattr(queues["emails"], "list", refuse)
    response = viewer.get(LIST)
    assert [row["id"] for row in response.context["rows"]] == [id]
    assert "could not be read: StoreUnavailable: The disk is gone." in response.content.decode()


def test_a_job_is_found_by_its_id_in_any_queue_and_state(viewer):
    id = queues["emails"].put("x", job_id="a waiting/one")
    response = viewer.get(f"{LIST}find/", {"id": id})
    assert response["Location"] == job_url("emails", id)


def test_an_id_of_two_queues_leads_to_a_choice(viewer, page):
    for alias in ("default", "emails"):
        queues[alias].put("x", job_id="both")
    links = page(viewer, f"{LIST}find/?id=both").links
    assert job_url("default", "both") in links
    assert job_url("emails", "both") in links


def test_an_id_that_no_queue_has_is_said(viewer, page):
    assert "No queue that could be read has a job" in page(viewer, f"{LIST}find/?id=none").text
    assert "No queue" not in page(viewer, f"{LIST}find/").text
