"""The coordinator stays informed: views, settings, the broker that goes and comes back, and the words of /readyz."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sidecar.coordinator.membership.peer_links import PeerSettings
from sidecar.coordinator.membership.ports import OwnershipSettings
from sidecar.core.vocabulary.errors import Code
from sidecar.link.messages import BrokerSilence
from sidecar.state.codec import Stamp
from sidecar.state.keys import decode_key
from sidecar.wire.apis import Api
from tests.coordinator.runtime.watched import GONE, Bench, run, shorten_pauses
from tests.inprocess.broker import OFFSETS, STATE, TRANSACTIONS, FakeBrokers
from tests.inprocess.embedded_sidecar import until
from tests.inprocess.faults import ALWAYS, Fault
from tests.inprocess.messages import join


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_pauses(monkeypatch)


def test_partitions_that_are_added_to_the_state_topic_change_nothing_while_a_sidecar_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that starts afterwards says both numbers (test_startup.py)."""

    async def test(b: Bench) -> None:
        await until(lambda: b.sidecar.service.serving() == [0, 1] and b.problems == [])
        b.brokers.topics[STATE].leaders.append(1)
        looked = b.brokers.count(Api.METADATA)
        await until(lambda: b.brokers.count(Api.METADATA) > looked + 5)
        assert b.sidecar.service.serving() == [0, 1] and b.problems == []
        b.brokers.topics[STATE].leaders[:2] = [2, 1]
        reply = await (await b.sidecar.client()).ask(join("g", "m1"), 1)
        assert reply.error_code == Code.NONE, "and leaders of its partitions are followed"

    run(test, monkeypatch)


# ---- views
def test_the_view_names_owners_leaders_brokers_and_authorizer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(b: Bench) -> None:
        await until(lambda: b.views()[-1].owners == (1, 1) and not b.views()[-1].authorizer)
        view = b.views()[-1]
        assert view.leaders == (1, 2)
        assert view.brokers == {1: ("broker-1", 9092), 2: ("broker-2", 9092)}

    run(test, monkeypatch)


def test_a_view_is_shown_once_however_often_it_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(b: Bench) -> None:
        await until(lambda: b.sidecar.service.serving() == [0, 1] and not b.views()[-1].authorizer)
        before, looked = len(b.views()), b.brokers.count(Api.METADATA)
        await until(lambda: b.brokers.count(Api.METADATA) > looked + 5)
        assert len(b.views()) == before
        b.brokers.topics[OFFSETS].leaders[1] = 1
        await until(lambda: b.views()[-1].leaders == (1, 1))
        assert len(b.views()) == before + 1

    run(test, monkeypatch)


