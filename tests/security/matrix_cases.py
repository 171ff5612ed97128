"""The requests of the matrix of rights: every API of groups, in the versions that behave differently."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sidecar.wire.frames import response_body
from sidecar.wire.generated import add_offsets_to_txn as ao
from sidecar.wire.generated import alter_configs as al
from sidecar.wire.generated import consumer_group_describe as cd
from sidecar.wire.generated import consumer_group_heartbeat as ch
from sidecar.wire.generated import delete_groups as dl
from sidecar.wire.generated import describe_configs as dc
from sidecar.wire.generated import describe_groups as dg
from sidecar.wire.generated import find_coordinator as fc
from sidecar.wire.generated import heartbeat as hb
from sidecar.wire.generated import incremental_alter_configs as ia
from sidecar.wire.generated import join_group as jg
from sidecar.wire.generated import leave_group as le
from sidecar.wire.generated import list_config_resources as lr
from sidecar.wire.generated import list_groups as lg
from sidecar.wire.generated import offset_commit as oc
from sidecar.wire.generated import offset_delete as od
from sidecar.wire.generated import offset_fetch as of
from sidecar.wire.generated import share_group_heartbeat as sh
from sidecar.wire.generated import streams_group_heartbeat as st
from sidecar.wire.generated import sync_group as sy
from sidecar.wire.generated import txn_offset_commit as tc
from tests.security.matrix_bench import ABSENT, LONG_MS, MINE, OPEN, OTHER, SECRET, TXN, Bench, Site, plain
from tests.security.passed import messages

ALL = (OPEN, SECRET, ABSENT)
BROKER, GROUP, STRANGE_ID = 4, 32, b"\7" * 16


@dataclass(frozen=True)
class Question:
    """One user asks one thing in one version at one place."""

    bench: Bench
    site: Site
    user: str
    version: int

    def at(self, label: str, whose: str = MINE) -> str:
        return self.bench.group(self.site, whose, label)

    def fresh(self, label: str, whose: str = MINE) -> str:
        return self.bench.fresh(self.site, label, whose)

    async def with_offsets(self, label: str) -> str:
        return await self.bench.with_offsets(self.site, self.fresh(label))

    async def ask(self, module: Any, name: str, req: Any, site: Site | None = None) -> Any:
        where = site or self.site
        conn = await self.bench.conn(self.user, where.port, where.protocol)
        return await conn.request(module, name, req, high=self.version, low=self.version, timeout_s=30)

    async def ask_passed(self, name: str, req: Any) -> Any:
        """The same of an API that passes."""
        key, module = messages(name)
        conn = await self.bench.conn(self.user, self.site.port, self.site.protocol)
        frame = await conn.raw(key, self.version, req.encode(self.version), flexible=True, timeout_s=30)
        return getattr(module, f"{name}Response").decode(self.version, frame, response_body(frame, True))


Ask = Callable[[Question], Awaitable[Any]]


@dataclass(frozen=True)
class Case:
    name: str
    versions: Sequence[int]
    ask: Ask
    users: str = "groups"
    passes: bool = False
    """The request passes to the broker unchanged."""


CASES: list[Case] = []


def case(name: str, *versions: int, users: str = "groups") -> Callable[[Ask], Ask]:
    def keep(ask: Ask) -> Ask:
        CASES.append(Case(name, versions, ask, users))
        return ask

    return keep


# ---- FindCoordinator and the classic protocol -----------------------------------------------------------------------
@case("FindCoordinator", 0, 1, 3, 4, 6)
async def find_coordinator(q: Question) -> Any:
    names = [q.at("offsets"), q.at("offsets", OTHER)]
    keys: Any = {"key": names[0]} if q.version < 4 else {"coordinator_keys": names}
    res = await q.ask(fc, "FindCoordinator", fc.FindCoordinatorRequest(**keys))
    return plain(res), (res.node_id >= 0) if q.version < 4 else [c.node_id >= 0 for c in res.coordinators]


PROTOCOLS = [jg.JoinGroupRequestProtocol("range", b"\0\0\0\0\0\0\xff\xff\xff\xff")]


@case("JoinGroup", 0, 3, 5, 7, 9)
async def join_group(q: Question) -> Any:
    req = jg.JoinGroupRequest(q.fresh("join"), LONG_MS, LONG_MS, "", None, "consumer", PROTOCOLS)
    res = await q.ask(jg, "JoinGroup", req)
    return plain(res), bool(res.member_id), len(res.members)


@case("JoinGroup of a member that is not there", 0, 7, 9)
async def join_group_unknown(q: Question) -> Any:
    req = jg.JoinGroupRequest(q.at("classic"), LONG_MS, LONG_MS, "nobody", None, "consumer", PROTOCOLS)
    return plain(await q.ask(jg, "JoinGroup", req))


@case("JoinGroup of another's group", 0, 9, users="some")
async def join_group_other(q: Question) -> Any:
    req = jg.JoinGroupRequest(q.at("classic", OTHER), LONG_MS, LONG_MS, "", None, "consumer", PROTOCOLS)
    return plain(await q.ask(jg, "JoinGroup", req))


@case("SyncGroup", 0, 3, 5)
async def sync_group(q: Question) -> Any:
    group = q.at("classic")
    member, generation = q.bench.members[group]
    kind, name = ("consumer", "range") if q.version >= 5 else (None, None)
    asked = [(group, generation, member), (group, generation, "nobody")]
    theirs = q.at("classic", OTHER)
    member, generation = q.bench.members[theirs]
    asked += [(theirs, generation, member), (q.at("nothing", OTHER), 1, "nobody")]
    return [plain(await q.ask(sy, "SyncGroup", sy.SyncGroupRequest(*a, None, kind, name))) for a in asked]


@case("SyncGroup without a protocol", 5)
async def sync_group_bare(q: Question) -> Any:
    return plain(await q.ask(sy, "SyncGroup", sy.SyncGroupRequest(q.at("classic"), 1, "nobody")))


@case("Heartbeat", 0, 3, 4)
async def heartbeat(q: Question) -> Any:
    group = q.at("classic")
    member, generation = q.bench.members[group]
    theirs = q.at("classic", OTHER)
    other, when = q.bench.members[theirs]
    asked = (
        (group, generation, member),
        (group, 1, "nobody"),
        (theirs, when, other),
        (q.at("nothing", OTHER), 1, "nobody"),
        (q.at("nothing"), 1, "nobody"),
        (q.at("offsets"), 0, ""),
    )
    return [plain(await q.ask(hb, "Heartbeat", hb.HeartbeatRequest(*a))) for a in asked]


@case("LeaveGroup", 0, 2, 3, 5)
async def leave_group(q: Question) -> Any:
    one: Any = {"member_id": "nobody"} if q.version < 3 else {"members": [le.MemberIdentity("nobody")]}
    groups = (q.at("classic"), q.at("consumer"), q.at("nothing"), q.at("classic", OTHER), q.at("consumer", OTHER))
    return [plain(await q.ask(le, "LeaveGroup", le.LeaveGroupRequest(g, **one))) for g in groups]


@case("LeaveGroup of a member", 0, 2, 3, 5)
async def leave_group_member(q: Question) -> Any:
    """Another one than it, at that: READ of the group is all it needs. Whoever may, does it once."""
    group = await q.bench.classic(q.site, q.fresh("leaves"))
    member, _ = q.bench.members[group]
    one: Any = {"member_id": member} if q.version < 3 else {"members": [le.MemberIdentity(member)]}
    return [plain(await q.ask(le, "LeaveGroup", le.LeaveGroupRequest(group, **one))) for _ in range(2)]


@case("LeaveGroup of a static member", 3, 4, 5)
async def leave_group_static(q: Question) -> Any:
    """As administrators remove one, by its instance id alone."""
    found = []
    for whose in (MINE, OTHER):
        group = await q.bench.classic(q.site, q.fresh("static", whose), "i-1")
        gone = [le.MemberIdentity("", "i-1", "of tests"), le.MemberIdentity("", "i-2", "of tests")]
        found.append(plain(await q.ask(le, "LeaveGroup", le.LeaveGroupRequest(group, members=gone))))
    return found


# ---- offsets ------------------------------------------------------------------------------------------------------
def to_commit(q: Question, group: str, epoch: int = -1, member: str = "") -> oc.OffsetCommitRequest:
    rows = [oc.OffsetCommitRequestPartition(0, 7)]
    if q.version >= 10:
        ids = (*q.bench.topic_ids.values(), STRANGE_ID)
        topics = [oc.OffsetCommitRequestTopic(topic_id=i, partitions=rows) for i in ids]
    else:
        topics = [oc.OffsetCommitRequestTopic(t, partitions=rows) for t in ALL]
    return oc.OffsetCommitRequest(group, epoch, member, topics=topics)


@case("OffsetCommit of nobody", 2, 6, 8, 10)
async def offset_commit(q: Question) -> Any:
    groups = (q.at("offsets"), q.at("classic"), q.at("offsets", OTHER))
    return [plain(await q.ask(oc, "OffsetCommit", to_commit(q, g))) for g in groups]


@case("OffsetCommit of a member", 2, 7, 9, 10)
async def offset_commit_member(q: Question) -> Any:
    found = []
    for group in (q.at("classic"), q.at("consumer") if q.version >= 9 else q.at("classic")):
        member, epoch = q.bench.members[group]
        for who, when in ((member, epoch), (member, epoch + 1), ("nobody", 1)):
            found.append(plain(await q.ask(oc, "OffsetCommit", to_commit(q, group, when, who))))
    return found


def to_fetch(q: Question, *groups: str, everything: bool = False, member: str | None = None) -> of.OffsetFetchRequest:
    if q.version < 8:
        old = [of.OffsetFetchRequestTopic(t, [0, 1]) for t in ALL]
        return of.OffsetFetchRequest(groups[0], None if everything else old)
    if q.version >= 10:
        ids = (*q.bench.topic_ids.values(), STRANGE_ID)
        topics = [of.OffsetFetchRequestTopics(topic_id=i, partition_indexes=[0, 1]) for i in ids]
    else:
        topics = [of.OffsetFetchRequestTopics(t, partition_indexes=[0, 1]) for t in ALL]
    epoch = -1 if member is None else 99
    asked = [of.OffsetFetchRequestGroup(g, member, epoch, None if everything else topics) for g in groups]
    return of.OffsetFetchRequest(groups=asked)


@case("OffsetFetch", 1, 2, 5, 7, 8, 9, 10)
async def offset_fetch(q: Question) -> Any:
    groups = (q.at("offsets"), q.at("classic"), q.at("nothing"), q.at("offsets", OTHER))
    return [plain(await q.ask(of, "OffsetFetch", to_fetch(q, g))) for g in groups]


@case("OffsetFetch of all topics", 2, 7, 8, 10)
async def offset_fetch_all(q: Question) -> Any:
    groups = (q.at("offsets"), q.at("nothing"), q.at("offsets", OTHER))
    return [plain(await q.ask(of, "OffsetFetch", to_fetch(q, g, everything=True))) for g in groups]


@case("OffsetFetch of several groups", 8, 9, 10)
async def offset_fetch_several(q: Question) -> Any:
    groups = (q.at("offsets"), q.at("offsets", OTHER), q.at("classic"), q.at("nothing"))
    return [plain(await q.ask(of, "OffsetFetch", to_fetch(q, *groups, everything=e))) for e in (True, False)]


@case("OffsetFetch of a member that is not there", 9, 10)
async def offset_fetch_member(q: Question) -> Any:
    groups = (q.at("consumer"), q.at("consumer", OTHER))
    return [plain(await q.ask(of, "OffsetFetch", to_fetch(q, g, member="nobody"))) for g in groups]


def to_delete(group: str) -> od.OffsetDeleteRequest:
    topics = [od.OffsetDeleteRequestTopic(t, [od.OffsetDeleteRequestPartition(0)]) for t in ALL]
    return od.OffsetDeleteRequest(group, topics)


@case("OffsetDelete", 0)
async def offset_delete(q: Question) -> Any:
    groups = (await q.with_offsets("bare"), q.at("classic"), q.at("nothing"), q.at("offsets", OTHER))
    return [plain(await q.ask(od, "OffsetDelete", to_delete(g))) for g in groups]


# ---- operators ------------------------------------------------------------------------------------------------------
@case("DeleteGroups", 0, 1, 2, 3)
async def delete_groups(q: Question) -> Any:
    groups = [await q.with_offsets("doomed"), q.at("classic"), q.at("nothing"), q.at("offsets", OTHER)]
    return plain(await q.ask(dl, "DeleteGroups", dl.DeleteGroupsRequest(groups)))


@case("DescribeGroups", 0, 3, 5, 6)
async def describe_groups(q: Question) -> Any:
    labels = ("offsets", "classic", "consumer", "nothing")
    groups = [*(q.at(label) for label in labels), q.at("classic", OTHER), q.at("nothing", OTHER)]
    several = plain(await q.ask(dg, "DescribeGroups", dg.DescribeGroupsRequest(groups, q.version >= 3)))
    return several, [plain(await q.ask(dg, "DescribeGroups", dg.DescribeGroupsRequest([g]))) for g in groups]


@case("ListGroups", 0, 3, 5)
@case("ListGroups of who may see the cluster", 0, 3, 5, users="cluster")
async def list_groups(q: Question) -> Any:
    res = await q.ask(lg, "ListGroups", lg.ListGroupsRequest())
    labels = (
        "classic",
        "consumer",
        "both-topics",
        "nothing",
    )  # of what has only offsets, the broker tells that has them
    here = {q.at(label, whose) for label in labels for whose in (MINE, OTHER)}
    return res.error_code, plain([g for g in res.groups if g.group_id in here])


@case("ConsumerGroupDescribe", 0, 1)
async def consumer_group_describe(q: Question) -> Any:
    labels = ("offsets", "classic", "consumer", "both-topics", "nothing")
    groups = [*(q.at(label) for label in labels), q.at("consumer", OTHER)]
    asked = (cd.ConsumerGroupDescribeRequest(groups, operations) for operations in (False, True))
    return [plain(await q.ask(cd, "ConsumerGroupDescribe", a)) for a in asked]


# ---- the consumer protocol ----------------------------------------------------------------------------------------
def joining(group: str, topics: list[str] | None, regex: str | None = None) -> ch.ConsumerGroupHeartbeatRequest:
    req = ch.ConsumerGroupHeartbeatRequest(group, str(uuid.uuid4()), 0, topic_partitions=[])
    req.rebalance_timeout_ms, req.subscribed_topic_names, req.subscribed_topic_regex = LONG_MS, topics, regex
    return req


def beaten(res: ch.ConsumerGroupHeartbeatResponse) -> Any:
    return res.error_code, plain(res.error_message), res.member_epoch


@case("ConsumerGroupHeartbeat", 0, 1)
async def consumer_group_heartbeat(q: Question) -> Any:
    found = []
    for names in ([OPEN], [OPEN, SECRET], [ABSENT], []):
        req = joining(q.fresh("beat"), names)
        if q.version == 0:
            req.member_id = ""
        found.append(beaten(await q.ask(ch, "ConsumerGroupHeartbeat", req)))
    groups = (q.at("consumer"), q.at("classic"), q.at("nothing"), q.at("consumer", OTHER))
    for group in groups:
        for topics in (None, [OPEN], [SECRET]):
            req = ch.ConsumerGroupHeartbeatRequest(group, "nobody", 5, subscribed_topic_names=topics)
            found.append(beaten(await q.ask(ch, "ConsumerGroupHeartbeat", req)))
    return found


@case("ConsumerGroupHeartbeat of a member", 0, 1)
async def consumer_group_heartbeat_member(q: Question) -> Any:
    """Sends a heartbeat, one for another topic, and one in a group on which the user has no right."""
    found = []
    for group in (q.at("consumer"), q.at("consumer", OTHER)):
        member, epoch = q.bench.members[group]
        for when, topics in ((epoch, None), (epoch, [OPEN]), (epoch, [SECRET]), (epoch + 1, None)):
            req = ch.ConsumerGroupHeartbeatRequest(group, member, when, subscribed_topic_names=topics)
            found.append(beaten(await q.ask(ch, "ConsumerGroupHeartbeat", req)))
    return found


@case("ConsumerGroupHeartbeat of a member that leaves", 0, 1)
async def consumer_group_heartbeat_leaves(q: Question) -> Any:
    found = []
    for whose in (MINE, OTHER):
        group = await q.bench.consumer(q.site, q.fresh("leaves", whose), OPEN)
        member, _ = q.bench.members[group]
        for _ in range(2):
            leaves = ch.ConsumerGroupHeartbeatRequest(group, member, -1)
            found.append(beaten(await q.ask(ch, "ConsumerGroupHeartbeat", leaves)))
    return found


# ---- transactions -------------------------------------------------------------------------------------------------
def txn_topic(q: Question, name: str, rows: list[tc.TxnOffsetCommitRequestPartition]) -> tc.TxnOffsetCommitRequestTopic:
    if q.version < 6:
        return tc.TxnOffsetCommitRequestTopic(name, partitions=rows)
    return tc.TxnOffsetCommitRequestTopic(topic_id=q.bench.topic_ids.get(name, STRANGE_ID), partitions=rows)


@case("TxnOffsetCommit", 0, 2, 3, 4, 5, 6, users="transactions")
async def txn_offset_commit(q: Question) -> Any:
    found = []
    rows = [tc.TxnOffsetCommitRequestPartition(0, 7)]
    some = [[OPEN], [OPEN, SECRET, ABSENT], [SECRET]]
    asked = [(q.at("txn"), -1, ""), (q.at("txn", OTHER), -1, "")]
    if q.version >= 3:
        asked.append((q.at("classic"), 9, "nobody"))
    for group, generation, member in asked:
        for names in some:
            topics = [txn_topic(q, t, rows) for t in names]
            req = tc.TxnOffsetCommitRequest(TXN, group, *q.bench.producer, generation, member, None, topics)
            found.append(plain(await q.ask(tc, "TxnOffsetCommit", req)))
    return found


@case("TxnOffsetCommit of another transaction", 0, 3, 5, users="transactions")
async def txn_of_another(q: Question) -> Any:
    topics = [tc.TxnOffsetCommitRequestTopic(OPEN, partitions=[tc.TxnOffsetCommitRequestPartition(0, 7)])]
    req = tc.TxnOffsetCommitRequest("txn-other", q.at("txn"), 1, 0, topics=topics)
    return plain(await q.ask(tc, "TxnOffsetCommit", req))


@case("AddOffsetsToTxn", 0, 3, 4, users="transactions")
async def add_offsets_to_txn(q: Question) -> Any:
    """Goes to the transaction's coordinator; the sidecar in front of that broker passes it."""
    site = q.bench.txn_site
    if q.site.managed:
        node = next(n for n in q.bench.kafka.nodes if n.internal_port == site.port)
        if node.sidecar is None or not node.sidecar.alive:
            return plain(await q.ask(ao, "AddOffsetsToTxn", to_add(q), site))
        site = Site("transactions", "", node.sidecar_port, q.bench.ground.clients)
    return plain(await q.ask(ao, "AddOffsetsToTxn", to_add(q), site))


