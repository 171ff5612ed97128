"""`sidecar drill`: the drills of sidecar/drill, from an installed package as from a checkout."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sidecar.cli.exits import Code, Failed
from sidecar.cli.output import Document, DocumentFormat, Output, print_rows
from sidecar.drill.artifacts import KAFKA, ArtifactError
from sidecar.drill.drills.names import ALL, BOTH, NAMES, SECURITIES
from sidecar.drill.processes import DrillError
from sidecar.drill.zookeeper import numbers
from sidecar.kafka.errors import plain

if TYPE_CHECKING:
    from sidecar.drill.drills.run import Result

CHOICES = (*NAMES, *BOTH, ALL)
JAVA = "The brokers need Java 17 or later (JAVA_HOME, or `java` in PATH), and are fetched from Maven once."


def _chosen(names: list[str]) -> list[str]:
    for name in names:
        if name not in CHOICES:
            raise typer.BadParameter(f"{name} is none of {', '.join(CHOICES)}.")
    return names


def _security(name: str) -> str:
    if name not in SECURITIES:
        raise typer.BadParameter(f"{name} is none of {', '.join(SECURITIES)}.")
    return name


def _version(kafka: str) -> str:
    try:
        numbers(kafka)
    except DrillError as exc:
        raise typer.BadParameter(f"{exc}.") from None
    return kafka


def _begun(begun: str) -> list[str]:
    return [name for name in CHOICES if name.startswith(begun)]


def _check_brokers(old: list[str], kafka: str) -> None:
    """Refuses drills. `old`: those for which brokers of this version are too old. Raises Failed."""
    if old:
        what = f"Brokers of Kafka {kafka} do not have what {', '.join(old)} needs."
        raise Failed(Code.USAGE, what, "Play it with --kafka of a newer one.")


def _check_history(bound: list[str]) -> None:
    """Refuses drills. `bound`: those that need a checkout where there is none. Raises Failed."""
    if bound:
        what = f"{', '.join(bound)} takes an earlier version from the git history of this project, which is not here."
        raise Failed(Code.USAGE, what, "Play it in a checkout of the project, or leave it out.")


def _made(folder: Path) -> Path:
    """Makes the folder of the logs. Raises Failed."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise Failed(Code.USAGE, f"{folder}: {plain(exc)}", "Name a folder that can be written in --out.") from None
    return folder


@contextmanager
def _failures() -> Iterator[None]:
    """Turns what keeps all drills from being played into Failed."""
    try:
        yield
    except ArtifactError as exc:
        raise Failed(Code.UNREACHED, str(exc), JAVA) from None
    except BrokenPipeError:  # of stdout, whose reader went
        raise
    except (DrillError, OSError) as exc:
        raise Failed(Code.UNREACHED, f"The cluster cannot be set up: {plain(exc)}", JAVA) from None


def drill(
    names: Annotated[
        list[str],
        typer.Argument(metavar="NAME", callback=_chosen, autocompletion=_begun, help=f"Which: {', '.join(CHOICES)}."),
    ],
    n: Annotated[int, typer.Option("--n", min=1, help="Rounds of each drill.")] = 10,
    kafka: Annotated[str, typer.Option(metavar="VERSION", callback=_version, help="Of the brokers.")] = KAFKA,
    earlier: Annotated[str, typer.Option(metavar="COMMIT", help="rolling-upgrade: the commit to upgrade from.")] = "",
    security: Annotated[
        str,
        typer.Option(callback=_security, help=f"Of every listener, for every client: {', '.join(SECURITIES)}."),
    ] = SECURITIES[0],
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where the logs go.")] = Path("out/drill"),
    output: DocumentFormat = Document.TABLE,
) -> None:
    """Play faults on real brokers and sidecars of this machine: kill, suspend, cut, fill the disk. Needs Java.

    It starts a cluster of its own, and clients; nothing else is touched. Each drill ends with a table of times (until
    the first commit, a commit of every partition, and every member was heard), that of the judge, and one line of JSON;
    with -o json or yaml, stdout has nothing else. Exit code 1: something was lost or owned twice, or a drill did not
    come to its end."""
    from rich.console import Console

    from sidecar.drill.drills.playing import SECURITY, chosen, left_out, play_all, too_old
    from sidecar.drill.drills.report import show, show_all
    from sidecar.drill.drills.upgrade import in_checkout
    from sidecar.drill.processes import interrupt_on_sigterm

    console = Console(highlight=False, soft_wrap=True, stderr=output is not Document.TABLE)
    drills = chosen(names, {"earlier": earlier}, kafka)
    _check_brokers([d.name for d in drills if too_old(d, kafka)], kafka)
    _check_history([d.name for d in drills if d.needs_checkout and not in_checkout()])
    stages = SECURITY[security]
    if without := [d.name for d in drills if d.stage not in stages]:
        what = f"There is no --security {security} for {', '.join(without)}."
        raise Failed(Code.USAGE, what, "Play the others with it, and these without.")
    for name, why in left_out(names, kafka).items():
        console.print(f"{name} is left out: {why}.")
    interrupt_on_sigterm()
    folder = _made((out / f"{names[0]}-{time.strftime('%H%M%S')}").absolute())
    started = time.monotonic()

    def say(text: str) -> None:
        console.print(f"{time.monotonic() - started:7.1f} s  {text}", markup=False)

    def done(result: Result) -> None:
        show(result, console)
        print_rows([result.json()], Output.YAML if output is Document.YAML else Output.JSON)

    try:
        with _failures():
            results = play_all(drills, n, folder, kafka, say, done, stages)
    finally:
        console.print(f"logs: {folder}")
    if len(results) > 1:
        show_all(results, console)
    raise typer.Exit(int(Code.OK if all(r.ok for r in results) else Code.FINDINGS))
