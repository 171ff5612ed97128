"""`sidecar groups patterns`: shows and changes the patterns of managed groups, for all sidecars at once.

The patterns are two settings of all brokers (core/vocabulary/group_config.py) that only sidecars know. Before a change
is stored, this prints the groups that it moves. Groups move with their live members, so a move to a broker needs --yes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sidecar.cli.connect import Client, CommandConfig, SidecarBootstrap, client_of
from sidecar.cli.exits import Code, Failed
from sidecar.cli.groups import groups
from sidecar.cli.listing import Listing, gathered
from sidecar.cli.output import Document, DocumentFormat, print_document
from sidecar.core.vocabulary import group_config as cf
from sidecar.core.vocabulary.errors import Code as Kafka
from sidecar.core.vocabulary.errors import name_of
from sidecar.core.vocabulary.group_patterns import Patterns, doubts, fault, split

if TYPE_CHECKING:
    from sidecar.kafka.cluster import Cluster

SET, DELETE = 0, 1
"""Operations of IncrementalAlterConfigs."""
OWN = "nothing is stored: each sidecar's own setting counts (`sidecar doctor --admin` shows it)"
FORGOTTEN = (
    "The stored patterns are gone. Each sidecar's own settings count again (`sidecar doctor --admin` shows them)."
)
FORGOTTEN_BEFORE = "No patterns are stored: each sidecar's own settings count. Nothing was changed."
Stored = Mapping[str, tuple[str, ...] | None]
"""Stored patterns by the name of the setting; None: nothing is stored."""


@dataclass(frozen=True)
class Preview:
    """The effect of a change. `comes`, `goes`: groups that would move; `uncovered`: those that come though no ACL lets
    the sidecars read them; `doubts`: patterns that are probably mistakes."""

    comes: tuple[str, ...]
    goes: tuple[str, ...]
    uncovered: tuple[str, ...]
    doubts: tuple[str, ...]


NOTHING = Preview((), (), (), ())
UNLESS_OWN = ", unless the sidecars' own settings name them"


@groups.command()
def patterns(
    bootstrap: SidecarBootstrap,
    include: Annotated[
        list[str] | None, typer.Option(metavar="RE2", help="Coordinate groups whose whole name matches; repeat it.")
    ] = None,
    exclude: Annotated[
        list[str] | None, typer.Option(metavar="RE2", help="But none of these; repeat it. '' stands for none.")
    ] = None,
    forget: Annotated[bool, typer.Option(help="Remove what is stored: each sidecar's own settings count.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Also if live groups go back to the broker, or may.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would move, and change nothing.")] = False,
    principal: Annotated[
        str, typer.Option(metavar="User:NAME", help="Who the sidecars are at the brokers: looks at the ACLs.")
    ] = "",
    command_config: CommandConfig = None,
    output: DocumentFormat = Document.TABLE,
) -> None:
    """Show the patterns of groups, or store others for all sidecars. They are regular expressions of RE2, which has no
    lookahead, and match the whole name.

    sidecar groups patterns --include 'orders-.*' --exclude 'orders-test[0-9]+' --bootstrap HOST:PORT"""
    client = client_of(command_config)
    stored = client.ask(bootstrap, cf.CLI_CLIENT, look)
    if forget and (include or exclude is not None):
        raise Failed(Code.USAGE, "--forget stores nothing.", "Give it alone, or leave it out.")
    if not forget and include is None and exclude is None:
        _show(stored, output)
        return
    wanted = dict.fromkeys(cf.BROKER_MOVES) if forget else _wanted(stored, include, exclude)
    if forget and wanted == stored:
        print_document({**_body(wanted), "stored": False, **asdict(NOTHING)}, output, [FORGOTTEN_BEFORE])
        return
    seen = preview_of_forget(client, bootstrap) if forget else preview(client, bootstrap, stored, wanted, principal)
    if seen.goes and not (yes or dry_run):
        names = ", ".join(seen.goes)
        what = f"Live groups would go back to the broker{UNLESS_OWN if forget else ''}: {names}. Nothing was changed."
        raise Failed(Code.FINDINGS, what, "--dry-run shows all that would move; --yes does it.")
    if not dry_run:
        client.ask(bootstrap, cf.CLI_CLIENT, lambda cluster: store(cluster, wanted))
    body = {**_body(wanted), "stored": not dry_run, **asdict(seen)}
    done = FORGOTTEN if forget else "It is stored, and all sidecars follow it."
    lines = _lines_of_forget(seen) if forget else _lines(seen)
    print_document(body, output, [*lines, "Nothing was changed." if dry_run else done])


def _wanted(stored: Stored, include: Sequence[str] | None, exclude: Sequence[str] | None) -> Stored:
    """Returns the patterns after the change: an option that is left out changes nothing. Raises Failed."""
    result = dict(stored)
    for name, given in zip(cf.BROKER_MOVES, (include, exclude), strict=True):
        if given is not None:
            result[name] = tuple(p for p in given if p)
            for p in result[name] or ():
                _check(p)
    return result


def _check(pattern: str) -> None:
    if split(pattern) != (pattern,):
        what = f"{pattern!r} is more than one pattern, or begins or ends with a space."
        raise Failed(Code.USAGE, what, "Give each pattern with an option of its own; a comma parts them.")
    if broken := fault(pattern):
        then = "Patterns are of RE2: no lookahead (?=, ?!), no lookbehind, no \\1. Use --exclude for exceptions."
        raise Failed(Code.USAGE, broken + ".", then)


# ---- what it would do ----------------------------------------------------------------------------------------------
def preview(client: Client, bootstrap: str, stored: Stored, wanted: Stored, principal: str) -> Preview:
    """Returns the moves that a change of patterns causes. Raises Failed."""
    listing = _whole(client, bootstrap)
    moves = moved(listing, wanted)
    comes, goes = (tuple(g for g, to in moves.items() if to == where) for where in ("sidecar", "broker"))
    return Preview(
        comes, goes, _uncovered(client, bootstrap, principal, comes), tuple(_doubts(listing, stored, wanted))
    )


def preview_of_forget(client: Client, bootstrap: str) -> Preview:
    """Returns the moves that removing the stored patterns may cause. `goes`: all groups that are here by a pattern.
    They go unless the sidecars' own settings name them, which no sidecar tells at its listener. Raises Failed."""
    listing = _whole(client, bootstrap)
    here = (
        g for g in sorted(listing.groups) if listing.where.get(g) in ("sidecar", "comes") and g not in listing.orders
    )
    return Preview((), tuple(here), (), ())


