"""The demo, run as people run it: a process of its own, on folders made here."""

from __future__ import annotations

import fcntl
import io
import os
import re
import signal
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

import pytest

from testproject.demo import PERMISSIONS
from testproject.progress import Counts, Progress

ROOT = Path(__file__).resolve().parents[2]
WAIT = 60.0  # seconds; for what takes a moment


def _environment(state: Path) -> dict[str, str]:
    return {**os.environ, "DEMO_STATE": str(state), "DJANGO_SETTINGS_MODULE": "tests.settings"}


def _command(folder: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "testproject.demo", "--dir", str(folder), *arguments]


def _run(folder: Path, state: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        _command(folder, *arguments),
        cwd=ROOT,
        env=_environment(state),
        capture_output=True,
        text=True,
        timeout=WAIT,
        check=False,
    )


@contextmanager
def _started(folder: Path, state: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        _command(folder, *arguments),
        cwd=ROOT,
        env=_environment(state),
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


def _zipped(members: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return stream.getvalue()


def _fill(folder: Path) -> Path:
    """Make a folder of eight files, three of them broken, and one more broken in an archive."""
    files = {
        "good.py": b'"""A good module."""\n',
        "empty.txt": b"",
        "notes.txt": "Schöne Notizen".encode(),
        "blob.bin": bytes(range(256)),
        "good.zip": _zipped(
            {"in.zip": _zipped({"deep.txt": b"deep"}), "flat.txt": b"flat", "bad.py": b"def f(:"}
        ),
        "broken.zip": b"PK\x03\x04 and no more",
        "broken.py": b"class (:\n",
        "latin.txt": "Ärger".encode("latin-1"),
    }
    folder.mkdir()
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


def _rows(state: Path, query: str) -> list[Any]:
    with closing(sqlite3.connect(state / "catalogue.sqlite3")) as connection:
        return connection.execute(query).fetchall()


def _is_free(state: Path) -> bool:
    """Whether neither the demo nor a worker of its lives: each holds the lock."""
    with open(state / "lock") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def _wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.05)


def _burst(state: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "testproject.manage", "runqueueworker", "--burst"]
    return subprocess.run(
        [*command, "--queue", "default", "--queue", "archives"],
        cwd=ROOT,
        env={**_environment(state), "DJANGO_SETTINGS_MODULE": "testproject.settings"},
        capture_output=True,
        text=True,
        timeout=WAIT,
        check=False,
    )


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.CompletedProcess[str], Path]:
    """One run of the demo on a folder with broken files, for the tests that only look."""
    base = tmp_path_factory.mktemp("demo")
    return _run(_fill(base / "files"), base / "state", "--serve", "0"), base / "state"


def test_without_serving_the_demo_ends_after_its_summary(ran: Any) -> None:
    done, _ = ran
    assert done.returncode == 0, done.stderr
    assert re.search(r"files +8, and 4 more in archives", done.stdout)
    assert re.search(r"stats +8 acked, 4 failed, 0 left", done.stdout)
    assert re.search(r"jobs +12, [\d,]+ a second", done.stdout)


def test_the_summary_counts_dead_letters_by_reason_and_error(ran: Any) -> None:
    letters = re.findall(r"^ +(\d+)  (\w+)  (\S+)  as ", ran[0].stdout, re.MULTILINE)
    assert sorted(letters) == [
        ("1", "failed", "UnicodeDecodeError"),
        ("1", "failed", "zipfile.BadZipFile"),
        ("2", "failed", "SyntaxError"),
    ]


def test_progress_is_plain_lines_where_there_is_no_terminal(ran: Any) -> None:
    lines = ran[0].stderr.splitlines()
    assert lines[-1].startswith("100%  12 of 12 jobs")
    assert not any("\x1b" in line or "\r" in line for line in lines)


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_on_a_terminal_is_one_line_that_redraws_itself() -> None:
    screen = _Terminal()
    progress = Progress(screen)
    progress.show(Counts(left=3, acked=1))
    progress.end(Counts(acked=3, failed=1))
    first, last = screen.getvalue().removeprefix("\r").split("\r")
    assert first.startswith("\x1b[K[#######.....................]  25%  1 of 4 jobs")
    assert last.endswith("1 failed\n")


def test_every_good_file_and_member_is_in_the_catalogue(ran: Any) -> None:
    paths = [row[0] for row in _rows(ran[1], "SELECT path FROM catalogue_file")]
    names = sorted(path.partition("/files/")[2] for path in paths)
    assert names == [
        "blob.bin",
        "empty.txt",
        "good.py",
        "good.zip",
        "good.zip!/flat.txt",
        "good.zip!/in.zip",
        "good.zip!/in.zip!/deep.txt",
        "notes.txt",
    ]


def test_the_demo_user_is_staff_with_the_operators_permissions_alone(ran: Any) -> None:
    assert _rows(ran[1], "SELECT username, is_staff, is_superuser FROM auth_user") == [
        ("operator", 1, 0)
    ]
    granted = _rows(
        ran[1],
        "SELECT app_label, codename FROM auth_user_user_permissions u"
        " JOIN auth_permission p ON p.id = u.permission_id"
        " JOIN django_content_type c ON c.id = p.content_type_id",
    )
    assert set(granted) == {
        (label, codename) for label, codenames in PERMISSIONS.items() for codename in codenames
    }


