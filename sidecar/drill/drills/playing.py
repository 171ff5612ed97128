"""All drills, the stages on which they are played, and runs of several drills."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from sidecar.drill.artifacts import KAFKA
from sidecar.drill.drills.alone import SingleBroker, single
from sidecar.drill.drills.brokers import FullRestart, KillBroker, SuspendBroker
from sidecar.drill.drills.disk import DiskFull, small_disks
from sidecar.drill.drills.ground import PROPERTIES, SIDECAR_ENV, Ground
from sidecar.drill.drills.names import ALL, BOTH
from sidecar.drill.drills.network import CutBroker, CutSidecar, lined
from sidecar.drill.drills.remove import RemoveBroker
from sidecar.drill.drills.restore import Restore
from sidecar.drill.drills.rollback import Rollback
from sidecar.drill.drills.rollout import RollOut, TakeOut, without_sidecars
from sidecar.drill.drills.run import STOPS, Result, play
from sidecar.drill.drills.sidecars import (
    KillAny,
    KillOwner,
    KillShareOwner,
    KillStreamsOwner,
    KillUnit,
    KillWorker,
    RollingRestart,
    Stop,
    SuspendOwner,
    UpgradeWorker,
)
from sidecar.drill.drills.spec import Drill
from sidecar.drill.drills.topic import StateTopic
from sidecar.drill.drills.upgrade import RollingUpgrade, in_checkout
from sidecar.drill.local import LocalKafka
from sidecar.drill.processes import SocketUnits
from sidecar.drill.scenario import all_kinds
from sidecar.drill.secured import secured
from sidecar.drill.zookeeper import numbers

DRILLS: tuple[type[Drill], ...] = (
    KillOwner,
    KillWorker,
    UpgradeWorker,
    KillAny,
    Stop,
    SuspendOwner,
    RollingRestart,
    RollingUpgrade,
    Rollback,
    KillBroker,
    SuspendBroker,
    FullRestart,
    RemoveBroker,
    Restore,
    StateTopic,
    RollOut,
    TakeOut,
    CutSidecar,
    CutBroker,
    DiskFull,
    KillUnit,
    KillShareOwner,
    KillStreamsOwner,
    SingleBroker,
)
"""All drills in the order of `all`: those on one stage follow each other, and the most harmful come last."""


def plain(folder: Path, version: str) -> LocalKafka:
    return LocalKafka(folder, version=version, properties=PROPERTIES, sidecar_env=SIDECAR_ENV)


def socket_units(folder: Path, version: str) -> LocalKafka:
    return LocalKafka(
        folder, version=version, properties=PROPERTIES, sidecar_env=SIDECAR_ENV, socket_units=SocketUnits()
    )


def sasl_ssl(folder: Path, version: str) -> LocalKafka:
    """Return a cluster like `plain`, with SASL_SSL on every listener."""
    how = secured(folder)
    return LocalKafka(
        folder,
        version=version,
        properties={**PROPERTIES, **how.properties},
        sidecar_env={**SIDECAR_ENV, **how.sidecar_env},
        client=how.client,
        scram=how.scram,
    )


Stage = Callable[[Path, str], LocalKafka]
STAGES: dict[str, Stage] = {
    "plain": plain,
    "all kinds": partial(all_kinds, properties=PROPERTIES, env=SIDECAR_ENV),
    "socket units": socket_units,
    "bare": without_sidecars,
    "lined": lined,
    "small disks": small_disks,
    "single": single,
}


SECURITY: dict[str, Mapping[str, Stage]] = {"plaintext": STAGES, "sasl_ssl": {"plain": sasl_ssl}}
"""Security of the cluster -> its stages. Lines are cut by the client id of the first request, which TLS hides."""


def chosen(names: Sequence[str], options: dict[str, object], version: str = KAFKA) -> list[Drill]:
    """Return the drills of these names, each once, in their order. `all` leaves out drills that need a checkout if
    there is none, and drills that brokers of an older `version` do not support."""
    wanted = {n for name in names for n in BOTH.get(name, (name,))}
    if ALL in wanted:
        wanted |= {d.name for d in DRILLS if d.name not in left_out(names, version)}
    return [d(dict(options)) for d in DRILLS if d.name in wanted]


def left_out(names: Sequence[str], version: str = KAFKA) -> dict[str, str]:
    """Return the drills that `all` does not play here -> why."""
    if ALL not in names:
        return {}
    old = {d.name: f"brokers of Kafka {version} do not have what it needs" for d in DRILLS if too_old(d, version)}
    history = "it takes an earlier version from the git history, which is not here"
    return {**old, **({} if in_checkout() else {d.name: history for d in DRILLS if d.needs_checkout})}


def too_old(drill: Drill | type[Drill], version: str) -> bool:
    return numbers(version) < drill.since


def play_all(
    drills: Sequence[Drill],
    n: int,
    folder: Path,
    version: str,
    say: Callable[[str], None],
    done: Callable[[Result], None],
    stages: Mapping[str, Stage] = STAGES,
) -> list[Result]:
    """Play these drills; those that follow each other on the same stage share a cluster. After a drill that did not
    reach its end the next one gets a new cluster. `done` is called after each."""
    results: list[Result] = []
    for stage, group in itertools.groupby(drills, key=lambda d: d.stage):
        left = list(group)
        for attempt in itertools.count(1):
            if not left:
                break
            where = folder / f"{stage.replace(' ', '-')}-{attempt}"
            ground = Ground(stages[stage](where, version), say)
            try:
                try:
                    left[0].start(ground)
                except STOPS as exc:
                    results.append(Result(left.pop(0).name, version, problem=str(exc) or repr(exc)))
                    done(results[-1])
                    continue
                while left:
                    drill = left.pop(0)
                    say(f"{drill.name}: {drill.__doc__}")
                    results.append(play(drill, ground, n, drill.name, say))
                    done(results[-1])
                    if results[-1].problem:
                        break
            finally:
                ground.abandon()
                ground.kafka.stop()
    return results
