"""Random scripts about topics, logs, producers, transactions with offsets, offsets and settings: what clients, careless
clients and operators might send, step by step. Groups with members have scripts of their own (tests/differential).

A step is a pure description. `DataSide` turns it into a request, with what its broker has answered so far, and tells
the answer in plain words: ids that a broker chooses are told by the names that the script has for them.
"""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any

from sidecar.kafka.net import BrokerConnection
from sidecar.state.batch import encode_batch
from sidecar.state.codec import Encoded
from sidecar.wire.generated import add_offsets_to_txn as ao
from sidecar.wire.generated import add_partitions_to_txn as ap
from sidecar.wire.generated import consumer_group_describe as cd
from sidecar.wire.generated import consumer_group_heartbeat as ch
from sidecar.wire.generated import consumer_protocol_subscription as cs
from sidecar.wire.generated import create_topics as ct
from sidecar.wire.generated import delete_groups as dl
from sidecar.wire.generated import delete_topics as dt
from sidecar.wire.generated import describe_configs as dc
from sidecar.wire.generated import describe_groups as dg
from sidecar.wire.generated import describe_transactions as dx
from sidecar.wire.generated import end_txn as et
from sidecar.wire.generated import find_coordinator as fc
from sidecar.wire.generated import incremental_alter_configs as ia
from sidecar.wire.generated import init_producer_id as ip
from sidecar.wire.generated import join_group as jg
from sidecar.wire.generated import leave_group as le
from sidecar.wire.generated import list_config_resources as lr
from sidecar.wire.generated import list_offsets as lo
from sidecar.wire.generated import metadata as md
from sidecar.wire.generated import offset_commit as oc
from sidecar.wire.generated import offset_delete as od
from sidecar.wire.generated import offset_fetch as of
from sidecar.wire.generated import produce as pr
from sidecar.wire.generated import sync_group as sg
from sidecar.wire.generated import txn_offset_commit as tc
from tests.differential.classic import REBALANCE_MS, SESSION_MS
from tests.differential.script import Step

TOPICS = ("a", "b")
PRODUCERS = ("p", "q")
"""Two producers with the same transactional id: each fences the other."""
AGAIN = (14, 15, 16, 51)
"""A coordinator that is loading, or a transaction that is being ended: asked again until it is done."""
TOPIC, GROUP = 2, 32
UNSTABLE = 88
DESCRIBE_TRANSACTIONS = 65
"""A simulated broker does not know it."""
ZERO = b"\0" * 16


def make_data(seed: int) -> list[Step]:
    rng = random.Random(seed)
    steps = [Step("create", "a", {"partitions": 2, "replicas": 1, "configs": {}}), Step("init", "p", {"version": 4})]
    for _ in range(rng.randint(15, 40)):
        steps.append(_step(rng))
    return [
        *steps,
        *(Step("ends", t) for t in TOPICS),
        Step("end", "p", {"version": 4, "commit": False}),
        Step("fetch"),
    ]


def _step(rng: random.Random) -> Step:
    what, topic, producer = rng.random(), rng.choice("aaab"), rng.choice(PRODUCERS)
    if what < 0.06:
        configs: dict[str, str] = rng.choice(
            ({}, {}, {"cleanup.policy": "compact"}, {"max.message.bytes": "300"}, {"no.such.thing": "1"})
        )
        options = {"partitions": rng.choice((1, 2, 3, -1, 0)), "replicas": rng.choice((1, 1, 1, -1, 2, 0))}
        return Step("create", rng.choice(("a", "b", "b", "wrong/name")), {**options, "configs": configs})
    if what < 0.09:
        return Step("drop", topic, {"by_id": rng.random() < 0.3})
    if what < 0.33:
        return _produce(rng, topic, producer)
    if what < 0.42:
        return Step(
            "init", producer, {"version": rng.choice((5, 4, 4, 3, 1)), "who": rng.choice(("", "", "own", "old"))}
        )
    if what < 0.67:
        return _transaction(rng, producer)
    if what < 0.76:
        options = {
            "version": rng.choice((10, 9, 8, 6, 2)),
            "offset": rng.randrange(100),
            "index": rng.choice((0, 1, 7)),
        }
        return Step("commit", topic, {**options, "generation": rng.choice((-1, -1, -1, 3))})
    if what < 0.81:
        return _member(rng, topic)
    if what < 0.88:
        version = rng.choice((10, 9, 8, 7, 5, 2, 1))
        return Step("fetch", options={"version": version, "stable": rng.random() < 0.7, "every": rng.random() < 0.3})
    return _operator(rng, topic)


