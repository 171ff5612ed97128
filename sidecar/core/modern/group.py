"""What the machine of epochs and targets asks of a group's hard state, whatever its kind.

Kafka's ModernGroup and ModernGroupMember. A kind keeps its own class and its own records; the machine writes three of
them, and has the group make them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeVar

from sidecar.core.runtime.records import Record
from sidecar.core.vocabulary.topics import TopicImage

LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2
INITIAL_EPOCH = 1
"""KIP-1263: epoch 1 is the empty assignment, the first computed one is 2."""


class ModernMember(Protocol):
    @property
    def member_id(self) -> str: ...

    @property
    def client_id(self) -> str: ...

    @property
    def member_epoch(self) -> int: ...

    @property
    def previous_epoch(self) -> int: ...

    @property
    def holds(self) -> bool:
        """It owns something, or has not given it up yet."""

    def reconciled_to(self, epoch: int) -> bool: ...


class RevokingMember(ModernMember, Protocol):
    """A member of a kind in which one must revoke before another is assigned."""

    @property
    def rebalance_timeout_ms(self) -> int: ...

    @property
    def revokes(self) -> bool:
        """It was told to give something up, and has not said yet that it did."""


M = TypeVar("M", bound=ModernMember, covariant=True)


class ModernGroup(Protocol[M]):
    @property
    def group_id(self) -> str: ...

    @property
    def kind(self) -> str: ...

    @property
    def epoch(self) -> int: ...

    @property
    def metadata_hash(self) -> int: ...

    @property
    def members(self) -> Mapping[str, M]: ...

    @property
    def static_members(self) -> Mapping[str, str]:
        """Instance id -> member id; empty in a kind without static members."""

    @property
    def assignment_epoch(self) -> int: ...

    @property
    def assignment_timestamp_ms(self) -> int: ...

    @property
    def assignor(self) -> str:
        """The one that made the last target; "": none has."""

    @property
    def owners(self) -> Mapping[Any, Any]:
        """Of what is assigned, or not given up yet. Empty: nobody owns anything."""

    def subscribed_topics(self) -> frozenset[str]: ...

    def hash_over(self, image: TopicImage) -> int:
        """Hash of the metadata of all subscribed topics as `image` has them."""

    # ---- its records ------------------------------------------------------------------------------------------
    def epoch_record(self, epoch: int, metadata_hash: int, why: str) -> Record: ...

    def target_epoch_record(self, epoch: int, timestamp_ms: int, why: str) -> Record:
        """The epoch of the target, with the assignor that made the last one."""

    def empty_target_record(self, member_id: str, why: str) -> Record:
        """This member is to own nothing."""
