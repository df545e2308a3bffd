"""What the page about deploying shows is tried, as far as a machine without a cluster allows."""

from __future__ import annotations

import configparser
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from django_localqueue.worker.health import SILENT
from django_localqueue.worker.options import OPTIONS
from tests.fakes.server import free_port
from tests.integration.worker_site import PACKAGE, PATIENCE, Site

PAGE = Path(__file__).resolve().parents[2] / "docs" / "deploy.md"
SHUTDOWN = next(option.default for option in OPTIONS if option.name == "shutdown_timeout")


def section(heading: str) -> str:
    """The text below a heading of the page."""
    return PAGE.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]


def block(heading: str, kind: str) -> str:
    return section(heading).split(f"```{kind}\n")[1].split("```")[0]


def arguments(command: list[str]) -> list[str]:
    """What is behind ``manage.py runqueueworker``."""
    assert command[1:3] == ["manage.py", "runqueueworker"], command
    return command[3:]


def ini(heading: str) -> configparser.RawConfigParser:
    parsed = configparser.RawConfigParser()
    parsed.optionxform = str  # type: ignore[assignment, method-assign]
    parsed.read_string(block(heading, "ini"))
    return parsed


def run(code: list[str]) -> int:
    return subprocess.run(code, capture_output=True, timeout=PATIENCE, check=False).returncode


def test_the_unit_starts_a_worker_and_waits_longer_for_it_than_it_takes(site: Site) -> None:
    service = ini("systemd")["Service"]
    command = shlex.split(service["ExecStart"])
    worker = site.start(*arguments(command))
    worker.wait_for_log("serves default, emails")
    worker.send(signal.Signals[service["KillSignal"]])
    assert worker.wait() == 0
    assert int(service["TimeoutStopSec"]) > SHUTDOWN
    assert (service["Type"], int(service["WatchdogSec"]) > SILENT) == ("notify", True)
    assert int(service["RestartPreventExitStatus"]) == site.start("--queue", "nowhere").wait()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze")
def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    text = block("systemd", "ini")
    command = shlex.split(ini("systemd")["Service"]["ExecStart"])
    path = tmp_path / "shop-worker.service"
    path.write_text(text.replace(command[0], sys.executable).replace("User=shop", "User=root"))
    done = subprocess.run(
        ["systemd-analyze", "verify", str(path)], capture_output=True, text=True, timeout=PATIENCE
    )
    own = [line for line in done.stderr.splitlines() if path.name in line]
    assert (done.returncode, own) == (0, [])


def test_supervisord_is_told_the_same(site: Site) -> None:
    program = ini("supervisord")["program:shop-worker"]
    worker = site.start(*arguments(shlex.split(program["command"])))
    worker.wait_for_log("serves default, emails")
    worker.send(signal.Signals[f"SIG{program['stopsignal']}"])
    assert worker.wait() == 0
    # Every other end is one to start it again after; this one a restart doesn't mend.
    assert int(program["exitcodes"]) == site.start("--queue", "nowhere").wait()
    assert int(program["stopwaitsecs"]) > SHUTDOWN


def test_the_container_is_healthy_as_long_as_its_worker_lives(site: Site) -> None:
    text = block("Docker", "yaml")
    (command,) = [json.loads(found) for found in re.findall(r"command: (\[.*manage.py.*\])", text)]
    (probe,) = [json.loads(found) for found in re.findall(r"test: (\[.*\])", text)]
    (grace,) = re.findall(r"stop_grace_period: (\d+)s", text)
    assert int(grace) > SHUTDOWN
    shown = arguments(command)[-1]
    alive = site.folder / "alive"
    check = ["sh", "-c", probe[1].replace(shown, str(alive))]
    assert (probe[0], shown in probe[1], run(check)) == ("CMD-SHELL", True, 1)
    worker = site.start(*arguments(command)[:-1], str(alive))
    site.wait_until(alive.exists, "the file")
    assert run(check) == 0
    os.utime(alive, (0, 0))
    assert (run(check) == 1) or alive.stat().st_mtime > 1  # touched at that very moment
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0


def test_the_pod_is_alive_and_ready_as_long_as_its_worker_is(site: Site) -> None:
    text = block("Kubernetes", "yaml")
    (command,) = [json.loads(found) for found in re.findall(r"command: (\[.*\])", text)]
    (grace,) = re.findall(r"terminationGracePeriodSeconds: (\d+)", text)
    assert int(grace) > SHUTDOWN
    port = str(free_port())
    shown = arguments(command)[-1]
    probes = [
        [sys.executable, "-c", json.loads(code).replace(shown, port)]
        for code in re.findall(r'- ("import urllib.*")', text)
    ]
    assert len(probes) == 2
    assert [run(probe) for probe in probes] == [1, 1]
    worker = site.start(*arguments(command)[:-1], port)
    worker.wait_for_log("serves default, emails")
    site.wait_until(lambda: [run(probe) for probe in probes] == [0, 0], "alive and ready")
    site.put("wait_for_gate", "a")
    site.wait_until(lambda: site.ledger("begun"), "the job")
    worker.send(signal.SIGTERM)
    site.wait_until(lambda: [run(probe) for probe in probes] == [0, 1], "alive, and not ready")
    site.open_gate()
    assert worker.wait() == 0


def test_the_line_of_the_procfile_starts_a_worker(site: Site) -> None:
    lines = dict(line.split(": ", 1) for line in block("Procfile", "").splitlines())
    (site.folder / "manage.py").write_text(
        "import sys\n"
        "from django.core.management import execute_from_command_line\n"
        "execute_from_command_line(sys.argv)\n"
    )
    log = site.folder / "procfile.log"
    # As runners of such files do: a shell, in a session of its own, which gets the signal too.
    with log.open("wb") as out:
        shell = subprocess.Popen(
            ["sh", "-c", lines["worker"].replace("python ", f"{sys.executable} ")],
            cwd=site.folder,
            env={
                **os.environ,
                "DJANGO_SETTINGS_MODULE": "shop.settings",
                "PYTHONPATH": os.pathsep.join([str(site.folder), str(PACKAGE)]),
            },
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        id = site.put("work", 1)
        site.wait_until(lambda: site.queue.lookup(id).state == "acked", "the job")
        os.killpg(shell.pid, signal.SIGTERM)
        shell.wait(PATIENCE)
        site.wait_until(lambda: "1 done, 0 failed" in log.read_text(), "its end")
    finally:
        if shell.poll() is None:
            os.killpg(shell.pid, signal.SIGKILL)
            shell.wait(PATIENCE)


def test_commands_of_the_page_run(site: Site) -> None:
    """Those that watch; the rest of the page's commands are Django's own."""
    site.start("--name", "w")
    site.wait_until(site.queue.workers, "the report")
    lines = re.findall(r"^\$ python manage.py localqueue (.*)$", section("Watching"), re.M)
    assert len(lines) == 3
    for line in lines:
        done = subprocess.run(
            [sys.executable, "-m", "django", "localqueue", *shlex.split(line), "--json"],
            cwd=site.folder,
            env={
                **os.environ,
                "DJANGO_SETTINGS_MODULE": "shop.settings",
                "PYTHONPATH": os.pathsep.join([str(site.folder), str(PACKAGE)]),
            },
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)
