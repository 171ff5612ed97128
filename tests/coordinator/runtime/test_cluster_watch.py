"""What keeps the coordinator informed: views, settings, the broker that goes and comes back, and /readyz's words."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest

from sidecar.coordinator.membership.peer_links import PeerSettings
from sidecar.coordinator.membership.ports import OwnershipSettings
from sidecar.coordinator.runtime import cluster_watch as module
from sidecar.coordinator.runtime import coordinator as coordinator_module
from sidecar.coordinator.runtime.cluster_watch import Follower, FollowerSettings
from sidecar.coordinator.statelog import fenced_writer as writer_module
from sidecar.coordinator.statelog import startup as start
from sidecar.coordinator.statelog.startup import Control, StartSettings
from sidecar.coordinator.statelog.tail import Listener, StateLog
from sidecar.core.runtime import owner as owner_module
from sidecar.core.vocabulary.errors import Code
from sidecar.link.messages import BrokerSilence, SettingsPassed, View
from sidecar.state.codec import Stamp
from sidecar.state.keys import decode_key
from sidecar.wire.apis import Api
from tests.coordinator.seated import committed, joined
from tests.inprocess import clock
from tests.inprocess.broker import OFFSETS, STATE, TRANSACTIONS, FakeBrokers
from tests.inprocess.faults import Fault
from tests.inprocess.house import Heard, House, until
from tests.inprocess.messages import beat, join
from tests.inprocess.tail import FedTail

GONE = "the broker broker-1:9092 does not answer; this sidecar owns nothing until it does"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CONTROLLER_LAG_S", 0.002)
    monkeypatch.setattr(coordinator_module, "TICK_S", 0.005)
    monkeypatch.setattr(writer_module, "RETRY_S", 0.002)
    monkeypatch.setattr(writer_module, "INIT_S", 0.01)
    monkeypatch.setattr(owner_module, "RETRY_MS", 5)


class Bench:
    """A house whose owners' group, tail, settings and metadata are those of a real follower."""

    def __init__(self, house: House, follower: Follower, control: Control) -> None:
        self.house = house
        self.brokers = house.brokers
        self.follower = follower
        self.control = control
        self.front = Heard(house.coordinator)

    @property
    def problems(self) -> list[str]:
        return self.follower.problems()

    def views(self) -> list[View]:
        return self.front.of(View)


def run(
    test: Callable[[Bench], Coroutine[Any, Any, None]],
    monkeypatch: pytest.MonkeyPatch,
    prepare: Callable[[FakeBrokers], None] = lambda brokers: None,
    slow_tail: bool = False,
    **given: Any,
) -> None:
    """`given`: fields of `FollowerSettings`; `slow_tail`: the test says when the tail has come to the end."""

    async def whole() -> None:
        brokers = FakeBrokers(nodes=(1, 2), partitions=2)
        house = House(brokers, serve=False)
        brokers.readers.clear()
        monkeypatch.setattr(start, "BrokerConnection", house.cluster.connections)

        def tail(bootstrap: str, topic: str, client_id: str, log: StateLog, listener: Listener) -> FedTail:
            made = FedTail(topic, log, listener, slow_tail)
            brokers.readers.append(made.read)
            return made

        settings = StartSettings(1, brokers.address(1), True, "sidecar-1", 0.1, "owners", STATE, 0, 0)
        control = Control(settings, house.cluster)
        await control.look()
        prepare(brokers)
        owners = OwnershipSettings("owners", 2_000, 5, PeerSettings(links=False))
        follow = {
            "broker": "broker-1:9092",
            "tail_bootstrap": "",
            "tail_client_id": "",
            "same_listener": True,
            "metadata_refresh_s": 0.005,
            "settings_refresh_s": 60.0,
            "broker_gone_s": 0.03,
            "follow_leader_s": 0.0,
            "tail_wait_s": 60.0,
            "ownership": owners,
        }
        follower = Follower(
            FollowerSettings(**{**follow, **given}),
            control.view.leaders[OFFSETS],
            control,
            house.cluster,
            house.configs,
            house.state,
            house.coordinator,
            house.lines,
            house.tasks,
            tail,
        )
        house.link.serve(house.coordinator)
        try:
            await test(Bench(house, follower, control))
        finally:
            house.background.stop()
            await follower.stop(for_good=True)
        if house.tasks.failed.done():
            house.tasks.failed.result()

    clock.run(whole())


