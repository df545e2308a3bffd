"""What LOCALQUEUE, LOCALQUEUE_WORKER and LOCALQUEUE_CONSOLE mean; every key has its test."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

from django_localqueue import Job, PayloadTooLarge, SQLiteQueue, conf, queues
from django_localqueue.conf import locations


class LoudQueue(SQLiteQueue):
    """A backend of the project's own."""


class Shouting:
    """A serializer of the project's own."""

    def dumps(self, data: Any) -> bytes:
        return json.dumps(data).upper().encode()

    def loads(self, payload: bytes) -> Any:
        return json.loads(payload)


shouting = Shouting()


def handle(job: Job) -> None:
    """A HANDLER."""


def one_queue(folder: Path, **entry: Any) -> Any:
    return override_settings(LOCALQUEUE={"default": {"LOCATION": folder / "store", **entry}})


# ---- LOCALQUEUE


def test_unset_localqueue_is_one_default_queue_in_base_dir(settings: Any, tmp_path: Path) -> None:
    settings.BASE_DIR = tmp_path
    settings.LOCALQUEUE = None
    assert list(queues) == ["default"]
    queue = queues["default"]
    assert isinstance(queue, SQLiteQueue)
    assert queue.name == "default"
    assert queue.durability == "full"
    queue.put({})
    assert (tmp_path / "localqueue" / "localqueue.db").is_file()


def test_without_base_dir_a_queue_without_location_names_what_to_set(settings: Any) -> None:
    del settings.BASE_DIR
    settings.LOCALQUEUE = {"default": {}}
    with pytest.raises(ImproperlyConfigured, match=r"\['default'\] has no LOCATION.*Set LOCATION"):
        queues["default"]


def test_backend_is_the_class_of_the_queue(tmp_path: Path) -> None:
    with one_queue(tmp_path, BACKEND=f"{__name__}.LoudQueue"):
        assert type(queues["default"]).__name__ == "LoudQueue"


def test_backend_left_out_is_that_of_default(tmp_path: Path) -> None:
    with override_settings(
        LOCALQUEUE={
            "emails": {},
            "default": {"BACKEND": f"{__name__}.LoudQueue", "LOCATION": tmp_path / "store"},
        }
    ):
        assert type(queues["emails"]).__name__ == "LoudQueue"


@pytest.mark.parametrize("backend", ["nowhere.Queue", "json.JSONDecoder", "json.loads"])
def test_a_backend_that_is_no_queue_class_is_refused_by_name(tmp_path: Path, backend: str) -> None:
    with (
        one_queue(tmp_path, BACKEND=backend),
        pytest.raises(ImproperlyConfigured, match=rf"\['BACKEND'\] is '{backend}'"),
    ):
        queues["default"]


@pytest.mark.parametrize("kind", [str, Path])
def test_location_is_the_folder_of_the_store(tmp_path: Path, kind: Any) -> None:
    with override_settings(LOCALQUEUE={"default": {"LOCATION": kind(tmp_path / "here")}}):
        queues["default"].put({})
    assert (tmp_path / "here" / "localqueue.db").is_file()


def test_location_left_out_is_that_of_default_and_one_store(tmp_path: Path) -> None:
    with override_settings(
        LOCALQUEUE={"default": {"LOCATION": tmp_path / "store"}, "emails": {}},
    ):
        assert queues["emails"].store_key == queues["default"].store_key
        queues["emails"].put({})
        assert queues["emails"].stats().ready == 1
        assert queues["default"].stats().ready == 0


def test_location_in_memory_is_one_store_for_all_aliases() -> None:
    with override_settings(
        LOCALQUEUE={"default": {"LOCATION": ":memory:"}, "emails": {"LOCATION": ":memory:"}},
    ):
        assert queues["emails"].store_key == queues["default"].store_key


def test_another_location_is_another_store(tmp_path: Path) -> None:
    with override_settings(
        LOCALQUEUE={
            "default": {"LOCATION": tmp_path / "one"},
            "emails": {"LOCATION": tmp_path / "two"},
        }
    ):
        assert queues["emails"].store_key != queues["default"].store_key


def test_name_is_the_alias_unless_given(tmp_path: Path) -> None:
    with override_settings(
        LOCALQUEUE={
            "default": {"LOCATION": tmp_path / "store", "NAME": "first"},
            "emails": {},
        }
    ):
        assert queues["default"].name == "first"
        assert queues["emails"].name == "emails"


def test_handler_is_kept_for_the_worker(tmp_path: Path) -> None:
    with one_queue(tmp_path, HANDLER=f"{__name__}.handle"):
        assert queues.settings("default").handler == f"{__name__}.handle"
    with one_queue(tmp_path):
        assert queues.settings("default").handler is None


# ---- OPTIONS


