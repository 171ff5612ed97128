"""`sidecar groups describe|members|explain|history`: one group, as its partition of the state topic has it.

No sidecar is needed for that: they read the topic as any consumer does, and replay it into the coordinator's own code.
`describe --admin` asks a sidecar instead.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

from sidecar.cli.asking import GROUP, NO_GROUP, WHERE, Asking, Authority, TokenFile
from sidecar.cli.connect import ROUTE, Bootstrap, CommandConfig, GroupId, StateTopic, client_of, readable, topics
from sidecar.cli.exits import Code, Failed
from sidecar.cli.groups import groups, listed
from sidecar.cli.history import history
from sidecar.cli.output import Document, DocumentFormat, Format, Output, Watch, print_document, print_rows, run
from sidecar.cli.plain import echo
from sidecar.core.vocabulary import group_config as cf

if TYPE_CHECKING:
    from sidecar.audit.explain.model import Explanation
    from sidecar.audit.explain.replay import Replayed
    from sidecar.cli.connect import Client
    from sidecar.core.runtime.inspect import Live
    from sidecar.core.vocabulary.topics import TopicImage

groups.command("history")(history)


@groups.command()
def explain(
    group: GroupId,
    bootstrap: Bootstrap,
    if_leaves: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MEMBER",
            help="What would move if this member left? Its id, the begin of it, or its "
            "client or instance id. It may be repeated.",
        ),
    ] = None,
    if_joins: Annotated[int, typer.Option(metavar="N", min=0, help="What would move if so many members joined?")] = 0,
    admin: Annotated[
        list[str] | None,
        typer.Option(metavar=WHERE, help="Admin addresses of sidecars: the owner knows what no record says."),
    ] = None,
    token_file: TokenFile = None,
    ca: Authority = None,
    topic: StateTopic = "__group_state",
    command_config: CommandConfig = None,
    output: DocumentFormat = Document.TABLE,
    watch: Watch = 0,
) -> None:
    """Tell in words why a group is not stable: who waits for whom, who was removed and why, and what comes next.

    With --if-leaves and --if-joins: the moves that would follow, by a dry run of the coordinator and its assignor.
    Exit code 1: the group is not stable."""

    def show() -> Code:
        client = client_of(command_config)
        replayed = _replayed(client, bootstrap, topic, group)
        if if_leaves or if_joins:
            return _what_if(replayed, client, bootstrap, tuple(if_leaves or ()), if_joins, output)
        from sidecar.audit.explain.words import words

        explanation = _explained(replayed, _image(client, bootstrap), _live(group, admin or [], Asking(token_file, ca)))
        lines = words(explanation, _now_ms())
        print_document({**asdict(explanation), "words": lines}, output, lines)
        return Code.OK if explanation.stable else Code.FINDINGS

    run(show, watch)


@groups.command()
def describe(
    group: GroupId,
    bootstrap: Bootstrap = "",
    admin: Annotated[
        str, typer.Option(metavar=WHERE, help="Ask this sidecar's admin address instead: any one can tell.")
    ] = "",
    token_file: TokenFile = None,
    ca: Authority = None,
    topic: StateTopic = "__group_state",
    command_config: CommandConfig = None,
    output: DocumentFormat = Document.TABLE,
    watch: Watch = 0,
) -> None:
    """Show a group: its kind, state and epochs, who coordinates it, and each member with what it owns and is to own."""

    def show() -> Code:
        if bool(admin) == bool(bootstrap):
            raise Failed(Code.USAGE, "Either --bootstrap or --admin is needed.", "sidecar groups describe --help")
        if admin:
            return _by_admin(group, admin, Asking(token_file, ca), output)
        explanation = _explained(_replayed(client_of(command_config), bootstrap, topic, group), None)
        body = {k: v for k, v in asdict(explanation).items() if k not in ("waits", "removed")}
        print_document(body, output, lambda: _picture(explanation))
        return Code.OK

    run(show, watch)


@groups.command()
def members(
    group: GroupId,
    bootstrap: Bootstrap,
    topic: StateTopic = "__group_state",
    command_config: CommandConfig = None,
    output: Format = Output.TABLE,
    watch: Watch = 0,
) -> None:
    """List the members of a group, a row each: who they are, where they stand, what they own."""

    def show() -> Code:
        explanation = _explained(_replayed(client_of(command_config), bootstrap, topic, group), None)
        if not explanation.members:
            raise Failed(Code.FINDINGS, f"{group} has no members.", f"sidecar groups history {group} tells who left.")
        print_rows(_rows(explanation, output), output)
        return Code.OK

    run(show, watch)


# ---- reading --------------------------------------------------------------------------------------------------------
def _replayed(client: Client, bootstrap: str, topic: str, group: str) -> Replayed:
    """Returns the group's replayed records. Raises Failed."""
    from sidecar.audit.explain.model import ExplainError
    from sidecar.audit.explain.replay import replayed

    try:
        with readable(), client.reader(bootstrap, topic) as reader:
            result = replayed(group, reader.read_group(group))
    except ExplainError as exc:
        raise Failed(Code.FINDINGS, str(exc), exc.then) from None
    if not result.records:
        since = " any more" if result.last_writes else ""
        where = _elsewhere(client, bootstrap, group)
        raise Failed(Code.FINDINGS, f"{topic} has no records of group {group}{since}: {where}.", ROUTE)
    return result


