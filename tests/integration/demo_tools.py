"""The demo as people run it: a process of its own, on folders made here."""

from __future__ import annotations

import fcntl
import io
import os
import re
import sqlite3
import subprocess
import sys
import time
import urllib.parse
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
WAIT = 60.0  # seconds; for what takes a moment


def environment(state: Path) -> dict[str, str]:
    """Return the environment of a demo whose files are in ``state``."""
    return {**os.environ, "DEMO_STATE": str(state), "DJANGO_SETTINGS_MODULE": "tests.settings"}


def command(folder: Path, *arguments: str) -> list[str]:
    """Return the command line of a demo on the files of ``folder``."""
    return [sys.executable, "-m", "testproject.demo", "--dir", str(folder), *arguments]


def run(
    folder: Path, state: Path, *arguments: str, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a demo to its end, with ``variables`` in its environment."""
    return subprocess.run(
        command(folder, *arguments),
        cwd=ROOT,
        env={**environment(state), **variables},
        capture_output=True,
        text=True,
        timeout=WAIT,
        check=False,
    )


@contextmanager
def started(
    folder: Path, state: Path, *arguments: str, **variables: str
) -> Iterator[subprocess.Popen[str]]:
    """Start a demo, with ``variables`` in its environment; it ends with the block."""
    process = subprocess.Popen(
        command(folder, *arguments),
        cwd=ROOT,
        env={**environment(state), **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        process.communicate(timeout=WAIT)


def zipped(members: dict[str, bytes]) -> bytes:
    """Return a zip archive."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return stream.getvalue()


def fill(folder: Path) -> Path:
    """Make a folder of eight files, three of them broken, and one more broken in an archive."""
    files = {
        "good.py": b'"""A good module."""\n',
        "empty.txt": b"",
        "notes.txt": "Schöne Notizen".encode(),
        "blob.bin": bytes(range(256)),
        "good.zip": zipped(
            {"in.zip": zipped({"deep.txt": b"deep"}), "flat.txt": b"flat", "bad.py": b"def f(:"}
        ),
        "broken.zip": b"PK\x03\x04 and no more",
        "broken.py": b"class (:\n",
        "latin.txt": "Ärger".encode("latin-1"),
    }
    folder.mkdir()
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


def rows(state: Path, query: str) -> list[Any]:
    """Ask the catalogue's database."""
    with closing(sqlite3.connect(state / "catalogue.sqlite3")) as connection:
        return connection.execute(query).fetchall()


def is_free(state: Path) -> bool:
    """Whether neither the demo nor a worker of its lives: each holds the lock."""
    with open(state / "lock") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def wait_for(condition: Callable[[], bool], what: str) -> None:
    """Wait until the condition is true; fail where that takes too long."""
    deadline = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.05)


def burst(state: Path) -> subprocess.CompletedProcess[str]:
    """Run a worker on both queues of the state folder's store until they are empty."""
    program = [sys.executable, "-m", "testproject.manage", "runqueueworker", "--burst"]
    return subprocess.run(
        [*program, "--queue", "default", "--queue", "archives"],
        cwd=ROOT,
        env={**environment(state), "DJANGO_SETTINGS_MODULE": "testproject.settings"},
        capture_output=True,
        text=True,
        timeout=WAIT,
        check=False,
    )


def until_served(process: subprocess.Popen[str]) -> tuple[str, str, str]:
    """Wait until the demo serves; return its site, the password, and all that it said."""
    assert process.stdout is not None
    said = ""
    while "Ctrl-C" not in said:
        line = process.stdout.readline()
        assert line, process.communicate()[1]
        said += line
    (site,) = re.findall(r"^Search +(http://127\.0\.0\.1:\d+)/$", said, re.MULTILINE)
    (password,) = re.findall(r"^Password (\S+)$", said, re.MULTILINE)
    return site, password, said


def logged_in(site: str, password: str, user: str = "operator") -> urllib.request.OpenerDirector:
    """Return a browser that is logged in as a user of the demo."""
    cookies = CookieJar()
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(cookies))
    browser.open(f"{site}/admin/login/").close()
    (token,) = [cookie.value for cookie in cookies if cookie.name == "csrftoken"]
    fields = {
        "csrfmiddlewaretoken": token,
        "username": user,
        "password": password,
        "next": "/admin/",
    }
    answer = browser.open(f"{site}/admin/login/", urllib.parse.urlencode(fields).encode())
    assert answer.url == f"{site}/admin/"
    return browser
