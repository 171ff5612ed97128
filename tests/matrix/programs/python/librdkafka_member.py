"""A member on librdkafka, through confluent-kafka; it commits what it has consumed after each batch."""

from __future__ import annotations

from confluent_kafka import Consumer, KafkaException, TopicPartition, libversion

from tests.matrix.programs.python import journal


def main() -> None:
    o = journal.options()
    config = {
        "bootstrap.servers": o.bootstrap,
        "group.id": o.group,
        "client.id": o.name,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "group.protocol": o.protocol,
    }
    if o.protocol == "classic":
        config["partition.assignment.strategy"] = o.assignor
        config["session.timeout.ms"] = o.session_ms
        config["heartbeat.interval.ms"] = o.heartbeat_ms
    if o.instance:
        config["group.instance.id"] = o.instance
    consumer = Consumer(config)
    journal.emit("started", version=f"librdkafka {libversion()[0]}")
    consumer.subscribe(
        [o.topic],
        on_assign=lambda _, ps: journal.partitions("assigned", ps),
        on_revoke=lambda _, ps: journal.partitions("revoked", ps),
        on_lost=lambda _, ps: journal.partitions("lost", ps),
    )
    while not journal.stop.is_set():
        ends: dict[int, int] = {}
        for m in consumer.consume(500, 0.2):
            error = m.error()
            p, offset = m.partition(), m.offset()
            if error is not None or p is None or offset is None:
                journal.error(error)
                continue
            journal.consumed(p, offset)
            ends[p] = offset + 1
        if ends:
            try:
                consumer.commit(offsets=[TopicPartition(o.topic, p, e) for p, e in ends.items()], asynchronous=False)
                journal.emit("committed")
            except KafkaException as exc:
                journal.error(exc)
    journal.emit("closing")
    consumer.close()
    journal.emit("closed")


if __name__ == "__main__":
    main()
