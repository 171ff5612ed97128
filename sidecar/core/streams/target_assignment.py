"""The target assignments of streams groups: after the initial delay, and for the present topology."""

from __future__ import annotations

from sidecar.core.modern.assignor_run import RunOutput
from sidecar.core.modern.target_assignment import Targets
from sidecar.core.runtime.turn import Turn
from sidecar.core.streams.assignor_run import StreamsRun, configs_of, run, snapshot
from sidecar.core.streams.config import STREAMS, StreamsConfig
from sidecar.core.streams.configure import configured_now, refresh
from sidecar.core.streams.delay import delayed
from sidecar.core.streams.group import StreamsGroup
from sidecar.core.streams.records import TargetRecord


def preferred(group: StreamsGroup, config: StreamsConfig) -> str:
    """Returns the group's assignor, else the first configured one: members cannot ask for one."""
    return config.assignor_name if config.assignor_name in config.assignors else config.assignors[0]


def _result(turn: Turn, group: StreamsGroup, inp: StreamsRun, out: RunOutput) -> TargetRecord | None:
    """Returns the record, or None if topology, readiness or standby replicas have changed: then the tasks may belong to
    another topology."""
    now = None if group.topology is None else configured_now(turn, group)
    if now != inp.configured or configs_of(turn, group) != inp.configs:
        refresh(turn, group)
        return None
    return TargetRecord(
        group.group_id,
        out.table,
        out.changed,
        inp.epoch,
        turn.now.wall_ms,
        inp.assignor,
        {},
        inp.why,
        inp.run_id,
    )


TARGETS = Targets(STREAMS, snapshot, run, _result, preferred, delayed, refresh)