# ---- claims
@pytest.mark.parametrize(("theirs", "expected"), [("another", True), ("in-memory", False), (None, False)])
def test_a_claim_of_another_cluster_is_named(
    monkeypatch: pytest.MonkeyPatch, theirs: str | None, expected: bool
) -> None:
    async def test(b: Bench) -> None:
        await until(lambda: b.house.service.serving() == [0, 1])
        claim = b.house.codec.claim(Stamp(1 << 40, 1), 2, "h:1", "m", 1, "assigned", theirs)
        b.house.state.apply(0, 10_000, decode_key(claim.key), claim.value)
        b.follower.claim_read(0)
        said = "a sidecar of another cluster has claimed a partition" in b.house.lines.events("error")
        assert said == expected

    run(test, monkeypatch)


# ---- mistakes
def test_partitions_that_are_added_to_the_state_topic_change_nothing_while_a_sidecar_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that starts afterwards says both numbers (test_startup.py)."""

    async def test(b: Bench) -> None:
        await until(lambda: b.house.service.serving() == [0, 1] and b.problems == [])
        b.brokers.topics[STATE].leaders.append(1)
        looked = b.brokers.count(Api.METADATA)
        await until(lambda: b.brokers.count(Api.METADATA) > looked + 5)
        assert b.house.service.serving() == [0, 1] and b.problems == []
        b.brokers.topics[STATE].leaders[:2] = [2, 1]
        reply = await (await b.house.client()).ask(join("g", "m1"), 1)
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
        await until(lambda: b.house.service.serving() == [0, 1] and not b.views()[-1].authorizer)
        before, looked = len(b.views()), b.brokers.count(Api.METADATA)
        await until(lambda: b.brokers.count(Api.METADATA) > looked + 5)
        assert len(b.views()) == before
        b.brokers.topics[OFFSETS].leaders[1] = 1
        await until(lambda: b.views()[-1].leaders == (1, 1))
        assert len(b.views()) == before + 1

    run(test, monkeypatch)


def test_topics_reach_the_coordinator(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(b: Bench) -> None:
        await until(lambda: b.house.service.serving() == [0, 1])
        b.brokers.add_topic("orders", 3)
        await until(lambda: "orders" in b.house.service.owners[0].image.by_name)

    run(test, monkeypatch)


def test_leaders_come_from_whichever_broker_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a listener of their own the sidecar's clients ask other brokers too, when their own is gone."""

    async def test(b: Bench) -> None:
        await until(lambda: b.house.service.serving() == [0, 1])
        b.brokers.stop(1)
        b.brokers.topics[OFFSETS].leaders[0] = 2
        await until(lambda: b.views()[-1].leaders == (2, 2))

    run(test, monkeypatch, same_listener=False, broker_gone_s=60.0)


