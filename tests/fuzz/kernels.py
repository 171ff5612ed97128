"""Numbers and bytes for the kernels, as no caller of ours makes them: `_kernel` and `_groups` refuse them or give what
their twins give, and `_columns` reads a value as fastavro does or flags it. Run with `--asan`, none leaves its
buffers."""

from __future__ import annotations

import random
import struct
from array import array
from collections.abc import Callable
from contextlib import suppress
from io import BytesIO
from typing import Any, TypeAlias

import pyarrow as pa
from fastavro import schemaless_reader

from sidecar.assign.layout import problem_of
from sidecar.audit.decode.columns import Compiled
from sidecar.audit.decode.columns import columns as read_columns
from sidecar.native import groups, groups_twin, impl, twin
from tests.assign.oracle import random_case
from tests.native.test_columns import PARSED, SCHEMA, encoded, value
from tests.native.test_groups import share_problem, task_problem

REFUSED = (ValueError, ArithmeticError, TypeError)
Ints: TypeAlias = "array[int]"
Call: TypeAlias = "Callable[[Any, list[Ints]], Any]"


def first(a: Ints) -> int:
    return a[0] if a else 0


def of_members(k: Any, a: list[Ints]) -> Any:
    """Returns the results of all kernels that read a member's part of a table, for each of these members."""
    csr, parts, off, asked = a
    ids = tuple(bytes((i % 256,)) for i in range(len(off) - 1))
    found = k.partitions_all(csr, parts, off, ids, asked)
    for m, had in zip(asked, found, strict=True):
        mine = {t: dict.fromkeys(ps, 1) for t, ps in had.items()}
        assert k.partitions(csr, parts, off, ids, m) == had
        k.held(csr, parts, off, ids, m, mine, frozenset(ids))
        found.append(k.avro_partitions(csr, parts, off, ids, m, b"head"))
    return found


def of_groups(k: Any) -> Any:
    """The kernels of share and streams groups that belong to these."""
    return groups if k is impl else groups_twin


CALLS: tuple[tuple[int, Call], ...] = (
    (6, lambda k, a: k.uniform(*a)),
    (5, lambda k, a: k.range_(*a)),
    (2, lambda k, a: k.by_member(a[0], first(a[1]))),
    (2, lambda k, a: k.remap(*a)),
    (3, lambda k, a: k.changed(a[0], a[1], first(a[2]))),
    (4, of_members),
    (2, lambda k, a: k.avro_strings(bytes(x & 0xFF for x in a[0]), first(a[1]))),
    (9, lambda k, a: of_groups(k).simple(*a)),
    (12, lambda k, a: of_groups(k).sticky(*a[:10], array("q", a[10]), first(a[11]))),
)
"""The number of arrays that each kernel wants, and its call with them."""


def written(call: int, arrays: list[Any]) -> bytes:
    out = bytearray((call,))
    for a in arrays:
        numbers = twin.read(a)
        out += struct.pack("<H", len(numbers)) + struct.pack(f"<{len(numbers)}h", *numbers)
    return bytes(out)


def arrays_of(data: bytes, count: int) -> list[Ints]:
    """Bytes that are missing make arrays shorter."""
    found, at = [], 0
    for _ in range(count):
        size = int.from_bytes(data[at : at + 2], "little")
        raw = data[at + 2 : at + 2 + 2 * size]
        found.append(array("i", struct.unpack(f"<{len(raw) // 2}h", raw[: len(raw) // 2 * 2])))
        at += 2 + 2 * size
    return found


def kernels(data: bytes) -> None:
    count, call = CALLS[(data[0] if data else 0) % len(CALLS)]
    arrays = arrays_of(data[1:], count)
    try:
        got = call(impl, arrays)
    except REFUSED:
        return
    assert got == call(twin, arrays)


def kernel_seeds() -> list[bytes]:
    found = []
    for seed in range(12):
        rng = random.Random(seed)
        p = problem_of(random_case(rng).spec())
        lay, n = p.layout, len(p.members)
        classes = (lay.class_off, lay.class_topics, p.class_of)
        order = array("i", rng.sample(range(n), n))
        owner = impl.uniform(lay.off, lay.id_rank, *classes, p.owner)
        csr = impl.by_member(owner, n)
        few = array("i", rng.sample(range(n), min(n, 9)))
        tasks = task_problem(rng)
        found += [
            written(0, [lay.off, lay.id_rank, *classes, p.owner]),
            written(1, [lay.off, order, *classes]),
            written(2, [owner, array("i", [n])]),
            written(3, [owner, order]),
            written(4, [p.owner, owner, array("i", [n])]),
            written(5, [*csr, lay.off, few]),
            written(6, [array("i", list(twin.avro("a", "of some length", ""))), array("i", [3])]),
            written(7, [*share_problem(rng)]),
            written(8, [*tasks[:10], array("i", [x % 1000 for x in tasks[10]]), array("i", [tasks[11]])]),
        ]
    return found


COMPILED = Compiled(SCHEMA)


def columns(data: bytes) -> None:
    """The first byte says whether the rest is a value, in two pieces, or a program with numbers for it."""
    kind, rest = data[:1], data[1:]
    if kind == b"p":
        ints = arrays_of(rest, 4)
        wide = array("q", ints[2])
        with suppress(ValueError):
            read_columns(ints[0].tobytes(), rest, ints[1].tobytes(), first(ints[3]), wide.tobytes(), len(ints[3]))
        return
    half = len(rest) // 2
    values = [rest, rest[:half], rest[half:]]
    bad, _ = COMPILED.read(pa.array(values, pa.binary()), pa.array(range(3), pa.int64()), 0)
    for raw, flagged in zip(values, bad.to_pylist(), strict=True):
        if not flagged:  # a text that is no UTF-8 is found by whoever reads the column
            with suppress(UnicodeDecodeError):
                schemaless_reader(BytesIO(raw), PARSED, PARSED)


def column_seeds() -> list[bytes]:
    rng = random.Random(1)
    program = array("i", COMPILED._program)
    bounds, which, skip = array("i", [0, 9, 30]), array("i", [0, 1]), array("i", [0])
    found = [b"v" + encoded(value(rng)) for _ in range(12)]
    return [*found, b"p" + written(0, [program, bounds, which, skip])[1:]]
