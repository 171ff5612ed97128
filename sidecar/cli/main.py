"""The `sidecar` command. Heavy imports wait until a command needs them, so that a sidecar is ready within a second."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sidecar.cli import groups_show, listing, patterns, repair  # noqa: F401 - they add commands to `groups` and `state`
from sidecar.cli.acls import acls
from sidecar.cli.asking import READY, WHERE, Asking, Authority, TokenFile
from sidecar.cli.audit import audit
from sidecar.cli.config import config as config_commands
from sidecar.cli.config import loaded
from sidecar.cli.connect import CommandConfig, client_of
from sidecar.cli.doctor.command import doctor
from sidecar.cli.doctor.refused import WAIT, denial_text, remedies
from sidecar.cli.drill import drill
from sidecar.cli.exits import Code, Failed
from sidecar.cli.groups import groups
from sidecar.cli.history import history, owner
from sidecar.cli.output import Format, Output, print_rows
from sidecar.cli.plain import echo
from sidecar.cli.program import CODES, Program
from sidecar.cli.state import state
from sidecar.cli.top import top

# A trace with its variables would have tokens and passwords in it, and older versions of typer show them.
app = typer.Typer(cls=Program, epilog=CODES, no_args_is_help=True, pretty_exceptions_show_locals=False)
app.add_typer(groups, name="groups")
app.add_typer(audit, name="audit")
app.add_typer(state, name="state")
app.command()(acls)
app.add_typer(config_commands, name="config")
app.command()(history)
app.command()(owner)
app.command()(top)
app.command()(doctor)
app.command()(drill)


def _version(wanted: bool) -> None:
    if wanted:
        import platform
        from importlib.metadata import version

        from sidecar.native import COMPILED

        kernel = "compiled" if COMPILED else "python"
        echo(f"kafka-group-sidecar {version('kafka-group-sidecar')} (kernel {kernel}, {platform.python_version()})")
        raise typer.Exit


Version = Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")]


@app.callback()
def main(version: Version = False) -> None:
    """Group coordination for Apache Kafka, beside each broker."""


ConfigPath = Annotated[Path | None, typer.Option(help="A YAML file of settings. It is optional.")]


@app.command()
def run(
    listen: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Where clients connect.")] = None,
    broker: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="The broker's own listener.")] = None,
    node_id: Annotated[int | None, typer.Option(help="The broker's node id.")] = None,
    config: ConfigPath = None,
) -> None:
    """Run one sidecar. Settings can also come from the environment: SIDECAR_LISTEN, SIDECAR_GROUPS__INCLUDE, ..."""
    from sidecar.cli.run import become_parent

    given = {"listen": listen, "broker": broker, "node_id": node_id}
    become_parent(loaded(config, given), config, given)


@app.command()
def health(
    admin: Annotated[str, typer.Argument(metavar=WHERE, help="The sidecar's admin address.")],
    token_file: TokenFile = None,
    ca: Authority = None,
) -> None:
    """Exit with 0 and `ready` if that sidecar is, with 1 and the reasons if it is not, with 3 if it does not answer.

    For health checks of containers: any code but 0 means that it is not healthy."""
    answer = Asking(token_file, ca).get(admin, "/readyz", READY, 2)
    if not answer["ready"]:
        causes = [denial_text(denial) for denial in answer.get("denials", ())]
        # What brokers refuse comes with its remedy, and the rest follows from it.
        then = WAIT if not causes and WAIT in remedies(answer["problems"] or [""]) else ""
        raise Failed(Code.FINDINGS, "\n".join([*causes, *answer["problems"]]) or "not ready", then)
    echo("ready")


@app.command()
def release(
    bootstrap: Annotated[str, typer.Option(metavar="HOST:PORT", help="A broker's listener without a sidecar.")],
    groups: Annotated[list[str], typer.Argument(metavar="GROUP...", help="Groups that no sidecar coordinates now.")],
    command_config: CommandConfig = None,
    output: Format = Output.TABLE,
) -> None:
    """Make groups the brokers' own at once, when no sidecar runs any more: their placeholders are removed.

    While sidecars run, `sidecar groups release` gives a group back, under its live members."""
    from sidecar.kafka.cluster import Cluster
    from sidecar.kafka.net import NO_ANSWER
    from sidecar.kafka.placeholder_requests import release as leave

    failed: list[str] = []

    async def all_of_them(cluster: Cluster) -> list[dict[str, str]]:
        rows = []
        for group_id in groups:
            try:
                done = await leave(await cluster.coordinator(group_id, 0), group_id)
            except NO_ANSWER as exc:
                failed.append(group_id)
                done = f"not released: {str(exc) or 'timed out'}"
            rows.append({"group": group_id, "result": done})
        return rows

    rows = client_of(command_config).ask(bootstrap, "sidecar-release", all_of_them)
    if output is Output.TABLE:
        for row in rows:
            echo(f"{row['group']}: {row['result']}")
    else:
        print_rows(rows, output)
    if failed:
        what = f"{len(failed)} of {len(groups)} groups were not released."
        raise Failed(
            Code.UNREACHED, what, "Check --bootstrap: it is a broker's listener without a sidecar. Say it again."
        )


if __name__ == "__main__":
    app()
