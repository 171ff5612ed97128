"""What a sidecar's own principal must be allowed to do at the brokers, and nothing more.

Each row says what it is for. `sidecar acls` prints them as the commands of Kafka's own tool, and
tests/security/test_rights.py runs sidecars that have these rights only.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

ANY = "*"


@dataclass(frozen=True)
class Right:
    """`kind`: topic, group, transactional-id or cluster, as kafka-acls names them; `prefixed`: every name that begins
    so."""

    kind: str
    name: str
    operations: tuple[str, ...]
    why: str
    prefixed: bool = False


def rights_of(topic: str, owners_group: str) -> tuple[Right, ...]:
    """Of the principal in `command_config`, which may be that in `broker_command_config`, too. The names are those of
    the settings `state.topic` and `ownership.group`."""
    return own_rights(topic, owners_group) + rights_for_clients_elsewhere()


def own_rights(topic: str, owners_group: str) -> tuple[Right, ...]:
    """Without them a sidecar does not serve."""
    return (
        Right("topic", topic, ("Read", "Write", "DescribeConfigs"), "the state, and how it is kept"),
        Right("topic", topic, ("Create",), "the state topic is made when it is not there; not needed afterwards"),
        Right("transactional-id", f"{topic}-", ("Write",), "the fence of each partition of the state", prefixed=True),
        Right("group", owners_group, ("Read",), "the sidecars' own group: who owns what"),
        Right("cluster", "kafka-cluster", ("DescribeConfigs",), "the broker's settings of groups count here, too"),
        Right("topic", ANY, ("Describe",), "partitions of the topics that groups subscribe to"),
    )


def rights_for_clients_elsewhere() -> tuple[Right, ...]:
    """For a group whose owner is not beside the broker that keeps its offsets. They include some of `own_rights`, which
    are what is left for whoever does not give these."""
    return (
        Right("topic", ANY, ("Read",), "commits of clients whose own broker does not keep the offsets of their group"),
        Right("group", ANY, ("Read",), "the placeholder in the broker's group, and those commits"),
        Right("group", ANY, ("Delete",), "DeleteGroups and OffsetDelete of such clients"),
        Right("group", ANY, ("DescribeConfigs",), "settings of groups that stand at the brokers"),
        Right("transactional-id", ANY, ("Write",), "transactional commits of such clients"),
    )


def seen_by_clients() -> tuple[Right, ...]:
    """Of the principal in `broker_command_config`, if it is another one: it reads Metadata."""
    return (Right("topic", ANY, ("Describe",), "partitions of the topics that groups subscribe to"),)


def rights_of_the_audit(topic: str) -> tuple[Right, ...]:
    """Of whoever reads the state topic: the audit and `sidecar groups history`. Read includes Describe."""
    return (Right("topic", topic, ("Read", "DescribeConfigs"), "the state, and how it is kept"),)


def commands(rights: Sequence[Right], principal: str, bootstrap: str, command_config: str = "") -> Iterator[str]:
    """A line of a shell for each right, with its reason before it."""
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