@pytest.mark.parametrize("durability", ["full", "normal"])
def test_option_durability_reaches_the_queue(tmp_path: Path, durability: str) -> None:
    with one_queue(tmp_path, OPTIONS={"durability": durability}):
        queue = queues["default"]
        assert isinstance(queue, SQLiteQueue)
        assert queue.durability == durability


def test_option_durability_of_one_alias_is_that_of_its_store(tmp_path: Path) -> None:
    with override_settings(
        LOCALQUEUE={
            "emails": {"OPTIONS": {"durability": "normal"}},
            "default": {"LOCATION": tmp_path / "store"},
        }
    ):
        opened = [queues["default"], queues["emails"]]
        assert [queue.durability for queue in opened] == ["normal", "normal"]  # type: ignore[attr-defined]


def test_option_lease_seconds_is_the_lease_of_a_delivery(tmp_path: Path) -> None:
    with one_queue(tmp_path, OPTIONS={"lease_seconds": 1234}):
        queue = queues["default"]
        queue.put({})
        before = queue.now()
        job = queue.get_nowait()
        assert before + 1_234_000_000 <= job.lease_expires_at <= queue.now() + 1_234_000_000


def test_option_max_retries_bounds_the_deliveries(tmp_path: Path) -> None:
    with one_queue(tmp_path, OPTIONS={"max_retries": 1}):
        queue = queues["default"]
        queue.put({})
        queue.nack(queue.get_nowait())
        queue.nack(queue.get_nowait())
        assert queue.stats().failed == 1


def test_option_retention_seconds_is_what_prune_goes_by(tmp_path: Path) -> None:
    with one_queue(tmp_path, OPTIONS={"retention_seconds": 0}):
        queue = queues["default"]
        queue.put({})
        queue.ack(queue.get_nowait())
        assert queue.prune() == 1
    with one_queue(tmp_path, OPTIONS={"retention_seconds": None}):
        queue = queues["default"]
        queue.put({})
        queue.ack(queue.get_nowait())
        assert queue.prune() == 0


def test_option_max_payload_bytes_bounds_a_payload(tmp_path: Path) -> None:
    with one_queue(tmp_path, OPTIONS={"max_payload_bytes": 10}):
        queues["default"].put("12345678")
        with pytest.raises(PayloadTooLarge, match=r"11 bytes.*at most 10"):
            queues["default"].put("123456789")


@pytest.mark.parametrize("serializer", [f"{__name__}.Shouting", f"{__name__}.shouting", shouting])
def test_option_serializer_is_a_class_an_object_or_a_path(tmp_path: Path, serializer: Any) -> None:
    with one_queue(tmp_path, OPTIONS={"serializer": serializer}):
        queues["default"].put("quiet")
        assert queues["default"].get_nowait().data == "QUIET"


def test_a_serializer_that_cannot_be_imported_is_named(tmp_path: Path) -> None:
    with (
        one_queue(tmp_path, OPTIONS={"serializer": "nowhere.Serializer"}),
        pytest.raises(ImproperlyConfigured, match=r"\['serializer'\] is 'nowhere.Serializer'"),
    ):
        queues["default"]


@pytest.mark.parametrize("key", ["auth", "tls", "timeouts"])
def test_an_option_without_effect_is_taken_and_marked(tmp_path: Path, key: str) -> None:
    value = {"auth": "user:password", "tls": {}, "timeouts": 3}
    with one_queue(tmp_path, OPTIONS={key: value[key]}):
        assert queues.settings("default").without_effect == (key,)
        queues["default"].put({})


# ---- TEST


def test_test_location_is_used_in_a_test_run(tmp_path: Path) -> None:
    with one_queue(tmp_path, TEST={"LOCATION": ":memory:"}):
        queues["default"].put({})
    assert not (tmp_path / "store").exists()


def test_test_location_left_out_is_that_of_default(tmp_path: Path) -> None:
    with override_settings(
        LOCALQUEUE={
            "default": {"LOCATION": tmp_path / "store", "TEST": {"LOCATION": ":memory:"}},
            "emails": {},
        }
    ):
        assert queues["emails"].store_key == queues["default"].store_key
        assert not (tmp_path / "store").exists()


def test_outside_a_test_run_test_location_is_not_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locations, "in_test_run", lambda: False)
    with one_queue(tmp_path, TEST={"LOCATION": ":memory:"}):
        queues["default"].put({})
        assert (tmp_path / "store" / "localqueue.db").is_file()


@pytest.mark.parametrize(
    ("xdist", "django", "suffix"), [("gw3", 0, "_gw3"), (None, 2, "_2"), (None, 0, "")]
)
def test_each_parallel_test_process_has_a_folder_of_its_own(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    xdist: str | None,
    django: int,
    suffix: str,
) -> None:
    if xdist:
        monkeypatch.setenv("PYTEST_XDIST_WORKER", xdist)
    else:
        monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    monkeypatch.setattr("django.test.runner._worker_id", django)
    with one_queue(tmp_path, TEST={"LOCATION": str(tmp_path / "tests")}):
        assert queues["default"].store_key == f"{tmp_path}/tests{suffix}"


