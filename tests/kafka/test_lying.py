"""Brokers, or whatever listens in their place, whose responses lie about their length or answer something else."""

from __future__ import annotations

import asyncio

import pytest

from sidecar.kafka.cluster import Cluster
from sidecar.kafka.net import RESPONSE_BYTES, BrokerConnection, ConnectionLost
from sidecar.wire.frames import response_frame
from sidecar.wire.generated import api_versions as av
from sidecar.wire.generated import find_coordinator as fc
from tests.inprocess import clock

KNOWN = av.ApiVersionsResponse(api_keys=[av.ApiVersion(10, 0, 4), av.ApiVersion(18, 0, 3)]).encode(3)
ASK = fc.FindCoordinatorRequest(coordinator_keys=["g"])


async def listener(*answers: bytes) -> tuple[asyncio.Server, str, int]:
    """A listener that answers the first requests of each connection with these bytes, and then none."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in answers:
            await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
            writer.write(answer)
        await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    return server, str(host), int(port)


@pytest.mark.parametrize(
    "lie, told",
    [
        ((RESPONSE_BYTES + 1).to_bytes(4, "big"), "268435457 bytes, more than limits.response_bytes 268435456"),
        (b"\xff\xff\xff\xff", "a response of -1 bytes"),
        (b"\0\0\0\3abc", "a response of 3 bytes"),
        (response_frame(77, True, b"\0" * 20), "nobody had asked for"),
    ],
)
def test_a_response_that_lies_ends_the_connection_at_once(lie: bytes, told: str) -> None:
    async def main() -> None:
        server, host, port = await listener(response_frame(1, False, KNOWN), lie)
        conn = await BrokerConnection.open(host, port, "c")
        with pytest.raises(ConnectionLost, match=told):
            await asyncio.wait_for(conn.request(fc, "FindCoordinator", ASK), 1)
        assert conn.closed and len(conn._buffer) == 0
        server.close()

    clock.run(main())


@pytest.mark.parametrize("most, told", [(100_000, ""), (99_999, "limits.response_bytes 99999: raise it")])
def test_the_limit_of_a_response_is_what_the_cluster_was_given(most: int, told: str) -> None:
    """The connections of a cluster all have it: the one to any broker, and those to one node."""
    answer = response_frame(2, True, b"\0" * (100_000 - 5))

    async def main() -> None:
        server, host, port = await listener(response_frame(1, False, KNOWN), answer)
        cluster = Cluster([(host, port)], "c", {1: (host, port)}, most)
        for conn in (await cluster.anyone(), await cluster.node(1)):
            asked = conn.exchange(fc, "FindCoordinator", ASK, 4)
            if told:
                with pytest.raises(ConnectionLost, match=told):
                    await asyncio.wait_for(asked, 1)
            else:
                assert (await asyncio.wait_for(asked, 1))[2] == answer
        cluster.close()
        server.close()

    clock.run(main())


@pytest.mark.parametrize(
    "first",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        response_frame(1, False, b"\xff" * 30),
        response_frame(1, False, KNOWN) + response_frame(2, False, KNOWN),
    ],
    ids=["http", "garbage", "one too many"],
)
def test_what_is_no_broker_is_a_lost_connection_and_no_bug(first: bytes) -> None:
    async def main() -> None:
        server, host, port = await listener(first)
        with pytest.raises(ConnectionLost):
            conn = await BrokerConnection.open(host, port, "c", 1.0)
            await asyncio.wait_for(conn.request(fc, "FindCoordinator", ASK), 1)
        server.close()

    clock.run(main())
