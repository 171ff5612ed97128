"""Until when former owners of a partition may have leases, and so may still answer members.

A lease ends at the latest `ownership.proof_ms` after the next owner was given the partition: brokers refuse its proofs
from then on. Each sidecar counts from when it read the claim of that next owner, by its own clock, so the time does not
begin anew when the partition moves on. The lease is over earlier if the former owner has written to the state topic
(giving_up.py) that it answers no more: it gave the partition up by agreement, left in order, or came back under another
member id. Without such a record the whole time counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Protocol

from sidecar.coordinator.membership.owners_protocol import EVERY_GENERATION, Assignment
from sidecar.coordinator.statelog.tail import StateLog
from sidecar.core.runtime.owner import Owner
from sidecar.core.runtime.turn import Now
from sidecar.core.vocabulary.cache import BoundedCache
from sidecar.state.schema import StateError


class GivenUp(Protocol):
    """The roster: the state topic's records of members of the owners' group."""

    def gave_up(self, member_id: str, generation: int) -> bool:
        """Returns whether this member has recorded that it answers for no partition that the owner map of that
        generation gives to others."""


class FormerOwners:
    def __init__(self, state: StateLog, given_up: GivenUp, assignment: Callable[[], Assignment], lease_ms: int) -> None:
        """`assignment()`: the current owner map of the owners' group."""
        self._state = state
        self._given_up = given_up
        self._assignment = assignment
        self._lease_ms = lease_ms
        self._read_ms: list[dict[str, int]] = [{} for _ in state.partitions]
        """By partition: owner epoch -> monotonic time in ms at which its claim was read."""
        self._claimed = BoundedCache(make=state.codec.claimed_as)

    def set_lease_ends(self, owners: Sequence[Owner]) -> None:
        for owner in owners:
            owner.leases_end_ms = partial(self._leases_end_ms, owner.partition)

    def claim_read(self, partition: int, now_ms: int) -> None:
        claims, read_ms = self._state.partitions[partition].claims, self._read_ms[partition]
        for epoch in reversed(claims):
            if epoch in read_ms:
                break
            read_ms[epoch] = now_ms
        if len(read_ms) > 2 * len(claims):  # old claims are removed from the topic
            self._read_ms[partition] = {epoch: ms for epoch, ms in read_ms.items() if epoch in claims}

    def _leases_end_ms(self, partition: int, at: Now) -> int:
        """Returns the monotonic time in ms at which the last lease of a former owner ends; now if none is open. The
        partition's last claim is that of the present owner."""
        now_ms = at.mono_ms
        read_ms = self._read_ms[partition]
        newest_first = reversed(self._state.partitions[partition].claims.items())
        for (epoch, claim), (_, before) in pairwise(newest_first):
            end_ms = read_ms.get(epoch, now_ms) + self._lease_ms
            if end_ms <= now_ms:
                break
            if not self._is_over(before, claim):
                return end_ms
        return now_ms

    def look_again(self, owners: Sequence[Owner], at: Now) -> None:
        """Ends the owners' doubt early where a former owner has now recorded that it answers no more."""
        for owner in owners:
            if owner.shard is not None and owner.shard.former_leases_end_ms > at.mono_ms:
                owner.shard.set_former_leases_end(owner.leases_end_ms(at), at)

    def _is_over(self, claim: bytes, following: bytes) -> bool:
        """Returns whether the owner that wrote `claim` has had no lease on the partition since claim `following`."""
        try:
            _, member_id, _ = self._claimed[claim]
            _, next_id, generation = self._claimed[following]
        except StateError:
            return False  # damaged: the owner is unknown
        if member_id == next_id:
            return True  # it counts by its last claim
        present = {m for m, _, _ in self._assignment().members.values()}
        # Generations of an earlier group of this name do not count.
        return self._given_up.gave_up(member_id, generation if member_id in present else EVERY_GENERATION)
