"""Reads one topic and writes another, exactly once, on librdkafka.

python -m tests.clients.copier BOOTSTRAP GROUP IN OUT TRANSACTIONAL_ID PROTOCOL
"""

from __future__ import annotations

import sys

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

BATCH, POLL_S = 100, 0.2


def producer(bootstrap: str, transactional_id: str) -> Producer:
    made = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": 10_000,
            "log_level": 3,
        }
    )
    made.init_transactions(30)
    print("ready", flush=True)
    return made


def reset(consumer: Consumer) -> None:
    """Go back to what is committed."""
    for tp in consumer.committed(consumer.assignment(), timeout=10):
        consumer.seek(tp if tp.offset >= 0 else TopicPartition(tp.topic, tp.partition, 0))


def copy(consumer: Consumer, p: Producer, out: str) -> None:
    messages = [m for m in consumer.consume(BATCH, POLL_S) if m.error() is None]
    if not messages:
        return
    p.begin_transaction()
    ends: dict[int, TopicPartition] = {}
    for m in messages:
        partition, offset = m.partition(), m.offset()
        assert partition is not None and offset is not None
        p.produce(out, key=m.key(), value=m.value())
        ends[partition] = TopicPartition(m.topic() or "", partition, offset + 1)
    p.send_offsets_to_transaction(list(ends.values()), consumer.consumer_group_metadata(), 15)
    p.commit_transaction(15)


def main(bootstrap: str, group: str, topic: str, out: str, transactional_id: str, protocol: str) -> None:
    config = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "client.id": transactional_id,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "log_level": 3,
    }
    if protocol == "consumer":
        config["group.protocol"] = "consumer"
    else:
        classic = {"partition.assignment.strategy": "range", "session.timeout.ms": 6_000, "heartbeat.interval.ms": 500}
        config |= classic
    consumer = Consumer(config)
    consumer.subscribe([topic])
    p = producer(bootstrap, transactional_id)
    while True:
        try:
            copy(consumer, p, out)
        except KafkaException as exc:
            error = exc.args[0]
            print(f"aborted: {error}", flush=True)
            if error.fatal():
                print("fenced", flush=True)
                return
            try:
                p.abort_transaction(15)
                reset(consumer)
            except KafkaException as again:
                print(f"again: {again}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
