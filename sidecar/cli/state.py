"""`sidecar state`: the state topic as a file, and a file as the state topic.

`dump` may run beside live sidecars. `load` writes what the file has into an empty topic, in the same order, with the
same times and headers, while no sidecar runs; with `--create` it makes that topic as a sidecar would. The records name
topics by their ids, so a dump belongs to its cluster.

Exit codes (exits.py): 0 done, 1 refused, 2 the file or the command line is wrong, 3 the brokers cannot be reached, or
did not take everything.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sidecar.cli.connect import CHECK, Bootstrap, Client, CommandConfig, StateTopic, client_of, readable
from sidecar.cli.exits import Code, Failed
from sidecar.cli.output import run
from sidecar.cli.plain import echo

if TYPE_CHECKING:
    from sidecar.audit.history.topic import Reader

ANSWER_S = 30.0
SETTLE_S = 15.0
"""Time after which a new topic has its leaders."""
UNDER_WAY = 50_000
"""Records that wait for the brokers at once."""
RECORD_BYTES = 64 << 20
"""Largest record; the topic's max.message.bytes decides."""
ANEW = "Delete the topic (kafka-topics.sh --delete), and load the file again with --create."
state = typer.Typer(no_args_is_help=True, help="Back the state topic up, restore it, or remove unreadable records.")
DumpFile = Annotated[Path, typer.Argument(metavar="FILE", help="One JSON object a line; compressed if it ends in .gz.")]
OwnersGroup = Annotated[str, typer.Option(help="The setting ownership.group.")]
Create = Annotated[
    bool, typer.Option("--create", help="Make the topic first if it is not there, as a sidecar with default settings.")
]


@state.command()
def dump(
    file: DumpFile, bootstrap: Bootstrap, topic: StateTopic = "__group_state", command_config: CommandConfig = None
) -> None:
    """Write all records of the state topic to a file, which `sidecar audit run --from file://FILE` reads, too."""

    def show() -> Code:
        from sidecar.audit.source.dump import ENDINGS

        if not file.name.endswith(ENDINGS):
            then = f"Name it {file.stem}{ENDINGS[0]}, for example."
            raise Failed(Code.USAGE, f"{file}: the name must end in one of {' '.join(ENDINGS)}.", then)
        if file.exists():
            raise Failed(Code.USAGE, f"{file} exists already.", "Name another file; this one is not overwritten.")
        counts = _written(client_of(command_config), bootstrap, topic, file)
        echo(f"{counts.total()} records of {len(counts)} partitions of {topic} are in {file}.")
        return Code.OK

    run(show)


@state.command()
def load(
    file: DumpFile,
    bootstrap: Bootstrap,
    topic: StateTopic = "__group_state",
    owners_group: OwnersGroup = "__group_state_owners",
    create: Create = False,
    command_config: CommandConfig = None,
) -> None:
    """Write the records of a dump into an empty state topic, while no sidecar runs. Refuses anything else."""

    def show() -> Code:
        from sidecar.audit.errors import AuditError

        client = client_of(command_config)
        try:
            _require_no_sidecar(client, bootstrap, owners_group)
            if create:
                _made(client, bootstrap, topic, partial(_checked, file))
            partitions = _empty(client, bootstrap, topic, create)
            counts = _checked(file, partitions)
            _produced(client, bootstrap, topic, file, counts.total())
        except AuditError as exc:
            raise Failed(Code.USAGE, str(exc), "The file must be one that `sidecar state dump` wrote.") from None
        echo(f"{counts.total()} records are in {len(counts)} partitions of {topic}. Sidecars may be started.")
        return Code.OK

    run(show)


