"""The power is cut at any moment of a recorded run: what was acknowledged is there."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.crash import power, shim
from tests.crash.disk import Disk, Event
from tests.crash.power import Player
from tests.crash.shim import OPEN, SYNC, SYNCED, TRUNCATE, UNLINK, WRITE

pytestmark = [shim.needed, pytest.mark.timeout(600)]

SEED = random.SystemRandom().randrange(10**9)
Recorded = Callable[[str], list[Event]]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Return what processes did to a store of this durability, recorded once."""

    @cache
    def events(durability: str) -> list[Event]:
        folder = tmp_path_factory.mktemp("power") / "run"
        return power.record(folder, durability, 500, random.Random(SEED))

    return events


def shown(problems: list[str]) -> str:
    return f"seed {SEED}, {len(problems)} problems\n" + "\n".join(problems[:5])


class TestFull:
    def test_nothing_is_acknowledged_before_it_is_synced(
        self, recorded: Recorded, tmp_path: Path
    ) -> None:
        early = Player(recorded("full"), tmp_path, "full").told()
        assert not early, shown(early)

    def test_the_log_was_given_room_meanwhile(self, recorded: Recorded) -> None:
        written = [event for event in recorded("full") if event.kind == WRITE]
        assert any(
            event.name.endswith("-wal") and len(event.data) > 50_000 and not any(event.data)
            for event in written
        )

    def test_what_was_acknowledged_survives_a_power_cut(
        self, recorded: Recorded, tmp_path: Path
    ) -> None:
        cut(recorded("full"), tmp_path, 40)

    @pytest.mark.slow
    def test_it_survives_many(self, tmp_path: Path) -> None:
        for number in range(5):
            rng = random.Random(SEED + number)
            events = power.record(tmp_path / f"run{number}", "full", 2_000, rng)
            cut(events, tmp_path, 300)

    def test_a_disk_that_lies_about_its_syncs_loses_what_was_acknowledged(
        self, recorded: Recorded, tmp_path: Path
    ) -> None:
        lies = [event for event in recorded("full") if event.kind != SYNCED]
        player = Player(lies, tmp_path, "full")
        assert player.cuts(10, random.Random(SEED))["lost"]


class TestNormal:
    def test_acknowledgements_do_not_wait_for_the_disk(
        self, recorded: Recorded, tmp_path: Path
    ) -> None:
        assert Player(recorded("normal"), tmp_path, "normal").told()

    def test_a_power_cut_loses_the_latest_and_leaves_a_sound_file(
        self, recorded: Recorded, tmp_path: Path
    ) -> None:
        found = Player(recorded("normal"), tmp_path, "normal").cuts(20, random.Random(SEED))
        assert found["lost"]
        assert not found["unsound"], shown(found["unsound"])


def cut(events: list[Event], folder: Path, count: int) -> None:
    found = Player(events, folder, "full").cuts(count, random.Random(SEED))
    assert not found["lost"], shown(found["lost"])
    assert not found["unsound"], shown(found["unsound"])


# ---- the disk of the replay itself


def event(
    kind: int, name: str = "file", offset: int = 0, data: bytes = b"", token: int = 0
) -> Event:
    return Event(kind, 1, token, name, offset, data)


def left(events: list[Event], folder: Path) -> set[bytes | None]:
    """Return all that a file was seen to hold after many cuts; None: it wasn't there."""
    disk = Disk()
    for one in events:
        disk.play(one)
    seen: set[bytes | None] = set()
    for seed in range(200):
        disk.cut(folder / str(seed), random.Random(seed))
        file = folder / str(seed) / "file"
        seen.add(file.read_bytes() if file.exists() else None)
    return seen


NEW, OLD = b"n" * 1024, b"o" * 1024
MADE = [event(OPEN), event(WRITE, data=OLD), event(SYNC, token=1), event(SYNCED, token=1)]
NAMED = [event(SYNC, ".", token=2), event(SYNCED, ".", token=2)]


def test_the_disk_keeps_what_was_synced(tmp_path: Path) -> None:
    assert left(MADE + NAMED, tmp_path) == {OLD}


def test_the_disk_may_lose_a_file_whose_folder_was_not_synced(tmp_path: Path) -> None:
    assert left(MADE, tmp_path) == {OLD, None}


def test_the_disk_keeps_any_part_of_what_was_not_synced(tmp_path: Path) -> None:
    seen = left([*MADE, *NAMED, event(WRITE, data=NEW)], tmp_path)
    assert {OLD, NEW, NEW[:512] + OLD[512:], OLD[:512] + NEW[512:]} <= seen
    torn = [one for one in seen if one and any(len(set(one[at : at + 512])) > 1 for at in (0, 512))]
    assert torn


def test_a_sync_covers_what_was_written_before_it_began(tmp_path: Path) -> None:
    events = [*MADE, *NAMED, event(SYNC, token=3), event(WRITE, data=NEW), event(SYNCED, token=3)]
    assert {OLD, NEW} <= left(events, tmp_path)


def test_a_removed_file_may_come_back_until_its_folder_is_synced(tmp_path: Path) -> None:
    assert left([*MADE, *NAMED, event(UNLINK)], tmp_path) == {OLD, None}


def test_a_file_may_keep_what_was_cut_off_until_it_is_synced(tmp_path: Path) -> None:
    assert left([*MADE, *NAMED, event(TRUNCATE, offset=512)], tmp_path) == {OLD, OLD[:512]}
