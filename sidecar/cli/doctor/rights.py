"""The rights that the sidecars' principal needs at the brokers, and those that the ACLs do not grant.

Kafka's rules (StandardAuthorizer): a DENY is stronger than any ALLOW; READ, WRITE, DELETE and ALTER imply DESCRIBE, and
ALTER_CONFIGS implies DESCRIBE_CONFIGS; ALL is everything; host * is every host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sidecar.cli.doctor.model import Grant, Rights
from sidecar.process.rights import ALL, IMPLIED, Right, Scope, rights_of

ANY = "*"
EVERYBODY = "User:*"


@dataclass(frozen=True, slots=True)
class Need:
    """One needed operation. `kind`: as in kafka-acls; `name` ANY: every resource of the kind; `prefixed`: `name` is a
    prefix."""

    kind: str
    name: str
    operation: str
    prefixed: bool = False

    def text(self) -> str:
        which = "" if self.kind == "cluster" else f" {self.name}{'*' if self.prefixed else ''}"
        return f"{self.operation} of {self.kind}{which}"


def needed_operations(topic: str, owners_group: str, scope: Scope = ALL) -> list[Need]:
    """Returns all needs, but for the right to create the state topic, which exists."""
    return [
        Need(r.kind, r.name, operation, r.prefixed)
        for r in rights_of(topic, owners_group, scope)
        for operation in r.operations
        if operation != "Create"
    ]


def missing(needs: Sequence[Need], rights: Rights, anywhere: bool = True) -> list[Need]:
    """Returns the needs that no ACL grants. A need of every group or topic is met only by an ACL of `*`, however many
    single names have ACLs. `anywhere`: a right that is allowed from some hosts only, or denied from some, is missing,
    too; else it counts as granted."""
    mine = [g for g in rights.grants if g.principal in (rights.principal, EVERYBODY)]
    return [n for n in needs if not _granted(n, mine, anywhere)]


def acls(lacking: Sequence[Need], topic: str, owners_group: str, scope: Scope = ALL) -> list[Right]:
    """Returns the rights of `sidecar acls` that have to be given, with the missing operations only."""
    rights = []
    for r in rights_of(topic, owners_group, scope):
        operations = tuple(o for o in r.operations if Need(r.kind, r.name, o, r.prefixed) in lacking)
        if operations:
            rights.append(replace(r, operations=operations))
    return rights


def holders(need: Need, rights: Rights) -> list[str]:
    """Returns the principals that may do this, from anywhere or from some host, but for super users and the
    sidecars."""
    known = {rights.principal, *rights.super_users}
    principals = []
    for principal in sorted({g.principal for g in rights.grants if g.allow} - known):
        theirs = [g for g in rights.grants if g.principal == principal or (g.principal == EVERYBODY and not g.allow)]
        if _granted(need, theirs, anywhere=False):
            principals.append(principal)
    return principals


def _granted(need: Need, grants: Sequence[Grant], anywhere: bool) -> bool:
    enough = IMPLIED.get(need.operation, frozenset((need.operation, "All")))
    here = [g for g in grants if g.kind == need.kind]
    denied = (g for g in here if not g.allow and (anywhere or g.host == ANY) and g.operation in (need.operation, "All"))
    if any(_meet(g, need) for g in denied):
        return False
    allowed = (g for g in here if g.allow and (g.host == ANY or not anywhere) and g.operation in enough)
    return any(_covers(g, need) for g in allowed)


def covers(g: Grant, name: str) -> bool:
    """Returns whether the ACL covers this resource, whatever it grants."""
    return g.name == ANY or (name.startswith(g.name) if g.prefixed else name == g.name)


def _covers(g: Grant, need: Need) -> bool:
    if g.name == ANY or need.kind == "cluster":
        return True
    if need.name == ANY:
        return False
    return need.name.startswith(g.name) if g.prefixed else not need.prefixed and g.name == need.name


def _meet(g: Grant, need: Need) -> bool:
    """Returns whether a DENY concerns part of the need."""
    if need.name == ANY or g.name == ANY or need.kind == "cluster":
        return True
    if g.prefixed:
        return need.name.startswith(g.name) or (need.prefixed and g.name.startswith(need.name))
    return g.name.startswith(need.name) if need.prefixed else g.name == need.name
