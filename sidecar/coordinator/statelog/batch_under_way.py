"""The batch that a writer has sent and not heard of yet."""

from __future__ import annotations

import time
from dataclasses import dataclass

from sidecar.coordinator.statelog.write_errors import RETRIABLE
from sidecar.core.vocabulary.errors import Code

NO_LEADER = "no leader"


@dataclass(slots=True)
class BatchUnderWay:
    """`timeout_s`: so long it is tried; `most_bytes`: of a batch; the topic may turn out to take less."""

    timeout_s: float
    most_bytes: int
    data: bytes = b""
    """Empty: none is under way."""
    deadline_s: float = 0.0
    last: str = ""
    """What the last try came to."""
    puts: int = 0
    """How often a batch was put: only the last time counts."""
    marker_due: bool = False
    """A transaction is committed, but the partition may not have been told so yet."""

    def begin(self) -> None:
        self.deadline_s = time.monotonic() + self.timeout_s
        self.last = NO_LEADER

    @property
    def left_s(self) -> float:
        return self.deadline_s - time.monotonic()

    def late(self, s: float) -> bool:
        """Whether it has waited for so long."""
        return bool(self.data) and self.timeout_s - self.left_s > s

    def retriable(self, code: int) -> bool:
        """The same batch again is safe: its sequence is the same."""
        return code in RETRIABLE or (code == Code.INVALID_TXN_STATE and self.marker_due)

    def too_large(self) -> None:
        """The topic takes less than we thought."""
        self.most_bytes = len(self.data) // 2