def to_add(q: Question) -> ao.AddOffsetsToTxnRequest:
    return ao.AddOffsetsToTxnRequest(TXN, *q.bench.producer, q.at("txn"))


# ---- settings -------------------------------------------------------------------------------------------------------
NAME, VALUE = "consumer.session.timeout.ms", "50000"


@case("IncrementalAlterConfigs", 0, 1, users="settings")
async def incremental_alter_configs(q: Question) -> Any:
    names = (q.at("offsets"), q.at("classic"), q.at("nothing"), q.at("offsets", OTHER))
    bad = ia.AlterConfigsResource(GROUP, q.at("consumer"), [ia.AlterableConfig("no.such.setting", 0, "1")])
    good = [ia.AlterConfigsResource(GROUP, n, [ia.AlterableConfig(NAME, 0, VALUE)]) for n in names]
    req = ia.IncrementalAlterConfigsRequest([*good, bad], validate_only=True)
    done = ia.IncrementalAlterConfigsRequest(
        [ia.AlterConfigsResource(GROUP, q.fresh("set"), [ia.AlterableConfig(NAME, 0, VALUE)])]
    )
    return [plain(await q.ask(ia, "IncrementalAlterConfigs", r)) for r in (req, done)]


MOVES = (("sidecar.managed", "true"), ("sidecar.rebalance", "of tests"))