def test_leaders_are_asked_for_often_while_one_cannot_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: after the death of a broker commits were taken 1 to 4 s later than at Kafka's own coordinator. Cause:
    the new leader of the offsets was found at the next turn of a two-second round."""
    monkeypatch.setattr(module, "QUICK_S", 0.01)

    async def test(b: Bench) -> None:
        await until(lambda: b.house.service.serving() == [0, 1])
        b.brokers.topics[OFFSETS].leaders[1] = 1
        await asyncio.sleep(0.1)
        assert b.views()[-1].leaders == (1, 2)
        b.house.cluster._unreached_s[2] = time.monotonic()
        await until(lambda: b.views()[-1].leaders == (1, 1))
        asked = b.brokers.count(Api.METADATA)
        await asyncio.sleep(0.1)
        assert b.brokers.count(Api.METADATA) == asked, "broker 2 leads nothing any more"

    run(test, monkeypatch, metadata_refresh_s=60.0)


def test_leaders_are_asked_for_often_while_a_commit_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that stands still can be connected to, and nobody is told that another one leads now."""
    monkeypatch.setattr(module, "QUICK_S", 0.01)
    monkeypatch.setattr(module, "LATE_MS", 20)

    async def test(b: Bench) -> None:
        await until(lambda: b.house.service.serving() == [0, 1])
        b.brokers.topics[OFFSETS].leaders = [1, 1]
        await asyncio.sleep(0.1)
        assert b.views()[-1].leaders == (1, 2)
        b.brokers.faults.hang(Api.OFFSET_COMMIT)
        client, epoch = await joined(b.house)
        waiting = asyncio.create_task(committed(client, epoch))
        await until(lambda: b.views()[-1].leaders == (1, 1))
        waiting.cancel()

    run(test, monkeypatch, metadata_refresh_s=60.0)


def test_writers_are_told_who_leads_while_an_append_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its leader stands still: what was put to it is put to the next one, without waiting until it counts as lost."""
    monkeypatch.setattr(module, "QUICK_S", 0.01)
    monkeypatch.setattr(module, "LATE_MS", 20)

    async def test(b: Bench) -> None:
        await until(lambda: b.house.service.serving() == [0, 1])
        client, epoch = await joined(b.house)
        still = b.brokers.faults.hang(Api.PRODUCE)
        leaving = asyncio.create_task(client.ask(beat("g", "m1", -1), 1))
        await until(lambda: still.met == 1)
        b.brokers.topics[STATE].leaders = [3 - n for n in b.brokers.topics[STATE].leaders]
        assert (await leaving).error_code == Code.NONE
        assert epoch > 0 and len({a.node_id for a in b.brokers.asked[-20:] if a.api is Api.PRODUCE}) == 2

    run(test, monkeypatch, metadata_refresh_s=60.0)


def test_a_leader_is_new_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: when a broker came back, groups stood still for up to 9 s behind coordinators that were loading."""

    async def test(b: Bench) -> None:
        await until(lambda: b.house.service.serving() == [0, 1])
        await until(lambda: b.follower.new_leaders() == {1})  # nobody is there; leaders of the start are not new
        b.brokers.topics[OFFSETS].leaders[1] = 1
        await until(lambda: b.follower.offsets_leaders() == (1, 1))
        assert b.follower.new_leaders() == {1}
        await until(lambda: b.follower.new_leaders() == set())

    run(test, monkeypatch, follow_leader_s=0.1)


