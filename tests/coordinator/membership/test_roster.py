"""Strangers in the owners' group: whoever may READ it at a broker can join it, say what he likes, lead it, and speak in
another member's name. He gets nothing, ends no sidecar, and does not hold them up for long."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from sidecar.coordinator.clock import wall_ms
from sidecar.coordinator.membership import roster
from sidecar.coordinator.membership.owners_group import PROTOCOL
from sidecar.coordinator.membership.owners_protocol import METADATA_BYTES_MAX, Assignment, SidecarInfo
from sidecar.coordinator.membership.roster import CLAIMED_LATELY_MS, ENROL_TRIES, LEFT_LATELY_MS
from sidecar.core.vocabulary.errors import Code
from sidecar.wire.apis import Api
from sidecar.wire.generated import join_group as jg
from sidecar.wire.generated import sync_group as sg
from tests.coordinator.membership.test_owners_group import BOTH, GROUP, Make, Sidecar, agree, run
from tests.inprocess.broker import FakeBrokers
from tests.inprocess.embedded_sidecar import until
from tests.inprocess.owners import ClassicGroup

SAYS = json.dumps({"node_id": 1, "host": "10.9.9.9", "port": 9, "started_ms": 1 << 60}).encode()
"""A lie: the sidecar of node 1 is here, and was started in the future."""
DEEP = b"[" * 100_000
HOSTILE = (
    b"",
    b"not JSON",
    b"\xff\xfe\x00",
    DEEP,
    b'{"node_id":' * 50_000,
    b"null",
    b"[]",
    b'"x"',
    b'{"node_id": 3}',
    b'{"node_id": "x", "host": "h", "port": 1}',
    b'{"node_id": 1e999, "host": "h", "port": 1}',
    b'{"node_id": NaN, "host": "h", "port": 1}',
    b'{"node_id": -5, "host": "h", "port": 1}',
    b'{"node_id": 1' + b"0" * 5_000 + b', "host": "h", "port": 1}',
    b'{"node_id": 1, "host": "h", "port": 1, "patterns": [1]}',
    b'{"node_id": 1, "host": "h", "port": 1, "patterns": {"include": 7}}',
    b'{"node_id": 1, "host": "h", "port": 1, "started_ms": {}}',
    b"{" + b" " * METADATA_BYTES_MAX + b"}",
    SAYS,
)
MAPS = (
    *HOSTILE,
    b'{"owners": "abc", "members": {}}',
    b'{"owners": [1e999], "members": {}}',
    b'{"owners": [1], "members": {"1": []}}',
    b'{"owners": [1], "members": {"x": ["m", "h", 1]}}',
    b'{"owners": [], "members": {}, "patterns": 7}',
    b'{"owners": [], "members": {}, "peer_ports": {"1": null}}',
    b'{"owners": [9, 9, 9, 9], "members": {"9": ["m", "10.9.9.9", 9]}}',
)


def short(raw: object) -> str:
    return repr(raw)[:30]


class OtherMember:
    """A member of the owners' group that is no sidecar: joins again whenever it has to, and publishes its map if it
    leads."""

    def __init__(self, group: ClassicGroup, metadata: bytes, published_map: bytes = b"") -> None:
        self.group, self.metadata, self.published_map = group, metadata, published_map
        self.member_id = ""
        self.led = 0
        self.join()
        self.stays = asyncio.get_running_loop().create_task(self._stay())

    async def _stay(self) -> None:
        """Joins again whenever it has to, until it is removed."""
        while self.member_id in self.group.members:
            await until(lambda: self.member_id not in self.group.members or self._asked, 1e6)
            if self._asked:
                self.join()

    @property
    def _asked(self) -> bool:
        member = self.group.members.get(self.member_id)
        return member is not None and not self.group.stable and member.joining is None

    def join(self) -> None:
        protocols = [jg.JoinGroupRequestProtocol(PROTOCOL, self.metadata)]
        self.group.join(jg.JoinGroupRequest(GROUP, member_id=self.member_id, protocols=protocols), self._joined)

    def _joined(self, res: Any) -> None:
        if res.error_code == Code.MEMBER_ID_REQUIRED:
            self.member_id = res.member_id
            self.join()
        elif res.error_code == Code.NONE and res.leader == self.member_id:
            self.led += 1
            told = [sg.SyncGroupRequestAssignment(m.member_id, self.published_map) for m in res.members]
            self.group.sync(
                sg.SyncGroupRequest(GROUP, res.generation_id, self.member_id, assignments=told), ignore_response
            )


def ignore_response(res: Any) -> None:
    """The callback of a leader that does not need its own assignment."""


def group_of(brokers: FakeBrokers) -> ClassicGroup:
    return brokers.groups.setdefault(GROUP, ClassicGroup())


# ---- what they say
@pytest.mark.parametrize("raw", MAPS, ids=short)
def test_whatever_is_written_is_read_or_refused_by_a_value_error(raw: bytes) -> None:
    for decode in (SidecarInfo.decode, lambda raw: Assignment.decode(1, raw)):
        try:
            decode(raw)
        except ValueError:
            continue


@pytest.mark.parametrize("metadata", HOSTILE, ids=short)
def test_a_stranger_gets_nothing_whatever_he_says(metadata: bytes) -> None:
    async def test(brokers: FakeBrokers, make: Make) -> None:
        one = make(1)
        await until(lambda: one.assigned)
        OtherMember(one.group, metadata)
        await until(lambda: one.has_assignment_after(1))
        assert one.owners == (1, 1, 1, 1) and one.ownership.map_check.double == ""
        assert one.assigned[-1].members == {1: ("member-1", "127.0.0.1", 9092)}, "peers are asked at no other address"
        assert one.lines.events("error") == ["a member of the owners' group is no sidecar"]

    run(test)


def test_a_flood_of_strangers_is_one_line_and_leaves_the_sidecars_as_they_were() -> None:
    async def test(brokers: FakeBrokers, make: Make) -> None:
        one, two = make(1), make(2)
        await agree(one, two)
        for i in range(50):
            OtherMember(one.group, HOSTILE[i % len(HOSTILE)])
        await until(lambda: one.group.stable and one.group.generation > 3 and one.owners == two.owners)
        assert one.owners == BOTH and set(one.assigned[-1].members) == {1, 2}
        assert one.lines.events("error") == ["a member of the owners' group is no sidecar"]

    run(test)


# ---- who leads
async def present() -> set[str]:
    """Members of the owners' group."""
    return set()


