"""The rights that a sidecar's own principal needs at the brokers, and no others.

Each row says what it is for. `sidecar acls` prints them as the commands of Kafka's own tool, and
tests/security/test_rights.py runs sidecars that have these rights only, and sidecars that lack one of them.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from sidecar.core.vocabulary.internal_topics import OFFSETS

ANY = "*"
IMPLIED = {
    "Describe": frozenset(("Describe", "Read", "Write", "Delete", "Alter", "All")),
    "DescribeConfigs": frozenset(("DescribeConfigs", "AlterConfigs", "All")),
}
"""Operation -> the operations that grant it, where these are more than itself and ALL (Kafka's StandardAuthorizer)."""


@dataclass(frozen=True)
class Scope:
    """The extent of the rights. `groups`, `topics`: prefixes of managed groups and of the topics that they read; none:
    all. `elsewhere`: also `rights_for_clients_elsewhere`."""

    groups: Sequence[str] = ()
    topics: Sequence[str] = ()
    elsewhere: bool = True


ALL = Scope()


@dataclass(frozen=True)
class Right:
    """One ACL. `kind`: topic, group, transactional-id or cluster, as in kafka-acls; `prefixed`: `name` is a prefix."""

    kind: str
    name: str
    operations: tuple[str, ...]
    why: str
    prefixed: bool = False


def rights_of(topic: str, owners_group: str, scope: Scope = ALL) -> tuple[Right, ...]:
    """Returns the rights of the principal in `command_config`, which may be that in `broker_command_config`, too. The
    names are those of the settings `state.topic` and `ownership.group`.

    A right that another one includes is left out: READ of all topics is READ of the state topic.
    """
    own = own_rights(topic, owners_group, scope.groups, scope.topics)
    more = rights_for_clients_elsewhere(scope.groups, scope.topics) if scope.elsewhere else ()
    return tuple(_each_once(own + more))


def own_rights(
    topic: str, owners_group: str, groups: Sequence[str] = (), topics: Sequence[str] = ()
) -> tuple[Right, ...]:
    """Returns the rights without which a sidecar does not serve."""
    return (
        Right("topic", topic, ("Read", "Write", "DescribeConfigs"), "the state, and how it is kept"),
        Right("topic", topic, ("Create",), "the state topic is made when it is not there; not needed afterwards"),
        Right("transactional-id", f"{topic}-", ("Write",), "the fence of each partition of the state", prefixed=True),
        Right("group", owners_group, ("Read",), "the sidecars' own group: who owns what"),
        Right("cluster", "kafka-cluster", ("DescribeConfigs",), "the broker's settings of groups count here, too"),
        Right("topic", OFFSETS, ("Describe",), "which broker keeps the offsets of which group"),
        *_all("topic", topics, ("Describe",), "partitions of the topics that groups subscribe to"),
        *_all("group", groups, ("Read",), "the placeholder in the broker's group, and whether that has other members"),
        *_all("group", groups, ("DescribeConfigs",), "settings of groups that stand at the brokers"),
    )


def rights_for_clients_elsewhere(groups: Sequence[str] = (), topics: Sequence[str] = ()) -> tuple[Right, ...]:
    """Returns the rights for a group whose owner is not beside the broker that keeps its offsets, as after a sidecar
    has died. Without these rights, groups work only while the sidecar beside each broker runs."""
    return (
        *_all("topic", topics, ("Read",), "commits of clients whose own broker does not keep their group's offsets"),
        *_all("group", groups, ("Delete",), "DeleteGroups and OffsetDelete of such clients"),
        Right("transactional-id", ANY, ("Write",), "transactional commits of such clients"),
    )


def seen_by_clients(topic: str, topics: Sequence[str] = ()) -> tuple[Right, ...]:
    """Returns the rights of the principal in `broker_command_config`, if it is another one: it reads Metadata and asks
    the broker for its own settings. Without that right a wrong broker goes unnoticed."""
    rights = (
        Right("topic", topic, ("Describe",), "whether the state topic is there"),
        Right("topic", OFFSETS, ("Describe",), "which broker keeps the offsets of which group"),
        *_all("topic", topics, ("Describe",), "partitions of the topics that groups subscribe to"),
        Right("cluster", "kafka-cluster", ("DescribeConfigs",), "whether this is the broker of the sidecar's node id"),
    )
    return tuple(_each_once(rights))


def _all(kind: str, begins: Sequence[str], operations: tuple[str, ...], why: str) -> list[Right]:
    """Returns a right to all names with one of these prefixes."""
    if not begins:
        return [Right(kind, ANY, operations, why)]
    return [Right(kind, name, operations, why, prefixed=True) for name in dict.fromkeys(begins)]


def _each_once(rights: Sequence[Right]) -> Iterator[Right]:
    """Yields the rights without operations that another right includes."""
    for r in rights:
        left = tuple(o for o in r.operations if not any(_includes(by, r, o) for by in rights if by is not r))
        if left:
            yield replace(r, operations=left)


def _includes(by: Right, r: Right, operation: str) -> bool:
    if by.kind != r.kind or not IMPLIED.get(operation, {operation}).intersection(by.operations):
        return False
    return by.name == ANY or (r.name.startswith(by.name) if by.prefixed else not r.prefixed and by.name == r.name)


def rights_of_the_audit(topic: str) -> tuple[Right, ...]:
    """Returns the rights of a principal that reads the state topic: for the audit and `sidecar groups history`. Read
    includes Describe."""
    return (Right("topic", topic, ("Read", "DescribeConfigs"), "the state, and how it is kept"),)


def commands(rights: Sequence[Right], principal: str, bootstrap: str, command_config: str = "") -> Iterator[str]:
    """Yields a shell command for each right, with its reason on the line before it."""
    for r in rights:
        words = ["kafka-acls.sh", "--bootstrap-server", bootstrap]
        words += ["--command-config", command_config] if command_config else []
        words += ["--add", "--allow-principal", principal]
        for operation in r.operations:
            words += ["--operation", operation]
        words += ["--cluster"] if r.kind == "cluster" else [f"--{r.kind}", r.name]
        words += ["--resource-pattern-type", "prefixed"] if r.prefixed else []
        yield f"# {r.why}"
        yield shlex.join(words)


def who_else(topic: str, owners_group: str, bootstrap: str, command_config: str = "") -> Iterator[str]:
    """Yields comments: operations that no other principal may have, and the commands that list their ACLs, those of
    patterns and of * among them. They are comments, so a shell that runs the output of `commands` does not run them."""
    resources = (
        ("group", owners_group, "nobody else may Read, Delete or AlterConfigs the sidecars' own group"),
        ("topic", topic, "nobody else may Write, Delete, Alter or AlterConfigs the state topic"),
        ("transactional-id", f"{topic}-0", "nobody else may Write a transactional id of the state; one stands for all"),
    )
    for kind, name, why in resources:
        words = ["kafka-acls.sh", "--bootstrap-server", bootstrap]
        words += ["--command-config", command_config] if command_config else []
        words += ["--list", f"--{kind}", name, "--resource-pattern-type", "match"]
        yield f"# {why}; who may: {shlex.join(words)}"
