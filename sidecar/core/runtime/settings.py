"""Settings of one sidecar's coordinator that belong to no kind of group."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """`hold_ms`: how long a request waits for a takeover, 0: not at all; `parked_max`: requests without an answer;
    `fence_interval_ms`: how often a fence is renewed, `fence_spread`: by which fraction of that it may come earlier;
    `load_at_once`: a group of at most this many records is loaded with the request that asks for it."""

    hold_ms: int = 3_000
    parked_max: int = 100_000
    fence_interval_ms: int = 3_600_000
    load_at_once: int = 32
    fence_spread: float = 0.5