def _elsewhere(client: Client, bootstrap: str, group: str) -> str:
    """Returns the place of a group without records, in words."""
    try:
        exists = group in client.ask(bootstrap, cf.CLI_CLIENT, listed)
    except Failed:
        return "it is the broker's, or there is none"
    return "it is the broker's" if exists else "there is no such group, or this user may not see it"


def _explained(replayed: Replayed, image: TopicImage | None, live: Live | None = None) -> Explanation:
    """Returns the explanation of a group. Raises Failed."""
    from sidecar.audit.explain.ask import explain
    from sidecar.audit.explain.model import ExplainError

    try:
        return explain(replayed, image, live=live)
    except ExplainError as exc:
        raise Failed(Code.FINDINGS, str(exc), exc.then) from None


def _live(group: str, admins: list[str], asking: Asking) -> Live | None:
    """Returns the owner's own facts about the group, if it is one of these sidecars. Warns if it is not."""
    from sidecar.core.runtime.inspect import Live

    for admin in admins:
        try:
            live = asking.get(admin, f"/group?id={quote(group, safe='')}", GROUP).get("live")
        except Failed as failed:
            echo(failed.what, err=True)
            continue
        if isinstance(live, Mapping):
            return Live.of(live)
    if admins:
        echo(f"None of these sidecars owns {group}, so only its records are told.", err=True)
    return None


def _image(client: Client, bootstrap: str) -> TopicImage | None:
    """Returns all topics. Warns where they cannot be read: less can be explained without them."""
    try:
        return client.ask(bootstrap, "sidecar-explain", topics)
    except Failed as failed:
        echo(f"Topics are not known, so whether they have changed is not told: {failed.what}", err=True)
        return None


def _now_ms() -> int:
    return int(time.time() * 1000)


# ---- what if --------------------------------------------------------------------------------------------------------
def _what_if(
    replayed: Replayed, client: Client, bootstrap: str, leaves: tuple[str, ...], joins: int, output: Document
) -> Code:
    from sidecar.audit.explain.model import ExplainError
    from sidecar.audit.explain.whatif import what_if
    from sidecar.audit.explain.words import if_words

    image = client.ask(bootstrap, "sidecar-explain", topics)
    try:
        outcome = what_if(replayed, image, partial(_assignors, replayed), leaves, joins)
    except ExplainError as exc:
        raise Failed(Code.FINDINGS, str(exc), exc.then) from None
    print_document(asdict(outcome), output, if_words(outcome))
    return Code.OK


def _assignors(replayed: Replayed, kind: str) -> Mapping[str, Any]:
    """Returns the built-in assignors of the group's kind, and those that the group names. Raises Failed."""
    from sidecar.process.assignors import OFFERED, UnknownAssignor, load

    offered = OFFERED.get(kind)
    if offered is None:
        return {}
    named = {getattr(r, name, None) for r in replayed.records for name in ("server_assignor", "assignor")}
    try:
        return load(dict.fromkeys([*offered.built_in, *sorted(n for n in named if n)]), offered)
    except UnknownAssignor as exc:
        raise Failed(Code.FINDINGS, str(exc), "Install the package of that assignor beside this one.") from None


