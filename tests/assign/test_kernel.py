"""The compiled kernels and their twins give the same, and refuse what is out of range."""

from __future__ import annotations

import random
from array import array

import pytest

from sidecar.core.assignor import problem_of
from sidecar.kernel import _kernel, twin
from tests.assign.oracle import random_case


@pytest.mark.parametrize("seed", range(150))
def test_twins_agree(seed: int) -> None:
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
    ],
)
def test_bad_indices_are_refused(args: tuple[array[int], ...]) -> None:
    with pytest.raises(ValueError, match="range"):
        _kernel.uniform(*args)


def test_what_is_no_buffer_of_ints_is_refused() -> None:
    with pytest.raises(ValueError, match="32-bit"):
        _kernel.by_member(b"abc", 1)
    with pytest.raises(TypeError):
        _kernel.by_member("abc", 1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="range"):
        _kernel.by_member(ints(3), 1)
    with pytest.raises(ValueError, match="range"):
        _kernel.partitions(ints(0, 9), ints(1), ints(0, 4), (b"x",), 0)
