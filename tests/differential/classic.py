"""Random scripts of the classic protocol: members that join, sync, leave, come again under wrong names, and operators.

A request may wait for another member's, so a step only sends it; after each step both sides must have answered the
same requests, with the same words. Member ids differ between the sides: each id is told by the name of its member in
the script and by its number. Which member leads after the leader has gone is arbitrary in Kafka: where the two sides
choose differently, the script ends there (`Parted`), and its steps until then count.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable
from typing import Any

from sidecar.core.vocabulary.errors import Code
from sidecar.kafka.net import BrokerConnection
from sidecar.wire.generated import consumer_protocol_assignment as ca
from sidecar.wire.generated import consumer_protocol_subscription as cs
from sidecar.wire.generated import delete_groups as dl
from sidecar.wire.generated import describe_groups as dg
from sidecar.wire.generated import heartbeat as hb
from sidecar.wire.generated import join_group as jg
from sidecar.wire.generated import leave_group as le
from sidecar.wire.generated import list_groups as lg
from sidecar.wire.generated import offset_commit as oc
from sidecar.wire.generated import offset_delete as od
from sidecar.wire.generated import offset_fetch as of
from sidecar.wire.generated import sync_group as sy
from tests.differential.script import TOPICS, Step, commit_code

MEMBERS = ("m1", "m2", "m3")
SESSION_MS, REBALANCE_MS = 600_000, 600_000
"""Longer than any script: a pause of the machine must not remove a member on one side only."""
QUIET_S, AT_MOST_S = 0.08, 60.0
"""A JoinGroup or SyncGroup that is not answered after the first, nor after the next two requests, is taken to wait for
other members; and so long, less than a session, one side may be behind the other."""
KNOWN = (("alpha",), ("alpha", "range"), ("range", "alpha"), ("range",), ("steady", "range"))
"""Protocols of a member. Of a tie Kafka takes the first in its hash table's order; for these that is the alphabet's."""


SUBSCRIBED = 86
"""GROUP_SUBSCRIBED_TO_TOPIC."""
UNKNOWN_SERVER_ERROR = -1
"""Kafka breaks where a consumer joins a classic group that has no protocol selected yet."""
INCONSISTENT_GROUP_PROTOCOL, UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS = 23, 25, 27


class Parted(Exception):
    """Both sides are right, and differ. The argument says why."""


def subscription(topics: tuple[str, ...]) -> bytes:
    return b"\0\1" + cs.ConsumerProtocolSubscription(list(topics)).encode(1)


def make_classic(seed: int) -> list[Step]:
    rng = random.Random(seed)
    instances = {m: f"i{n % 2}" for n, m in enumerate(MEMBERS) if rng.random() < 0.35}
    kind = rng.choice(("consumer", "consumer", "consumer", "connect"))
    steps = [_join(rng, rng.choice(MEMBERS), instances, kind, True)]
    for _ in range(rng.randint(12, 40)):
        steps.append(_step(rng, rng.choice(MEMBERS), instances, kind))
    return [*steps, Step("describe"), *(Step("beat", m, {"by": 0}) for m in MEMBERS), Step("describe")]


def _join(rng: random.Random, member: str, instances: dict[str, str], kind: str, good: bool = False) -> Step:
    options: dict[str, Any] = {
        "version": rng.choice((9, 9, 9, 9, 7, 5, 4, 3, 1, 0)),
        "known": 1 if good or rng.random() < 0.7 else rng.randrange(len(KNOWN)),
        "topics": ("diff-a",) if rng.random() < 0.8 else ("diff-a", "diff-b"),
        "kind": kind if good or rng.random() < 0.97 else "other",
        "who": "" if good else rng.choice(("own", "own", "own", "own", "", "", "wrong")),
    }
    if member in instances and rng.random() < 0.95 and options["version"] >= 5:
        options["instance"] = instances[member]
    if not good and rng.random() < 0.02:
        options["session"] = rng.choice((1, 3_600_000))
    return Step("join", member, options)


def _step(rng: random.Random, member: str, instances: dict[str, str], kind: str) -> Step:
    what = rng.random()
    if what < 0.33:
        return _join(rng, member, instances, kind)
    if what < 0.62:
        options: dict[str, Any] = {"by": rng.choice((0,) * 12 + (-1, 1)), "version": rng.choice((5, 5, 5, 3, 1, 0))}
        if rng.random() < 0.04:
            options["wrong"] = rng.choice(("type", "name", "id", "instance"))
        return Step("sync", member, options)
    if what < 0.74:
        return Step("beat", member, {"by": rng.choice((0, 0, 0, 0, 0, -1, 1))})
    if what < 0.79:
        return Step("leave", member, {"version": rng.choice((5, 4, 3, 2, 0))})
    if what < 0.82:
        return Step("remove", options={"instances": rng.sample(("i0", "i1", "i9"), rng.randint(1, 2))})
    if what < 0.89:
        version, by = rng.choice((9, 8, 7, 2)), rng.choice((0, 0, 0, -1, 1, None))
        return Step("commit", member, {"by": by, "version": version})
    if what < 0.90:
        return Step("fetch", member)
    if what < 0.92:
        return Step("offset delete", options={"topic": rng.choice(list(TOPICS))})
    if what < 0.96:
        return Step("describe", options={"version": rng.choice((6, 5, 0))})
    if what < 0.98:
        return Step("list", options={"states": rng.choice(([], ["stable"], ["Empty"], ["PreparingRebalance"]))})
    return Step("delete")


class Pool:
    """Connections to one listener. Each takes one request at a time, as brokers do."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.idle: list[BrokerConnection] = []
        self.busy: set[BrokerConnection] = set()
        self.all_sent = asyncio.Event()
        """No request waits for a connection."""
        self.all_sent.set()
        self._opening = 0

    async def request(self, module: Any, name: str, req: Any, high: int | None = None) -> Any:
        conn = self.idle.pop() if self.idle else await self._open()
        self.busy.add(conn)
        answer = await conn.request(module, name, req, high=high, timeout_s=120)
        self.busy.discard(conn)
        self.idle.append(conn)
        return answer

    async def _open(self) -> BrokerConnection:
        self._opening += 1
        self.all_sent.clear()
        try:
            return await BrokerConnection.open("127.0.0.1", self.port, "diff", AT_MOST_S)
        finally:
            self._opening -= 1
            if not self._opening:
                self.all_sent.set()

    def drop_busy(self) -> None:
        for conn in self.busy:
            conn.close()
        self.busy.clear()

    def close(self) -> None:
        self.drop_busy()
        for conn in self.idle:
            conn.close()