@case("IncrementalAlterConfigs of what only sidecars know", 0, 1, users="settings")
async def incremental_alter_moves(q: Question) -> Any:
    """To adopt and to rebalance a group wants the right that a setting of the group wants."""
    names = (q.at("offsets"), q.at("nothing"), q.at("offsets", OTHER))
    found = []
    for move in MOVES if q.site.managed else ((NAME, VALUE), (NAME, VALUE)):
        resources = [ia.AlterConfigsResource(GROUP, n, [ia.AlterableConfig(move[0], 0, move[1])]) for n in names]
        req = ia.IncrementalAlterConfigsRequest(resources, validate_only=True)
        found.append(plain(await q.ask(ia, "IncrementalAlterConfigs", req)))
    return found


PATTERNS = ("sidecar.groups.include", "sidecar.groups.exclude")


@case("IncrementalAlterConfigs of the patterns of all brokers", 0, 1, users="brokers")
async def incremental_alter_patterns(q: Question) -> Any:
    """Alters patterns, which wants the same right as a setting of all brokers."""
    found = []
    for pattern in PATTERNS:
        name, value = (pattern, "managed.*") if q.site.managed else ("message.max.bytes", "1048588")
        for validate_only in (True, False) if pattern == PATTERNS[0] else (True,):
            resource = ia.AlterConfigsResource(BROKER, "", [ia.AlterableConfig(name, 0, value)])
            req = ia.IncrementalAlterConfigsRequest([resource], validate_only=validate_only)
            found.append(plain(await q.ask(ia, "IncrementalAlterConfigs", req)))
    return found


