"""An operator at work in a real browser."""

from __future__ import annotations

import pytest

from django_localqueue import queues

pytestmark = pytest.mark.browser

THEMES = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 844}, "is_mobile": True},
}


def index_file(path):
    """Fail as a real job does."""
    raise ValueError(f"{path}: the archive is damaged at byte 1024, and cannot be read any further")


@pytest.fixture
def letters(site):
    """Dead letters of two queues; one id is hard to carry in an address."""
    ids = []
    for alias, number in (("default", 30), ("emails", 3)):
        for index in range(number):
            own_ids = {("emails", 2): "a/b:c?d#e 100%", ("emails", 1): "x" * 255}
            data = {"path": f"/srv/files/{index}.zip", "size": 1_024 * index}
            queue = queues[alias]
            ids.append(
                queue.put(
                    data,
                    task="catalogue.tasks.index_file",
                    headers={"user": 7},
                    job_id=own_ids.get((alias, index)),
                )
            )
            job = queue.get(block=False, worker="web1:4711:5f3a")
            try:
                index_file(data["path"])
            except ValueError as error:
                queue.fail(job, error)
    queues["default"].put("waiting")
    queues["default"].put("waiting", delay=3_600)
    return ids


def test_an_operator_opens_a_dead_letter_and_retries_it(letters, open_page):
    page = open_page()
    page.click("#content a[href='/admin/django_localqueue/queue/']")
    page.click("tr:has(th a:text-is('emails')) td[data-lq-label=Failed] a")
    page.click("th.lq-id a >> nth=0")
    assert "Job a/b:c?d#e 100%" in page.inner_text("#content h1")
    assert "raise ValueError" in page.inner_text("#lq-last-error")
    page.click("button:text-is('Retry')")
    page.wait_for_selector(".messagelist >> text=Retried 1 failed job.")
    assert "ready" in page.inner_text(".lq-facts >> nth=0")
    assert queues["emails"].lookup("a/b:c?d#e 100%").state == "ready"


def test_an_operator_retries_one_job_in_the_list_and_stays_there(letters, open_page):
    page = open_page()
    page.goto("/admin/django_localqueue/job/?text=damaged&queue=default")
    page.click("tbody tr:nth-child(2) button")
    page.wait_for_selector(".messagelist >> text=Retried 1 failed job.")
    assert page.url.endswith("/admin/django_localqueue/job/?text=damaged&queue=default")
    assert queues["default"].stats().failed == 29


def test_the_box_in_the_head_ticks_all_jobs_of_the_page(letters, open_page):
    page = open_page()
    page.goto("/admin/django_localqueue/job/?per=25")
    page.check("thead input[type=checkbox]")
    page.click("button[value=retry-selected]")
    page.wait_for_selector("text=Retry these jobs?")
    assert "25 jobs" in page.inner_text(".lq-count")
    page.click("text=Yes, retry")
    page.wait_for_selector(".messagelist >> text=Retried 25 failed jobs.")
    assert queues["default"].stats().failed + queues["emails"].stats().failed == 8


def test_an_operator_filters_and_purges_all_that_match(letters, open_page):
    page = open_page()
    page.goto("/admin/django_localqueue/job/")
    page.click("text=More filters")
    page.check("label:has-text('default') input")
    page.click("input[value=Filter]")
    page.wait_for_selector("text=30 dead letters")
    page.click("button[value=purge-all]")
    page.wait_for_selector("text=Purge these jobs?")
    assert "30 jobs" in page.inner_text(".lq-count")
    page.fill("#lq-word", "purge")
    page.click("text=Yes, purge")
    page.wait_for_selector(".messagelist >> text=Purged 30 jobs.")
    assert "queue=default" in page.url
    assert (queues["default"].stats().failed, queues["emails"].stats().failed) == (0, 3)


def test_an_operator_who_is_taken_back_changes_nothing(letters, open_page):
    page = open_page()
    page.goto("/admin/django_localqueue/job/?queue=default")
    page.click("button[value=purge-all]")
    page.click("text=No, take me back")
    page.wait_for_selector("text=30 dead letters")
    assert queues["default"].stats().failed == 30


def test_everything_works_without_javascript(letters, open_page):
    page = open_page(java_script_enabled=False)
    page.goto("/admin/django_localqueue/queue/")
    page.click("tbody tr:first-child button")
    page.wait_for_selector(".messagelist >> text=is paused")
    assert queues["default"].stats().paused
    page.goto("/admin/django_localqueue/job/?queue=emails")
    page.check("tbody tr:first-child input[type=checkbox]")
    page.click("button[value=purge-selected]")
    page.click("text=Yes, purge")
    page.wait_for_selector(".messagelist >> text=Purged 1 job.")
    page.fill("#lq-find-id", letters[0])
    page.click("input[value=Open]")
    page.wait_for_selector(f"h1:text('Job {letters[0]}')")


@pytest.mark.parametrize("theme", THEMES)
def test_no_page_is_wider_than_its_window(theme, letters, open_page, screenshot):
    page = open_page(**THEMES[theme])
    queues["emails"].pause()

    def look(name):
        screenshot(page, f"console-{name}-{theme}")
        width, window = page.evaluate(
            "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
        )
        assert width <= window, name

    page.goto("/admin/django_localqueue/queue/")
    look("overview")
    page.goto("/admin/django_localqueue/job/?text=damaged&per=25")
    look("dead-letters")
    page.click("th.lq-id a >> nth=0")
    look("job")
    page.go_back()
    page.click("th.lq-id a >> nth=1")
    look("long-id")
    page.goto("/admin/django_localqueue/job/")
    page.click("button[value=purge-all]")
    page.wait_for_selector("#lq-word")
    look("confirm")
    page.goto("/admin/django_localqueue/queue/purge/?state=failed&age=0&unit=days")
    look("purge")
