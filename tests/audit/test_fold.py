"""The fold finds intervals, and bites: planted double owners, stale writers and gaps are seen."""

from __future__ import annotations

from typing import Any

import pytest

from sidecar.audit.history.fold import Fold
from sidecar.core.classic.embedded import assigned, assignment
from sidecar.core.consumer.group import ConsumerGroup
from sidecar.state.codec import Stamp, StateCodec
from tests.core.mixed_actors import make
from tests.core.test_random_mixed import one_event
from tests.core.test_stories import Story
from tests.core.world import World
from tests.harness.tiers import seeds_of_run

T = bytes.fromhex("01" * 16)
Row = dict[str, Any]


def row(
    offset: int, kind: str, sub: str, body: Any, epoch: int = 1, revision: int = 1, why: str = "w", group: str = "g"
) -> Row:
    return {
        "offset": offset,
        "time_ms": 1000 + offset,
        "kind": kind,
        "group_id": group,
        "sub_id": sub,
        "owner_epoch": epoch,
        "revision": None if body is None else revision,
        "why": why,
        "body": body,
    }


def current(offset: int, member: str, assigned: list[int], pending: list[int] | None = None, **kw: Any) -> Row:
    def parts(ps: list[int]) -> list[Row]:
        return [{"topic_id": T, "topic_name": "t", "partitions": ps, "epochs": [1] * len(ps)}] if ps else []

    return row(
        offset,
        "current",
        member,
        {"member_epoch": 2, "assigned": parts(assigned), "pending": parts(pending or [])},
        **kw,
    )


def fold(*rows: Row) -> Any:
    f = Fold()
    for r in rows:
        f.add(r)
    return f


def test_an_interval_lasts_until_the_partition_is_given_up() -> None:
    found = fold(
        row(0, "member", "m1", {"client_id": "c1"}),
        current(1, "m1", [0, 1]),
        current(2, "m1", [0], [1], revision=2),
        current(3, "m1", [0], revision=3, why="reached epoch 3"),
        current(4, "m2", [1]),
    )
    spans = [(i.partition, i.member_id, i.from_offset, i.to_offset, i.to_why) for i in found.intervals]
    assert spans == [(0, "m1", 1, None, None), (1, "m1", 1, 3, "reached epoch 3"), (1, "m2", 4, None, None)]
    assert found.clients == {"m1": "c1"}
    assert not found.overlaps and not found.missing


def test_a_second_owner_is_an_overlap_also_while_the_first_still_revokes() -> None:
    found = fold(current(1, "m1", [0], [1]), current(2, "m2", [1]))
    assert [(o.second.partition, o.first, o.second.member_id, o.offset) for o in found.overlaps] == [(1, "m1", "m2", 2)]


def test_a_removed_member_owns_nothing() -> None:
    found = fold(
        current(1, "m1", [0]),
        row(2, "current", "m1", None, why="left"),
        row(3, "member", "m1", None),
        current(4, "m2", [0]),
    )
    assert not found.overlaps
    assert found.intervals[0].to_why == "left"


def test_a_write_of_a_fenced_owner_is_void() -> None:
    claim = {"node_id": 2, "address": "h:1"}
    found = Fold()
    rows = (
        row(0, "owner_claim", "5", claim, epoch=5),
        current(1, "m1", [0], epoch=4),
        current(2, "m2", [0], epoch=5),
    )
    assert [found.add(r) for r in rows] == [True, False, True]
    assert [i.member_id for i in found.intervals] == ["m2"]


@pytest.mark.parametrize("missing", [0, 1, 3])
def test_what_compaction_took_is_a_gap(missing: int) -> None:
    found = fold(current(5, "m1", [0], revision=missing + 1), current(6, "m1", [0], revision=2 * missing + 2))
    assert (found.missing, found.complete_ms) == ((2 * missing, 1006) if missing else (0, None))


