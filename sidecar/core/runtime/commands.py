"""What the coordinator asks of whoever drives it. owner.py numbers the duties that go with each command.

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
    """Shut out every earlier writer of this partition. Ends as `fenced` or `failed`."""

    partition: int
    attempt: int


ASSIGNED, MOVED, RENEWED = "assigned", "moved from sidecar", "fence renewed"
"""Why a claim was made: a partition was taken over, and its new owner did not know who had it before; from one that is
alive; it has its owner as before."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Append the owner's claim. Ends as `claimed` or `failed`."""

    partition: int
    attempt: int
    why: str


@dataclass(frozen=True, slots=True)
class Follow:
    """Wait until the tail has applied the record at `offset`. Ends as `replayed`."""

    partition: int
    attempt: int
    offset: int


@dataclass(frozen=True, slots=True)
class Renew:
    """Set a new fence while the partition is served. Ends as `renewed`, `not_renewed` or `failed`."""

    partition: int
    attempt: int


@dataclass(slots=True)
class Append:
    """Append these records as one unit, behind all earlier ones. Ends as `committed(serial)` or `failed`."""

    partition: int
    attempt: int
    serial: int
    records: Sequence[Record]


@dataclass(frozen=True, slots=True)
class Stop:
    """This attempt is over: append nothing more for it."""

    partition: int
    attempt: int
    why: str


@dataclass(frozen=True, slots=True)
class Work:
    """Do this in the background. Its end comes back as an event through `done`."""

    partition: int
    attempt: int
    item: Background


class Void(Struct, tag=True, gc=False):
    """What was granted to members of these groups ends now."""

    groups: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TookOver:
    """The partition is being served now. `ms`: since it was assigned."""

    partition: int
    owner_epoch: int
    groups: int
    ms: int


@dataclass(frozen=True, slots=True)
class Occupied:
    """The group has members that commit offsets now, or has none any more; also told of each group that a takeover has
    loaded."""

    partition: int
    group_id: str
    members: bool


Command = (
    Fence | Renew | Claim | Follow | Append | Stop | Work | Void | TookOver | Occupied | Reply | Log | Count | Observe
)
