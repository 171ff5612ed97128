"""`sidecar config`: checks the settings, and shows where each of them comes from.

They are read as `sidecar run` reads them: command line, environment, file, default. No broker is asked."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sidecar.cli.exits import Code, Failed
from sidecar.cli.output import Format, Output, print_rows, run
from sidecar.cli.plain import echo

if TYPE_CHECKING:
    from sidecar.process.settings import Settings

config = typer.Typer(no_args_is_help=True, help="Check the settings of a sidecar, or show them and their origin.")
ConfigPath = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="A YAML file of settings. It is optional.")
]
Listen = Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Where clients connect.")]
Broker = Annotated[str | None, typer.Option(metavar="HOST:PORT", help="The broker's own listener.")]
NodeId = Annotated[int | None, typer.Option(help="The broker's node id.")]


@config.command()
def check(path: ConfigPath = None, listen: Listen = None, broker: Broker = None, node_id: NodeId = None) -> None:
    """Say what is wrong with the settings, and with the files that they name, all faults at once. Exit code 2:
    something is."""

    def show() -> Code:
        from sidecar.process.named_files import unusable

        if faults := unusable(loaded(path, {"listen": listen, "broker": broker, "node_id": node_id})):
            raise invalid("\n".join(faults))
        echo("The settings are valid.")
        return Code.OK

    run(show)


@config.command()
def show(
    path: ConfigPath = None,
    listen: Listen = None,
    broker: Broker = None,
    node_id: NodeId = None,
    origin: Annotated[bool, typer.Option("--origin", help="Also where each value comes from.")] = False,
    changed: Annotated[bool, typer.Option("--changed", help="Only what is not a default.")] = False,
    output: Format = Output.TABLE,
) -> None:
    """Show every setting with its value; secrets are masked."""

    def shown_() -> Code:
        from sidecar.process.about import shown

        given = {"listen": listen, "broker": broker, "node_id": node_id}
        settings = shown(loaded(path, given), path, given)
        rows: list[dict[str, Any]] = []
        for s in settings:
            if not changed or s.origin != "default":
                row = {"setting": s.name, "value": s.value}
                rows.append({**row, "origin": s.origin} if origin else row)
        print_rows(rows, output)
        return Code.OK

    run(shown_)


@config.command("settings")
def settings_(
    begin: Annotated[str, typer.Argument(metavar="[BEGIN]", help="Only those whose names begin so.")] = "",
    output: Format = Output.TABLE,
) -> None:
    """List the settings that there are: name, default, and what each means."""
    from sidecar.process.about import settings_known

    rows = [row for row in settings_known() if row["setting"].startswith(begin)]
    if not rows:
        then = "`sidecar config settings` lists them all."
        raise Failed(Code.FINDINGS, f"There is no setting that begins with {begin}.", then)
    print_rows(rows, output)


def loaded(path: Path | None, given: dict[str, Any]) -> Settings:
    """Returns the settings. Raises Failed with every fault."""
    from sidecar.process.settings import SettingsError, load

    try:
        return load(path, given)
    except SettingsError as exc:
        raise invalid(str(exc)) from None


def invalid(faults: str) -> Failed:
    """Returns the failure for these faults, a line each."""
    what = "\n".join(["The settings are not valid:", *(f"  {line}" for line in faults.splitlines())])
    return Failed(Code.USAGE, what, "`sidecar config settings` says what each setting means and what its default is.")