def test_whoever_was_assigned_something_in_a_classic_group_that_is_gone_owns_nothing() -> None:
    """Compaction took the members' own tombstones, and only their assignments are left."""
    given = assignment(3, [("t", (0, 1))])
    head = {"protocol_type": "consumer", "assigned_generation": 0}
    found = fold(
        row(0, "classic_group", "", head),
        row(1, "classic_assignment", "m1", {"generation": 1, "assignment": given}),
        row(2, "classic_group", "", {**head, "assigned_generation": 1}, revision=2),
        row(3, "classic_group", "", None, why="deleted"),
    )
    assert [(i.partition, i.from_offset, i.to_offset, i.to_why) for i in found.intervals] == [
        (0, 2, 3, "deleted"),
        (1, 2, 3, "deleted"),
    ]


def test_a_release_that_compaction_took_is_no_second_owner_for_certain() -> None:
    """m1 has p0; its release was compacted; m2 takes p0; m1 goes on without it."""
    found = fold(current(1, "m1", [0]), current(5, "m2", [0]), current(9, "m1", [1], revision=3))
    assert [(o.first, o.second.member_id, o.offset, o.proven) for o in found.overlaps] == [("m1", "m2", 5, False)]
    (first,) = [i for i in found.intervals if (i.member_id, i.partition) == ("m1", 0)]
    assert (first.to_offset, first.to_exact, first.sure(1001), first.sure(1002)) == (9, False, True, False)
    both = fold(current(1, "m1", [0]), current(5, "m2", [0]), current(9, "m1", [0], revision=2))
    assert [(o.first, o.second.member_id, o.offset, o.proven) for o in both.overlaps] == [("m1", "m2", 5, True)]
    again = fold(current(1, "m1", [0]), current(5, "m2", [0]), current(9, "m1", [0], revision=3))
    assert [(o.first, o.second.member_id, o.offset, o.proven) for o in again.overlaps] == [
        ("m1", "m2", 5, False),
        ("m2", "m1", 9, True),
    ]


# ---- classic groups -------------------------------------------------------------------------------------------------
def classic_rows(world: World) -> list[Row]:
    """The log of a world as the source gives it."""
    codec, rows = StateCodec(), []
    for offset, r in enumerate(world.log):
        e = codec.encode(r, Stamp(1, 1000 + offset), 1)
        body = None
        if e.value is not None:
            body = codec.schemas.decode(e.value)
            for common in ("owner_epoch", "time_ms", "revision", "why"):
                del body[common]
        made = row(offset, str(r.kind), r.sub_id, body, why=getattr(r, "why", ""))
        rows.append(made | {"revision": None})
    return rows


def spans(found: Any) -> list[tuple[int, str, int, str | None]]:
    return sorted((i.partition, i.member_id, i.member_epoch, i.to_why) for i in found.intervals)


def story(text: str) -> Any:
    """Returns the fold of a story's log."""
    told = Story()
    for line in filter(None, map(str.strip, text.splitlines())):
        told.run(line)
    return fold(*classic_rows(told.world))


BEGIN = """
    topics a=4
    m1 join-group protocols=coop
    m2 join-group protocols=coop
    sleep 6000
    m1 sync-group m1=a:0,1 m2=a:2,3
    m2 sync-group
"""


def test_classic_members_own_what_the_leader_assigns_from_one_generation_to_the_next() -> None:
    found = story(
        BEGIN
        + """
        m1 join-group
        m2 join-group
        m1 sync-group m1=a:1,2 m2=a:3
    """
    )
    assert not found.overlaps, "all assignments of a generation count from the same moment"
    assert spans(found) == [
        (0, "m1-1", 1, "assigned by m1-1 in generation 2"),
        (1, "m1-1", 1, None),
        (2, "m1-1", 2, None),
        (2, "m2-1", 1, "assigned by m1-1 in generation 2"),
        (3, "m2-1", 1, None),
    ]
    assert {(i.topic, found.clients[i.member_id]) for i in found.intervals} == {("a", "m1"), ("a", "m2")}


def test_who_leaves_a_classic_group_owns_nothing_and_a_generation_that_broke_off_gives_nothing() -> None:
    found = story(
        BEGIN
        + """
        m2 leave-group
        m1 join-group
        m1 join-group topics=b
        m1 sync-group m1=a:0
    """
    )
    assert spans(found) == [
        (0, "m1-1", 1, None),
        (1, "m1-1", 1, "assigned by m1-1 in generation 3"),
        (2, "m2-1", 1, "left: not provided"),
        (3, "m2-1", 1, "left: not provided"),
    ]


