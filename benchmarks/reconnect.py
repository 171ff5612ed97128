"""Measures how long librdkafka, with its defaults, stays away from a port that refused it. No server can shorten that.

    make bench NAME=reconnect [ARGS="--clients 40"]

There is neither Kafka nor a sidecar: two ports of a few lines, of which one closes with all its connections. The
figures are the times, from then on, of the first connection that would be taken if the port opened again after so
long: median and p95.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import struct
import sys
import threading
import time

from confluent_kafka import Consumer, TopicPartition

from benchmarks.common import finish, median
from sidecar.drill.percentiles import percentile
from sidecar.wire.apis import Api
from sidecar.wire.generated import api_versions as av
from sidecar.wire.generated import metadata as md

FETCH, TOPIC = 1, "t"
SERVES = ((0, 3, 7), (FETCH, 4, 4), (2, 1, 1), (Api.METADATA, 1, 4), (Api.API_VERSIONS, 0, 3))
"""Api key, first and last version. Fetch is a long poll that is never answered."""
STAYS, CLOSES = 0, 1
BEGINS_S, WATCHED_S = 5.0, 16.0
OPENS_S = (0.5, 1.0, 2.0, 3.0, 4.5, 6.0)


class Brokers:
    """Two, and the second one leads the only partition."""

    def __init__(self) -> None:
        self.ports: list[int] = []
        self._servers: list[asyncio.Server] = []
        self._connections: list[asyncio.StreamWriter] = []

    async def start(self) -> None:
        for at in (STAYS, CLOSES):
            self._servers.append(await asyncio.start_server(self._serve, "127.0.0.1", 0))
            self.ports.append(self._servers[at].sockets[0].getsockname()[1])

    async def close_one(self) -> None:
        self._servers[CLOSES].close()
        for writer in self._connections:
            if writer.get_extra_info("sockname")[1] == self.ports[CLOSES]:
                writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.append(writer)
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                api_key, version, correlation_id = struct.unpack_from(">hhi", await reader.readexactly(size))
                if api_key == FETCH:
                    continue
                answer = self._metadata() if api_key == Api.METADATA else versions()
                body = answer.encode(version)
                writer.write(struct.pack(">ii", 4 + len(body), correlation_id) + body)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    def _metadata(self) -> md.MetadataResponse:
        brokers = [md.MetadataResponseBroker(at, "127.0.0.1", port) for at, port in enumerate(self.ports)]
        led = md.MetadataResponsePartition(leader_id=CLOSES, replica_nodes=[CLOSES], isr_nodes=[CLOSES])
        return md.MetadataResponse(brokers=brokers, topics=[md.MetadataResponseTopic(name=TOPIC, partitions=[led])])


def versions() -> av.ApiVersionsResponse:
    return av.ApiVersionsResponse(api_keys=[av.ApiVersion(*row) for row in SERVES])


class Attempts(logging.Handler):
    """Notes when a client connected to this port, by its log."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self.at_s: list[float] = []
        self._what = f"Connecting to ipv4#127.0.0.1:{port} "

    def emit(self, record: logging.LogRecord) -> None:
        if self._what in record.getMessage():
            self.at_s.append(time.monotonic())


def client(brokers: Brokers) -> tuple[Consumer, Attempts]:
    log, attempts = logging.Logger("client", logging.DEBUG), Attempts(brokers.ports[CLOSES])
    log.addHandler(attempts)
    where = f"127.0.0.1:{brokers.ports[STAYS]}"
    made = Consumer({"bootstrap.servers": where, "group.id": "g", "debug": "broker", "log_level": 7}, logger=log)
    made.assign([TopicPartition(TOPIC, 0, 5)])
    return made, attempts


def main() -> int:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--clients", type=int, default=40)
    loop, brokers = asyncio.new_event_loop(), Brokers()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    asyncio.run_coroutine_threadsafe(brokers.start(), loop).result()
    clients = [client(brokers) for _ in range(ap.parse_args().clients)]

    def poll(seconds: float) -> None:
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            for consumer, _ in clients:
                consumer.poll(0)
            time.sleep(0.005)

    poll(BEGINS_S)
    assert all(attempts.at_s for _, attempts in clients), "not all have connected in time"
    asyncio.run_coroutine_threadsafe(brokers.close_one(), loop).result()
    closed_s = time.monotonic()
    poll(WATCHED_S)
    figures: dict[str, object] = {"benchmark": "reconnect", "clients": len(clients)}
    for opens_s in OPENS_S:
        back = [next(at - closed_s for at in one.at_s if at - closed_s >= opens_s) for _, one in clients]
        figures[f"opens_{opens_s:g}_s"] = [round(median(back), 2), round(percentile(back, 0.95), 2)]
    finish(figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
