"""A real Chromium on a live server; the tests are skipped where there is none."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.auth.models import User

from django_localqueue import queues

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

OUTPUT = Path(__file__).resolve().parent.parent / "output"
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def chromium() -> str | None:
    """Return the path of Chromium: that in CHROMIUM, or the first on PATH."""
    names = (os.environ.get("CHROMIUM"), "chromium", "chromium-browser", "google-chrome")
    return next((found for name in names if name and (found := shutil.which(name))), None)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser for a module: Playwright's event loop must not run on into other tests."""
    path = chromium()
    if path is None:
        pytest.skip("Chromium was not found on PATH; install it, or set CHROMIUM to its path.")
    if find_spec("playwright") is None:
        pytest.skip("The package playwright is not installed.")
    from playwright.sync_api import sync_playwright

    # Playwright runs an event loop in this thread, and the fixtures use the database in it
    before = os.environ.get("DJANGO_ALLOW_ASYNC_UNSAFE")
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield opened
        opened.close()
    if before is None:
        del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]


@pytest.fixture
def site(browser: Browser, settings: Any, tmp_path: Path, transactional_db: None) -> Iterator[None]:
    """Two queues in a folder of their own, a staff user, and a policy without inline code."""
    settings.LOCALQUEUE = {
        "default": {"LOCATION": tmp_path / "store", "OPTIONS": {"durability": "normal"}},
        "emails": {},
    }
    if find_spec("django.middleware.csp"):
        settings.MIDDLEWARE = [
            *settings.MIDDLEWARE,
            "django.middleware.csp.ContentSecurityPolicyMiddleware",
        ]
        settings.SECURE_CSP = {"default-src": ["'self'"], "img-src": ["'self'", "data:"]}
    User.objects.create_superuser("operator", password="a long password")
    yield
    queues.close_all()


@pytest.fixture
def open_page(browser: Browser, site: None, live_server: Any) -> Iterator[Callable[..., Page]]:
    """Return a page that is logged in; whatever it complains of fails the test."""
    complaints: list[str] = []
    contexts = []

    def listen(line: Any) -> None:
        is_icon = line.location.get("url", "").endswith("/favicon.ico")  # a site without one
        if line.type in ("error", "warning") and not is_icon:
            complaints.append(line.text)

    def open_page(user: str = "operator", **options: Any) -> Page:
        context = browser.new_context(base_url=live_server.url, locale="en-GB", **options)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", listen)
        page.goto("/admin/")
        page.fill("#id_username", user)
        page.fill("#id_password", "a long password")
        page.click("input[type=submit]")
        page.wait_for_selector("text=Recent actions")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []


@pytest.fixture
def screenshot() -> Callable[[Page, str], None]:
    """Keep a picture of the whole page in tests/output."""

    def screenshot(page: Page, name: str) -> None:
        OUTPUT.mkdir(exist_ok=True)
        page.screenshot(path=OUTPUT / f"{name}.png", full_page=True)

    return screenshot
