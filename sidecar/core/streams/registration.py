"""The row of streams groups in the registry: their events, timers and records."""

from __future__ import annotations

from sidecar.core.modern import registration as modern
from sidecar.core.modern.assignment_resend import TIMES
from sidecar.core.modern.offsets import check_fetch
from sidecar.core.modern.sessions import REMOVING, arm_rebalance, removing_timers
from sidecar.core.modern.soft_state import ModernSoft, Resend
from sidecar.core.modern.target_assignment import AssignorDone
from sidecar.core.runtime.offset_checks import CommitCheck, FetchCheck
from sidecar.core.runtime.registry import GroupKind
from sidecar.core.runtime.turn import Turn
from sidecar.core.streams.adoption import RELEASE, AdoptStreams, adopt
from sidecar.core.streams.assignor_run import run
from sidecar.core.streams.config import STREAMS as NAME
from sidecar.core.streams.config import StreamsConfig
from sidecar.core.streams.delay import TIMER, go_on
from sidecar.core.streams.describe import describe
from sidecar.core.streams.events import DescribeStreamsGroup, StreamsHeartbeat, TopicsCreated
from sidecar.core.streams.group import StreamsGroup
from sidecar.core.streams.heartbeat import heartbeat
from sidecar.core.streams.inspect import INSPECT
from sidecar.core.streams.members import remove_members
from sidecar.core.streams.offsets import check_commit
from sidecar.core.streams.parked_joins import PARKED
from sidecar.core.streams.records import RECORDS
from sidecar.core.streams.soft_state import StreamsSoft
from sidecar.core.streams.status import topics_created
from sidecar.core.streams.target_assignment import TARGETS


def _loaded(turn: Turn, group: StreamsGroup) -> None:
    """Arms the timers of a rebuilt group. The endpoints in the former owner's answers are unknown, so the next epoch
    sends all of them again."""
    modern.loaded(turn, group)
    go_on(turn, group)
    soft: StreamsSoft = turn.soft_of(group.group_id)
    soft.endpoints_incomplete = any(m.endpoint is not None for m in group.members.values())


def _member_loaded(turn: Turn, group: StreamsGroup, member_id: str) -> None:
    member = group.members.get(member_id)
    if member is not None:
        modern.member_loaded(turn, group, member_id)
        arm_rebalance(turn, group.group_id, member)
        if member.holds:  # it may lack its tasks, and only the former owner knew
            soft: StreamsSoft = turn.soft_of(group.group_id)
            soft.unacknowledged[member_id] = Resend(turn.now.mono_ms, TIMES)


def _topics_changed(turn: Turn, group: StreamsGroup, changed: frozenset[str]) -> None:
    """Has the next heartbeat configure the topology anew, if one of `changed` is a required topic."""
    soft: ModernSoft = turn.soft_of(group.group_id)
    if not soft.metadata_due and not changed.isdisjoint(group.required_topics):
        soft.metadata_due = True
    if soft.metadata_due:
        turn.changed(group.group_id)


def answer_waiting(turn: Turn, group: StreamsGroup) -> None:
    modern.answer_waiting(turn, group)
    turn.timers.cancel((TIMER, group.group_id))


STREAMS = GroupKind(
    name=NAME,
    make=StreamsGroup,
    soft=StreamsSoft,
    config=StreamsConfig,
    records=RECORDS,
    events={
        StreamsHeartbeat: heartbeat,
        DescribeStreamsGroup: describe,
        TopicsCreated: topics_created,
        CommitCheck: check_commit,
        FetchCheck: check_fetch,
        AssignorDone: modern.assignor_done(TARGETS, PARKED),
        AdoptStreams: adopt,
        **RELEASE.events(),
    },
    timers={
        **removing_timers(remove_members),
        **TARGETS.timers(),
        **PARKED.timers(),
        TIMER: TARGETS.due,
    },
    removing=REMOVING,
    loaded=_loaded,
    member_loaded=_member_loaded,
    touched=modern.touched,
    topics_changed=_topics_changed,
    inspect=INSPECT,
    answer_waiting=answer_waiting,
    run=run,
)
