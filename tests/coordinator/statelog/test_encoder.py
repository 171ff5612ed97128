"""The records of one term as bytes: revisions, and the targets that another thread has encoded."""

from __future__ import annotations

import pytest

from sidecar.assign import UNIFORM
from sidecar.coordinator.statelog.encoder import Encoder
from sidecar.core.consumer.assignor_run import ConsumerOutput, ConsumerRun, run, snapshot
from sidecar.core.consumer.group import ConsumerGroup, Member
from sidecar.core.consumer.records import GroupRecord, Kind, MemberRecord, TargetMemberRecord, TargetRecord
from sidecar.core.runtime.records import Key, Tombstone
from sidecar.core.vocabulary.topics import Topic, TopicImage
from sidecar.state.codec import Encoded, StateCodec
from sidecar.state.keys import decode_key

IMAGE = TopicImage().next([Topic(bytes(15) + b"\1", "orders", ((),) * 6)])[0]
EPOCH, TIME_MS = 7 << 16, 1_000


def run_of(*members: str) -> tuple[ConsumerRun, ConsumerOutput]:
    """A run of the uniform assignor over these members of group g."""
    group = ConsumerGroup("g", epoch=2)
    for m in members:
        group.replay(MemberRecord("g", m, None, None, "app", "/h", 1_000, ("orders",), None, None))
    assert all(isinstance(m, Member) for m in group.members.values())
    inp = snapshot(group, None, IMAGE, "uniform", 5)
    return inp, run(inp, UNIFORM)


def target(inp: ConsumerRun, out: ConsumerOutput, changed: tuple[str, ...] | None = None) -> TargetRecord:
    return TargetRecord(
        "g", out.table, out.changed if changed is None else changed, 2, 900, "uniform", IMAGE.names, inp.why, inp.run_id
    )


def revision(encoded: Encoded) -> int:
    assert encoded.value is not None
    return int(StateCodec().schemas.decode(encoded.value)["revision"])


def encoder(revisions: dict[Key, int] | None = None) -> Encoder:
    return Encoder(StateCodec(), EPOCH, {} if revisions is None else revisions)


def test_prepared_bytes_are_those_that_are_made_one_by_one() -> None:
    inp, out = run_of("m1", "m2", "m3")
    had: dict[Key, int] = {("target_member", "g", "m2"): 4}
    slow, quick = encoder(dict(had)), encoder(dict(had))
    quick.prepared(inp, quick.targets(inp, out, TIME_MS))
    one, other = slow.encode([target(inp, out)], TIME_MS), quick.encode([target(inp, out)], TIME_MS)
    assert one == other and len(one) == 4
    assert slow._revisions == quick._revisions
    assert quick._revisions[("target_member", "g", "m2")] == 5


def test_they_are_not_used_when_the_group_has_moved_on() -> None:
    inp, out = run_of("m1", "m2", "m3")
    e = encoder()
    e.prepared(inp, e.targets(inp, out, TIME_MS))
    written = e.encode([target(inp, out, ("m1", "m3"))], TIME_MS)
    assert [decode_key(r.key).sub_id for r in written] == ["m1", "m3", ""]
    assert ("target_member", "g", "m2") not in e._revisions


@pytest.mark.parametrize("had", [0, 1, 4])
def test_they_are_not_used_when_a_member_has_another_target_since(had: int) -> None:
    """A static member left, and came back under its member id: its target was removed and written again."""
    inp, out = run_of("m1", "m2", "m3")
    key: Key = (str(Kind.TARGET_MEMBER), "g", "m2")
    e = encoder({key: had} if had else {})
    e.prepared(inp, e.targets(inp, out, TIME_MS))
    again = TargetMemberRecord("g", "m2", {}, IMAGE.names)
    e.encode([Tombstone(Kind.TARGET_MEMBER, "g", "m2", "replaced"), again], TIME_MS)
    written = {decode_key(r.key).sub_id: r for r in e.encode([target(inp, out)], TIME_MS)}
    assert [revision(written[m]) for m in ("m1", "m2", "m3")] == [1, 2, 1]


def test_of_one_group_only_the_bytes_of_its_last_run_are_kept() -> None:
    inp, out = run_of("m1")
    e = encoder()
    for _ in range(3):
        e.prepared(inp, e.targets(inp, out, TIME_MS))
    assert len(e._prepared) == 1
    e.encode([target(inp, out)], TIME_MS)
    assert e._prepared == {}


def test_revisions_rise_with_each_record_of_a_key_and_end_with_its_tombstone() -> None:
    e = encoder()
    group = GroupRecord("g", 1, 0)
    assert [revision(r) for r in e.encode([group, group], TIME_MS)] == [1, 2]
    (gone,) = e.encode([Tombstone(Kind.GROUP, "g", "", "deleted")], TIME_MS)
    assert gone.value is None
    assert dict(gone.headers) == {
        "why": b"deleted",
        "owner_epoch": str(EPOCH).encode(),
        "time_ms": str(TIME_MS).encode(),
        "revision": b"3",
    }
    assert [revision(r) for r in e.encode([group], TIME_MS)] == [1]
