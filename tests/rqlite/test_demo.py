"""The demo on three real nodes whose leader is killed while the workers run."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from django_localqueue.backends.rqlite import RqliteQueue
from django_localqueue.console.acts import PURGE_WORD
from django_localqueue.types import JobFilter
from tests.integration.demo_tools import (
    ROOT,
    WAIT,
    environment,
    fill,
    is_free,
    logged_in,
    rows,
    started,
    until_served,
    wait_for,
    zipped,
)
from tests.rqlite.nodes import RealCluster, find_rqlited

pytestmark = [pytest.mark.rqlite, pytest.mark.timeout(300)]

FILES = 400
MEMBERS = 60
ADMIN = "/admin/django_localqueue"


@dataclass(frozen=True)
class Run:
    """A demo that serves, after its leader was killed with jobs waiting and running."""

    process: subprocess.Popen[str]
    folder: Path
    state: Path
    temporary: Path
    urls: list[str]
    killed: str
    said: str
    site: str
    browser: urllib.request.OpenerDirector

    def page(self, path: str) -> str:
        return str(self.browser.open(f"{self.site}{path}").read().decode())

    def submit(self, path: str, act: str, **fields: str) -> str:
        """Press the button ``act`` of a page's form and return the answer."""
        (form,) = [
            form
            for form in re.findall(r"<form.*?</form>", self.page(path), re.DOTALL)
            if f'value="{act}"' in form
        ]
        return self._post(form, {"act": act, **fields})

    def confirm(self, page: str, **fields: str) -> str:
        """Answer a page that asks whether to do it."""
        (form,) = [
            form
            for form in re.findall(r"<form.*?</form>", page, re.DOTALL)
            if 'name="confirmed"' in form
        ]
        return self._post(form, fields)

    def _post(self, form: str, fields: dict[str, str]) -> str:
        (action,) = re.findall(r'<form method="post" action="([^"]*)"', form)
        hidden = re.findall(r'type="hidden" name="([^"]*)" value="([^"]*)"', form)
        sent = {**{name: unescape(value) for name, value in hidden}, **fields}
        request = urllib.request.Request(
            f"{self.site}{action}",
            urllib.parse.urlencode(sent).encode(),
            {"Referer": f"{self.site}/"},
        )
        return str(self.browser.open(request).read().decode())


def counts(queues: list[RqliteQueue]) -> dict[str, int]:
    stats = [queue.stats() for queue in queues]
    return {name: sum(getattr(s, name) for s in stats) for name in ("ready", "acked", "failed")}


def names(queue: RqliteQueue) -> set[str | None]:
    """Return the names of the workers that have finished jobs."""
    return {record.worker for record in queue.list(JobFilter(state="acked"), limit=1_000).records}


def kill_leader(urls: list[str]) -> str:
    """Kill the node that leads, by the process id that it tells; return its URL."""
    for url in urls:
        with urllib.request.urlopen(f"{url}/status", timeout=WAIT) as answer:
            status = json.load(answer)
        if status["store"]["raft"]["state"] == "Leader":
            os.kill(status["os"]["pid"], signal.SIGKILL)
            return url
    raise AssertionError("no node leads")


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    program = find_rqlited()
    assert program is not None
    base = tmp_path_factory.mktemp("demo")
    folder = fill(base / "files")
    for number in range(FILES):
        (folder / f"{number:03}.txt").write_text(f"word{number} and some more words\n" * 50)
    (folder / "many.zip").write_bytes(
        zipped({f"member{number}.txt": b"in an archive" for number in range(MEMBERS)})
    )
    temporary = base / "tmp"
    temporary.mkdir()
    variables = {"RQLITED": program, "TMPDIR": str(temporary)}
    with started(folder, base / "state", "--store", "rqlite", **variables) as process:
        assert process.stdout is not None
        urls = re.findall(r"http://127\.0\.0\.1:\d+", process.stdout.readline())
        assert len(urls) == 3, process.communicate()[1]
        queues = [RqliteQueue(urls, name) for name in ("default", "archives")]
        wait_for(lambda: counts(queues)["acked"] > 20, "the first jobs")
        assert counts(queues)["ready"] > 0, "the jobs were done before the leader could be killed"
        killed = kill_leader(urls)
        site, password, said = until_served(process)
        for queue in queues:
            queue.close()
        browser = logged_in(site, password, "admin")  # an operator may not purge
        yield Run(process, folder, base / "state", temporary, urls, killed, said, site, browser)


