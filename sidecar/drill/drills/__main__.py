"""The command: which drill, how often, on which Kafka."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from sidecar.drill.artifacts import KAFKA, ArtifactError
from sidecar.drill.drills.brokers import FullRestart, KillBroker, SuspendBroker
from sidecar.drill.drills.ground import PROPERTIES, SIDECAR_ENV, Ground
from sidecar.drill.drills.report import show, show_all
from sidecar.drill.drills.run import Result, play
from sidecar.drill.drills.sidecars import KillAny, KillOwner, RollingRestart, Stop, SuspendOwner
from sidecar.drill.drills.spec import Drill
from sidecar.drill.local import LocalKafka
from sidecar.drill.processes import DrillError, interrupt_on_sigterm

DRILLS: tuple[type[Drill], ...] = (
    KillOwner,
    KillAny,
    Stop,
    SuspendOwner,
    RollingRestart,
    KillBroker,
    SuspendBroker,
    FullRestart,
)
"""In the order in which `all` plays them: what harms most comes last."""


def plain(folder: Path, version: str) -> LocalKafka:
    return LocalKafka(folder, version=version, properties=PROPERTIES, sidecar_env=SIDECAR_ENV)


def play_all(
    drills: list[Drill], n: int, folder: Path, version: str, console: Console, say: Callable[[str], None]
) -> list[Result]:
    """Play these drills, one after the other on one cluster."""
    results: list[Result] = []
    ground = Ground(plain(folder, version), say)
    try:
        ground.start_cluster()
        for drill in drills:
            say(f"{drill.name}: {drill.__doc__}")
            results.append(play(drill, ground, n, drill.name, say))
            show(results[-1], console)
    finally:
        ground.abandon()
        ground.kafka.stop()
    return results


def main(argv: list[str]) -> int:
    names = [d.name for d in DRILLS]
    ap = argparse.ArgumentParser(prog="drill", description=__doc__)
    ap.add_argument("name", nargs="+", choices=[*names, "all"], help="one or more of them, or all")
    ap.add_argument("--n", type=int, default=10, help="rounds of each drill")
    ap.add_argument("--kafka", default=KAFKA, help="version of the brokers")
    ap.add_argument("--out", type=Path, default=Path("out/drill"), help="where the logs go")
    a = ap.parse_args(argv)
    console = Console(highlight=False, soft_wrap=True)
    interrupt_on_sigterm()
    folder = a.out / f"{a.name[0]}-{time.strftime('%H%M%S')}"
    started = time.monotonic()

    def say(text: str) -> None:
        console.print(f"{time.monotonic() - started:7.1f} s  {text}", markup=False)

    chosen = [d({}) for d in DRILLS if {d.name, "all"} & set(a.name)]
    try:
        results = play_all(chosen, a.n, folder, a.kafka, console, say)
    except KeyboardInterrupt:
        console.print(f"interrupted; logs: {folder}")
        return 130
    except (DrillError, ArtifactError) as exc:
        console.print(f"failed: {exc}\nlogs: {folder}", markup=False)
        return 1
    if len(results) > 1:
        show_all(results, console)
    console.print(f"logs: {folder}")
    return 0 if all(r.ok for r in results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