def test_a_sidecar_that_comes_back_is_new_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: an owner stood still for 13 s. When it woke, it was given its partitions back at once, in the middle of
    the rebalance that its absence had brought about."""

    async def test(b: Bench) -> None:
        await until(lambda: b.house.service.serving() == [0, 1])
        await until(lambda: b.follower.new_leaders() == {1})
        mine = b.follower.ownership.assignment
        for member_id in ("first", "again"):
            b.follower.owners_assigned(replace(mine, members={**mine.members, 2: (member_id, "h", 1)}))
            assert b.follower.new_leaders() == {1}
            joined_s = time.monotonic()
            await until(lambda: b.follower.new_leaders() == set())
            assert time.monotonic() - joined_s >= 0.1
            b.follower.owners_assigned(replace(mine, members={**mine.members, 2: (member_id, "h", 1)}))
            assert b.follower.new_leaders() == set(), "the same member in another generation"

    run(test, monkeypatch, follow_leader_s=0.1)


def test_fronts_hear_which_kinds_of_groups_another_sidecar_does_not_coordinate(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(b: Bench) -> None:
        await until(lambda: b.house.service.serving() == [0, 1])
        assert b.views()[-1].lacking == (), "this sidecar's own settings say what it coordinates"
        mine = b.follower.ownership.assignment
        both = replace(mine, members={**mine.members, 2: ("other", "h", 1)})
        b.follower.owners_assigned(both)
        await until(lambda: b.views()[-1].lacking == ("share",))
        told = b.house.lines.fields("groups of a kind wait")
        assert (told["kind"], told["nodes"]) == ("share", [2])
        b.follower.owners_assigned(replace(both, kinds={2: ("classic", "consumer", "share")}))
        await until(lambda: b.views()[-1].lacking == ())

    owners = OwnershipSettings("owners", 2_000, 5, PeerSettings(links=False), kinds=("classic", "consumer", "share"))
    run(test, monkeypatch, ownership=owners)


# ---- settings
def test_the_settings_are_read_at_once_when_a_change_passed_through(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(b: Bench) -> None:
        await until(lambda: b.house.configs._known.is_set())
        b.brokers.settings["group.consumer.session.timeout.ms"] = ("50000", 2)
        b.front.tell(SettingsPassed())
        await until(lambda: b.house.configs.effective()["group.consumer.session.timeout.ms"] == 50_000)
        asked = b.brokers.count(Api.DESCRIBE_CONFIGS)
        await until(lambda: b.brokers.count(Api.DESCRIBE_CONFIGS) > asked)  # and once more when the controller is done

    run(test, monkeypatch)


def test_an_authorizer_that_appears_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(b: Bench) -> None:
        await until(lambda: not b.views()[-1].authorizer)
        b.brokers.settings["authorizer.class.name"] = ("Standard", 4)
        await until(lambda: b.views()[-1].authorizer)

    run(test, monkeypatch, settings_refresh_s=0.01)


def test_settings_that_cannot_be_read_are_read_later(monkeypatch: pytest.MonkeyPatch) -> None:
    def prepare(brokers: FakeBrokers) -> None:
        brokers.faults.drop(Api.DESCRIBE_CONFIGS, times=2)

    async def test(b: Bench) -> None:
        await until(lambda: b.house.configs._known.is_set())
        assert b.house.lines.events("debug").count("settings not read") == 2

    run(test, monkeypatch, prepare, settings_refresh_s=0.01)


# ---- the broker goes
def test_without_its_broker_the_sidecar_withdraws_and_comes_back_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(b: Bench) -> None:
        await until(lambda: b.house.service.serving() == [0, 1])
        b.brokers.stop(1)
        await until(lambda: b.problems == [GONE])
        assert b.house.service.serving() == [] and not b.house.coordinator.leased()
        assert b.house.lines.fields("ownership lost")["why"] == "broker broker-1:9092 does not answer"
        await until(lambda: b.brokers.count(Api.LEAVE_GROUP))
        for topic in b.brokers.topics.values():
            topic.leaders = [2] * len(topic.leaders)
        b.brokers.start(1)
        await until(lambda: b.house.service.serving() == [0, 1] and b.problems == [])

    run(test, monkeypatch)


def test_it_withdraws_when_a_front_has_found_the_broker_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients wait meanwhile, and the next look at the topics may be far away."""

    async def test(b: Bench) -> None:
        await until(lambda: not b.problems)
        b.house.coordinator.from_front(b.front, BrokerSilence(2_000))
        await until(lambda: b.problems == [GONE], 0.6)
        assert b.house.coordinator.view.owners == (-1, -1), "nobody has claimed them yet"
        b.house.coordinator.from_front(b.front, BrokerSilence(-1))
        await until(lambda: not b.problems)

    run(test, monkeypatch, broker_gone_s=2.5)


def test_a_silence_that_ends_before_it_withdraws_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(b: Bench) -> None:
        await until(lambda: not b.problems)
        for quiet_ms in (2_000, -1):
            b.house.coordinator.from_front(b.front, BrokerSilence(quiet_ms))
        began_s = time.monotonic()
        await until(lambda: time.monotonic() - began_s > 2)
        assert not b.follower.ownership.withdrawn

    run(test, monkeypatch, broker_gone_s=2.5)