# ---- reading ------------------------------------------------------------------------------------------------------
def _bounds(reader: Reader, made: bool = False) -> dict[int, tuple[int, int]]:
    """Returns the first offset of each partition and the next one to be written. `made`: a broker that does not know
    the topic yet soon will. Raises Failed."""
    from confluent_kafka import KafkaError, KafkaException

    from sidecar.audit.errors import AuditError, NoTopic

    passing = (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE, KafkaError.UNKNOWN_TOPIC_OR_PART)
    until = time.monotonic() + SETTLE_S
    while True:
        try:
            return reader.bounds()
        except AuditError as exc:
            if isinstance(exc, NoTopic) and not made:
                raise Failed(Code.FINDINGS, f"{exc}.", "Is this the cluster, and may this user read it?") from None
            cause = exc.__cause__
            passes = isinstance(cause, KafkaException) and cause.args[0].code() in passing
            if not passes or time.monotonic() > until:
                raise Failed(Code.UNREACHED, str(exc), CHECK) from None
            time.sleep(0.2)


def _written(client: Client, bootstrap: str, topic: str, file: Path) -> Counter[int]:
    """Writes the dump; the file appears when it is whole. Returns the number of records of each partition. Raises
    Failed."""
    import msgspec

    from sidecar.audit.source.dump import open_dump, record_of

    counts: Counter[int] = Counter()
    part = file.with_name(f".part-{file.name}")
    try:
        with readable(), client.reader(bootstrap, topic) as reader:
            bounds = _bounds(reader)
            with open_dump(part) as out:
                for p, (low, high) in bounds.items():
                    counts[p] = 0
                    for messages in reader.messages(p, low, high):
                        counts[p] += len(messages)
                        out.writelines(msgspec.json.encode(record_of(m)) + b"\n" for m in messages)
        part.rename(file)
    except OSError as exc:
        raise Failed(Code.USAGE, f"{file}: {exc.strerror}.", "Name a file in a folder that can be written.") from None
    finally:
        part.unlink(missing_ok=True)
    return counts


# ---- may it be written? -------------------------------------------------------------------------------------------
def _empty(client: Client, bootstrap: str, topic: str, made: bool) -> int:
    """Returns the number of partitions of the topic. Raises Failed if there are records in it."""
    with readable(), client.reader(bootstrap, topic) as reader:
        bounds = _bounds(reader, made)
    full = [p for p, (low, high) in bounds.items() if low < high]
    if full:
        raise Failed(Code.FINDINGS, f"{topic} is not empty: partition {full[0]} has records.", ANEW)
    return len(bounds)


def _checked(file: Path, partitions: int) -> Counter[int]:
    """Returns the number of records of each partition in the file. Raises AuditError for a record that does not belong
    into such a topic, or that is out of order."""
    from sidecar.audit.errors import AuditError
    from sidecar.audit.source.dump import read_dump
    from sidecar.core.vocabulary.placement import partition_for
    from sidecar.state.keys import decode_key
    from sidecar.state.schema import StateError

    counts: Counter[int] = Counter()
    last: dict[int, int] = {}
    if not file.exists():
        raise AuditError(f"{file} does not exist.")
    for r in read_dump(file):
        at = f"{file}: partition {r.partition}, offset {r.offset}"
        if r.offset <= last.get(r.partition, -1):
            raise AuditError(f"{at} comes after offset {last[r.partition]}.")
        if not 0 <= r.partition < partitions:
            raise AuditError(f"{at}: the topic has {partitions} partitions.")
        try:
            key = decode_key(r.key or b"")
        except StateError as exc:
            raise AuditError(f"{at}: the key cannot be read: {exc}") from None
        if key.group_id and partition_for(key.group_id, partitions) != r.partition:
            raise AuditError(
                f"{at}: group {key.group_id} is looked for elsewhere in a topic of {partitions} partitions."
            )
        last[r.partition] = r.offset
        counts[r.partition] += 1
    if not counts:
        raise AuditError(f"{file} has no records.")
    return counts


