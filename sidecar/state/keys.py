"""Keys of `__group_state`: three Avro strings. Read and written by hand, as every tailed record passes here."""

from __future__ import annotations

from typing import NamedTuple

from sidecar.state.schema import StateError


class StateKey(NamedTuple):
    kind: str
    group_id: str
    sub_id: str


def encode_key(kind: str, group_id: str, sub_id: str) -> bytes:
    out = bytearray()
    for text in (kind, group_id, sub_id):
        raw = text.encode()
        n = len(raw) << 1
        while n > 127:
            out.append((n & 0x7F) | 0x80)
            n >>= 7
        out.append(n)
        out += raw
    return bytes(out)


def decode_key(raw: bytes) -> StateKey:
    parts: list[str] = []
    p = 0
    try:
        for _ in range(3):
            n = shift = 0
            while True:
                x = raw[p]
                p += 1
                n |= (x & 0x7F) << shift
                shift += 7
                if x < 128:
                    break
            size = n >> 1
            if n & 1 or p + size > len(raw):
                raise StateError("damaged key")
            parts.append(raw[p : p + size].decode())
            p += size
    except (IndexError, UnicodeDecodeError) as exc:
        raise StateError("damaged key") from exc
    return StateKey(*parts)
