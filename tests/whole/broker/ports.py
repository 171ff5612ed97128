"""Ports between the simulated cluster and the world that runs it, and the settings of the start."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol


class Handle(Protocol):
    def cancel(self) -> None: ...


class Host(Protocol):
    """The machine of one broker. While it is paused or down it runs no callback; one that came due during a pause runs
    when the pause ends, one of a broker that crashed never (the cluster sees to that by itself, too)."""

    def mono_ms(self) -> int: ...

    def wall_ms(self) -> int: ...

    def later(self, ms: float, fn: Callable[[], None]) -> Handle: ...


class World(Protocol):
    """`rng` is the only source of chance. `reachable`: whether a message that broker `a` sends just now gets to broker
    `b`, and an answer back; false while either is paused or down, or the line between them is cut."""

    rng: random.Random

    def reachable(self, a: int, b: int) -> bool: ...


@dataclass(frozen=True, slots=True)
class Delays:
    """Lowest and highest delay in ms of what takes time inside the cluster; one is drawn for each occasion."""

    network: tuple[float, float] = (0.2, 1.5)
    metadata: tuple[float, float] = (1.0, 20.0)
    load: tuple[float, float] = (1.0, 30.0)
    """Time to load the state of a coordinator that has moved."""
    disk: tuple[float, float] = (0.05, 0.3)


NO_DELAYS = Delays((0, 0), (0, 0), (0, 0), (0, 0))


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """`racks` by node id; `addresses`: what each listener of each broker advertises; `broker`: settings of all brokers
    by Kafka's names, over its defaults in configs.tsv. With an authorizer, `rights` says what a principal may do:
    see rights.py."""

    racks: Mapping[int, str | None]
    addresses: Mapping[tuple[int, str], tuple[str, int]]
    cluster_id: str = "simulated-cluster-id00"
    broker: Mapping[str, str] = field(default_factory=dict)
    delays: Delays = Delays()
    authorizer: bool = False


@dataclass(frozen=True, slots=True)
class Stored:
    """One record as a consumer sees it."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    time_ms: int = -1


@dataclass(frozen=True, slots=True)
class ReadResult:
    """`next_offset` is where the next fetch begins: behind the last record, or behind what compaction left empty."""

    error: int
    records: tuple[Stored, ...] = ()
    next_offset: int = -1
    high_watermark: int = -1
    log_start: int = 0
    topic_id: bytes = b"\0" * 16
    leader_epoch: int = -1
