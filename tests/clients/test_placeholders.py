"""Offsets of a managed group do not expire while it lives, and the broker refuses what a former owner sends late.

Real brokers that forget offsets after a minute and look every five seconds, and hold back the first JoinGroup of a
group for 3 s, as they do by default. The groups whose offsets must live are there from the start of the module, so
that the other tests pass the time.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import pytest

from sidecar.core.runtime.offset_checks import MemberIdentity
from sidecar.core.vocabulary.errors import Code
from sidecar.drill.local import Broker, LocalKafka
from sidecar.drill.processes import DrillError, wait_until
from sidecar.kafka import placeholder_requests as ms
from sidecar.kafka.cluster import Cluster
from sidecar.kafka.net import BrokerConnection, ConnectionLost
from sidecar.wire.apis import Api, response_flexible
from sidecar.wire.frames import PREFIX, header_end, response_body
from sidecar.wire.generated import consumer_group_heartbeat as ch
from sidecar.wire.generated import init_producer_id as ip
from sidecar.wire.generated import join_group as jg
from sidecar.wire.generated import leave_group as lg
from sidecar.wire.generated import list_groups as ls
from sidecar.wire.generated import offset_commit as oc
from sidecar.wire.generated import offset_delete as od
from sidecar.wire.generated import offset_fetch as of
from sidecar.wire.generated import sync_group as sg
from sidecar.wire.generated import txn_offset_commit as tc
from tests.clients.ground import ENV, make_topic
from tests.clients.slow_line import Held, SlowLine
from tests.clients.wire import join_request
from tests.harness.worlds import heal

pytestmark = pytest.mark.tier("all")
T = TypeVar("T")
TOPIC, PARTITIONS = "kept", 4
FORGETFUL = {
    "offsets.retention.minutes": "1",
    "offsets.retention.check.interval.ms": "5000",
    "group.initial.rebalance.delay.ms": "3000",
}
LONG_ENOUGH_S = 100.0
"""The retention, and some sweeps."""
BEAT_S = 2.0


class WithLine(LocalKafka):
    """The first sidecar reaches its broker over a line that can be slow."""

    line: SlowLine | None = None

    def sidecar_settings(self, n: Broker) -> dict[str, str]:
        env = super().sidecar_settings(n)
        if n.node_id == 1:
            self.line = self.line or SlowLine(n.clients_port)
            env["SIDECAR_BROKER"] = f"127.0.0.1:{self.line.port}"
        return env


@dataclass
class Member:
    """A member of the consumer protocol, as far as commits need one."""

    kafka: LocalKafka
    group: str
    name: str = "m"
    epoch: int = 0

    async def beat(self, conn: BrokerConnection) -> int:
        req = (
            join_request(self.group, self.name, [TOPIC])
            if self.epoch == 0
            else ch.ConsumerGroupHeartbeatRequest(self.group, self.name, self.epoch)
        )
        res = await conn.request(ch, "ConsumerGroupHeartbeat", req)
        if res.error_code == Code.NONE:
            self.epoch = res.member_epoch
        return int(res.error_code)

    def owner(self, skip: int = -1) -> int:
        return self.kafka.owner_of(self.group, skip=skip).sidecar_port

    def join(self, skip: int = -1) -> None:
        """Join, or go on at a new owner."""
        wait_until("a heartbeat to be accepted", lambda: self._accepted(skip), 120)

    def _accepted(self, skip: int) -> bool:
        try:
            return at(self.owner(skip), self.beat) == Code.NONE and self.epoch > 0
        except (ConnectionLost, TimeoutError):
            return False

    def commit(self, offset: int, *partitions: int, skip: int = -1) -> set[int]:
        return at(self.owner(skip), lambda c: commit(c, self, offset, partitions or range(PARTITIONS)))

    def commit_in_the_end(self, offset: int, *partitions: int) -> None:
        """As a client does that looks for its coordinator when it has moved."""
        wait_until("the commit", lambda: self.commit(offset, *partitions) == {Code.NONE}, 120)

    def leave(self) -> None:
        gone = ch.ConsumerGroupHeartbeatRequest(self.group, self.name, -1)
        at(self.owner(), lambda c: c.request(ch, "ConsumerGroupHeartbeat", gone))


def at(port: int, talk: Callable[[BrokerConnection], Awaitable[T]]) -> T:
    async def run() -> T:
        conn = await BrokerConnection.open("127.0.0.1", port, "test")
        try:
            return await talk(conn)
        finally:
            conn.close()

    return asyncio.run(run())


async def commit(conn: BrokerConnection, m: Member, offset: int, partitions: object) -> set[int]:
    assert isinstance(partitions, range | tuple)
    parts = [oc.OffsetCommitRequestPartition(p, offset) for p in partitions]
    req = oc.OffsetCommitRequest(
        m.group, m.epoch, m.name, topics=[oc.OffsetCommitRequestTopic(TOPIC, partitions=parts)]
    )
    res = await conn.request(oc, "OffsetCommit", req, high=9, timeout_s=30)
    return {p.error_code for t in res.topics for p in t.partitions}


def at_broker(kafka: LocalKafka, talk: Callable[[BrokerConnection], Awaitable[T]], key: str, kind: int = 0) -> T:
    """On the internal listener of the broker that keeps the group's offsets, or (kind 1) knows the transactions."""

    async def run() -> T:
        bootstrap = [("127.0.0.1", n.internal_port) for n in kafka.nodes]
        cluster = Cluster(bootstrap, "test", {})
        try:
            return await talk(await cluster.coordinator(key, kind))
        finally:
            cluster.close()

    return asyncio.run(run())


