"""`sidecar acls`: the commands that give a sidecar's principal the rights it needs, and no more."""

from __future__ import annotations

from typing import Annotated

import typer

from sidecar.cli.exits import Code, Failed
from sidecar.cli.plain import echo

GroupNames = Annotated[
    list[str] | None,
    typer.Option(
        "--groups", metavar="PREFIX", help="How the names of managed groups begin, instead of all. May be repeated."
    ),
]
TopicNames = Annotated[
    list[str] | None,
    typer.Option(
        "--topics", metavar="PREFIX", help="How the names of the topics that they read begin, instead of all."
    ),
]
BesideOnly = Annotated[
    bool, typer.Option(help="Without what groups need whose owner is not beside the broker that has their offsets.")
]


def acls(
    principal: Annotated[str, typer.Option(metavar="User:NAME", help="Who the sidecars are: `command_config`.")],
    bootstrap: Annotated[str, typer.Option(metavar="HOST:PORT", help="A broker, for the commands.")] = "localhost:9092",
    command_config: Annotated[str, typer.Option(metavar="FILE", help="Of an administrator, for the commands.")] = "",
    for_clients_listener: Annotated[
        bool, typer.Option(help="Only what the principal of `broker_command_config` needs, if it is another one.")
    ] = False,
    for_audit: Annotated[bool, typer.Option(help="Only what the principal of the audit needs.")] = False,
    groups: GroupNames = None,
    topics: TopicNames = None,
    beside_only: BesideOnly = False,
    topic: Annotated[str, typer.Option(help="The setting state.topic.")] = "__group_state",
    owners_group: Annotated[str, typer.Option(help="The setting ownership.group.")] = "__group_state_owners",
) -> None:
    """Print the kafka-acls commands for sidecars or the audit, each with its reason. Nothing is changed by this.

    The comments at the end say what nobody else should be able to do, and how to list who may."""
    from sidecar.process.rights import Scope, commands, rights_of, rights_of_the_audit, seen_by_clients, who_else

    if ":" not in principal:
        raise Failed(Code.USAGE, f"{principal!r} is no principal.", f"Write --principal User:{principal}.")
    if for_clients_listener and for_audit:
        raise Failed(Code.USAGE, "--for-clients-listener and --for-audit are two questions.", "Give one of them.")
    if for_audit:
        rights = rights_of_the_audit(topic)
    elif for_clients_listener:
        rights = seen_by_clients(topic, topics or ())
    else:
        rights = rights_of(topic, owners_group, Scope(groups or (), topics or (), not beside_only))
    for line in commands(rights, principal, bootstrap, command_config):
        echo(line)
    if not for_audit and not for_clients_listener:
        for line in who_else(topic, owners_group, bootstrap, command_config):
            echo(line)
