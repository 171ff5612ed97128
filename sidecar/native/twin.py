"""The kernels in plain Python: the fallback for installs without a compiler, and the oracle that tests `_kernel.c`.

Arrays are buffers of 32-bit integers. A partition's global number is `off[topic] + partition`; a member is
identified by its index. The algorithms are those of Kafka's UniformHomogeneousAssignmentBuilder,
UniformHeterogeneousAssignmentBuilder and RangeAssignor.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Mapping, Sequence, Set
from typing import Any, TypeAlias, TypeVar

from sidecar.native.balance import Heterogeneous

Ints: TypeAlias = "bytes | bytearray | array[int]"
Id = TypeVar("Id", bytes, str)
"""Id of a topic or of a subtopology."""


def read(buffer: Ints) -> Sequence[int]:
    return memoryview(buffer).cast("B").cast("i")


def pack(values: Sequence[int]) -> bytearray:
    return bytearray(array("i", values).tobytes())


def uniform(off: Ints, id_rank: Ints, class_off: Ints, class_topics: Ints, class_of: Ints, owner: Ints) -> bytearray:
    """Return the new owner of each partition. `id_rank` maps a topic to the rank of its id in Kafka's order, and
    `class_of` a member to its subscription class `c`, whose topics are `class_topics[class_off[c]:class_off[c + 1]]`.
    `owner` is the last target."""
    offs, bounds, flat, of = read(off), read(class_off), read(class_topics), read(class_of)
    classes = [list(flat[bounds[c] : bounds[c + 1]]) for c in range(len(bounds) - 1)]
    owners = list(read(owner))
    if not of:
        return pack(owners)
    if len(classes) == 1:
        return pack(_homogeneous(offs, classes[0], len(of), owners))
    return pack(Heterogeneous(offs, read(id_rank), classes, of, owners).build())


def _homogeneous(off: Sequence[int], topics: Sequence[int], n: int, owner: list[int]) -> list[int]:
    """Returns the new owners. Each member has a quota: one above it gives up its last partitions, one below it takes
    free ones."""
    rest: list[int] = []
    held: list[list[int]] = [[] for _ in range(n)]
    wanted = set(topics)
    for t in range(len(off) - 1):
        for q in range(off[t], off[t + 1]):
            if t not in wanted:
                owner[q] = -1
            elif owner[q] < 0:
                rest.append(q)
            else:
                held[owner[q]].append(q)
    quota_min, extra = divmod(sum(off[t + 1] - off[t] for t in topics), n)
    lacking: list[int] = []
    for m, mine in enumerate(held):
        has_extra = extra > 0
        quota = quota_min + has_extra
        rest += mine[quota:]
        quota -= min(quota, len(mine))
        if quota > 0 and has_extra and n - m > extra:
            # Leave the extra partition to a later member, unless every member that is left has to take one.
            quota, has_extra = quota - 1, False
        lacking.append(quota)
        extra -= has_extra
    free = iter(rest)
    for m, count in enumerate(lacking):
        for _, q in zip(range(count), free, strict=False):
            owner[q] = m
    if next(free, None) is not None:
        raise ArithmeticError("partitions were left unassigned")
    return owner


def range_(off: Ints, order: Ints, class_off: Ints, class_topics: Ints, class_of: Ints) -> bytearray:
    """Deal out each topic in contiguous runs to its subscribers, which come in `order`."""
    offs, bounds, flat, of = read(off), read(class_off), read(class_topics), read(class_of)
    subscribers = [0] * (len(offs) - 1)
    for c in of:
        for t in flat[bounds[c] : bounds[c + 1]]:
            subscribers[t] += 1
    owner = [-1] * offs[-1]
    at = list(offs[:-1])
    sizes = [divmod(offs[t + 1] - offs[t], n) if n else (0, 0) for t, n in enumerate(subscribers)]
    each, extra = [s[0] for s in sizes], [s[1] for s in sizes]
    for m in read(order):
        c = of[m]
        for t in flat[bounds[c] : bounds[c + 1]]:
            stop = at[t] + each[t]
            if extra[t] > 0:
                extra[t] -= 1
                stop += 1
            for q in range(at[t], stop):
                owner[q] = m
            at[t] = stop
    return pack(owner)


def by_member(owner: Ints, members: int) -> tuple[bytearray, bytearray]:
    """Return (offsets, partitions): member `m` has `partitions[offsets[m]:offsets[m + 1]]`, in ascending order."""
    held: list[list[int]] = [[] for _ in range(members)]
    for q, m in enumerate(read(owner)):
        if m >= 0:
            held[m].append(q)
    off = [0]
    for mine in held:
        off.append(off[-1] + len(mine))
    return pack(off), pack([q for mine in held for q in mine])


def remap(owner: Ints, to: Ints) -> bytearray:
    """Return the owners after member `m` became `to[m]`, which is -1 if the member is gone."""
    new = read(to)
    return pack([-1 if m < 0 else new[m] for m in read(owner)])


def changed(before: Ints, after: Ints, members: int) -> tuple[bytearray, int]:
    """Return (flags, moved): a flag for each member whose partitions differ, and how many partitions have a new
    owner. A partition that has lost its owner and got none is not counted as moved."""
    flags = bytearray(members)
    moved = 0
    for a, b in zip(read(before), read(after), strict=True):
        if a != b:
            if a >= 0:
                flags[a] = 1
            if b >= 0:
                flags[b] = 1
                moved += 1
    return flags, moved


def _runs(csr: Ints, parts: Ints, off: Ints, member: int) -> list[tuple[int, list[int]]]:
    bounds, offs = read(csr), read(off)
    runs: list[tuple[int, list[int]]] = []
    for q in read(parts)[bounds[member] : bounds[member + 1]]:
        t = bisect_right(offs, q) - 1
        if not runs or runs[-1][0] != t:
            runs.append((t, []))
        runs[-1][1].append(q - offs[t])
    return runs


def partitions(csr: Ints, parts: Ints, off: Ints, ids: tuple[Id, ...], member: int) -> dict[Id, tuple[int, ...]]:
    """Return one member's partitions as topic id -> sorted partitions, with the topics in the order of `ids`."""
    return {ids[t]: tuple(ps) for t, ps in _runs(csr, parts, off, member)}


