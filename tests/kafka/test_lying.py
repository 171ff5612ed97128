"""Brokers, or whatever listens in their place, whose responses lie about their length or answer something else."""

from __future__ import annotations

import asyncio

import pytest

from sidecar.kafka.cluster import Cluster
from sidecar.kafka.net import RESPONSE_BYTES, BrokerConnection, ConnectionLost, NotAuthenticated
from sidecar.kafka.security import Security
from sidecar.wire.frames import response_frame
from sidecar.wire.generated import api_versions as av
from sidecar.wire.generated import find_coordinator as fc
from sidecar.wire.generated import sasl_authenticate as sa
from sidecar.wire.generated import sasl_handshake as sh
from tests.inprocess import clock
from tests.inprocess.embedded_sidecar import until

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


SASL = av.ApiVersionsResponse(api_keys=[av.ApiVersion(17, 0, 1), av.ApiVersion(36, 0, 2)]).encode(3)
HELLO = sh.SaslHandshakeResponse(mechanisms=["SCRAM-SHA-256"]).encode(1)
SALTED = b"r=%s-its-own,s=c2FsdHNhbHRzYWx0c2FsdA==,i="


def proof(correlation: int, message: bytes) -> bytes:
    return response_frame(correlation, True, sa.SaslAuthenticateResponse(auth_bytes=message).encode(2))


@pytest.mark.parametrize(
    "first, final",
    [
        (b"\xff", b""),
        (b"", b""),
        (b"r=another,s=c2FsdHNhbHRzYWx0c2FsdA==,i=4096", b""),
        (SALTED + b"4095", b""),
        (SALTED + b"100000", b""),
        (SALTED + b"9" * 5_000, b""),
        (SALTED + b"4096", b"\xff"),
        (SALTED + b"4096", b"v=none"),
    ],
)
@pytest.mark.parametrize("again", [False, True])
def test_a_broker_whose_proof_is_none_is_refused(first: bytes, final: bytes, again: bool) -> None:
    """The same holds when the client authenticates again: its other requests do not wait for ever."""
    security = Security("SASL_PLAINTEXT", "SCRAM-SHA-256", "u", "p")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for correlation, answer in enumerate((SASL, HELLO, first, final), 1):
            request = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
            if correlation > 2:
                nonce = request.partition(b",r=")[2].rstrip(b"\0")  # the section of tagged fields follows
                writer.write(proof(correlation, answer.replace(b"%s", nonce)))
            else:
                writer.write(response_frame(correlation, False, answer))
        await reader.read()
        writer.close()

    async def main() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()[:2]
        if again:
            _, conn = await asyncio.get_running_loop().create_connection(
                lambda: BrokerConnection("c", security=security), host, port
            )
            await conn._negotiate()
            conn._authenticate_again()
            assert conn._authenticating is not None
            await asyncio.wait_for(asyncio.shield(conn._authenticating), 1)
            assert conn.closed
            why = conn._why
        else:
            with pytest.raises(NotAuthenticated) as refused:
                await asyncio.wait_for(BrokerConnection.open(host, port, "c", security=security), 1)
            why = str(refused.value)
        assert why and ("100,000 iterations" in why) is first.endswith((b"100000", b"99999")), "they hold the loop"
        server.close()

    clock.run(main())


def test_what_nobody_waits_for_any_more_is_not_sent_after_the_client_has_authenticated_again() -> None:
    """Symptom: the fence of an attempt that had ended shut out the sidecar that owned the partition by then."""
    security = Security("SASL_PLAINTEXT", "PLAIN", "u", "p")
    kinds: list[int] = []
    go_on = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while len(kinds) < 4:
            request = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
            kinds.append(int.from_bytes(request[:2], "big"))
            correlation = int.from_bytes(request[4:8], "big")
            if kinds[-1] == 17:
                await go_on.wait()
            answers = {18: SASL, 17: sh.SaslHandshakeResponse(mechanisms=["PLAIN"]).encode(1)}
            frame = response_frame(correlation, False, answers.get(kinds[-1], b""))
            writer.write(proof(correlation, b"") if kinds[-1] == 36 else frame)

    async def main() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()[:2]
        _, conn = await asyncio.get_running_loop().create_connection(
            lambda: BrokerConnection("c", security=security), host, port
        )
        await conn._negotiate()
        conn._authenticate_again()
        await until(lambda: kinds[-1] == 17)
        left, waits = (conn._send(18, 3, av.ApiVersionsRequest().encode(3), True) for _ in range(2))
        left.cancel()
        go_on.set()
        await asyncio.wait_for(waits, 1)
        assert kinds == [18, 17, 36, 18]
        conn.close()
        server.close()

    clock.run(main())
