"""What stands in the log is judged as sidecars judge it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sidecar.audit.explain.ask import explain
from sidecar.audit.explain.model import ExplainError, Limits
from sidecar.core.consumer.records import CurrentRecord, MemberState
from sidecar.core.runtime.commands import RENEWED
from sidecar.core.vocabulary.topics import TopicImage
from sidecar.state.codec import Stamp
from tests.audit.explain.told import OWNER_EPOCH, Told
from tests.core.test_stories import GROUP
from tests.core.world import topic_id

PAIR = "topics a=4\nm1 join names=a\nm1 heartbeat"


def owns(member: str, partition: int) -> CurrentRecord:
    parts = {topic_id(1): {partition: 2}}
    return CurrentRecord(GROUP, member, 2, 1, MemberState.STABLE, parts, {}, {topic_id(1): "a"}, "injected")


def test_a_write_of_a_fenced_owner_does_not_count() -> None:
    told = Told(PAIR)
    told.put(told.codec.encode(replace(owns("m1", 0), member_epoch=9), Stamp(OWNER_EPOCH - 1, 1), 9), told.now_ms + 5)
    found = explain(told.replayed())
    assert found.members[0].epoch == 2 and found.members[0].since_ms == told.now_ms
    assert found.members[0].owns == ("a-0", "a-1", "a-2", "a-3")


def test_records_that_contradict_each_other_are_told() -> None:
    told = Told(PAIR)
    told.put(told.codec.encode(owns("m2", 0), Stamp(OWNER_EPOCH, 1), 1), told.now_ms)
    with pytest.raises(ExplainError, match=r"contradict each other.*a-0|contradict each other.*assigned to m2"):
        explain(told.replayed())


def test_a_record_that_cannot_be_read_is_told() -> None:
    told = Told(PAIR)
    last = told.taken.records[-1]
    assert last.value is not None
    told.taken.records.append(replace(last, offset=last.offset + 1, value=last.value[:-1]))
    with pytest.raises(ExplainError, match=r"cannot be read, so no sidecar serves the group"):
        told.replayed()


def test_a_renewed_fence_is_no_new_coordinator() -> None:
    told = Told(PAIR)
    first = explain(told.replayed()).coordinator
    told.claim(1, "host-1:9092", told.now_ms + 9, RENEWED)
    assert explain(told.replayed()).coordinator == first
    told.claim(1, "host-1:9092", told.now_ms + 10)
    again = explain(told.replayed()).coordinator
    assert again is not None and again.since_ms == told.now_ms + 10


def test_topics_that_have_changed_are_told_if_they_are_known() -> None:
    told = Told(PAIR)
    note = "The topics are others than when the epoch was made: the next heartbeat makes a new one."
    assert note not in explain(told.replayed(), told.story.world.shard.image).notes
    told.play("topics a=5")
    assert note in explain(told.replayed(), told.story.world.shard.image).notes
    assert explain(told.replayed(), None).notes == ()
    assert note in explain(told.replayed(), TopicImage()).notes


def test_only_the_last_removals_are_told() -> None:
    told = Told("topics a=4\nm0 join names=a")
    for i in range(1, 5):
        told.play(f"m{i} join names=a\nm{i} leave")
    found = explain(told.replayed(), None, Limits(removed=2))
    assert [(r.member, r.why) for r in found.removed] == [("m4", "left"), ("m3", "left")]


def test_who_came_back_is_not_gone() -> None:
    told = Told("topics a=4\nm0 join names=a\nm1 join names=a\nm1 leave\nm1 join names=a")
    assert explain(told.replayed()).removed == ()


def test_settings_that_move_the_group_are_told() -> None:
    told = Told(PAIR)
    told.put(told.codec.config(GROUP, "sidecar.managed", "false", 1, 1, "x"), told.now_ms)
    told.put(told.codec.config(GROUP, "sidecar.rebalance", "why not", 1, 1, "x"), told.now_ms)
    notes = explain(told.replayed()).notes
    assert any("ordered back to the broker" in n for n in notes)
    assert "A rebalance was asked for: why not." in notes