@case("DescribeConfigs of the patterns of all brokers", 1, 4, users="brokers")
async def describe_patterns(q: Question) -> Any:
    """The cases before have stored one."""
    names = [PATTERNS[0] if q.site.managed else "message.max.bytes"]
    asked = dc.DescribeConfigsRequest([dc.DescribeConfigsResource(BROKER, "", names)])
    res = await q.ask(dc, "DescribeConfigs", asked)
    return [(r.error_code, r.error_message, len(r.configs)) for r in res.results]


@case("AlterConfigs", 0, 2, users="settings")
async def alter_configs(q: Question) -> Any:
    names = (q.at("offsets"), q.at("offsets", OTHER))
    resources = [al.AlterConfigsResource(GROUP, n, [al.AlterableConfig(NAME, VALUE)]) for n in names]
    return plain(await q.ask(al, "AlterConfigs", al.AlterConfigsRequest(resources, validate_only=True)))


@case("DescribeConfigs", 1, 3, 4, users="settings")
async def describe_configs(q: Question) -> Any:
    names = (q.at("offsets"), q.at("nothing"), q.at("offsets", OTHER))
    asked = dc.DescribeConfigsRequest([dc.DescribeConfigsResource(GROUP, n, [NAME]) for n in names])
    res = await q.ask(dc, "DescribeConfigs", asked)
    return sorted((r.error_code, r.error_message, plain(r.resource_name), len(r.configs)) for r in res.results)


