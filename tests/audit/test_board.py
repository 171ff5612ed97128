"""The board of `sidecar top` agrees with the core about every group, and counts rebalances."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sidecar.audit.history.board import Board
from sidecar.audit.history.topic import Raw, Reader, RecordsRead
from sidecar.cli.top import Sort, Tail
from sidecar.core.runtime.records import Record, Tombstone, single
from sidecar.state.codec import Stamp, StateCodec
from sidecar.state.keys import decode_key, encode_key
from tests.audit.explain.recorded_story import OWNER_EPOCH, RecordedStory
from tests.coordinator.inspect.test_group_views import streams_world
from tests.core.modern import crew
from tests.core.modern.test_another_kind import REGISTRY, Crews
from tests.core.share.world import Client as ShareClient
from tests.core.share.world import World as ShareWorld
from tests.core.storybook import OF_MEMBERS, stories
from tests.core.test_stories import GROUP
from tests.core.world import topic

STORIES = stories(*OF_MEMBERS)


class Watched:
    """A story whose records the board reads as they come."""

    def __init__(self) -> None:
        self.recorded = RecordedStory()
        self.board = Board(1)
        self._read = 0

    def play(self, line: str) -> None:
        self.recorded.play(line)
        records = self.recorded.taken.records
        self.board.read(RecordsRead(0, records[self._read :], self.recorded.codec.schemas))
        self._read = len(records)

    def row(self) -> dict[str, object] | None:
        return next((r for r in self.board.rows(self.recorded.now_ms, 10_000) if r["group"] == GROUP), None)


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
        group, row = w.recorded.story.world.shard.groups.get(GROUP), w.row()
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
    raw = next(r for r in w.recorded.taken.records if r.key is not None and r.key.kind == "member")
    codec = w.recorded.codec
    record = replace(codec.decode(raw.key, raw.value)[0], member_id="m9")  # type: ignore[arg-type, type-var]
    written = codec.encode(record, Stamp(OWNER_EPOCH - 1, 1), 1)
    w.board.read(RecordsRead(0, [Raw(99, 1, decode_key(written.key), written.value)], codec.schemas))
    row = w.row()
    assert row is not None and row["members"] == 1


def test_a_group_in_which_nobody_has_subscribed_to_anything_is_as_old_as_its_first_member() -> None:
    """Symptom: `sidecar top` said that it was 1,795,555,507 s old, which is since 1970."""
    w = Watched()
    w.play("m1 join names=")
    row = w.row()
    assert row is not None and (row["epoch"], row["state"], row["age_s"]) == (1, "Stable", 0)


def board_of(log: Iterable[Record], codec: StateCodec) -> Board:
    board = Board(1, lambda: codec)
    for offset, record in enumerate(single(log)):
        written = codec.encode(record, Stamp(1, 1_000 + offset), 1)
        raw = Raw(offset, 1_000 + offset, decode_key(written.key), written.value)
        board.read(RecordsRead(0, [raw], codec.schemas))
    return board


def row_of(log: Iterable[Record], codec: StateCodec | None = None) -> dict[str, Any]:
    (row,) = board_of(log, codec or StateCodec()).rows(5_000, 10_000)
    return row


def test_a_streams_group_and_a_share_group_are_on_it() -> None:
    """Symptom: `sidecar top` did not show them at all."""
    streams = streams_world()
    group = streams.shard.groups["g"]
    asks = streams.group().record("the end of the application is asked for", shutdown_member="m1")
    row = row_of([*streams.log, asks])
    assert (row["type"], row["state"], row["members"], row["epoch"]) == ("streams", group.state_name(), 1, 2)
    assert row["rebalances"] == 1, "the record is written again in the same epoch"
    share = ShareWorld()
    share.topics(topic(1, "a", 2))
    ShareClient(share, "g", "m1", ("a",)).heartbeat()
    row = row_of(share.log)
    assert (row["type"], row["state"], row["members"], row["epoch"]) == ("share", "Stable", 1, 2)


def test_a_group_of_a_kind_that_nobody_was_told_of() -> None:
    crews = Crews()
    crews.settle("a", "b", "c")
    log = crews.log.written
    row = row_of(log, StateCodec(REGISTRY, crew.FILES))
    assert (row["type"], row["state"], row["members"], row["epoch"], row["rebalances"]) == ("crew", "Stable", 3, 4, 3)
    assert board_of([*log, Tombstone(crew.GROUP, "g", "")], StateCodec(REGISTRY, crew.FILES)).rows(0, 0) == []


class Log:
    """A consumer of one partition with these records."""

    def __init__(self) -> None:
        self.records: list[Raw] = []
        self.at = 0

    def get_watermark_offsets(self, place: Any, timeout: float) -> tuple[int, int]:
        return 0, len(self.records)

    def assign(self, places: list[Any]) -> None:
        self.at = places[0].offset

    def poll(self, timeout_s: float) -> Any:
        self.at += 1
        return message(self.records[self.at - 1], self.at - 1)

    def consume(self, count: int, timeout: float) -> list[Any]:
        return []


def message(raw: Raw, offset: int) -> Any:
    assert raw.key is not None
    values = {
        "error": None,
        "partition": 0,
        "offset": offset,
        "key": encode_key(*raw.key),
        "value": raw.value,
        "headers": [(name, value.encode()) for name, value in raw.headers.items()],
        "timestamp": (1, raw.time_ms),
    }
    return SimpleNamespace(**{name: lambda value=value: value for name, value in values.items()})


def test_a_topic_that_is_made_anew_is_read_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: `top` went on showing the groups of the former topic, and never those of the new one."""
    log = Log()
    monkeypatch.setattr("sidecar.audit.source.topic.Consumer", lambda config: log)
    monkeypatch.setattr(Reader, "partitions", lambda reader: 1)
    tail = Tail(Reader("h:1", "__group_state", {}))

    def members(*joins: str) -> list[int]:
        """Returns how many members each group has, once the topic has the records of this story."""
        story = RecordedStory()
        story.play("\n".join(["topics a=4", *joins]))
        log.records = list(story.taken.records)
        tail.read()
        return [row["members"] for row in tail.rows(Sort.GROUP, 5)]

    assert members("m1 join names=a", "m2 join names=a") == [2]
    assert members("m1 join names=a", "m2 join names=a", "m3 join names=a") == [3]
    assert members("m9 join names=a") == [1]