def _whole(client: Client, bootstrap: str) -> Listing:
    """Returns all groups. Raises Failed if the list is incomplete."""
    listing = client.ask(bootstrap, cf.CLI_CLIENT, gathered)
    if listing.problems:
        raise Failed(Code.UNREACHED, "; ".join(listing.problems), "What would move cannot be told. Try again.")
    return listing


def moved(listing: Listing, wanted: Stored) -> dict[str, str]:
    """Returns the groups that would move, and where to. An order for a single group overrides the patterns.

    What is not stored counts as each sidecar's own settings have it. Those include every group that is here, and
    exclude none; which others they include is not known, so none is taken to come."""
    include, exclude = (wanted[n] for n in cf.BROKER_MOVES)
    included, excluded = Patterns(include or (), ()), Patterns(exclude or (), ())
    moves = {}
    for group_id in sorted(listing.groups):
        here = listing.where.get(group_id) in ("sidecar", "comes")
        stays = (here if include is None else included(group_id)) and not excluded(group_id)
        if group_id not in listing.orders and group_id in listing.where and stays != here:
            moves[group_id] = "broker" if here else "sidecar"
    return moves


def _doubts(listing: Listing, stored: Stored, wanted: Stored) -> Iterable[str]:
    if wanted[cf.INCLUDE] is None:
        yield "groups of the broker come as well if the sidecars' own groups.include names them"
    for name in cf.BROKER_MOVES:
        these = wanted[name] or ()
        sure = doubts(these, stored[name] or ())
        yield from sure
        for p in these:
            if not any(map(Patterns([p], ()), listing.groups)) and not any(text.startswith(f"{p} ") for text in sure):
                yield f"{p} matches no group that there is"