def test_fronts_hear_which_kinds_of_groups_another_sidecar_does_not_coordinate(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(b: Bench) -> None:
        await until(lambda: b.sidecar.service.serving() == [0, 1])
        assert b.views()[-1].lacking == (), "this sidecar's own settings say what it coordinates"
        mine = b.watch.ownership.assignment
        both = replace(mine, members={**mine.members, 2: ("other", "h", 1)})
        b.watch.owners_assigned(both)
        await until(lambda: b.views()[-1].lacking == ("share",))
        told = b.sidecar.lines.fields("groups of a kind wait")
        assert (told["kind"], told["nodes"]) == ("share", [2])
        b.watch.owners_assigned(replace(both, kinds={2: ("classic", "consumer", "share")}))
        await until(lambda: b.views()[-1].lacking == ())

    owners = OwnershipSettings("owners", 2_000, 5, PeerSettings(links=False), kinds=("classic", "consumer", "share"))
    run(test, monkeypatch, ownership=owners)


def claimed_by_two(b: Bench, partition: int) -> None:
    """Node 2 has this partition, as its claim tells."""
    claim = b.sidecar.codec.claim(Stamp(1 << 40, 1), 2, "h:1", "m", 1, "assigned", None)
    assert claim.value is not None
    b.sidecar.state.partitions[partition].claims[decode_key(claim.key).sub_id] = claim.value
    b.watch.from_tail.claim_read(partition)


def test_a_sidecar_that_has_just_started_learns_from_claims_who_owns_what(monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: a worker was killed, and clients of groups that had moved asked the next one for their coordinator. They
    heard COORDINATOR_NOT_AVAILABLE until it was in the owners' group, some seconds after it had read who owns what."""

    def prepare(brokers: FakeBrokers) -> None:
        brokers.faults.hang(Api.JOIN_GROUP)

    async def test(b: Bench) -> None:
        claimed_by_two(b, 1)
        assert b.sidecar.coordinator.view.owners == (-1, -1), "a later claim may come"
        b.watch.from_tail.tail_read(1)
        b.watch.from_tail.tail_read(0)
        await until(lambda: b.problems == ["no owner is known yet"])
        assert b.sidecar.coordinator.view.owners == (-1, 2)
        claimed_by_two(b, 0)
        assert b.sidecar.coordinator.view.owners == (2, 2)

    run(test, monkeypatch, prepare, slow_tail=True)


def test_a_sidecar_that_the_owners_group_refuses_is_not_ready_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    refusals: list[Fault] = []

    def prepare(brokers: FakeBrokers) -> None:
        refusals.append(brokers.faults.fail(Api.JOIN_GROUP, Code.GROUP_MAX_SIZE_REACHED, ALWAYS))

    async def test(b: Bench) -> None:
        await until(lambda: len(b.problems) == 2)
        refused = "this sidecar cannot join the owners' group: JoinGroup: GROUP_MAX_SIZE_REACHED"
        assert b.problems == ["no owner is known yet", refused]
        refusals[0].end()
        await until(lambda: b.problems == [])

    run(test, monkeypatch, prepare)


def test_a_sidecar_that_was_lost_learns_from_claims_who_owns_what(monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: two sidecars were out of the owners' group for 17 s. All that time they told clients the owners of
    before, which were they themselves, and those refused with NOT_COORDINATOR."""

    async def test(b: Bench) -> None:
        await until(lambda: not b.problems)
        b.brokers.faults.hang(Api.JOIN_GROUP)
        b.brokers.faults.fail(Api.HEARTBEAT, Code.UNKNOWN_MEMBER_ID)
        await until(lambda: b.sidecar.coordinator.view.owners == (-1, -1))
        claimed_by_two(b, 1)
        assert b.sidecar.coordinator.view.owners == (-1, 2)

    run(test, monkeypatch)


# ---- the broker goes


def test_a_sidecar_that_has_withdrawn_learns_from_claims_who_has_taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(b: Bench) -> None:
        await until(lambda: not b.problems)
        b.sidecar.coordinator.from_front(b.front, BrokerSilence(9_000))
        await until(lambda: b.problems == [GONE])
        claimed_by_two(b, 1)
        assert b.sidecar.coordinator.view.owners == (-1, 2)

    run(test, monkeypatch, broker_gone_s=2.5)


# ---- why it is not ready
def test_before_the_first_map_there_is_no_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    def prepare(brokers: FakeBrokers) -> None:
        brokers.faults.hang(Api.JOIN_GROUP)

    async def test(b: Bench) -> None:
        assert b.problems == ["2 partitions of the state topic are being read"]
        await until(lambda: b.problems == ["no owner is known yet"])

    run(test, monkeypatch, prepare)


def test_partitions_that_are_being_taken_over_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    hung: list[Fault] = []

    def prepare(brokers: FakeBrokers) -> None:
        hung.append(brokers.faults.hang(Api.INIT_PRODUCER_ID, times=100))

    async def test(b: Bench) -> None:
        await until(lambda: b.sidecar.service.owner_map.owners)
        assert b.problems == ["2 partitions are being taken over"]
        hung[0].release()
        await until(lambda: not b.problems)

    run(test, monkeypatch, prepare)


def test_a_lease_that_is_over_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(b: Bench) -> None:
        await until(lambda: not b.problems)
        b.brokers.faults.drop(Api.HEARTBEAT, times=10_000)
        b.sidecar.service.lease.lost()
        assert b.problems == ["the lease on the owned partitions is not proved"]

    run(test, monkeypatch)


def test_a_sidecar_that_cannot_fence_says_why_and_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def prepare(brokers: FakeBrokers) -> None:
        del brokers.topics[TRANSACTIONS]

    async def test(b: Bench) -> None:
        await until(lambda: len(b.problems) == 2)
        loading, why = b.problems
        assert loading == "2 partitions are being taken over"
        assert why.startswith("partitions cannot be taken over: InitProducerId: coordinator of __group_state-")
        assert "transaction.state.log.replication.factor" in why
        await until(lambda: "partitions cannot be taken over" in b.sidecar.lines.events("warning"))
        told = b.sidecar.lines.fields("partitions cannot be taken over")
        assert told["partitions"] in (1, 2) and "transaction.state.log.min.isr" in str(told["problem"])
        b.brokers.add_topic(TRANSACTIONS, 1)
        await until(lambda: not b.problems)

    run(test, monkeypatch, prepare)


def test_what_hindered_a_takeover_is_forgotten_with_the_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by the simulation: a sidecar that owned nothing was not ready for ever, because of a partition that others
    had long taken over."""

    def prepare(brokers: FakeBrokers) -> None:
        del brokers.topics[TRANSACTIONS]

    async def test(b: Bench) -> None:
        await until(lambda: len(b.problems) == 2)
        b.brokers.faults.hang(Api.JOIN_GROUP)
        b.sidecar.coordinator.owners_lost("a test")
        assert b.problems == ["no owner is known yet"]

    run(test, monkeypatch, prepare)


def test_clients_are_served_when_nothing_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(b: Bench) -> None:
        b.brokers.add_topic("orders", 1)
        await until(lambda: not b.problems and "orders" in b.sidecar.service.owners[0].image.by_name)
        reply = await (await b.sidecar.client()).ask(join("g", "m1"), 1)
        assert reply.error_code == Code.NONE

    run(test, monkeypatch)