@case("ListConfigResources", 0, 1, users="settings")
async def list_config_resources(q: Question) -> Any:
    types = [GROUP] if q.version else []
    return (await q.ask(lr, "ListConfigResources", lr.ListConfigResourcesRequest(types))).error_code


# ---- groups of other kinds ------------------------------------------------------------------------------------------
@case("ShareGroupHeartbeat", 1)
async def share_group_heartbeat(q: Question) -> Any:
    found = []
    for group in (q.at("classic"), q.at("consumer"), q.at("classic", OTHER)):
        for topics in ([OPEN], [OPEN, SECRET]):
            req = sh.ShareGroupHeartbeatRequest(group, str(uuid.uuid4()), 0, None, topics)
            res = await q.ask(sh, "ShareGroupHeartbeat", req)
            found.append((res.error_code, plain(res.error_message)))
    return found


@case("ShareGroupHeartbeat of a new group", 1)
async def share_group_new(q: Question) -> Any:
    req = sh.ShareGroupHeartbeatRequest(q.fresh("share"), str(uuid.uuid4()), 0, None, [OPEN])
    res = await q.ask(sh, "ShareGroupHeartbeat", req)
    return res.error_code, plain(res.error_message)


def to_stream(group: str, topics: list[str]) -> st.StreamsGroupHeartbeatRequest:
    req = st.StreamsGroupHeartbeatRequest(group, str(uuid.uuid4()), 0, rebalance_timeout_ms=LONG_MS, process_id="p")
    req.topology = st.Topology(1, [st.Subtopology("0", topics)])
    req.active_tasks, req.standby_tasks, req.warmup_tasks = [], [], []
    return req