def offsets(kafka: LocalKafka, group: str) -> list[int]:
    async def fetch(conn: BrokerConnection) -> list[int]:
        topic = of.OffsetFetchRequestTopics(TOPIC, partition_indexes=list(range(PARTITIONS)))
        req = of.OffsetFetchRequest(groups=[of.OffsetFetchRequestGroup(group, topics=[topic])])
        res = await conn.request(of, "OffsetFetch", req, high=9, low=8)
        parts = res.groups[0].topics[0].partitions
        return [p.committed_offset for p in sorted(parts, key=lambda p: p.partition_index)]

    return at_broker(kafka, fetch, group)


async def listed(conn: BrokerConnection, group: str) -> list[str]:
    """The state of the group, if it is managed, in a list of one or none."""
    res = await conn.request(ls, "ListGroups", ls.ListGroupsRequest())
    assert res.error_code == Code.NONE
    return [g.group_state for g in res.groups if g.group_id == group and g.group_type == "consumer"]


def looked(kafka: LocalKafka, group: str) -> ms.Looked:
    async def look(conn: BrokerConnection) -> ms.Looked:
        return (await ms.look(conn, [group], 10))[group]

    return at_broker(kafka, look, group)


def native_group(kafka: LocalKafka, group: str, offset: int) -> None:
    """A classic group that lives at the broker, commits, and stops."""

    async def stay_a_member(conn: BrokerConnection) -> None:
        req = jg.JoinGroupRequest(group, 10_000, 60_000, "", None, "consumer", [jg.JoinGroupRequestProtocol("range")])
        member = (await conn.request(jg, "JoinGroup", req)).member_id
        req.member_id = member
        joined = await conn.request(jg, "JoinGroup", req)
        assert joined.error_code == Code.NONE
        sync = sg.SyncGroupRequest(group, joined.generation_id, member, None, "consumer", "range")
        assert (await conn.request(sg, "SyncGroup", sync)).error_code == Code.NONE
        parts = [oc.OffsetCommitRequestPartition(p, offset) for p in range(PARTITIONS)]
        topics = [oc.OffsetCommitRequestTopic(TOPIC, partitions=parts)]
        done = oc.OffsetCommitRequest(group, joined.generation_id, member, topics=topics)
        res = await conn.request(oc, "OffsetCommit", done, high=9)
        assert {p.error_code for t in res.topics for p in t.partitions} == {Code.NONE}
        await conn.request(lg, "LeaveGroup", lg.LeaveGroupRequest(group, member, [lg.MemberIdentity(member)]), low=3)

    at_broker(kafka, stay_a_member, group)


def all_joined(kafka: LocalKafka, group: str) -> Member:
    """The member of a new group whose placeholder is at the broker; it has committed 5 everywhere."""
    m = Member(kafka, group)
    m.join()
    assert m.commit(5) == {Code.NONE}
    wait_until("the placeholder to join", lambda: looked(kafka, group).state == "Stable", 120)
    return m


def deleted(m: Member, *names: str) -> dict[str, int]:
    """The offset of partition 0 of these topics is to go; returns what is said of each."""

    async def delete(conn: BrokerConnection) -> dict[str, int]:
        topics = [od.OffsetDeleteRequestTopic(t, [od.OffsetDeleteRequestPartition(0)]) for t in names]
        res = await conn.request(od, "OffsetDelete", od.OffsetDeleteRequest(m.group, topics), timeout_s=30)
        assert res.error_code == Code.NONE
        return {t.name: t.partitions[0].error_code for t in res.topics}

    return at(m.owner(), delete)


