"""The events of a run, for a person to read: when, who, what. And the state of everything at the end.

    12,345.6  FAULT       host 2 is alone
    12,401.0  sidecar-2.3 warning: peer lost ...

Times are virtual milliseconds. `FAULT` is what was done to the world, `log` what has come into the state topic,
`cluster` what the controller of the brokers decided, `sidecar-2.3` the third sidecar that was started, beside broker 2.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from sidecar.process.coordination import Coordination

if TYPE_CHECKING:
    from tests.whole.sidecar import Sidecar
    from tests.whole.world import World

LAST = 400
"""Lines of a failing seed that are kept."""
FAULT = "FAULT"


def line(ms: float, who: str, text: str) -> str:
    return f"{ms:>10,.1f}  {'#### ' if who == FAULT else ''}{who:<12} {text}"


class LastLines:
    """Keeps the end of what is told."""

    def __init__(self) -> None:
        self.kept: deque[str] = deque(maxlen=LAST)
        self.told = 0

    def __call__(self, text: str) -> None:
        self.told += 1
        self.kept.append(text)

    def text(self, seed: int, problem: str) -> str:
        left_out = self.told - len(self.kept)
        head = [f"seed {seed}: {problem}", f"python -m tests.whole.run --seed {seed}", ""]
        if left_out:
            head.append(f"({left_out} lines before these)")
        return "\n".join([*head, *self.kept, ""])


def standing(world: World) -> list[str]:
    """Returns lines that show the state of everything now."""
    universe = world.universe
    found = [f"---- at {universe.now_ms:,.1f}"]
    net = world.net
    if net.cut or net.silent or net.slow_ms:
        found.append(f"network: cut {sorted(net.cut)}, silent {sorted(net.silent)}, slow {net.slow_ms:g} ms")
    alive = world.kafka.cluster.controller.image.alive
    for n, proc in world.kafka.procs.items():
        found.append(f"broker {n}: {proc.life.value}{'' if n in alive else ', fenced by the controller'}")
    for n, s in sorted(world.sidecars.items()):
        found.append(f"sidecar {n}: {_sidecar(s)}")
    for p, part in enumerate(world.judge.fold.parts):
        found.append(
            f"partition {p}: claimed by sidecar {part.owner}, owner epoch {part.claimed}, {part.position} records"
        )
    for group_id in sorted({c.habits.group_id for c in world.clients}):
        group = world.judge.fold.group(group_id)
        told = "not in the log" if group is None else f"{group.kind}, members {sorted(group.members)}"
        found.append(f"group {group_id} (partition {world.judge.fold.partition_of(group_id)}): {told}")
        if (home := world.judge.moving.homes.get(group_id)) is not None:
            there = world.judge.moving.at_broker(group_id)
            told = "nothing" if there is None else f"{there.state}, members {sorted(there.members)}"
            found.append(f"    it belongs to {home}; at the broker: {told}")
    for c in world.clients:
        if c.proc.alive:
            waits = "" if c.waits_since_ms is None else f", waits since {c.waits_since_ms:,.0f}"
            owned = " ".join(f"{t}-{p}" for t, p in sorted(c.owned)) or "nothing"
            found.append(
                f"{c.name} in {c.habits.group_id}: {c.proc.life.value}, {c.member_id}, epoch {c.epoch}, owns {owned}"
                f", last well at {c.well_ms:,.0f}{waits}"
            )
    return found


def _sidecar(s: Sidecar) -> str:
    half = s.app.half if s.app is not None else None
    told = f"{s.proc.name}, {s.proc.life.value}"
    if not isinstance(half, Coordination):
        return f"{told}, does not coordinate yet"
    service = half.coordinator.service
    lease_ms = service.lease.until_ms - s.proc.mono_ms()
    owners = ", ".join(f"{o.partition} {o.phase.value}" for o in service.owners)
    problem = f", problem: {service.problem()}" if service.problem() else ""
    return f"{told}, lease {lease_ms:,} ms, partitions {owners}{problem}"
