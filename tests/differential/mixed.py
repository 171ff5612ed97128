"""Random scripts of groups whose members speak both protocols: they upgrade, downgrade, and mix (KIP-848 'Online
Migration').

All members are static, and members of both protocols share instance ids, as in a rolling change: so the assignors see
them in the same order on both sides, whatever their member ids are.
"""

from __future__ import annotations

import random
from typing import Any

from sidecar.wire.generated import consumer_group_describe as cd
from sidecar.wire.generated import consumer_protocol_assignment as ca
from sidecar.wire.generated import consumer_protocol_subscription as cs
from tests.differential.classic import (
    INCONSISTENT_GROUP_PROTOCOL,
    KNOWN,
    MEMBERS,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
    ClassicSide,
    Pool,
    code_of,
)
from tests.differential.older import HEARTBEAT_FIELDS, parts
from tests.differential.script import Side, Step

CONSUMERS = ("c1", "c2", "c3")
INSTANCES = {"m1": "i1", "m2": "i2", "m3": "i3", "c1": "i1", "c2": "i2", "c3": "i4"}
Owned = dict[str, list[int]]
ASSIGNOR = "range"
"""Assignor of all members of the consumer protocol."""


def make_mixed(seed: int) -> list[Step]:
    rng = random.Random(seed)
    first = rng.choice((_classic_join, _consumer_join))
    steps = [first(rng, rng.choice(MEMBERS if first is _classic_join else CONSUMERS), True)]
    for _ in range(rng.randint(15, 45)):
        steps.append(
            _classic(rng, rng.choice(MEMBERS)) if rng.random() < 0.6 else _consumer(rng, rng.choice(CONSUMERS))
        )
        if steps[-1].verb == "join" and rng.random() < 0.8:
            steps.append(Step("sync", steps[-1].member, {"by": 0, "version": 5}))
        if steps[-1].verb in ("leave", "remove", "cleave"):
            # Kafka computes a due target with the next heartbeat of the consumer protocol, the sidecar by a timer, too.
            steps += [Step("ack", c) for c in CONSUMERS]
    return [*steps, Step("look"), *(Step("ack", c) for c in CONSUMERS), *(Step("beat", m, {"by": 0}) for m in MEMBERS)]


def _classic_join(rng: random.Random, member: str, good: bool = False) -> Step:
    options: dict[str, Any] = {
        "version": rng.choice((9, 9, 9, 7, 5)),
        "known": 1 if good or rng.random() < 0.8 else rng.randrange(len(KNOWN)),
        "topics": ("diff-a",),
        "kind": "consumer" if good or rng.random() < 0.97 else "connect",
        "who": "" if good else rng.choice(("own", "own", "own", "", "", "wrong")),
        "instance": INSTANCES[member],
    }
    return Step("join", member, options)


def _classic(rng: random.Random, member: str) -> Step:
    what = rng.random()
    if what < 0.4:
        return _classic_join(rng, member)
    if what < 0.6:
        return Step("sync", member, {"by": rng.choice((0, 0, 0, 0, -1, 1)), "version": rng.choice((5, 5, 3))})
    if what < 0.8:
        return Step("beat", member, {"by": rng.choice((0, 0, 0, 0, 0, -1, 1))})
    if what < 0.86:
        return Step("leave", member, {"version": rng.choice((5, 4, 3))})
    if what < 0.89:
        return Step("remove", options={"instances": rng.sample(("i1", "i2", "i4", "i9"), rng.randint(1, 2))})
    if what < 0.94:
        return Step("commit", member, {"by": rng.choice((0, 0, -1, 1, None)), "version": rng.choice((9, 8, 7))})
    if what < 0.97:
        return Step("describe", options={"version": rng.choice((6, 5))})
    return Step("list", options={"states": []})


def _consumer_join(rng: random.Random, member: str, good: bool = False) -> Step:
    return Step("cjoin", member)


def _consumer(rng: random.Random, member: str) -> Step:
    what = rng.random()
    if what < 0.3:
        return _consumer_join(rng, member)
    if what < 0.75:
        return Step("ack", member)
    if what < 0.8:
        return Step("epoch", member, {"by": rng.choice((-1, 1))})
    if what < 0.92:
        return Step("cleave", member, {"epoch": rng.choice((-1, -1, -2))})
    if what < 0.96:
        return Step("look")
    return Step("ccommit", member, {"by": rng.choice((0, 0, -1, 1)), "version": rng.choice((9, 9, 8))})


