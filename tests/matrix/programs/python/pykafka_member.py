"""A member on pykafka, whose last version is of 2018; it commits what it has consumed, and speaks the first versions of
everything."""

from __future__ import annotations

import time
from collections.abc import Mapping

import pykafka
from pykafka.common import OffsetType

from tests.matrix.programs.python import journal

COMMIT_S = 0.3


def on_rebalance(consumer: object, old: Mapping[int, int], new: Mapping[int, int]) -> None:
    if old:
        journal.emit("revoked", partitions=sorted(old))
    journal.emit("assigned", partitions=sorted(new))


def main() -> None:
    o = journal.options()
    client = pykafka.KafkaClient(hosts=o.bootstrap, broker_version="0.10.0")
    journal.emit("started", version=f"pykafka {pykafka.__version__}")
    consumer = client.topics[o.topic.encode()].get_balanced_consumer(
        o.group,
        managed=True,
        auto_offset_reset=OffsetType.EARLIEST,
        consumer_timeout_ms=200,
        heartbeat_interval_ms=o.heartbeat_ms,
        post_rebalance_callback=on_rebalance,
    )
    ends: dict[int, int] = {}
    committed_s = time.monotonic()
    while not journal.stop.is_set():
        if (message := consumer.consume()) is not None:
            journal.consumed(message.partition_id, message.offset)
            ends[message.partition_id] = message.offset
        if ends and time.monotonic() - committed_s > COMMIT_S:
            consumer.commit_offsets()
            journal.emit("committed")
            ends, committed_s = {}, time.monotonic()
    journal.emit("closing")
    if ends:
        consumer.commit_offsets()
    consumer.stop()
    journal.emit("closed")


if __name__ == "__main__":
    main()