def _produce(rng: random.Random, topic: str, producer: str) -> Step:
    options: dict[str, Any] = {
        "sequence": rng.choice((0,) * 10 + (1, -1, -2, 5)),
        "epoch": rng.choice((0,) * 12 + (1, -1)),
        "records": rng.choice((1, 1, 2, 3)),
        "acks": rng.choice((-1, -1, -1, 1)),
        "version": rng.choice((13, 12, 9, 9, 7, 3)),
        "index": rng.choice((0, 0, 0, 1, 9)),
    }
    if rng.random() < 0.06:
        options["wrong"] = rng.choice(("checksum", "large", "magic", "nobody"))
    return Step("produce", producer, {**options, "topic": topic})


def _transaction(rng: random.Random, producer: str) -> Step:
    epoch = rng.choice((0,) * 10 + (1, -1))
    what = rng.random()
    if what < 0.08:
        return Step(
            "add topic", producer, {"topic": rng.choice("aaab"), "index": rng.choice((0, 0, 9)), "epoch": epoch}
        )
    if what < 0.3:
        return Step("add", producer, {"epoch": epoch, "version": rng.choice((4, 3, 1))})
    if what < 0.65:
        options = {"epoch": epoch, "version": rng.choice((5, 5, 4, 3)), "offset": rng.randrange(100, 200)}
        return Step(
            "txn", producer, {**options, "generation": rng.choice((-1, -1, -1, 3)), "topic": rng.choice("aaab")}
        )
    return Step("end", producer, {"version": rng.choice((5, 5, 4, 3, 1)), "commit": rng.random() < 0.6, "epoch": epoch})


def _member(rng: random.Random, topic: str) -> Step:
    """The only member of the group, with a placeholder of its own."""
    what = rng.random()
    if what < 0.4:
        return Step("placeholder", topic, {"version": rng.choice((9, 7, 5)), "who": rng.choice(("", "", "own"))})
    if what < 0.6:
        return Step("placeholder commit", topic, {"by": rng.choice((0, 0, 0, 1)), "wrong": rng.random() < 0.2})
    if what < 0.75:
        return Step(
            "placeholder txn", rng.choice(PRODUCERS), {"by": rng.choice((0, 0, 1)), "version": rng.choice((5, 4, 3))}
        )
    if what < 0.9:
        return Step("placeholder leave")
    return Step("native", options={"epoch": rng.choice((1, -1))})


def _operator(rng: random.Random, topic: str) -> Step:
    what = rng.random()
    if what < 0.2:
        return Step("describe configs", topic, {"group": rng.random() < 0.5})
    if what < 0.45:
        group = rng.random() < 0.5
        names = ("consumer.session.timeout.ms", "consumer.heartbeat.interval.ms") if group else ("retention.ms",)
        value = rng.choice(("50000", "46000", "1", "x", None, "7000"))
        return Step("alter", topic, {"group": group, "name": rng.choice((*names, "nothing")), "value": value})
    if what < 0.55:
        return Step("offset delete", topic, {"index": rng.choice((0, 1, 7))})
    if what < 0.62:
        return Step("delete group")
    if what < 0.75:
        return Step("ends", topic)
    if what < 0.85:
        return Step("describe group", options={"version": rng.choice((6, 5, 3, 0))})
    return Step(rng.choice(("topics", "coordinator", "resources")), topic, {})


