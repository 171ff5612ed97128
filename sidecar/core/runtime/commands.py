"""Commands of the coordinator to its driver. owner.py numbers the driver's duties for each command.

`attempt` numbers the takeovers of one partition: an answer to a command of an earlier attempt is dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec import Struct

from sidecar.core.runtime.effects import Background, Count, Log, Observe, Reply
from sidecar.core.runtime.records import Record


@dataclass(frozen=True, slots=True)
class Fence:
    """Shuts out every earlier writer of this partition. Ends as `fenced` or `failed`.

    `again`: an earlier attempt failed, maybe because a newer map names another owner. So the brokers have to confirm
    the map first."""

    partition: int
    attempt: int
    again: bool = False


ASSIGNED, MOVED, RENEWED = "assigned", "moved from sidecar", "fence renewed"
"""Reasons of a claim. ASSIGNED: a takeover whose previous owner is unknown, or was this sidecar. MOVED: from a sidecar
that is alive. RENEWED: the owner stays."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Appends the owner's claim. Ends as `claimed` or `failed`."""

    partition: int
    attempt: int
    why: str


@dataclass(frozen=True, slots=True)
class Follow:
    """Waits until the tail has applied the record at `offset`, and the brokers have confirmed the map since the fence.
    Ends as `replayed`."""

    partition: int
    attempt: int
    offset: int


@dataclass(frozen=True, slots=True)
class Renew:
    """Sets a new fence while the partition is served. Ends as `renewed`, `not_renewed` or `failed`."""

    partition: int
    attempt: int


@dataclass(slots=True)
class Append:
    """Appends these records as one unit, behind all earlier ones. Ends as `committed(serial)` or `failed`. Without
    records it only proves that the fence holds."""

    partition: int
    attempt: int
    serial: int
    records: Sequence[Record]


@dataclass(frozen=True, slots=True)
class Stop:
    """Ends an attempt: the driver appends nothing more for it."""

    partition: int
    attempt: int
    why: str


@dataclass(frozen=True, slots=True)
class Work:
    """Runs `item` in the background. Its end comes back as an event through `done`."""

    partition: int
    attempt: int
    item: Background


class Void(Struct, tag=True, gc=False):
    """Ends every grant to members of these groups."""

    groups: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TookOver:
    """Reports that the partition is served now, `ms` after its assignment."""

    partition: int
    owner_epoch: int
    groups: int
    ms: int


@dataclass(frozen=True, slots=True)
class Occupied:
    """Reports that the group has members that commit offsets now, or none any more. Sent also for each group that a
    takeover has loaded."""

    partition: int
    group_id: str
    members: bool


Command = (
    Fence | Renew | Claim | Follow | Append | Stop | Work | Void | TookOver | Occupied | Reply | Log | Count | Observe
)
