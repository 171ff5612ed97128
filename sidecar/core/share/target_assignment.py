"""The target assignments of share groups, which have only initialised partitions."""

from __future__ import annotations

from sidecar.core.modern.epochs import bump_epoch
from sidecar.core.modern.target_assignment import Targets
from sidecar.core.runtime.turn import Turn
from sidecar.core.share.assignor_run import ShareOutput, ShareRun, run, snapshot, without
from sidecar.core.share.config import SHARE, ShareConfig
from sidecar.core.share.group import ShareGroup
from sidecar.core.share.records import TargetRecord
from sidecar.core.share.soft_state import ShareSoft
from sidecar.core.vocabulary.rebalance_reasons import Reason


def preferred(group: ShareGroup, config: ShareConfig) -> str:
    """Returns the first configured assignor: members cannot ask for one."""
    return config.assignors[0]


def _result(turn: Turn, group: ShareGroup, inp: ShareRun, out: ShareOutput) -> TargetRecord:
    """Returns the record without partitions that have lost their share state meanwhile. An empty target has no time:
    the first initialised partitions are assigned at once, and not after the interval."""
    soft: ShareSoft = turn.soft_of(group.group_id)
    now, table = group.assignable(turn.image), out.table
    if now is not inp.assignable:
        table = without(table, now)
    soft.assigned_from = inp.assignable if now == inp.assignable else None
    covers = now is inp.assignable and out.covers and len(table.index) == len(table.members)
    return TargetRecord(
        group.group_id,
        table,
        out.changed if table is out.table else tuple(table.index),
        inp.epoch,
        turn.now.wall_ms if len(table.parts) else 0,
        inp.assignor,
        inp.image.names,
        inp.why,
        inp.run_id if table is out.table else 0,
        now if covers else None,
    )


TARGETS = Targets(SHARE, snapshot, run, _result, preferred)


def reassign_initialised(turn: Turn, group: ShareGroup) -> bool:
    """Raises the epoch if the target is up to date and differs from the assignable partitions: Kafka's
    initializedAssignmentPending. It does so once for an assignor that leaves partitions out. Returns whether the epoch
    rose."""
    soft: ShareSoft = turn.soft_of(group.group_id)
    if soft.releasing or not group.members or group.assignment_epoch < group.epoch or not group.differs(turn.image):
        return False
    if soft.assigned_from == group.assignable(turn.image):
        return False
    bump_epoch(turn, group, "other partitions are initialised", Reason.TOPICS)
    return True
