"""A member on aiokafka; it commits what it has consumed after each fetch."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Any

import aiokafka
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import KafkaError

from tests.matrix.programs.python import journal


class Listener(aiokafka.ConsumerRebalanceListener):  # type: ignore[misc]
    def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        journal.partitions("assigned", assigned)

    def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        journal.partitions("revoked", revoked)


async def run() -> None:
    o = journal.options()
    consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=o.bootstrap,
        group_id=o.group,
        client_id=o.name,
        group_instance_id=o.instance,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=o.session_ms,
        heartbeat_interval_ms=o.heartbeat_ms,
        partition_assignment_strategy=[RangePartitionAssignor],
    )
    journal.emit("started", version=f"aiokafka {aiokafka.__version__}")
    consumer.subscribe([o.topic], listener=Listener())
    await consumer.start()
    while not journal.stop.is_set():
        try:
            batches = await consumer.getmany(timeout_ms=200)
            for records in batches.values():
                for r in records:
                    journal.consumed(r.partition, r.offset)
            if batches:
                await consumer.commit()
                journal.emit("committed")
        except KafkaError as exc:
            journal.error(exc)
            await asyncio.sleep(0.1)
    journal.emit("closing")
    await consumer.stop()
    journal.emit("closed")


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    asyncio.run(run())
