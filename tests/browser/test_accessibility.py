"""Every page as others meet it: with axe-core, from right to left, in other themes, by keyboard."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from django_localqueue import queues
from django_localqueue.records import RunningJob, ScheduleRecord, WorkerRecord
from tests.fakes.server import free_port

pytestmark = pytest.mark.browser

BASE = "/admin/django_localqueue"
THEMES: dict[str, dict[str, Any]] = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 844}, "is_mobile": True},
}
LISTS = {
    "overview": f"{BASE}/queue/",
    "queue": f"{BASE}/queue/default/change/",
    "dead-letters": f"{BASE}/job/",
    "filtered": f"{BASE}/job/?state=failed&text=broken&attempts=1",
    "ready": f"{BASE}/job/?state=ready",
    "processing": f"{BASE}/job/?state=processing",
    "errors": f"{BASE}/job/errors/",
    "tasks": f"{BASE}/job/tasks/",
    "workers": f"{BASE}/worker/",
    "schedules": f"{BASE}/schedule/",
    "purge": f"{BASE}/queue/purge/?state=failed&age=0&unit=days",
    "index": "/admin/",
}


def broken(name: str) -> None:
    """Fail as a task does."""
    raise ValueError(f"{name} is broken")


@pytest.fixture
def pages(site: None) -> dict[str, str]:
    """Jobs, a worker and schedules of every kind; returns the addresses to look at."""
    queue = queues["default"]
    for number in range(6):
        queue.put({"args": [number], "kwargs": {"path": "a.zip"}}, task="shop.tasks.send")
    for job in queue.get_many(6, worker="web1:12:ab"):
        if job.data["args"][0] < 3:
            queue.ack(job, result={"sent": True})
            continue
        try:
            broken("the archive")
        except ValueError as error:
            queue.fail(job, error)
    queue.put({"a": 1}, task="shop.tasks.long")
    running = queue.get(block=False, worker="web1:12:ab")
    running.progress(1, 4, "a quarter")
    for number in range(3):
        queues["emails"].put({"n": number}, group_id="g")
    now = queue.now()
    job = RunningJob(running.id, "shop.tasks.long", "default", now - 60_000_000)
    queue.report_worker(
        WorkerRecord("web1:12:ab", "web1", 12, "0.1.0", now, ("default",), 4, (job,), {"done": 3})
    )
    queue.save_schedule(
        ScheduleRecord("nightly", "0 3 * * *", "shop.tasks.report", next_at=now - 600_000_000)
    )
    (dead,) = queue.list_failed(1)
    return LISTS | {
        "job": f"{BASE}/job/default_2F{dead.id}/change/",
        "running": f"{BASE}/job/default_2F{running.id}/change/",
        "edit": f"{BASE}/job/default_2F{dead.id}/edit/",
    }


@pytest.fixture(scope="module")
def axe() -> str:
    """The text of axe-core, from its package."""
    spec = find_spec("axe_core_python")
    if spec is None:
        pytest.skip("The package axe-core-python, which carries axe-core, is not installed.")
    assert spec.submodule_search_locations
    return (Path(spec.submodule_search_locations[0]) / "axe.min.js").read_text()


def violations(page: Any, axe: str) -> list[str]:
    """Return what axe finds wrong in the console's part of the page."""
    page.evaluate(axe)
    found = page.evaluate(
        "() => axe.run(document.querySelector('.lq, .lq-notice') || document,"
        " {resultTypes: ['violations']})"
    )
    return [
        f"{one['id']}: {node['html'][:120]} {node['any'][0]['message'] if node['any'] else ''}"
        for one in found["violations"]
        for node in one["nodes"]
    ]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_wrong_on_any_page(theme, pages, open_page, axe):
    page = open_page(**THEMES[theme])
    wrong = {}
    for name, address in pages.items():
        page.goto(address)
        for details in page.query_selector_all("details"):
            details.evaluate("element => { element.open = true; }")
        if found := violations(page, axe):
            wrong[name] = found
    page.goto(f"{BASE}/job/")
    page.click("button[value=purge-all]")
    page.wait_for_selector("#lq-word")
    if found := violations(page, axe):
        wrong["confirm"] = found
    assert wrong == {}