def test_a_test_run_never_opens_the_queue_of_the_settings_file(tmp_path: Path) -> None:
    queue = conf.QueueSettings("default", location=tmp_path)
    assert locations.location_for(queue) == ":memory:"


def test_a_location_that_a_test_sets_itself_is_used(tmp_path: Path) -> None:
    with one_queue(tmp_path):
        assert queues["default"].store_key == str(tmp_path / "store")


def test_stores_that_differ_in_durability_are_apart_in_a_test_run(tmp_path: Path) -> None:
    def entry(name: str, durability: str) -> dict[str, Any]:
        return {
            "LOCATION": tmp_path / name,
            "OPTIONS": {"durability": durability},
            "TEST": {"LOCATION": ":memory:"},
        }

    with override_settings(
        LOCALQUEUE={"default": entry("one", "full"), "emails": entry("two", "normal")}
    ):
        queues["default"].put({})
        queues["emails"].put({})
        assert queues["default"].store_key != queues["emails"].store_key


# ---- shape


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"LOCATON": "x"}, "unknown key 'LOCATON'.*Did you mean 'LOCATION'"),
        ({"OPTIONS": {"lease_second": 3}}, "unknown key 'lease_second'.*'lease_seconds'"),
        ({"OPTIONS": []}, r"\['OPTIONS'\] is \[\].*dict"),
        ({"TEST": {"NAME": "x"}}, "unknown key 'NAME'"),
        ({"TEST": "x"}, r"\['TEST'\] is 'x'"),
        ({"NAME": 3}, r"\['NAME'\] is 3"),
        ({"HANDLER": 3}, r"\['HANDLER'\] is 3"),
        ({"BACKEND": 3}, r"\['BACKEND'\] is 3"),
        ({"LOCATION": 3}, "path must be the path of a folder.*3"),
        ({"NAME": ""}, "name is empty"),
        ({"OPTIONS": {"lease_seconds": "60"}}, "lease_seconds must be a number of seconds"),
        ({"OPTIONS": {"lease_seconds": 0}}, "lease_seconds must be at least 0.001"),
        ({"OPTIONS": {"max_retries": -1}}, "max_retries must be from 0"),
        ({"OPTIONS": {"max_payload_bytes": 0}}, "max_payload_bytes must be from 1"),
        ({"OPTIONS": {"retention_seconds": float("nan")}}, "retention_seconds must be a finite"),
        ({"OPTIONS": {"durability": "some"}}, "durability must be 'full' or 'normal'"),
        ({"OPTIONS": {"max_running": "2"}}, "max_running must be a whole number"),
        ({"OPTIONS": {"rate": "10/y"}}, "rate must be jobs a second"),
    ],
)
def test_a_key_that_cannot_be_is_refused_by_name(
    tmp_path: Path, entry: dict[str, Any], message: str
) -> None:
    with one_queue(tmp_path, **entry), pytest.raises(ImproperlyConfigured, match=message):
        queues["default"]


@pytest.mark.parametrize("value", [[], "default", {"default": None}, {"default": "here"}])
def test_localqueue_of_another_shape_is_refused(value: Any) -> None:
    with (
        override_settings(LOCALQUEUE=value),
        pytest.raises(ImproperlyConfigured, match=r"LOCALQUEUE.*It must be a dict"),
    ):
        queues["default"]


def test_one_location_with_two_durabilities_is_refused(tmp_path: Path) -> None:
    with (
        override_settings(
            LOCALQUEUE={
                "default": {"LOCATION": tmp_path / "store", "OPTIONS": {"durability": "full"}},
                "emails": {"OPTIONS": {"durability": "normal"}},
            }
        ),
        pytest.raises(ImproperlyConfigured, match=r"share the LOCATION.*different durability"),
    ):
        queues["emails"]


# ---- LOCALQUEUE_WORKER and LOCALQUEUE_CONSOLE


def test_worker_settings_have_defaults(settings: Any) -> None:
    assert conf.worker() == conf.WorkerSettings()


@pytest.mark.parametrize(
    ("key", "value", "kept"),
    [
        ("QUEUES", ["emails", "default"], ("emails", "default")),
        ("THREADS", 9, 9),
        ("HEARTBEAT_INTERVAL", 2.5, 2.5),
    ],
)
def test_worker_key_is_read(settings: Any, key: str, value: Any, kept: Any) -> None:
    settings.LOCALQUEUE_WORKER = {key: value}
    assert getattr(conf.worker(), key.lower()) == kept


@pytest.mark.parametrize(("key", "value"), [("AUTO_REGISTER", False), ("HAS_PERMISSION", "a.b")])
def test_console_key_is_read(settings: Any, key: str, value: Any) -> None:
    assert getattr(conf.console(), key.lower()) != value
    settings.LOCALQUEUE_CONSOLE = {key: value}
    assert getattr(conf.console(), key.lower()) == value
