"""The memory that members may hold: ids that are pending, protocols, bytes of a group and of all groups."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace as replaced
from typing import Any

import pytest
from msgspec.structs import replace

from sidecar.core.classic import group as classic
from sidecar.core.classic.events import JoinGroup, JoinReply, LeaveGroup, Leaving, SyncGroup
from sidecar.core.classic.soft_state import ClassicSoft
from sidecar.core.consumer import group as consumer
from sidecar.core.consumer.events import ConsumerHeartbeat
from sidecar.core.runtime.effects import Count
from sidecar.core.runtime.events import DeleteGroup
from sidecar.core.runtime.member_limits import GROUP_BYTES, MemberLimits, bytes_of_assignment
from sidecar.core.vocabulary.errors import Code
from sidecar.state.codec import Stamp, StateCodec
from tests.core.classic_client import subscription
from tests.core.world import World

TINY = (("range", b""),)


class Small(World):
    """A world whose shard has these limits."""

    def __init__(self, **limits: Any) -> None:
        super().__init__()
        self._new = 0
        turn = self.shard._turn
        limited = MemberLimits(**{"held": lambda: self.shard.held_bytes, **limits})
        turn.ports = type(turn.ports)(turn.ports.assignors, turn.ports.config, limits=limited)

    def join(self, group: str = "g", member: str = "", version: int = 4, protocols: Any = TINY, **given: Any) -> Any:
        """The answer, or None: it waits for the end of the join phase."""
        self._new += 1
        client = given.get("client", "c")
        instance = given.get("instance")
        event = JoinGroup(
            group,
            member,
            instance,
            "consumer",
            protocols,
            30_000,
            60_000,
            None,
            client,
            "/h",
            version,
            f"{self._new:05}",
            given.get("connection", 0),
        )
        reply = self.replies.pop(self.request(event), None)
        return None if reply is None else reply.answer

    def beats(self, member: str, names: tuple[str, ...], group: str = "g", regex: str | None = None) -> Code:
        event = ConsumerHeartbeat(group, member, 0, None, None, 60_000, names, regex, None, {}, "c", "/h", 1)
        return self.ask(event).code


def pending(s: Small) -> int:
    return sum(len(soft.pending) for soft in s.shard.soft.values() if isinstance(soft, ClassicSoft))


def test_a_client_id_of_any_length_makes_a_short_member_id() -> None:
    reply: JoinReply = Small().join(client="x" * 30_000)
    assert reply.code == Code.MEMBER_ID_REQUIRED and len(reply.member_id) < 120


def test_the_oldest_pending_member_id_gives_way() -> None:
    """Symptom: 3,000 requests of one connection, with long client ids, left 360 MiB until their sessions ended."""
    s = Small(pending=3)
    first = s.join().member_id
    others = [s.join(group=f"g{n % 2}").member_id for n in range(3)]
    assert s.join(member=first).code == Code.UNKNOWN_MEMBER_ID
    assert pending(s) == 3
    assert s.join(group="g1", member=others[1]) is None, "it joins, and is pending no more"
    s.join()
    assert s.join(group="g0", member=others[0]) is None, "its place was free"


def test_one_connection_has_so_many_of_them() -> None:
    s = Small(pending=5, pending_of_one=2)
    of_another = s.join(connection=7).member_id
    first, second = (s.join(group="h", connection=8).member_id for _ in range(2))
    s.join(connection=8)
    assert pending(s) == 3
    assert s.join(group="h", member=first, connection=8).code == Code.UNKNOWN_MEMBER_ID
    assert s.join(group="h", member=second, connection=9) is None, "it may come back over another one"
    s.join(group="h", connection=8)
    assert s.join(member=of_another, connection=7) is None
    assert len(s.shard._turn.pending) == 2


def test_a_flood_of_them_leaves_no_more_than_that_many_timers() -> None:
    s = Small(pending=50)
    for n in range(2_000):
        s.join(group=f"g{n % 7}")
    assert len(s.shard._turn.pending) == 50
    assert pending(s) == 50


def test_a_group_that_waited_for_an_id_that_gave_way_goes_on() -> None:
    s = Small(pending=1)
    member = s.join().member_id
    assert s.join(member=member) is None
    s.sleep(4_000)
    assert s.replies.pop(s.token).answer.code == Code.NONE
    s.join()
    assert s.join(member=member, protocols=(("range", b"2"),)) is None, "the other one may still come"
    waits = s.token
    s.join(group="another")
    assert s.replies.pop(waits).answer.code == Code.NONE


@pytest.mark.parametrize("protocols", [100, 101])
def test_a_member_names_so_many_protocols(protocols: int) -> None:
    """Symptom: 1.5 MiB of empty protocols took 35 MiB."""
    reply = Small().join(version=3, protocols=tuple((f"p{n}", b"") for n in range(protocols)))
    assert (reply is None) if protocols == 100 else reply.code == Code.INCONSISTENT_GROUP_PROTOCOL


def test_a_group_has_so_many_bytes_and_who_is_in_it_stays() -> None:
    s = Small(group_bytes=2 << 20)
    large = (("range", b"m" * 300_000),)
    member = [s.join(instance=f"i{n}", version=5, protocols=large) for n in range(3)]
    assert member == [None] * 3
    assert s.join(instance="i3", version=5, protocols=large).code == Code.GROUP_MAX_SIZE_REACHED
    held = s.shard.groups["g"]
    assert isinstance(held, classic.ClassicGroup)
    again = s.join(member=held.static["i0"], instance="i0", version=5, protocols=(("range", b"n" * 300_000),))
    assert again is None, "it needs no more than before"
    larger = s.join(member=held.static["i0"], instance="i0", version=5, protocols=(("range", b"n" * 600_000),))
    assert larger.code == Code.GROUP_MAX_SIZE_REACHED
    assert s.join(group="h", instance="i", version=5, protocols=large) is None, "another group has its own"


LARGE = (("range", b"m" * 300_000),)
NAMES = tuple("t" * 100 + str(n) for n in range(2_000))
MIB = 1 << 20


def consumers_of_many(s: Small) -> None:
    s.beats("m0", NAMES)
    s.beats("m1", NAMES[1:])


REFUSED: dict[str, tuple[str, dict[str, int], Callable[[Small], object]]] = {
    "bytes of a classic member": (
        "bytes",
        {"group_bytes": 2 * MIB},
        lambda s: [s.join(instance=f"i{n}", version=5, protocols=LARGE) for n in range(4)],
    ),
    "bytes of a consumer": ("bytes", {"group_bytes": MIB}, consumers_of_many),
    "bytes of all": ("bytes", {"members_bytes": MIB}, consumers_of_many),
    "protocols": ("protocols", {}, lambda s: s.join(version=3, protocols=tuple((f"p{n}", b"") for n in range(101)))),
    "classic members": ("size", {}, lambda s: [s.join(version=3) for _ in range(3)]),
    "consumers": ("size", {}, lambda s: [s.beats(f"m{n}", ("t",)) for n in range(3)]),
    "expressions": ("expressions", {}, lambda s: [s.beats(f"m{n}", (), regex=f"t{n}") for n in range(2)]),
    "a member id": ("pending", {"pending": 1}, lambda s: [s.join() for _ in range(2)]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_each_refusal_is_counted_by_its_limit(name: str) -> None:
    """Symptom: members of the consumer protocol that were refused for their bytes were counted nowhere."""
    limit, limits, asks = REFUSED[name]
    s = Small(**limits)
    most = 2 if limit == "size" else 1_000
    s.config, s.classic = replaced(s.config, max_size=most, regexes_max=1), replaced(s.classic, max_size=most)
    asks(s)
    found = [note.labels for note in s.notes if isinstance(note, Count) and note.metric == "members_refused"]
    assert found == [(limit,)]


def leads(s: Small, group: str, instance: str) -> JoinReply:
    """The only member of a new group, when its join phase is over."""
    assert s.join(group=group, instance=instance, version=5) is None
    waits = s.token
    s.sleep(4_000)
    found = s.replies.pop(waits).answer
    assert isinstance(found, JoinReply) and found.code == Code.NONE
    return found


@pytest.mark.parametrize("limit", ["group_bytes", "members_bytes"])
def test_what_a_leader_assigns_counts(limit: str) -> None:
    """Symptom: assignments of 1.6 MB in each of some dozen groups left 176 MiB."""
    s = Small(**{limit: 1 << 20})
    reply = leads(s, "g", "i")
    sync = SyncGroup("g", reply.member_id, None, reply.generation, None, None, ((reply.member_id, b"a" * (1 << 20)),))
    full = Code.UNKNOWN_SERVER_ERROR if limit == "group_bytes" else Code.COORDINATOR_LOAD_IN_PROGRESS
    assert s.ask(sync).code == full
    others = tuple((f"nobody-{n}", b"a" * 1_000_000) for n in range(3))
    assert s.ask(replace(sync, assignments=others)).code == Code.NONE, "nobody is given that"


def test_all_groups_have_so_many_bytes_and_who_comes_later_comes_again() -> None:
    s = Small(members_bytes=2 << 20)
    large = (("range", b"m" * 300_000),)
    for n in range(3):
        assert s.join(group=f"g{n}", instance="i", version=5, protocols=large) is None
    assert s.join(group="g3", instance="i", version=5, protocols=large).code == Code.COORDINATOR_LOAD_IN_PROGRESS
    assert "g3" not in s.shard.groups
    assert s.beats("m", tuple("t" * 200 + str(n) for n in range(1_000)), "g4") == Code.COORDINATOR_LOAD_IN_PROGRESS


@pytest.mark.parametrize("members", [0, 1])
def test_a_consumer_without_room_leaves_a_classic_group_as_it_was(members: int) -> None:
    """Symptom: the turn broke after it had dropped the classic group, and the partition was loaded again at every
    retry."""
    room = Small()
    room.join(version=3, protocols=(("range", subscription(["t"])),))
    group = room.shard.groups["g"]
    if not members:
        (member,) = group.member_ids()
        room.ask(LeaveGroup("g", (Leaving(member, None, None),)))
        room.sleep(4_000)
    room.shard._turn.ports = replaced(room.shard._turn.ports, limits=MemberLimits(held=lambda: 1 << 30))
    assert room.beats("m", ("t",)) == Code.COORDINATOR_LOAD_IN_PROGRESS
    assert room.shard.groups["g"] is group and group.member_count() == members


def test_a_subscription_counts_once_as_its_group_uses_it_and_in_the_record_of_each_member() -> None:
    """Symptom: members that named the same 2,000 topics counted 1,000 bytes each, and each sidecar kept 200,000."""
    s = Small(group_bytes=1 << 20)
    names = tuple("t" * 100 + str(n) for n in range(2_000))
    assert s.beats("m0", names) == Code.NONE
    assert s.beats("m1", names[:1_999]) == Code.GROUP_MAX_SIZE_REACHED
    assert s.beats("m1", names) == Code.NONE, "the group has this one"
    assert s.beats("m2", names) == Code.GROUP_MAX_SIZE_REACHED
    assert s.beats("m2", names[:10]) == Code.NONE
    assert s.beats("m0", names) == Code.NONE, "it needs no more than before"


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_the_count_is_no_less_than_the_records_that_every_sidecar_keeps(protocol: str) -> None:
    """Everything long in a member counts: its own names, or those of its topics, protocols and assignment."""
    s = Small()
    names, long = tuple(f"{n:04}" + "t" * 200 for n in range(500)), "x" * 30_000
    for n in range(10):
        if protocol == "consumer":
            assert s.beats(f"{n}{long}", names) == Code.NONE
        else:
            s.join(f"g{n}", instance=long, client=long, version=5, protocols=(("range", b"m" * 100_000),))
    codec, stamp = StateCodec(), Stamp(1, 0)
    stored = sum(codec.encode(r, stamp, 1).size for r in s.compacted())
    assert s.shard.held_bytes >= stored


def test_the_books_are_right_whatever_members_do() -> None:
    """A shard holds the bytes of its groups, and these hold the bytes of their members."""
    rng = random.Random(34)
    s = Small()
    for _ in range(3_000):
        group, member = f"g{rng.randrange(4)}", f"m{rng.randrange(6)}"
        if group in ("g0", "g1"):
            size = rng.randrange(3) * 1_000
            what = rng.random()
            there = s.shard.groups.get(group)
            ids = list(there.member_ids()) if there is not None else []
            if what < 0.5:
                s.join(group, instance=member, version=5, protocols=(("range", b"x" * size),))
            elif ids and what < 0.8:
                s.request(LeaveGroup(group, (Leaving(rng.choice(ids), None, None),)))
        elif rng.random() < 0.7:
            s.beats(member, tuple(f"t{n}" for n in range(rng.randrange(4))), group)
        else:
            s.request(ConsumerHeartbeat(group, member, -1, client_id="c", client_host="/h"))
        s.replies.clear()
        if rng.random() < 0.1:
            s.sleep(5_000, 1_000)
        if rng.random() < 0.1:
            s.request(DeleteGroup(group))
        held = 0
        for g in s.shard.groups.values():
            held += GROUP_BYTES + g.held_bytes
            if isinstance(g, classic.ClassicGroup):
                assigned = sum(map(bytes_of_assignment, g.assignments.values()))
                assert g.held_bytes == sum(map(classic.bytes_of, g.members.values())) + assigned
            elif isinstance(g, consumer.ConsumerGroup):
                assert g.members_bytes == sum(map(consumer.bytes_of, g.members.values()))
                assert bool(g.members) or g.held_bytes == 0
        assert s.shard.held_bytes == held
    for group in list(s.shard.groups):
        s.shard.unload(group)
    assert s.shard.held_bytes == 0
