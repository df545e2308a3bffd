"""What ``make test-full`` runs, after ``make build``.

1. The wheel is built once and the sdist is built into a wheel again.
2. The wheel is installed without Rust on PATH and tried from another directory.
3. The test-suite runs over that wheel on each Django and Python that go together, on
   the interpreters found on PATH and under pyenv. What is left out is named.

The last line counts all of it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

from requirements import requirements

ROOT = Path(__file__).resolve().parents[2]
WORK = ROOT / ".tox"
TREE = WORK / "tree"
VERSIONS = ((3, 11), (3, 12), (3, 13), (3, 14))
DJANGO = {"5.2": (3, 11), "6.0": (3, 12), "6.1": (3, 12)}  # and the oldest Python of each
BACKPORT = "django-tasks"  # for Django 5.2 alone
# Of the extra "dev", what the suite doesn't need over the wheel.
NOT_FOR_TESTS = (BACKPORT, "django-stubs", "import-linter", "maturin", "mypy", "playwright", "ruff")
# What meets Django: the console, the tasks, the worker. It runs on each of its versions; the rest,
# and most of what starts processes, on the oldest by ``make test`` and on the newest here.
OF_DJANGO = (
    *("tests/unit", "tests/outside", "tests/integration/test_demo.py"),
    *("tests/integration/test_localqueue_process.py", "tests/integration/test_worker_seed.py"),
    *("tests/integration/test_worker_processes.py", "tests/integration/test_worker_stores.py"),
)
NOT_OF_DJANGO = ("tests/unit/test_transport", "tests/unit/test_rqlite_queue")
NEVER_COPIED = shutil.ignore_patterns(
    ".*", "django_localqueue", "target", "dist", "__pycache__", "output", "localqueue"
)


class StepError(Exception):
    """A step of this script failed; the message says which."""


class Score:
    """How many tests and steps passed and failed."""

    def __init__(self) -> None:
        self.passed = 0
        self.failed = 0

    def add(self, passed: int, failed: int) -> None:
        self.passed += passed
        self.failed += failed

    def step(self, title: str, action: Callable[..., None], *args: object) -> bool:
        """Run one step, which counts as one test."""
        heading(title)
        try:
            action(*args)
        except (StepError, subprocess.CalledProcessError) as error:
            print(f"FAILED: {error}", flush=True)
            self.add(0, 1)
            return False
        self.add(1, 0)
        return True


def main() -> int:
    score = Score()
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir()
    if score.step("The wheel", build_wheel):
        score.step("The sdist, built into a wheel again", build_sdist)
        score.step("The wheel without Rust", try_wheel)
        shutil.copytree(ROOT, TREE, ignore=NEVER_COPIED)
        run_matrix(score)
    print(f"{score.passed} passed, {score.failed} failed", flush=True)
    return 1 if score.failed else 0


# ---- wheel and sdist


def wheel() -> Path:
    return next((WORK / "wheel").glob("*.whl"))


def build_wheel() -> None:
    run(tool("maturin"), "build", "--release", "--quiet", "--out", WORK / "wheel")
    names = contents(wheel())
    if "abi3" not in wheel().name:
        raise StepError(f"{wheel().name} is not one wheel for all Python versions (abi3)")
    for part in ("django_localqueue/py.typed", "django_localqueue/_native.pyi"):
        if part not in names:
            raise StepError(f"{part} is missing in the wheel")
    strays = [
        name for name in names if not re.match(r"django_localqueue(-[^/]*\.dist-info)?/", name)
    ]
    if strays:
        raise StepError(f"the wheel holds more than the package: {strays[:5]}")


def build_sdist() -> None:
    run(tool("maturin"), "sdist", "--out", WORK / "sdist")
    sdist = next((WORK / "sdist").glob("*.tar.gz"))
    # With the same target folder, what is not of this project needn't be compiled again.
    run(
        *(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"),
        *("--wheel-dir", WORK / "from-sdist", sdist),
        path=[Path(sys.executable).parent],
    )
    again = next((WORK / "from-sdist").glob("*.whl"))
    missing = contents(wheel()) ^ contents(again)
    if missing:
        raise StepError(f"the wheel of the sdist differs: {sorted(missing)[:5]}")


def contents(path: Path) -> set[str]:
    with zipfile.ZipFile(path) as archive:
        return set(archive.namelist())


def try_wheel() -> None:
    home = WORK / "without-rust"
    run(sys.executable, "-m", "venv", home)
    python = home / "bin" / "python"
    elsewhere = WORK / "elsewhere"
    elsewhere.mkdir()
    script = shutil.copy(Path(__file__).with_name("smoke.py"), elsewhere)
    path = str(home / "bin")
    if shutil.which("cargo", path=path) or shutil.which("rustc", path=path):
        raise StepError("Rust is in the environment that is to be without it")
    environment = {"PATH": path, "HOME": str(elsewhere)}
    install = ["-m", "pip", "install", "--quiet", "--only-binary", ":all:"]
    subprocess.run([python, *install, wheel()], check=True, env={**os.environ, **environment})
    subprocess.run([python, script], check=True, cwd=elsewhere, env=environment)


# ---- the matrix


def run_matrix(score: Score) -> None:
    found = dict(interpreters())
    for version in VERSIONS:
        name = ".".join(map(str, version))
        wanted = [django for django, oldest in DJANGO.items() if version >= oldest]
        if version not in found:
            heading(f"Left out: Python {name}, no such interpreter was found")
            continue
        for django, oldest in DJANGO.items():
            if version < oldest:
                heading(f"Left out: Django {django} on Python {name}, which it does not support")
        home = WORK / f"py{name}"
        if not score.step(f"Python {name}: {found[version]}", prepare, found[version], home):
            continue
        for django in wanted:
            if score.step(f"Django {django} on Python {name}", install_django, home, django):
                newest = version == max(found) and django == wanted[-1]
                score.add(*run_suite(home, newest))


def interpreters() -> Iterator[tuple[tuple[int, int], Path]]:
    """Yield the first interpreter that runs of each version."""
    for version in VERSIONS:
        name = "python" + ".".join(map(str, version))
        folders = os.environ.get("PATH", "").split(os.pathsep)
        candidates = [Path(folder) / name for folder in folders]
        pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
        candidates += sorted(pyenv.glob(f"{version[0]}.{version[1]}.*/bin/{name}"))
        for candidate in candidates:
            if candidate.is_file() and runs(candidate, version):
                yield version, candidate
                break


def runs(python: Path, version: tuple[int, int]) -> bool:
    """Whether it starts (a pyenv shim may not), is of this version and can make environments."""
    code = f"import sys, venv, ensurepip; sys.exit(sys.version_info[:2] != {version})"
    return subprocess.run([python, "-c", code], capture_output=True).returncode == 0


def prepare(python: Path, home: Path) -> None:
    run(python, "-m", "venv", home)
    tools = [line for line in requirements("dev") if not line.startswith(NOT_FOR_TESTS)]
    run(home / "bin" / "python", "-m", "pip", "install", "--quiet", wheel(), *tools)


def install_django(home: Path, django: str) -> None:
    python = home / "bin" / "python"
    packages = [f"Django~={django}.0"]
    if django == "5.2":
        packages += [line for line in requirements("tasks") if line.startswith(BACKPORT)]
    else:
        run(python, "-m", "pip", "uninstall", "-qq", "--yes", BACKPORT)
    run(python, "-m", "pip", "install", "--quiet", *packages)


def run_suite(home: Path, whole: bool) -> tuple[int, int]:
    """Run the suite over the installed wheel; return how many tests passed and failed."""
    command = [
        *(str(home / "bin" / "python"), "-m", "pytest", "--quiet", "--numprocesses", "2"),
    ]
    if whole:
        command += ["-m", "not browser", "--ignore", "tests/browser"]
    else:
        command += ["-m", "not browser and not slow", *OF_DJANGO]
        command += [part for path in NOT_OF_DJANGO for part in ("--ignore", path)]
    process = subprocess.Popen(command, cwd=TREE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    last = ""
    for line in process.stdout:
        print(line, end="", flush=True)
        last = line if re.search(r"\d+ (passed|failed|error)", line) else last
    counts = {word: int(number) for number, word in re.findall(r"(\d+) ([a-z]+)", last)}
    failed = counts.get("failed", 0) + counts.get("error", 0) + counts.get("errors", 0)
    if process.wait() and not failed:
        failed = 1
    return counts.get("passed", 0), failed


# ---- tools


def tool(name: str) -> Path:
    return Path(sys.executable).parent / name


def run(*command: object, path: list[Path] | None = None) -> None:
    environment = {"CARGO_TARGET_DIR": str(ROOT / "target"), **os.environ}
    if path:
        environment["PATH"] = os.pathsep.join([*map(str, path), environment["PATH"]])
    subprocess.run([str(part) for part in command], check=True, cwd=ROOT, env=environment)


def heading(text: str) -> None:
    print(f"\n== {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
