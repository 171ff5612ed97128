"""Everything that is sent leaves in its order, in pieces, and what is kept of it is counted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

from sidecar.front.outbox import PIECE_BYTES, Outbox
from tests.harness.properties import given, settings, st

WHOLE = bytes(range(256)) * 4_000


class Kernel(asyncio.Transport):
    """A socket buffer with room for some bytes. It keeps whole objects, as uvloop does."""

    def __init__(self, outbox: Outbox, room: int) -> None:
        super().__init__({"ssl_object": None})
        self.outbox, self.room = outbox, room
        self.sent = bytearray()
        self.kept: list[bytes] = []
        self.at = 0
        self.most_kept = 0
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert data
        idle = not self.kept
        self.kept.append(bytes(data))
        self._move()
        if idle and self.kept:
            self.outbox.paused()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.kept += map(bytes, list_of_data)
        self._move()

    def take(self, room: int) -> None:
        self.room += room
        idle = not self.kept
        self._move()
        if not idle and not self.kept:
            self.outbox.resumed()

    def _move(self) -> None:
        self.most_kept = max(self.most_kept, sum(map(len, self.kept)))
        while self.kept and self.room:
            piece = self.kept[0][self.at : self.at + self.room]
            self.sent += piece
            self.room -= len(piece)
            self.at += len(piece)
            if self.at == len(self.kept[0]):
                del self.kept[0]
                self.at = 0

    def get_write_buffer_size(self) -> int:
        return sum(map(len, self.kept)) - self.at

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert (high, low) == (0, 0), "it is full as soon as anything is left, and empty when all has left"

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True


def test_what_the_kernel_takes_is_not_kept() -> None:
    box = Outbox()
    box.open(kernel := Kernel(box, 1 << 30))
    box.write(WHOLE)
    box.write(b"end")
    assert kernel.sent == WHOLE + b"end"
    assert (box.full, box.waiting, box.kept_bytes, box.left_bytes) == (False, False, 0, 0)


def test_a_large_answer_is_with_its_transport_piece_by_piece() -> None:
    """Symptom: an answer of which the kernel had taken all but some bytes was kept whole, and counted as these."""
    box = Outbox()
    box.open(kernel := Kernel(box, len(WHOLE) - 10))
    box.write(WHOLE)
    assert kernel.most_kept <= PIECE_BYTES
    assert box.full and box.left_bytes == 10 and 10 < box.kept_bytes <= PIECE_BYTES
    kernel.take(10)
    assert (box.full, box.kept_bytes) == (False, 0)


def test_what_is_not_taken_is_counted_whole() -> None:
    box = Outbox()
    box.open(kernel := Kernel(box, 100_000))
    box.write(WHOLE)
    assert len(WHOLE) <= box.kept_bytes <= len(WHOLE) + PIECE_BYTES
    box.write(b"more")
    assert box.kept_bytes >= len(WHOLE) + len(b"more")
    assert box.left_bytes == len(WHOLE) - 100_000 + len(b"more")
    kernel.take(1 << 30)
    assert kernel.sent == WHOLE + b"more" and box.kept_bytes == 0


def test_what_is_sent_before_there_is_a_transport_waits_and_counts() -> None:
    box = Outbox()
    box.write(b"first")
    box.write(WHOLE)
    assert box.waiting and box.kept_bytes == box.left_bytes == len(b"first") + len(WHOLE)
    box.open(kernel := Kernel(box, 1 << 30))
    assert kernel.sent == b"first" + WHOLE and box.kept_bytes == 0


@pytest.mark.parametrize("room", [0, 7, 1 << 30])
def test_what_waits_is_sent_before_the_end(room: int) -> None:
    box = Outbox()
    box.open(kernel := Kernel(box, room))
    box.write(b"first")
    box.write(WHOLE)
    box.end()
    assert kernel.closed and not box.waiting
    kernel.take(1 << 30)
    assert kernel.sent == b"first" + WHOLE
    box.end()  # it may be told again


def test_what_is_dropped_is_never_given_to_the_transport() -> None:
    """Symptom: an answer that was in the way, and its client with it, was handed over as a whole before the end."""
    box = Outbox()
    box.open(kernel := Kernel(box, 0))
    box.write(WHOLE)
    box.drop()
    box.end()
    assert kernel.closed and kernel.most_kept <= PIECE_BYTES


@given(st.lists(st.tuples(st.integers(1, 3 * PIECE_BYTES), st.integers(0, 3 * PIECE_BYTES)), max_size=12))
@settings(deadline=None)
def test_however_it_is_taken_all_leaves_in_its_order(steps: list[tuple[int, int]]) -> None:
    box = Outbox()
    box.open(kernel := Kernel(box, 0))
    said = bytearray()
    for n, (size, room) in enumerate(steps):
        part = bytes([n]) * size
        said += part
        box.write(part)
        kernel.take(room)
        held = sum(map(len, kernel.kept)) + sum(map(len, box._waiting))
        assert held <= box.kept_bytes or not held
        assert box.left_bytes == len(said) - len(kernel.sent)
    kernel.take(1 << 30)
    assert kernel.sent == said and box.kept_bytes == 0 and not box.full
