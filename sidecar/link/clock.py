"""The clock of leases and sessions: it goes on while the host is suspended, as the clocks of other hosts do.

`time.monotonic` does not on Linux: a host that was suspended for a minute would take a lease of 6 s for valid.
"""

from __future__ import annotations

import time


def boot_s() -> float:
    """Seconds since some moment in the past, the same for all processes of a host. Never goes back."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


if not hasattr(time, "CLOCK_BOOTTIME"):  # not Linux: its monotonic clock is the best there is
    boot_s = time.monotonic
