"""The check of the patterns of groups against the ACLs."""

from __future__ import annotations

from sidecar.cli.doctor.model import Check, Facts, Status, Unknown
from sidecar.cli.doctor.rights import ANY, Need, missing
from sidecar.core.vocabulary.group_patterns import beginning
from sidecar.process.rights import Right, commands

ASKED = "Name both: --principal User:NAME, and --admin HOST:PORT of a sidecar."


def rights_of_patterns(f: Facts) -> Check:
    """Checks that the sidecars may read each group that a pattern names: other groups are stuck."""
    name = "rights for the patterns"
    r = f.rights
    if isinstance(r, Unknown):
        return Check(name, Status.UNKNOWN, r.why, "DESCRIBE of the cluster is needed to read ACLs.")
    if not r.enforced:
        return Check(name, Status.OK, "The brokers have no authorizer: everybody may do everything.")
    include = f.patterns()[0]
    if not r.principal or not include:
        return Check(name, Status.UNKNOWN, "Who the sidecars are, or their patterns, nobody said.", ASKED)
    good = Check(name, Status.OK, f"{r.principal} may read the groups that they name.")
    if r.principal in r.super_users:
        return good
    begins = {p: beginning(p) for p in include}
    needs = {p: Need("group", b[0], "Read", prefixed=not b[1]) for p, b in begins.items() if b is not None}
    bare = [p for p, need in needs.items() if missing([need], r, False)]
    if bare:
        finding = f"No ACL lets {r.principal} read the groups of {', '.join(bare)}: they would not be served."
        wanted = [Right("group", needs[p].name, ("Read", "DescribeConfigs"), p, needs[p].prefixed) for p in bare]
        lines = (c for c in commands(wanted, r.principal, f.bootstrap) if not c.startswith("#"))
        return Check(name, Status.FAIL, finding, "\n".join(lines))
    free = [p for p, b in begins.items() if b is None]
    if free and missing([Need("group", ANY, "Read")], r, False):
        finding = f"No ACL lets {r.principal} read all groups, and {', '.join(free)} may name any."
        return Check(name, Status.UNKNOWN, finding, "Compare its ACLs with the groups of these patterns.")
    return good
