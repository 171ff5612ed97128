"""Random request scripts: what a member, an operator or a broken client might send, step by step.

A step is a pure description; `Side` turns it into requests with what this side answered so far, and its answer into
plain words. Both sides run the same script under another group id; the first difference is the finding.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sidecar.core.vocabulary.placement import partition_for
from sidecar.kafka.net import BrokerConnection
from sidecar.wire.generated import consumer_group_describe as cd
from sidecar.wire.generated import consumer_group_heartbeat as ch
from sidecar.wire.generated import delete_groups as dl
from sidecar.wire.generated import describe_groups as dg
from sidecar.wire.generated import incremental_alter_configs as ia
from sidecar.wire.generated import list_groups as lg
from sidecar.wire.generated import offset_commit as oc
from sidecar.wire.generated import offset_delete as od
from sidecar.wire.generated import offset_fetch as of

TOPICS = {"diff-a": 6, "diff-b": 4, "diff-c": 3}
MORE_TOPICS = {"more-d": 6, "more-e": 3}
"""Topics of share groups and streams groups. No pattern of a script matches them."""
GROUP_RESOURCE = 32
PARTITIONS = 50
"""Partitions of __consumer_offsets."""
UNKNOWN_MEMBER_ID, GROUP_ID_NOT_FOUND = 25, 69


def commit_code(code: int) -> int:
    """docs/reference/differences.md: a member of a group that is not there hears that it is no member of it."""
    return UNKNOWN_MEMBER_ID if code == GROUP_ID_NOT_FOUND else code


@dataclass(frozen=True)
class Step:
    verb: str
    member: str = ""
    options: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.verb} {self.member} {self.options or ''}".strip()


def make(seed: int, topics: list[str] | None = None) -> list[Step]:
    rng = random.Random(seed)
    names = topics or list(TOPICS)
    members = [f"m{i}" for i in range(1, 5)]
    kind = rng.choice(("range", "range", "range", "uniform"))
    batched = rng.random() < 0.2
    steps = [Step("alter", options={"consumer.assignment.interval.ms": "15000"}), Step("wait")] if batched else []
    if kind == "uniform":
        names = names[:1]  # which topic is filled first hangs on the order of Kafka's hash table of ids
    traits = Traits(
        {m: ("i0" if m in ("m1", "m2") else "i1") for m in members if rng.random() < 0.4},
        None
        if batched or kind == "uniform"
        else rng.choice(("diff-[ab]", "diff-.*", "", "nothing.*", "diff-(c", "diff-[", "a**", "\\")),
    )
    for _ in range(rng.randint(12, 40)):
        steps.append(step(rng, rng.choice(members), names, kind, traits))
        last = steps[-1]
        # An expression is resolved in the background, also where the join that had it first was refused. A change of
        # settings reaches the broker a little later.
        if "regex" in last.options or last.verb == "alter" or (last.verb == "full" and traits.regex is not None):
            steps.append(Step("wait"))
    return [*steps, Step("describe"), *(Step("ack", m) for m in members), Step("describe")]


def make_topics(seed: int) -> list[Step]:
    """Topics that grow, go and come again while members are there; two topics of the script's own."""
    rng = random.Random(seed)
    members = ["m1", "m2", "m3"]
    regex = f"own-{seed}-.*"
    names = [f"own-{seed}-a", f"own-{seed}-b"]
    steps = []
    for m in members[:2]:
        steps.append(Step("join", m, {"assignor": "range", "names": names}))
    for _ in range(rng.randint(4, 6)):
        how = rng.choice(("grow", "grow", "delete", "recreate"))
        name = rng.choice(names)
        if how == "recreate":  # each coordinator hears of the deletion, whatever the pause before the topic is back
            steps += [Step("topic", options={"name": name, "how": "delete"}), *(Step("ack", m) for m in members)]
        steps.append(Step("topic", options={"name": name, "how": "delete" if how == "delete" else "grow"}))
        for _ in range(rng.randint(2, 6)):
            m = rng.choice(members)
            if m == "m3" and rng.random() < 0.3:
                steps += [Step("join", m, {"assignor": "range", "regex": regex}), Step("wait"), Step("wait")]
            else:
                steps.append(Step("ack", m))
        steps += [*(Step("ack", m) for m in members), Step("describe")]
    return steps


@dataclass(frozen=True)
class Traits:
    """A script's static members, and its one regular expression (docs/reference/differences.md has the reason)."""

    instances: dict[str, str]
    regex: str | None


