"""A worker never outlives its parent: two sidecars of one node id must not be there because the parent of one was
killed."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def dies_with(parent: int) -> None:
    """Ends this process if that parent has ended already."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(0)
