"""The documentation: its Python blocks run, its names exist, its links lead somewhere.

How a block is run is said by a comment before its fence; CONTRIBUTING.md lists them.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from importlib.util import find_spec
from pathlib import Path

import pytest

from django_localqueue import SimpleQueue, conf
from django_localqueue.management.commands.runqueueworker import Command

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(
    r"^(?:<!-- docs: (?P<how>[^\n]*?) -->\n)?```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.M | re.S
)
LINK = re.compile(r"\]\((?!\w+:)([^)#\s]*)(?:#([^)\s]+))?\)")
NAMED_TEST = re.compile(r"`([a-z_/]+\.py)::(test_\w+)`")
RUNS = ("", "names", "until", "settings", "file", "project", "append", "commands", "not")
TASKS_MODULE = "django.tasks" if find_spec("django.tasks") else "django_tasks"

SETTINGS = f"""
from pathlib import Path

BASE_DIR = Path(__file__).resolve().parent
SECRET_KEY = "documentation"
USE_TZ = True
ROOT_URLCONF = "urls"
STATIC_URL = "/static/"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {{"default": {{"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}}}
TASKS = {{"default": {{"BACKEND": "django_localqueue.tasks.LocalQueueBackend"}}}}
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [{{
    "BACKEND": "django.template.backends.django.DjangoTemplates",
    "APP_DIRS": True,
    "OPTIONS": {{"context_processors": [
        "django.template.context_processors.request",
        "django.contrib.auth.context_processors.auth",
        "django.contrib.messages.context_processors.messages",
    ]}},
}}]
APPS = [
    "django.contrib.admin", "django.contrib.auth", "django.contrib.contenttypes",
    "django.contrib.messages", "django.contrib.sessions", "django_localqueue",
    {"" if TASKS_MODULE == "django.tasks" else '"django_tasks",'}
]
INSTALLED_APPS = []
# ---- the page's own
%s
# ----
INSTALLED_APPS = [*APPS, *(app for app in INSTALLED_APPS if app not in APPS)]
"""
URLS = "from django.contrib import admin\nfrom django.urls import path\n\n"
URLS += 'urlpatterns = [path("admin/", admin.site.urls)]\n'
SET_UP = """
import os
os.environ["DJANGO_SETTINGS_MODULE"] = "page_settings"
import django
django.setup()
from django.core.management import call_command
call_command("check", fail_level="WARNING", verbosity=0)
call_command("migrate", verbosity=0)
"""
STOP_WHEN_EMPTY = """
import threading, time
from django_localqueue import SimpleQueue, Worker
_end = time.monotonic() + 60
_ran = Worker.run
def _run(self):
    def watch():
        with SimpleQueue({path!r}) as queue:
            while (queue.stats().ready or queue.stats().processing) and time.monotonic() < _end:
                time.sleep(0.01)
            assert not queue.stats().ready and queue.stats().acked, dict(queue.stats())
        self.stop()
    threading.Thread(target=watch).start()
    return _ran(self)
Worker.run = _run
"""


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, its line, and how it is run."""

    kind: str
    text: str
    line: int
    how: str

    @property
    def word(self) -> str:
        return self.how.partition(" ")[0]

    @property
    def rest(self) -> str:
        return self.how.partition(" ")[2]


@dataclass
class Site:
    """The folder in which a page's blocks run, one after the other."""

    folder: Path
    here: Path
    settings: list[str] = field(default_factory=list)

    def run(self, block: Block) -> None:
        text = block.text
        if TASKS_MODULE == "django_tasks":  # as the pages say for Django 5.2
            text = text.replace("from django.tasks import", "from django_tasks import")
        match block.word:
            case "not":
                return
            case "settings":
                self.settings.append(text)
                self.python("", in_project=True)
            case "project":
                self.python(text, in_project=True)
            case "file":
                self.write(block.rest, text, "w")
            case "append":
                if TASKS_MODULE == "django_tasks":
                    text += 'INSTALLED_APPS += ["django_tasks"]\n'
                self.write(block.rest, "\n" + text, "a")
            case "commands":
                self.commands(text)
            case "names":
                names = "".join(f"def {name}(*args): pass\n" for name in block.rest.split())
                self.python(names + text)
            case "until":
                path = re.fullmatch(r"the queue (\S+) is empty", block.rest)
                assert path, f"line {block.line}: not understood: {block.how}"
                self.python(STOP_WHEN_EMPTY.format(path=path[1]) + text)
            case _:
                self.python(text)

    def python(self, text: str, *, in_project: bool = False) -> None:
        if in_project:
            (self.folder / "page_settings.py").write_text(SETTINGS % "\n".join(self.settings))
            (self.folder / "urls.py").write_text(URLS)
            text = SET_UP + text
        self.call([sys.executable, "-W", "error", "-c", text])

    def write(self, path: str, text: str, mode: str) -> None:
        target = self.here / path
        target.parent.mkdir(exist_ok=True)
        with target.open(mode) as file:
            file.write(text)

    def commands(self, text: str) -> None:
        for command, expected in commands_in(text):
            if command.startswith("cd "):
                self.here = self.here / command[3:]
                continue
            shown = self.call(["bash", "-c", command])
            wanted = ".*?".join(map(re.escape, expected.strip().split("...")))
            assert re.search(wanted, shown, re.S), f"$ {command}\n{shown}\nis not\n{expected}"

    def call(self, command: list[str]) -> str:
        done = subprocess.run(
            command,
            cwd=self.here,
            env={
                **{key: value for key, value in os.environ.items() if "DJANGO" not in key},
                "PATH": f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
                "PYTHONPATH": str(self.folder),
            },
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.returncode == 0, f"{command[-1]}\n{done.stdout}\n{done.stderr}"
        return done.stdout


def commands_in(text: str) -> Iterator[tuple[str, str]]:
    """Return each command of a console block with the output that it shows."""
    for part in re.split(r"^\$ ", text, flags=re.M)[1:]:
        lines = part.splitlines()
        more = [line[2:] for line in lines[1:] if line.startswith("> ")]
        output = [line for line in lines[1:] if not line.startswith("> ")]
        yield "\n".join([lines[0].partition("  # ")[0], *more]), "\n".join(output)


def blocks_in(page: Path) -> list[Block]:
    text = page.read_text()
    return [
        Block(
            match["kind"], match["text"], text[: match.start()].count("\n") + 1, match["how"] or ""
        )
        for match in BLOCK.finditer(text)
    ]


def is_run(block: Block) -> bool:
    return block.kind == "python" or block.word == "commands"


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"```.*?^```$", "", page.read_text(), flags=re.M | re.S)
    headings = re.findall(r"^#+ (.+)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", text).strip().lower().replace(" ", "-") for text in headings}


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """An empty folder, and the interpreter under the names that the pages use."""
    (tmp_path / "bin").mkdir()
    for command, arguments in {"python": "", "django-admin": " -m django"}.items():
        script = tmp_path / "bin" / command
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}"{arguments} "$@"\n')
        script.chmod(0o755)
    return Site(tmp_path, tmp_path)


@pytest.mark.parametrize("page", [p for p in PAGES if any(map(is_run, blocks_in(p)))], ids=name)
def test_the_blocks_of_a_page_run(page: Path, site: Site) -> None:
    for block in blocks_in(page):
        if is_run(block):
            try:
                site.run(block)
            except AssertionError as error:
                pytest.fail(f"{name(page)}, line {block.line}: {error}")


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_the_comments_of_a_page_are_understood(page: Path) -> None:
    assert {block.word for block in blocks_in(page)} <= set(RUNS)
    outside = re.sub(r"`<!-- docs: .*?`", "", page.read_text())
    assert outside.count("<!-- docs:") == sum(bool(block.how) for block in blocks_in(page))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    for path, anchor in LINK.findall(page.read_text()):
        target = page.parent / path if path else page
        assert target.exists(), path
        assert not anchor or anchor in anchors(target), f"{path}#{anchor}"


def test_every_page_of_the_docs_is_reachable_from_the_readme() -> None:
    linked = {path for path, _ in LINK.findall((ROOT / "README.md").read_text())}
    assert {f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")} <= linked


@pytest.mark.parametrize("page", ["guarantees.md", "field-reports.md"])
def test_every_test_that_a_page_of_promises_names_exists(page: str) -> None:
    named = NAMED_TEST.findall((ROOT / "docs" / page).read_text())
    assert len(named) > 40
    missing = [
        f"{path}::{test}"
        for path, test in named
        if not (ROOT / "tests" / path).exists()
        or not re.search(rf"^ *def {test}\(", (ROOT / "tests" / path).read_text(), re.M)
    ]
    assert not missing


@pytest.mark.parametrize(
    "keys",
    [
        conf.QUEUE_KEYS,
        conf.TEST_KEYS,
        conf.OPTIONS,
        tuple(key.name.upper() for key in fields(conf.WorkerSettings)),
        tuple(key.name.upper() for key in fields(conf.ConsoleSettings)),
    ],
    ids=["queue", "test", "options", "worker", "console"],
)
def test_every_setting_is_in_the_configuration_page(keys: tuple[str, ...]) -> None:
    text = (ROOT / "docs" / "configuration.md").read_text()
    assert not [key for key in keys if f"`{key}`" not in text]


def test_every_flag_of_the_worker_is_in_the_configuration_page() -> None:
    text = (ROOT / "docs" / "configuration.md").read_text()
    parser = argparse.ArgumentParser()
    Command().add_arguments(parser)
    flags = [option for action in parser._actions for option in action.option_strings]
    own = [flag for flag in flags if flag not in ("-h", "--help")]
    assert len(own) >= 8
    for flag in own:
        assert re.search(rf"`{flag}[ `]", text), flag
        if flag != "--check" and not flag.startswith("--no-"):
            assert f"`LOCALQUEUE_{flag[2:].upper().replace('-', '_')}`" in text, flag


def test_every_check_is_in_the_configuration_page_and_no_other() -> None:
    text = (ROOT / "docs" / "configuration.md").read_text()
    package = Path(conf.__file__).parents[1]
    known = set()
    for path in package.rglob("*.py"):
        known |= set(re.findall(r'"(?:django_localqueue\.)?([EW]\d{3})"', path.read_text()))
    assert known == set(re.findall(r"^\| ([EW]\d{3}) \|", text, re.M))


def test_the_pages_keep_to_their_length() -> None:
    limits = {"README.md": 200, "docs/guarantees.md": 180, "docs/architecture.md": 300}
    for page, most in limits.items():
        assert len((ROOT / page).read_text().splitlines()) <= most, page


def test_the_backup_of_the_operations_page_can_be_restored(tmp_path: Path) -> None:
    store, copy = tmp_path / "store", tmp_path / "restored"
    copy.mkdir()
    write = (
        "import sys\n"
        "from django_localqueue import SimpleQueue\n"
        "with SimpleQueue(sys.argv[1]) as queue:\n"
        "    while True:\n"
        "        print(queue.put({'n': 1}), flush=True)\n"
    )
    # As the page says: another process, read-only, and the command that it shows.
    back_up = (
        "import sqlite3, sys\n"
        "sqlite3.connect(sys.argv[1], uri=True, timeout=30).execute(sys.argv[2])\n"
    )
    page = (ROOT / "docs" / "operations.md").read_text()
    shown = re.search(r"sqlite3 '(file:)\S*(\?mode=ro)' \"(VACUUM INTO )'\S*'\"", page)
    assert shown
    database = f"{shown[1]}{store / 'localqueue.db'}{shown[2]}"
    command = f"{shown[3]}'{copy / 'localqueue.db'}'"
    writer = subprocess.Popen(
        [sys.executable, "-c", write, str(store)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert writer.stdout
        before = [writer.stdout.readline().strip() for _ in range(100)]
        subprocess.run([sys.executable, "-c", back_up, database, command], check=True, timeout=60)
        after = [writer.stdout.readline().strip() for _ in range(100)]
    finally:
        writer.kill()
        rest = writer.communicate()[0].split()
    with SimpleQueue(copy) as restored, SimpleQueue(store) as original:
        assert all(restored.lookup(id) for id in before)
        assert all(original.lookup(id) for id in [*before, *after, *rest[:-1]])
        assert restored.put("the next") > before[-1]