def test_a_former_member_that_leads_again_is_removed_and_is_no_stranger() -> None:
    """Symptom: a broker that had lost the group's last records had it with a sidecar's former member as its leader, and
    the others called that a stranger, which wakes somebody up."""

    async def test(brokers: FakeBrokers, make: Make) -> None:
        one = make(1)
        await until(lambda: one.assigned)
        two = make(2)
        await until(lambda: two.assigned and len(one.assigned) == 2)
        former = one.ownership.member_id
        assert two.roster.enrolled(former)
        await one.roster.enrol("again", SidecarInfo(1, "127.0.0.1", 9092), present=present)
        assert not two.roster.enrolled(former)
        two.roster.report_leader(former)
        assert two.lines.events("error") == []
        two.roster.report_leader("nobody")
        assert two.lines.events("error") == ["a stranger led the owners' group; it is removed"]

    run(test)


@pytest.mark.parametrize("published_map", MAPS, ids=short)
def test_a_stranger_who_leads_is_removed_and_his_map_counts_for_nothing(published_map: bytes) -> None:
    async def test(brokers: FakeBrokers, make: Make) -> None:
        stranger = OtherMember(group_of(brokers), SAYS, published_map)
        await until(lambda: stranger.led)
        one = make(1)
        await until(lambda: one.assigned)
        assert one.owners == (1, 1, 1, 1) and one.ownership.is_leader
        assert stranger.member_id not in one.group.members
        assert one.lines.events("error") == ["a stranger led the owners' group; it is removed"]

    run(test)


def test_nobody_is_removed_while_it_is_not_known_who_he_is() -> None:
    """The state topic cannot be read to its end: his record may stand in what is missing."""

    async def test(brokers: FakeBrokers, make: Make) -> None:
        stranger = OtherMember(group_of(brokers), SAYS, Assignment(0, (9, 9, 9, 9)).encode())
        one = make(1)
        one.records.all_read = False
        await until(lambda: one.assigned)
        assert stranger.member_id in one.group.members and one.owners == (9, 9, 9, 9)

    run(test)


