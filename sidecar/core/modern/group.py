"""The hard state of a group of any kind with epochs, as far as epochs and targets need it.

Kafka's ModernGroup and ModernGroupMember. A kind keeps its own class and its own records; the shared code writes three
of them, and has the group make them.
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
        """Whether the member owns partitions, or has not given them up yet."""

    def reconciled_to(self, epoch: int) -> bool: ...


class RevokingMember(ModernMember, Protocol):
    """A member of a kind in which partitions are revoked from one member before another gets them."""

    @property
    def rebalance_timeout_ms(self) -> int: ...

    @property
    def revokes(self) -> bool:
        """Whether the member must give partitions up, and has not confirmed it yet."""


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
        """Name of the assignor that made the last target; "": there was none."""

    @property
    def owners(self) -> Mapping[Any, Any]:
        """Owners of the partitions that are assigned, or not given up yet. Empty: no partition has an owner."""

    def subscribed_topics(self) -> frozenset[str]: ...

    def hash_over(self, image: TopicImage) -> int:
        """Returns the hash of the metadata of all subscribed topics, as `image` has them."""

    # ---- its records ------------------------------------------------------------------------------------------
    def epoch_record(self, epoch: int, metadata_hash: int, why: str) -> Record: ...

    def target_epoch_record(self, epoch: int, timestamp_ms: int, why: str) -> Record:
        """Makes the record of the target's epoch, with the assignor that made the last target."""

    def empty_target_record(self, member_id: str, why: str) -> Record:
        """Makes the record of an empty target for this member."""