def test_a_second_run_reads_anew_and_forgets_the_first_runs_dead_letters(tmp_path: Path) -> None:
    folder, state = _fill(tmp_path / "files"), tmp_path / "state"
    assert _run(folder, state, "--serve", "0").returncode == 0
    password = _rows(state, "SELECT password FROM auth_user")
    (folder / "broken.py").write_bytes(b"fine = True\n")
    (folder / "good.py").unlink()
    again = _run(folder, state, "--serve", "0")
    assert again.returncode == 0, again.stderr
    assert re.search(r"stats +8 acked, 3 failed, 0 left", again.stdout)
    names = [row[0].rpartition("/")[2] for row in _rows(state, "SELECT path FROM catalogue_file")]
    assert sorted(names) == [
        *("blob.bin", "broken.py", "deep.txt", "empty.txt"),
        *("flat.txt", "good.zip", "in.zip", "notes.txt"),
    ]
    assert _rows(state, "SELECT password FROM auth_user") != password


def test_a_dead_letter_that_is_retried_after_mending_the_file_succeeds(tmp_path: Path) -> None:
    from django_localqueue import SimpleQueue

    folder, state = _fill(tmp_path / "files"), tmp_path / "state"
    assert _run(folder, state, "--serve", "0").returncode == 0
    with SimpleQueue(state / "queue") as queue:
        (letter,) = [
            record
            for record in queue.list_failed()
            if record.error and record.error.error_class == "zipfile.BadZipFile"
        ]
        record = queue.lookup(letter.id)
        assert record is not None
        error = record.history[-1].error
        assert error is not None
        assert f"The file is {folder}/broken.zip" in error.traceback
        (folder / "broken.zip").write_bytes(_zipped({"mended.txt": b"whole again"}))
        assert queue.retry_failed(letter.id)
        worker = _burst(state)
        assert worker.returncode == 0, worker.stderr
        mended = queue.lookup(letter.id)
        assert mended is not None
        assert mended.state == "acked"
    paths = [row[0] for row in _rows(state, "SELECT path FROM catalogue_file")]
    assert f"{folder}/broken.zip!/mended.txt" in paths


def test_the_site_is_served_with_a_worker_until_it_is_interrupted(tmp_path: Path) -> None:
    from django_localqueue import SimpleQueue

    folder, state = _fill(tmp_path / "files"), tmp_path / "state"
    with _started(folder, state) as process:
        assert process.stdout is not None
        said = ""
        while "Ctrl-C" not in said:
            line = process.stdout.readline()
            assert line, process.communicate()[1]
            said += line
        (site,) = re.findall(r"^Search +(http://127\.0\.0\.1:\d+)/$", said, re.MULTILINE)
        (password,) = re.findall(r"^Password (\S+)$", said, re.MULTILINE)
        browser = _logged_in(site, password)
        assert "1 file for" in browser.open(f"{site}/?q=notizen").read().decode()
        assert browser.open(f"{site}/static/catalogue/site.css").status == 200
        (folder / "latin.txt").write_bytes(b"utf-8 now")
        with SimpleQueue(state / "queue") as queue:
            (letter,) = [
                record
                for record in queue.list_failed()
                if record.error and record.error.error_class == "UnicodeDecodeError"
            ]
            queue.retry_failed(letter.id)
            _wait_for(lambda: queue.lookup(letter.id).state == "acked", "the retried job")  # type: ignore[union-attr]
        process.send_signal(signal.SIGINT)
        assert process.wait(WAIT) == 0
    assert _is_free(state)


def _logged_in(site: str, password: str) -> urllib.request.OpenerDirector:
    cookies = CookieJar()
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(cookies))
    browser.open(f"{site}/admin/login/").close()
    (token,) = [cookie.value for cookie in cookies if cookie.name == "csrftoken"]
    fields = {
        "csrfmiddlewaretoken": token,
        "username": "operator",
        "password": password,
        "next": "/admin/",
    }
    answer = browser.open(f"{site}/admin/login/", urllib.parse.urlencode(fields).encode())
    assert answer.url == f"{site}/admin/"
    return browser


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_while_the_workers_run_ends_everything(
    tmp_path: Path, number: signal.Signals
) -> None:
    folder, state = tmp_path / "files", tmp_path / "state"
    folder.mkdir()
    for count in range(100):
        (folder / f"{count}.txt").write_text("some words and more " * 10_000)
    with _started(folder, state, "--serve", "0") as process:
        assert process.stderr is not None
        assert "of 100 jobs" in process.stderr.readline()
        process.send_signal(number)
        assert process.wait(WAIT) == 130
    assert _is_free(state)


def test_a_run_after_an_interrupted_one_starts_afresh(tmp_path: Path) -> None:
    folder, state = _fill(tmp_path / "files"), tmp_path / "state"
    with _started(folder, state, "--serve", "0") as process:
        assert process.stderr is not None
        process.stderr.readline()
        process.send_signal(signal.SIGINT)
    again = _run(folder, state, "--serve", "0")
    assert again.returncode == 0, again.stderr
    assert re.search(r"stats +8 acked, 4 failed, 0 left", again.stdout)


def test_a_second_demo_on_the_same_state_is_refused(tmp_path: Path) -> None:
    folder, state = _fill(tmp_path / "files"), tmp_path / "state"
    state.mkdir()
    with open(state / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        refused = _run(folder, state, "--serve", "0")
    assert refused.returncode == 1
    assert "is running in" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--dir", "/nowhere/at/all"], "is not a folder"),
        (["--serve", "yes"], "takes 0 or 1"),
        (["--threads", "0"], "take 1 to 64"),
    ],
)
def test_wrong_usage_is_named_and_ends_with_2(
    tmp_path: Path, arguments: list[str], problem: str
) -> None:
    refused = _run(tmp_path, tmp_path / "state", *arguments)
    assert refused.returncode == 2
    assert problem in refused.stderr
