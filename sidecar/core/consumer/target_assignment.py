"""When a new target assignment is computed, by whom, and writing it down (KIP-848 'Assignment', KIP-1263).

Offloaded: the run goes out as a command, its result comes back as an event and is brought up to date with what
changed meanwhile. Unlike Kafka: a due batch also runs by a timer, a clock that jumped back does not stall it, and
a failing or slow assignor leaves the group on its last target and is tried again, ever less often.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sidecar.core.consumer.assignor_run import RunInput, RunOutput, run, snapshot
from sidecar.core.consumer.config import ConsumerConfig, config_of
from sidecar.core.consumer.group import ConsumerGroup
from sidecar.core.consumer.members import refresh_metadata_hash
from sidecar.core.consumer.records import TargetMemberRecord, TargetMetadataRecord, TargetRecord
from sidecar.core.consumer.soft_state import ConsumerSoft, Flight
from sidecar.core.runtime.events import Event
from sidecar.core.runtime.turn import Turn

RETRY_MS = 1_000
RETRY_MAX_MS = 60_000
"""After failed assignor runs: doubled each time, up to this."""


@dataclass(frozen=True, slots=True)
class RunAssignor:
    """Background work: run this; the answer comes back as `AssignorDone`."""

    input: RunInput

    @property
    def group_id(self) -> str:
        return self.input.group_id


class AssignorDone(Event):
    """The end of a run. `output` None: it failed, and `error` says why."""

    inner: ClassVar[bool] = True

    input: RunInput
    output: RunOutput | None
    error: str = ""


def assign_due(turn: Turn, group: ConsumerGroup, key: tuple[str, ...], tag: int) -> None:
    """The assignment interval is over and no heartbeat has come meanwhile."""
    refresh_metadata_hash(turn, group)
    update_target(turn, group)


def update_target(turn: Turn, group: ConsumerGroup) -> None:
    """Begin a run, or compute at once, if the group's epoch asks for it and the interval allows it now."""
    if group.assignment_epoch >= group.epoch or not group.members:
        return
    soft: ConsumerSoft = turn.soft_of(group.group_id)
    if soft.draining:
        _take_all(turn, group)
        return
    if soft.flight is not None:
        return
    config = config_of(turn, group.group_id)
    key = ("assign", group.group_id)
    wait_ms = max(_wait_ms(group, config, turn.now.wall_ms), soft.retry_at_ms - turn.now.mono_ms)
    if wait_ms > 0:
        if turn.timers.deadline(key) is None:
            turn.timers.set(key, turn.now.mono_ms + wait_ms)
        return
    turn.timers.cancel(key)
    inp = snapshot(group, soft.layout, turn.image, preferred_assignor(group, config), turn.next_run())
    if config.assignor_offload_enable:
        soft.flight = Flight(inp.run_id, inp.assignor)
        turn.changed(group.group_id)  # heartbeats wait for the run from now on: no front answers them any more
        turn.timers.set(("run", group.group_id), turn.now.mono_ms + config.assignor_timeout_ms, inp.run_id)
        turn.fx.background.append(RunAssignor(inp))
        return
    try:
        out = run(inp, turn.ports.assignors[inp.assignor])
    except Exception as exc:  # noqa: BLE001 - plug-in code: whatever it raises, the group keeps its last target
        _failed(turn, group, inp.assignor, repr(exc))
        return
    _finish(turn, group, inp, out, Flight(inp.run_id))


def _take_all(turn: Turn, group: ConsumerGroup) -> None:
    """Nobody is to own anything."""
    why = "the group goes back to the broker"
    turn.timers.cancel(("assign", group.group_id))
    for member_id in group.members:
        turn.write(TargetMemberRecord(group.group_id, member_id, {}, {}, why))
    turn.write(TargetMetadataRecord(group.group_id, group.epoch, turn.now.wall_ms, group.assignor, why))


