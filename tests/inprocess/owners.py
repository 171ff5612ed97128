"""A classic group at the broker, as far as coordinator/membership/owners_group.py needs one.

A JoinGroup is answered when every known member has joined; a SyncGroup when the leader has sent the assignments.
A member of a stable group that is not its leader and joins again with the same metadata learns the present generation,
as in Kafka. There are no session timers: `expel` says that a session has ended.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sidecar.core.vocabulary.errors import Code
from sidecar.wire.generated import describe_groups as dg
from sidecar.wire.generated import heartbeat as hb
from sidecar.wire.generated import join_group as jg
from sidecar.wire.generated import leave_group as lg
from sidecar.wire.generated import sync_group as sg

Answer = Callable[[Any], None]


@dataclass
class _Member:
    metadata: bytes
    joining: Answer | None = None
    syncing: Answer | None = None
    assignment: bytes = b""


class ClassicGroup:
    def __init__(self) -> None:
        self.generation = 0
        self.stable = False
        self.leader = ""
        self.members: dict[str, _Member] = {}
        self._rebalancing = False
        self._made = 0

    def described(self, group_id: str) -> dg.DescribedGroup:
        """Sidecars call themselves by the node id that they tell."""

        def client_id(metadata: bytes) -> str:
            return f"sidecar-{json.loads(metadata)['node_id']}" if b"peer_port" in metadata else "stranger"

        members = [
            dg.DescribedGroupMember(n, None, client_id(m.metadata), "", m.metadata) for n, m in self.members.items()
        ]
        state = "Stable" if self.stable else "CompletingRebalance"
        return dg.DescribedGroup(Code.NONE, None, group_id, state, members=members)

    # ---- requests -----------------------------------------------------------------------------------------
    def join(self, req: jg.JoinGroupRequest, answer: Answer) -> None:
        if not req.member_id:
            self._made += 1
            made = f"member-{self._made}"
            answer(jg.JoinGroupResponse(error_code=Code.MEMBER_ID_REQUIRED, member_id=made))
            return
        metadata = req.protocols[0].metadata
        member = self.members.get(req.member_id)
        if member is None:
            if not req.member_id.startswith("member-") or int(req.member_id[7:]) > self._made:
                answer(jg.JoinGroupResponse(error_code=Code.UNKNOWN_MEMBER_ID))
                return
            member = self.members[req.member_id] = _Member(metadata)
        elif self.stable and req.member_id != self.leader and metadata == member.metadata:
            answer(self._joined(req.member_id))
            return
        member.metadata, member.joining = metadata, answer
        self.rebalance()
        self._complete()

    def sync(self, req: sg.SyncGroupRequest, answer: Answer) -> None:
        code = self._refusal(req.member_id, req.generation_id)
        if code != Code.NONE:
            answer(sg.SyncGroupResponse(error_code=code))
            return
        member = self.members[req.member_id]
        member.syncing = answer
        if req.member_id == self.leader:
            for item in req.assignments:
                self.members[item.member_id].assignment = item.assignment
            self.stable = True
        if self.stable:
            for waiting in self.members.values():
                if waiting.syncing is not None:
                    answered, waiting.syncing = waiting.syncing, None
                    answered(sg.SyncGroupResponse(assignment=waiting.assignment))

    def heartbeat(self, req: hb.HeartbeatRequest, answer: Answer) -> None:
        answer(hb.HeartbeatResponse(error_code=self._refusal(req.member_id, req.generation_id)))

    def commit_refusal(self, member_id: str, generation: int) -> Code:
        """NONE: a member may commit, also while others join."""
        code = self._refusal(member_id, generation)
        return Code.NONE if code == Code.REBALANCE_IN_PROGRESS else code

    def leave(self, req: lg.LeaveGroupRequest, answer: Answer) -> None:
        gone = [m.member_id for m in req.members] or [req.member_id]
        told = [lg.MemberResponse(m, None, Code.NONE if self.expel(m) else Code.UNKNOWN_MEMBER_ID) for m in gone]
        answer(lg.LeaveGroupResponse(members=told))

    # ---- what a test does -----------------------------------------------------------------------------------
    def expel(self, member_id: str) -> bool:
        """The member has left, or its session has ended. Returns whether it was known."""
        if self.members.pop(member_id, None) is None:
            return False
        if self.members:
            self.rebalance()
            self._complete()
        return True

    def rebalance(self) -> None:
        """Every member must join again; those that wait for assignments are told so at once."""
        self.stable, self._rebalancing = False, True
        for member in self.members.values():
            if member.syncing is not None:
                answer, member.syncing = member.syncing, None
                answer(sg.SyncGroupResponse(error_code=Code.REBALANCE_IN_PROGRESS))

    # ---- inside -----------------------------------------------------------------------------------------------
    def _refusal(self, member_id: str, generation: int) -> Code:
        if member_id not in self.members:
            return Code.UNKNOWN_MEMBER_ID
        if generation != self.generation:
            return Code.ILLEGAL_GENERATION
        return Code.REBALANCE_IN_PROGRESS if self._rebalancing else Code.NONE

    def _complete(self) -> None:
        if any(m.joining is None for m in self.members.values()):
            return
        self.generation += 1
        self._rebalancing = False
        if self.leader not in self.members:
            self.leader = next(iter(self.members))
        for member_id, member in list(self.members.items()):
            answer, member.joining = member.joining, None
            assert answer is not None
            answer(self._joined(member_id))

    def _joined(self, member_id: str) -> jg.JoinGroupResponse:
        return jg.JoinGroupResponse(
            generation_id=self.generation,
            protocol_type="sidecar",
            protocol_name="beside-leader-v1",
            leader=self.leader,
            member_id=member_id,
            members=[jg.JoinGroupResponseMember(m, None, member.metadata) for m, member in self.members.items()]
            if member_id == self.leader
            else [],
        )
