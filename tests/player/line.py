"""A connection to a listener: one request at a time, and the answer, or why there is none."""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping
from typing import Any

from tests.player.schema import Messages

API_VERSIONS = "ApiVersions"
UNSUPPORTED_VERSION = (35).to_bytes(2, "big")
CLIENT = b"player"


class NoAnswer(Exception):
    """No answer within the limit."""


class Line:
    def __init__(self, port: int, messages: Messages, limit_s: float) -> None:
        self._messages = messages
        self._socket = socket.create_connection(("127.0.0.1", port), 30)
        self._socket.settimeout(limit_s)
        self._correlation = 0

    def close(self) -> None:
        self._socket.close()

    def send(self, api: str, version: int, body: bytes) -> None:
        request = self._messages[f"{api}Request"]
        self._correlation += 1
        head = struct.pack(">hhih", request.key, version, self._correlation, len(CLIENT)) + CLIENT
        head += b"\0" if version in request.flexible else b""
        self._socket.sendall(struct.pack(">i", len(head) + len(body)) + head + body)

    def receive(self, api: str, version: int) -> dict[str, Any]:
        """Raises NoAnswer, ConnectionError, or ValueError for an answer that cannot be read."""
        try:
            (size,) = struct.unpack(">i", self._exactly(4))
            frame = self._exactly(size)
        except TimeoutError:
            raise NoAnswer from None
        (correlation,) = struct.unpack(">i", frame[:4])
        if correlation != self._correlation:
            raise ValueError(f"answer {correlation} to request {self._correlation}")
        response = self._messages[f"{api}Response"]
        flexible = version in response.flexible and api != API_VERSIONS
        body = frame[5 if flexible else 4 :]
        if api == API_VERSIONS and body[:2] == UNSUPPORTED_VERSION:
            version = 0  # whatever was asked (KIP-511)
        return response.decode(body, version)

    def ask(self, api: str, version: int, body: Mapping[str, Any]) -> dict[str, Any]:
        self.send(api, version, self._messages[f"{api}Request"].encode(body, version))
        return self.receive(api, version)

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            more = self._socket.recv(size - len(data))
            if not more:
                raise ConnectionResetError("closed")
            data += more
        return bytes(data)
