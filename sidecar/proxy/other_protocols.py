"""Names the protocol of a client that does not speak Kafka's, by its first four bytes.

As the size of a frame they are above every sensible limit.
"""

from __future__ import annotations

TLS_HELLO, HTTP_METHODS = b"\x16\x03", (b"GET ", b"POST", b"HEAD", b"PUT ", b"OPTI", b"CONN")


def spoken(first: bytes) -> tuple[str, str] | None:
    """Returns the cause for closing the connection, as a metric label, and a hint; None: the protocol is not known
    here."""
    if first.startswith(TLS_HELLO):
        return "tls", "the client speaks TLS, this listener does not: look at its security.protocol"
    if first in HTTP_METHODS:
        return "http", "the client speaks HTTP: this is a listener of Kafka, not `admin`"
    return None
