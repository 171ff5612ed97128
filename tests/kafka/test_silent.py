"""Brokers that take connections and answer nothing: they stand still, or the way to them is cut."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, cast

import pytest

from sidecar.coordinator.statelog import read_index
from sidecar.drill.secured import secured
from sidecar.kafka import cluster as module
from sidecar.kafka.cluster import Cluster, ConnectionLost
from sidecar.kafka.lanes import Lane
from sidecar.kafka.net import OPEN_S, BrokerConnection
from sidecar.kafka.resolver import BESIDE_S, RESOLVE_S, addresses_of, connected, is_resolvers
from sidecar.kafka.security import PLAINTEXT, Security, Stores
from sidecar.wire.frames import PREFIX, response_frame
from sidecar.wire.generated import api_versions as av
from sidecar.wire.generated import find_coordinator as fc
from sidecar.wire.generated import list_offsets as lo
from tests.inprocess import clock

Address = tuple[str, int]


class CountingListener:
    """A listener. `answers`: how many requests of each connection it answers."""

    def __init__(self, answers: int) -> None:
        self.answers = answers
        self.connections = 0
        self.closed = 0
        self.left = asyncio.Event()

    async def open(self, at: str = "127.0.0.1", port: int = 0) -> Address:
        self.server = await asyncio.start_server(self._serve, at, port)
        host, port = self.server.sockets[0].getsockname()[:2]
        return str(host), int(port)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        left = self.answers
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                frame = size.to_bytes(4, "big") + await reader.readexactly(size)
                _, key, version, correlation = PREFIX.unpack_from(frame)
                left -= 1
                if left >= 0:
                    writer.write(_answer(key, version, correlation))
        except asyncio.IncompleteReadError:
            self.closed += 1
            self.left.set()
            writer.close()


def _answer(key: int, version: int, correlation: int) -> bytes:
    if key == 18:
        known = [av.ApiVersion(2, 1, 7), av.ApiVersion(10, 0, 4), av.ApiVersion(18, 0, 3)]
        return response_frame(correlation, False, av.ApiVersionsResponse(api_keys=known).encode(version))
    if key == 2:
        end = lo.ListOffsetsTopicResponse("t", [lo.ListOffsetsPartitionResponse(0, offset=5)])
        return response_frame(correlation, version >= 6, lo.ListOffsetsResponse(topics=[end]).encode(version))
    found = fc.Coordinator("g", 7, "h", 9092)
    return response_frame(correlation, True, fc.FindCoordinatorResponse(coordinators=[found]).encode(version))


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    clock.run(asyncio.wait_for(test(), 30))


def test_a_request_without_an_answer_closes_its_connection() -> None:
    """Symptom: one broker that stood still kept every sidecar from finding anything for 33 s (L1 of the safety review).
    Cause: a request that was given up left its connection open, and the next one waited behind it."""

    async def test() -> None:
        door = CountingListener(1)
        conn = await BrokerConnection.open(*await door.open(), "test")
        with pytest.raises(TimeoutError):
            await conn.request(fc, "FindCoordinator", fc.FindCoordinatorRequest(coordinator_keys=["g"]), timeout_s=0.1)
        assert conn.closed
        with pytest.raises(ConnectionLost):
            await conn.request(fc, "FindCoordinator", fc.FindCoordinatorRequest(coordinator_keys=["g"]))

    run(test)


@pytest.mark.parametrize("tls", [False, True])
def test_a_request_fails_at_once_when_its_connection_is_closed_here(tls: bool, tmp_path: Path) -> None:
    """Symptom: the coordinator of the owners' group stood still, and over TLS a sidecar's JoinGroup there ended 30 s
    after another broker had taken over. Cause: a connection was closed in order, which waits for the other side: TLS
    for its farewell, and TCP until it has taken all bytes."""
    context, security = None, PLAINTEXT
    if tls:
        properties = secured(tmp_path).client
        security = Security("SSL", stores=Stores(trust=properties["ssl.truststore.location"]))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tmp_path / "key-and-certificate.pem")

    async def test() -> None:
        over = asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
            writer.write(_answer(18, 3, int.from_bytes(frame[4:8], "big")))
            writer.transport.pause_reading()  # type: ignore[attr-defined]  # asyncio's types are too wide
            await over.wait()
            writer.transport.abort()

        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
        conn = await BrokerConnection.open("127.0.0.1", server.sockets[0].getsockname()[1], "test", security=security)
        many = fc.FindCoordinatorRequest(coordinator_keys=["g" * 30_000] * 600)
        asked = asyncio.create_task(conn.request(fc, "FindCoordinator", many))
        await asyncio.sleep(0)
        conn.close()
        began = time.monotonic()
        with pytest.raises(ConnectionLost, match="closed here"):
            await asked
        assert time.monotonic() - began < 1
        over.set()
        server.close()

    run(test)


def test_the_others_on_a_connection_hear_why_it_is_closed() -> None:
    async def test() -> None:
        conn = await BrokerConnection.open(*await CountingListener(1).open(), "test")
        req = fc.FindCoordinatorRequest(coordinator_keys=["g"])
        asked = [conn.request(fc, "FindCoordinator", req, timeout_s=s) for s in (0.1, 9.0)]
        late, behind = await asyncio.gather(*asked, return_exceptions=True)
        assert isinstance(late, TimeoutError) and isinstance(behind, ConnectionLost)
        assert "another request" in str(behind)

    run(test)


def test_so_does_a_question_for_the_end_of_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: after a silent cut each question took a second, for as long as the system kept the connection. Cause: a
    time-out around the request ended it, and the connection's own, which closes it, was never reached."""
    monkeypatch.setattr(read_index, "ANSWER_S", 0.1)

    async def test() -> None:
        door = CountingListener(1)
        address = await door.open()
        cluster = Cluster([address], "test", {1: address})
        index = read_index.ReadIndex(cluster, "t", cast(Any, None), 3.0, cast(Any, None))
        with pytest.raises(TimeoutError):
            await index._asked(1, 0, read_index.LEADER_ONLY)
        door.answers = 99
        assert await index._asked(1, 0, read_index.LEADER_ONLY) == 5 and door.connections == 2
        cluster.close()

    run(test)


