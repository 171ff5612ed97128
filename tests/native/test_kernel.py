"""The compiled kernels and their twins give the same, and refuse what is out of range."""

from __future__ import annotations

import random
from array import array
from typing import Any

import pytest

from sidecar.assign.layout import problem_of
from sidecar.core.consumer.target_table import TargetAssignment
from sidecar.native import _kernel, twin
from tests.assign.oracle import random_case
from tests.harness.properties import given, st
from tests.harness.tiers import seeds_of_run


def test_twins_agree() -> None:
    for seed in seeds_of_run(150):
        twins_agree(seed)


def twins_agree(seed: int) -> None:
    case = random_case(random.Random(10_000 + seed))
    p = problem_of(case.spec())
    lay, n = p.layout, len(p.members)
    args = (lay.class_off, lay.class_topics, p.class_of)
    owner = _kernel.uniform(lay.off, lay.id_rank, *args, p.owner)
    assert owner == twin.uniform(lay.off, lay.id_rank, *args, p.owner)
    order = array("i", random.Random(seed).sample(range(n), n))
    assert _kernel.range_(lay.off, order, *args) == twin.range_(lay.off, order, *args)
    csr = _kernel.by_member(owner, n)
    assert csr == twin.by_member(owner, n)
    to = array("i", [-1 if i % 3 == 0 else i // 2 for i in range(n)])
    assert _kernel.remap(owner, to) == twin.remap(owner, to)
    assert _kernel.changed(p.owner, owner, n) == twin.changed(p.owner, owner, n)
    heads = tuple(i + b"\x04ab" for i in lay.ids)
    assert _kernel.partitions_all(*csr, lay.off, lay.ids, order) == twin.partitions_all(*csr, lay.off, lay.ids, order)
    for m in range(n):
        assert _kernel.partitions(*csr, lay.off, lay.ids, m) == twin.partitions(*csr, lay.off, lay.ids, m)
        got = _kernel.avro_partitions(*csr, lay.off, heads, m, b"head")
        assert got == twin.avro_partitions(*csr, lay.off, heads, m, b"head")


def ints(*values: int) -> array[int]:
    return array("i", values)


@pytest.mark.parametrize(
    "args",
    [
        (ints(0, 4), ints(0), ints(0, 1), ints(1), ints(0), ints(-1, -1, -1, -1)),  # a class names a topic too many
        (ints(0, 4), ints(0), ints(0, 1), ints(0), ints(1), ints(-1, -1, -1, -1)),  # a member of no class
        (ints(0, 4), ints(0), ints(0, 1), ints(0), ints(0), ints(1, -1, -1, -1)),  # an owner that is no member
        (ints(0, 4), ints(0), ints(0, 1), ints(0), ints(0), ints(-1)),  # too few owners
        (ints(0, 4), ints(0), ints(0, 2), ints(0), ints(0), ints(-1, -1, -1, -1)),  # offsets beyond the end
        (ints(4, 0), ints(0), ints(0, 1), ints(0), ints(0), ints()),  # offsets that fall
        (ints(), ints(), ints(), ints(), ints(), ints()),
        (ints(0, 4), ints(0), ints(0, 2), ints(0, 0), ints(0), ints(-1, -1, -1, -1)),  # a class names a topic twice
        (ints(0, 1, 2), ints(0, 1), ints(0, 2, 3), ints(1, 0, 1), ints(0, 1), ints(-1, -1)),  # in another order
    ],
)
def test_bad_indices_are_refused(args: tuple[array[int], ...]) -> None:
    with pytest.raises(ValueError, match="range"):
        _kernel.uniform(*args)


@pytest.mark.parametrize("order", [ints(0, 0), ints(1, 2), ints(-1, 0), ints(0), ints(0, 1, 2)])
def test_an_order_that_is_no_permutation_is_refused(order: array[int]) -> None:
    """Symptom: who was there twice was given partitions of both, and memory behind the result was written to."""
    off, classes = ints(0, 1, 2), (ints(0, 1, 3), ints(0, 0, 1), ints(0, 1))
    assert _kernel.range_(off, ints(1, 0), *classes) == twin.range_(off, ints(1, 0), *classes)
    with pytest.raises(ValueError, match="range"):
        _kernel.range_(off, order, *classes)


@pytest.mark.parametrize(
    "args",
    [
        (ints(0, 1), ints(3), ints(4), (), 0),  # partitions, but no topic
        (ints(0, 1), ints(0), ints(3, 1, 4), (b"a", b"b"), 0),  # offsets that fall
        (ints(0, 2), ints(2, 0), ints(0, 2, 4), (b"a", b"b"), 0),  # partitions that do not ascend by topic
    ],
)
def test_a_table_that_is_none_is_refused(args: Any) -> None:
    csr, parts, off, ids, member = args
    for call in (
        lambda: _kernel.partitions(*args),
        lambda: _kernel.partitions_all(csr, parts, off, ids, ints(member)),
        lambda: _kernel.avro_partitions(csr, parts, off, ids, member, b""),
        lambda: _kernel.held(csr, parts, off, ids, member, {i: {0: 1} for i in ids}, frozenset(ids)),
    ):
        with pytest.raises(ValueError, match="range"):
            call()


@pytest.mark.parametrize("impl", [_kernel.avro_strings, twin.avro_strings], ids=["compiled", "twin"])
@pytest.mark.parametrize("count", [-1, -5, 1 << 62])
def test_a_count_that_cannot_be_is_refused(impl: Any, count: int) -> None:
    with pytest.raises(ValueError, match="does not end"):
        impl(b"\2a", count)


def test_what_is_no_buffer_of_ints_is_refused() -> None:
    with pytest.raises(ValueError, match="32-bit"):
        _kernel.by_member(b"abc", 1)
    with pytest.raises(TypeError):
        _kernel.by_member("abc", 1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="range"):
        _kernel.by_member(ints(3), 1)
    with pytest.raises(ValueError, match="range"):
        _kernel.partitions(ints(0, 9), ints(1), ints(0, 4), (b"x",), 0)


@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.text(max_size=200) | st.binary(max_size=200)))
def test_avro_parts(parts: list[int | str | bytes]) -> None:
    assert _kernel.avro(*parts) == twin.avro(*parts)