# ---- showing --------------------------------------------------------------------------------------------------------
def _rows(e: Explanation, output: Output) -> list[dict[str, Any]]:
    from sidecar.audit.moments import shown

    table = output in (Output.TABLE, Output.CSV)
    rows = []
    for m in e.members:
        row: dict[str, Any] = {
            "member": m.member,
            "client": m.client,
            "host": m.host,
            "instance": m.instance,
            "protocol": m.protocol,
            "epoch": m.epoch,
            "state": m.state,
            "since": shown(m.since_ms) if m.since_ms else "",
        }
        for name, places in (("owns", m.owns), ("gives_up", m.gives_up), ("target", m.target)):
            row[name] = " ".join(places) if table else list(places)
        rows.append(row)
    return rows


def _picture(e: Explanation) -> None:
    from sidecar.audit.moments import shown

    name, c = e.epoch_name, e.coordinator
    facts: list[tuple[str, object]] = [
        ("group", e.group),
        ("type", e.kind),
        ("state", f"{e.state}, since {shown(e.since_ms)}" if e.since_ms else e.state),
        (name, "unknown" if e.epoch is None else e.epoch),
        ("assigned " + name, e.assignment_epoch),
        (e.assignor_name, e.assignor),
        *((label.replace("_", " "), in_words(value)) for label, value in e.more.items() if value not in (None, "")),
        ("because", e.because),
        ("coordinator", f"sidecar {c.node_id}, {c.address}, {c.since} {shown(c.since_ms)}" if c else "nobody"),
        ("members", len(e.members)),
    ]
    for label, value in facts:
        echo(f"{label}: {value}")
    for note in e.notes:
        echo(f"note: {note}")
    if e.members:
        print_rows(_rows(e, Output.TABLE), Output.TABLE)


def _by_admin(group: str, admin: str, asking: Asking, output: Document) -> Code:
    """Prints the group as this sidecar tells it. Raises Failed."""
    answer = asking.get(admin, f"/group?id={quote(group, safe='')}", GROUP)
    if answer == NO_GROUP:
        raise Failed(Code.FINDINGS, f"{group}: no such group here", ROUTE)
    print_document(answer, output, _lines(answer))
    return Code.OK


def in_words(value: Any) -> object:
    """Returns a value in words: `0: orders, payments; 1: users`, for a mapping of lists."""
    if isinstance(value, Mapping):
        return "; ".join(f"{name}: {in_words(part)}" for name, part in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return "" if value is None else value


UNTOLD = ("members", "live", "at_rest", "epoch_name", "assignor_name")
"""Fields of the answer that are for programs, or that have lines of their own."""


def _lines(answer: Mapping[str, Any]) -> list[str]:
    from sidecar.audit.moments import shown

    members, epoch = answer.get("members", []), answer.get("epoch_name", "epoch")
    labels = {
        "epoch": epoch,
        "assignment_epoch": f"assigned {epoch}",
        "assignor": answer.get("assignor_name", "assignor"),
    }
    out = []
    for name, value in answer.items():
        text = shown(value) if value and name.endswith("_ms") else in_words(value)
        if text != "" and name not in UNTOLD:
            out.append(f"{labels.get(name, name).removesuffix('_ms').replace('_', ' ')}: {text}")
    out.append(f"members: {len(members)}")
    for m in members:
        member = m["member"] + (f" as {m['instance']}" if m.get("instance") else "")
        names = ("client", "host", "protocol", "epoch", "state", "process")
        out.append(f"  {member} ({', '.join(f'{n} {m[n]}' for n in names if m.get(n))})")
        out += [f"    {n.replace('_', ' ')}: {in_words(m[n])}" for n in ("owns", "gives_up", "target") if m.get(n)]
        for c in m.get("stale_claims", []):
            held = f"held by {c['holder']}" if c["holder"] else "held by nobody"
            out.append(f"    stale claim: {c['topic']} {c['partitions']} of generation {c['generation']}, {held}")
    return out