class DataSide:
    """One broker under the script."""

    def __init__(self, conn: BrokerConnection, name: str) -> None:
        self.conn, self.name = conn, name
        self.group = self.txn_id = f"data-{name}"
        self.producers: dict[str, tuple[int, int]] = {}
        self.former: dict[str, tuple[int, int]] = {}
        self.sequences: dict[tuple[str, str, int, int], int] = {}
        self.labels: dict[int, str] = {}
        self.ids: dict[str, bytes] = {}
        self.identity = (3, "nobody")
        """Generation and id of the member."""

    def topic(self, name: str) -> str:
        return f"{self.name}-{name}"

    def plain(self, text: str | None) -> str | None:
        return None if text is None else text.replace(self.name, "N")

    async def run(self, s: Step) -> object:
        answer: object = await getattr(self, f"do_{s.verb.replace(' ', '_')}")(s.member, **s.options)
        return answer

    async def ask(self, module: Any, name: str, request: Any, version: int | None = None) -> Any:
        return await self.conn.request(module, name, request, high=version, timeout_s=20)

    async def patiently(self, module: Any, name: str, request: Any, version: int, code: Any) -> Any:
        for _ in range(300):
            res = await self.ask(module, name, request, version)
            if code(res) not in AGAIN:
                break
            await asyncio.sleep(0.01)
        return res

    def label(self, producer_id: int) -> str:
        return "none" if producer_id < 0 else self.labels.setdefault(producer_id, f"id {len(self.labels)}")

    async def seen(self, name: str, there: bool) -> None:
        """Until the broker itself knows of the change."""
        topic = self.topic(name)
        for _ in range(200):
            res = await self.ask(md, "Metadata", md.MetadataRequest([md.MetadataRequestTopic(name=topic)], False))
            (t,) = res.topics
            ready = t.error_code == 0 and all(p.error_code == 0 for p in t.partitions)
            if (ready if there else t.error_code == 3) and (not there or t.topic_id != self.ids.get(name)):
                self.ids[name] = t.topic_id if there else self.ids.get(name, ZERO)
                break
            await asyncio.sleep(0.01)
        for _ in range(200 if there else 0):  # the leader may know of it a little later
            if all(code != 6 for _, code, _ in await self.do_ends(name)):
                break
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.03)

    # ---- topics ---------------------------------------------------------------------------------------------
    async def do_create(self, member: str, partitions: int, replicas: int, configs: dict[str, str]) -> object:
        rows = [ct.CreatableTopicConfig(n, v) for n, v in configs.items()]
        topic = ct.CreatableTopic(self.topic(member), partitions, replicas, [], rows)
        (r,) = (await self.ask(ct, "CreateTopics", ct.CreateTopicsRequest([topic], 10_000))).topics
        if r.error_code == 0:
            await self.seen(member, True)
        told = sorted((c.name, c.value, c.config_source, c.read_only) for c in r.configs or ())
        return r.error_code, self.plain(r.error_message), r.num_partitions, r.replication_factor, told

    async def do_drop(self, member: str, by_id: bool) -> object:
        state = dt.DeleteTopicState(self.topic(member))
        if by_id:
            state = dt.DeleteTopicState(None, self.ids.get(member, b"\x07" * 16))
        (r,) = (await self.ask(dt, "DeleteTopics", dt.DeleteTopicsRequest([state], [], 10_000))).responses
        if r.error_code == 0:
            await self.seen(member, False)
            for _ in range(100):  # its offsets go a little later
                rows = [r for name, rows in (await self.do_fetch(""))[1] if name == f"N-{member}" for r in rows]
                if all(r[1:3] == (0, -1) for r in rows):
                    break
                await asyncio.sleep(0.01)
        return r.error_code, self.plain(r.error_message), self.plain(r.name)

    async def do_topics(self, member: str) -> object:
        asked = [md.MetadataRequestTopic(name=self.topic(t)) for t in (*TOPICS, "no")]
        asked += [md.MetadataRequestTopic(name="not/legal")]
        res = await self.ask(md, "Metadata", md.MetadataRequest(asked, False, False, True))
        return sorted(
            (
                t.error_code,
                self.plain(t.name),
                t.is_internal,
                t.topic_authorized_operations,
                [(p.error_code, p.partition_index, p.leader_id, p.replica_nodes, p.isr_nodes) for p in t.partitions],
            )
            for t in res.topics
        )

    async def do_coordinator(self, member: str) -> object:
        req = fc.FindCoordinatorRequest(self.group, 0, [self.group, "", "other"])
        res = await self.ask(fc, "FindCoordinator", req, 4)
        return [(c.key == self.group, c.node_id, c.error_code) for c in res.coordinators]

    async def do_ends(self, member: str) -> list[tuple[int, int, int]]:
        """As a consumer asks, and as one that followers answer, too; and with leader epochs."""
        told = []
        for replica_id, epoch in ((-1, -1), (-2, -1), (-1, 0), (-1, 7), (-2, 7)):
            parts = [lo.ListOffsetsPartition(i, epoch, -1) for i in (0, 1, 9)]
            req = lo.ListOffsetsRequest(replica_id, 0, [lo.ListOffsetsTopic(self.topic(member), parts)])
            res = await self.ask(lo, "ListOffsets", req, 7)
            told += sorted((p.partition_index, p.error_code, p.offset) for t in res.topics for p in t.partitions)
        return told

    # ---- producers ------------------------------------------------------------------------------------------
    async def do_init(self, member: str, version: int, who: str = "") -> object:
        known = {"own": self.producers, "old": self.former}.get(who, {})
        producer_id, epoch = known.get(member, (-1, -1)) if version >= 3 else (-1, -1)
        req = ip.InitProducerIdRequest(self.txn_id, 60_000, producer_id, epoch)
        res = await self.patiently(ip, "InitProducerId", req, version, lambda r: r.error_code)
        if res.error_code == 0:
            self.former[member] = self.producers.get(member, (-1, -1))
            self.producers[member] = res.producer_id, res.producer_epoch
        return res.error_code, self.label(res.producer_id), res.producer_epoch

    async def do_produce(
        self,
        member: str,
        topic: str,
        sequence: int,
        epoch: int,
        records: int,
        acks: int,
        version: int,
        index: int,
        wrong: str = "",
    ) -> object:
        producer_id, own_epoch = self.producers.get(member, (7_777_777, 0))
        own_epoch = max(own_epoch + epoch, 0)
        place = (member, topic, index, own_epoch)
        first = max(self.sequences.get(place, 0) + sequence, 0)
        if wrong == "nobody":
            producer_id, own_epoch, first = -1, -1, -1
        value = bytes(2_000_000 if wrong == "large" else 8)
        rows = [Encoded(f"k{i}".encode(), value) for i in range(records)]
        raw = bytearray(encode_batch(rows, int(time.time() * 1000), producer_id, own_epoch, first))
        if wrong == "checksum":
            raw[-1] ^= 1
        data = pr.PartitionProduceData(index, bytes(raw))
        if wrong == "magic":
            raw[16] = 9
            data = pr.PartitionProduceData(index, bytes(raw))
        sent = pr.TopicProduceData(self.topic(topic), self.ids.get(topic, b"\x07" * 16), [data])
        res = await self.ask(pr, "Produce", pr.ProduceRequest(None, acks, 10_000, [sent]), version)
        (p,) = (p for t in res.responses for p in t.partition_responses)
        if p.error_code == 0 and not wrong:
            self.sequences[place] = first + records
        return p.error_code, p.base_offset, p.index

    # ---- transactions ---------------------------------------------------------------------------------------
    def _who(self, member: str, epoch: int) -> tuple[int, int]:
        producer_id, own_epoch = self.producers.get(member, (7_777_777, 0))
        return producer_id, max(own_epoch + epoch, 0)

    async def do_add(self, member: str, epoch: int, version: int) -> object:
        req = ao.AddOffsetsToTxnRequest(self.txn_id, *self._who(member, epoch), self.group)
        return (await self.patiently(ao, "AddOffsetsToTxn", req, version, lambda r: r.error_code)).error_code

    async def do_add_topic(self, member: str, topic: str, index: int, epoch: int) -> object:
        who, topics = self._who(member, epoch), [ap.AddPartitionsToTxnTopic(self.topic(topic), [index])]
        req = ap.AddPartitionsToTxnRequest([], self.txn_id, *who, topics)

        def code(res: Any) -> int:
            return int(res.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)

        return code(await self.patiently(ap, "AddPartitionsToTxn", req, 3, code))

    async def do_txn(
        self, member: str, epoch: int, version: int, offset: int, generation: int, topic: str, own: str = ""
    ) -> object:
        parts = [tc.TxnOffsetCommitRequestPartition(i, offset, -1, "m") for i in (0, 9)]
        topics = [tc.TxnOffsetCommitRequestTopic(self.topic(topic), partitions=parts)]
        who = self._who(member, epoch)
        req = tc.TxnOffsetCommitRequest(
            self.txn_id, self.group, *who, generation, own, "placeholder" if own else None, topics
        )

        def code(res: Any) -> int:
            codes = [p.error_code for t in res.topics for p in t.partitions]
            return next((c for c in codes if c in AGAIN), 0)

        res = await self.patiently(tc, "TxnOffsetCommit", req, version, code)
        return sorted((p.partition_index, p.error_code) for t in res.topics for p in t.partitions)

    async def do_end(self, member: str, version: int, commit: bool, epoch: int = 0) -> object:
        req = et.EndTxnRequest(self.txn_id, *self._who(member, epoch), commit)
        res = await self.patiently(et, "EndTxn", req, version, lambda r: r.error_code)
        if res.error_code == 0:
            await self._markers_written()
            if version >= 5:
                self.former[member] = self.producers.get(member, (-1, -1))
                self.producers[member] = res.producer_id, res.producer_epoch
        return res.error_code, self.label(res.producer_id), res.producer_epoch

    async def _markers_written(self) -> None:
        """Wait for the markers of the group's offsets and, where the broker tells its transactions, of all logs: the
        answer to EndTxn is older than they are."""
        for _ in range(200):
            rows = [row for _, topic in (await self.do_fetch(""))[1] for row in topic]
            if all(code != UNSTABLE for _, code, _, _ in rows) and not await self._is_being_ended():
                break
            await asyncio.sleep(0.01)

    async def _is_being_ended(self) -> bool:
        if not self.conn.offers(DESCRIBE_TRANSACTIONS, 0):
            return False
        res = await self.ask(dx, "DescribeTransactions", dx.DescribeTransactionsRequest([self.txn_id]))
        return any(t.transaction_state.startswith("Prepare") for t in res.transaction_states)

    # ---- a member -------------------------------------------------------------------------------------------
    async def do_placeholder(self, member: str, version: int, who: str) -> object:
        """Join and sync under an instance id; the subscription names one topic."""
        said = b"\0\1" + cs.ConsumerProtocolSubscription([self.topic(member)]).encode(1)
        protocols = [jg.JoinGroupRequestProtocol("range", said)]
        own = self.identity[1] if who == "own" else ""
        req = jg.JoinGroupRequest(self.group, SESSION_MS, REBALANCE_MS, own, "placeholder", "consumer", protocols)
        res = await self.ask(jg, "JoinGroup", req, version)
        told = res.error_code, res.generation_id, res.protocol_name, res.skip_assignment, len(res.members)
        if res.error_code:
            return told
        self.identity = res.generation_id, res.member_id
        given = [sg.SyncGroupRequestAssignment(m.member_id, b"mine") for m in res.members]
        synced = await self.ask(
            sg, "SyncGroup", sg.SyncGroupRequest(self.group, *self.identity, "placeholder", "consumer", "range", given)
        )
        return *told, synced.error_code, synced.assignment

    async def do_placeholder_commit(self, member: str, by: int, wrong: bool) -> object:
        generation, member_id = self.identity
        topic = oc.OffsetCommitRequestTopic(self.topic(member), partitions=[oc.OffsetCommitRequestPartition(0, 77)])
        who = generation + by, "somebody" if wrong else member_id, "placeholder"
        res = await self.ask(oc, "OffsetCommit", oc.OffsetCommitRequest(self.group, *who, -1, [topic]), 9)
        return [p.error_code for t in res.topics for p in t.partitions]

    async def do_placeholder_txn(self, member: str, by: int, version: int) -> object:
        return await self.do_txn(member, 0, version, 66, self.identity[0] + by, "a", self.identity[1])

    async def do_placeholder_leave(self, member: str) -> object:
        req = le.LeaveGroupRequest(self.group, "", [le.MemberIdentity("", "placeholder")])
        res = await self.ask(le, "LeaveGroup", req, 5)
        return res.error_code, [m.error_code for m in res.members]

    async def do_native(self, member: str, epoch: int) -> object:
        """A consumer that takes the group for one of the new protocol."""
        req = ch.ConsumerGroupHeartbeatRequest(self.group, "somebody", epoch)
        res = await self.ask(ch, "ConsumerGroupHeartbeat", req)
        (g,) = (await self.ask(cd, "ConsumerGroupDescribe", cd.ConsumerGroupDescribeRequest([self.group]))).groups
        return res.error_code, self.plain(res.error_message), g.error_code, self.plain(g.error_message), g.group_state

    # ---- offsets --------------------------------------------------------------------------------------------
    async def do_commit(self, member: str, version: int, offset: int, index: int, generation: int) -> object:
        parts = [oc.OffsetCommitRequestPartition(i, offset, committed_metadata="x") for i in {0, index}]
        topic = oc.OffsetCommitRequestTopic(self.topic(member), self.ids.get(member, b"\x07" * 16), parts)
        req = oc.OffsetCommitRequest(self.group, generation, "", None, -1, [topic])
        res = await self.ask(oc, "OffsetCommit", req, version)
        return sorted((p.partition_index, p.error_code) for t in res.topics for p in t.partitions)

    async def do_fetch(self, member: str, version: int = 9, stable: bool = True, every: bool = False) -> Any:
        every = every and version >= 2
        named = [of.OffsetFetchRequestTopics(self.topic(t), self.ids.get(t, b"\x07" * 16), [0, 1, 9]) for t in TOPICS]
        single = [of.OffsetFetchRequestTopic(t.name, t.partition_indexes) for t in named]
        group = of.OffsetFetchRequestGroup(self.group, None, -1, None if every else named)
        req = of.OffsetFetchRequest(self.group, None if every else single, [group], stable)
        res = await self.ask(of, "OffsetFetch", req, version)
        topics, code = (
            (res.groups[0].topics, res.groups[0].error_code) if version >= 8 else (res.topics, res.error_code)
        )
        names = {i: t for t, i in self.ids.items()}
        return code, sorted(
            (
                names.get(t.topic_id, "?") if version >= 10 else self.plain(t.name),
                sorted((p.partition_index, p.error_code, p.committed_offset, p.metadata) for p in t.partitions),
            )
            for t in topics
        )

    async def do_offset_delete(self, member: str, index: int) -> object:
        parts = [od.OffsetDeleteRequestPartition(i) for i in {0, index}]
        req = od.OffsetDeleteRequest(self.group, [od.OffsetDeleteRequestTopic(self.topic(member), parts)])
        res = await self.ask(od, "OffsetDelete", req)
        return res.error_code, sorted((p.partition_index, p.error_code) for t in res.topics for p in t.partitions)

    async def do_delete_group(self, member: str) -> object:
        res = await self.ask(dl, "DeleteGroups", dl.DeleteGroupsRequest([self.group]))
        return [r.error_code for r in res.results]

    async def do_describe_group(self, member: str, version: int) -> object:
        req = dg.DescribeGroupsRequest([self.group, f"{self.group}-no"])
        res = await self.ask(dg, "DescribeGroups", req, version)
        return sorted((g.error_code, self.plain(g.error_message), g.group_state, g.protocol_type) for g in res.groups)

    # ---- settings -------------------------------------------------------------------------------------------
    def _resource(self, member: str, group: bool) -> tuple[int, str]:
        return (GROUP, self.group) if group else (TOPIC, self.topic(member))

    async def do_describe_configs(self, member: str, group: bool) -> Any:
        resource = dc.DescribeConfigsResource(*self._resource(member, group), None)
        (r,) = (await self.ask(dc, "DescribeConfigs", dc.DescribeConfigsRequest([resource], True))).results
        told = sorted(
            (c.name, c.value, c.config_source, c.read_only, c.config_type, [(s.name, s.value) for s in c.synonyms])
            for c in r.configs
        )
        return r.error_code, self.plain(r.error_message), told

    async def do_alter(self, member: str, group: bool, name: str, value: str | None) -> object:
        """Alters a setting, and waits until the broker itself has heard of it."""
        change = ia.AlterableConfig(name, 1 if value is None else 0, value)
        resource = ia.AlterConfigsResource(*self._resource(member, group), [change])
        req = ia.IncrementalAlterConfigsRequest([resource])
        (r,) = (await self.ask(ia, "IncrementalAlterConfigs", req)).responses
        for _ in range(200):
            described = await self.do_describe_configs(member, group)
            held = {c[0]: c[1] if c[2] in (1, 8) else None for c in described[2]}
            if r.error_code or held.get(name) == value:
                break
            await asyncio.sleep(0.01)
        return r.error_code, self.plain(r.error_message)

    async def do_resources(self, member: str) -> object:
        res = await self.ask(lr, "ListConfigResources", lr.ListConfigResourcesRequest([]))
        mine = (self.plain(r.resource_name) for r in res.config_resources if self.name in r.resource_name)
        return res.error_code, sorted(str(name) for name in mine)
