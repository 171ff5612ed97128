"""The admin address of a sidecar that is killed while it answers gives no answer, and ends no drill."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from sidecar.drill.local import Broker, LocalKafka

HEAD = b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s"
NOT_READY = b'{"problems": ["no broker"]}'
ANSWERS = {
    "good": (HEAD % (b"200 OK", 8, b'{"a": 1}'), {"a": 1}, []),
    "broken off": (HEAD % (b"200 OK", 100, b'{"a": 1}'), None, []),
    "no JSON": (HEAD % (b"200 OK", 2, b"ok"), None, []),
    "no HTTP": (b"\0\0\0\7\r\n", None, []),
    "nothing": (b"", None, []),
    "not ready": (HEAD % (b"503 X", len(NOT_READY), NOT_READY), None, ["no broker"]),
    "not ready, broken off": (HEAD % (b"503 X", 100, NOT_READY), None, []),
    "not ready, no JSON": (HEAD % (b"503 X", 4, b"busy"), None, []),
}
"""The bytes of an answer, its JSON, and the problems in it."""


@contextmanager
def admin(answer: bytes) -> Iterator[Broker]:
    """A node whose admin address gives this answer to two requests."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            for _ in range(2):
                conn, _ = server.accept()
                with conn:
                    conn.recv(10_000)
                    conn.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield Broker(1, 0, 0, 0, 0, server.getsockname()[1], 0)
        thread.join()


@pytest.mark.parametrize(("answer", "found", "problems"), ANSWERS.values(), ids=ANSWERS)
def test_what_an_admin_address_says(answer: bytes, found: object, problems: list[str]) -> None:
    """Symptom: IncompleteRead, BadStatusLine or JSONDecodeError ended all drills, whose results were lost with them."""
    kafka = LocalKafka.__new__(LocalKafka)
    with admin(answer) as node:
        assert (kafka.get(node, "/owners"), kafka.problems(node)) == (found, problems)