class ClassicSide:
    """One coordinator under the script. `answers`: number of the request -> what came, in plain words."""

    def __init__(self, pool: Pool, group: str, topic_ids: dict[str, bytes] | None = None) -> None:
        self.pool, self.group = pool, group
        self.older = False
        """The broker is older than the anchor (older.py)."""
        self.ids: dict[str, str] = {}
        self.instances: dict[str, str | None] = {}
        self.generations: dict[str, int] = {}
        self.leads: dict[str, list[str]] = {}
        """Members that a leader was told of, by their ids."""
        self.types: dict[str, tuple[str | None, str | None]] = {}
        self.labels: dict[str, str] = {}
        self.newest: dict[str, int] = {}
        """The last of a member's joins that was answered."""
        self.has_offsets = False
        """A commit without membership has come, which makes a group at Kafka."""
        self.answers: dict[int, object] = {}
        self.given_up: dict[int, object] = {}
        """Answers to requests that the member has given up, while Kafka has none."""
        self.tasks: list[asyncio.Task[None]] = []

    # ---- driving --------------------------------------------------------------------------------------------
    def send(self, n: int, s: Step) -> None:
        more = {"n": n} if s.verb == "join" else {}
        work = getattr(self, f"do_{s.verb.replace(' ', '_')}")(s.member, **s.options, **more)
        self.tasks.append(asyncio.create_task(self._keep(n, work)))

    async def _keep(self, n: int, work: Awaitable[object]) -> None:
        self.answers[n] = await work

    def failed(self) -> BaseException | None:
        return next((e for t in self.tasks if t.done() and (e := t.exception()) is not None), None)

    def close(self) -> None:
        for t in self.tasks:
            t.cancel()
        self.pool.drop_busy()

    async def end(self) -> None:
        """Gives up what waits, and lets all members leave: else brokers and sidecars keep the connections for minutes,
        and after some thousand scripts a sidecar has as many as it may have."""
        self.close()
        members = [le.MemberIdentity(member_id=member_id) for member_id in self.labels]
        await self.ask(le, "LeaveGroup", le.LeaveGroupRequest(self.group, members=members), 5)

    def label(self, member_id: str | None) -> str:
        """The name of this id, the same on both sides: that of the request that it was given to."""
        return self.labels.get(member_id, "unknown") if member_id else "nobody"

    async def ask(self, module: Any, name: str, req: Any, version: int | None = None) -> Any:
        return await self.pool.request(module, name, req, version)

    def intended_difference(self, n: int, theirs: ClassicSide) -> str:
        """Returns why the answers to this request differ on purpose (docs/reference/differences.md): in a join phase
        OffsetDelete goes by the subscriptions that have come so far, in Kafka by the last generation; and only the
        broker knows a group that has nothing but offsets."""
        kept, deleted = (0, [(0, SUBSCRIBED)]), (0, [(0, 0)])
        both = self.answers[n], theirs.answers[n]
        if self.has_offsets and both == ([(0, Code.ILLEGAL_GENERATION)], [(0, Code.UNKNOWN_MEMBER_ID)]):
            return "a commit to a group of offsets"
        return "OffsetDelete in a join phase" if both in ((kept, deleted), (deleted, kept)) else ""

    # ---- members --------------------------------------------------------------------------------------------
    async def do_join(
        self,
        member: str,
        version: int,
        known: int,
        topics: tuple[str, ...],
        kind: str,
        who: str,
        n: int,
        instance: str | None = None,
        session: int = SESSION_MS,
    ) -> object:
        member_id = {"own": self.ids.get(member, ""), "": "", "wrong": "no-such-member"}[who]
        protocols = [jg.JoinGroupRequestProtocol(p, self.subscription_of(member, topics)) for p in KNOWN[known]]
        req = jg.JoinGroupRequest(self.group, session, REBALANCE_MS, member_id, instance, kind, protocols)
        res = await self.ask(jg, "JoinGroup", req, version)
        first = res.error_code
        if first == 79:
            req.member_id = res.member_id
            self.labels.setdefault(res.member_id, f"{member}@{n}")
            res = await self.ask(jg, "JoinGroup", req, version)
        if res.error_code == 0:
            self.labels.setdefault(res.member_id, f"{member}@{n}")
        if res.error_code == 0 and n > self.newest.get(member, -1):
            self.newest[member] = n
            self.ids[member], self.instances[member] = res.member_id, instance
            self.generations[member] = res.generation_id
            self.types[member] = (res.protocol_type if version >= 7 else None, res.protocol_name)
            self.leads[member] = [m.member_id for m in res.members]
        return {
            "codes": (first, res.error_code),
            "generation": res.generation_id,
            "protocol": (res.protocol_type, res.protocol_name),
            "leader": self.label(res.leader),
            "member": self.label(res.member_id),
            "skip": res.skip_assignment,
            "members": len(res.members),
            "metadata": sorted((m.group_instance_id or "", m.metadata) for m in res.members),
        }

    def subscription_of(self, member: str, topics: tuple[str, ...]) -> bytes:
        return subscription(topics)

    async def do_sync(self, member: str, by: int, version: int, wrong: str = "") -> object:
        member_id = "no-such-member" if wrong == "id" else self.ids.get(member, "m")
        instance = "i9" if wrong == "instance" else self.instances.get(member)
        kind, name = self.types.get(member, (None, None))
        given = [
            sy.SyncGroupRequestAssignment(m, self.assignment(i, len(self.leads[member])))
            for i, m in enumerate(sorted(self.leads.get(member, []), key=self.label))
        ]
        req = sy.SyncGroupRequest(
            self.group,
            self.generations.get(member, 3) + by,
            member_id,
            instance if version >= 3 else None,
            "strange" if wrong == "type" else kind,
            "strange" if wrong == "name" else name,
            given,
        )
        res = await self.ask(sy, "SyncGroup", req, version)
        return res.error_code, res.protocol_type, res.protocol_name, res.assignment

    @staticmethod
    def assignment(i: int, members: int) -> bytes:
        """Returns the assignment of the member at this place; together the members leave no partition out."""
        given = ca.ConsumerProtocolAssignment([ca.TopicPartition("diff-a", list(range(TOPICS["diff-a"]))[i::members])])
        return b"\0\1" + given.encode(1)

    async def do_beat(self, member: str, by: int) -> object:
        generation = self.generations.get(member, 3) + by
        req = hb.HeartbeatRequest(self.group, generation, self.ids.get(member, "m"), self.instances.get(member))
        return (await self.ask(hb, "Heartbeat", req)).error_code

    async def do_leave(self, member: str, version: int) -> object:
        member_id = self.ids.get(member, "m")
        who = le.MemberIdentity(member_id, self.instances.get(member), "enough")
        req = le.LeaveGroupRequest(self.group, member_id, [who])
        res = await self.ask(le, "LeaveGroup", req, version)
        return res.error_code, [(self.label(m.member_id), m.group_instance_id, m.error_code) for m in res.members]

    async def do_remove(self, member: str, instances: list[str]) -> object:
        req = le.LeaveGroupRequest(self.group, "", [le.MemberIdentity("", i, "removed") for i in instances])
        res = await self.ask(le, "LeaveGroup", req, 5)
        return res.error_code, [(m.member_id, m.group_instance_id, m.error_code) for m in res.members]

    # ---- offsets --------------------------------------------------------------------------------------------
    async def do_commit(self, member: str, by: int | None, version: int) -> object:
        topic = oc.OffsetCommitRequestTopic(name="diff-a", partitions=[oc.OffsetCommitRequestPartition(0, 7)])
        if by is None:
            req = oc.OffsetCommitRequest(self.group, -1, "", None, topics=[topic])
        else:
            instance = self.instances.get(member) if version >= 7 else None
            generation = self.generations.get(member, 3) + by
            req = oc.OffsetCommitRequest(self.group, generation, self.ids.get(member, "m"), instance, topics=[topic])
        res = await self.ask(oc, "OffsetCommit", req, version)
        self.has_offsets = self.has_offsets or by is None
        return [(p.partition_index, commit_code(p.error_code)) for t in res.topics for p in t.partitions]

    async def do_fetch(self, member: str) -> object:
        topic = of.OffsetFetchRequestTopics(name="diff-a", partition_indexes=[0])
        group = of.OffsetFetchRequestGroup(self.group, None, -1, [topic])
        res = await self.ask(of, "OffsetFetch", of.OffsetFetchRequest(groups=[group]), 9)
        return [
            (g.error_code, [(p.committed_offset, p.error_code) for p in t.partitions])
            for g in res.groups
            for t in g.topics
        ]

    async def do_offset_delete(self, member: str, topic: str) -> object:
        wanted = od.OffsetDeleteRequestTopic(topic, [od.OffsetDeleteRequestPartition(0)])
        res = await self.ask(od, "OffsetDelete", od.OffsetDeleteRequest(self.group, [wanted]))
        return res.error_code, [(p.partition_index, p.error_code) for t in res.topics for p in t.partitions]

    # ---- looking --------------------------------------------------------------------------------------------
    async def do_describe(self, member: str, version: int = 6) -> object:
        req = dg.DescribeGroupsRequest([self.group], include_authorized_operations=version >= 3)
        (g,) = (await self.ask(dg, "DescribeGroups", req, version)).groups
        members = sorted(
            (self.label(m.member_id), m.group_instance_id or "", m.client_id, m.client_host, m.member_metadata)
            for m in g.members
        )
        assignments = sorted(m.member_assignment for m in g.members) if g.group_state == "Stable" else None
        message = None if g.error_message is None else g.error_message.replace(self.group, "G")
        head = (g.error_code, message, g.group_state, g.protocol_type, g.protocol_data, g.authorized_operations)
        return *head, members, assignments

    async def do_list(self, member: str, states: list[str]) -> object:
        res = await self.ask(lg, "ListGroups", lg.ListGroupsRequest(states_filter=states, types_filter=["classic"]))
        mine = [(g.protocol_type, g.group_state, g.group_type) for g in res.groups if g.group_id == self.group]
        return res.error_code, mine

    async def do_delete(self, member: str) -> object:
        res = await self.ask(dl, "DeleteGroups", dl.DeleteGroupsRequest([self.group]))
        return [r.error_code for r in res.results]


