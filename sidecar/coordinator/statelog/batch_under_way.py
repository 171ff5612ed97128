"""The batch that a writer has sent and that is not answered yet."""

from __future__ import annotations

import time
from dataclasses import dataclass

from sidecar.coordinator.statelog.write_errors import RETRIABLE
from sidecar.core.vocabulary.errors import Code

NO_LEADER = "no leader"


@dataclass(slots=True)
class BatchUnderWay:
    """The batch and its tries. `timeout_s`: time for which it is tried; `most_bytes`: most bytes of a batch; less once
    the topic has refused one as too large."""

    timeout_s: float
    most_bytes: int
    data: bytes = b""
    """The encoded batch; empty while none is under way."""
    deadline_s: float = 0.0
    last: str = ""
    """The result of the last try."""
    puts: int = 0
    """Number of batches and puts so far; only the answer to the last put counts, and only while its batch lasts."""
    marker_due: bool = False
    """Whether a committed transaction's marker may not be in the partition yet."""

    def begin(self) -> None:
        """Begins a batch, or a write of several: what waits for an answer to the one before counts no more."""
        self.puts += 1
        self.deadline_s = time.monotonic() + self.timeout_s
        self.last = NO_LEADER

    @property
    def left_s(self) -> float:
        return self.deadline_s - time.monotonic()

    def late(self, s: float) -> bool:
        """Returns whether the batch has waited for more than `s` seconds."""
        return bool(self.data) and self.timeout_s - self.left_s > s

    def retriable(self, code: int) -> bool:
        """Returns whether the same batch should be put again, which is safe: its sequence is the same."""
        return code in RETRIABLE or (code == Code.INVALID_TXN_STATE and self.marker_due)

    def too_large(self) -> None:
        """Halves the size of batches, as the topic has refused this one."""
        self.most_bytes = len(self.data) // 2
