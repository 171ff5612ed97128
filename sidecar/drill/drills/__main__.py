"""The command: which drills, how often, on which Kafka.

    python -m sidecar.drill.drills kill-owner --n 10
    python -m sidecar.drill.drills all --n 3

Prints two tables and one line of JSON for each drill. The exit code is 0 only if every drill came to its end, nothing
was lost or owned twice, and what the drills themselves looked for was found.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from sidecar.drill.artifacts import KAFKA, ArtifactError
from sidecar.drill.drills.alone import SingleBroker, single
from sidecar.drill.drills.brokers import FullRestart, KillBroker, SuspendBroker
from sidecar.drill.drills.disk import DiskFull, small_disks
from sidecar.drill.drills.ground import PROPERTIES, SIDECAR_ENV, Ground
from sidecar.drill.drills.network import CutBroker, CutSidecar, lined
from sidecar.drill.drills.remove import RemoveBroker
from sidecar.drill.drills.report import show, show_all
from sidecar.drill.drills.restore import Restore
from sidecar.drill.drills.rollback import Rollback
from sidecar.drill.drills.rollout import RollOut, TakeOut, without_sidecars
from sidecar.drill.drills.run import Result, play
from sidecar.drill.drills.sidecars import KillAny, KillOwner, RollingRestart, Stop, SuspendOwner
from sidecar.drill.drills.spec import Drill
from sidecar.drill.drills.topic import StateTopic
from sidecar.drill.drills.upgrade import RollingUpgrade
from sidecar.drill.local import LocalKafka
from sidecar.drill.processes import DrillError, interrupt_on_sigterm

DRILLS: tuple[type[Drill], ...] = (
    KillOwner,
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
    SingleBroker,
)
"""In the order in which `all` plays them: those on one stage follow each other, and what harms most comes last."""
BOTH = {"cut": ("cut-sidecar", "cut-broker")}
"""Names for several drills."""


def plain(folder: Path, version: str) -> LocalKafka:
    return LocalKafka(folder, version=version, properties=PROPERTIES, sidecar_env=SIDECAR_ENV)


STAGES: dict[str, Callable[[Path, str], LocalKafka]] = {
    "plain": plain,
    "bare": without_sidecars,
    "lined": lined,
    "small disks": small_disks,
    "single": single,
}


def chosen(names: Sequence[str], options: dict[str, object]) -> list[Drill]:
    """Return the drills of these names, each once, in their order."""
    wanted = {n for name in names for n in BOTH.get(name, (name,))}
    return [d(dict(options)) for d in DRILLS if {d.name, "all"} & wanted]


def play_all(
    drills: Sequence[Drill],
    n: int,
    folder: Path,
    version: str,
    say: Callable[[str], None],
    done: Callable[[Result], None],
) -> list[Result]:
    """Play these drills; those that follow each other on the same stage share a cluster. A drill that did not come to
    its end leaves its cluster in doubt, and the next one gets a new one. `done` is called after each."""
    results: list[Result] = []
    for stage, group in itertools.groupby(drills, key=lambda d: d.stage):
        left = list(group)
        for attempt in itertools.count(1):
            if not left:
                break
            where = folder / f"{stage.replace(' ', '-')}-{attempt}"
            ground = Ground(STAGES[stage](where, version), say)
            try:
                left[0].start(ground)
                while left:
                    drill = left.pop(0)
                    say(f"{drill.name}: {drill.__doc__}")
                    results.append(play(drill, ground, n, drill.name, say))
                    done(results[-1])
                    if results[-1].problem:
                        break
            except DrillError as exc:
                results.append(Result(left.pop(0).name, version, problem=str(exc)))
                done(results[-1])
            finally:
                ground.abandon()
                ground.kafka.stop()
    return results


def main(argv: list[str]) -> int:
    names = [*(d.name for d in DRILLS), *BOTH, "all"]
    ap = argparse.ArgumentParser(
        prog="drill", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    ap.add_argument("name", nargs="+", choices=names, metavar="NAME", help=", ".join(names))
    ap.add_argument("--n", type=int, default=10, help="rounds of each drill")
    ap.add_argument("--kafka", default=KAFKA, help="version of the brokers")
    ap.add_argument("--earlier", default="", help="rolling-upgrade: the commit to upgrade from")
    ap.add_argument("--out", type=Path, default=Path("out/drill"), help="where the logs go")
    a = ap.parse_args(argv)
    console = Console(highlight=False, soft_wrap=True)
    interrupt_on_sigterm()
    folder = (a.out / f"{a.name[0]}-{time.strftime('%H%M%S')}").absolute()
    started = time.monotonic()

    def say(text: str) -> None:
        console.print(f"{time.monotonic() - started:7.1f} s  {text}", markup=False)

    try:
        drills = chosen(a.name, {"earlier": a.earlier})
        results = play_all(drills, a.n, folder, a.kafka, say, lambda result: show(result, console))
    except KeyboardInterrupt:
        console.print(f"interrupted; logs: {folder}")
        return 130
    except ArtifactError as exc:
        console.print(f"failed: {exc}", markup=False)
        return 1
    if len(results) > 1:
        show_all(results, console)
    console.print(f"logs: {folder}")
    return 0 if all(r.ok for r in results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
