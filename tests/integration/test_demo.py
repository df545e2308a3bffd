"""The demo, run as people run it: a process of its own, on folders made here."""

from __future__ import annotations

import fcntl
import io
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from django_localqueue.console.permissions import ROLES
from testproject import processes
from testproject.demo import USERS
from testproject.progress import Counts, Progress
from tests.integration.demo_tools import (
    WAIT,
    burst,
    fill,
    is_free,
    logged_in,
    rows,
    run,
    started,
    until_served,
    wait_for,
    zipped,
)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.CompletedProcess[str], Path]:
    """One run of the demo on a folder with broken files, for the tests that only look."""
    base = tmp_path_factory.mktemp("demo")
    return run(fill(base / "files"), base / "state", "--serve", "0"), base / "state"


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
    paths = [row[0] for row in rows(ran[1], "SELECT path FROM catalogue_file")]
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


def test_each_demo_user_is_staff_with_the_permissions_of_one_role(ran: Any) -> None:
    assert rows(ran[1], "SELECT username, is_staff, is_superuser FROM auth_user ORDER BY 1") == [
        ("admin", 1, 1),
        ("developer", 1, 0),
        ("operator", 1, 0),
        ("viewer", 1, 0),
    ]
    assert rows(ran[1], "SELECT 1 FROM auth_user_user_permissions") == []
    granted = rows(
        ran[1],
        "SELECT u.username, p.codename FROM auth_user u"
        " JOIN auth_user_groups g ON g.user_id = u.id"
        " JOIN auth_group_permissions gp ON gp.group_id = g.group_id"
        " JOIN auth_permission p ON p.id = gp.permission_id",
    )
    assert set(granted) == {
        (user, codename) for user, role in USERS.items() for codename in (*ROLES[role], "view_file")
    }


def test_a_second_run_reads_anew_and_forgets_the_first_runs_dead_letters(tmp_path: Path) -> None:
    folder, state = fill(tmp_path / "files"), tmp_path / "state"
    assert run(folder, state, "--serve", "0").returncode == 0
    password = rows(state, "SELECT password FROM auth_user")
    (folder / "broken.py").write_bytes(b"fine = True\n")
    (folder / "good.py").unlink()
    again = run(folder, state, "--serve", "0")
    assert again.returncode == 0, again.stderr
    assert re.search(r"stats +8 acked, 3 failed, 0 left", again.stdout)
    names = [row[0].rpartition("/")[2] for row in rows(state, "SELECT path FROM catalogue_file")]
    assert sorted(names) == [
        *("blob.bin", "broken.py", "deep.txt", "empty.txt"),
        *("flat.txt", "good.zip", "in.zip", "notes.txt"),
    ]
    assert rows(state, "SELECT password FROM auth_user") != password


def test_a_dead_letter_that_is_retried_after_mending_the_file_succeeds(tmp_path: Path) -> None:
    from django_localqueue import SimpleQueue

    folder, state = fill(tmp_path / "files"), tmp_path / "state"
    assert run(folder, state, "--serve", "0").returncode == 0
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
        (folder / "broken.zip").write_bytes(zipped({"mended.txt": b"whole again"}))
        assert queue.retry_failed(letter.id)
        worker = burst(state)
        assert worker.returncode == 0, worker.stderr
        mended = queue.lookup(letter.id)
        assert mended is not None
        assert mended.state == "acked"
    paths = [row[0] for row in rows(state, "SELECT path FROM catalogue_file")]
    assert f"{folder}/broken.zip!/mended.txt" in paths