async def settle(n: int, s: Step, ours: ClassicSide, theirs: ClassicSide) -> bool:
    """Whether both have answered the same requests, in the same words."""
    now = asyncio.get_running_loop().time
    may_wait = s.verb in ("join", "sync")
    quiet, until = now() + (QUIET_S if may_wait else AT_MOST_S), now() + AT_MOST_S
    while (behind := ours.answers.keys() ^ theirs.answers.keys()) or (n not in ours.answers and now() < quiet):
        for side in (ours, theirs):
            if (exc := side.failed()) is not None:
                raise exc
        if late := theirs.answers.keys() & ours.given_up.keys():  # Kafka only took longer
            ours.answers |= {i: ours.given_up.pop(i) for i in late}
            continue
        if behind and now() > quiet and all(i < n and given_up(ours.answers.get(i)) for i in behind):
            for i in behind:
                ours.given_up[i] = ours.answers.pop(i)
        elif now() > until:
            return leader_unlike(ours, theirs, behind)
        await asyncio.sleep(0.005)
    if may_wait and n not in ours.answers:  # it waits, or a busy machine has not come to it
        await asyncio.gather(ours.pool.all_sent.wait(), theirs.pool.all_sent.wait())
        for _ in range(2):
            await asyncio.gather(ours.do_describe(""), theirs.do_describe(""))
        if n in ours.answers or ours.answers.keys() != theirs.answers.keys():
            return await settle(n, s, ours, theirs)
    return agree(ours, theirs)


