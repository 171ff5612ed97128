"""DescribeGroups (api 15, KIP-40) of one classic group. Row 1.26 of docs/reference/behaviour.md."""

from __future__ import annotations

from sidecar.core.classic.events import DescribeClassic, DescribeClassicReply, DescribedClassicMember
from sidecar.core.classic.group import ClassicGroup, Member, classic_group
from sidecar.core.classic.records import State
from sidecar.core.runtime.turn import Turn
from sidecar.core.vocabulary.errors import Code, CoordinatorError


def describe(turn: Turn, e: DescribeClassic, token: int) -> None:
    group = classic_group(turn.groups, e.group_id)
    if group is None:
        problem = "is not a classic group" if e.group_id in turn.groups else "not found"
        raise CoordinatorError(Code.GROUP_ID_NOT_FOUND, f"Group {e.group_id} {problem}.")
    stable = group.state is State.STABLE
    turn.reply(
        token,
        DescribeClassicReply(
            state=group.state_name(),
            protocol_type=group.protocol_type,
            protocol=(group.protocol or "") if stable else "",
            members=tuple(_member(group, m, stable) for m in group.members.values()),
        ),
    )


def _member(group: ClassicGroup, m: Member, stable: bool) -> DescribedClassicMember:
    return DescribedClassicMember(
        m.member_id,
        m.instance_id,
        m.client_id,
        m.client_host,
        m.metadata(group.protocol) if stable else b"",
        group.assignments.get(m.member_id, b""),
    )
