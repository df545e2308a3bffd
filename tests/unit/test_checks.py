"""The system checks: one test an id at least, each with the hint that mends it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.apps import apps
from django.conf import global_settings
from django.core import checks as django_checks
from django.core.checks import CheckMessage
from django.core.management import call_command
from django.test import override_settings

from django_localqueue import checks, conf, folders
from django_localqueue.conf import locations
from tests.fakes.rqlite import FakeCluster
from tests.unit.calls import call_unprivileged

TASKS = {"default": {"BACKEND": "django_localqueue.tasks.LocalQueueBackend"}}
not_callable = "this is not a function"


def run(deploy: bool = False, tag: str = checks.TAG) -> dict[str, CheckMessage]:
    """Return the last message of each id, the ids without the app's name."""
    found = django_checks.run_checks(tags=[tag], include_deployment_checks=deploy)
    for message in found:
        assert message.hint, f"{message.id} has no hint"
        assert message.id is not None
    return {str(message.id).removeprefix("django_localqueue."): message for message in found}


def one_queue(location: object, **entry: Any) -> Any:
    return override_settings(LOCALQUEUE={"default": {"LOCATION": location, **entry}})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "store"


def test_good_settings_pass_and_make_no_file(folder: Path) -> None:
    with one_queue(folder, OPTIONS={"lease_seconds": 30, "max_retries": 5}):
        assert run(deploy=True) == {}
    assert not folder.exists()


def test_the_checks_run_with_the_check_command(folder: Path) -> None:
    with one_queue(folder, LOCATON=1), pytest.raises(Exception, match=r"django_localqueue\.E002"):
        call_command("check")


# ---- E001


def test_e001_the_parent_of_location_is_missing(folder: Path) -> None:
    with one_queue(folder / "deeper"):
        message = run()["E001"]
    assert message.msg == (
        f"LOCALQUEUE['default']['LOCATION'] is '{folder}/deeper', whose parent is missing."
    )
    assert message.hint == f"Make the folder {folder}, or correct LOCATION."


def test_e001_location_is_a_file(folder: Path) -> None:
    folder.write_text("")
    with one_queue(folder):
        assert "is not a folder" in run()["E001"].msg


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_e001_location_cannot_be_made_by_this_user() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as parent, one_queue(Path(parent) / "store"):
        os.chmod(parent, 0o555)
        text = call_unprivileged(lambda: run()["E001"].msg)
    assert text.endswith("which is missing and can't be made.")


@pytest.mark.parametrize(
    ("denied", "text"),
    [
        ("store", "which can't be written."),
        ("localqueue.db", "and its localqueue.db can't be written."),
    ],
)
def test_e001_a_right_is_missing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, denied: str, text: str
) -> None:
    folder.mkdir()
    (folder / "localqueue.db").write_bytes(b"")
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != denied)
    with one_queue(folder):
        assert run()["E001"].msg.endswith(text)


def test_e001_is_said_once_for_aliases_of_one_location(folder: Path) -> None:
    folder.write_text("")
    with override_settings(LOCALQUEUE={"default": {"LOCATION": folder}, "emails": {}}):
        found = django_checks.run_checks(tags=[checks.TAG])
    assert [message.id for message in found] == ["django_localqueue.E001"]


# ---- E002


@pytest.mark.parametrize(
    ("entry", "message", "hint"),
    [
        ({"Location": "x"}, "['default'] has the unknown key 'Location'.", "'LOCATION'"),
        (
            {"OPTIONS": {"max_retry": 3}},
            "['default']['OPTIONS'] has the unknown key 'max_retry'.",
            "'max_retries'",
        ),
        ({"TEST": {"LOCATON": 1}}, "['TEST'] has the unknown key 'LOCATON'.", "'LOCATION'"),
    ],
)
def test_e002_an_unknown_key_with_the_one_it_looks_like(
    folder: Path, entry: dict[str, Any], message: str, hint: str
) -> None:
    with one_queue(folder, **entry):
        found = run()["E002"]
    assert message in found.msg
    assert f"Did you mean {hint}?" in str(found.hint)