class Keeper:
    """Heartbeats of members in the background, so that their groups live on."""

    def __init__(self) -> None:
        self.members: list[Member] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(BEAT_S):
            for m in list(self.members):
                try:
                    at(m.owner(), m.beat)
                except (ConnectionLost, TimeoutError, DrillError):
                    continue

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(30)


@dataclass
class Stage:
    kafka: WithLine
    since: float
    keeper: Keeper = field(default_factory=Keeper)

    @property
    def line(self) -> SlowLine:
        assert self.kafka.line is not None
        return self.kafka.line

    def group_of(self, node_id: int, prefix: str) -> str:
        """The name of a group that this sidecar owns."""
        names = (f"managed-{prefix}-{i}" for i in range(1000))
        return next(g for g in names if self.kafka.owner_of(g).node_id == node_id)


@pytest.fixture(scope="module")
def living_stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    kafka = WithLine(tmp_path_factory.mktemp("forgetful"), brokers=2, properties=FORGETFUL, sidecar_env=ENV)
    with kafka:
        kafka.wait_ready()
        make_topic(kafka, TOPIC, PARTITIONS)
        time.sleep(1)  # the sidecars read the topics every 0.3 s
        native_group(kafka, "managed-taken-in", 7)
        made = Stage(kafka, time.monotonic())
        for group in ("managed-idle", "managed-part", "managed-died", "managed-released"):
            m = Member(kafka, group)
            m.join()
            assert m.commit(100) == {Code.NONE}
            if group == "managed-died":
                m.leave()
            else:
                made.keeper.members.append(m)
        taken_in = Member(kafka, "managed-taken-in")
        taken_in.join()
        assert taken_in.commit(8, 0) == {Code.NONE}
        made.keeper.members.append(taken_in)
        yield made
        made.keeper.stop()


@pytest.fixture
def stage(living_stage: Stage) -> Iterator[Stage]:
    yield living_stage
    heal(living_stage.kafka)


def frame_of(held: Held) -> oc.OffsetCommitRequest | tc.TxnOffsetCommitRequest:
    module, name = (oc, "OffsetCommit") if held.api_key == Api.OFFSET_COMMIT else (tc, "TxnOffsetCommit")
    _, pos = header_end(held.frame, PREFIX.size, response_flexible(held.api_key, held.version))
    found: oc.OffsetCommitRequest | tc.TxnOffsetCommitRequest = getattr(module, f"{name}Request").decode(
        held.version, held.frame, pos
    )
    return found


def codes_of(held: Held) -> set[int]:
    module, name = (oc, "OffsetCommit") if held.api_key == Api.OFFSET_COMMIT else (tc, "TxnOffsetCommit")
    pos = response_body(held.answer, response_flexible(held.api_key, held.version))
    res = getattr(module, f"{name}Response").decode(held.version, held.answer, pos)
    return {p.error_code for t in res.topics for p in t.partitions}


def test_a_first_commit_does_not_wait_for_the_broker_to_begin_the_group(stage: Stage) -> None:
    m = Member(stage.kafka, "managed-new")
    m.join()
    begun = time.monotonic()
    assert m.commit(1) == {Code.NONE}
    assert time.monotonic() - begun < 2.0, "the broker holds JoinGroup back for 3 s"
    wait_until("the placeholder to join", lambda: looked(stage.kafka, m.group).state == "Stable", 120)
    assert m.commit(2) == {Code.NONE} and offsets(stage.kafka, m.group) == [2] * PARTITIONS
    m.leave()


def test_a_released_group_is_an_ordinary_one_at_once(stage: Stage) -> None:
    kafka = stage.kafka
    m = Member(kafka, "managed-given-up")
    m.join()
    assert m.commit(5) == {Code.NONE}
    simple = Member(kafka, m.group, "", -1)
    assert simple.commit(1) == {Code.UNKNOWN_MEMBER_ID}, "the group has a member"
    m.leave()
    assert simple.commit(6) == {Code.NONE}, "it has none any more"
    assert looked(kafka, m.group).state == "Empty" and offsets(kafka, m.group) == [6] * PARTITIONS
    native_group(kafka, m.group, 9)
    assert offsets(kafka, m.group) == [9] * PARTITIONS


def test_offsets_of_topics_that_nobody_subscribes_to_can_be_deleted_while_the_group_lives(stage: Stage) -> None:
    kafka = stage.kafka
    make_topic(kafka, "once", 1)
    m = Member(kafka, "managed-delete")
    m.join()
    assert m.commit(5) == {Code.NONE}

    assert deleted(m, "once", TOPIC) == {"once": Code.NONE, TOPIC: Code.GROUP_SUBSCRIBED_TO_TOPIC}
    assert m.commit(6) == {Code.NONE}
    assert offsets(kafka, m.group) == [6] * PARTITIONS
    m.leave()