def step(rng: random.Random, member: str, names: list[str], kind: str, traits: Traits) -> Step:
    what = rng.random()
    if what < 0.2:
        options: dict[str, Any] = {"assignor": kind, "names": sorted(rng.sample(names, rng.randint(1, len(names))))}
        if member in traits.instances:
            options["instance"] = traits.instances[member]
        if traits.regex is not None and rng.random() < 0.15:
            options["regex"] = traits.regex
            if rng.random() < 0.6 and traits.regex not in ("nothing.*", ""):
                del options["names"]
        if rng.random() < 0.1:
            options["rack"] = rng.choice(("r1", ""))
        return Step("join", member, options)
    if what < 0.52:
        return Step("ack", member)
    if what < 0.57:
        return Step("silent", member)
    if what < 0.63:
        return Step("subscribe", member, {"names": sorted(rng.sample(names, rng.randint(0, len(names))))})
    if what < 0.67:
        return Step("full", member)
    if what < 0.72:
        return Step("epoch", member, {"by": rng.choice((-2, -1, 1, 5))})
    if what < 0.75:
        return Step("claims", member, {"owned": rng.choice(("nothing", "other", "strange"))})
    if what < 0.80 and kind == "range":
        return Step("leave", member, {"epoch": rng.choice((-1, -1, -2))})
    if what < 0.83:
        return Step("instance", member, {"instance": rng.choice(("i0", "i1", "i9", ""))})
    if what < 0.87:
        bad = ("no timeout", "owns at join", "no topics", "epoch -3", "no member id", "no group", "assignor", "v0")
        return Step("bad", member, {"how": rng.choice(bad)})
    if what < 0.9:
        return Step("commit", member, {"by": rng.choice((0, 0, -1, 1)), "version": rng.choice((9, 9, 8))})
    if what < 0.92:
        return Step("fetch", member, {"by": rng.choice((0, 0, -1, 1))})
    if what < 0.94:
        return Step("offset delete", options={"topic": rng.choice(names)})
    if what < 0.96:
        return Step("describe")
    if what < 0.97:
        return Step("delete")
    if what < 0.98:
        return Step("classic describe")
    if what < 0.99:
        return Step("list", options={"states": rng.choice((["Stable"], ["assigning", "reconciling"], ["Empty"]))})
    return Step("alter", options={"consumer.heartbeat.interval.ms": rng.choice(("5000", "7000", "100", "x"))})