def test_a_broker_that_takes_connections_only_is_passed_by() -> None:
    async def test() -> None:
        silent, good = CountingListener(0), CountingListener(99)
        cluster = Cluster([await silent.open(), await good.open()], "test", {})
        began = time.monotonic()
        assert await cluster.coordinator_node("g", 0) == 7
        assert time.monotonic() - began < 1, "the second is tried beside the first"
        cluster.close()
        await asyncio.sleep(0.05)
        assert silent.closed == silent.connections == 1, "nothing is left open"

    run(test)


def test_a_broker_that_falls_silent_is_asked_no_more_while_others_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SILENT_S", 0.1)

    async def test() -> None:
        falls, good = CountingListener(1), CountingListener(99)
        cluster = Cluster([await falls.open(), await good.open()], "test", {})
        assert await cluster.coordinator_node("g", 0) == 7
        assert falls.connections == good.connections == 1
        (await cluster.anyone()).close()
        assert await cluster.coordinator_node("g", 0) == 7
        assert falls.connections == 1 and good.connections == 2, "who failed last is tried last"

    run(test)


def test_when_nobody_answers_that_is_said() -> None:
    async def test() -> None:
        cluster = Cluster([("127.0.0.1", 1), ("127.0.0.1", 2)], "test", {})
        with pytest.raises(ConnectionLost, match="no broker answers"):
            await cluster.coordinator_node("g", 0)

    run(test)


def test_many_that_look_for_a_broker_open_one_connection() -> None:
    async def test() -> None:
        good = CountingListener(99)
        cluster = Cluster([await good.open()], "test", {})
        found = await asyncio.gather(*(cluster.coordinator_node("g", 0) for _ in range(20)))
        assert found == [7] * 20 and good.connections == 1

    run(test)


def test_each_lane_is_a_connection_of_its_own_and_stays_one() -> None:
    """A request that waits on one lane holds up nothing on another."""

    async def test() -> None:
        door = CountingListener(99)
        address = await door.open()
        cluster = Cluster([address], "test", {7: address})
        links = [(lane, which) for lane in Lane for which in range(3)]
        lanes = [await cluster.lane(7, *link) for link in links * 2]
        assert len(set(lanes)) == len(links) and lanes[: len(links)] == lanes[len(links) :]
        assert await cluster.node(7) in lanes and door.connections == len(links)
        cluster.close()

    run(test)


def test_a_broker_that_could_not_be_connected_to_is_known_for_a_while() -> None:
    async def test() -> None:
        door = CountingListener(answers=9)
        address = await door.open()
        cluster = Cluster([address], "test", {1: address, 2: ("127.0.0.1", 1)})
        (await cluster.node(1)).close()
        with pytest.raises(ConnectionLost):
            await cluster.node(2)
        assert (cluster.unreached(1, 5.0), cluster.unreached(2, 5.0)) == (False, True)
        await asyncio.sleep(0.02)
        assert not cluster.unreached(2, 0.01)
        cluster.close()

    run(test)


