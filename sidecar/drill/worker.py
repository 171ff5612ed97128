"""Clients on librdkafka as child processes. They print what VerifiableConsumer prints: one JSON event per line.

python -m sidecar.drill.worker consumer --bootstrap ... --topic ... --group ... --name ...
python -m sidecar.drill.worker producer --bootstrap ... --topic ... --rate ...
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

LOOK_UP_S = 30
"""Time for the metadata of the topic."""
_stop = False


def _on_term(signum: int, frame: FrameType | None) -> None:
    global _stop
    _stop = True


def emit(name: str, **fields: Any) -> None:
    print(json.dumps({"timestamp": int(time.time() * 1000), "name": name, **fields}), flush=True)


def _parts(partitions: list[TopicPartition]) -> list[dict[str, Any]]:
    return [{"topic": p.topic, "partition": p.partition} for p in partitions]


def secured(a: argparse.Namespace) -> dict[str, Any]:
    if a.command_config is None:
        return {}
    from sidecar.kafka.properties import read

    return read(a.command_config).librdkafka()


def note(runs: dict[int, list[list[int]]], partition: int, offset: int) -> None:
    """Adds an offset to the runs of its partition: first and last offset of each, in the order of the records. A new
    one begins where the partition went and came back meanwhile: another client may have what lies between."""
    mine = runs.setdefault(partition, [])
    if mine and offset == mine[-1][1] + 1:
        mine[-1][1] = offset
    else:
        mine.append([offset, offset])


def consumer_config(a: argparse.Namespace) -> dict[str, Any]:
    config = {
        "bootstrap.servers": a.bootstrap,
        "group.id": a.group,
        "client.id": a.name,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "log_level": 3,
        **secured(a),
    }
    if a.debug:
        config |= {"debug": a.debug, "log_level": 7}
    if a.protocol == "consumer":
        config["group.protocol"] = "consumer"
    else:  # the classic protocol, with this assignor
        config |= {"partition.assignment.strategy": a.protocol, "heartbeat.interval.ms": 500}
    if a.instance:
        config["group.instance.id"] = a.instance
    return config


def consume(a: argparse.Namespace) -> None:
    consumer = Consumer(consumer_config(a))
    # While librdkafka looks up the names of its first topics it says in each heartbeat that it owns nothing, and so
    # gives up what it was just told. Whoever knows the topic need not look.
    consumer.list_topics(a.topic, LOOK_UP_S)

    def lost(_: Consumer, ps: list[TopicPartition]) -> None:
        emit("partitions_lost", partitions=_parts(ps))

    consumer.subscribe(
        [a.topic],
        on_assign=lambda _, ps: emit("partitions_assigned", partitions=_parts(ps)),
        on_revoke=lambda _, ps: emit("partitions_revoked", partitions=_parts(ps)),
        on_lost=lost,
    )
    emit("startup_complete")
    fatal = False
    while not (_stop or fatal):
        messages = consumer.consume(500, 0.2)
        runs: dict[int, list[list[int]]] = {}
        for m in messages:
            error = m.error()
            if error is not None:
                emit("consumer_error", code=error.code(), text=error.str())
                fatal = fatal or error.code() == KafkaError._FATAL  # librdkafka does nothing more after that
                continue
            p, offset = m.partition(), m.offset()
            assert p is not None and offset is not None
            note(runs, p, offset)
        if not runs:
            continue
        emit(
            "records_consumed",
            count=sum(last - first + 1 for mine in runs.values() for first, last in mine),
            partitions=[
                {"topic": a.topic, "partition": p, "count": last - first + 1, "minOffset": first, "maxOffset": last}
                for p, mine in runs.items()
                for first, last in mine
            ],
        )
        offsets = [TopicPartition(a.topic, p, max(last for _, last in mine) + 1) for p, mine in runs.items()]
        commit(consumer, offsets)
    consumer.close()
    emit("shutdown_complete")


def commit(consumer: Consumer, offsets: list[TopicPartition]) -> None:
    """Commits, and reports each partition for itself: the coordinator may take some, and refuse others."""
    try:
        done = consumer.commit(offsets=offsets, asynchronous=False) or []
    except KafkaException as exc:
        emit("offsets_committed", success=False, offsets=[], error=str(exc))
        return
    if taken := [_offset(p) for p in done if p.error is None]:
        emit("offsets_committed", success=True, offsets=taken)
    if refused := [f"partition {p.partition}: {p.error}" for p in done if p.error is not None]:
        emit("offsets_committed", success=False, offsets=[], error="; ".join(refused))


def _offset(p: TopicPartition) -> dict[str, Any]:
    return {"topic": p.topic, "partition": p.partition, "offset": p.offset}


def produce(a: argparse.Namespace) -> None:
    producer = Producer(
        {
            "bootstrap.servers": a.bootstrap,
            "enable.idempotence": True,
            "linger.ms": 5,
            "log_level": 3,
            "message.timeout.ms": 120_000,
            "reconnect.backoff.max.ms": 1000,
            **secured(a),
        }
    )
    ends: dict[int, int] = {}
    counts: dict[int, int] = {}
    failed = 0

    def delivered(error: KafkaError | None, m: Message) -> None:
        nonlocal failed
        if error is not None:
            failed += 1
            return
        p, offset = m.partition(), m.offset()
        assert p is not None
        if offset is not None:  # it is None if the broker had the message already when it was sent again
            ends[p] = max(ends.get(p, 0), offset + 1)
        counts[p] = counts.get(p, 0) + 1

    sent = 0
    started = reported = time.monotonic()
    while not _stop:
        now = time.monotonic()
        while sent < (now - started) * a.rate:
            try:
                producer.produce(a.topic, key=str(sent), value=f"order {sent}", on_delivery=delivered)
            except BufferError:
                break
            sent += 1
        producer.poll(0.01)
        if now - reported > 0.25:
            reported = now
            emit("produced", ends=ends, counts=counts, failed=failed)
    producer.flush(60)
    emit("produced", ends=ends, counts=counts, failed=failed)
    emit("shutdown_complete")


def main() -> int:
    signal.signal(signal.SIGTERM, _on_term)
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("what", choices=("consumer", "producer"))
    ap.add_argument("--bootstrap", required=True)
    ap.add_argument("--topic", required=True)
    ap.add_argument("--group", default="")
    ap.add_argument("--name", default="worker")
    ap.add_argument("--instance", default="")
    ap.add_argument(
        "--protocol",
        default="consumer",
        help="consumer, or an assignor of the classic protocol: range, cooperative-sticky",
    )
    ap.add_argument("--debug", default="", help="what librdkafka logs, as its setting `debug` names it: cgrp")
    ap.add_argument("--command-config", type=Path, help="a file of client properties, as Kafka's tools take it")
    ap.add_argument("--rate", type=float, default=200.0, help="messages a second")
    a = ap.parse_args()
    consume(a) if a.what == "consumer" else produce(a)
    return 0


if __name__ == "__main__":
    sys.exit(main())