def assignor_done(turn: Turn, event: AssignorDone) -> None:
    """The result of an offloaded run. Of a group that is gone, or of a run that was given up, it is dropped."""
    inp = event.input
    group = turn.groups.get(inp.group_id)
    if type(group) is not ConsumerGroup:
        group = None  # deleted, or one of the classic protocol since
    soft: ConsumerSoft | None = None if group is None else turn.soft_of(inp.group_id)
    if group is None or soft is None or soft.flight is None or soft.flight.run_id != inp.run_id:
        turn.fx.log("assignment dropped", group_id=inp.group_id, epoch=inp.epoch, why="the group moved on")
        return
    flight, soft.flight = soft.flight, None
    turn.timers.cancel(("run", group.group_id))
    if event.output is None:
        _failed(turn, group, inp.assignor, event.error)
        return
    _finish(turn, group, inp, event.output, flight)
    update_target(turn, group)  # the epoch may have risen meanwhile: the interval begins now


def run_overdue(turn: Turn, group: ConsumerGroup, key: tuple[str, ...], run_id: int) -> None:
    """The assignor is too slow: its result will be dropped when it comes."""
    soft: ConsumerSoft = turn.soft_of(group.group_id)
    if soft.flight is not None and soft.flight.run_id == run_id:
        assignor, soft.flight = soft.flight.assignor, None
        limit = config_of(turn, group.group_id).assignor_timeout_ms
        _failed(turn, group, assignor, f"no result within {limit} ms")


def _failed(turn: Turn, group: ConsumerGroup, assignor: str, error: str) -> None:
    soft: ConsumerSoft = turn.soft_of(group.group_id)
    pause_ms = min(RETRY_MS << min(soft.failures, 16), RETRY_MAX_MS)
    soft.failures += 1
    soft.retry_at_ms = turn.now.mono_ms + pause_ms
    turn.timers.set(("assign", group.group_id), soft.retry_at_ms)
    turn.fx.count("assignor_failures", assignor)
    turn.fx.log(
        "assignor failed",
        group_id=group.group_id,
        assignor=assignor,
        error=error,
        failures=soft.failures,
        retry_ms=pause_ms,
    )


def _wait_ms(group: ConsumerGroup, config: ConsumerConfig, wall_ms: int) -> int:
    last, interval = group.assignment_timestamp_ms, config.assignment_interval_ms
    if last == 0 or interval == 0 or wall_ms < last:
        return 0
    return max(0, last + interval - wall_ms)


def preferred_assignor(group: ConsumerGroup, config: ConsumerConfig) -> str:
    """The one most members ask for, else the first configured."""
    votes = {name: group.votes[name] for name in config.assignors if group.votes.get(name)}
    return max(votes, key=votes.__getitem__) if votes else config.assignors[0]


def _finish(
    turn: Turn,
    group: ConsumerGroup,
    inp: RunInput,
    out: RunOutput,
    flight: Flight,
) -> None:
    """Write the new target: without members that are gone, with the new ids of static ones (KIP-1263 'Assignment
    Offload'), and with the time the calculation finished."""
    soft: ConsumerSoft = turn.soft_of(group.group_id)
    soft.layout = out.known
    soft.failures, soft.retry_at_ms = 0, 0
    now_called = {old: new for old, new in flight.now.items() if old in out.table.index}
    table = out.table.renamed(now_called)
    changed = tuple(m for old in out.changed if (m := now_called.get(old, old)) is not None)
    turn.write(
        TargetRecord(
            group.group_id,
            table,
            changed,
            inp.epoch,
            turn.now.wall_ms,
            inp.assignor,
            inp.image.names,
            inp.why,
            inp.run_id,
        )
    )
    turn.fx.count("assignments", inp.assignor)
    turn.fx.count("partitions_moved", inp.assignor, by=out.moved)
    turn.fx.log(
        "target assignment",
        group_id=group.group_id,
        epoch=inp.epoch,
        assignor=inp.assignor,
        members=len(table.index),
        partitions_moved=out.moved,
    )