class _SideWithoutTexts(Side):
    """The texts of refusals name member ids, which differ between the sides."""

    def plain(self, text: str | None) -> str | None:
        return None


class MixedSide(ClassicSide):
    def __init__(self, pool: Pool, group: str, topic_ids: dict[str, bytes] | None = None) -> None:
        super().__init__(pool, group)
        self.consumers = _SideWithoutTexts(pool, group, topic_ids or {})  # type: ignore[arg-type]
        self.owned: dict[str, Owned] = {}
        self.unsynced = False
        """A generation of the classic protocol has not come to its assignments."""
        self.broken_off = False
        """The group was upgraded from such a generation, and no other has come to its assignments since."""
        self.modern = False
        """The group has been a consumer group since a generation of the classic protocol came to its assignments."""
        self.led: set[str] = set()
        """Members whose last generation was one of the classic protocol: somebody led it."""
        self.midway = False
        """The group was downgraded, and upgraded again before the rebalance was over."""
        self.refused = False
        """A JoinGroup to an empty consumer group was refused."""
        self.waiting: set[str] = set()
        """Members of the classic protocol whose JoinGroup, which claims partitions, is not answered yet."""
        self.claimed = False
        """The group was upgraded while such a member waited, which keeps what it claims."""
        self.before: cd.DescribedGroup | None = None
        """The group as it was before this step, if a member of the consumer protocol joins and the broker is older."""
        self.upgrades = False
        """A member of the consumer protocol joins a group of the classic protocol in this step."""

    def send(self, n: int, s: Step) -> None:
        self.before, self.upgrades = None, False
        super().send(n, s)

    def intended_difference(self, n: int, theirs: ClassicSide) -> str:
        """Returns why the answers differ, if they are meant to (docs/reference/differences.md):
        * A group whose classic generation came to no assignment keeps the last one when it upgrades; Kafka drops it.
        * So does a member that waits for a generation, and what it claims and nobody else has is its own.
        * One that is upgraded before the rebalance of its downgrade is over keeps what members have; Kafka takes the
          target for that, which may be another member's still.
        * A due target is computed by a timer, too; in Kafka only by a heartbeat of the consumer protocol.
        * A JoinGroup that is refused leaves an empty consumer group as it is; Kafka forgets it, but not in its log.
        * A downgrade by a static member is a rebalance, too, if somebody still has what the target gives to another;
          and the member is told the protocol that the group has chosen. Kafka tells it the first of its own.
        * A SyncGroup behind an upgrade or a downgrade names the protocol that the member was told before.
        * A group that upgrades gets a new target, and so a new epoch, if its last assignment leaves partitions out.
        * What a broker older than the anchor does otherwise (older.py)."""
        a, b = self.answers[n], theirs.answers[n]
        assert isinstance(theirs, MixedSide)
        if theirs.before is not None and (why := parts(theirs.before, ASSIGNOR, False, a, b)):
            return why
        if isinstance(a, dict) and isinstance(b, dict):
            other = {k for k in a if a[k] != b.get(k)}
            by_downgrade = a["leader"] == b["leader"] == "nobody" and a["codes"] == b["codes"] == (0, 0)
            by_downgrade = by_downgrade and other <= {"protocol", "generation", "then"}
            return "downgrade by a static member" if by_downgrade else ""
        if isinstance(a, dict) or isinstance(b, dict):
            return ""
        for reason in ("broken_off", "midway", "refused", "claimed"):
            if getattr(self, reason):
                return reason
        if isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b) == HEARTBEAT_FIELDS and a[0] == b[0] == 0:
            return "partitions left out" if self.upgrades and a[2] == b[2] + 1 else ""
        if code_of(b) == INCONSISTENT_GROUP_PROTOCOL and code_of(a) in (0, REBALANCE_IN_PROGRESS):
            return "told another protocol before"
        early = (a, b) == (REBALANCE_IN_PROGRESS, 0) or (code_of(a), code_of(b)) == (REBALANCE_IN_PROGRESS, 0)
        return "due target" if early else ""

    async def do_join(self, member: str, **options: Any) -> object:  # type: ignore[override]
        if any(self.owned.get(member, {}).values()):
            self.waiting.add(member)
        answer = await super().do_join(member, **options)
        self.waiting.discard(member)
        assert isinstance(answer, dict)
        if answer["codes"][1] == 0 and answer["leader"] != "nobody":
            self.unsynced = True
            self.led.add(member)
        elif answer["codes"][1] == 0:
            self.led.discard(member)
        answer["then"] = ""
        if answer["codes"][1] == 0 and answer["leader"] == "nobody":
            described = await self.do_describe(member)
            assert isinstance(described, tuple)
            answer["then"] = described[2] if described[2] in ("PreparingRebalance", "Stable") else ""
        if answer["codes"][1] == UNKNOWN_MEMBER_ID:
            looked = await self.do_look(member)
            self.refused = self.refused or (isinstance(looked, tuple) and looked[1] == "Empty")
        return answer

    # ---- members of the classic protocol say what they own --------------------------------------------------------
    def subscription_of(self, member: str, topics: tuple[str, ...]) -> bytes:
        owned = [cs.TopicPartition(t, ps) for t, ps in self.owned.get(member, {}).items()]
        return b"\0\1" + cs.ConsumerProtocolSubscription(list(topics), owned_partitions=owned).encode(1)

    async def do_sync(self, member: str, by: int, version: int, wrong: str = "") -> object:
        answer = await super().do_sync(member, by, version, wrong)
        assert isinstance(answer, tuple)
        code, kind, name, data = answer
        owned: Owned = {}
        if data:
            given = ca.ConsumerProtocolAssignment.decode(1, data, 2)
            owned = {t.topic: sorted(t.partitions) for t in sorted(given.assigned_partitions, key=lambda t: t.topic)}
        if code == 0:
            self.owned[member] = owned
            if member in self.led:
                self.modern = self.unsynced = self.broken_off = self.claimed = False
        return code, kind, name, owned

    # ---- members of the consumer protocol -------------------------------------------------------------------------
    async def do_cjoin(self, member: str) -> object:
        if self.older:
            req = cd.ConsumerGroupDescribeRequest(group_ids=[self.group])
            (self.before,) = (await self.ask(cd, "ConsumerGroupDescribe", req)).groups
        described = await self.do_describe(member)
        assert isinstance(described, tuple)
        self.upgrades = described[2] in ("Stable", "PreparingRebalance", "CompletingRebalance")
        if self.modern and described[2] == "PreparingRebalance":
            self.midway = True
        self.claimed = self.claimed or (self.upgrades and bool(self.waiting))
        answer = await self.consumers.do_join(member, ASSIGNOR, ["diff-a"], INSTANCES[member])
        if code_of(answer) == 0:
            self.modern = True
            self.broken_off = self.broken_off or self.unsynced
            self.unsynced = False
            self.led.clear()
        return answer

    async def do_ack(self, member: str) -> object:
        return await self.consumers.do_ack(member)

    async def do_epoch(self, member: str, by: int) -> object:
        return await self.consumers.do_epoch(member, by)

    async def do_cleave(self, member: str, epoch: int) -> object:
        return await self.consumers.do_leave(member, epoch)

    async def do_ccommit(self, member: str, by: int, version: int) -> object:
        return await self.consumers.do_commit(member, by, version)

    async def do_look(self, member: str) -> object:
        req = cd.ConsumerGroupDescribeRequest(group_ids=[self.group])
        (g,) = (await self.ask(cd, "ConsumerGroupDescribe", req)).groups
        members = sorted((m.instance_id or "", m.member_epoch, m.member_type, _parts(m.assignment)) for m in g.members)
        # Kafka computes a due target with the next heartbeat of the consumer protocol, the sidecar by a timer, too.
        busy = "at work" if g.group_state in ("Assigning", "Reconciling") else g.group_state
        return g.error_code, busy, g.group_epoch, members


def _parts(assignment: Any) -> list[tuple[str, list[int]]]:
    return sorted((t.topic_name, sorted(t.partitions)) for t in assignment.topic_partitions)