def test_a_leader_that_assigns_twice_makes_an_overlap() -> None:
    found = story(BEGIN.replace("m2=a:2,3", "m2=a:1,3"))
    assert [(o.second.topic, o.second.partition, o.first, o.second.member_id) for o in found.overlaps] == [
        ("a", 1, "m1-1", "m2-1")
    ]


def test_a_static_member_that_restarts_goes_on_with_what_it_had() -> None:
    found = story(
        """
        s1 join-group instance=i1
        s2 join-group instance=i2
        sleep 6000
        s1 sync-group s1=a:0 s2=a:1
        s2 sync-group
        s2 join-group id=
        """
    )
    why = "instance i2: i2-2 replaces i2-1: not provided"
    assert spans(found) == [(0, "i1-1", 1, None), (1, "i2-1", 1, why), (1, "i2-2", 1, None)]
    assert not found.overlaps


def test_a_group_that_changes_its_protocol_and_back() -> None:
    found = story(
        BEGIN
        + """
        config assignment_interval_ms=0
        c1 join names=a
        m1 join-group owned=a:0,1 of=1
        m2 join-group owned=a:2 of=1
        c1 heartbeat
        c1 leave
    """
    )
    assert not found.overlaps
    mine = [i for i in found.intervals if i.partition == 3]
    assert [(i.member_id, i.member_epoch) for i in mine] == [("m2-1", 1), ("m2-1", 1), ("c1", 2)]
    now = [(i.partition, i.member_id, i.member_epoch) for i in found.intervals if i.to_ms is None]
    assert sorted(now) == [(0, "m1-1", 2), (1, "m1-1", 2), (2, "m2-1", 2)]


def test_what_is_no_consumers_assignment_is_not_read() -> None:
    found = story(
        """
        w1 join-group type=connect protocols=eager:w1
        sleep 3000
        w1 sync-group w1=a:0
        """
    )
    assert not found.intervals


@pytest.mark.parametrize("seed", seeds_of_run(20))
def test_the_audit_of_random_mixed_groups_knows_who_owns_what(seed: int) -> None:
    mixed = make(seed)
    for _ in range(120):
        one_event(mixed)
        mixed.sleep(200)
    found, rows = Fold(), classic_rows(mixed.world)
    assert all(found.add(r) for r in rows)
    group = mixed.world.now_is
    owned: set[tuple[int, str]] = set()
    if isinstance(group, ConsumerGroup):
        owned = {(p, member) for owners in group.owners.values() for p, member in owners.items()}
    elif group is not None:
        owned = {(p, m) for m, a in group.assignments.items() for p in (assigned(a) or {}).get("t", ())}
    assert {(i.partition, i.member_id) for i in found.intervals if i.to_ms is None} == owned
    assert not found.overlaps


def test_a_static_member_that_is_replaced_after_a_record_that_cannot_be_read() -> None:
    """Symptom: TWO OWNERS. The tombstone of a member comes before that of its assignment, and says nothing of it."""

    def given(offset: int, member: str, generation: int) -> Row:
        body = {"generation": generation, "assignment": assignment(3, [("t", (0,))])}
        return row(offset, "classic_assignment", member, body)

    def assigned_in(offset: int, generation: int) -> Row:
        head = {"protocol_type": "consumer", "assigned_generation": generation}
        return row(offset, "classic_group", "", head, revision=generation + 1)

    found = fold(assigned_in(0, 0), row(1, "classic_member", "m1", {"client_id": "c"}), given(2, "m1", 1))
    found.add(assigned_in(3, 1))
    found.unreadable(row(4, "classic_assignment", "m1", None))
    found.add(given(5, "m2", 2))
    found.add(assigned_in(6, 2))
    found.add(row(7, "classic_member", "m1", None) | {"revision": 2})
    assert [(o.first, o.offset, o.proven) for o in found.overlaps] == [("m1", 6, False)]
    assert [i.to_exact for i in found.intervals if i.to_offset == 7] == [False]
