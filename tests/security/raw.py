"""A client that says exactly what a test wants, over plain TCP or TLS: one request after the other."""

from __future__ import annotations

import socket
import ssl
from typing import Any

from scramp import ScramClient

from sidecar.wire.frames import request_frame, response_body
from sidecar.wire.generated import sasl_authenticate as sa
from sidecar.wire.generated import sasl_handshake as sh
from tests.security.ground import secret_of

HANDSHAKE, AUTHENTICATE = 17, 36


def plain(user: str, password: str = "") -> bytes:
    return f"\0{user}\0{password or secret_of(user)}".encode()


class RawClient:
    def __init__(self, port: int, authority: str = "") -> None:
        """`authority`: PEM file; "": without TLS."""
        sock = socket.create_connection(("127.0.0.1", port), 20)
        if authority:
            context = ssl.create_default_context(cafile=authority)
            self.sock: socket.socket = context.wrap_socket(sock, server_hostname="127.0.0.1")
        else:
            self.sock = sock
        self._correlation = 0

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def _exactly(self, n: int) -> bytes:
        found = b""
        while len(found) < n:
            data = self.sock.recv(n - len(found))
            if not data:
                raise EOFError
            found += data
        return found

    def frame(self) -> bytes:
        """Raises EOFError when the connection has ended."""
        size = self._exactly(4)
        return size + self._exactly(int.from_bytes(size, "big"))

    def call(self, module: Any, name: str, api_key: int, version: int, request: Any, flexible: bool = False) -> Any:
        self._correlation += 1
        self.send(request_frame(api_key, version, self._correlation, "raw", flexible, request.encode(version)))
        frame = self.frame()
        assert int.from_bytes(frame[4:8], "big") == self._correlation
        return getattr(module, f"{name}Response").decode(version, frame, response_body(frame, flexible))

    def token(self, data: bytes) -> bytes:
        """One without a header; returns the broker's."""
        self.send(len(data).to_bytes(4, "big") + data)
        return self.frame()[4:]

    def handshake(self, mechanism: str, version: int) -> int:
        res = self.call(sh, "SaslHandshake", HANDSHAKE, version, sh.SaslHandshakeRequest(mechanism))
        return int(res.error_code)

    def authenticate(self, data: bytes, version: int = 1) -> sa.SaslAuthenticateResponse:
        found: sa.SaslAuthenticateResponse = self.call(
            sa, "SaslAuthenticate", AUTHENTICATE, version, sa.SaslAuthenticateRequest(data)
        )
        return found

    def scram(self, user: str, mechanism: str, headers: bool = False, more: str = "", password: str = "") -> None:
        """`headers`: in requests, else as tokens, behind a handshake of version 0; `more`: extensions."""

        def exchange(text: str) -> str:
            data = text.encode()
            return (bytes(self.authenticate(data).auth_bytes) if headers else self.token(data)).decode()

        client = ScramClient([mechanism], user, password or secret_of(user))
        client.get_client_first()
        client.client_first_bare += more
        client.set_server_first(exchange("n,," + client.client_first_bare))
        client.set_server_final(exchange(client.get_client_final()))

    def close(self) -> None:
        self.sock.close()