def is_too_wide(page: Any) -> bool:
    """Return whether the page must be moved sideways to be read."""
    width, window = page.evaluate(
        "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    )
    return bool(width > window)


@pytest.mark.parametrize("theme", THEMES)
def test_every_page_fits_its_window(theme, pages, open_page, screenshot):
    page = open_page(**THEMES[theme])
    too_wide = []
    for name, address in pages.items():
        page.goto(address)
        screenshot(page, f"page-{name}-{theme}")
        if is_too_wide(page):
            too_wide.append(name)
    assert too_wide == []


@pytest.mark.parametrize("theme", ["light", "phone"])
def test_every_page_reads_from_right_to_left(theme, settings, pages, open_page, screenshot):
    page = open_page(**THEMES[theme])
    settings.LANGUAGE_CODE = "ar"
    too_wide = []
    for name, address in pages.items():
        page.goto(address)
        screenshot(page, f"page-{name}-ar-{theme}")
        assert page.get_attribute("html", "dir") == "rtl"
        if is_too_wide(page):
            too_wide.append(name)
    assert too_wide == []


def run_all():
    """Do what a worker does with all that is ready."""
    for job in queues["default"].get_many(10):
        queues["default"].ack(job)


def test_a_job_is_found_mended_retried_and_seen_to_run_from_the_index_alone(
    settings, pages, open_page
):
    """As somebody does it who never saw the console; the pages read themselves again."""
    settings.LOCALQUEUE_CONSOLE = {"REFRESH_SECONDS": 1}
    page = open_page()
    page.goto("/admin/")
    page.click("text=See what went wrong")
    page.wait_for_selector("text=the archive is broken")
    page.click("text=ValueError")
    assert "ValueError, …/browser/" in page.inner_text(".lq-described")
    page.click("th.lq-id a >> nth=0")
    assert "the archive is broken" in page.inner_text("#lq-last-error")
    page.click("text=Edit arguments")
    page.fill("#lq-payload", '{"args": [9], "kwargs": {"path": "b.zip"}}')
    page.click("text=Save and retry")
    page.wait_for_selector(".messagelist >> text=Retried 1 failed job.")
    run_all()
    page.wait_for_selector(".lq-facts bdi:text-is('done')")
    page.click("text=Back to the list")
    assert page.locator("th.lq-id").count() == 2, "the list is still that of the error"
    page.click("button[value=retry-all]")
    page.click("text=Yes, retry")
    page.wait_for_selector(".messagelist >> text=Retried 2 failed jobs.")
    page.click("text=See what runs")
    done = "tr:has(th a:text-is('default')) td[data-lq-label={}] >> text='{}'"
    page.wait_for_selector(done.format("Ready", 2))
    run_all()
    page.wait_for_selector(done.format("Done", 6))
    assert queues["default"].stats().failed == 0


def test_a_job_is_retried_by_the_keyboard_alone(pages, open_page):
    page = open_page()
    page.goto(pages["job"])
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent.trim()") == "Retry":
            break
    page.keyboard.press("Enter")
    page.wait_for_selector(".messagelist >> text=Retried 1 failed job.")


#: Marks each thing to press or fill in, and takes the mark off where the focus is to be seen.
MARK = """() => {
  const things = '.lq :is(a[href], button, input:not([type=hidden]), select, summary, textarea)';
  const seen = [...document.querySelectorAll(things)].filter(one => one.checkVisibility());
  seen.forEach(one => { one.dataset.unreached = ''; });
  document.addEventListener('focusin', event => {
    const style = getComputedStyle(event.target);
    const isVisible = style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0;
    if (isVisible) delete event.target.dataset.unreached;
  });
  return seen.length;
}"""


@pytest.mark.parametrize("name", ["overview", "dead-letters", "errors", "job", "workers", "edit"])
def test_every_action_is_reached_by_tab_and_the_focus_is_visible(name, pages, open_page):
    page = open_page()
    page.goto(pages[name])
    for details in page.query_selector_all(".lq details"):
        details.evaluate("element => { element.open = true; }")
    number = page.evaluate(MARK)
    assert number > 3
    for _ in range(number + 60):  # the admin's own links come first
        page.keyboard.press("Tab")
        if page.locator("[data-unreached]").count() == 0:
            break
    left = page.locator("[data-unreached]").evaluate_all("all => all.map(one => one.outerHTML)")
    assert left == []


def test_a_watched_page_reads_itself_again_until_the_box_is_cleared(settings, pages, open_page):
    settings.LOCALQUEUE_CONSOLE = {"REFRESH_SECONDS": 1}
    page = open_page()
    page.goto(pages["ready"])
    box = page.locator(".lq-refresh input")
    assert box.is_checked()
    id = queues["default"].put("fresh")
    page.wait_for_selector(f"th.lq-id >> text={id}")
    box.uncheck()
    page.reload()
    assert not page.locator(".lq-refresh input").is_checked()


def test_a_hidden_page_is_not_read_again(settings, pages, open_page):
    settings.LOCALQUEUE_CONSOLE = {"REFRESH_SECONDS": 1}
    page = open_page()
    page.add_init_script("Object.defineProperty(document, 'hidden', {get: () => window.lqHidden})")
    page.goto(pages["ready"])
    page.evaluate("window.lqHidden = true")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.wait_for_function(
        "() => new Promise(done => { let n = 0; const tick = () => (++n > 3 ? done(true)"
        " : setTimeout(tick, 1000)); tick(); })"
    )
    assert asked == []
    page.evaluate("window.lqHidden = false")
    with page.expect_request("**/job/?state=ready"):
        pass


@contextmanager
def themed_site(theme: str, tmp_path: Path) -> Iterator[str]:
    """A server of its own with a theme installed, on the same queues; yields its address."""
    port = free_port()
    environment = os.environ | {
        "DJANGO_SETTINGS_MODULE": "tests.browser.theme_settings",
        "DJANGO_SUPERUSER_PASSWORD": "a long password",
        "LQ_THEME": theme,
        "LQ_DATABASE": str(tmp_path / "site.sqlite3"),
        "LQ_STORE": str(tmp_path / "store"),
        "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
    }

    def django(*arguments: str) -> list[str]:
        return [sys.executable, "-m", "django", *arguments]

    for command in (
        ("migrate", "-v", "0"),
        ("createsuperuser", "--noinput", "--username", "operator", "--email", "a@b.example"),
    ):
        subprocess.run(django(*command), env=environment, check=True, timeout=60)
    serve = django("runserver", "--noreload", f"127.0.0.1:{port}")
    log = (tmp_path / "server.log").open("w")
    server = subprocess.Popen(serve, env=environment, stdout=log, stderr=log)
    try:
        wait_for(port)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(timeout=30)
        log.close()


def wait_for(port: int) -> None:
    """Wait until something listens."""
    deadline = time.monotonic() + 60
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            assert time.monotonic() < deadline, "the server did not start"
            time.sleep(0.05)


@pytest.mark.parametrize("theme", ["unfold", "jazzmin"])
def test_every_page_is_whole_in_other_themes(theme, pages, browser, tmp_path, screenshot):
    if find_spec(theme) is None:
        pytest.skip(f"The package django-{theme} is not installed.")
    with themed_site(theme, tmp_path) as address:
        context = browser.new_context(base_url=address, viewport={"width": 1_280, "height": 800})
        page = context.new_page()
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto("/admin/")
        page.fill("[name=username]", "operator")
        page.fill("[name=password]", "a long password")
        page.press("[name=password]", "Enter")
        page.wait_for_url("**/admin/")
        for name, path in pages.items():
            response = page.goto(path)
            assert response is not None
            assert response.status == 200, name
            screenshot(page, f"page-{name}-{theme}")
            assert page.locator(".lq, .lq-notice").count() >= 1, name
        context.close()
    assert errors == []