class Side:
    """One coordinator under the script. `ids`: topic name -> id."""

    def __init__(self, conn: BrokerConnection, group: str, ids: dict[str, bytes]) -> None:
        self.conn = conn
        self.group = group
        self.ids = ids
        self.epochs: dict[str, int] = {}
        self.owned: dict[str, dict[bytes, list[int]]] = {}
        self.instances: dict[str, str | None] = {}
        self.static: dict[str, str | None] = {}
        """The instance ids of those that are in the group, by member."""
        self.full: dict[str, dict[str, Any]] = {}
        self.committed = 0
        self.probes = 0

    def plain(self, text: str | None) -> str | None:
        return None if text is None else text.replace(self.group, "G")

    def parts(self, member: str) -> list[ch.TopicPartitions]:
        return [ch.TopicPartitions(t, list(ps)) for t, ps in self.owned.get(member, {}).items()]

    def shown(self, assignment: Any) -> object:
        if assignment is None:
            return None
        names = {i: n for n, i in self.ids.items()}
        return {
            names.get(t.topic_id, t.topic_id.hex()): sorted(t.partitions)
            for t in sorted(assignment.topic_partitions, key=lambda t: names.get(t.topic_id, ""))
        }

    async def run(self, s: Step) -> object:
        verb = s.verb.replace(" ", "_")
        answer: object = await getattr(self, f"do_{verb}")(s.member, **s.options)
        return answer

    # ---- topics ---------------------------------------------------------------------------------------------
    async def knows(self, counts: Mapping[str, int], names: Iterable[str]) -> bool:
        """Whether a member that joins now is assigned just these partitions of the topics that it names.

        It joins a new group of the same state partition, so the script's own group knows the topics as well.
        """
        self.probes += 1
        rest = (f"{self.group}-probe-{self.probes}-{n}" for n in range(10_000))
        probe = next(g for g in rest if partition_for(g, PARTITIONS) == partition_for(self.group, PARTITIONS))
        req = ch.ConsumerGroupHeartbeatRequest(probe, "probe", 0, rebalance_timeout_ms=30_000, topic_partitions=[])
        req.subscribed_topic_names = list(names)
        res = await self.conn.request(ch, "ConsumerGroupHeartbeat", req, high=1)
        told = [] if res.assignment is None else res.assignment.topic_partitions
        found = {t.topic_id: len(t.partitions) for t in told}
        gone = ch.ConsumerGroupHeartbeatRequest(probe, "probe", -1)
        await self.conn.request(ch, "ConsumerGroupHeartbeat", gone, high=1)
        return found == {self.ids[name]: n for name, n in counts.items()}

    # ---- heartbeats -----------------------------------------------------------------------------------------
    async def heartbeat(self, member: str, req: ch.ConsumerGroupHeartbeatRequest, high: int = 1) -> object:
        res = await self.conn.request(ch, "ConsumerGroupHeartbeat", req, high=high)
        if res.error_code == 0 and req.member_epoch >= 0:
            self.epochs[member] = res.member_epoch
            if res.assignment is not None:
                self.owned[member] = {t.topic_id: list(t.partitions) for t in res.assignment.topic_partitions}
        if res.error_code == 0 and req.member_epoch == 0:
            self.static[member] = req.instance_id
        elif res.error_code in (UNKNOWN_MEMBER_ID, GROUP_ID_NOT_FOUND) or req.member_epoch < 0:
            self.static.pop(member, None)
        if res.error_code == GROUP_ID_NOT_FOUND and req.member_epoch != 0:
            # docs/reference/differences.md: that ends clients, so no member hears it here.
            res.error_code = UNKNOWN_MEMBER_ID
            res.error_message = f"Member {req.member_id} is not a member of group {self.group}."
        told = res.member_id if res.member_id == req.member_id else "another"
        return (
            res.error_code,
            self.plain(res.error_message),
            res.member_epoch,
            res.heartbeat_interval_ms,
            self.shown(res.assignment),
            told if res.error_code == 0 else None,
        )

    def steady(self, member: str) -> ch.ConsumerGroupHeartbeatRequest:
        req = ch.ConsumerGroupHeartbeatRequest(self.group, member, self.epochs.get(member, 3))
        req.instance_id = self.instances.get(member)
        req.topic_partitions = self.parts(member)
        return req

    def joining(self, member: str) -> ch.ConsumerGroupHeartbeatRequest:
        req = ch.ConsumerGroupHeartbeatRequest(self.group, member, 0, rebalance_timeout_ms=30_000, topic_partitions=[])
        req.subscribed_topic_names = [next(iter(self.ids), "none")]
        return req

    async def do_join(
        self,
        member: str,
        assignor: str,
        names: list[str] | None = None,
        instance: str | None = None,
        regex: str | None = None,
        rack: str | None = None,
    ) -> object:
        if instance is not None and self.static.get(member) == instance:
            return "a static member that joins once more is let in, and at Kafka is not (docs/reference/differences.md)"
        self.instances[member] = instance
        req = self.joining(member)
        req.instance_id, req.rack_id, req.server_assignor = instance, rack, assignor
        req.subscribed_topic_names, req.subscribed_topic_regex = names, regex
        self.full[member] = {"names": names, "regex": regex}
        return await self.heartbeat(member, req)

    async def do_ack(self, member: str) -> object:
        return await self.heartbeat(member, self.steady(member))

    async def do_silent(self, member: str) -> object:
        req = self.steady(member)
        req.topic_partitions = None
        return await self.heartbeat(member, req)

    async def do_subscribe(self, member: str, names: list[str]) -> object:
        req = self.steady(member)
        req.subscribed_topic_names = names
        return await self.heartbeat(member, req)

    async def do_full(self, member: str) -> object:
        req = self.steady(member)
        req.rebalance_timeout_ms = 30_000
        said = self.full.get(member, {"names": None, "regex": None})
        req.subscribed_topic_names, req.subscribed_topic_regex = said["names"], said["regex"]
        return await self.heartbeat(member, req)

    async def do_epoch(self, member: str, by: int) -> object:
        req = self.steady(member)
        req.member_epoch = max(1, req.member_epoch + by)
        return await self.heartbeat(member, req)

    async def do_claims(self, member: str, owned: str) -> object:
        req = self.steady(member)
        first = next(iter(self.ids.values()))
        req.topic_partitions = {
            "nothing": [],
            "other": [ch.TopicPartitions(first, [0, 1, 2])],
            "strange": [ch.TopicPartitions(b"\x07" * 16, [0])],
        }[owned]
        return await self.heartbeat(member, req)

    async def do_leave(self, member: str, epoch: int) -> object:
        req = ch.ConsumerGroupHeartbeatRequest(self.group, member, epoch, instance_id=self.instances.get(member))
        return await self.heartbeat(member, req)

    async def do_instance(self, member: str, instance: str) -> object:
        req = self.steady(member)
        req.instance_id = instance
        return await self.heartbeat(member, req)

    async def do_bad(self, member: str, how: str) -> object:
        req = self.joining(member)
        high = 1
        if how == "no timeout":
            req.rebalance_timeout_ms = -1
        elif how == "owns at join":
            req.topic_partitions = [ch.TopicPartitions(next(iter(self.ids.values())), [0])]
        elif how == "no topics":
            req.subscribed_topic_names = None
        elif how == "epoch -3":
            req.member_epoch = -3
        elif how == "no member id":
            req.member_id = ""
        elif how == "no group":
            req.group_id = " "
        elif how == "assignor":
            req.server_assignor = "magic"
        else:
            req.member_id, req.member_epoch, high = "", 4, 0
        return await self.heartbeat("nobody", req, high)

    async def do_wait(self, member: str) -> object:
        """Regular expressions are resolved in the background."""
        import asyncio

        await asyncio.sleep(0.08)
        return None

    # ---- offsets --------------------------------------------------------------------------------------------
    async def do_commit(self, member: str, by: int, version: int) -> object:
        parts = [oc.OffsetCommitRequestPartition(p, 7) for p in (0, 1)]
        topic = oc.OffsetCommitRequestTopic(name=next(iter(self.ids)), partitions=parts)
        epoch = self.epochs.get(member, 3) + by
        req = oc.OffsetCommitRequest(self.group, epoch, member, self.instances.get(member), topics=[topic])
        res = await self.conn.request(oc, "OffsetCommit", req, high=version)
        return [(p.partition_index, commit_code(p.error_code)) for t in res.topics for p in t.partitions]

    async def do_fetch(self, member: str, by: int) -> object:
        epoch = self.epochs.get(member, 3) + by
        topic = of.OffsetFetchRequestTopics(name=next(iter(self.ids)), partition_indexes=[0])
        group = of.OffsetFetchRequestGroup(self.group, member, epoch, [topic])
        res = await self.conn.request(of, "OffsetFetch", of.OffsetFetchRequest(groups=[group]), high=9)
        return [(g.error_code, [p.error_code for t in g.topics for p in t.partitions]) for g in res.groups]

    async def do_offset_delete(self, member: str, topic: str) -> object:
        wanted = od.OffsetDeleteRequestTopic(topic, [od.OffsetDeleteRequestPartition(0)])
        res = await self.conn.request(od, "OffsetDelete", od.OffsetDeleteRequest(self.group, [wanted]))
        return (res.error_code, [(p.partition_index, p.error_code) for t in res.topics for p in t.partitions])

    # ---- looking --------------------------------------------------------------------------------------------
    async def described(self) -> cd.DescribedGroup:
        req = cd.ConsumerGroupDescribeRequest(group_ids=[self.group])
        res: cd.ConsumerGroupDescribeResponse = await self.conn.request(cd, "ConsumerGroupDescribe", req)
        return res.groups[0]

    async def group_epoch(self) -> int:
        return (await self.described()).group_epoch

    async def do_describe(self, member: str) -> object:
        g = await self.described()
        members = {
            m.member_id: (
                m.instance_id,
                m.rack_id,
                m.member_epoch,
                m.client_id,
                m.client_host,
                sorted(m.subscribed_topic_names),
                m.subscribed_topic_regex,
                {t.topic_name: sorted(t.partitions) for t in m.assignment.topic_partitions},
                {t.topic_name: sorted(t.partitions) for t in m.target_assignment.topic_partitions if t.partitions},
                m.member_type,
            )
            for m in g.members
        }
        head = (g.error_code, self.plain(g.error_message), g.group_state, g.group_epoch, g.assignment_epoch)
        return (*head, g.assignor_name, members)

    async def do_classic_describe(self, member: str) -> object:
        res = await self.conn.request(dg, "DescribeGroups", dg.DescribeGroupsRequest(groups=[self.group]))
        return [(g.error_code, self.plain(g.error_message), g.group_state, len(g.members)) for g in res.groups]

    async def do_list(self, member: str, states: list[str]) -> object:
        return await self.listed(states, ["consumer"])

    async def listed(self, states: list[str], types: list[str]) -> object:
        req = lg.ListGroupsRequest(states_filter=states, types_filter=types)
        res = await self.conn.request(lg, "ListGroups", req)
        mine = [(g.protocol_type, g.group_state, g.group_type) for g in res.groups if g.group_id == self.group]
        return res.error_code, mine

    async def do_delete(self, member: str) -> object:
        res = await self.conn.request(dl, "DeleteGroups", dl.DeleteGroupsRequest([self.group]))
        return [r.error_code for r in res.results]

    async def do_alter(self, member: str, **values: str) -> object:
        return await self.altered(self.group, values)

    async def altered(self, group: str, values: Mapping[str, str]) -> tuple[int, str | None]:
        configs = [ia.AlterableConfig(n, 0, v) for n, v in values.items()]
        req = ia.IncrementalAlterConfigsRequest([ia.AlterConfigsResource(GROUP_RESOURCE, group, configs)])
        (r,) = (await self.conn.request(ia, "IncrementalAlterConfigs", req)).responses
        return r.error_code, r.error_message
