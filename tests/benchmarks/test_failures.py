"""A benchmark fails where what it measures has failed, instead of a figure."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from benchmarks import audit, audit_replay, capacity, offload, passthrough, takeover
from benchmarks.audit_watch import Watched

MB = 1
RECORDS = MB * 1_000_000 // passthrough.RECORD_BYTES


@pytest.mark.parametrize(("consumed", "fits"), [(RECORDS, True), (RECORDS + 3, True), (RECORDS - 1, False)])
def test_a_consumer_that_got_too_few_records(consumed: int, fits: bool) -> None:
    """Symptom: ConsumerPerformance gives up after a minute, and exits with 0: what it got until then was the figure."""
    line = f"2026-11-29 15:00:00:000, 2026-11-29 15:00:01:000, 0.9, 0.9, {consumed}, 97.0, 100, 900, 123.4, 5.5"
    kafka: Any = SimpleNamespace(run_tool=lambda *_, **__: (0, f"a warning\n{line}\n"))
    if fits:
        assert passthrough.consume(kafka, "b", MB, 0) == 123.4
    else:
        with pytest.raises(RuntimeError, match=f"not all of {RECORDS} records"):
            passthrough.consume(kafka, "b", MB, 0)


def test_a_connection_that_is_closed_in_an_answer() -> None:
    """Symptom: it read the end of the connection for ever."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            conn, _ = server.accept()
            conn.recv(1_000)
            conn.sendall(b"\0\0")
            conn.close()

        thread = threading.Thread(target=serve)
        thread.start()
        pinger = passthrough.Pinger(server.getsockname()[1])
        with pinger.sock, pytest.raises(ConnectionError, match="after 2 bytes"):
            pinger.once()
        thread.join()


def test_members_that_never_get_their_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: they had "settled in 120.0 s"."""

    async def nothing(*_: Any) -> Any:
        return SimpleNamespace(heartbeat_interval_ms=10, close=lambda: None)

    monkeypatch.setattr(offload, "SETTLES_S", 0.0)
    monkeypatch.setattr("benchmarks.offload.BrokerConnection.open", nothing)
    monkeypatch.setattr(offload.Member, "beat", nothing)
    with pytest.raises(TimeoutError, match="0 of 10 partitions"):
        asyncio.run(offload.storm(1, "g", 5, 10))


class Partition:
    """A consumer of one partition, which it cannot read."""

    def __init__(self, *_: Any) -> None:
        one: Any = SimpleNamespace(partitions={0: None})
        self.list_topics = lambda topic, _: SimpleNamespace(topics={topic: one})

    def assign(self, _: Any) -> None:
        pass

    def consume(self, *_: Any) -> list[Any]:
        error = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
        return [SimpleNamespace(error=lambda: error, key=lambda: None)] * takeover.SHARDS


@pytest.mark.parametrize("read", [takeover.claims, lambda where: list(audit_replay.of_topic(where))])
def test_an_error_is_not_the_end_of_a_partition(monkeypatch: pytest.MonkeyPatch, read: Any) -> None:
    """Symptom: a partition that could not be read counted as one without records."""
    monkeypatch.setattr("confluent_kafka.Consumer", Partition)
    monkeypatch.setattr(takeover, "Consumer", Partition)
    with pytest.raises(KafkaException):
        read("127.0.0.1:1")


def test_as_many_connections_as_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: 500 connections were 800 in truth."""
    monkeypatch.setattr(capacity, "IDLE_S", 0.0)
    opened = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal opened
        opened += 1
        writer.write(b"\0\0\0\0" * len(capacity.HELLO))

    async def listen() -> asyncio.Server:
        return await asyncio.start_server(serve, "127.0.0.1", 0, backlog=1_000)

    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    server = asyncio.run_coroutine_threadsafe(listen(), loop).result()
    port = server.sockets[0].getsockname()[1]
    nodes = [SimpleNamespace(sidecar=None, sidecar_port=port)] * 2
    figures = capacity.idle(SimpleNamespace(nodes=nodes), 50)  # type: ignore[arg-type]
    loop.call_soon_threadsafe(loop.stop)
    assert (figures["connections"], opened) == (50, 50)


SAYS = ("batch 1: reads 9", "batch 1: bronze is there", "batch 1: 9 records of it", "batch 1: gold is up to date")
VERDICT = dict.fromkeys(("records", "proven", "possible", "stale_writes", "unreadable", "missing", "lost"), 1)


@pytest.mark.parametrize("unsaid", [*range(len(SAYS)), None])
def test_a_step_of_which_the_audit_says_nothing(
    unsaid: int | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Symptom: if one line was said in other words, steps had negative seconds, and so had the ratio to the peer."""
    said = [(n + 1.0, line) for n, line in enumerate(SAYS) if n != unsaid]
    run = Watched(10.0, 0, json.dumps(VERDICT), said)
    monkeypatch.setattr(audit, "watched", lambda *_, **__: run)
    if unsaid is None:
        figures, _ = audit.ours("s", tmp_path / "lake", {})
        assert figures["steps_s"] == {"start": 1.0, "bronze": 1.0, "silver": 1.0, "gold": 1.0, "end": 6.0}
        assert "-" not in audit.table({9: figures}).splitlines()[1].rpartition("6.0")[0]
    else:
        with pytest.raises(LookupError, match="did not say"):
            audit.ours("s", tmp_path / "lake", {})
    run.code = 70
    figures, _ = audit.ours("s", tmp_path / "lake", {})
    assert figures["failed"] and "10.0" in audit.table({9: figures})


@pytest.mark.parametrize(
    ("differences", "increments", "code"),
    [(0, {}, 0), (1, {}, 1), (-1, {}, 1), (None, {}, 1), (0, {"failed": ["no space left"]}, 1)],
)
def test_the_exit_code_of_the_audits_benchmark(differences: int | None, increments: Any, code: int) -> None:
    """Symptom: increments that had failed ended with 0."""
    sizes = {"1000": {} if differences is None else {"differences": differences}}
    assert audit.code_of({"sizes": sizes, "increments": increments}) == code
    assert audit.code_of({"sizes": sizes}) == (0 if differences == 0 else 1)
