"""The explanation judges the records of the log as sidecars judge them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sidecar.audit.explain.ask import explain
from sidecar.audit.explain.model import ExplainError
from sidecar.core.consumer.records import CurrentRecord, MemberState
from sidecar.core.runtime.commands import RENEWED
from sidecar.core.vocabulary.topics import TopicImage
from sidecar.state.codec import Stamp
from tests.audit.explain.recorded_story import OWNER_EPOCH, RecordedStory
from tests.core.test_stories import GROUP
from tests.core.world import topic_id

PAIR = "topics a=4\nm1 join names=a\nm1 heartbeat"


def owns(member: str, partition: int) -> CurrentRecord:
    parts = {topic_id(1): {partition: 2}}
    return CurrentRecord(GROUP, member, 2, 1, MemberState.STABLE, parts, {}, {topic_id(1): "a"}, "injected")


def test_a_write_of_a_fenced_owner_does_not_count() -> None:
    recorded = RecordedStory(PAIR)
    recorded.put(
        recorded.codec.encode(replace(owns("m1", 0), member_epoch=9), Stamp(OWNER_EPOCH - 1, 1), 9), recorded.now_ms + 5
    )
    found = explain(recorded.replayed())
    assert found.members[0].epoch == 2 and found.members[0].since_ms == recorded.now_ms
    assert found.members[0].owns == ("a-0", "a-1", "a-2", "a-3")


def test_records_that_contradict_each_other_are_told() -> None:
    recorded = RecordedStory(PAIR)
    recorded.put(recorded.codec.encode(owns("m2", 0), Stamp(OWNER_EPOCH, 1), 1), recorded.now_ms)
    with pytest.raises(ExplainError, match=r"contradict each other.*a-0|contradict each other.*assigned to m2"):
        explain(recorded.replayed())


def test_a_record_that_cannot_be_read_is_told() -> None:
    recorded = RecordedStory(PAIR)
    last = recorded.taken.records[-1]
    assert last.value is not None
    recorded.taken.records.append(replace(last, offset=last.offset + 1, value=last.value[:-1]))
    with pytest.raises(ExplainError, match=r"cannot be read, so no sidecar serves the group"):
        recorded.replayed()


def test_a_renewed_fence_is_no_new_coordinator() -> None:
    recorded = RecordedStory(PAIR)
    first = explain(recorded.replayed()).coordinator
    recorded.claim(1, "host-1:9092", recorded.now_ms + 9, RENEWED)
    assert explain(recorded.replayed()).coordinator == first
    recorded.claim(1, "host-1:9092", recorded.now_ms + 10)
    again = explain(recorded.replayed()).coordinator
    assert again is not None and again.since_ms == recorded.now_ms + 10


def test_topics_that_have_changed_are_told_if_they_are_known() -> None:
    recorded = RecordedStory(PAIR)
    note = "The topics are others than when the epoch was made: the next heartbeat makes a new one."
    assert note not in explain(recorded.replayed(), recorded.story.world.shard.image).notes
    recorded.play("topics a=5")
    assert note in explain(recorded.replayed(), recorded.story.world.shard.image).notes
    assert explain(recorded.replayed(), None).notes == ()
    assert note in explain(recorded.replayed(), TopicImage()).notes


def test_only_the_last_removals_are_told() -> None:
    recorded = RecordedStory("topics a=4\nm0 join names=a")
    for i in range(1, 13):
        recorded.play(f"m{i} join names=a\nm{i} leave")
    found = explain(recorded.replayed())
    assert [(r.member, r.why) for r in found.removed] == [(f"m{i}", "left") for i in range(12, 2, -1)]


def test_who_came_back_is_not_gone() -> None:
    recorded = RecordedStory("topics a=4\nm0 join names=a\nm1 join names=a\nm1 leave\nm1 join names=a")
    assert explain(recorded.replayed()).removed == ()


def test_settings_that_move_the_group_are_told() -> None:
    recorded = RecordedStory(PAIR)
    recorded.put(recorded.codec.config(GROUP, "sidecar.managed", "false", 1, 1, "x"), recorded.now_ms)
    recorded.put(recorded.codec.config(GROUP, "sidecar.rebalance", "why not", 1, 1, "x"), recorded.now_ms)
    notes = explain(recorded.replayed()).notes
    assert any("ordered back to the broker" in n for n in notes)
    assert "A rebalance was asked for: why not." in notes