def leader_unlike(ours: ClassicSide, theirs: ClassicSide, behind: set[int]) -> bool:
    """False: the sides differ. Raises Parted if a member joins again that is a follower on one side, and so is answered
    at once, and may lead on the other: a group that was downgraded has an arbitrary leader."""
    answers = [side.answers[i] for side in (ours, theirs) for i in behind if i in side.answers]
    if all(isinstance(a, dict) and a["codes"][1] == 0 and a["leader"] != a["member"] for a in answers):
        raise Parted("another leader")
    return False


def given_up(answer: object) -> bool:
    """A JoinGroup or SyncGroup that its member has repeated meanwhile, or a SyncGroup of a member that has left: the
    sidecar answers it, in Kafka it waits for ever (docs/reference/differences.md)."""
    if isinstance(answer, dict):
        return bool(answer["codes"][1] == REBALANCE_IN_PROGRESS)
    return isinstance(answer, tuple) and answer[0] in (REBALANCE_IN_PROGRESS, UNKNOWN_MEMBER_ID)


def code_of(answer: object) -> object:
    return answer[0] if isinstance(answer, tuple) else answer


def agree(ours: ClassicSide, theirs: ClassicSide) -> bool:
    """Raises Parted where both sides may go on differently."""
    different = [n for n, a in ours.answers.items() if a != theirs.answers[n]]
    for n in different:
        b = theirs.answers[n]
        if _led(ours.answers[n], b):
            raise Parted("another leader")
        if code_of(b) == UNKNOWN_SERVER_ERROR:
            raise Parted("Kafka breaks")
        if why := ours.intended_difference(n, theirs):
            raise Parted(why)
    return not different


def _led(a: object, b: object) -> bool:
    """Two answers to JoinGroup that differ by who leads, and so by who is told of the members."""
    if not isinstance(a, dict) or not isinstance(b, dict) or a["leader"] == b["leader"]:
        return False
    by_leader = ("leader", "members", "metadata", "skip")
    return all(a[k] == b[k] for k in a if k not in by_leader)