def _uncovered(client: Client, bootstrap: str, principal: str, comes: Sequence[str]) -> tuple[str, ...]:
    if not principal or not comes:
        return ()
    from sidecar.cli.doctor.facts import gather
    from sidecar.cli.doctor.model import Unknown
    from sidecar.cli.doctor.rights import Need, missing

    rights = gather(client, bootstrap, "", (), principal).rights
    if isinstance(rights, Unknown):
        raise Failed(Code.UNREACHED, rights.why, "DESCRIBE of the cluster is needed to read ACLs.")
    if not rights.enforced or principal in rights.super_users:
        return ()
    return tuple(n.name for n in missing([Need("group", g, "Read") for g in comes], rights))


# ---- words ----------------------------------------------------------------------------------------------------------
def _body(patterns: Stored) -> dict[str, Any]:
    return {n.removeprefix("sidecar.groups."): None if v is None else list(v) for n, v in patterns.items()}


def _show(stored: Stored, output: Document) -> None:
    lines = [f"{n}: {OWN if v is None else ', '.join(v) or 'none'}" for n, v in stored.items()]
    warnings = [f"warning: {d}" for v in stored.values() for d in doubts(v or ())]
    print_document(_body(stored), output, [*lines, *warnings])


def _lines(seen: Preview) -> list[str]:
    return [
        f"come to the sidecars: {', '.join(seen.comes) or 'none'}",
        f"go back to the broker: {', '.join(seen.goes) or 'none'}",
        *(f"warning: no ACL lets the sidecars read {g}: it would not be served" for g in seen.uncovered),
        *(f"warning: {d}" for d in seen.doubts),
    ]


def _lines_of_forget(seen: Preview) -> list[str]:
    return [
        "come to the sidecars: groups of the broker that the sidecars' own settings name",
        f"go back to the broker{UNLESS_OWN}: {', '.join(seen.goes) or 'none'}",
    ]


# ---- the sidecars ---------------------------------------------------------------------------------------------------
async def look(cluster: Cluster) -> Stored:
    """Returns the stored patterns. Raises Failed, ConnectionLost, TimeoutError, WireError."""
    from sidecar.wire.generated import describe_configs as dc

    conn = await cluster.anyone()
    resource = dc.DescribeConfigsResource(cf.BROKER, "", list(cf.BROKER_MOVES))
    (result,) = (await conn.request(dc, "DescribeConfigs", dc.DescribeConfigsRequest(resources=[resource]))).results
    if result.error_code != Kafka.NONE:
        _refused(result.error_code, result.error_message, "DESCRIBE_CONFIGS")
    configs = {c.name: c.value for c in result.configs}
    return {n: None if configs.get(n) is None else split(configs[n] or "") for n in cf.BROKER_MOVES}


async def store(cluster: Cluster, wanted: Stored) -> None:
    """Stores the patterns. Raises Failed, ConnectionLost, TimeoutError, WireError."""
    from sidecar.wire.generated import incremental_alter_configs as ia

    conn = await cluster.anyone()
    given = {n: None if v is None else ",".join(v) for n, v in wanted.items()}
    ops = [ia.AlterableConfig(n, DELETE if v is None else SET, v) for n, v in given.items()]
    request = ia.IncrementalAlterConfigsRequest([ia.AlterConfigsResource(cf.BROKER, "", ops)])
    (result,) = (await conn.request(ia, "IncrementalAlterConfigs", request)).responses
    if result.error_code != Kafka.NONE:
        _refused(result.error_code, result.error_message, "ALTER_CONFIGS")


def _refused(code: int, message: str | None, right: str) -> None:
    what = f"{name_of(code)}: {message or 'no reason is told'}"
    raise Failed(Code.FINDINGS, what, f"{right} of the cluster is needed, and --bootstrap must be a sidecar.")
