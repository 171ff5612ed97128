"""A server of tokens for OAUTHBEARER: it knows clients by id and secret, and says in a token who they are. Nobody signs
its tokens; the brokers of these tests take such."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote_plus

from sidecar.kafka.tokens import unsecured
from tests.security.ground import secret_of


@dataclass
class Issuer:
    url: str
    asked: list[tuple[str, dict[str, list[str]]]] = field(default_factory=list)
    """Principals that got a token, with the form of their request."""


@contextmanager
def issuer() -> Iterator[Issuer]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            scheme, _, who = self.headers.get("Authorization", "").partition(" ")
            name, _, secret = base64.b64decode(who).decode().partition(":")
            name, secret = unquote_plus(name), unquote_plus(secret)
            known = scheme == "Basic" and secret == secret_of(name) and form["grant_type"] == ["client_credentials"]
            told = {"access_token": unsecured(name, time.time()), "token_type": "Bearer", "expires_in": 3600}
            body = json.dumps(told if known else {"error": "invalid_client"}).encode()
            self.send_response(200 if known else 401)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            if known:
                made.asked.append((name, form))

        def log_message(self, format: str, *args: object) -> None:
            """Logs nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made = Issuer(f"http://127.0.0.1:{server.server_port}/token")
    thread = threading.Thread(target=server.serve_forever, name="issuer", daemon=True)
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=5)
