"""A member on kafka-python; it commits what it has consumed after each poll."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

import kafka
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor

from tests.matrix.programs.python import journal


class Listener(kafka.ConsumerRebalanceListener):  # type: ignore[misc]
    def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        journal.partitions("assigned", assigned)

    def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        journal.partitions("revoked", revoked)

    def on_partitions_lost(self, lost: Iterable[Any]) -> None:
        journal.partitions("lost", lost)


def main() -> None:
    o = journal.options()
    logging.basicConfig(level=logging.WARNING)
    assignor = RangePartitionAssignor if o.assignor == "range" else CooperativeStickyAssignor
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=o.bootstrap.split(","),
        group_id=o.group,
        client_id=o.name,
        group_instance_id=o.instance,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=o.session_ms,
        heartbeat_interval_ms=o.heartbeat_ms,
        partition_assignment_strategy=[assignor],
    )
    journal.emit("started", version=f"kafka-python {kafka.__version__}")
    consumer.subscribe([o.topic], listener=Listener())
    # It learns the partitions before it joins: with any coordinator, a leader of 3.0.12 that learns them later joins
    # again, forgets that join if poll() ends before the answer, and sends no more heartbeats.
    consumer.partitions_for_topic(o.topic)
    while not journal.stop.is_set():
        try:
            batches = consumer.poll(timeout_ms=200)
            for records in batches.values():
                for r in records:
                    journal.consumed(r.partition, r.offset)
            if batches:
                consumer.commit()
                journal.emit("committed")
        except kafka.errors.KafkaError as exc:
            journal.error(exc)
            journal.stop.wait(0.1)
    journal.emit("closing")
    consumer.close()
    journal.emit("closed")


if __name__ == "__main__":
    main()