def _require_no_sidecar(client: Client, bootstrap: str, owners_group: str) -> None:
    """Raises Failed while a sidecar is a member of the owners' group."""
    from sidecar.core.vocabulary.errors import Code as Kafka
    from sidecar.core.vocabulary.errors import name_of
    from sidecar.kafka.cluster import Cluster
    from sidecar.wire.generated import describe_groups as dg

    async def look(cluster: Cluster) -> Any:
        conn = await cluster.coordinator(owners_group, 0)
        req = dg.DescribeGroupsRequest(groups=[owners_group])
        res = await conn.request(dg, "DescribeGroups", req, low=0, high=5)
        return res.groups[0]

    group = client.ask(bootstrap, "sidecar-state", look)
    if group.error_code not in (Kafka.NONE, Kafka.GROUP_ID_NOT_FOUND):
        problem = f"{owners_group}: {name_of(group.error_code)}"
        raise Failed(Code.UNREACHED, problem, "Try again; a cluster that has just started needs a moment.")
    if group.members:
        problem = f"{len(group.members)} sidecars run: they are members of {owners_group}."
        raise Failed(Code.FINDINGS, problem, "Stop them first. One that was killed is a member for 6 s more.")


def _made(client: Client, bootstrap: str, topic: str, fits: Callable[[int], object]) -> None:
    """Creates the topic as a sidecar does when there is none; an existing one stays. `fits` is called before with the
    number of its partitions. Raises Failed."""
    from sidecar.core.vocabulary.errors import Code as Kafka
    from sidecar.core.vocabulary.errors import name_of
    from sidecar.core.vocabulary.internal_topics import OFFSETS
    from sidecar.kafka.cluster import Cluster
    from sidecar.process.make_topic import made_by_default

    async def make(cluster: Cluster) -> int:
        partitions = len(await cluster.replicas(OFFSETS))
        if not partitions:
            raise Failed(Code.FINDINGS, f"There is no {OFFSETS}, which says how many partitions {topic} has.", CHECK)
        fits(partitions)
        return await made_by_default(cluster, topic, partitions)

    code = client.ask(bootstrap, "sidecar-state", make)
    if code not in (Kafka.NONE, Kafka.TOPIC_ALREADY_EXISTS):
        problem = f"{topic} was not made: {name_of(code)}"
        raise Failed(Code.FINDINGS, problem, "May this user create it? `sidecar acls` prints the rights.")


# ---- writing ------------------------------------------------------------------------------------------------------
def _produced(client: Client, bootstrap: str, topic: str, file: Path, count: int) -> None:
    """Writes the records in the order of the file, each once. Raises Failed."""
    from confluent_kafka import KafkaException, Producer

    from sidecar.audit.source.dump import read_dump

    fixed = {
        "bootstrap.servers": bootstrap,
        "acks": "all",
        "enable.idempotence": True,
        "linger.ms": 20,
        "message.max.bytes": RECORD_BYTES,
        "queue.buffering.max.messages": 2 * UNDER_WAY,
        "queue.buffering.max.kbytes": 1 << 20,
        "log_level": 2,
    }
    producer = Producer({**client.librdkafka(), **fixed})
    refused: list[str] = []
    taken = Counter[str]()

    def delivered(error: Any, m: Any) -> None:
        if error is None:
            taken[topic] += 1
        else:
            refused.append(f"{topic}-{m.partition()}: {error.str()}")

    try:
        for r in read_dump(file):
            headers: Any = r.headers or None
            time_ms = max(0, r.time_ms)
            producer.produce(topic, r.value, r.key, r.partition, delivered, timestamp=time_ms, headers=headers)
            while len(producer) > UNDER_WAY:
                producer.poll(0.1)
            if refused:
                break
        producer.flush(ANSWER_S * 4)
    except (KafkaException, BufferError) as exc:
        refused.append(str(exc))
    if refused or taken[topic] != count:
        what = refused[0] if refused else "the brokers did not answer in time"
        raise Failed(Code.UNREACHED, f"{taken[topic]} of {count} records were written: {what}", ANEW)
