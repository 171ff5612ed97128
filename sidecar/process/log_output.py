"""stderr of a worker. A line that cannot be written is lost: neither a full disk nor a reader of the log that has gone
ends what serves clients."""

from __future__ import annotations

import io
import sys
from typing import Any


class LogOutput(io.FileIO):
    """A file whose writes never fail."""

    def write(self, data: Any) -> int:
        try:
            written = super().write(data)
        except OSError:
            written = None
        return len(data) if written is None else written  # None: it is not blocking, and full


def lose_what_cannot_be_written() -> None:
    """Replaces sys.stderr. Without this a line of the log would raise in the middle of the work that it reports, and
    the interpreter would end with code 120, by which the parent starts no other worker."""
    former = sys.stderr
    raw = LogOutput(former.fileno(), "w", closefd=False)
    sys.stderr = io.TextIOWrapper(
        io.BufferedWriter(raw), encoding=former.encoding, errors=former.errors, line_buffering=True
    )