@case("StreamsGroupHeartbeat", 0, 1)
async def streams_group_heartbeat(q: Question) -> Any:
    found = []
    for group in (q.at("classic"), q.at("consumer"), q.at("classic", OTHER)):
        for topics in ([OPEN], [OPEN, SECRET]):
            res = await q.ask(st, "StreamsGroupHeartbeat", to_stream(group, topics))
            found.append((res.error_code, plain(res.error_message)))
    return found


@case("StreamsGroupHeartbeat of a new group", 0, 1)
async def streams_group_new(q: Question) -> Any:
    res = await q.ask(st, "StreamsGroupHeartbeat", to_stream(q.fresh("streams"), [OPEN]))
    return res.error_code, plain(res.error_message)


# ---- what passes ----------------------------------------------------------------------------------------------------
OF_OTHERS = (("nothing", MINE), ("offsets", MINE), ("classic", MINE), ("nothing", OTHER))
"""Groups of which the broker has no share or streams group, which it says to those only who may hear it."""


ToRequest = Callable[[Any, str, int], Any]
"""Makes a request of a module, about a group, in a version."""


def to_each(name: str, *versions: int, begins: bool = False) -> Callable[[ToRequest], ToRequest]:
    """A case for each of these groups. `begins`: it makes the group where there is none."""

    def keep(to_request: ToRequest) -> ToRequest:
        for label, whose in OF_OTHERS:

            async def ask(q: Question, label: str = label, whose: str = whose) -> Any:
                group = q.fresh(label, whose) if begins and label == "nothing" else q.at(label, whose)
                req = to_request(messages(name)[1], group, q.version)
                return plain(await q.ask_passed(name, req))

            CASES.append(Case(f"{name} of {whose}-{label}", versions, ask, passes=True))
        return to_request

    return keep


