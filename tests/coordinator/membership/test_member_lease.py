"""The lease of a sidecar as a member of the owners' group, and how long it lasts."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from functools import partial
from typing import Any, cast

import pytest

from sidecar.coordinator.clock import now
from sidecar.coordinator.membership.lease_commit import LeaseCommits
from sidecar.coordinator.membership.member_lease import MemberLease
from sidecar.core.runtime.lease import Lease
from sidecar.core.runtime.turn import Now
from sidecar.core.vocabulary.errors import Code
from sidecar.kafka.cluster import Cluster
from sidecar.kafka.net import BrokerConnection
from sidecar.wire.apis import Api
from sidecar.wire.generated import offset_commit as oc
from tests.coordinator.membership.test_owners_group import SESSION_MS, SETTINGS, Make, agree, run
from tests.inprocess import clock
from tests.inprocess.broker import FakeBrokers
from tests.inprocess.embedded_sidecar import Lines, until
from tests.inprocess.faults import ALWAYS


@pytest.mark.parametrize("api", [Api.SYNC_GROUP, Api.HEARTBEAT])
def test_the_lease_counts_from_when_the_brokers_were_asked(api: Api) -> None:
    async def test(brokers: FakeBrokers, make: Make) -> None:
        slow = brokers.faults.delay(api, 0.3, matches=lambda req: bool(req.member_id))
        one = make(1)
        await until(lambda: slow.met)
        asked_ms, had = time.monotonic() * 1000, len(one.lease)
        await until(lambda: len(one.lease) > had)
        until_ms, said_ms = one.lease[had]
        assert said_ms - asked_ms > 100
        assert until_ms - SESSION_MS <= asked_ms

    run(test)


def test_every_heartbeat_renews_the_lease() -> None:
    async def test(brokers: FakeBrokers, make: Make) -> None:
        one = make(1)
        await until(lambda: len(one.lease) >= 6)
        ends = [end for end, _ in one.lease]
        assert ends == sorted(ends) and len(set(ends[2:])) > 1
        assert brokers.count(Api.JOIN_GROUP) == 2

    run(test)


def test_a_coordinator_that_can_commit_nothing_is_believed_for_a_while_only() -> None:
    """Found by the simulated brokers: one that is cut off from the others answers heartbeats for ever, and so does one
    that is loading, while another one has given the partitions away."""

    async def test(brokers: FakeBrokers, make: Make) -> None:
        s = replace(SETTINGS, proof_ms=1_000)
        one = make(1, s)
        await until(lambda: brokers.count(Api.OFFSET_COMMIT) >= 2)
        await until(lambda: one.lease[-1][0] > one.lease[0][0] + 50)
        refused = brokers.faults.fail(Api.OFFSET_COMMIT, Code.NOT_ENOUGH_REPLICAS, times=10_000)
        await until(lambda: refused.met)
        said = len(one.lease)
        beats = brokers.count(Api.HEARTBEAT)
        await until(lambda: brokers.count(Api.HEARTBEAT) > beats + 200)
        last_ms = max(end for end, _ in one.lease)
        assert last_ms < time.monotonic() * 1000 + s.session_timeout_ms / 2, "heartbeats alone prove nothing for long"
        assert len(one.lease) >= said and one.lost == [], "it stays a member"

    run(test)


def test_a_lease_outlasts_the_coordinator_that_gave_it_while_other_brokers_answer() -> None:
    """The coordinator of the owners' group has died; the others name it until the controller has found that out."""

    async def test(brokers: FakeBrokers, make: Make) -> None:
        one = make(1, replace(SETTINGS, session_timeout_ms=500, proof_ms=3_000))
        await until(lambda: brokers.count(Api.OFFSET_COMMIT) >= 2)
        for api in (Api.HEARTBEAT, Api.OFFSET_COMMIT):
            brokers.faults.drop(api, times=ALWAYS)
        dead_ms = now().mono_ms
        await until(lambda: now().mono_ms > dead_ms + 1_500)
        assert one.lease[-1][0] > now().mono_ms, "its members are answered all the while"
        await until(lambda: now().mono_ms > dead_ms + 3_500)
        assert max(end for end, _ in one.lease) < dead_ms + 3_100, "and not longer than the heir waits with removals"

    run(test)


