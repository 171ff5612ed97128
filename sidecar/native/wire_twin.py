"""Kafka's wire format by a layout, in Python: what _wire.c does, for an install without a compiler.

A layout has one letter for each field of a flexible message (KIP-482):
    b h i   integers of 1, 2 and 4 bytes          s S   a compact string; S may be null
    n       a nullable string of the old format   a     a nullable compact array of compact strings: a tuple
    p       a nullable compact array of {topic id, compact array of partitions, tags}: a dict of tuples
    B       compact bytes                         q     a compact array of {string, bytes, tags}: a tuple of pairs
    m       a compact array of {string, nullable string, bytes, tags}: a tuple of tuples
    t       a section of tagged fields: none is known, none is written; it is no value
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from struct import Struct
from typing import Any

_INT, _SHORT = Struct(">i"), Struct(">h")
_STRING_MAX = 32_767


def unpack(layout: str, raw: bytes, pos: int) -> tuple[Any, ...]:
    """Return the fields of `layout`, from `pos` on. Raises ValueError for bytes that do not fit."""
    if not 0 <= pos <= len(raw):
        raise ValueError("past the end")
    out = []
    for letter in layout:
        if letter == "t":
            pos = _tags(raw, pos)
        else:
            value, pos = _READ[letter](raw, pos)
            out.append(value)
    return tuple(out)


def pack(layout: str, *values: Any) -> bytes:
    """Return the bytes of these values. Raises ValueError for a number that is too large for its field and for a string
    of more than 32,767 bytes, and TypeError for a value of another type, for too few values and for too many."""
    out = bytearray()
    given = iter(values)
    for letter in layout:
        if letter == "t":
            out.append(0)
            continue
        try:
            value = next(given)
        except StopIteration:
            raise TypeError("pack got too few values") from None
        if letter in _SIZES:
            out += _number(value, _SIZES[letter])
        elif letter == "S":
            _put_text(out, value)
        elif letter == "B":
            _put_bytes(out, value)
        elif letter == "p":
            _put_topics(out, value)
        elif letter == "m":
            _put_members(out, value)
        else:
            raise ValueError("unknown letter in a layout")
    if next(given, given) is not given:
        raise TypeError("pack got too many values")
    return bytes(out)


def java_hash(text: str) -> int:
    """String.hashCode of Java, over UTF-16 code units, as a signed 32-bit integer."""
    h = 0
    raw = text.encode("utf-16-be", "surrogatepass")
    for i in range(0, len(raw), 2):
        h = (31 * h + (raw[i] << 8 | raw[i + 1])) & 0xFFFFFFFF
    return h - (1 << 32) if h >= 1 << 31 else h


def skip_tags(raw: bytes | bytearray, at: int, end: int) -> int:
    """Skips a section of tagged fields, none of which is known; returns the position after it, `end` at most. Raises
    ValueError, or IndexError where the bytes end within a number."""

    def varint(p: int) -> tuple[int, int]:
        value = 0
        for shift in range(0, 35, 7):
            x = raw[p]
            p += 1
            value |= (x & 0x7F) << shift
            if x < 128:
                if value > 0xFFFFFFFF:
                    raise ValueError("varint of more than 32 bits")
                return value, p
        raise ValueError("varint of more than 5 bytes")

    n, at = varint(at)
    for _ in range(n):
        _, at = varint(at)
        size, at = varint(at)
        at += size
        if at > end:
            raise ValueError("tagged field past the end")
    return at


# ---- reading ------------------------------------------------------------------------------------------------------
def _uvarint(raw: bytes, p: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 35, 7):
        if p >= len(raw):
            break
        x = raw[p]
        p += 1
        value |= (x & 0x7F) << shift
        if x < 128:
            if value > 0xFFFFFFFF:
                break
            return value, p
    raise ValueError("a varint does not end")


def _text(raw: bytes, p: int, n: int) -> tuple[str, int]:
    if n > len(raw) - p:
        raise ValueError("past the end")
    return raw[p : p + n].decode(), p + n


def _compact(raw: bytes, p: int) -> tuple[str | None, int]:
    n, p = _uvarint(raw, p)
    if n == 0:
        return None, p
    if n - 1 > _STRING_MAX:
        raise ValueError("a string is too long")
    return _text(raw, p, n - 1)


def _must(raw: bytes, p: int) -> tuple[str, int]:
    text, p = _compact(raw, p)
    if text is None:
        raise ValueError("a string that must be there is null")
    return text, p


def _old(raw: bytes, p: int) -> tuple[str | None, int]:
    if len(raw) - p < 2:
        raise ValueError("past the end")
    (n,) = _SHORT.unpack_from(raw, p)
    return (None, p + 2) if n < 0 else _text(raw, p + 2, n)


def _int(raw: bytes, p: int) -> tuple[int, int]:
    if len(raw) - p < 4:
        raise ValueError("past the end")
    return _INT.unpack_from(raw, p)[0], p + 4


def _tags(raw: bytes, p: int) -> int:
    n, p = _uvarint(raw, p)
    for _ in range(n):
        _, p = _uvarint(raw, p)
        size, p = _uvarint(raw, p)
        if size > len(raw) - p:
            raise ValueError("past the end")
        p += size
    return p


def _count(raw: bytes, p: int, least: int) -> tuple[int, int]:
    n, p = _uvarint(raw, p)
    if n - 1 > (len(raw) - p) // least:
        raise ValueError("an array is longer than its bytes")
    return n - 1, p


def _strings(raw: bytes, p: int) -> tuple[tuple[str, ...] | None, int]:
    n, p = _count(raw, p, 1)
    if n < 0:
        return None, p
    out = []
    for _ in range(n):
        text, p = _must(raw, p)
        out.append(text)
    return tuple(out), p


def _topics(raw: bytes, p: int) -> tuple[dict[bytes, tuple[int, ...]] | None, int]:
    n, p = _count(raw, p, 18)
    if n < 0:
        return None, p
    out: dict[bytes, tuple[int, ...]] = {}
    for _ in range(n):
        if len(raw) - p < 16:
            raise ValueError("past the end")
        topic = raw[p : p + 16]
        many, p = _count(raw, p + 16, 4)
        if many < 0:
            raise ValueError("an array that must be there is null")
        out[topic] = tuple(_INT.unpack_from(raw, p + 4 * i)[0] for i in range(many))
        p = _tags(raw, p + 4 * many)
    return out, p


def _bytes(raw: bytes, p: int) -> tuple[bytes, int]:
    n, p = _uvarint(raw, p)
    if n == 0:
        raise ValueError("bytes that must be there are null")
    if n - 1 > len(raw) - p:
        raise ValueError("past the end")
    return raw[p : p + n - 1], p + n - 1


def _named(raw: bytes, p: int) -> tuple[tuple[tuple[str, bytes], ...], int]:
    n, p = _count(raw, p, 3)
    if n < 0:
        raise ValueError("an array that must be there is null")
    out = []
    for _ in range(n):
        name, p = _must(raw, p)
        data, p = _bytes(raw, p)
        p = _tags(raw, p)
        out.append((name, data))
    return tuple(out), p


_READ: dict[str, Callable[[bytes, int], tuple[Any, int]]] = {
    "i": _int,
    "n": _old,
    "s": _must,
    "S": _compact,
    "a": _strings,
    "p": _topics,
    "q": _named,
}

# ---- writing ------------------------------------------------------------------------------------------------------
_SIZES = {"b": 1, "h": 2, "i": 4}


def _number(value: int, size: int) -> bytes:
    try:
        return int(value).to_bytes(size, "big", signed=True)
    except OverflowError:
        raise ValueError("a number is too large") from None


def _put_uvarint(out: bytearray, n: int) -> None:
    while n > 127:
        out.append((n & 0x7F) | 0x80)
        n >>= 7
    out.append(n)


def _put_text(out: bytearray, text: str | None) -> None:
    raw = b"" if text is None else text.encode()
    if len(raw) > _STRING_MAX:
        raise ValueError("a string is too long")
    _put_uvarint(out, 0 if text is None else len(raw) + 1)
    out += raw


def _put_bytes(out: bytearray, data: bytes) -> None:
    if not isinstance(data, bytes):
        raise TypeError("this must be bytes")
    _put_uvarint(out, len(data) + 1)
    out += data


def _put_members(out: bytearray, members: tuple[tuple[str, str | None, bytes], ...]) -> None:
    if not isinstance(members, tuple):
        raise TypeError("members must be a tuple")
    _put_uvarint(out, len(members) + 1)
    for m in members:
        if not isinstance(m, tuple) or len(m) != 3:
            raise TypeError("a member is a tuple of three")
        _put_text(out, m[0])
        _put_text(out, m[1])
        _put_bytes(out, m[2])
        out.append(0)


def _put_topics(out: bytearray, topics: Mapping[bytes, tuple[int, ...]]) -> None:
    if not isinstance(topics, dict):
        raise TypeError("topics must be a dict")
    _put_uvarint(out, len(topics) + 1)
    for topic, parts in topics.items():
        if not isinstance(topic, bytes) or len(topic) != 16 or not isinstance(parts, tuple):
            raise TypeError("a topic is 16 bytes with a tuple of partitions")
        out += topic
        _put_uvarint(out, len(parts) + 1)
        for p in parts:
            out += _number(p, 4)
        out.append(0)
