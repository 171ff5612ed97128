"""Random changes to valid bytes, in Python: for `make test` and runs without atheris. The same seed does the same."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

NASTY = (
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\x07",
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\x7f\xff",
    b"\x80\x80\x80\x80\x80",
    b"\xff" * 10,
    b"\x80\x80\x01",
    b"\x00" * 4,
    b"\xc3\x28",
    b"\xed\xa0\x80",
)
"""Lengths that lie, varints that do not end, text that is no UTF-8."""
LONGEST = 8_192


def flip(rng: random.Random, b: bytearray, others: Sequence[bytes]) -> None:
    if b:
        b[rng.randrange(len(b))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))


def nudge(rng: random.Random, b: bytearray, others: Sequence[bytes]) -> None:
    if b:
        at = rng.randrange(len(b))
        b[at] = (b[at] + rng.choice((-2, -1, 1, 2))) % 256


def insert(rng: random.Random, b: bytearray, others: Sequence[bytes]) -> None:
    at = rng.randrange(len(b) + 1)
    b[at:at] = rng.choice(NASTY)


def overwrite(rng: random.Random, b: bytearray, others: Sequence[bytes]) -> None:
    at, what = rng.randrange(len(b) + 1), rng.choice(NASTY)
    b[at : at + len(what)] = what


def cut(rng: random.Random, b: bytearray, others: Sequence[bytes]) -> None:
    del b[rng.randrange(len(b) + 1) :]


def drop(rng: random.Random, b: bytearray, others: Sequence[bytes]) -> None:
    at = rng.randrange(len(b) + 1)
    del b[at : at + rng.randint(1, 8)]


def repeat(rng: random.Random, b: bytearray, others: Sequence[bytes]) -> None:
    at = rng.randrange(len(b) + 1)
    b[at:at] = b[at : at + rng.randint(1, 40)] * rng.randint(1, 4)


def splice(rng: random.Random, b: bytearray, others: Sequence[bytes]) -> None:
    other = rng.choice(others)
    at, of = rng.randrange(len(b) + 1), rng.randrange(len(other) + 1)
    b[at:] = other[of:]


WAYS: tuple[Callable[[random.Random, bytearray, Sequence[bytes]], None], ...] = (
    flip,
    flip,
    nudge,
    insert,
    overwrite,
    cut,
    drop,
    repeat,
    splice,
)


class Mutator:
    def __init__(self, seed: int, seeds: Sequence[bytes]) -> None:
        self._rng = random.Random(seed)
        self._seeds = seeds

    def next(self) -> bytes:
        rng = self._rng
        b = bytearray(rng.choice(self._seeds))
        for _ in range(rng.choice((1, 1, 2, 3, 6))):
            rng.choice(WAYS)(rng, b, self._seeds)
        return bytes(b[:LONGEST])
