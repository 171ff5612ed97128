"""The `sidecar` command. Heavy imports wait until a command needs them, so that a sidecar is ready within a second."""

from __future__ import annotations

import sys
import time

STARTED = time.monotonic()

from pathlib import Path  # noqa: E402
from typing import Annotated  # noqa: E402

import typer  # noqa: E402

from sidecar.cli.acls import acls  # noqa: E402
from sidecar.cli.asking import Authority, TokenFile, fetch  # noqa: E402
from sidecar.cli.audit import audit  # noqa: E402
from sidecar.cli.groups import groups  # noqa: E402
from sidecar.cli.history import history, owner  # noqa: E402

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Group coordination for Apache Kafka, beside each broker."
)
app.add_typer(groups, name="groups")
app.add_typer(audit, name="audit")
app.command()(acls)
app.command()(history)
app.command()(owner)
ANEW = "--anew"
"""Not for users: a sidecar that starts anew (StartAnew) tells its successor so."""
ConfigPath = Annotated[Path | None, typer.Option(help="A YAML file of settings. It is optional.")]


def again(executable: str, argv: list[str]) -> list[str]:
    """The command that starts this process anew, in the interpreter and with the options that it has."""
    return [executable, *(a for a in argv[1:] if a != ANEW), ANEW]


@app.command()
def run(
    listen: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Where clients connect.")] = None,
    broker: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="The broker's own listener.")] = None,
    node_id: Annotated[int | None, typer.Option(help="The broker's node id.")] = None,
    config: ConfigPath = None,
    anew: Annotated[bool, typer.Option(ANEW, hidden=True)] = False,
) -> None:
    """Run one sidecar. Settings can also come from the environment: SIDECAR_LISTEN, SIDECAR_GROUPS__INCLUDE, ..."""
    import asyncio
    import os
    import traceback

    from sidecar.process.build import App, StartAnew, StartError
    from sidecar.process.settings import SettingsError, load
    from sidecar.process.tasks import Broken

    try:
        settings = load(config, {"listen": listen, "broker": broker, "node_id": node_id})
    except SettingsError as exc:
        typer.echo("The settings are not valid:", err=True)
        for line in str(exc).splitlines():
            typer.echo(f"  {line}", err=True)
        raise typer.Exit(2) from None

    async def main() -> None:
        await App(settings, STARTED, anew=anew).run()

    try:
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main())
    except StartAnew:
        # In the same process, so that it needs nobody who would start it again. Its sockets close with it.
        os.execv(sys.executable, again(sys.executable, sys.orig_argv))
    except StartError as exc:
        typer.echo(f"sidecar: {exc}", err=True)
        sys.exit(1)
    except Broken as exc:
        traceback.print_exception(exc)
        typer.echo(f"sidecar: ended by a bug in {exc}", err=True)
        sys.exit(70)


@app.command()
def health(
    admin: Annotated[str, typer.Argument(metavar="[https://]HOST:PORT", help="The sidecar's admin address.")],
    token_file: TokenFile = None,
    ca: Authority = None,
) -> None:
    """Exit with 0 if that sidecar is ready, else print the reasons and exit with 1. For container health checks."""
    import json
    from urllib.error import HTTPError

    try:
        found = fetch(admin, "/readyz", 2, token_file, ca)
    except HTTPError as exc:
        found = json.load(exc)
    except (OSError, ValueError) as exc:
        found = {"ready": False, "problems": [f"{admin}: {exc}"]}
    for problem in found["problems"]:
        typer.echo(problem, err=True)
    raise typer.Exit(0 if found["ready"] else 1)


@app.command()
def release(
    bootstrap: Annotated[str, typer.Option(metavar="HOST:PORT", help="A broker's listener without a sidecar.")],
    groups: Annotated[list[str], typer.Argument(metavar="GROUP...", help="Groups that no sidecar coordinates now.")],
) -> None:
    """Make groups the brokers' own at once, when all sidecars have gone without a word: their placeholders leave."""
    import asyncio

    from sidecar.kafka.cluster import Cluster, ConnectionLost
    from sidecar.kafka.membership import release as leave
    from sidecar.process.sections import split
    from sidecar.wire.primitives import WireError

    async def main() -> int:
        cluster = Cluster([split(bootstrap)], "sidecar-release", {})
        failed = 0
        for group_id in groups:
            try:
                done = await leave(await cluster.coordinator(group_id, 0), group_id)
            except (ConnectionLost, TimeoutError, WireError) as exc:
                failed += 1
                done = f"not released: {str(exc) or 'timed out'}"
            typer.echo(f"{group_id}: {done}")
        cluster.close()
        return failed

    raise typer.Exit(1 if asyncio.run(main()) else 0)


if __name__ == "__main__":
    app()
