"""Checks of the sidecars' own resources: other principals with rights there, and groups that read their records."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from sidecar.cli.doctor.model import Check, Facts, Rights, Status, Unknown
from sidecar.cli.doctor.rights import Need, covers, holders

OWNERS_GROUP = "__group_state_owners"
OPTIONS = {"group": "--group", "topic": "--topic", "transactional-id": "--transactional-id"}
SHOWN = 5
"""Number of principals, and of commands, that are shown."""


def harmful(topic: str, owners_group: str) -> tuple[tuple[Need, str], ...]:
    """Returns the rights that only the sidecars should have, and the harm of each. Write of the state topic, which is
    worse than all of these, has a check of its own. For transactional ids, one partition's stands for all."""
    return (
        (
            Need("group", owners_group, "Read"),
            "join and disturb the sidecars' own group at a broker",
        ),
        (Need("group", owners_group, "Delete"), "delete the sidecars' own group"),
        (Need("group", owners_group, "AlterConfigs"), "change the settings of the sidecars' own group"),
        (Need("transactional-id", f"{topic}-0", "Write"), "shut sidecars out of what they own"),
        (Need("topic", topic, "Delete"), "delete the state topic, or its records"),
        (Need("topic", topic, "Alter"), "add partitions to the state topic"),
        (Need("topic", topic, "AlterConfigs"), "set the state topic to lose records"),
    )


def others_rights(f: Facts) -> Check:
    name, r = "rights of others", f.rights
    if isinstance(r, Unknown):
        return Check(name, Status.UNKNOWN, r.why, "DESCRIBE of the cluster is needed to read ACLs.")
    if not r.enforced:
        finding = "The brokers have no authorizer: everybody may do everything, also in the sidecars' own group."
        return Check(name, Status.OK, finding)
    if not r.principal:
        return Check(name, Status.UNKNOWN, "Nobody said who the sidecars are.", "Name them: --principal User:NAME.")
    excess = [
        (need, why, principals) for need, why in harmful(f.state_topic, _group(f)) if (principals := _who(need, r))
    ]
    if not excess:
        return Check(name, Status.OK, f"Only {r.principal}, and super users, may touch what is the sidecars'.")
    findings = (f"{_some(principals)} may {why} ({need.text()})" for need, why, principals in excess)
    return Check(name, Status.WARN, "; ".join(findings) + ".", "\n".join(_remedy(f, excess)))


def _group(f: Facts) -> str:
    return str(f.setting("ownership.group", OWNERS_GROUP))


def _who(need: Need, r: Rights) -> list[str]:
    if r.open and not any(g.kind == need.kind and covers(g, need.name) for g in r.grants):
        return ["everybody"]
    return holders(need, r)


def _some(principals: list[str]) -> str:
    more = len(principals) - SHOWN
    return ", ".join(principals[:SHOWN]) + (f" and {more} others" if more > 0 else "")


def _remedy(f: Facts, excess: list[tuple[Need, str, list[str]]]) -> Iterator[str]:
    yield "Take these rights away, or deny them where they come from a pattern or *, to each principal by its name:"
    denied = [
        (need, principal)
        for need, _, principals in excess
        for principal in principals
        if principal not in ("everybody", "User:*")
    ]
    for need, principal in denied[:SHOWN]:
        name = [f"{f.state_topic}-", "--resource-pattern-type", "prefixed"]
        words = ["kafka-acls.sh", "--bootstrap-server", f.bootstrap, "--add", "--deny-principal", principal]
        words += ["--operation", need.operation, OPTIONS[need.kind]]
        yield shlex.join(words + (name if need.kind == "transactional-id" else [need.name]))
    if len(denied) > SHOWN:
        yield f"{len(denied) - SHOWN} more are to be denied"
    if any(principal in ("everybody", "User:*") for _, _, principals in excess for principal in principals):
        yield "What everybody may do cannot be denied to all but the sidecars: grant it to those that need it instead."


def readers(f: Facts) -> Check:
    """Checks that no group reads the state topic. A group of all topics does, unless its client skips internal ones."""
    name = "readers of the state topic"
    if isinstance(f.readers, Unknown):
        return Check(name, Status.UNKNOWN, f.readers.why, "DESCRIBE of the groups and of the topic is needed.")
    if f.readers:
        finding = f"Members of {_some(list(f.readers))} are assigned partitions of {f.state_topic}."
        remedy = "Leave it out of their patterns, or take Read of it from their users: it tells who is in every group. "
        return Check(name, Status.WARN, finding, remedy + "The audit reads it without a group.")
    return Check(name, Status.OK, f"No member of a group reads {f.state_topic}.")
