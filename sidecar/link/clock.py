"""The clock of leases and sessions: it goes on while the host is suspended, as the clocks of other hosts do.

`time.monotonic` does not on Linux: a host that was suspended for a minute would take a lease of 6 s for valid.
"""

from __future__ import annotations

import time

CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""For `time.clock_gettime`: the same for all processes of a host, and it never goes back."""
