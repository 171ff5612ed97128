"""Records of a consumer group that contradict each other make no group."""

from __future__ import annotations

import pytest

from sidecar.core.consumer.group import ConsumerGroup
from sidecar.core.consumer.records import CurrentRecord, Kind, MemberState
from sidecar.core.runtime.records import Tombstone
from sidecar.core.vocabulary.errors import InvariantError
from tests.core.world import topic_id


def test_a_second_owner_in_the_log_is_a_contradiction_and_no_group() -> None:
    group = ConsumerGroup("g")
    held = {topic_id(1): {0: 2, 1: 2}}
    group.replay(CurrentRecord("g", "a", 2, 1, MemberState.STABLE, held, {}))
    group.replay(CurrentRecord("g", "a", 3, 2, MemberState.UNREVOKED_PARTITIONS, {topic_id(1): {0: 2}}, held))
    for assigned, pending in (({topic_id(1): {1: 3}}, {}), ({}, {topic_id(1): {1: 3}}), ({topic_id(1): {0: 3}}, {})):
        with pytest.raises(InvariantError, match="assigned to b"):
            group.replay(CurrentRecord("g", "b", 3, 2, MemberState.STABLE, assigned, pending))
    group.replay(CurrentRecord("g", "a", 3, 3, MemberState.STABLE, {topic_id(1): {0: 2}}, {}))
    group.replay(CurrentRecord("g", "b", 3, 2, MemberState.STABLE, {topic_id(1): {1: 3}}, {}))
    assert group.owners == {topic_id(1): {0: "a", 1: "b"}}
    group.replay(Tombstone(Kind.MEMBER, "g", "a"))
    assert group.owners == {topic_id(1): {1: "b"}}
