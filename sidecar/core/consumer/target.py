"""When a new target assignment is computed, by whom, and writing it down (KIP-848 'Assignment', KIP-1263).

Offloaded: the run goes out as a command, its result comes back as an event and is brought up to date with what
changed meanwhile. Unlike Kafka: a due batch also runs by a timer, a clock that jumped back does not stall it, and
a failing or slow assignor leaves the group on its last target and is tried again, ever less often.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sidecar.core.consumer.group import ConsumerGroup, Flight
from sidecar.core.consumer.run import RunInput, RunOutput, run, snapshot
from sidecar.core.events import AssignorDone, GroupConfig, RunAssignor
from sidecar.core.records import TargetRecord

if TYPE_CHECKING:
    from sidecar.core.shard import Turn

RETRY_MS = 1_000
RETRY_MAX_MS = 60_000
"""After failed assignor runs: doubled each time, up to this."""


def update_target(turn: Turn, group: ConsumerGroup) -> None:
    """Begin a run, or compute at once, if the group's epoch asks for it and the interval allows it now."""
    if group.assignment_epoch >= group.epoch or not group.members or group.flight is not None:
        return
    config = turn.config(group.group_id)
    key = ("assign", group.group_id)
    wait_ms = max(_wait_ms(group, config, turn.now.wall_ms), group.retry_at_ms - turn.now.mono_ms)
    if wait_ms > 0:
        if turn.timers.deadline(key) is None:
            turn.timers.set(key, turn.now.mono_ms + wait_ms)
        return
    turn.timers.cancel(key)
    inp = snapshot(group, turn.image, preferred_assignor(group, config), turn.next_run())
    if config.assignor_offload_enable:
        group.flight = Flight(inp.run_id)
        turn.timers.set(("run", group.group_id), turn.now.mono_ms + config.assignor_timeout_ms, inp.run_id)
        turn.fx.commands.append(RunAssignor(inp))
        return
    try:
        out = run(inp, turn.assignors[inp.assignor])
    except Exception as exc:  # noqa: BLE001 - plug-in code: whatever it raises, the group keeps its last target
        _failed(turn, group, inp.assignor, repr(exc))
        return
    _finish(turn, group, inp, out, Flight(inp.run_id), None)


def assignor_done(turn: Turn, event: AssignorDone) -> None:
    """The result of an offloaded run. Of a group that is gone, or of a run that was given up, it is dropped."""
    inp = event.input
    group = turn.groups.get(inp.group_id)
    if group is None or group.flight is None or group.flight.run_id != inp.run_id:
        turn.fx.log("assignment dropped", group_id=inp.group_id, epoch=inp.epoch, why="the group moved on")
        return
    flight, group.flight = group.flight, None
    turn.timers.cancel(("run", group.group_id))
    if event.output is None:
        _failed(turn, group, inp.assignor, event.error)
        return
    _finish(turn, group, inp, event.output, flight, event.encoded)
    update_target(turn, group)  # the epoch may have risen meanwhile: the interval begins now


def run_overdue(turn: Turn, group: ConsumerGroup, run_id: int) -> None:
    """The assignor is too slow: its result will be dropped when it comes."""
    if group.flight is not None and group.flight.run_id == run_id:
        group.flight = None
        limit = turn.config(group.group_id).assignor_timeout_ms
        _failed(turn, group, group.assignor, f"no result within {limit} ms")


def _failed(turn: Turn, group: ConsumerGroup, assignor: str, error: str) -> None:
    pause_ms = min(RETRY_MS << min(group.failures, 16), RETRY_MAX_MS)
    group.failures += 1
    group.retry_at_ms = turn.now.mono_ms + pause_ms
    turn.timers.set(("assign", group.group_id), group.retry_at_ms)
    turn.fx.log(
        "assignor failed",
        group_id=group.group_id,
        assignor=assignor,
        error=error,
        failures=group.failures,
        retry_ms=pause_ms,
    )


def _wait_ms(group: ConsumerGroup, config: GroupConfig, wall_ms: int) -> int:
    last, interval = group.assignment_timestamp_ms, config.assignment_interval_ms
    if last == 0 or interval == 0 or wall_ms < last:
        return 0
    return max(0, last + interval - wall_ms)


def preferred_assignor(group: ConsumerGroup, config: GroupConfig) -> str:
    """The one most members ask for, else the first configured."""
    votes = {name: group.votes[name] for name in config.assignors if group.votes.get(name)}
    return max(votes, key=votes.__getitem__) if votes else config.assignors[0]


def _finish(
    turn: Turn,
    group: ConsumerGroup,
    inp: RunInput,
    out: RunOutput,
    flight: Flight,
    encoded: object,
) -> None:
    """Write the new target: without members that are gone, with the new ids of static ones (KIP-1263 'Assignment
    Offload'), and with the time the calculation finished."""
    group.layout = out.known
    group.failures, group.retry_at_ms = 0, 0
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
            encoded,
        )
    )
    turn.fx.log(
        "target assignment",
        group_id=group.group_id,
        epoch=inp.epoch,
        assignor=inp.assignor,
        members=len(table.index),
        partitions_moved=out.moved,
    )