def test_every_job_is_finished_though_the_leader_was_killed(ran: Run) -> None:
    good, bad = FILES + 1 + MEMBERS + 8, 4
    assert re.search(rf"stats +{good} acked, {bad} failed, 0 left", ran.said)
    paths = [path for (path,) in rows(ran.state, "SELECT path FROM catalogue_file")]
    assert len([path for path in paths if "broken.zip" not in path]) == good


def test_the_catalogue_is_searched_after_it(ran: Run) -> None:
    assert "1 file for" in ran.page("/?q=notizen")


def test_dead_letters_are_seen_retried_and_purged_in_the_console_after_it(ran: Run) -> None:
    queues = [RqliteQueue(ran.urls, name) for name in ("default", "archives")]
    overview = ran.page(f"{ADMIN}/queue/")
    assert ">default<" in overview
    assert ">archives<" in overview
    letters = ran.page(f"{ADMIN}/job/")
    links = set(re.findall(rf'href="({ADMIN}/job/[^"]*/change/)', letters))
    assert len(links) == 4
    assert "BadZipFile" in letters
    assert all("Traceback" in ran.page(link) for link in links)
    before = counts(queues)
    (ran.folder / "broken.zip").write_bytes(zipped({"mended.txt": b"whole again"}))
    ran.confirm(ran.submit(f"{ADMIN}/job/", "retry-all"))
    # The mended archive and its member are new; the other three fail again.
    after = {"ready": 0, "acked": before["acked"] + 2, "failed": 3}
    wait_for(lambda: counts(queues) == after, "the retried jobs")
    ran.confirm(ran.submit(f"{ADMIN}/job/", "purge-all"), word=PURGE_WORD)
    assert counts(queues)["failed"] == 0
    for queue in queues:
        queue.close()


def test_workers_of_several_hosts_share_the_jobs_and_take_over_from_one_that_is_killed(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    for number in range(FILES):
        (folder / f"{number}.txt").write_text("some words and more " * 2_000)
    data = tmp_path / "nodes"
    data.mkdir()
    with RealCluster(data, nodes=3) as cluster:
        variables = {
            **environment(tmp_path / "state"),
            "DEMO_RQLITE": ",".join(cluster.urls),
            "DJANGO_SETTINGS_MODULE": "testproject.settings",
        }
        manage = [sys.executable, "-m", "testproject.manage"]
        put = (
            "from pathlib import Path; from testproject.catalogue.tasks import *;"
            f"enqueue_many(index_file, [[str(p)] for p in Path({str(folder)!r}).iterdir()])"
        )
        options: dict[str, Any] = {"cwd": ROOT, "env": variables}
        subprocess.run([*manage, "migrate", "-v0"], check=True, **options)
        subprocess.run([*manage, "shell", "-v0", "-c", put], check=True, **options)
        worker = [*manage, "runqueueworker", "--burst", "--lease", "2", "-v0", "--name"]
        workers = [subprocess.Popen([*worker, f"host-{name}"], **options) for name in "ab"]
        try:
            with RqliteQueue(cluster.urls) as queue:
                wait_for(lambda: names(queue) == {"host-a", "host-b"}, "jobs of both workers")
                workers[0].kill()
                assert workers[1].wait(WAIT) == 0
                # What the killed one ran comes back when its lease has run out.
                wait_for(lambda: queue.stats().processing == queue.stats().expired, "the leases")
                again = subprocess.run([*worker, "host-c"], timeout=WAIT, check=False, **options)
                assert again.returncode == 0
                stats = queue.stats()
                assert (stats.acked, stats.failed, stats.ready) == (FILES, 0, 0)
        finally:
            for process in workers:
                process.kill()
                process.wait()


def test_an_interrupt_ends_workers_and_nodes_and_removes_their_data(tmp_path: Path) -> None:
    state, temporary = tmp_path / "state", tmp_path / "tmp"
    temporary.mkdir()
    variables = {"RQLITED": str(find_rqlited()), "TMPDIR": str(temporary)}
    arguments = (fill(tmp_path / "files"), state, "--store", "rqlite")
    with started(*arguments, **variables) as process:
        _, _, said = until_served(process)
        killed = kill_leader(re.findall(r"http://127\.0\.0\.1:\d+", said.partition("\n")[0]))
        assert process.stderr is not None
        while f"The node {killed} has ended; 2 of 3 run." not in (
            line := process.stderr.readline()
        ):
            assert line
        assert list(temporary.glob("demo-rqlite-*"))
        process.send_signal(signal.SIGINT)
        assert process.wait(WAIT) == 0
    assert is_free(state)  # workers and nodes hold the lock while they live
    assert not list(temporary.glob("demo-rqlite-*"))
