"""Lines that can be cut: silence without an end, and everything goes on where it was when they are mended."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from sidecar.coordinator.membership import peer_links as peers
from sidecar.drill.drills.network import host_of
from sidecar.drill.line import Lines, Route, client_id_of
from sidecar.drill.processes import free_ports
from sidecar.wire.frames import request_frame

BRIEFLY_S = 0.3


@pytest.fixture
def echo() -> Iterator[int]:
    server = socket.create_server(("127.0.0.1", 0))

    def serve(conn: socket.socket) -> None:
        with conn:
            while data := conn.recv(1000):
                conn.sendall(data)

    def accept() -> None:
        while True:
            try:
                conn, _ = server.accept()
            except OSError:
                return  # the test is over
            threading.Thread(target=serve, args=(conn,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    yield int(server.getsockname()[1])
    server.shutdown(socket.SHUT_RDWR)
    server.close()


@pytest.fixture
def lines(echo: int) -> Iterator[tuple[Lines, int, int]]:
    """Two ways to the same server, as if it stood on hosts 1 and 2."""
    one, two = free_ports(2)
    made = Lines([Route(1, one, echo), Route(2, two, echo)]).start()
    yield made, one, two
    made.stop()


def opened(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=60)


def answers(conn: socket.socket, said: bytes, within_s: float = 5.0) -> bytes:
    """Returns the bytes that come back; empty if none do."""
    conn.settimeout(within_s)
    conn.sendall(said)
    try:
        return conn.recv(1000)
    except TimeoutError:
        return b""


def test_a_cut_host_is_silent_and_goes_on_when_it_is_mended(lines: tuple[Lines, int, int]) -> None:
    made, one, two = lines
    with opened(one) as cut, opened(two) as whole:
        assert answers(cut, b"a") == answers(whole, b"a") == b"a"
        assert [w.to_host for w in made.cut(lambda w: w.to_host == 1)] == [1]
        with opened(one) as late, opened(two) as new:
            assert answers(whole, b"b") == answers(new, b"b") == b"b"
            assert answers(cut, b"c", BRIEFLY_S) == answers(late, b"d", BRIEFLY_S) == b""
            made.mend()
            cut.settimeout(60)
            late.settimeout(60)
            assert (cut.recv(10), late.recv(10)) == (b"c", b"d")


def test_an_end_is_told_only_over_a_line_that_is_whole(lines: tuple[Lines, int, int]) -> None:
    made, one, _ = lines
    with opened(one) as conn:
        assert answers(conn, b"a") == b"a"
        made.cut(lambda w: True)
        conn.shutdown(socket.SHUT_WR)
        conn.settimeout(BRIEFLY_S)
        with pytest.raises(TimeoutError):
            conn.recv(1)
        made.mend()
        conn.settimeout(60)
        assert conn.recv(1) == b""


def test_a_connection_is_known_by_the_client_id_of_its_first_request(lines: tuple[Lines, int, int]) -> None:
    made, one, _ = lines
    frames = [request_frame(18, 3, 1, name, True, b"\0") for name in ("sidecar-1-tail", "java")]
    with opened(one) as first, opened(one) as second, opened(one) as third:
        for conn, frame in zip((first, second), frames, strict=True):
            assert answers(conn, frame) == frame
        silent = made.cut(lambda w: host_of(w.client_id) == 1)
        assert [w.client_id for w in silent] == ["sidecar-1-tail"]
        assert answers(first, frames[0], BRIEFLY_S) == b""
        assert answers(second, frames[1]) == frames[1]
        assert answers(third, frames[0], BRIEFLY_S) == b"", "it says only now whose it is"


def test_the_ping_of_a_sidecar_tells_whose_it_is() -> None:
    assert client_id_of(peers.PING % 3) == "sidecar-3"
    assert client_id_of(2 * (peers.PING % 12)) == "sidecar-12"


@pytest.mark.parametrize(
    ("client_id", "host"),
    [
        ("sidecar-2", 2),
        ("sidecar-2-tail", 2),
        ("broker-3-fetcher-0", 3),
        ("raft-client-1", 1),
        ("2", 2),
        ("", 0),
        ("java-1", 0),
        ("drill-cut-consumer-m0-85", 0),
        ("kafka-4", 0),
    ],
)
def test_which_host_a_client_id_names(client_id: str, host: int) -> None:
    assert host_of(client_id) == host


def test_nobody_listens_behind_the_line() -> None:
    port, nobody = free_ports(2)
    made = Lines([Route(1, port, nobody)]).start()
    try:
        with pytest.raises(ConnectionResetError), opened(port) as conn:
            conn.recv(1)
    finally:
        made.stop()
