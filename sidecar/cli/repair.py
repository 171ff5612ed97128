"""`sidecar state repair`: remove records of a group that no sidecar can read, by tombstones for their keys.

The group is judged as its owner does it: its records are replayed into the coordinator's own code. Nothing is written
where that succeeds, so the state of a group that is served cannot be removed. A tombstone says in its header `why` who
has removed the record, as every action of an administrator does.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sidecar.cli.connect import CHECK, ROUTE, Bootstrap, Client, CommandConfig, StateTopic, client_of, readable
from sidecar.cli.exits import Code, Failed
from sidecar.cli.output import Format, Output, print_rows
from sidecar.cli.plain import echo
from sidecar.cli.state import state

if TYPE_CHECKING:
    from sidecar.audit.explain.replay import Fault, Replayed
    from sidecar.state.keys import StateKey

ANSWER_S = 30.0


@state.command()
def repair(
    group: Annotated[str, typer.Argument(help="The group's id.")],
    bootstrap: Bootstrap,
    whole: Annotated[
        bool,
        typer.Option("--whole", help="Remove all records of the group: members join anew, committed offsets stay."),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Write the tombstones; without it they are only shown.")] = False,
    topic: StateTopic = "__group_state",
    command_config: CommandConfig = None,
    output: Format = Output.TABLE,
) -> None:
    """Remove the records of a group that no sidecar can read. Refuses a group that can be read.

    If a newer version has written them, start that version instead. Offsets are not touched: they are the brokers'.
    Afterwards restart the sidecar that coordinates the group, which reads it again."""
    client = client_of(command_config)
    with readable(), client.reader(bootstrap, topic) as reader:
        partition, replayed, faults = _looked(reader, group)
    if not replayed.records and not faults:
        raise Failed(Code.FINDINGS, f"{topic} has no records of group {group}.", ROUTE)
    rows = _to_remove(replayed, faults, whole)
    if not rows:
        raise Failed(Code.FINDINGS, f"{group} can be read: nothing was removed.", f"sidecar groups explain {group}")
    print_rows([{"kind": k.kind, "id": k.sub_id, "offset": at, "fault": why} for k, at, why in rows], output)
    if not yes:
        what = f"These {len(rows)} records of {group} would be removed; nothing was written."
        raise Failed(Code.FINDINGS, what, "Back the topic up with `sidecar state dump`, and say it again with --yes.")
    _bury(client, bootstrap, topic, partition, [key for key, _, _ in rows])
    coordinator = (
        f"sidecar {replayed.coordinator.node_id}" if replayed.coordinator else "the sidecar that coordinates the group"
    )
    echo(
        f"{len(rows)} records were removed. Restart {coordinator}: it reads the group again when it takes over.",
        err=True,
    )


def _looked(reader: Any, group: str) -> tuple[int, Replayed, list[Fault]]:
    """Returns the group's partition, replayed records and faults. Raises AuditError."""
    from sidecar.audit.explain.replay import replayed

    faults: list[Fault] = []
    taken = reader.read_group(group)
    return taken.partition, replayed(group, taken, faults), faults


def _to_remove(replayed: Replayed, faults: Sequence[Fault], whole: bool) -> list[tuple[StateKey, int, str]]:
    """Returns key, offset and fault of each record to remove; nothing, if the group can be read. Raises Failed where
    only all of its records can be removed."""
    from sidecar.state.keys import StateKey

    rows = [(f.key, f.offset, f.why) for f in faults]
    if whole and (rows or _contradict(replayed)):
        keys = [StateKey(str(r.kind), r.group_id, r.sub_id) for r in replayed.records]
        return rows + [(key, replayed.offset(key.kind, key.sub_id), "") for key in keys]
    if problem := _contradict(replayed):
        what = f"Without what cannot be read: {problem}" if rows else problem
        raise Failed(Code.FINDINGS, what, "Say it with --whole: all records of the group go, and members join anew.")
    return rows


def _contradict(replayed: Replayed) -> str:
    """Returns the contradiction between the readable records; empty if there is none."""
    from sidecar.audit.explain.model import ExplainError
    from sidecar.core.vocabulary.topics import TopicImage

    try:
        if replayed.records:
            replayed.shard(TopicImage())
    except ExplainError as exc:
        return str(exc)
    return ""


def _bury(client: Client, bootstrap: str, topic: str, partition: int, keys: Sequence[StateKey]) -> None:
    """Writes tombstones for these keys. Raises Failed."""
    import getpass
    import socket

    from confluent_kafka import KafkaException, Producer

    from sidecar.state.keys import encode_key

    fixed = {"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True, "log_level": 2}
    now_ms = int(time.time() * 1000)
    why = f"removed by {getpass.getuser()} at {socket.gethostname()}: it could not be read"
    # No owner has written them, so they name no owner epoch: every reader follows such a tombstone.
    headers: Any = [("why", why.encode()), ("time_ms", str(now_ms).encode())]
    refused: list[str] = []
    producer = Producer({**client.librdkafka(), **fixed})
    try:
        for key in keys:
            producer.produce(
                topic,
                None,
                encode_key(*key),
                partition,
                lambda error, _: refused.append(error.str()) if error is not None else None,
                timestamp=now_ms,
                headers=headers,
            )
        left = producer.flush(ANSWER_S)
    except KafkaException as exc:
        raise Failed(Code.UNREACHED, f"{topic}-{partition}: {exc.args[0].str()}", CHECK) from None
    if refused or left:
        what = refused[0] if refused else "the brokers did not answer in time"
        raise Failed(Code.UNREACHED, f"{topic}-{partition}: {what}", "Say it again: it removes what is left. " + CHECK)
