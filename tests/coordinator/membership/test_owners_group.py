"""The sidecars' own group: joining, placement, losing it. See test_member_lease.py, test_peer_links.py, too."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from sidecar.coordinator.clock import now
from sidecar.coordinator.membership.join_trouble import AGAIN_S, REMEDIES
from sidecar.coordinator.membership.owners_group import PROTOCOL, PROTOCOL_TYPE, OwnersGroup
from sidecar.coordinator.membership.owners_protocol import Assignment
from sidecar.coordinator.membership.peer_links import Answers, PeerSettings
from sidecar.coordinator.membership.ports import OwnershipSettings
from sidecar.core.runtime.turn import Now
from sidecar.core.vocabulary.errors import Code
from sidecar.process.tasks import Supervisor
from sidecar.wire.apis import Api
from sidecar.wire.generated import join_group as jg
from tests.inprocess import clock
from tests.inprocess.broker import OFFSETS, FakeBrokers
from tests.inprocess.cluster import FakeCluster
from tests.inprocess.embedded_sidecar import Lines, turns, until
from tests.inprocess.faults import ALWAYS
from tests.inprocess.owners import ClassicGroup
from tests.inprocess.records import Records

GROUP = "__group_state_owners"
SESSION_MS = 2_000
SETTINGS = OwnershipSettings(GROUP, SESSION_MS, 5, PeerSettings(links=False))
BOTH = (1, 2, 1, 2)
"""The map of two sidecars."""


class Sidecar:
    """One sidecar's membership in the owners' group, with its log."""

    def __init__(
        self,
        brokers: FakeBrokers,
        node_id: int,
        address: tuple[str, int],
        s: OwnershipSettings,
        answers: Answers | None = None,
        records: Records | None = None,
    ) -> None:
        self.brokers = brokers
        self.assigned: list[Assignment] = []
        self.missed: list[bool] = []
        """For each map: whether there may have been one before that is not known here."""
        self.lost: list[str] = []
        self.suspects: list[frozenset[int]] = []
        self.told_of_topics = 0
        self.lease: list[tuple[int, float]] = []
        """Until when, and when that was said."""
        self.new: frozenset[int] = frozenset()
        """Partitions whose leaders are new."""
        self.waiting: set[int] = set()
        """Partitions with groups in the middle of a rebalance."""
        self.lines = Lines()
        self.records = Records()
        self.tasks = Supervisor()
        self.tasks.watch(asyncio.get_running_loop())
        self.cluster = FakeCluster(brokers, f"sidecar-{node_id}")
        self.roster = (records or Records()).roster(self.lines)
        told = (self, self.roster, self.lines, self.tasks, answers)
        self.ownership = OwnersGroup(self.cluster, node_id, address, s, *told)
        self.roster.came_late = self.ownership.place_anew
        self.ownership.take_part()

    # ---- the listener ----
    def owners_assigned(self, a: Assignment, missed: bool = False) -> None:
        self.assigned.append(a)
        self.missed.append(missed)

    def owners_lost(self, why: str) -> None:
        self.lost.append(why)

    def lease_proved(self, until: Now) -> None:
        self.lease.append((until.mono_ms, now().mono_ms))

    def peers_suspected(self, nodes: frozenset[int]) -> None:
        self.suspects.append(nodes)

    def topics_changed(self) -> None:
        self.told_of_topics += 1

    def offsets_leaders(self) -> Sequence[int]:
        return self.brokers.topics[OFFSETS].leaders

    def new_leaders(self) -> frozenset[int]:
        return self.new

    def barriers(self) -> set[int]:
        return self.waiting

    # ---- what a test asks ----
    @property
    def owners(self) -> tuple[int, ...]:
        return self.assigned[-1].owners if self.assigned else ()

    def has_assignment_after(self, generations: int) -> bool:
        return len(self.assigned) > generations

    def was_lost(self, times: int) -> bool:
        return len(self.lost) == times

    @property
    def group(self) -> ClassicGroup:
        return self.brokers.groups[GROUP]


Make = Callable[..., Sidecar]


def run(test: Callable[[FakeBrokers, Make], Coroutine[Any, Any, None]]) -> None:
    """`make(1)` starts the sidecar of node 1. At the end all are stopped, and none of their tasks may have broken."""

    async def main() -> None:
        brokers = FakeBrokers(nodes=(1, 2), partitions=4)
        records = Records()
        made: list[Sidecar] = []

        def make(
            node_id: int, settings: OwnershipSettings = SETTINGS, port: int = 9092, answers: Answers | None = None
        ) -> Sidecar:
            made.append(Sidecar(brokers, node_id, ("127.0.0.1", port), settings, answers, records))
            made[-1].records = records
            return made[-1]

        try:
            await test(brokers, make)
        finally:
            for sidecar in made:
                await sidecar.ownership.stop()
        assert not any(s.tasks.failed.done() for s in made)

    clock.run(main())


async def agree(one: Sidecar, two: Sidecar) -> None:
    await until(lambda: one.owners == two.owners == BOTH and one.group.stable)


# ---- joining
def test_the_first_sidecar_leads_and_owns_everything() -> None:
    async def test(brokers: FakeBrokers, make: Make) -> None:
        one = make(1)
        await until(lambda: one.assigned)
        assert one.owners == (1, 1, 1, 1) and one.ownership.is_leader
        assert one.assigned[0].generation == 1
        assert one.assigned[0].members == {1: ("member-1", "127.0.0.1", 9092)}
        first, second = brokers.requests(Api.JOIN_GROUP)
        assert (first.member_id, second.member_id) == ("", "member-1"), "the broker gives the member id first"
        assert (first.protocol_type, first.protocols[0].name) == (PROTOCOL_TYPE, PROTOCOL)

    run(test)


def test_a_second_one_follows_and_partitions_go_beside_their_leaders() -> None:
    async def test(brokers: FakeBrokers, make: Make) -> None:
        one = make(1)
        await until(lambda: one.assigned)
        two = make(2)
        await until(lambda: two.assigned and len(one.assigned) == 2)
        assert one.assigned[1] == two.assigned[0]
        assert two.owners == BOTH and two.assigned[0].generation == 2
        assert one.ownership.is_leader and not two.ownership.is_leader
        assert one.lost == [], "whoever joins again stays an owner meanwhile"

    run(test)


def test_each_sidecar_hears_which_groups_the_others_settings_name() -> None:
    async def test(brokers: FakeBrokers, make: Make) -> None:
        mine, theirs = ({"include": [name], "exclude": []} for name in ("a.*", "b.*"))
        one = make(1, replace(SETTINGS, patterns=mine))
        await until(lambda: one.assigned)
        two = make(2, replace(SETTINGS, patterns=theirs))
        await until(lambda: two.assigned and len(one.assigned) == 2)
        assert one.assigned[-1].patterns == two.assigned[-1].patterns == {1: mine, 2: theirs}
        old = {"owners": [1], "members": {"1": ["m", "h", 1]}}
        assert Assignment.decode(1, json.dumps(old).encode()).patterns == {}, "of a sidecar that does not tell them"

    run(test)


def test_each_sidecar_hears_which_kinds_of_groups_the_others_coordinate() -> None:
    async def test(brokers: FakeBrokers, make: Make) -> None:
        one = make(1, replace(SETTINGS, kinds=("classic", "consumer", "share")))
        await until(lambda: one.assigned)
        assert one.assigned[-1].lacking("share") == [] and one.assigned[-1].lacking("streams") == [1]
        two = make(2)
        await until(lambda: two.assigned and len(one.assigned) == 2)
        assert one.assigned[-1].lacking("share") == two.assigned[-1].lacking("share") == [2]
        old = {"owners": [1], "members": {"1": ["m", "h", 1]}}
        assert Assignment.decode(1, json.dumps(old).encode()).lacking("share") == [1], "its leader does not tell them"

    run(test)


def test_a_leader_that_moves_makes_the_leader_of_the_group_place_anew() -> None:
    async def test(brokers: FakeBrokers, make: Make) -> None:
        one, two = make(1), make(2)
        await agree(one, two)
        generation = one.assigned[-1].generation
        for sidecar in (one, two):
            sidecar.ownership.placement_changed()
        await asyncio.sleep(0.01)
        assert one.assigned[-1].generation == generation, "nothing has moved"
        brokers.topics[OFFSETS].leaders[0] = 2
        for new in (frozenset([0]), frozenset()):
            await asyncio.sleep(0.01)
            assert one.assigned[-1].generation == generation, "a new leader is not followed yet"
            for sidecar in (one, two):
                sidecar.new = new
                sidecar.ownership.placement_changed()
        await until(lambda: one.owners == two.owners == (2, 2, 1, 2))
        assert one.assigned[-1].generation == generation + 1

    run(test)


def test_a_partition_without_a_leader_stays_where_it_is() -> None:
    async def test(brokers: FakeBrokers, make: Make) -> None:
        one, two = make(1), make(2)
        await agree(one, two)
        brokers.topics[OFFSETS].leaders[1] = -1
        for sidecar in (one, two):
            sidecar.ownership.placement_changed()
        await asyncio.sleep(0.01)
        assert one.owners == BOTH

    run(test)


def test_members_that_are_no_sidecars_and_doubles_get_nothing() -> None:
    async def test(brokers: FakeBrokers, make: Make) -> None:
        one = make(1)
        await until(lambda: one.assigned)
        answers: list[Any] = []
        double = json.dumps({"node_id": 1, "host": "127.0.0.1", "port": 1}).encode()
        for metadata in (b"not JSON", b'{"node_id": 3}', double):
            one.group.join(jg.JoinGroupRequest(GROUP), answers.append)
            protocols = [jg.JoinGroupRequestProtocol(PROTOCOL, metadata)]
            named = jg.JoinGroupRequest(GROUP, member_id=answers[-1].member_id, protocols=protocols)
            one.group.join(named, answers.append)
        await until(lambda: len(one.assigned) == 2)
        assert one.owners == (1, 1, 1, 1) and one.assigned[-1].members == {1: ("member-1", "127.0.0.1", 9092)}
        assert one.lines.events("error") == ["a member of the owners' group is no sidecar"], "once for all"
        assert one.lines.events("warning") == [], "whose record is missing is no double"

    run(test)


def test_a_join_that_fails_is_tried_again() -> None:
    async def test(brokers: FakeBrokers, make: Make) -> None:
        brokers.faults.drop(Api.JOIN_GROUP)
        brokers.faults.fail(Api.SYNC_GROUP, Code.NOT_COORDINATOR)
        one = make(1)
        await until(lambda: one.assigned)
        assert one.lost == [] and one.lines.events().count("owners' group not reached") == 2

    run(test)


@pytest.mark.parametrize("code", [*REMEDIES, Code.UNKNOWN_SERVER_ERROR])
def test_a_refusal_that_lasts_is_reported_and_tried_less_often(code: Code) -> None:
    """Symptom: a sidecar whose session the brokers refused asked ten times a second for ever, and only the debug log
    had the reason."""

    async def test(brokers: FakeBrokers, make: Make) -> None:
        refused = brokers.faults.fail(Api.JOIN_GROUP, code, ALWAYS)
        one = make(1)
        end_s = time.monotonic() + 50
        await until(lambda: time.monotonic() > end_s)
        assert refused.met < 35
        assert one.lines.events("warning") == ["the owners' group refuses this sidecar"], "once a minute"
        told = one.lines.fields("the owners' group refuses this sidecar")
        assert told["problem"] == one.ownership.trouble.problem == f"JoinGroup: {code.name}" and told["remedy"]
        refused.end()
        await until(lambda: one.assigned)
        await turns()
        assert one.ownership.trouble.problem == ""

    run(test)


@pytest.mark.parametrize("code", [Code.COORDINATOR_LOAD_IN_PROGRESS, Code.NOT_COORDINATOR, Code.REBALANCE_IN_PROGRESS])
def test_an_error_that_ends_by_itself_is_tried_again_soon(code: Code) -> None:
    async def test(brokers: FakeBrokers, make: Make) -> None:
        brokers.faults.fail(Api.SYNC_GROUP, code, times=20)
        one, began_s = make(1), time.monotonic()
        await until(lambda: one.assigned)
        assert time.monotonic() - began_s < 30 * AGAIN_S and one.lines.events("warning") == []

    run(test)


def test_a_generation_that_is_over_while_it_is_synced_makes_the_sidecar_begin_anew() -> None:
    async def test(brokers: FakeBrokers, make: Make) -> None:
        brokers.faults.fail(Api.SYNC_GROUP, Code.ILLEGAL_GENERATION)
        one = make(1)
        await until(lambda: one.lost)
        assert one.lost == ["SyncGroup: ILLEGAL_GENERATION"] and not one.assigned

    run(test)


def test_a_map_of_a_later_generation_than_the_next_says_that_one_was_missed() -> None:
    async def test(brokers: FakeBrokers, make: Make) -> None:
        one, two = make(1), make(2)
        await agree(one, two)
        last = two.group.generation
        for generation, missed in ((last + 2, True), (last + 3, False)):
            two.group.generation = generation - 1
            two.group.rebalance()
            await until(lambda g=generation: two.assigned[-1].generation == one.assigned[-1].generation == g)  # type: ignore[misc]
            assert (one.missed[-1], two.missed[-1]) == (missed, missed)
        assert not any(one.missed[:-2])

        one.group.generation += 1
        one.group.expel(one.ownership.member_id)  # it is out, and has dropped everything: it has no last map
        await until(partial(one.was_lost, 1))
        await agree(one, two)
        assert one.missed[-1] is False and two.missed[-2:] != [False, False]

    run(test)


# ---- heartbeats
def test_a_join_that_the_broker_holds_back_does_not_hold_up_the_heartbeats() -> None:
    async def test(brokers: FakeBrokers, make: Make) -> None:
        one, two = make(1), make(2)
        await agree(one, two)
        hung = brokers.faults.hang(Api.JOIN_GROUP)
        one.group.rebalance()
        await until(lambda: hung.met)
        proved = len(one.lease), len(two.lease)
        await until(lambda: len(one.lease) > proved[0] + 2 and len(two.lease) > proved[1] + 2)
        hung.release()
        await until(lambda: one.assigned[-1].generation == two.assigned[-1].generation == one.group.generation)
        assert one.lost == [] and two.lost == []

    run(test)


# ---- losing it


def test_withdrawn_it_leaves_the_group_and_comes_back_when_it_resumes() -> None:
    async def test(brokers: FakeBrokers, make: Make) -> None:
        one = make(1)
        await until(lambda: one.assigned)
        two = make(2)
        await agree(one, two)
        for _ in range(2):
            two.ownership.withdraw("broker 2 does not answer")
        assert two.ownership.withdrawn and two.lost == ["broker 2 does not answer"]
        await until(lambda: one.owners == (1, 1, 1, 1))
        (left,) = brokers.requests(Api.LEAVE_GROUP)
        assert [m.member_id for m in left.members] == ["member-2"]
        maps = len(two.assigned)
        await asyncio.sleep(0.1)
        assert (len(two.assigned), len(one.group.members)) == (maps, 1), "it stays away"
        two.ownership.resume()
        await agree(one, two)

    run(test)


def test_withdrawn_while_it_joins_it_leaves_again() -> None:
    async def test(brokers: FakeBrokers, make: Make) -> None:
        hung = brokers.faults.hang(Api.SYNC_GROUP)
        one = make(1)
        await until(lambda: hung.met)
        one.ownership.withdraw("broker 1 does not answer")
        hung.release()
        await until(lambda: one.group.members == {})
        await turns()
        assert one.ownership.member_id == "" and one.ownership.withdrawn

    run(test)


def test_at_its_end_it_leaves_so_that_nobody_waits_for_its_session() -> None:
    async def test(brokers: FakeBrokers, make: Make) -> None:
        one, two = make(1), make(2)
        await agree(one, two)
        await one.ownership.stop()
        await until(lambda: two.owners == (2, 2, 2, 2))
        assert two.ownership.is_leader

    run(test)


def test_who_was_killed_is_not_waited_for_when_it_is_started_again() -> None:
    """Symptom: after all sidecars and brokers had been killed, the groups stood still for 6 s longer than Kafka's own.
    Cause: the brokers gave the members of the killed sidecars a new session, and the first join waited for them."""

    async def test(brokers: FakeBrokers, make: Make) -> None:
        killed, two = make(1), make(2)
        await agree(killed, two)
        for task in killed.ownership._tasks:
            task.cancel()
        again = make(1)
        await until(lambda: again.owners == two.owners == BOTH)
        (left,) = brokers.requests(Api.LEAVE_GROUP)
        assert [m.member_id for m in left.members] == [killed.ownership.member_id]
        assert len(again.group.members) == 2

    run(test)


# ---- what is told
def test_the_map_is_the_same_after_it_was_written_and_read() -> None:
    a = Assignment(7, (1, -1, 2), {1: ("m1", "h1", 1), 2: ("m2", "h2", 2)}, {}, {1: 7001, 2: 0})
    assert Assignment.decode(7, a.encode()) == a