def test_e002_a_key_like_no_other_lists_them_all(folder: Path) -> None:
    with one_queue(folder, OPTIONS={"zzz": 1}):
        hint = str(run()["E002"].hint)
    assert hint.startswith("The keys are durability, lease_seconds, max_retries,")


@pytest.mark.parametrize("name", ["LOCALQUEUE_WORKER", "LOCALQUEUE_CONSOLE"])
def test_e002_an_unknown_key_of_the_other_settings(settings: Any, name: str) -> None:
    setattr(settings, name, {"NOPE": 1})
    assert run()["E002"].msg == f"{name} has the unknown key 'NOPE'."


# ---- E003


def test_e003_one_location_with_two_durabilities(folder: Path) -> None:
    with override_settings(
        LOCALQUEUE={
            "default": {"LOCATION": folder, "OPTIONS": {"durability": "full"}},
            "emails": {"OPTIONS": {"durability": "normal"}},
        }
    ):
        assert "share the LOCATION" in run()["E003"].msg


def test_e003_two_paths_to_one_folder_are_one_location(folder: Path) -> None:
    folder.mkdir()
    link = folder.with_name("link")
    link.symlink_to(folder)
    with override_settings(
        LOCALQUEUE={
            "default": {"LOCATION": folder, "OPTIONS": {"durability": "full"}},
            "emails": {"LOCATION": link, "OPTIONS": {"durability": "normal"}},
        }
    ):
        assert "E003" in run()


# ---- E004


@pytest.mark.parametrize(("lease", "found"), [(9, True), (10, True), (10.5, False)])
def test_e004_a_lease_not_longer_than_the_heartbeat(
    settings: Any, folder: Path, lease: float, found: bool
) -> None:
    settings.LOCALQUEUE_WORKER = {"HEARTBEAT_INTERVAL": 10}
    with one_queue(folder, OPTIONS={"lease_seconds": lease}):
        assert ("E004" in run()) is found


def test_e004_looks_at_the_default_lease_too(settings: Any, folder: Path) -> None:
    settings.LOCALQUEUE_WORKER = {"HEARTBEAT_INTERVAL": 60}
    with one_queue(folder):
        assert "a lease of 60 seconds" in run()["E004"].msg


def test_a_read_only_file_system_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir()
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_flag=os.ST_RDONLY))
    with one_queue(folder):
        assert "on a read-only file system" in run()["E001"].msg


def test_a_backend_of_tasks_that_is_not_there_is_named(settings: Any, folder: Path) -> None:
    settings.TASKS = {"default": {"BACKEND": "django_localqueue.LocalQueueBackend"}}
    with one_queue(folder):
        message = run()["E008"]
    assert "'django_localqueue.LocalQueueBackend', which isn't there" in message.msg
    assert TASKS["default"]["BACKEND"] in str(message.hint)


@pytest.mark.parametrize("url", ["http://127.0.0.1:4001", "redis://127.0.0.1/0"])
def test_a_url_in_place_of_a_folder_is_told_of(url: str) -> None:
    with one_queue(url):
        message = run()["E001"]
    assert "is a URL" in message.msg
    assert conf.RQLITE_BACKEND in str(message.hint)


# ---- E005


@pytest.mark.parametrize(
    ("missing", "text"),
    [
        ({"django.tasks", "django_tasks"}, "is not installed"),
        ({"django.tasks"}, "is not in INSTALLED_APPS"),
    ],
)
def test_e005_the_backport_is_missing(
    settings: Any,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    missing: set[str],
    text: str,
) -> None:
    settings.TASKS = TASKS
    monkeypatch.setattr(
        checks.tasks, "find_spec", lambda name: None if name in missing else object()
    )
    monkeypatch.setattr(apps, "is_installed", lambda name: name != "django_tasks")
    with one_queue(folder):
        assert text in run()["E005"].msg