@to_each("ShareGroupDescribe", 1)
def share_group_describe(m: Any, group: str, version: int) -> Any:
    return m.ShareGroupDescribeRequest([group], True)


@to_each("StreamsGroupDescribe", 0, 1)
def streams_group_describe(m: Any, group: str, version: int) -> Any:
    return m.StreamsGroupDescribeRequest([group], True)


@to_each("StreamsGroupTopologyDescriptionUpdate", 0)
def streams_topology(m: Any, group: str, version: int) -> Any:
    return m.StreamsGroupTopologyDescriptionUpdateRequest(group, "nobody", 1, m.TopologyDescription())


@to_each("DescribeShareGroupOffsets", 0, 1)
def describe_share_group_offsets(m: Any, group: str, version: int) -> Any:
    topics = [m.DescribeShareGroupOffsetsRequestTopic(t, [0]) for t in ALL]
    return m.DescribeShareGroupOffsetsRequest([m.DescribeShareGroupOffsetsRequestGroup(group, topics)])


@to_each("AlterShareGroupOffsets", 0, begins=True)
def alter_share_group_offsets(m: Any, group: str, version: int) -> Any:
    rows = [m.AlterShareGroupOffsetsRequestPartition(0, 7)]
    return m.AlterShareGroupOffsetsRequest(group, [m.AlterShareGroupOffsetsRequestTopic(t, rows) for t in ALL])


@to_each("DeleteShareGroupOffsets", 0)
def delete_share_group_offsets(m: Any, group: str, version: int) -> Any:
    return m.DeleteShareGroupOffsetsRequest(group, [m.DeleteShareGroupOffsetsRequestTopic(t) for t in ALL])
