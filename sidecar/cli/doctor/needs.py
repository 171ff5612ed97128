"""What the sidecars' principal needs at the brokers, and what of it the ACLs do not grant.

Kafka's rules (StandardAuthorizer): a DENY is stronger than any ALLOW; READ, WRITE, DELETE and ALTER imply DESCRIBE, and
ALTER_CONFIGS implies DESCRIBE_CONFIGS; ALL is everything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sidecar.cli.doctor.model import Grant, Rights
from sidecar.process.rights import rights_of

ANY = "*"
IMPLIED = {
    "Describe": frozenset(("Describe", "Read", "Write", "Delete", "Alter", "All")),
    "DescribeConfigs": frozenset(("DescribeConfigs", "AlterConfigs", "All")),
}
"""By which operations an operation is granted, where by more than itself and ALL."""


@dataclass(frozen=True, slots=True)
class Need:
    """`kind`: as kafka-acls names it; `name` ANY: every resource of that kind; `prefixed`: each that begins so."""

    kind: str
    name: str
    operation: str
    prefixed: bool = False

    def text(self) -> str:
        which = "" if self.kind == "cluster" else f" {self.name}{'*' if self.prefixed else ''}"
        return f"{self.operation} of {self.kind}{which}"


def NEEDS(topic: str, owners_group: str) -> list[Need]:
    """Without the right to create the state topic, which is there."""
    return [
        Need(r.kind, r.name, operation, r.prefixed)
        for r in rights_of(topic, owners_group)
        for operation in r.operations
        if operation != "Create"
    ]


def missing(needs: Sequence[Need], rights: Rights) -> list[Need]:
    """What ACLs of resources by name grant for single groups and topics only is not seen as missing nothing: a need of
    every resource is met by every resource."""
    mine = [g for g in rights.grants if g.principal in (rights.principal, "User:*")]
    return [n for n in needs if not _granted(n, mine)]


def _granted(need: Need, grants: Sequence[Grant]) -> bool:
    enough = IMPLIED.get(need.operation, frozenset((need.operation, "All")))
    here = [g for g in grants if g.kind == need.kind]
    if any(not g.allow and g.operation in (need.operation, "All") and _meet(g, need) for g in here):
        return False
    return any(g.allow and g.operation in enough and _covers(g, need) for g in here)


def _covers(g: Grant, need: Need) -> bool:
    if g.name == ANY or need.kind == "cluster":
        return True
    if need.name == ANY:
        return False
    return need.name.startswith(g.name) if g.prefixed else not need.prefixed and g.name == need.name


def _meet(g: Grant, need: Need) -> bool:
    """Whether a DENY concerns part of what is needed."""
    if need.name == ANY or g.name == ANY or need.kind == "cluster":
        return True
    if g.prefixed:
        return need.name.startswith(g.name) or (need.prefixed and g.name.startswith(need.name))
    return g.name.startswith(need.name) if need.prefixed else g.name == need.name
