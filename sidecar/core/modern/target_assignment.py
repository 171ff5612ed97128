"""Decides when a new target assignment is computed and where, and writes it (KIP-848 'Assignment', KIP-1263).

Offloaded: the run goes out as a command, its result comes back as an event and is brought up to date with the changes
meanwhile. Unlike Kafka: a due batch also runs by a timer, and a clock that jumped back does not stall it. A failing or
slow assignor leaves the group on its last target and is tried again, ever less often.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from sidecar.core.modern.assignor_run import Run, RunInput, RunOutput
from sidecar.core.modern.config import ModernConfig, config_of
from sidecar.core.modern.epochs import refresh_metadata_hash
from sidecar.core.modern.group import ModernGroup
from sidecar.core.modern.records import TargetRecord
from sidecar.core.modern.soft_state import Flight, ModernSoft
from sidecar.core.runtime.events import Event
from sidecar.core.runtime.registry import TimerHandler
from sidecar.core.runtime.turn import Turn

RETRY_MS = 1_000
RETRY_MAX_MS = 60_000
"""Longest pause after failed assignor runs; RETRY_MS doubles up to it."""


@dataclass(frozen=True, slots=True)
class RunAssignor:
    """Background work: runs the assignor as its kind of group does (`GroupKind.run`); the result comes back as
    `AssignorDone`."""

    input: RunInput

    @property
    def group_id(self) -> str:
        return self.input.group_id


class AssignorDone(Event):
    """The end of a run. `output` None: it failed, with the reason in `error`."""

    inner: ClassVar[bool] = True

    input: Any
    """The RunInput of the run."""
    output: Any
    """A RunOutput, or None."""
    error: str = ""


def never(turn: Turn, group: ModernGroup[Any]) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Targets:
    """The target assignments of one kind of group. When they are due is the same for all kinds; the rest depends on the
    kind."""

    kind: str
    snapshot: Callable[[Turn, Any, str], RunInput]
    """(turn, group, assignor) -> the problem of one run, under `turn.next_run()`."""
    run: Run
    result: Callable[[Turn, Any, Any, Any], TargetRecord | None]
    """(turn, group, input, output) -> the record of a result. The output already lacks members that are gone, and has
    the new ids of others. The kind takes out partitions that may not be assigned any more. None: all of it is void, and
    the next run begins at once."""
    preferred: Callable[[Any, Any], str]
    """(group, settings) -> the name of the assignor to run."""
    held_back: Callable[[Turn, Any], bool] = never
    """Whether the kind delays runs now, whatever the interval. The kind then calls `update` itself later."""
    refresh: Callable[[Turn, Any], None] = refresh_metadata_hash
    """Raises the epoch if something else than members requires it."""

    def timers(self) -> dict[str, TimerHandler]:
        return {"assign": self.due, "run": self.overdue}

    def due(self, turn: Turn, group: ModernGroup[Any], key: tuple[str, ...], tag: int) -> None:
        """Updates the target when the assignment interval is over and no heartbeat has come meanwhile. Where nobody is
        here, the first member that comes back does so."""
        if not group.nobody_here:
            self.refresh(turn, group)
            self.update(turn, group)

    def update(self, turn: Turn, group: ModernGroup[Any]) -> None:
        """Begins a run, or computes at once, if the group's epoch requires it and the interval allows it now."""
        if group.assignment_epoch >= group.epoch or not group.members:
            return
        soft: ModernSoft = turn.soft_of(group.group_id)
        if soft.releasing or soft.flight is not None or self.held_back(turn, group):
            return
        config = config_of(turn, group)
        key = ("assign", group.group_id)
        wait_ms = max(interval_left_ms(group, config, turn.now.wall_ms), soft.retry_at_ms - turn.now.mono_ms)
        if wait_ms > 0:
            if turn.timers.deadline(key) is None:
                turn.timers.set(key, turn.now.mono_ms + wait_ms)
            return
        turn.timers.cancel(key)
        inp = self.snapshot(turn, group, self.preferred(group, config))
        if config.assignor_offload_enable:
            soft.flight = Flight(inp.run_id, inp.assignor)
            turn.changed(group.group_id)  # heartbeats wait for the run from now on: no front answers them any more
            turn.timers.set(("run", group.group_id), turn.now.mono_ms + config.assignor_timeout_ms, inp.run_id)
            turn.fx.background.append(RunAssignor(inp))
            return
        try:
            out = self.run(inp, turn.ports.assignors[self.kind][inp.assignor])
        except Exception as exc:  # noqa: BLE001 - plug-in code: whatever it raises, the group keeps its last target
            self._failed(turn, group, inp.assignor, repr(exc))
            return
        self._finish(turn, group, inp, out, Flight(inp.run_id))

    def done(self, turn: Turn, event: AssignorDone) -> None:
        """Takes in the result of an offloaded run. A result is dropped if its group is gone or its run was given up."""
        inp = event.input
        group = turn.groups.get(inp.group_id)
        if group is not None and group.kind != self.kind:
            group = None  # deleted, or one of another kind since
        soft: ModernSoft | None = None if group is None else turn.soft_of(inp.group_id)
        if group is None or soft is None or soft.flight is None or soft.flight.run_id != inp.run_id:
            _dropped(turn, inp)
            return
        flight, soft.flight = soft.flight, None
        turn.timers.cancel(("run", group.group_id))
        if event.output is None:
            self._failed(turn, group, inp.assignor, event.error)
            return
        self._finish(turn, group, inp, event.output, flight)
        self.update(turn, group)  # the epoch may have risen meanwhile: the interval begins now

    def overdue(self, turn: Turn, group: ModernGroup[Any], key: tuple[str, ...], run_id: int) -> None:
        """Gives up a run that takes too long: its result will be dropped when it comes."""
        soft: ModernSoft = turn.soft_of(group.group_id)
        if soft.flight is not None and soft.flight.run_id == run_id:
            assignor, soft.flight = soft.flight.assignor, None
            limit = config_of(turn, group).assignor_timeout_ms
            self._failed(turn, group, assignor, f"no result within {limit} ms")

    def _failed(self, turn: Turn, group: ModernGroup[Any], assignor: str, error: str) -> None:
        soft: ModernSoft = turn.soft_of(group.group_id)
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

    def _finish(self, turn: Turn, group: ModernGroup[Any], inp: RunInput, out: RunOutput, flight: Flight) -> None:
        """Writes the new target: without members that are gone, with the new ids of static ones (KIP-1263 'Assignment
        Offload'), and with the time the calculation finished."""
        soft: ModernSoft = turn.soft_of(group.group_id)
        soft.failures, soft.retry_at_ms = 0, 0
        record = self.result(turn, group, inp, _up_to_date(out, flight))
        if record is None:
            _dropped(turn, inp)
            return
        turn.write(record)
        turn.fx.count("assignments", inp.assignor)
        turn.fx.count("partitions_moved", inp.assignor, by=out.moved)
        turn.fx.log(
            "target assignment",
            group_id=group.group_id,
            epoch=inp.epoch,
            assignor=inp.assignor,
            members=len(record.table.index),
            partitions_moved=out.moved,
        )


def _up_to_date(out: RunOutput, flight: Flight) -> RunOutput:
    now_called = {old: new for old, new in flight.now.items() if old in out.table.index}
    changed = tuple(m for old in out.changed if (m := now_called.get(old, old)) is not None)
    return replace(out, table=out.table.renamed(now_called), changed=changed)


def _dropped(turn: Turn, inp: RunInput) -> None:
    turn.fx.log("assignment dropped", group_id=inp.group_id, epoch=inp.epoch, why="the group moved on")


def interval_left_ms(group: ModernGroup[Any], config: ModernConfig, wall_ms: int) -> int:
    """Returns the rest of the assignment interval that began with the last target."""
    last, interval = group.assignment_timestamp_ms, config.assignment_interval_ms
    if last == 0 or interval == 0 or wall_ms < last:
        return 0
    return max(0, last + interval - wall_ms)
