"""Members of the consumer protocol (KIP-848) and of the classic one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from sidecar.core.classic.embedded import assigned, assignment, subscription
from sidecar.core.vocabulary.errors import Code
from sidecar.wire.generated import consumer_group_heartbeat as ch
from sidecar.wire.generated import heartbeat as hb
from sidecar.wire.generated import join_group as jg
from sidecar.wire.generated import leave_group as lg
from sidecar.wire.generated import sync_group as sg
from tests.core import classic_client
from tests.whole.client import BACK_OFF_S, MOVED, PARTITIONS_OF, REQUEST_S, WAIT, Client, Place

NOT_A_MEMBER = (Code.UNKNOWN_MEMBER_ID, Code.FENCED_MEMBER_EPOCH, Code.FENCED_INSTANCE_ID, Code.GROUP_ID_NOT_FOUND)
LEAVES, LEAVES_FOR_A_WHILE = -1, -2


class ConsumerMember(Client):
    """A member that makes its member id itself, as clients of version 1 do."""

    commits_as = "consumer"

    async def run(self) -> None:
        self._make_id()
        told: set[Place] | None = None
        """The partitions that it owns, as the coordinator was told; None: nothing that counts."""
        while not self.leaving:
            owned = set(self.owned)
            res = await self.ask(ch, "ConsumerGroupHeartbeat", self._beat(None if owned == told else owned))
            if res is None or res.error_code in (*MOVED, *WAIT):
                told = None
                continue
            if res.error_code in NOT_A_MEMBER:
                self.lose_all()
                self.epoch, told = 0, None
                if res.error_code == Code.FENCED_INSTANCE_ID:
                    return
                await self.pause(0.05)
                continue
            if res.error_code == Code.UNRELEASED_INSTANCE_ID:
                await self.pause(0.5)
                self._make_id()  # the process has ended, as Java's and librdkafka's do, and was started again
            if res.error_code != Code.NONE:
                await self.pause(0.5)
                told = None
                continue
            self.epoch = res.member_epoch
            told = owned
            if res.assignment is not None:
                await self._reconcile(res.assignment)
                if set(self.owned) != told:
                    continue  # the coordinator waits for this
            await self.pause(self.habits.heartbeat_ms / 1000)
        await self._leave()

    def _make_id(self) -> None:
        self.member_id = f"{self.name}-{self.proc.universe.rng.getrandbits(32):08x}"

    def _beat(self, owned: set[Place] | None) -> ch.ConsumerGroupHeartbeatRequest:
        h = self.habits
        req = ch.ConsumerGroupHeartbeatRequest(h.group_id, self.member_id, self.epoch, h.instance_id)
        if self.epoch == 0 or owned is not None:
            ids = self.topic_ids()
            parts: dict[bytes, list[int]] = defaultdict(list)
            for topic, p in sorted(owned or ()):
                if topic in ids:
                    parts[ids[topic]].append(p)
            req.topic_partitions = [ch.TopicPartitions(t, ps) for t, ps in parts.items()]
            req.rebalance_timeout_ms = h.rebalance_ms
            req.subscribed_topic_names = list(h.topics)
        return req

    async def _reconcile(self, given: Any) -> None:
        names = {i: n for n, i in self.topic_ids().items()}
        wanted = {(names[t.topic_id], p) for t in given.topic_partitions if t.topic_id in names for p in t.partitions}
        lost = [p for p in self.owned if p not in wanted]
        if lost:
            await self.pause(self.habits.revoke_ms / 1000)
            await self.commit_last()
            for place in lost:
                self.owned.pop(place, None)
            self.judge.owns(self)
        await self.take(sorted(wanted))

    async def _leave(self) -> None:
        await self.commit_last()
        epoch = LEAVES if self.habits.instance_id is None else LEAVES_FOR_A_WHILE
        req = ch.ConsumerGroupHeartbeatRequest(self.habits.group_id, self.member_id, epoch, self.habits.instance_id)
        self.lose_all()
        await self.ask(ch, "ConsumerGroupHeartbeat", req)


class ClassicMember(Client):
    """Eager: it gives everything up before it joins. The leader assigns by turns."""

    _beat_ms: float = 0.0
    """The time at which it was last heard while it waited for its offsets."""

    async def run(self) -> None:
        while not self.leaving:
            if not await self._join():
                continue
            res: Any = hb.HeartbeatResponse()
            while not self.leaving:
                await self.pause(self.habits.heartbeat_ms / 1000 if res is not None else BACK_OFF_S)
                res = await self._heartbeat()
                if res is None or res.error_code in (Code.NONE, *MOVED, *WAIT):
                    continue
                if res.error_code == Code.REBALANCE_IN_PROGRESS:
                    await self.commit_last()
                elif res.error_code == Code.FENCED_INSTANCE_ID:
                    self.lose_all()
                    return
                else:
                    self._forget()
                break
            self.lose_all()
        await self._leave()

    async def still_in(self) -> bool:
        if self.epoch < 0:  # it has been told so, and joins again
            return False
        now_ms = self.proc.universe.now_ms
        if now_ms < self._beat_ms + self.habits.heartbeat_ms:
            return True
        self._beat_ms = now_ms
        res = await self._heartbeat()
        return res is None or res.error_code in (Code.NONE, *MOVED, *WAIT)

    async def _heartbeat(self) -> Any:
        req = hb.HeartbeatRequest(self.habits.group_id, self.epoch, self.member_id, self.habits.instance_id)
        return await self.ask(hb, "Heartbeat", req)

    def _forget(self) -> None:
        self.lose_all()
        self.member_id, self.epoch = "", -1

    async def _join(self) -> bool:
        h = self.habits
        said = classic_client.subscription(h.topics)
        req = jg.JoinGroupRequest(h.group_id, h.session_ms, h.rebalance_ms, self.member_id, h.instance_id, "consumer")
        req.protocols = [jg.JoinGroupRequestProtocol("turns", said)]
        res = await self.ask(jg, "JoinGroup", req, timeout_s=h.rebalance_ms / 1000 + REQUEST_S)
        if res is None:
            return False
        if res.error_code == Code.MEMBER_ID_REQUIRED:
            self.member_id = res.member_id
            return False
        if res.error_code != Code.NONE:
            if res.error_code in NOT_A_MEMBER:
                self._forget()
            await self.pause(0.05)
            return False
        self.member_id, self.epoch = res.member_id, res.generation_id
        parts = self._assign(res.members) if res.leader == res.member_id else []
        sync = sg.SyncGroupRequest(h.group_id, self.epoch, self.member_id, h.instance_id, "consumer", "turns", parts)
        got = await self.ask(sg, "SyncGroup", sync, timeout_s=h.rebalance_ms / 1000 + REQUEST_S)
        if got is None:
            return False
        if got.error_code != Code.NONE:
            if got.error_code in NOT_A_MEMBER:
                self._forget()
            await self.pause(0.05)
            return False
        self._beat_ms = self.proc.universe.now_ms
        mine = assigned(got.assignment) or {}
        return await self.take([(t, p) for t, ps in mine.items() for p in ps])

    def _assign(self, members: Sequence[Any]) -> list[sg.SyncGroupRequestAssignment]:
        mine: dict[str, dict[str, list[int]]] = {m.member_id: defaultdict(list) for m in members}
        ids = sorted(mine)
        said = {m.member_id: subscription(m.metadata) for m in members}
        for topic in sorted({t for s in said.values() if s is not None for t in s.topics}):
            for p in range(self.partitions(topic)):
                mine[ids[p % len(ids)]][topic].append(p)
        return [
            sg.SyncGroupRequestAssignment(m, assignment(3, [(t, tuple(ps)) for t, ps in given.items()]))
            for m, given in mine.items()
        ]

    def partitions(self, topic: str) -> int:
        return PARTITIONS_OF.get(topic, 0)

    async def _leave(self) -> None:
        if self.habits.instance_id is not None or not self.member_id:
            return
        req = lg.LeaveGroupRequest(self.habits.group_id, self.member_id, [lg.MemberIdentity(self.member_id, None)])
        self.lose_all()
        await self.ask(lg, "LeaveGroup", req)