def test_what_a_former_owner_let_pass_is_refused_by_the_broker_when_it_comes_late(stage: Stage) -> None:
    """Symptom: an acknowledged commit was lost. Check and append are two requests, and only the check was fenced."""
    kafka, line = stage.kafka, stage.line
    group = stage.group_of(1, "late")
    m = Member(kafka, group)
    m.join()
    assert m.commit(50) == {Code.NONE}
    wait_until("the placeholder to join", lambda: looked(kafka, group).state == "Stable", 120)
    former = kafka.nodes[0].sidecar
    assert former is not None

    async def producer(conn: BrokerConnection) -> tuple[int, int]:
        res = await conn.request(ip, "InitProducerId", ip.InitProducerIdRequest("late-txn", 60_000), high=4)
        assert res.error_code == Code.NONE
        return res.producer_id, res.producer_epoch

    async def leave_it_to(conn: BrokerConnection) -> None:
        """Both kinds of commit pass the check of the owner, which then falls asleep before they reach the broker.

        Each is for partitions of its own: of two connections' commits for one, the second waits for the first.
        """
        other = await BrokerConnection.open("127.0.0.1", kafka.nodes[0].sidecar_port, "test")
        first = asyncio.ensure_future(commit(conn, m, 100, range(1, PARTITIONS)))
        second = asyncio.ensure_future(other.request(tc, "TxnOffsetCommit", transactional(100), high=5, timeout_s=30))
        await asyncio.to_thread(wait_until, "both commits to be held", lambda: len(line.held) == 2, 20)
        former.signal(signal.SIGSTOP)
        await asyncio.to_thread(rejoin_and_commit)
        former.signal(signal.SIGCONT)
        codes = await asyncio.wait_for(first, 30)
        assert codes == {Code.NOT_COORDINATOR}, "the client hears nothing of the placeholder"
        told = await second
        assert {p.error_code for t in told.topics for p in t.partitions} == {Code.NOT_COORDINATOR}
        other.close()

    def transactional(offset: int) -> tc.TxnOffsetCommitRequest:
        topics = [tc.TxnOffsetCommitRequestTopic(TOPIC, partitions=[tc.TxnOffsetCommitRequestPartition(0, offset)])]
        return tc.TxnOffsetCommitRequest("late-txn", group, *ids, m.epoch, m.name, None, topics)

    def rejoin_and_commit() -> None:
        m.join(skip=1)
        assert m.commit(200, skip=1) == {Code.NONE}
        line.release()
        for held in line.held:
            assert held.answered.wait(10)
            assert codes_of(held) == {Code.FENCED_INSTANCE_ID}, Api(held.api_key).name
        assert offsets(kafka, group) == [200] * PARTITIONS
        sent = frame_of(next(h for h in line.held if h.api_key == Api.OFFSET_COMMIT))
        assert isinstance(sent, oc.OffsetCommitRequest) and sent.group_instance_id == ms.INSTANCE_ID
        identity = MemberIdentity(sent.member_id, sent.generation_id_or_member_epoch, sent.group_instance_id)
        beaten = at_broker(kafka, lambda c: ms.heartbeat(c, group, identity, 10), group)
        assert beaten == Code.FENCED_INSTANCE_ID

    ids = at_broker(kafka, producer, "late-txn", 1)
    line.hold(Api.OFFSET_COMMIT, Api.TXN_OFFSET_COMMIT)
    try:
        at(kafka.nodes[0].sidecar_port, leave_it_to)
    finally:
        line.release()
        former.signal(signal.SIGCONT)
    kafka.wait_ready(60)
    m.join()
    assert m.commit(300) == {Code.NONE} and offsets(kafka, group) == [300] * PARTITIONS
    m.leave()


