"""The row of consumer groups in the registry: their events, timers and records."""

from __future__ import annotations

from sidecar.core.consumer.adoption import RELEASE, AdoptConsumer, adopt
from sidecar.core.consumer.assignor_run import run
from sidecar.core.consumer.config import CONSUMER as NAME
from sidecar.core.consumer.config import ConsumerConfig
from sidecar.core.consumer.describe import describe
from sidecar.core.consumer.events import ConsumerHeartbeat, DescribeConsumerGroup
from sidecar.core.consumer.group import ConsumerGroup
from sidecar.core.consumer.heartbeat import heartbeat
from sidecar.core.consumer.inspect import INSPECT
from sidecar.core.consumer.members import arm_session, remove_members
from sidecar.core.consumer.offsets import check_commit
from sidecar.core.consumer.parked_joins import PARKED
from sidecar.core.consumer.records import RECORDS
from sidecar.core.consumer.regexes import RegexResolved, names_changed, regex_resolved
from sidecar.core.consumer.soft_state import ConsumerSoft
from sidecar.core.consumer.target_assignment import TARGETS
from sidecar.core.modern import registration as modern
from sidecar.core.modern.offsets import check_fetch
from sidecar.core.modern.sessions import REMOVING, arm_rebalance, removing_timers
from sidecar.core.modern.target_assignment import AssignorDone
from sidecar.core.runtime.effects import TOUCH_MS
from sidecar.core.runtime.offset_checks import CommitCheck, FetchCheck
from sidecar.core.runtime.registry import GroupKind
from sidecar.core.runtime.turn import Turn


def _member_loaded(turn: Turn, group: ConsumerGroup, member_id: str) -> None:
    member = group.members.get(member_id)
    if member is not None:
        arm_session(turn, group.group_id, member)
        arm_rebalance(turn, group.group_id, member)


def _topics_changed(turn: Turn, group: ConsumerGroup, changed: frozenset[str]) -> None:
    modern.topics_changed(turn, group, changed)
    if group.regexes:
        turn.changed(group.group_id)
    names_changed(turn, group)


def _touched(turn: Turn, group: ConsumerGroup, member_id: str) -> None:
    member = group.members.get(member_id)
    if member is not None:
        arm_session(turn, group.group_id, member, TOUCH_MS)


def _regex_resolved(turn: Turn, event: RegexResolved, token: int) -> None:
    regex_resolved(turn, event)
    PARKED.give_up(turn, event.group_id, event.gone_token)
    PARKED.wake(turn, event.group_id)


CONSUMER = GroupKind(
    name=NAME,
    make=ConsumerGroup,
    soft=ConsumerSoft,
    config=ConsumerConfig,
    records=RECORDS,
    events={
        ConsumerHeartbeat: heartbeat,
        CommitCheck: check_commit,
        FetchCheck: check_fetch,
        DescribeConsumerGroup: describe,
        AssignorDone: modern.assignor_done(TARGETS, PARKED),
        RegexResolved: _regex_resolved,
        AdoptConsumer: adopt,
        **RELEASE.events(),
    },
    timers={**TARGETS.timers(), **PARKED.timers(), **removing_timers(remove_members)},
    removing=REMOVING,
    loaded=modern.loaded,
    member_loaded=_member_loaded,
    touched=_touched,
    topics_changed=_topics_changed,
    inspect=INSPECT,
    answer_waiting=modern.answer_waiting,
    run=run,
)
