"""The row of classic groups in the registry: their events, timers and records."""

from __future__ import annotations

from sidecar.core.classic.adoption import AdoptClassic, adopt, rebalance, release
from sidecar.core.classic.config import CLASSIC as NAME
from sidecar.core.classic.config import ClassicConfig, config_of
from sidecar.core.classic.describe import describe
from sidecar.core.classic.events import (
    ClassicHeartbeat,
    DescribeClassic,
    JoinGroup,
    JoinReply,
    LeaveGroup,
    SyncGroup,
    SyncReply,
)
from sidecar.core.classic.group import ClassicGroup
from sidecar.core.classic.inspect import INSPECT
from sidecar.core.classic.join import join
from sidecar.core.classic.leave import leave, session_over
from sidecar.core.classic.offsets import check_commit, check_fetch
from sidecar.core.classic.rebalance import (
    JOIN,
    SESSION,
    SYNC,
    arm_session,
    await_join,
    await_sync,
    join_due,
    prepare,
    sync_due,
)
from sidecar.core.classic.records import RECORDS, State
from sidecar.core.classic.soft_state import ClassicSoft
from sidecar.core.classic.sync import heartbeat, sync
from sidecar.core.runtime.effects import TOUCH_MS
from sidecar.core.runtime.events import Rebalance, ReleaseGroup
from sidecar.core.runtime.offset_checks import CommitCheck, FetchCheck
from sidecar.core.runtime.registry import GroupKind
from sidecar.core.runtime.turn import Turn
from sidecar.core.vocabulary.errors import Code
from sidecar.core.vocabulary.rebalance_reasons import Reason

SHRINK = "classic_shrink"
"""Timer: a rebuilt group is larger than its limit."""


def _member_loaded(turn: Turn, group: ClassicGroup, member_id: str) -> None:
    """Arms a full session for a member of a rebuilt group."""
    member = group.members.get(member_id)
    if member is None or group.knows_its_id(member):
        arm_session(turn, group, member_id)
    else:
        # The client never received this id, and joins again as another member: the group need not wait for this one.
        turn.timers.set((SESSION, group.group_id, member_id), turn.now.mono_ms)


def _loaded(turn: Turn, group: ClassicGroup) -> None:
    """Restarts the join or sync phase of a rebuilt group that was under way."""
    soft: ClassicSoft = turn.soft_of(group.group_id)
    if group.state is State.PREPARING:
        soft.unsynced = set(group.members)  # their SyncGroups to the former owner are unknown
        await_join(turn, group)
    elif group.state is State.COMPLETING:
        soft.unsynced = set(group.members)
        await_sync(turn, group)
    if len(group.members) > config_of(turn, group.group_id).max_size and group.state is not State.PREPARING:
        turn.timers.set((SHRINK, group.group_id), turn.now.mono_ms)


def _too_large(turn: Turn, group: ClassicGroup, key: tuple[str, ...], tag: int) -> None:
    """Begins a rebalance, because the limit shrank while the group had no coordinator. Members may commit, and then not
    all can come back."""
    if group.state in (State.STABLE, State.COMPLETING):
        prepare(turn, group, f"{len(group.members)} members are more than group.max.size", Reason.SIZE)


def _touched(turn: Turn, group: ClassicGroup, member_id: str) -> None:
    arm_session(turn, group, member_id, TOUCH_MS)


def _answer_waiting(turn: Turn, group: ClassicGroup) -> None:
    """Answers all waiting requests with REBALANCE_IN_PROGRESS, because the group ends or becomes one of another
    kind."""
    soft: ClassicSoft = turn.soft_of(group.group_id)
    for member_id, token in soft.joins.items():
        turn.reply(token, JoinReply(Code.REBALANCE_IN_PROGRESS, member_id=member_id))
    for token in soft.syncs.values():
        turn.reply(token, SyncReply(Code.REBALANCE_IN_PROGRESS))
    soft.joins, soft.syncs = {}, {}
    for name in (JOIN, SYNC, SHRINK):
        turn.timers.cancel((name, group.group_id))
    for member_id in (*group.members, *soft.pending):
        turn.timers.cancel((SESSION, group.group_id, member_id))


CLASSIC = GroupKind(
    name=NAME,
    make=ClassicGroup,
    soft=ClassicSoft,
    config=ClassicConfig,
    records=RECORDS,
    events={
        JoinGroup: join,
        SyncGroup: sync,
        ClassicHeartbeat: heartbeat,
        LeaveGroup: leave,
        DescribeClassic: describe,
        CommitCheck: check_commit,
        FetchCheck: check_fetch,
        AdoptClassic: adopt,
        Rebalance: rebalance,
        ReleaseGroup: release,
    },
    timers={JOIN: join_due, SYNC: sync_due, SESSION: session_over, SHRINK: _too_large},
    removing=frozenset((SYNC, SESSION)),
    in_barrier=lambda group: group.state in (State.PREPARING, State.COMPLETING),
    loaded=_loaded,
    member_loaded=_member_loaded,
    touched=_touched,
    topics_changed=lambda turn, group, changed: None,
    inspect=INSPECT,
    answer_waiting=_answer_waiting,
)