def test_who_speaks_in_the_leaders_name_is_not_believed() -> None:
    async def test(brokers: FakeBrokers, make: Make) -> None:
        one, two = make(1), make(2)
        await agree(one, two)
        real = one.group.sync
        forged: list[int] = []

        def sync(req: sg.SyncGroupRequest, answer: Any) -> None:
            if req.member_id == one.group.leader and not forged:
                forged.append(req.generation_id)
                told = [sg.SyncGroupRequestAssignment(m, HOSTILE[1]) for m in one.group.members]
                real(sg.SyncGroupRequest(GROUP, req.generation_id, req.member_id, assignments=told), ignore_response)
                return real(sg.SyncGroupRequest(GROUP, req.generation_id, req.member_id, assignments=told), answer)
            return real(req, answer)

        one.group.sync = sync  # type: ignore[method-assign]
        brokers.topics["__consumer_offsets"].leaders[0] = 2
        for sidecar in (one, two):
            sidecar.ownership.placement_changed()
        await until(lambda: forged and one.owners == two.owners == (2, 2, 1, 2))
        assert "somebody has spoken in this sidecar's name in the owners' group" in one.lines.events("error")

    run(test)


# ---- records
def test_a_sidecar_counts_as_soon_as_its_record_is_read() -> None:
    """The leader's tail may be late: it waits a while, and places anew when the record comes after all."""

    async def test(brokers: FakeBrokers, make: Make) -> None:
        one = make(1)
        await until(lambda: one.assigned)
        late = OtherMember(one.group, SAYS)
        await until(lambda: one.has_assignment_after(1))
        assert set(one.assigned[-1].members) == {1}

        async def present() -> set[str]:
            return set(one.group.members)

        await one.roster.enrol(late.member_id, SidecarInfo(2, "here", 7), present)
        await until(lambda: one.owners == BOTH)
        assert one.assigned[-1].members[2] == (late.member_id, "here", 7), "what counts is the record"

    run(test)


def test_a_record_that_comes_while_the_map_is_being_written_counts_too() -> None:
    """Symptom: a sidecar stayed without partitions. Cause: its record came during SyncGroup of the leader, which forgot
    afterwards that it had to join again."""

    async def test(brokers: FakeBrokers, make: Make) -> None:
        one = make(1)
        await until(lambda: one.assigned)
        hung = brokers.faults.hang(Api.SYNC_GROUP)
        late = OtherMember(one.group, SAYS)
        late.stays.cancel()  # it would begin another generation while the leader's map is not there
        await until(lambda: hung.met)
        await one.roster.enrol(late.member_id, SidecarInfo(2, "here", 7), present)
        hung.release()
        late.stays = asyncio.get_running_loop().create_task(late._stay())
        await until(lambda: one.owners == BOTH)

    run(test)


def test_nobody_is_called_a_stranger_while_his_record_may_not_have_been_read() -> None:
    async def test(brokers: FakeBrokers, make: Make) -> None:
        one = make(1)
        one.records.all_read = False
        await until(lambda: one.assigned)
        OtherMember(one.group, SAYS)
        await until(lambda: one.has_assignment_after(1))
        assert set(one.assigned[-1].members) == {1} and one.lines.events("error") == []
        assert "a member of the owners' group is not known yet" in one.lines.events("warning")

    run(test)


def test_a_record_goes_where_it_is_taken_and_removes_those_of_former_members() -> None:
    async def test(brokers: FakeBrokers, make: Make) -> None:
        one = make(1)
        one.records.refusing = {1}
        await until(lambda: one.assigned)
        assert set(one.records.stand()) == {"member-1"}
        for expected in ("member-2", "member-3"):
            one.group.expel(one.ownership.member_id)
            await until(lambda: set(one.records.stand()) == {expected})  # noqa: B023

    run(test)


def test_who_cannot_write_its_record_does_not_join() -> None:
    async def test(brokers: FakeBrokers, make: Make) -> None:
        one = make(1)
        one.records.refusing = {0, 1, 2, 3}
        await until(lambda: one.lines.events().count("owners' group not reached") > ENROL_TRIES)
        assert not one.group.members
        one.records.refusing = set()
        await until(lambda: one.owners == (1, 1, 1, 1))

    run(test)


# ---- versions before this one
def old(node_id: int) -> bytes:
    return json.dumps({"node_id": node_id, "host": "old", "port": 7}).encode()


async def joined_by(one: Sidecar, metadata: bytes) -> OtherMember:
    before = len(one.assigned)
    found = OtherMember(one.group, metadata)
    await until(lambda: one.has_assignment_after(before) and one.group.stable)
    return found


def test_an_older_version_counts_by_its_word_while_its_node_has_no_record() -> None:
    async def test(brokers: FakeBrokers, make: Make) -> None:
        one = make(1)
        await until(lambda: one.assigned)
        await one.records.claim(2)
        await one.records.claim(7, epoch=2)
        await joined_by(one, old(2))
        assert one.owners == BOTH, "its last claim is an hour old at most"
        await one.records.claim(1, epoch=3)
        await joined_by(one, SAYS)
        assert one.owners == BOTH and one.assigned[-1].members[1][0] == "member-1", "node 1 has been upgraded"
        assert one.ownership.map_check.double == ""

    run(test)