# ---- E006


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        ({"OPTIONS": {"lease_seconds": "60"}}, "['OPTIONS']['lease_seconds']: lease_seconds must"),
        ({"OPTIONS": {"max_retries": 1.5}}, "['max_retries']: max_retries must be a whole number"),
        ({"OPTIONS": {"max_payload_bytes": -1}}, "['max_payload_bytes']: max_payload_bytes must"),
        ({"OPTIONS": {"retention_seconds": -1}}, "['retention_seconds']: retention_seconds must"),
        ({"OPTIONS": {"durability": "none"}}, "['durability']: durability must be 'full' or"),
        ({"OPTIONS": {"serializer": 3}}, "['serializer']: serializer must have"),
        ({"OPTIONS": {"rate": {}}}, "['OPTIONS']['rate']: rate must be jobs a second"),
        ({"OPTIONS": {"tls": "yes"}}, "['OPTIONS']['tls'] is 'yes'."),
        ({"OPTIONS": {"auth": 3}}, "['OPTIONS']['auth'] is 3."),
        ({"OPTIONS": {"timeouts": "3"}}, "['OPTIONS']['timeouts'] is '3'."),
        ({"OPTIONS": {"max_running": True}}, "['OPTIONS']['max_running']: max_running must be"),
        ({"NAME": "x" * 256}, "name has 256 characters"),
        ({"LOCATION": ["http://10.0.0.1:4001"]}, "path must be the path of a folder"),
    ],
)
def test_e006_a_value_of_the_wrong_type_or_range(
    folder: Path, entry: dict[str, Any], text: str
) -> None:
    with override_settings(LOCALQUEUE={"default": {"LOCATION": folder, **entry}}):
        assert text in run()["E006"].msg


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("LOCALQUEUE_WORKER", [], "LOCALQUEUE_WORKER is []."),
        ("LOCALQUEUE_WORKER", {"THREADS": "4"}, "LOCALQUEUE_WORKER['THREADS'] is '4'."),
        ("LOCALQUEUE_WORKER", {"QUEUES": "emails"}, "LOCALQUEUE_WORKER['QUEUES'] is 'emails'."),
        ("LOCALQUEUE_WORKER", {"THREADS": 0}, "['THREADS'] is 0: it must be from 1 to 1000"),
        ("LOCALQUEUE_WORKER", {"HEARTBEAT_INTERVAL": 0}, "['HEARTBEAT_INTERVAL'] is 0: it must be"),
        ("LOCALQUEUE_WORKER", {"HEARTBEAT_INTERVAL": float("inf")}, "it must be a finite number"),
        ("LOCALQUEUE_CONSOLE", {"AUTO_REGISTER": 1}, "['AUTO_REGISTER'] is 1."),
    ],
)
def test_e006_the_other_settings(settings: Any, name: str, value: Any, text: str) -> None:
    setattr(settings, name, value)
    assert text in run()["E006"].msg


def test_every_wrong_location_is_told_of_and_the_options_beside_it() -> None:
    rqlite = {"BACKEND": conf.RQLITE_BACKEND, "LOCATION": ["ftp://a:1", "http://b:4001", "c"]}
    entry = {"LOCATION": 7, "OPTIONS": {"max_retries": -1}}
    with override_settings(LOCALQUEUE={"default": entry, "second": entry, "cluster": rqlite}):
        found = [one.msg for one in django_checks.run_checks(tags=[checks.TAG])]
    assert len([text for text in found if "and it is 7" in text]) == 2
    assert len([text for text in found if "max_retries must" in text]) == 2
    (nodes,) = [text for text in found if "rqlite nodes" in text]
    assert "URL 1 " in nodes
    assert "URL 2 " not in nodes
    assert "URL 3 " in nodes


