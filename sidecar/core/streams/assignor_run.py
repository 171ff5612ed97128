"""One run of a task assignor: a snapshot of the group in, a new target out. Pure, and safe in any thread."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sidecar.assign.task_spec import (
    AssignmentConfigs,
    MemberTasks,
    Subtopology,
    TaskArrayAssignor,
    TaskAssignor,
    TaskMemberSpec,
    TaskSpec,
    checked,
)
from sidecar.core.modern import assignor_run as modern
from sidecar.core.runtime.turn import Turn
from sidecar.core.streams.config import STREAMS, config_of
from sidecar.core.streams.configure import configured_now
from sidecar.core.streams.group import Member, StreamsGroup
from sidecar.core.streams.java_order import compare_order
from sidecar.core.streams.partitions import ConfiguredTopology
from sidecar.core.streams.records import Kind, TaskTargets
from sidecar.core.streams.soft_state import Offsets, StreamsSoft
from sidecar.core.streams.tasks import NO_TASKS, Partitions, Tasks


@dataclass(frozen=True, slots=True)
class StreamsRun(modern.RunInput):
    """Input of a run. `configured` None: the group has no topology; `offsets`: of the members' tasks, hints for the
    assignor."""

    kind = STREAMS
    member_record = Kind.TARGET_MEMBER

    members: Mapping[str, Member]
    configured: ConfiguredTopology | None
    configs: AssignmentConfigs
    offsets: Mapping[str, tuple[Offsets, Offsets]]
    target: Mapping[str, Tasks]


def snapshot(turn: Turn, group: StreamsGroup, assignor: str) -> StreamsRun:
    """Returns the input of a run. Costs a few copies of references."""
    soft: StreamsSoft = turn.soft_of(group.group_id)
    return StreamsRun(
        group.group_id,
        turn.next_run(),
        group.epoch,
        assignor,
        turn.image,
        group.members.copy(),
        None if group.topology is None else configured_now(turn, group),
        configs_of(turn, group),
        dict(soft.offsets),
        group.target.copy(),
    )


def configs_of(turn: Turn, group: StreamsGroup) -> AssignmentConfigs:
    config = config_of(turn, group.group_id)
    return AssignmentConfigs(config.standbys, config.rack_aware_assignment_tags)


def run(inp: StreamsRun, assignor: TaskAssignor) -> modern.RunOutput:
    """Runs the assignor. Its exceptions propagate. While the topology is not ready, all targets are empty."""
    if inp.configured is None or not inp.configured.ready:
        now = dict.fromkeys(inp.members, NO_TASKS)
    else:
        spec = spec_of(inp, inp.configured)
        result = assignor(spec) if isinstance(assignor, TaskArrayAssignor) else checked(spec, assignor(spec))
        now = {m: _tasks(result[m]) if m in result else NO_TASKS for m in spec.members}
    changed, moved = [], 0
    for member_id, tasks in now.items():
        had = inp.target.get(member_id)
        if had != tasks:
            changed.append(member_id)
            moved += _more(tasks.active, (had or NO_TASKS).active)
    return modern.RunOutput(TaskTargets(now), tuple(changed), moved)


def spec_of(inp: StreamsRun, configured: ConfiguredTopology) -> TaskSpec:
    """Returns the assignor's input, in the order of ids: the same group gets the same target in any order of joins,
    before and after a takeover."""
    return TaskSpec(
        {m: _member(inp.members[m], *inp.offsets.get(m, ({}, {}))) for m in sorted(inp.members, key=compare_order)},
        {i: Subtopology(s.tasks, bool(s.changelog_topics)) for i, s in configured.subtopologies.items()},
        inp.configs,
    )


def _member(m: Member, offsets: Offsets, end_offsets: Offsets) -> TaskMemberSpec:
    has = m.assigned.without_epochs()
    return TaskMemberSpec(
        m.process_id,
        m.instance_id,
        m.rack_id,
        m.client_tags,
        has.active,
        has.standby,
        has.warmup,
        offsets,
        end_offsets,
    )


def _tasks(t: MemberTasks) -> Tasks:
    return Tasks(*({s: tuple(ps) for s, ps in sorted(part.items()) if ps} for part in (t.active, t.standby, t.warmup)))


def _more(now: Partitions, had: Partitions) -> int:
    return sum(len(set(ps).difference(had.get(s, ()))) for s, ps in now.items())
