"""The few primitives that the generated codec calls. Source: Kafka's protocol guide, KIP-482 (tagged fields)."""

from __future__ import annotations

from sidecar import native

ZERO_UUID = b"\0" * 16
STRING_MAX = 32_767
"""Most bytes of a string, compact or not. Kafka's generated classes throw for more, and a broker then closes the
connection."""


class WireError(Exception):
    """The bytes are not a valid message. The codec raises no other exception for bad input."""


def uvarint(b: bytes, p: int) -> tuple[int, int]:
    """Reads an unsigned varint of at most 32 bits at `p`; returns its value and the position after it."""
    value = shift = 0
    while True:
        x = b[p]
        p += 1
        value |= (x & 0x7F) << shift
        if x < 128:
            if value > 0xFFFFFFFF:
                raise WireError("varint of more than 32 bits")
            return value, p
        shift += 7
        if shift > 28:
            raise WireError("varint of more than 5 bytes")


def put_uvarint(o: bytearray, n: int) -> None:
    while n > 127:
        o.append((n & 0x7F) | 0x80)
        n >>= 7
    o.append(n)


def skip_tags(b: bytes, p: int, e: int) -> int:
    """Skips a section of tagged fields, none of which is known; returns the position after it. Most are empty. Of a
    stranger's half a million Python would make 0.2 s."""
    if b[p] == 0:
        return p + 1
    try:
        return native.skip_tags(b, p, e)
    except ValueError as exc:
        raise WireError(str(exc)) from None