# ---- E007


@pytest.mark.parametrize("name", ["{}", "file:{}?mode=rwc", "file://{}"])
def test_e007_the_file_is_a_database_of_django(
    settings: Any, folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    path = name.format(folder / "localqueue.db")
    archive = {"ENGINE": "django.db.backends.sqlite3", "NAME": path}
    monkeypatch.setitem(settings.DATABASES, "archive", archive)
    folder.mkdir()
    with one_queue(folder):
        assert "is also the database 'archive' of DATABASES" in run()["E007"].msg


# ---- E008


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        ({"BACKEND": "nowhere.Queue"}, "['BACKEND'] is 'nowhere.Queue'"),
        ({"BACKEND": "json.loads"}, "is 'json.loads', which is not a queue class"),
        ({"HANDLER": "nowhere.handle"}, "['HANDLER'] is 'nowhere.handle', which can't be imported"),
        ({"HANDLER": f"{__name__}.not_callable"}, "which can't be called"),
        ({"OPTIONS": {"serializer": "nowhere.S"}}, "['serializer'] is 'nowhere.S'"),
    ],
)
def test_e008_a_dotted_path_leads_nowhere(folder: Path, entry: dict[str, Any], text: str) -> None:
    with one_queue(folder, **entry):
        assert text in run()["E008"].msg


# ---- E010


def test_e010_the_worker_is_to_serve_a_queue_that_is_not_there(settings: Any, folder: Path) -> None:
    settings.LOCALQUEUE_WORKER = {"QUEUES": ["*", "default", "defualt"]}
    with one_queue(folder):
        message = run()["E010"]
    assert "['QUEUES'] names 'defualt'" in message.msg
    assert "Did you mean 'default'?" in str(message.hint)


# ---- E011


def test_e011_a_schedule_with_a_wrong_expression(settings: Any, folder: Path) -> None:
    settings.LOCALQUEUE_SCHEDULES = {
        "nightly": {"TASK": "tests.unit.task_samples.add", "CRON": "0 99 * * *"}
    }
    with one_queue(folder):
        message = run()["E011"]
    assert "LOCALQUEUE_SCHEDULES['nightly']" in message.msg
    assert "0 99 * * *" in message.msg


# ---- warnings


MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
36 22 0:40 / {}/my\\040files rw,relatime - nfs4 server:/files rw
"""


@pytest.mark.parametrize(("name", "network"), [("my files", True), ("other", False)])
def test_w001_location_is_on_a_network_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, network: bool
) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS.format(tmp_path))
    (tmp_path / name).mkdir()
    monkeypatch.setattr(folders, "MOUNTS", str(mounts))
    with one_queue(tmp_path / name / "store"):
        found = run()
    assert ("W001" in found) is network
    if network:
        assert "network file system (nfs4)" in found["W001"].msg


def test_w001_a_system_without_mountinfo_is_no_fault(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "MOUNTS", str(folder / "missing"))
    with one_queue(folder):
        assert run() == {}


@pytest.mark.parametrize("name", ["MEDIA_ROOT", "STATIC_ROOT"])
def test_w002_location_is_inside_a_folder_that_is_served(
    settings: Any, tmp_path: Path, name: str
) -> None:
    setattr(settings, name, str(tmp_path))
    with one_queue(tmp_path / "store"):
        assert f"inside {name}" in run()["W002"].msg


def test_w002_a_folder_beside_it_with_a_longer_name_is_not_inside(
    settings: Any, tmp_path: Path
) -> None:
    settings.MEDIA_ROOT = str(tmp_path / "media")
    with one_queue(tmp_path / "media-queue"):
        assert run() == {}


@pytest.mark.parametrize(("entry", "found"), [({"QUEUES": []}, True), ({}, False)])
def test_w003_queues_of_tasks_is_empty(
    settings: Any, folder: Path, entry: dict[str, Any], found: bool
) -> None:
    settings.TASKS = {"default": {**TASKS["default"], **entry}}
    with one_queue(folder):
        assert ("W003" in run()) is found


@pytest.mark.parametrize("atomic", [True, False])
def test_w004_atomic_requests_and_enqueueing_at_once(
    settings: Any, folder: Path, monkeypatch: pytest.MonkeyPatch, atomic: bool
) -> None:
    monkeypatch.setitem(settings.DATABASES["default"], "ATOMIC_REQUESTS", atomic)
    settings.TASKS = TASKS
    with one_queue(folder):
        assert ("W004" in run()) is atomic


@pytest.mark.parametrize(
    "options", [{"enqueue_on_commit": True}, {"enqueue_on_commit": False}, {"outbox": True}]
)
def test_w004_is_silent_where_a_way_was_chosen(
    settings: Any, folder: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, bool]
) -> None:
    monkeypatch.setitem(settings.DATABASES["default"], "ATOMIC_REQUESTS", True)
    settings.TASKS = {"default": {**TASKS["default"], "OPTIONS": options}}
    with one_queue(folder):
        assert "W004" not in run()


@pytest.mark.parametrize(
    ("console", "found"),
    [({}, True), ({"AUTO_REGISTER": True}, True), ({"AUTO_REGISTER": False}, False)],
)
def test_w005_the_console_is_on_without_the_admin(
    settings: Any,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    console: dict[str, Any],
    found: bool,
) -> None:
    settings.LOCALQUEUE_CONSOLE = console
    monkeypatch.setattr(apps, "is_installed", lambda name: name != "django.contrib.admin")
    with one_queue(folder):
        assert ("W005" in run()) is found


@pytest.mark.parametrize(("debug", "found"), [(False, True), (True, False)])
def test_w006_durability_below_full_in_production(
    settings: Any, folder: Path, debug: bool, found: bool
) -> None:
    settings.DEBUG = debug
    with one_queue(folder, OPTIONS={"durability": "normal"}):
        assert ("W006" in run()) is found


def test_w007_tasks_is_the_default_of_django(settings: Any, folder: Path) -> None:
    settings.TASKS = getattr(global_settings, "TASKS", None)
    with one_queue(folder):
        assert "the worker has nothing to do" in run()["W007"].msg


def test_w008_nobody_chose_the_location(settings: Any, tmp_path: Path) -> None:
    settings.BASE_DIR = tmp_path
    with override_settings(LOCALQUEUE={"default": {}}):
        assert str(tmp_path / "localqueue") in run(deploy=True)["W008"].msg
        assert "W008" not in run()


@pytest.mark.parametrize(
    ("key", "value"), [("auth", "user:hidden"), ("tls", {"ca": "ca.pem"}), ("timeouts", 3)]
)
def test_w009_an_option_of_another_backend(folder: Path, key: str, value: Any) -> None:
    with one_queue(folder, OPTIONS={key: value}):
        message = run()["W009"]
    assert message.msg == (
        f"LOCALQUEUE['default']['OPTIONS']['{key}'] has no effect on SQLiteQueue."
    )
    assert "hidden" not in str(message)


@pytest.mark.parametrize("option", [{"auth": "app:hidden"}, {"timeouts": 3}, {"tls": {"ca": "x"}}])
def test_e003_two_aliases_of_one_cluster_ask_for_different_options(option: dict[str, Any]) -> None:
    (key,) = option
    other = {"auth": "app:secret", "timeouts": 4, "tls": {"ca": "y"}}[key]
    aliases = {
        "default": {
            "BACKEND": conf.RQLITE_BACKEND,
            "LOCATION": ["http://app:hidden@10.0.0.1:4001", "http://app:hidden@10.0.0.2:4001"],
            "OPTIONS": option,
        },
        "emails": {  # the same nodes in another order, the login left to the options
            "LOCATION": ["http://10.0.0.2:4001", "http://10.0.0.1:4001"],
            "OPTIONS": {key: other},
        },
    }
    with override_settings(LOCALQUEUE=aliases):
        found = run()
    assert found["E003"].msg == (
        f"LOCALQUEUE['emails'] and LOCALQUEUE['default'] share the LOCATION and ask for"
        f" different {key}."
    )
    assert not any(word in str(found) for word in ("hidden", "secret"))


def test_w010_a_queue_in_memory_outside_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    with one_queue(":memory:"):
        assert run() == {}
        monkeypatch.setattr(locations, "in_test_run", lambda: False)
        assert "in memory" in run()["W010"].msg


def test_w011_a_node_of_rqlite_does_not_answer() -> None:
    pytest.importorskip("requests")
    with FakeCluster(nodes=2) as cluster:
        cluster.stop(1)
        urls = [url.replace("://", "://user:hidden@") for url in cluster.urls]
        with one_queue(urls, BACKEND=conf.RQLITE_BACKEND):
            message = run(deploy=True)["W011"]
            assert "W011" not in run()
    assert cluster.urls[1] in str(message)
    assert cluster.urls[0] not in str(message)
    assert "hidden" not in str(message)


# ---- all of them


def test_the_checks_that_look_at_files_have_a_tag_of_their_own(folder: Path) -> None:
    folder.write_text("")
    with one_queue(folder, OPTIONS={"nope": 1}):
        assert set(run(tag=checks.FILES_TAG)) == {"E001"}


def test_a_process_that_starts_loads_neither_the_worker_nor_rqlite_for_them() -> None:
    code = (
        "import sys, django; from django.conf import settings;"
        "settings.configure(INSTALLED_APPS=['django_localqueue']); django.setup();"
        "print(*(n for n in sys.modules if n.startswith('django_localqueue.')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    loaded = done.stdout.split()
    assert "django_localqueue.checks" in loaded
    assert not [name for name in loaded if re.search(r"\.(worker|rqlite|transports)\b", name)]


def test_w012_a_relative_location(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with one_queue("queue"):
        message = run()["W012"]
    assert "two queues" in message.msg
    assert "BASE_DIR / 'queue'" in str(message.hint)
    with one_queue(tmp_path / "queue"):
        assert "W012" not in run()


def test_the_backend_of_tasks_is_asked_in_a_process_that_imports_no_task(tmp_path: Path) -> None:
    backport = [] if find_spec("django.tasks") else ["django_tasks"]
    tasks = {"default": {**TASKS["default"], "OPTIONS": {"outbox": True, "outbx": 1}}}
    code = f"""
import django
from django.conf import settings
from django.core.management import call_command

settings.configure(
    INSTALLED_APPS=["django_localqueue", *{backport}],
    LOCALQUEUE={{"default": {{"LOCATION": {str(tmp_path / "queue")!r}}}}},
    LOCALQUEUE_CONSOLE={{"AUTO_REGISTER": False}},
    TASKS={tasks!r},
)
django.setup()
call_command("check")
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert "E020" in done.stderr
    assert "E021" in done.stderr


def test_a_check_can_be_silenced(settings: Any, folder: Path) -> None:
    settings.SILENCED_SYSTEM_CHECKS = ["django_localqueue.W006"]
    with one_queue(folder, OPTIONS={"durability": "normal"}):
        call_command("check", tags=[checks.TAG], fail_level="WARNING")


def test_every_id_of_checks_and_settings_is_tested_here() -> None:
    packages = [Path(package.__file__).parent for package in (checks, conf)]
    text = "".join(path.read_text() for folder in packages for path in folder.glob("*.py"))
    ids = set(re.findall(r'"(?:django_localqueue\.)?([EW]\d{3})"', text))
    tested = set(re.findall(r"def test_([ew]\d{3})_", Path(__file__).read_text()))
    assert {name.lower() for name in ids} == tested
