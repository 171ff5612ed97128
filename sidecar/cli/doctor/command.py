"""The command `sidecar doctor`."""

from __future__ import annotations

from typing import Annotated

import typer

from sidecar.cli.acls import BesideOnly, GroupNames, TopicNames
from sidecar.cli.asking import WHERE, Asking, Authority, TokenFile
from sidecar.cli.connect import CommandConfig, StateTopic, client_of
from sidecar.cli.exits import Code
from sidecar.cli.output import Format, Output, Watch, print_rows, run
from sidecar.cli.plain import echo


def doctor(
    bootstrap: Annotated[str, typer.Option(metavar="HOST:PORT", help="The listener that clients use.")],
    admin: Annotated[
        list[str] | None,
        typer.Option(metavar=WHERE, help="The admin address of a sidecar; once for each of them."),
    ] = None,
    token_file: TokenFile = None,
    ca: Authority = None,
    principal: Annotated[str, typer.Option(metavar="User:NAME", help="Who the sidecars are at the brokers.")] = "",
    groups: GroupNames = None,
    topics: TopicNames = None,
    beside_only: BesideOnly = False,
    topic: StateTopic = "__group_state",
    command_config: CommandConfig = None,
    output: Format = Output.TABLE,
    watch: Watch = 0,
) -> None:
    """Check that clients reach the sidecars, and that topics, settings, clocks and rights are as they should be.

    Each check says what it found and what to do. Exit code 1: at least one failed. Of rights those are checked that
    `sidecar acls` prints with the same --groups, --topics and --beside-only."""

    def show() -> Code:
        from dataclasses import asdict

        from sidecar.cli.doctor.checks import causes_first, examine
        from sidecar.cli.doctor.facts import about, gather
        from sidecar.cli.doctor.model import Status
        from sidecar.process.rights import Scope

        sidecars = [about(a, Asking(token_file, ca)) for a in admin or []]
        facts = gather(client_of(command_config), bootstrap, topic, sidecars, principal)
        facts.scope = Scope(tuple(groups or ()), tuple(topics or ()), not beside_only)
        checks = causes_first(examine(facts))
        if output is Output.TABLE:
            for c in checks:
                mark = {Status.FAIL: "FAIL", Status.WARN: "warn", Status.UNKNOWN: "?", Status.OK: "ok"}[c.status]
                echo(f"{mark:>4}  {c.name}: {c.finding}")
                for n, line in enumerate(c.remedy.splitlines()):
                    echo(f"      {'  ' if n else '->'} {line}")
        else:
            print_rows([asdict(c) | {"status": str(c.status)} for c in checks], output)
        return Code.FINDINGS if any(c.status is Status.FAIL for c in checks) else Code.OK

    run(show, watch)
