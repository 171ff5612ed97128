"""The board of `sidecar top` agrees with the core about every group, and counts rebalances."""

from __future__ import annotations

from pathlib import Path

import pytest

from sidecar.audit.board import Board
from sidecar.audit.topic import row_of
from tests.audit.explain.told import Told
from tests.core.test_stories import GROUP

STORIES = sorted((Path(__file__).parent.parent / "stories").glob("*.txt"))


class Watched:
    """A story whose records the board reads as they come."""

    def __init__(self) -> None:
        self.told = Told()
        self.board = Board(1)
        self._read = 0

    def play(self, line: str) -> None:
        self.told.play(line)
        records = self.told.taken.records
        for raw in records[self._read :]:
            self.board.add(row_of(0, raw, self.told.codec.schemas))
        self._read = len(records)

    def row(self) -> dict[str, object] | None:
        return next((r for r in self.board.rows(self.told.now_ms, 10_000) if r["group"] == GROUP), None)


@pytest.mark.parametrize("path", STORIES, ids=lambda p: p.stem)
def test_the_board_says_what_the_core_says(path: Path) -> None:
    w = Watched()
    for line in path.read_text().splitlines():
        command = line.partition("#")[0].strip()
        if line.startswith("    ") or not command:
            continue
        w.play(command)
        if command.endswith("lost"):
            return  # what the log does not have, the board still has
        group, row = w.told.story.world.shard.groups.get(GROUP), w.row()
        if group is None:
            assert row is None or row["members"] == 0, line
            continue
        assert row is not None, line
        assert (row["type"], row["members"]) == (group.kind, group.member_count()), line
        assert row["state"] == group.state_name(), line
        assert row["node"] == 1


def test_rebalances_are_counted_within_the_window() -> None:
    w = Watched()
    w.play("topics a=4\nm1 join names=a\nm2 join names=a")
    row = w.row()
    assert row is not None and (row["rebalances"], row["age_s"]) == (2, 0)
    w.play("sleep 9000\nm2 leave\nsleep 5000")
    row = w.row()
    assert row is not None and (row["rebalances"], row["age_s"]) == (1, 5)


def test_a_write_of_a_fenced_owner_does_not_count() -> None:
    w = Watched()
    w.play("topics a=4\nm1 join names=a")
    raw = w.told.taken.records[-1]
    row = row_of(0, raw, w.told.codec.schemas) | {"kind": "member", "sub_id": "m9", "owner_epoch": 1}
    w.board.add(row)
    told = w.row()
    assert told is not None and told["members"] == 1


def test_a_group_in_which_nobody_has_subscribed_to_anything_is_as_old_as_its_first_member() -> None:
    """Symptom: `sidecar top` said that it was 1,795,555,507 s old, which is since 1970."""
    w = Watched()
    w.play("m1 join names=")
    row = w.row()
    assert row is not None and (row["epoch"], row["state"], row["age_s"]) == (1, "Stable", 0)
