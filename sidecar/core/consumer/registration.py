"""The row of consumer groups in the registry: which events, timers and records are theirs."""

from __future__ import annotations

from sidecar.core.consumer.adoption import AdoptConsumer, adopt, drain, rebalance
from sidecar.core.consumer.config import CONSUMER as NAME
from sidecar.core.consumer.config import ConsumerConfig, config_of
from sidecar.core.consumer.describe import describe
from sidecar.core.consumer.events import ConsumerHeartbeat, DescribeConsumerGroup
from sidecar.core.consumer.group import ConsumerGroup
from sidecar.core.consumer.heartbeat import heartbeat
from sidecar.core.consumer.members import arm_rebalance, arm_session, rebalance_timeout, session_timeout
from sidecar.core.consumer.offsets import check_commit, check_fetch
from sidecar.core.consumer.parked_joins import answer_all, give_up, waited_enough, wake
from sidecar.core.consumer.records import RECORDS
from sidecar.core.consumer.regexes import RegexResolved, names_changed, regex_resolved
from sidecar.core.consumer.soft_state import ConsumerSoft
from sidecar.core.consumer.target_assignment import AssignorDone, assign_due, assignor_done, run_overdue
from sidecar.core.runtime.effects import TOUCH_MS
from sidecar.core.runtime.events import Drain, Rebalance
from sidecar.core.runtime.offset_checks import CommitCheck, FetchCheck
from sidecar.core.runtime.registry import GroupKind
from sidecar.core.runtime.turn import Turn


def _member_loaded(turn: Turn, group: ConsumerGroup, member_id: str) -> None:
    member = group.members.get(member_id)
    if member is not None:
        arm_session(turn, group.group_id, member)
        arm_rebalance(turn, group.group_id, member)


def _loaded(turn: Turn, group: ConsumerGroup) -> None:
    if group.epoch > group.assignment_epoch:
        wait_ms = config_of(turn, group.group_id).assignment_interval_ms
        turn.timers.set(("assign", group.group_id), turn.now.mono_ms + wait_ms)


def _topics_changed(turn: Turn, group: ConsumerGroup, changed: frozenset[str]) -> None:
    """A group that subscribes to one of `changed` looks at its metadata hash on its next heartbeat."""
    soft: ConsumerSoft = turn.soft_of(group.group_id)
    if not soft.metadata_due and not changed.isdisjoint(group.subscribed_topics()):
        soft.metadata_due = True
    if group.regexes or soft.metadata_due:
        turn.changed(group.group_id)
    names_changed(turn, group)


def _touched(turn: Turn, group: ConsumerGroup, member_id: str) -> None:
    member = group.members.get(member_id)
    if member is not None:
        arm_session(turn, group.group_id, member, TOUCH_MS)


def _released(turn: Turn, group: ConsumerGroup) -> None:
    answer_all(turn, group)
    for member_id in group.members:
        turn.timers.cancel(("session", group.group_id, member_id))
        turn.timers.cancel(("rebalance", group.group_id, member_id))
    turn.timers.cancel(("assign", group.group_id))
    turn.timers.cancel(("run", group.group_id))


def _assignor_done(turn: Turn, event: AssignorDone, token: int) -> None:
    assignor_done(turn, event)
    wake(turn, event.group_id)


def _regex_resolved(turn: Turn, event: RegexResolved, token: int) -> None:
    regex_resolved(turn, event)
    give_up(turn, event.group_id, event.unheard)
    wake(turn, event.group_id)


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
        AssignorDone: _assignor_done,
        RegexResolved: _regex_resolved,
        AdoptConsumer: adopt,
        Rebalance: rebalance,
        Drain: drain,
    },
    timers={
        "session": session_timeout,
        "rebalance": rebalance_timeout,
        "assign": assign_due,
        "run": run_overdue,
        "join": waited_enough,
    },
    removing=frozenset(("session", "rebalance")),
    loaded=_loaded,
    member_loaded=_member_loaded,
    touched=_touched,
    topics_changed=_topics_changed,
    released=_released,
)
