"""What a run needs beside this interpreter: the peers, and the bare loop."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PEERS = Path(__file__).with_name("peers.txt")
ADMIN_PEERS = Path(__file__).with_name("admin_peers.txt")
TASK_PEERS = Path(__file__).with_name("task_peers.txt")


def peers_python(wanted: Path = PEERS) -> str:
    """Return the interpreter of an environment with these peers, made where out of date."""
    scripts = "Scripts" if sysconfig.get_platform().startswith("win") else "bin"
    folder = ROOT / "target" / f"benchmark-{wanted.stem.replace('_', '-')}"  # ignored by git
    python = folder / scripts / "python"
    installed = folder / "installed.txt"
    if not installed.exists() or installed.read_text() != wanted.read_text():
        print("Installing the peers ...", file=sys.stderr)
        venv.create(folder, clear=True, with_pip=True)
        subprocess.run(
            [
                str(python),
                "-m",
                "pip",
                "install",
                "-q",
                "--disable-pip-version-check",
                "-r",
                str(wanted),
            ],
            check=True,
        )
        installed.write_text(wanted.read_text())
    return str(python)


def bare_program() -> str:
    """Return the path of the bare loop's program, built where needed."""
    print("Building the bare loop ...", file=sys.stderr)
    built = subprocess.run(
        [
            "cargo",
            "build",
            "--release",
            "--locked",
            "--quiet",
            "-p",
            "native_engine",
            "--bench",
            "bare",
            "--message-format",
            "json",
        ],
        cwd=ROOT,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    for line in built.stdout.splitlines():
        message = json.loads(line)
        if message.get("executable") and message["target"]["name"] == "bare":
            return str(message["executable"])
    raise SystemExit("cargo built the bare loop and did not say where it is.")


def machine() -> dict[str, Any]:
    """Describe this machine without naming it."""
    from django_localqueue import _native

    return {
        "cores": os.cpu_count(),
        "processor": _processor(),
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "python": platform.python_version(),
        "sqlite": _native.SQLITE_VERSION,
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def versions() -> dict[str, str]:
    """Return the version of each peer."""
    return dict(line.split("==") for line in PEERS.read_text().split())
