"""One partition of the state topic, record by record: the last value of each key, the claims, what is void.

The one copy of these rules: the tail keeps its partitions by it, the audit and the simulation judge by it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar

from sidecar.state.codec import CONFIG, OWNER_CLAIM, SCHEMA, owner_epoch_of
from sidecar.state.keys import StateKey
from sidecar.state.schema import MARK

K = TypeVar("K")
EPOCH_DIGITS = 20
UNFENCED = (OWNER_CLAIM, SCHEMA, CONFIG)
"""Kinds of records that claims do not void: a claim sets the owner epoch, and any sidecar may write the others."""
HOLDING = ("current", "share_current", "streams_current", "classic_assignment")
"""Kinds of records that say what a member holds."""


def claimed_epoch(sub_id: str) -> int | None:
    """Returns the owner epoch that a claim's key names, also where its value is damaged; None if it names none: no
    sidecar writes such a key."""
    return int(sub_id) if sub_id.isascii() and sub_id.isdigit() and len(sub_id) <= EPOCH_DIGITS else None


@dataclass(slots=True)
class Claims:
    """The claims of a partition. A record of another owner than that of the last claim is void: fencing should have
    kept it out. The last claim is the last one in the log, whatever its number: a transactional id that the brokers
    have forgotten gets a new producer id, which may be lower than the one before."""

    claimed: int = -1
    """Owner epoch of the last claim so far."""
    before: int = -1
    """Owner epoch of the claim before that."""
    void: int = 0
    """Number of void records so far; there should be none."""

    def claim(self, owner_epoch: int) -> None:
        self.before, self.claimed = self.claimed, owner_epoch

    def admits(self, owner_epoch: int) -> bool:
        if self.claimed in (-1, owner_epoch):
            return True
        self.void += 1
        return False


@dataclass(slots=True)
class PartitionFold:
    """The state of one partition. `position`: the next offset to come. `groups`: group id -> key -> value bytes."""

    position: int = 0
    records: int = 0
    owners: Claims = field(default_factory=Claims)
    groups: dict[str, dict[StateKey, bytes]] = field(default_factory=dict)
    claims: dict[str, bytes] = field(default_factory=dict)
    configs: dict[str, dict[str, bytes]] = field(default_factory=dict)
    """Settings: group id ("" for brokers) -> name -> value."""
    schemas: set[str] = field(default_factory=set)

    def apply(self, offset: int, key: StateKey, value: bytes | None, owner_epoch: int = -1) -> None:
        """Applies a record. `owner_epoch`: of a tombstone, from its headers; -1 if they have none."""
        self.position = offset + 1
        self.records += 1
        if key.kind == OWNER_CLAIM:
            if value is None:  # an old claim; or none that ever was, which a sidecar writes as a proof
                self.claims.pop(key.sub_id, None)
            elif (epoch := claimed_epoch(key.sub_id)) is not None:
                self.claims[key.sub_id] = value
                self.owners.claim(epoch)
            else:
                self.owners.void += 1
        elif key.kind == SCHEMA:
            if value is not None:
                self.schemas.add(key.sub_id)
        elif key.kind == CONFIG:
            _put(self.configs, key.group_id, key.sub_id, value)
        else:
            # A damaged value has no owner epoch; it is kept, and decoding it reports the damage.
            epoch = owner_epoch if value is None else owner_epoch_of(value) if value[:2] == MARK else -1
            if epoch < 0 or self.owners.admits(epoch):
                _put(self.groups, key.group_id, key, value)


def _put(into: dict[str, dict[K, bytes]], group_id: str, key: K, value: bytes | None) -> None:
    """Sets or removes a value; an empty group is removed as well."""
    if value is not None:
        into.setdefault(group_id, {})[key] = value
    elif (values := into.get(group_id)) is not None:
        values.pop(key, None)
        if not values:
            del into[group_id]