@given(st.lists(st.text(max_size=200), max_size=4), st.binary(max_size=3))
def test_avro_strings_come_back(texts: list[str], more: bytes) -> None:
    raw = twin.avro(*texts) + more
    assert _kernel.avro_strings(raw, len(texts)) == twin.avro_strings(raw, len(texts)) == tuple(texts)


@given(st.binary(max_size=30), st.integers(0, 4))
def test_avro_strings_of_anything(raw: bytes, count: int) -> None:
    found: list[object] = []
    for impl in (_kernel.avro_strings, twin.avro_strings):
        try:
            found.append(impl(raw, count))
        except ValueError:
            found.append("refused")
    assert found[0] == found[1]


@pytest.mark.parametrize("impl", [_kernel.avro_strings, twin.avro_strings], ids=["compiled", "twin"])
def test_strings_that_are_cut_off_anywhere_are_refused(impl: Any) -> None:
    """The length may fit into all of the bytes, but not into those that are left."""
    texts = ("kind", "a group of some length", "m" * 70)
    raw = twin.avro(*texts)
    assert impl(raw, 3) == texts
    for cut in range(len(raw)):
        with pytest.raises(ValueError, match="does not end"):
            impl(raw[:cut], 3)


HEADERS = st.lists(st.tuples(st.text(max_size=9), st.binary(max_size=200)), max_size=3).map(tuple)


@given(st.lists(st.tuples(st.binary(max_size=200), st.none() | st.binary(max_size=400), HEADERS)))
def test_records_of_a_batch(items: list[tuple[bytes, bytes | None, tuple[tuple[str, bytes], ...]]]) -> None:
    assert _kernel.records(items) == twin.records(items)


@given(st.lists(st.integers(0, 3), min_size=9, max_size=9), st.data())
def test_held(owners: list[int], data: st.DataObject) -> None:
    """A member has its part of the table, or something near it; its topics may be fewer."""
    off, ids = ints(0, 2, 5, 9), (b"a", b"b", b"c")
    csr, parts = twin.by_member(ints(*owners), 4)
    mine = {t: dict.fromkeys(ps, 7) for t, ps in twin.partitions(csr, parts, off, ids, 1).items()}
    if data.draw(st.booleans()) and mine:
        ps = mine[data.draw(st.sampled_from(sorted(mine)))]
        ps[data.draw(st.integers(0, 3))] = 1
        if data.draw(st.booleans()):
            del ps[min(ps)]
    if data.draw(st.booleans()):
        mine[data.draw(st.sampled_from((*ids, b"d")))] = {0: 1}
    within = data.draw(st.sets(st.sampled_from(ids), min_size=2))
    got = twin.held(csr, parts, off, ids, 1, mine, within)
    assert _kernel.held(csr, parts, off, ids, 1, mine, within) is got
    target = TargetAssignment(None, {"m": twin.partitions(csr, parts, off, ids, 1)})
    assert target.held("m", mine, frozenset(within)) is got


def test_what_is_no_record_is_refused() -> None:
    bad: Any
    for bad in ([b"k"], [("k", b"v", ())], [(b"k", b"v", [])], [(b"k", b"v", (("h",),))], [(b"k", 1, ())]):
        with pytest.raises(TypeError):
            _kernel.records(bad)
    with pytest.raises(OverflowError):
        _kernel.avro(2**63)
    with pytest.raises(TypeError):
        _kernel.held(ints(0, 1), ints(0), ints(0, 1), (b"x",), 0, {b"x": (0,)}, {b"x"})  # type: ignore[dict-item]


@given(st.dictionaries(st.text(max_size=3), st.integers(-1, 2**31 - 1)), st.lists(st.text(max_size=3)))
def test_lookup(table: dict[str, int], keys: list[str]) -> None:
    keys += table
    got = _kernel.lookup(keys, table)
    assert got == twin.lookup(keys, table) and len(twin.read(got)) == len(keys)
    with pytest.raises(OverflowError):
        _kernel.lookup(["x"], {"x": 2**31})
    with pytest.raises(TypeError):
        _kernel.lookup([[]], table)
