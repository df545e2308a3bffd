"""The engine with failpoints: built beside the normal module, and used in its place."""

from __future__ import annotations

import fcntl
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import django_localqueue

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "native_engine"
MODULE = ROOT / "target" / "failpoints" / "_native.abi3.so"
#: Names a module that was built elsewhere.
VARIABLE = "LOCALQUEUE_FAILPOINT_MODULE"


class CannotBuild(Exception):
    """The engine can't be built here; the message says why."""


def failpoints() -> list[str]:
    """Return the name of every failpoint in the engine's sources."""
    found: set[str] = set()
    for path in sorted((SOURCES / "src").rglob("*.rs")):
        found |= set(re.findall(r'failpoint!\("([^"]+)"\)', path.read_text()))
    return sorted(found)


def build() -> Path:
    """Return the module, built first where it is missing or older than its sources."""
    if VARIABLE in os.environ:
        return Path(os.environ[VARIABLE])
    MODULE.parent.mkdir(parents=True, exist_ok=True)
    with (MODULE.parent / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        if not MODULE.exists() or MODULE.stat().st_mtime < _newest():
            _build()
    return MODULE


def _newest() -> float:
    files = [*SOURCES.rglob("*.rs"), *SOURCES.rglob("*.toml"), ROOT / "Cargo.toml"]
    return max(path.stat().st_mtime for path in files)


def _build() -> None:
    cargo = shutil.which("cargo", path=f"{os.environ['PATH']}{os.pathsep}{Path.home()}/.cargo/bin")
    if cargo is None:
        raise CannotBuild(f"cargo was not found; {VARIABLE} may name a module built elsewhere")
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    features = ["--features", "python,failpoints"]
    command = [cargo, "build", "--release", "--locked", "--quiet", "-p", "native_engine", "--lib"]
    environment = {
        **{"PYO3_PYTHON": sys.executable, **os.environ},
        "PYO3_BUILD_EXTENSION_MODULE": "1",  # not linked to one interpreter's library
        "CARGO_TARGET_DIR": str(target),
    }
    done = subprocess.run(
        [*command, *features], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    if done.returncode:
        raise CannotBuild(done.stderr)
    built = target / "release" / "libnative_engine.so"
    copy = MODULE.with_suffix(".new")
    shutil.copyfile(built, copy)
    copy.replace(MODULE)


def use(module: Path) -> None:
    """Let this process use ``module`` as the engine; call it before the engine is imported."""
    name = "django_localqueue._native"
    if name in sys.modules:
        raise RuntimeError("The engine is imported already.")
    spec = importlib.util.spec_from_file_location(name, module)
    assert spec is not None
    assert spec.loader is not None
    native = importlib.util.module_from_spec(spec)
    sys.modules[name] = native
    spec.loader.exec_module(native)
    django_localqueue._native = native  # type: ignore[attr-defined]