def test_a_sidecar_that_no_broker_answers_has_no_lease_after_a_session() -> None:
    async def test(brokers: FakeBrokers, make: Make) -> None:
        one = make(1, replace(SETTINGS, session_timeout_ms=500, proof_ms=3_000))
        await until(lambda: brokers.count(Api.OFFSET_COMMIT) >= 2)
        for api in (Api.HEARTBEAT, Api.OFFSET_COMMIT, Api.FIND_COORDINATOR):
            brokers.faults.drop(api, times=ALWAYS)
        dead_ms = now().mono_ms
        await until(lambda: now().mono_ms > dead_ms + 700)
        assert max(end for end, _ in one.lease) < dead_ms + 600

    run(test)


def test_commits_that_wait_for_a_dead_replica_do_not_hold_up_the_heartbeats() -> None:
    """Symptom: the death of any broker stopped the heartbeats of all groups for 3 to 9 s."""

    async def test(brokers: FakeBrokers, make: Make) -> None:
        one = make(1, replace(SETTINGS, proof_ms=3_000))
        await until(lambda: brokers.count(Api.OFFSET_COMMIT) >= 2)
        hung = brokers.faults.hang(Api.OFFSET_COMMIT)
        await until(lambda: hung.met)
        beats = brokers.count(Api.HEARTBEAT)
        await until(lambda: brokers.count(Api.HEARTBEAT) > beats + 20)
        hung.release()
        assert one.lost == []

    run(test)


def test_what_a_broker_remembers_of_a_generation_proves_nothing() -> None:
    """A broker that stood still and has lost its office answers JoinGroup and SyncGroup of a member that comes again
    from what it remembers; only a commit shows that it can write nothing any more."""

    async def test(brokers: FakeBrokers, make: Make) -> None:
        s = replace(SETTINGS, session_timeout_ms=500, proof_ms=1_000)
        one, two = make(1, s), make(2, s)
        await agree(one, two)
        follower = two if one.ownership.is_leader else one
        await until(lambda: follower.lease)
        brokers.faults.fail(Api.OFFSET_COMMIT, Code.NOT_ENOUGH_REPLICAS, times=ALWAYS)
        cut_ms = now().mono_ms
        while now().mono_ms < cut_ms + 1_500:
            known = len(follower.assigned)
            clock.block_loop(0.01)
            follower.ownership._rejoin.set()
            await until(partial(follower.has_assignment_after, known))
        assert follower.assigned[-1].generation == follower.assigned[-2].generation, "it is the one that is remembered"
        assert max(end for end, _ in follower.lease) < cut_ms + 1_100

    run(test)


def test_a_new_generation_is_confirmed_at_once() -> None:
    """The new generation is confirmed even if a commit of the generation before waits at a broker that is gone."""

    async def test(brokers: FakeBrokers, make: Make) -> None:
        s = replace(SETTINGS, session_timeout_ms=60_000, proof_ms=60_000)
        one = make(1, s)
        await until(lambda: one.assigned)
        hung = brokers.faults.hang(Api.OFFSET_COMMIT)
        one.ownership._lease_commits.at_once()
        await until(lambda: hung.met)
        hung.end()
        began_ms = now().mono_ms
        two = make(2, s)
        await agree(one, two)
        await until(lambda: brokers.count(Api.OFFSET_COMMIT) > hung.met)
        assert two.lease and now().mono_ms < began_ms + 2_000, "and not after the 4 s between two commits"

    run(test)