def test_those_who_wait_for_a_silent_broker_wait_once() -> None:
    """Symptom: a sidecar whose broker stood still left the owners' group 6 s late. Cause: its rounds stood in line for
    a connection to that broker, and each waited for its own 2 s (scene first_bootstrap_is_silent)."""

    async def test() -> None:
        silent, good = CountingListener(0), CountingListener(99)
        cluster = Cluster([await good.open()], "test", {1: await silent.open()})
        began = time.monotonic()
        found = await asyncio.gather(*(cluster.node(1) for _ in range(5)), return_exceptions=True)
        assert [type(x) for x in found] == [ConnectionLost] * 5
        assert time.monotonic() - began < 2 * OPEN_S and silent.connections == 1
        gives_up = asyncio.create_task(cluster.node(1))
        waits = asyncio.create_task(cluster.node(1))
        await asyncio.sleep(0.05)
        gives_up.cancel()
        await asyncio.sleep(0.05)
        assert gives_up.cancelled() and not waits.done(), "the attempt is not only of who began it"
        cluster.close()
        with pytest.raises(ConnectionLost, match="closed here"):
            await waits

    run(test)


def test_a_slow_resolver_takes_nothing_of_the_time_for_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: no connection ever. The first name server was dead, which costs 5 s. A connection had 2 s."""
    lookups: list[str] = []

    async def slow(host: str, port: None, **more: Any) -> list[tuple[Any, ...]]:
        lookups.append(host)
        loop = asyncio.get_running_loop()
        over = loop.create_future()
        loop.call_later(5 if host == "broker.example" else 2 * RESOLVE_S, over.set_result, None)
        await over
        return [(0, 0, 0, "", (address, 0)) for address in ("127.0.0.2", "127.0.0.1", "127.0.0.1")]

    async def test() -> None:
        door = CountingListener(99)
        _, port = await door.open()
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", slow)
        opens = [asyncio.create_task(BrokerConnection.open("broker.example", port, "test")) for _ in range(5)]
        await asyncio.sleep(0)
        opens.pop(0).cancel()
        found = await asyncio.gather(*opens)
        assert door.connections == 4 and lookups == ["broker.example"], "the lookup is not only of who began it"
        (await BrokerConnection.open("broker.example", port, "test")).close()
        assert len(lookups) == 2, "addresses are not kept"
        for conn in found:
            conn.close()
        with pytest.raises(ConnectionLost, match=r"no\.example:1: no name server answers"):
            await BrokerConnection.open("no.example", 1, "test")
        with pytest.raises(ConnectionLost, match=r"broker\.example:1: Connection refused"):
            await BrokerConnection.open("broker.example", 1, "test")

    clock.run(test())


@pytest.mark.parametrize("answers", [0, 99])
def test_a_silent_address_of_a_host_does_not_block_the_others(monkeypatch: pytest.MonkeyPatch, answers: int) -> None:
    """Symptom: no connection ever to a host with several addresses. The first was cut off, or its broker stood still,
    and took all the time."""

    async def two(host: str, port: None, **more: Any) -> list[tuple[Any, ...]]:
        return [(0, 0, 0, "", (address, 0)) for address in ("127.0.0.2", "127.0.0.1")]

    async def test() -> None:
        good, silent = CountingListener(99), CountingListener(answers)
        _, port = await good.open()
        await silent.open("127.0.0.2", port)
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", two)
        began = asyncio.get_running_loop().time()
        conn = await BrokerConnection.open("broker.example", port, "test")
        assert conn.peer() == ("127.0.0.2" if answers else "127.0.0.1", port)
        assert asyncio.get_running_loop().time() - began < 2 * BESIDE_S
        if not answers:
            await silent.left.wait()
        assert good.connections == (0 if answers else 1), "an address that answers is not the second choice"
        conn.close()

    clock.run(test())


NO_NAMES = ["a..b", ".", "a" * 64, "b." + "a" * 64, "\u00fc" * 64, "\ud800", ""]
"""Names that Python's resolver does not look up. Kafka takes the ASCII ones for `advertised.listeners`."""


@pytest.mark.parametrize("host", NO_NAMES)
@pytest.mark.parametrize("security", [PLAINTEXT, Security("SSL")], ids=["plain", "tls"])
def test_a_broker_with_no_name_of_a_host_is_not_reached_and_breaks_nothing(host: str, security: Security) -> None:
    """Symptom: a broker that was told to advertise `broker-1..svc` ended the coordinator of each sidecar, again and
    again: the heartbeats in the owners' group ended with a UnicodeError."""

    async def test() -> None:
        cluster = Cluster([(host, 9092)], "test", {}, security=security)
        cluster.brokers[7] = (host, 9092)
        for asked in (cluster.anyone(), cluster.node(7), cluster.open(7)):
            with pytest.raises(ConnectionLost):
                await asked
        with pytest.raises(OSError) as refused:
            await connected(asyncio.Protocol, await addresses_of(host), 1)
        assert not is_resolvers(refused.value), "the peer is at fault, and not the resolver"

    run(test)


@pytest.mark.parametrize("port", [-1, 0, 65536, 70_000, 2**31 - 1])
def test_a_broker_with_no_port_is_not_reached_and_breaks_nothing(port: int) -> None:
    async def test() -> None:
        with pytest.raises(ConnectionLost):
            await Cluster([], "test", {1: ("127.0.0.1", port)}).node(1)

    run(test)