def test_offsets_of_a_group_live_as_long_as_the_group(stage: Stage) -> None:
    """Symptom: a group that was taken in lost its offsets a retention later, because at the broker it was empty."""
    kafka = stage.kafka
    part = next(m for m in stage.keeper.members if m.group == "managed-part")
    committed = 100
    while time.monotonic() - stage.since < LONG_ENOUGH_S:
        committed += 1
        part.commit_in_the_end(committed, 0)
        time.sleep(BEAT_S)
    assert offsets(kafka, "managed-idle") == [100] * PARTITIONS
    assert offsets(kafka, "managed-part") == [committed, 100, 100, 100]
    assert offsets(kafka, "managed-taken-in") == [8, 7, 7, 7]
    assert offsets(kafka, "managed-died") == [-1] * PARTITIONS, "as the broker does with any group without members"
    released = next(m for m in stage.keeper.members if m.group == "managed-released")
    stage.keeper.members.remove(released)
    released.leave()
    wait_until("the placeholder to be given up", lambda: looked(kafka, released.group).state == "Empty", 10)
    assert offsets(kafka, released.group) == [100] * PARTITIONS


def test_a_group_without_members_is_forgotten_when_its_offsets_are_gone(stage: Stage) -> None:
    """As at Kafka: otherwise each console consumer would leave records in the state topic for ever."""
    kafka = stage.kafka
    kept, nothing = Member(kafka, "managed-kept"), Member(kafka, "managed-nothing")
    for m in (kept, nothing):
        m.join()

    def has_no_groups(group: str) -> bool:
        return at(kafka.owner_of(group).sidecar_port, lambda conn: listed(conn, group)) == []

    assert kept.commit(5) == {Code.NONE}
    assert not has_no_groups(kept.group) and not has_no_groups(nothing.group)
    for m in (kept, nothing):
        m.leave()
    wait_until("a group that never had offsets to go", lambda: has_no_groups(nothing.group), 120)
    assert not has_no_groups(kept.group)
    wait_until("a group whose member left first of all to go", lambda: has_no_groups("managed-died"), 2 * LONG_ENOUGH_S)
    assert offsets(kafka, kept.group) == [5] * PARTITIONS


def test_the_last_sidecar_leaves_ordinary_groups(stage: Stage) -> None:
    kafka = stage.kafka
    m = all_joined(kafka, "managed-last")
    for n in kafka.nodes:
        assert n.sidecar is not None
        assert n.sidecar.stop(timeout_s=60) == 0
    assert looked(kafka, m.group).state == "Empty" and offsets(kafka, m.group) == [5] * PARTITIONS
    native_group(kafka, m.group, 1000)
    assert offsets(kafka, m.group) == [1000] * PARTITIONS


def test_after_a_death_of_all_sidecars_a_group_can_be_released_by_hand(stage: Stage) -> None:
    kafka = stage.kafka
    m = all_joined(kafka, "managed-orphan")
    for n in kafka.nodes:
        assert n.sidecar is not None
        n.sidecar.kill()
    assert looked(kafka, m.group).state == "Stable"
    command = [sys.executable, "-m", "sidecar.cli.main", "release", "--bootstrap", kafka.internal.split(",")[0]]
    done = subprocess.run([*command, m.group, "managed-none"], capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stdout) == (0, f"{m.group}: released\nmanaged-none: no placeholder is there\n")
    native_group(kafka, m.group, 9)
    assert offsets(kafka, m.group) == [9] * PARTITIONS


@pytest.mark.tier("nightly")
def test_an_older_broker_does_the_same(tmp_path: Path) -> None:
    """3.9.1 has the group coordinator of before KIP-848."""
    with LocalKafka(tmp_path / "old", brokers=1, version="3.9.1", properties=FORGETFUL, sidecar_env=ENV) as kafka:
        kafka.wait_ready()
        make_topic(kafka, TOPIC, PARTITIONS)
        make_topic(kafka, "once", 1)
        time.sleep(1)  # the sidecar reads the topics every 0.3 s
        m = Member(kafka, "managed-old")
        m.join()
        assert m.commit(5) == {Code.NONE}
        wait_until("the placeholder to join", lambda: looked(kafka, m.group).state == "Stable", 120)
        assert m.commit(6) == {Code.NONE}
        simple = Member(kafka, m.group, "", -1)
        assert at_broker(kafka, lambda c: commit(c, simple, 1, range(1)), m.group) == {Code.UNKNOWN_MEMBER_ID}
        assert deleted(m, "once", TOPIC) == {"once": Code.NONE, TOPIC: Code.GROUP_SUBSCRIBED_TO_TOPIC}
        sidecar = kafka.nodes[0].sidecar
        assert sidecar is not None
        sidecar.kill()
        kafka.start_sidecar(kafka.nodes[0])
        kafka.wait_ready()
        m.join()
        assert m.commit(7) == {Code.NONE}
        m.leave()
        wait_until("the placeholder to be given up", lambda: looked(kafka, m.group).state == "Empty", 10)
        native_group(kafka, m.group, 9)
        assert offsets(kafka, m.group) == [9] * PARTITIONS
