"""Random scripts of share groups (KIP-932): members that come, subscribe and go, and operators who move offsets.

At Kafka what is initialised at the share coordinator is assigned by a later heartbeat, and here by the answer that
waits for it (docs/reference/differences.md), so group epochs differ. Most scripts begin with an AlterShareGroupOffsets,
after which all partitions are initialised. Epochs are compared by what they mean, and what members have when both
groups have come to rest; a script ends where each has as many partitions, and not the same ones (`ends`)."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

from sidecar.core.vocabulary.errors import Code
from sidecar.kafka.net import BrokerConnection
from sidecar.wire.generated import alter_share_group_offsets as al
from sidecar.wire.generated import delete_share_group_offsets as de
from sidecar.wire.generated import describe_share_group_offsets as ds
from sidecar.wire.generated import share_group_describe as sd
from sidecar.wire.generated import share_group_heartbeat as sh
from tests.differential.classic import AT_MOST_S
from tests.differential.run import until
from tests.differential.script import TOPICS, Side, Step

MEMBERS = ("m1", "m2", "m3", "m4", "m5")
NOT_THERE = "diff-none-1"
JOIN, LEAVE = 0, -1
NO_OTHER_EPOCH = "it has had no other epoch"
AT_REST = 5
"""Fields of a description."""


def make_share(seed: int) -> list[Step]:
    rng = random.Random(seed)
    steps = [Step("alter offsets", options={"topics": sorted(TOPICS), "start": 0})]
    if rng.random() < 0.1:
        steps = []  # there is no group
    joined: dict[str, None] = {}

    def join(member: str) -> None:
        joined[member] = None
        options: dict[str, Any] = {"names": names(rng)}
        if rng.random() < 0.1:
            options["rack"] = rng.choice(("r1", "r2", ""))
        steps.append(Step("join", member, options))

    for m in MEMBERS[: rng.randint(1, 3)]:
        join(m)
        steps.append(Step("rest"))
    for _ in range(rng.randint(14, 40)):
        member = rng.choice([*joined] if joined and rng.random() < 0.85 else MEMBERS)
        if rng.random() < 0.2:
            join(rng.choice(MEMBERS))
        else:
            steps.append(_step(rng, member))
        if steps[-1].verb in MOVES:
            steps.append(Step("rest"))
    return [*steps, Step("rest"), Step("describe"), *(Step("beat", m) for m in MEMBERS), Step("describe")]


MOVES = ("join", "subscribe", "leave")


def names(rng: random.Random) -> list[str]:
    found = sorted(rng.sample(list(TOPICS), rng.randint(1, len(TOPICS))))
    return [*found, NOT_THERE] if rng.random() < 0.08 else found


def _step(rng: random.Random, member: str) -> Step:
    what = rng.random()
    if what < 0.25:
        return Step("beat", member)
    if what < 0.35:
        return Step("full", member)
    if what < 0.5:
        return Step("subscribe", member, {"names": [] if rng.random() < 0.05 else names(rng)})
    if what < 0.6:
        return Step("epoch", member, {"which": rng.choice(("previous", "previous", "greater", "lower"))})
    if what < 0.72:
        return Step("leave", member)
    if what < 0.77:
        return Step("bad", member, {"how": rng.choice(BAD)})
    if what < 0.81:
        topics = [*rng.sample(list(TOPICS), rng.randint(0, 2)), *([NOT_THERE] if rng.random() < 0.2 else [])]
        return Step("alter offsets", options={"topics": topics, "start": rng.choice((0, 0, -1, -5))})
    if what < 0.84:
        topics = [*rng.sample(list(TOPICS), rng.randint(0, 2)), *([NOT_THERE] if rng.random() < 0.3 else [])]
        return Step("delete offsets", options={"topics": topics})
    if what < 0.89:
        asked: tuple[list[str] | None, ...] = (None, None, [], ["diff-a"], ["diff-b", NOT_THERE])
        return Step("describe offsets", options={"topics": rng.choice(asked)})
    if what < 0.94:
        return Step("describe")
    if what < 0.955:
        return Step("list", options={"states": rng.choice((["Stable"], ["empty"], ["dead", "stable"], []))})
    if what < 0.965:
        return Step("classic describe")
    if what < 0.975:
        return Step("commit", member)
    if what < 0.985:
        return Step("offset delete", options={"topic": "diff-a"})
    return Step("delete")


BAD = (
    "no topics",
    "null topics",
    "epoch -2",
    "no member id",
    "long member id",
    "blank member id",
    "no group",
    "blank rack",
)


class ShareSide(Side):
    """One coordinator under the script."""

    details = ""
    own_topics = False
    """Only scripts of streams groups have topics of their own, and internal ones."""

    def __init__(self, conn: BrokerConnection, group: str, ids: dict[str, bytes]) -> None:
        super().__init__(conn, group, ids)
        self.before: dict[str, int] = {}
        """The epoch that each member had before its present one."""
        self.present: dict[str, list[str]] = {}
        """Members that are in the group, and what they subscribe to."""

    async def internal_topics(self) -> dict[str, int]:
        return {}

    # ---- heartbeats -----------------------------------------------------------------------------------------
    async def beat(self, req: sh.ShareGroupHeartbeatRequest) -> object:
        res = await self.conn.request(sh, "ShareGroupHeartbeat", req, high=1, timeout_s=AT_MOST_S)
        member = req.member_id
        if res.error_code == Code.NONE and req.member_epoch >= JOIN:
            if req.member_epoch == JOIN:
                self.before.pop(member, None)
            elif res.member_epoch != self.epochs.get(member):
                self.before[member] = self.epochs[member]
            self.epochs[member] = res.member_epoch
            if req.subscribed_topic_names is not None:
                self.present[member] = req.subscribed_topic_names
        elif res.error_code in (Code.UNKNOWN_MEMBER_ID, Code.GROUP_ID_NOT_FOUND) or req.member_epoch == LEAVE:
            self.present.pop(member, None)
        if res.error_code == Code.GROUP_ID_NOT_FOUND and req.member_epoch > JOIN:
            # docs/reference/differences.md: that ends clients, so no member hears it here.
            res.error_code = int(Code.UNKNOWN_MEMBER_ID)
            res.error_message = f"Member {req.member_id} is not a member of group {self.group}."
        told = res.assignment is not None if req.subscribed_topic_names is not None else None
        return (
            res.error_code,
            self.plain(res.error_message),
            res.member_id if res.error_code == Code.NONE else None,
            min(res.member_epoch, 1),
            res.heartbeat_interval_ms,
            told,
        )

    def plain(self, text: str | None) -> str | None:
        """Epochs are not told."""
        return None if text is None else re.sub(r"\((-?\d+)\)", "(n)", text.replace(self.group, "G"))

    def steady(self, member: str) -> sh.ShareGroupHeartbeatRequest:  # type: ignore[override]
        return sh.ShareGroupHeartbeatRequest(self.group, member, self.epochs.get(member, 3))

    async def do_join(  # type: ignore[override]
        self, member: str, names: list[str], rack: str | None = None
    ) -> object:
        return await self.beat(sh.ShareGroupHeartbeatRequest(self.group, member, JOIN, rack, names))

    async def do_beat(self, member: str) -> object:
        return await self.beat(self.steady(member))

    async def do_full(self, member: str) -> object:
        req = self.steady(member)
        req.subscribed_topic_names = self.present.get(member, ["diff-a"])
        return await self.beat(req)

    async def do_subscribe(self, member: str, names: list[str]) -> object:
        req = self.steady(member)
        req.subscribed_topic_names = names
        return await self.beat(req)

    async def do_epoch(self, member: str, which: str) -> object:  # type: ignore[override]
        req = self.steady(member)
        if which == "greater":
            req.member_epoch += 5
        elif member not in self.before:
            return NO_OTHER_EPOCH
        else:
            req.member_epoch = self.before[member] if which == "previous" else 1
        return await self.beat(req)

    async def do_leave(self, member: str) -> object:  # type: ignore[override]
        return await self.beat(sh.ShareGroupHeartbeatRequest(self.group, member, LEAVE))

    async def do_bad(self, member: str, how: str) -> object:
        req = sh.ShareGroupHeartbeatRequest(self.group, "nobody", JOIN, None, ["diff-a"])
        if how == "no topics":
            req.subscribed_topic_names = []
        elif how == "null topics":
            req.subscribed_topic_names = None
        elif how == "epoch -2":
            req.member_epoch = -2
        elif how == "no member id":
            req.member_id = ""
        elif how == "long member id":
            req.member_id = "m" * 37
        elif how == "blank member id":
            req.member_id = " "
        elif how == "no group":
            req.group_id = " "
        else:
            req.rack_id = " "
        return await self.beat(req)

    async def do_rest(self, member: str) -> object:
        """Members send heartbeats until all of them have what they should, and no partition is without one."""
        await until(self._at_rest, AT_MOST_S)
        return await self.do_describe(member)

    async def _at_rest(self) -> bool:
        for m in [*self.present]:
            await self.beat(self.steady(m))
        g = await self.described()
        epochs = {m.member_epoch for m in g.members} | {g.group_epoch, g.assignment_epoch}
        wanted = {(t, p) for m in g.members for t in m.subscribed_topic_names for p in range(TOPICS.get(t, 0))}
        held = {(t.topic_name, p) for m in g.members for t in m.assignment.topic_partitions for p in t.partitions}
        return wanted == held and (not g.members or len(epochs) == 1)

    # ---- offsets --------------------------------------------------------------------------------------------
    async def do_alter_offsets(self, member: str, topics: list[str], start: int) -> object:
        wanted = [
            al.AlterShareGroupOffsetsRequestTopic(
                t, [al.AlterShareGroupOffsetsRequestPartition(p, start) for p in range(TOPICS.get(t, 1))]
            )
            for t in topics
        ]
        req = al.AlterShareGroupOffsetsRequest(self.group, wanted)
        res = await self.conn.request(al, "AlterShareGroupOffsets", req, timeout_s=AT_MOST_S)
        found = sorted(
            (t.topic_name, sorted((p.partition_index, p.error_code, self.plain(p.error_message)) for p in t.partitions))
            for t in res.responses
        )
        return res.error_code, self.plain(res.error_message), found

    async def do_delete_offsets(self, member: str, topics: list[str]) -> object:
        req = de.DeleteShareGroupOffsetsRequest(self.group, [de.DeleteShareGroupOffsetsRequestTopic(t) for t in topics])
        res = await self.conn.request(de, "DeleteShareGroupOffsets", req, timeout_s=AT_MOST_S)
        found = sorted((t.topic_name, t.error_code, self.plain(t.error_message)) for t in res.responses)
        return res.error_code, self.plain(res.error_message), found

    async def do_describe_offsets(self, member: str, topics: list[str] | None) -> object:
        wanted = None
        if topics is not None:
            wanted = [ds.DescribeShareGroupOffsetsRequestTopic(t, [0, 1]) for t in topics]
        req = ds.DescribeShareGroupOffsetsRequest([ds.DescribeShareGroupOffsetsRequestGroup(self.group, wanted)])
        res = await self.conn.request(ds, "DescribeShareGroupOffsets", req, timeout_s=AT_MOST_S)
        return [
            (
                g.error_code,
                self.plain(g.error_message),
                sorted(
                    (
                        t.topic_name,
                        sorted((p.partition_index, p.start_offset, p.lag, p.error_code) for p in t.partitions),
                    )
                    for t in g.topics
                ),
            )
            for g in res.groups
        ]

    async def do_commit(self, member: str) -> object:  # type: ignore[override]
        return await super().do_commit(member, 0, 9)

    # ---- looking --------------------------------------------------------------------------------------------
    async def described(self) -> sd.DescribedGroup:  # type: ignore[override]
        req = sd.ShareGroupDescribeRequest(group_ids=[self.group])
        res: sd.ShareGroupDescribeResponse = await self.conn.request(sd, "ShareGroupDescribe", req)
        return res.groups[0]

    async def do_describe(self, member: str) -> object:
        g = await self.described()
        members = {
            m.member_id: (
                m.rack_id,
                m.client_id,
                m.client_host,
                sorted(m.subscribed_topic_names),
                {t.topic_name: sorted(t.partitions) for t in m.assignment.topic_partitions if t.partitions},
            )
            for m in g.members
        }
        return g.error_code, self.plain(g.error_message), g.group_state, g.assignor_name, members

    async def do_list(self, member: str, states: list[str]) -> object:
        return await self.listed(states, ["share"])

    # ---- differences on purpose (docs/reference/differences.md) ------------------------------------------------------
    def agrees(self, s: Step, ours: object, theirs: object) -> bool:
        return NO_OTHER_EPOCH in (ours, theirs)

    def ends(self, ours: object, theirs: object) -> str:
        return "as many partitions, in another order" if _as_many(ours, theirs) else ""


def _as_many(ours: object, theirs: object) -> bool:
    """Whether two descriptions at rest differ only in which partitions the members have: each has as many, and each
    partition as many members. Topics are walked in the order of a hash table of ids, which are other ones in each
    cluster; java_sidecar.py follows it in all but some scripts of a thousand."""
    if not isinstance(ours, tuple) or not isinstance(theirs, tuple) or not len(ours) == len(theirs) == AT_REST:
        return False
    *head, members = ours
    *their_head, their_members = theirs
    if head != their_head or not isinstance(members, dict) or members.keys() != their_members.keys():
        return False
    pairs = [(m, their_members[name]) for name, m in members.items()]
    same = all(a[:-1] == b[:-1] and _total(a[-1]) == _total(b[-1]) for a, b in pairs)
    return same and _holders(a[-1] for a, _ in pairs) == _holders(b[-1] for _, b in pairs)


def _total(owned: dict[str, list[int]]) -> int:
    return sum(map(len, owned.values()))


def _holders(all_owned: Iterable[dict[str, list[int]]]) -> Counter[tuple[str, int]]:
    return Counter((t, p) for owned in all_owned for t, ps in owned.items() for p in ps)
