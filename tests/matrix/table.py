"""The table of clients: it decides which clients there are, how each is built, and with which options it is started.

What a client cannot do by its own design is said here too, as `lacks`: a scenario that it has no setting for is not
tried, and its cell gives the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sidecar.drill.artifacts import KAFKA
from tests.matrix.build import Go, Java, Node, Python, Toolchain

NO_STATIC = {"static": "the client has no setting for a static member"}
STREAMS = Java("StreamsMember", ("Journal.java", "StreamsMember.java"), "kafka-streams", KAFKA)
CONNECT = Java(
    "ConnectMember",
    ("Journal.java", "ConnectMember.java", "JournalSink.java"),
    "connect-runtime",
    KAFKA,
    ("META-INF/services/org.apache.kafka.connect.sink.SinkConnector",),
)


@dataclass(frozen=True)
class Client:
    name: str
    """The name that `--only` takes."""
    title: str
    how: str
    kit: Toolchain
    options: tuple[str, ...]
    lacks: Mapping[str, str] = field(default_factory=dict)
    offsets: str = ""
    """Suffix of the name of the group with the offsets, if that is another one than the members'."""


def _consumer(version: str) -> Java:
    return Java("ConsumerMember", ("Journal.java", "ConsumerMember.java"), "kafka-clients", version)


RANGE = ("--protocol", "classic", "--assignor", "range")
COOPERATIVE = ("--protocol", "classic", "--assignor", "cooperative-sticky")
CONSUMER = ("--protocol", "consumer")
ROUND_ROBIN = "classic, round robin (eager)"
WAYS = {
    "range": ("classic, range (eager)", RANGE),
    "cooperative": ("classic, cooperative-sticky", COOPERATIVE),
    "consumer": ("consumer protocol", CONSUMER),
}


def _rows(
    name: str, title: str, kit: Toolchain, ways: tuple[str, ...], lacks: Mapping[str, str] | None = None
) -> list[Client]:
    return [Client(f"{name}-{w}", title, WAYS[w][0], kit, WAYS[w][1], lacks or {}) for w in ways]


CLIENTS: tuple[Client, ...] = (
    *_rows("java-" + KAFKA, "Java", _consumer(KAFKA), ("range", "cooperative", "consumer")),
    *_rows("java-3.9.1", "Java", _consumer("3.9.1"), ("range", "cooperative")),
    *_rows("java-2.8.2", "Java", _consumer("2.8.2"), ("range", "cooperative")),
    *_rows("librdkafka", "librdkafka", Python("librdkafka_member"), ("range", "cooperative", "consumer")),
    *_rows("franz-go", "franz-go", Go("franz"), ("range", "cooperative", "consumer")),
    *_rows("sarama", "sarama", Go("sarama"), ("range",)),
    *_rows("kafka-go", "kafka-go", Go("kafkago"), ("range",), NO_STATIC),
    Client("kafkajs", "kafkajs", ROUND_ROBIN, Node("kafkajs.js"), (), NO_STATIC),
    *_rows("kafka-python", "kafka-python", Python("kafka_python_member"), ("range", "cooperative")),
    *_rows("aiokafka", "aiokafka", Python("aiokafka_member"), ("range",)),
    Client("streams", "Kafka Streams", "classic, Streams' own assignor", STREAMS, ()),
    Client("connect", "Kafka Connect", "protocol type connect, and its sink's group", CONNECT, (), NO_STATIC, ".sink"),
)
OLD_CLIENTS: tuple[Client, ...] = (
    Client("sarama-1.27", "sarama", WAYS["range"][0], Go("shopify", "sarama-1.27"), (), NO_STATIC),
    Client("sarama-1.38", "sarama", WAYS["range"][0], Go("shopify"), (), NO_STATIC),
    Client("pykafka", "pykafka", WAYS["range"][0], Python("pykafka_member", "old"), (), NO_STATIC),
    Client("kafka-node", "kafka-node", ROUND_ROBIN, Node("kafka_node.js", "old-node"), (), NO_STATIC),
)
"""Clients that send versions which Kafka 4 took away: brokers of Kafka 4 do not serve them."""
EVERY = (*CLIENTS, *OLD_CLIENTS)
