"""Enough open files for the connections that are allowed: each takes two, the client's and the broker's."""

from __future__ import annotations

import resource

from sidecar.link.ports import Logger

OTHERS = 512
"""Descriptors for the listening sockets, peers, brokers, the tail, threads and libraries."""


def open_files(connections: int, log: Logger) -> int:
    """Raises this process's soft limit as far as it needs and may; returns the new one. Warns of a hard limit that is
    too low: clients that come when all descriptors are used see their connections closed."""
    wanted = 2 * connections + OTHERS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    have = soft
    if soft != resource.RLIM_INFINITY and soft < wanted:
        have = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (have, hard))
        if have < wanted:
            log.warning("too few open files for limits.connections", open_files=have, wanted=wanted)
    return have
