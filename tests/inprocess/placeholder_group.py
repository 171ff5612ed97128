"""A broker's group as a placeholder meets it: one static member, as Kafka's ClassicGroup treats it.

`delay_s`: how long the broker holds back the JoinGroup that begins a group (group.initial.rebalance.delay.ms). Native
members are told by `natives`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from sidecar.core.vocabulary.errors import Code
from sidecar.wire.generated import describe_groups as dg
from sidecar.wire.generated import heartbeat as hb
from sidecar.wire.generated import join_group as jg
from sidecar.wire.generated import leave_group as lg
from sidecar.wire.generated import sync_group as sg

Answer = Callable[[Any], None]


class PlaceholderGroup:
    def __init__(self) -> None:
        self.state = "Empty"
        self.generation = 0
        self.member_id = ""
        self.instance_id: str | None = None
        self.metadata = b""
        self.natives = 0
        self._made = 0
        self._joining: Answer | None = None

    # ---- requests -----------------------------------------------------------------------------------------
    def join(self, req: jg.JoinGroupRequest, answer: Answer, delay_s: float) -> None:
        if self.natives:
            answer(jg.JoinGroupResponse(error_code=Code.INCONSISTENT_GROUP_PROTOCOL))
            return
        if req.member_id and (code := self.refusal(req.member_id, req.group_instance_id)) != Code.NONE:
            answer(jg.JoinGroupResponse(error_code=code))
            return
        before = self.state
        self.metadata, self.instance_id = req.protocols[0].metadata, req.group_instance_id
        if not req.member_id:
            self._made += 1
            self.member_id = f"{req.group_instance_id}-{self._made}"
        if before == "Stable" and not req.member_id:
            answer(self._joined(skip=True))
            return
        parked, self._joining = self._joining, answer
        if parked is not None:
            parked(jg.JoinGroupResponse(error_code=Code.FENCED_INSTANCE_ID))
        self.state = "PreparingRebalance"
        if before == "Empty" and delay_s:
            asyncio.get_running_loop().call_later(delay_s, self._complete)
        elif before != "PreparingRebalance":
            self._complete()

    def sync(self, req: sg.SyncGroupRequest, answer: Answer) -> None:
        code = self._refusal(req.member_id, req.group_instance_id, req.generation_id)
        if code == Code.NONE:
            self.state = "Stable"
        answer(sg.SyncGroupResponse(error_code=code))

    def heartbeat(self, req: hb.HeartbeatRequest, answer: Answer) -> None:
        code = self._refusal(req.member_id, req.group_instance_id, req.generation_id)
        if code == Code.NONE and self.state == "PreparingRebalance":
            code = Code.REBALANCE_IN_PROGRESS
        answer(hb.HeartbeatResponse(error_code=code))

    def leave(self, req: lg.LeaveGroupRequest, answer: Answer) -> None:
        told = []
        for m in req.members:
            code = self.refusal(m.member_id, m.group_instance_id)
            if code == Code.NONE:
                self.expel()
            told.append(lg.MemberResponse(m.member_id, m.group_instance_id, code))
        answer(lg.LeaveGroupResponse(members=told))

    def described(self, group_id: str) -> dg.DescribedGroup:
        members = [dg.DescribedGroupMember(f"native-{i}") for i in range(self.natives)]
        if self.member_id:
            members.append(dg.DescribedGroupMember(self.member_id, self.instance_id))
        return dg.DescribedGroup(Code.NONE, None, group_id, self.state, "consumer", members=members)

    def commit_refusal(self, member_id: str, instance_id: str | None, generation: int) -> Code:
        """As ClassicGroup.validateOffsetCommit decides."""
        if generation < 0 and not member_id and instance_id is None:
            return Code.NONE if self.state == "Empty" and not self.natives else Code.UNKNOWN_MEMBER_ID
        code = self._refusal(member_id, instance_id, generation)
        if code == Code.NONE and self.state == "CompletingRebalance":
            return Code.REBALANCE_IN_PROGRESS
        return code

    # ---- what a test does -----------------------------------------------------------------------------------
    def expel(self) -> None:
        """The member has left, or its session has ended."""
        self.member_id, self.instance_id, self.state = "", None, "Empty"
        self.generation += 1

    def take(self) -> str:
        """Another sidecar takes the placeholder."""
        self._made += 1
        self.member_id = f"{self.instance_id}-{self._made}"
        return self.member_id

    # ---- inside -----------------------------------------------------------------------------------------------
    def refusal(self, member_id: str, instance_id: str | None) -> Code:
        if instance_id is not None and self.instance_id == instance_id and self.member_id != member_id:
            return Code.FENCED_INSTANCE_ID
        return Code.NONE if self.member_id == member_id else Code.UNKNOWN_MEMBER_ID

    def _refusal(self, member_id: str, instance_id: str | None, generation: int) -> Code:
        code = self.refusal(member_id, instance_id)
        return code if code != Code.NONE or generation == self.generation else Code.ILLEGAL_GENERATION

    def _complete(self) -> None:
        if self.state == "PreparingRebalance" and self._joining is not None:
            answer, self._joining = self._joining, None
            self.generation += 1
            self.state = "CompletingRebalance"
            answer(self._joined(skip=False))

    def _joined(self, skip: bool) -> jg.JoinGroupResponse:
        return jg.JoinGroupResponse(
            generation_id=self.generation,
            protocol_type="consumer",
            protocol_name="kafka-group-sidecar",
            leader=self.member_id,
            skip_assignment=skip,
            member_id=self.member_id,
        )
