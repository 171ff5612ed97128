"""Frame headers: size, api key, version, correlation id, client id. Source: Kafka's protocol guide, KIP-482."""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from struct import error as struct_error

from sidecar.wire.primitives import WireError, skip_tags, uvarint

PREFIX = Struct(">ihhi")
"""The first 12 bytes of a request: size (which does not count itself), api key, api version, correlation id."""
VERSION = slice(6, 8)
"""Position of a request's version."""
SIZE = Struct(">i")
SMALL_BYTES = 16_384
"""Limit between small and large requests. A small one has fewer elements than any limit."""
_SHORT = Struct(">h")
_TAGGED, _UNTAGGED = Struct(">iiB"), Struct(">ii")
"""Headers of responses, with their size before them: flexible ones, and others."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one connection. A frame above its limit in bytes closes it, as at a broker
    (socket.request.max.bytes)."""

    frame_bytes: int = 104_857_600
    group_frame_bytes: int = 16_777_216
    """Limit for requests and responses that are decoded and so held in memory as a whole."""
    list_frame_bytes: int = 2_097_152
    """Limit for requests that are decoded in Python, element by element: all but SyncGroup from version 4."""
    in_flight: int = 256
    """Requests without a response so far; later ones wait."""
    turn_requests: int = 32
    """Requests that are looked at before the loop turns, so other connections have their turn."""


def header_end(frame: bytes, pos: int, flexible: bool) -> tuple[str | None, int]:
    """Returns the client id and the position of the body. `pos` is the position after the correlation id. Bytes that
    are no UTF-8 are replaced in every string, as in Kafka."""
    try:
        (n,) = _SHORT.unpack_from(frame, pos)
        pos += 2
        client_id: str | None = None
        if n >= 0:
            end = pos + n
            if end > len(frame):
                raise WireError("client id past the end")
            client_id = frame[pos:end].decode(errors="replace")
            pos = end
        if flexible:
            pos = skip_tags(frame, pos, len(frame))
        return client_id, pos
    except (struct_error, IndexError) as exc:
        raise WireError(f"request header: {exc}") from None


def client_id_of(buf: bytes | bytearray, pos: int) -> str:
    """Returns the client id of the request that begins at `pos`, for people to read; "" if it is not all there."""
    at = pos + PREFIX.size
    if len(buf) < at + 2:
        return ""
    (n,) = _SHORT.unpack_from(buf, at)
    whole = 0 <= n <= len(buf) - at - 2
    return bytes(buf[at + 2 : at + 2 + n]).decode(errors="replace") if whole else ""


def produce_acks(head: bytes, version: int, flexible_from: int) -> int | None:
    """Returns the acks of a Produce request from the bytes that begin with its client id, or None if more are needed. A
    broker sends no response if acks is 0, which matters for the order of responses."""
    try:
        (n,) = _SHORT.unpack_from(head, 0)
        p = 2 + max(n, 0)
        if version >= flexible_from:
            p = skip_tags(head, p, len(head) + (1 << 20))
            n, p = uvarint(head, p)
            p += max(n - 1, 0)
        elif version >= 3:
            (n,) = _SHORT.unpack_from(head, p)
            p += 2 + max(n, 0)
        (acks,) = _SHORT.unpack_from(head, p)
        return int(acks)
    except (struct_error, IndexError):
        return None


def request_frame(
    api_key: int, version: int, correlation_id: int, client_id: str | None, flexible: bool, body: bytes
) -> bytes:
    raw = b"" if client_id is None else client_id.encode()
    head = bytearray(_SHORT.pack(-1 if client_id is None else len(raw)))
    head += raw
    if flexible:
        head.append(0)
    return PREFIX.pack(8 + len(head) + len(body), api_key, version, correlation_id) + bytes(head) + body


def response_frame(correlation_id: int, flexible: bool, body: bytes) -> bytes:
    if flexible:
        return _TAGGED.pack(5 + len(body), correlation_id, 0) + body
    return _UNTAGGED.pack(4 + len(body), correlation_id) + body


def response_body(frame: bytes, flexible: bool) -> int:
    """Returns the position of the body in a response frame that includes its size prefix. Raises WireError."""
    try:
        return skip_tags(frame, 8, len(frame)) if flexible else 8
    except IndexError:
        raise WireError("response header past the end") from None


__all__ = [
    "PREFIX",
    "SIZE",
    "Limits",
    "client_id_of",
    "header_end",
    "produce_acks",
    "request_frame",
    "response_body",
    "response_frame",
]
