"""The handler: an alias, its queue, and when that is opened and closed."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest
from django.test import override_settings

import django_localqueue.queues as attribute
from django_localqueue import QueueClosed, UnknownQueue, queues
from django_localqueue.conf import locations
from django_localqueue.queues import queues as from_module


def test_the_handler_is_one_however_it_is_imported() -> None:
    assert attribute is queues
    assert from_module is queues


def test_an_alias_is_always_the_same_queue() -> None:
    assert queues["default"] is queues["default"]
    assert queues["default"] is not queues["emails"]


def test_all_threads_get_the_same_queue() -> None:
    start = threading.Barrier(8)
    got = []

    def ask() -> None:
        start.wait()
        got.append(queues["default"])

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(got) == {queues["default"]}


def test_an_unknown_alias_names_the_known_ones() -> None:
    with pytest.raises(UnknownQueue, match="no queue 'nope'; it has 'default', 'emails'"):
        queues["nope"]


def test_the_handler_tells_its_aliases_without_opening_them(tmp_path: Path) -> None:
    with override_settings(LOCALQUEUE={"default": {"LOCATION": tmp_path / "store"}, "b": {}}):
        assert list(queues) == ["default", "b"]
        assert len(queues) == 2
        assert "b" in queues
        assert "c" not in queues
        assert not (tmp_path / "store").exists()


def test_all_returns_every_queue_in_the_order_of_the_setting() -> None:
    assert [queue.name for queue in queues.all()] == ["default", "emails"]


def test_override_settings_is_followed_and_undone(tmp_path: Path) -> None:
    before = queues["default"]
    with override_settings(LOCALQUEUE={"default": {"LOCATION": tmp_path / "store"}}):
        inside = queues["default"]
        assert inside.store_key == str(tmp_path / "store")
        assert list(queues) == ["default"]
    after = queues["default"]
    assert after.store_key not in (before.store_key, inside.store_key)
    assert list(queues) == ["default", "emails"]


def test_a_queue_of_settings_that_were_overridden_is_closed(tmp_path: Path) -> None:
    before = queues["default"]
    with (
        override_settings(LOCALQUEUE={"default": {"LOCATION": tmp_path / "store"}}),
        pytest.raises(QueueClosed),
    ):
        before.put({})


def test_another_setting_leaves_the_queues_open() -> None:
    before = queues["default"]
    before.put({})
    with override_settings(DEBUG=True):
        assert queues["default"] is before
    assert before.stats().ready == 1


def test_close_all_empties_the_queues_in_memory() -> None:
    queues["default"].put({})
    queues.close_all()
    assert queues["default"].stats().ready == 0


def test_close_all_keeps_what_is_in_files(tmp_path: Path) -> None:
    with override_settings(LOCALQUEUE={"default": {"LOCATION": tmp_path / "store"}}):
        queues["default"].put({})
        queues.close_all()
        assert queues["default"].stats().ready == 1


def test_queues_are_opened_anew_when_a_test_run_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry: dict[str, Any] = {"LOCATION": tmp_path / "store", "TEST": {"LOCATION": ":memory:"}}
    with override_settings(LOCALQUEUE={"default": entry}):
        with monkeypatch.context() as patch:
            patch.setattr(locations, "in_test_run", lambda: False)
            production = queues["default"]
            assert production.store_key == str(tmp_path / "store")
        assert queues["default"].store_key.startswith(":memory:")
        with pytest.raises(QueueClosed):
            production.put({})


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_has_queues_in_memory_of_its_own() -> None:
    queues["default"].put("the parent's")
    child = os.fork()
    if not child:
        fresh = queues["default"].stats().ready == 0
        os._exit(0 if fresh else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert queues["default"].get_nowait().data == "the parent's"