def test_a_sidecar_that_has_withdrawn_learns_from_claims_who_has_taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(b: Bench) -> None:
        await until(lambda: not b.problems)
        b.house.coordinator.from_front(b.front, BrokerSilence(9_000))
        await until(lambda: b.problems == [GONE])
        claim = b.house.codec.claim(Stamp(1 << 40, 1), 2, "h:1", "m", 1, "assigned", None)
        assert claim.value is not None
        b.house.state.partitions[1].claims[decode_key(claim.key).sub_id] = claim.value
        b.follower.claim_read(1)
        assert b.house.coordinator.view.owners == (-1, 2)

    run(test, monkeypatch, broker_gone_s=2.5)


def test_a_short_silence_of_the_broker_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(b: Bench) -> None:
        await until(lambda: b.house.service.serving() == [0, 1])
        lost = b.brokers.faults.drop(Api.METADATA, times=3)
        await until(lambda: lost.met == 3)
        await until(lambda: not b.problems)
        assert "ownership lost" not in b.house.lines.events()
        assert "metadata not refreshed" in b.house.lines.events("debug")

    run(test, monkeypatch, broker_gone_s=1.0)


# ---- a cold start
def test_a_sidecar_takes_part_when_it_has_read_the_state_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: a sidecar that was started again took partitions from an owner that knew them, and its groups stood
    still until it had read the whole topic (L2 of the safety review)."""

    async def test(b: Bench) -> None:
        assert not b.follower.ownership.takes_part and b.brokers.count(Api.JOIN_GROUP) == 0
        b.follower.tail_read(0)
        assert not b.follower.ownership.takes_part
        b.follower.tail_read(1)
        assert b.follower.ownership.takes_part
        await until(lambda: not b.problems)

    run(test, monkeypatch, slow_tail=True)


def test_a_partition_that_cannot_be_read_does_not_keep_the_others_waiting_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test(b: Bench) -> None:
        b.follower.tail_read(0)
        await until(lambda: "the state topic is not read to its end yet" in b.house.lines.events("warning"))
        assert b.house.lines.fields("the state topic is not read to its end yet")["partitions"] == 1
        await until(lambda: not b.problems)

    run(test, monkeypatch, slow_tail=True, tail_wait_s=0.05)


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
        await until(lambda: b.house.service.map)
        assert b.problems == ["2 partitions are being taken over"]
        hung[0].release()
        await until(lambda: not b.problems)

    run(test, monkeypatch, prepare)


def test_a_lease_that_is_over_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(b: Bench) -> None:
        await until(lambda: not b.problems)
        b.brokers.faults.drop(Api.HEARTBEAT, times=10_000)
        b.house.service._lease_until_ms = 0
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
        await until(lambda: "partitions cannot be taken over" in b.house.lines.events("warning"))
        told = b.house.lines.fields("partitions cannot be taken over")
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
        b.house.coordinator.owners_lost("a test")
        assert b.problems == ["no owner is known yet"]

    run(test, monkeypatch, prepare)


def test_clients_are_served_when_nothing_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(b: Bench) -> None:
        b.brokers.add_topic("orders", 1)
        await until(lambda: not b.problems and "orders" in b.house.service.owners[0].image.by_name)
        reply = await (await b.house.client()).ask(join("g", "m1"), 1)
        assert reply.error_code == Code.NONE

    run(test, monkeypatch)


def test_what_the_tail_finds_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(b: Bench) -> None:
        b.follower.tail_trouble("a damaged key")
        assert b.house.lines.fields("state tail") == {"problem": "a damaged key"}
        b.follower.tail_broke(KeyError("a bug"))
        assert b.house.tasks.failed.done()
        with pytest.raises(Exception, match="state-tail: KeyError"):
            b.house.tasks.failed.result()
        b.house.tasks.failed = asyncio.get_running_loop().create_future()

    run(test, monkeypatch)