def partitions_all(
    csr: Ints, parts: Ints, off: Ints, ids: tuple[Id, ...], members: Ints
) -> list[dict[Id, tuple[int, ...]]]:
    """Return `partitions` for each of these members."""
    return [partitions(csr, parts, off, ids, m) for m in read(members)]


def lookup(keys: Sequence[Any], table: Mapping[Any, int]) -> bytearray:
    """Look each key up in a mapping; a key that is missing gives -1."""
    return pack([table.get(k, -1) for k in keys])


def held(
    csr: Ints,
    parts: Ints,
    off: Ints,
    ids: tuple[bytes, ...],
    member: int,
    had: Mapping[bytes, Mapping[int, int]],
    within: Set[bytes],
) -> bool:
    """Return whether the member has exactly its partitions (`had`), and all their topics are in `within`."""
    runs = _runs(csr, parts, off, member)
    return len(runs) == len(had) and all(
        ids[t] in within and len(ps) == len(mine := had.get(ids[t], {})) and all(p in mine for p in ps)
        for t, ps in runs
    )


def zigzag(out: bytearray, n: int) -> None:
    """Append a 64-bit number as a zigzag varint, the way Avro and Kafka's record format write it."""
    n = (n << 1) ^ (n >> 63)
    while n > 127:
        out.append((n & 0x7F) | 0x80)
        n >>= 7
    out.append(n)


def avro(*parts: int | str | bytes) -> bytes:
    """Encode numbers and strings as Avro does; bytes are copied unchanged."""
    out = bytearray()
    for part in parts:
        if isinstance(part, str):
            data = part.encode()
            zigzag(out, len(data))
            out += data
        elif isinstance(part, bytes):
            out += part
        else:
            zigzag(out, part)
    return bytes(out)


def avro_strings(raw: bytes, count: int) -> tuple[str, ...]:
    """Decode the first `count` strings of an Avro value. Raises ValueError if it holds fewer."""
    if count < 0:
        raise ValueError("a string does not end")
    found: list[str] = []
    p = 0
    for _ in range(count):
        n = shift = 0
        while True:
            if p >= len(raw) or shift > 63:
                raise ValueError("a string does not end")
            n |= (raw[p] & 0x7F) << shift
            shift += 7
            p += 1
            if raw[p - 1] < 128:
                break
        size = (n >> 1) ^ -(n & 1)
        if not 0 <= size <= len(raw) - p:
            raise ValueError("a string does not end")
        found.append(raw[p : p + size].decode())
        p += size
    return tuple(found)


def records(items: list[tuple[bytes, bytes | None, tuple[tuple[str, bytes], ...]]]) -> bytes:
    """Encode the records of a batch from (key, value, headers). Offset deltas count from 0; attributes and time
    deltas are 0 (KIP-98)."""
    body = bytearray()
    for i, (key, value, headers) in enumerate(items):
        rec = avro(b"\0\0", i, len(key), key, -1 if value is None else len(value), value or b"", len(headers))
        rec += b"".join(avro(name, len(data), data) for name, data in headers)
        body += avro(len(rec), rec)
    return bytes(body)


def avro_partitions(csr: Ints, parts: Ints, off: Ints, heads: tuple[bytes, ...], member: int, head: bytes) -> bytes:
    """Return `head` and then an Avro array with one record for each topic: `heads[topic]` unchanged, and an array of
    the member's partitions."""
    out = bytearray(head)
    runs = _runs(csr, parts, off, member)
    if runs:
        zigzag(out, len(runs))
    for t, ps in runs:
        out += heads[t]
        zigzag(out, len(ps))
        for p in ps:
            zigzag(out, p)
        out.append(0)
    out.append(0)
    return bytes(out)


def avro_owned(parts: Mapping[bytes, Mapping[int, int]], heads: Mapping[bytes, bytes], head: bytes) -> bytes:
    """Return `head` and then an Avro array with one record for each topic: `heads[topic]` unchanged, an array of
    partitions, and an array of their epochs."""
    out = bytearray(head)
    if parts:
        zigzag(out, len(parts))
    for topic, epochs in parts.items():
        out += heads[topic]
        for values in (epochs.keys(), epochs.values()):
            if values:
                zigzag(out, len(values))
            for v in values:
                zigzag(out, v)
            out.append(0)
    out.append(0)
    return bytes(out)
