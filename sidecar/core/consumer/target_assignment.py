"""The target assignment of consumer groups: the assignor that most members ask for, and the record
(modern/target_assignment.py)."""

from __future__ import annotations

from sidecar.core.consumer.assignor_run import ConsumerOutput, ConsumerRun, run, snapshot
from sidecar.core.consumer.config import CONSUMER, ConsumerConfig
from sidecar.core.consumer.group import ConsumerGroup
from sidecar.core.consumer.records import TargetRecord
from sidecar.core.consumer.soft_state import ConsumerSoft
from sidecar.core.modern.target_assignment import Targets
from sidecar.core.runtime.turn import Turn


def preferred_assignor(group: ConsumerGroup, config: ConsumerConfig) -> str:
    """Returns the assignor that most members ask for, else the first configured one."""
    votes = {name: group.votes[name] for name in config.assignors if group.votes.get(name)}
    return max(votes, key=votes.__getitem__) if votes else config.assignors[0]


def _snapshot(turn: Turn, group: ConsumerGroup, assignor: str) -> ConsumerRun:
    soft: ConsumerSoft = turn.soft_of(group.group_id)
    return snapshot(group, soft.layout, turn.image, assignor, turn.next_run())


def _result(turn: Turn, group: ConsumerGroup, inp: ConsumerRun, out: ConsumerOutput) -> TargetRecord:
    soft: ConsumerSoft = turn.soft_of(group.group_id)
    soft.layout = out.cached
    return TargetRecord(
        group.group_id,
        out.table,
        out.changed,
        inp.epoch,
        turn.now.wall_ms,
        inp.assignor,
        inp.image.names,
        inp.why,
        inp.run_id,
    )


TARGETS = Targets(CONSUMER, _snapshot, run, _result, preferred_assignor)