def test_the_site_is_served_with_a_worker_until_it_is_interrupted(tmp_path: Path) -> None:
    from django_localqueue import SimpleQueue

    folder, state = fill(tmp_path / "files"), tmp_path / "state"
    with started(folder, state) as process:
        site, password, _ = until_served(process)
        browser = logged_in(site, password)
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
            wait_for(lambda: queue.lookup(letter.id).state == "acked", "the retried job")  # type: ignore[union-attr]
        process.send_signal(signal.SIGINT)
        assert process.wait(WAIT) == 0
    assert is_free(state)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_while_the_workers_run_ends_everything(
    tmp_path: Path, number: signal.Signals
) -> None:
    folder, state = tmp_path / "files", tmp_path / "state"
    folder.mkdir()
    for count in range(100):
        (folder / f"{count}.txt").write_text("some words and more " * 10_000)
    with started(folder, state, "--serve", "0") as process:
        assert process.stderr is not None
        assert "of 100 jobs" in process.stderr.readline()
        process.send_signal(number)
        assert process.wait(WAIT) == 130
    assert is_free(state)


def test_a_run_after_an_interrupted_one_starts_afresh(tmp_path: Path) -> None:
    folder, state = fill(tmp_path / "files"), tmp_path / "state"
    with started(folder, state, "--serve", "0") as process:
        assert process.stderr is not None
        process.stderr.readline()
        process.send_signal(signal.SIGINT)
    again = run(folder, state, "--serve", "0")
    assert again.returncode == 0, again.stderr
    assert re.search(r"stats +8 acked, 4 failed, 0 left", again.stdout)


def test_an_interrupt_within_a_look_at_a_process_leaves_it_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    poll = subprocess.Popen.poll
    whole = []

    def interrupted(self: subprocess.Popen[bytes]) -> int | None:
        os.kill(os.getpid(), signal.SIGINT)
        found = poll(self)
        whole.append(found)
        return found

    try:
        with monkeypatch.context() as patched:
            patched.setattr(subprocess.Popen, "poll", interrupted)
            with pytest.raises(KeyboardInterrupt):
                processes.has_ended(process)
            assert whole == [None]
            with pytest.raises(KeyboardInterrupt):
                processes.end([process], 60)
        assert process.returncode is not None
    finally:
        process.kill()
        process.communicate()


def test_a_second_demo_on_the_same_state_is_refused(tmp_path: Path) -> None:
    folder, state = fill(tmp_path / "files"), tmp_path / "state"
    state.mkdir()
    with open(state / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        refused = run(folder, state, "--serve", "0")
    assert refused.returncode == 1
    assert "is running in" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--dir", "/nowhere/at/all"], "is not a folder"),
        (["--serve", "yes"], "takes 0 or 1"),
        (["--store", "redis"], "invalid choice: 'redis'"),
        (["--threads", "0"], "take 1 to 64"),
    ],
)
def test_wrong_usage_is_named_and_ends_with_2(
    tmp_path: Path, arguments: list[str], problem: str
) -> None:
    refused = run(tmp_path, tmp_path / "state", *arguments)
    assert refused.returncode == 2
    assert problem in refused.stderr


@pytest.mark.parametrize(
    ("rqlited", "problem"),
    [
        ("", "rqlited is not on PATH"),
        ("/nowhere/rqlited", "RQLITED is '/nowhere/rqlited', which is no program"),
    ],
)
def test_without_rqlited_the_demo_on_rqlite_says_how_to_get_it(
    tmp_path: Path, rqlited: str, problem: str
) -> None:
    refused = run(tmp_path, tmp_path, "--store", "rqlite", RQLITED=rqlited, PATH="/nowhere")
    assert refused.returncode == 1
    assert problem in refused.stderr
    assert "make demo STORE=rqlite RQLITED=/path/to/rqlited" in refused.stderr


def test_a_node_that_ends_at_once_is_told_with_the_end_of_its_log(tmp_path: Path) -> None:
    program = tmp_path / "rqlited"
    program.write_text("#!/bin/sh\necho no such flag\nexit 2\n")
    program.chmod(0o755)
    variables = {"RQLITED": str(program), "TMPDIR": str(tmp_path)}
    refused = run(tmp_path, tmp_path / "state", "--store", "rqlite", **variables)
    assert refused.returncode == 1
    assert "a node of rqlite has ended" in refused.stderr
    assert refused.stderr.rstrip().endswith("no such flag")
    assert not list(tmp_path.glob("demo-rqlite-*"))
    assert is_free(tmp_path / "state")