def test_a_commit_proves_only_the_generation_that_it_was_sent_in() -> None:
    """The member has joined anew while the commit was on its way: what was written is of the generation before."""

    members: list[tuple[str, int] | None] = []

    class Broker:
        """While it answers, the member becomes what is next in the list."""

        async def request(self, module: Any, name: str, req: Any, **given: Any) -> oc.OffsetCommitResponse:
            members.pop(0)
            part = oc.OffsetCommitResponsePartition(partition_index=0, error_code=Code.NONE)
            return oc.OffsetCommitResponse(topics=[oc.OffsetCommitResponseTopic(name="t", partitions=[part])])

    sent: list[Now] = []
    later: list[tuple[tuple[str, int] | None, bool]] = [(("m", 1), True), (("m", 2), False), (("n", 1), False)]
    for then, proves in [*later, (None, False)]:
        members[:] = [("m", 1), then]
        sent.clear()
        confirming = LeaseCommits(cast(Cluster, None), "g", "t", 1_000, lambda: members[0], sent.append, Lines())
        clock.run(confirming._commit(cast(BrokerConnection, Broker()), "m", 1))
        assert bool(sent) == proves


def test_a_join_that_is_refused_proves_nothing_and_changes_nothing() -> None:
    async def test(brokers: FakeBrokers, make: Make) -> None:
        one = make(1, replace(SETTINGS, session_timeout_ms=60_000, proof_ms=60_000))
        await until(lambda: one.lease)
        member_id, known = one.ownership.member_id, len(one.assigned)
        for api in (Api.HEARTBEAT, Api.OFFSET_COMMIT):
            brokers.faults.hang(api, times=ALWAYS)
        await asyncio.sleep(0.02)
        said = len(one.lease)
        refused = brokers.faults.fail(Api.JOIN_GROUP, Code.COORDINATOR_LOAD_IN_PROGRESS, times=2)
        hung = brokers.faults.hang(Api.SYNC_GROUP)
        one.ownership._rejoin.set()
        await until(lambda: refused.met == 2)
        assert len(one.lease) == said and one.ownership.member_id == member_id and len(one.assigned) == known
        await until(lambda: hung.met)
        hung.release()
        await until(lambda: len(one.assigned) > known)
        assert one.ownership.member_id == member_id and one.lost == []

    run(test)


def test_what_is_assigned_to_a_member_that_was_lost_meanwhile_does_not_count() -> None:
    """The member's broker was gone while its SyncGroup waited."""

    async def test(brokers: FakeBrokers, make: Make) -> None:
        one = make(1)
        await until(lambda: one.assigned)
        known = len(one.assigned)
        hung = brokers.faults.hang(Api.SYNC_GROUP)
        one.ownership._rejoin.set()
        await until(lambda: hung.met)
        one.ownership.withdraw("the broker is gone")
        hung.release()
        await asyncio.sleep(0.05)
        assert len(one.assigned) == known and one.lost[0] == "the broker is gone"
        one.ownership.resume()
        await until(lambda: len(one.assigned) > known)

    run(test)


def test_after_a_pause_of_the_machine_heartbeats_alone_prove_nothing() -> None:
    """Symptom: a machine with a sidecar and the coordinator of the owners' group stood still for a minute, and only the
    wall clock went on. Others had taken over, but heartbeats answered from memory made the lease valid again."""
    lease = Lease()
    member = MemberLease(6_000, 15_000, lambda until: lease.extended(until.mono_ms, until.wall_ms))
    member.answered(Now(1_000, 0), written=True)
    member.answered(Now(2_000, 1_000))
    assert lease.valid(Now(2_100, 1_100))
    for at_ms in range(2_200, 10_000, 500):
        member.answered(Now(at_ms, 60_000 + at_ms))
        assert not lease.valid(Now(at_ms + 1, 60_000 + at_ms + 1))
    member.answered(Now(10_000, 70_000), written=True)
    assert lease.valid(Now(10_001, 70_001))