def test_an_older_version_that_has_claimed_nothing_for_a_day_does_not_count() -> None:
    async def test(brokers: FakeBrokers, make: Make) -> None:
        one = make(1)
        await until(lambda: one.assigned)
        await one.records.claim(2, ago_ms=CLAIMED_LATELY_MS + 1_000)
        await one.records.claim(1, epoch=2)
        await joined_by(one, old(2))
        assert one.owners == (1, 1, 1, 1)

    run(test)


def test_an_older_version_may_lead() -> None:
    async def test(brokers: FakeBrokers, make: Make) -> None:
        group, told = group_of(brokers), Assignment(0, (2, 2, 1, 2), {2: ("member-1", "old", 7)}).encode()
        leader = OtherMember(group, old(2), told)
        one = make(1)
        await one.records.claim(2)
        await until(lambda: one.assigned)
        assert one.owners == (2, 2, 1, 2) and leader.member_id in group.members

    run(test)


# ---- and back to one of them
@pytest.fixture
def clock_skew_ms(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """[milliseconds that the roster's wall clock is ahead]"""
    by = [0]
    monkeypatch.setattr(roster, "wall_ms", lambda: wall_ms() + by[0])
    return by


async def left_alone(make: Make, orderly: bool = True) -> Sidecar:
    """Returns the first of two sidecars after the second one has left or was killed."""
    one, two = make(1), make(2)
    await one.records.claim(2)
    await agree(one, two)
    if orderly:
        claimed_ms = wall_ms()
        await until(lambda: wall_ms() > claimed_ms)
        await two.ownership.stop()
    else:
        one.group.expel(two.ownership.member_id)
        await two.ownership.stop(for_good=False)
    await until(lambda: one.owners == (1, 1, 1, 1) and one.group.stable)
    return one


def test_an_older_version_comes_in_the_place_of_a_sidecar_that_left(clock_skew_ms: list[int]) -> None:
    async def test(brokers: FakeBrokers, make: Make) -> None:
        one = await left_alone(make)
        await joined_by(one, old(2))
        assert one.owners == BOTH and one.lines.events("error") == []
        await one.records.claim(2, partition=1)
        clock_skew_ms[0], known = LEFT_LATELY_MS, len(one.assigned)
        one.ownership.place_anew()
        await until(lambda: one.group.stable and one.has_assignment_after(known))
        assert one.owners == BOTH, "it has claimed what it was given"
        make(2)
        await until(lambda: one.group.stable and one.owners == BOTH and one.assigned[-1].members[2][1] != "old")

    run(test)


def test_whoever_comes_a_while_after_a_sidecar_left_is_a_stranger(clock_skew_ms: list[int]) -> None:
    """A claim of before it left says nothing of who comes afterwards, however young it is."""

    async def test(brokers: FakeBrokers, make: Make) -> None:
        one = await left_alone(make)
        stranger = await joined_by(one, old(2))
        assert one.owners == BOTH
        clock_skew_ms[0] = LEFT_LATELY_MS
        one.ownership.place_anew()
        await until(lambda: one.owners == (1, 1, 1, 1))
        assert stranger.member_id in one.group.members, "it has claimed nothing of what it was given"

    run(test)


def test_nobody_comes_in_the_place_of_a_sidecar_that_was_killed() -> None:
    async def test(brokers: FakeBrokers, make: Make) -> None:
        one = await left_alone(make, orderly=False)
        await joined_by(one, old(2))
        assert one.owners == (1, 1, 1, 1)

    run(test)


def test_records_of_former_members_go_wherever_they_stand() -> None:
    async def test(brokers: FakeBrokers, make: Make) -> None:
        one = make(1)
        one.records.refusing = {1}
        await until(lambda: one.assigned)
        await one.ownership.stop()
        one.records.refusing = set()
        again = make(1)
        await until(lambda: again.assigned)
        assert set(one.records.stand()) == {"member-2"}, "the former one stands in another partition"

    run(test)


def test_a_record_has_the_revision_after_the_one_before() -> None:
    """Symptom: the audit missed a record, where there was none, after a sidecar had left and come again."""

    async def test(brokers: FakeBrokers, make: Make) -> None:
        one = make(1)
        await until(lambda: one.assigned)
        await one.ownership.stop()
        again = make(1)
        await until(lambda: again.assigned)
        assert one.records.revisions("member-1") == [1, 2, 3], "it has come, left, and is removed"

    run(test)
