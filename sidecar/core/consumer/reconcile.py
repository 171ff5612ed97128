"""Moves one member from its current towards its target assignment, revoking before assigning.

Source: KIP-848 'Member assignment reconciliation'; KIP-1263 'Request Handling' (partitions of topics that a member no
longer subscribes to are revoked at once, though the target is older); Kafka's CurrentAssignmentBuilder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from sidecar.core.consumer.group import Member
from sidecar.core.consumer.records import MemberState
from sidecar.core.runtime.records import Epochs, Partitions


@dataclass(frozen=True, slots=True)
class Target:
    epoch: int
    partitions: Partitions


def reconcile(
    member: Member,
    target: Target,
    subscribed: frozenset[bytes],
    subscription_changed: bool,
    owned: Partitions | None,
    owner_of: Callable[[bytes, int], str | None],
) -> Member:
    """Returns the member's next state. `subscribed`: ids of existing topics of its subscription; `owned`: the
    partitions that it reports to own (None = nothing reported); `owner_of`: the present owner of a partition."""
    if member.state is MemberState.STABLE:
        if member.member_epoch != target.epoch:
            return _towards(member, target, subscribed, owned, owner_of)
        return _drop_unsubscribed(member, subscribed, owned) if subscription_changed else member
    if member.state is MemberState.UNREVOKED_PARTITIONS and _still_owns(owned, member.pending):
        return _drop_unsubscribed(member, subscribed, owned) if subscription_changed else member
    return _towards(member, target, subscribed, owned, owner_of)


def settled(member: Member, epoch: int) -> Member:
    """Returns the next state of a member that has its target already, the common case of a small change in a large
    group."""
    return replace(member, state=MemberState.STABLE, member_epoch=epoch, previous_epoch=member.member_epoch)


def _still_owns(owned: Partitions | None, revoked: Epochs) -> bool:
    """Whether the member still owns revoked partitions; true if it reports none."""
    if owned is None:
        return True
    return any(p in revoked.get(topic, {}) for topic, partitions in owned.items() for p in partitions)


def _drop_unsubscribed(member: Member, subscribed: frozenset[bytes], owned: Partitions | None) -> Member:
    keep = {t: ps for t, ps in member.assigned.items() if t in subscribed}
    if len(keep) == len(member.assigned):
        return member
    pending = {t: dict(ps) for t, ps in member.pending.items()}
    for topic, partitions in member.assigned.items():
        if topic not in subscribed:
            pending.setdefault(topic, {}).update(partitions)
    if _still_owns(owned, pending):
        return replace(
            member,
            state=MemberState.UNREVOKED_PARTITIONS,
            previous_epoch=member.member_epoch,
            assigned=keep,
            pending=pending,
        )
    return replace(member, previous_epoch=member.member_epoch, assigned=keep)


def _towards(
    member: Member,
    target: Target,
    subscribed: frozenset[bytes],
    owned: Partitions | None,
    owner_of: Callable[[bytes, int], str | None],
) -> Member:
    assigned: dict[bytes, dict[int, int]] = {}
    revoke: dict[bytes, dict[int, int]] = {}
    free: dict[bytes, list[int]] = {}
    unreleased = False
    for topic in sorted(target.partitions.keys() | member.assigned.keys()):
        wanted = target.partitions.get(topic, ()) if topic in subscribed else ()
        current: Mapping[int, int] = member.assigned.get(topic, {})
        want = set(wanted)
        keep = {p: e for p, e in current.items() if p in want}
        lose = {p: e for p, e in current.items() if p not in want}
        if keep:
            assigned[topic] = keep
        if lose:
            revoke[topic] = lose
        own_pending = member.pending.get(topic, {})
        for p in wanted:
            if p in keep:
                continue
            # A member may take back a partition that it is giving up: it is still the only owner.
            if owner_of(topic, p) is None or p in own_pending:
                free.setdefault(topic, []).append(p)
            else:
                unreleased = True
    if revoke and _still_owns(owned, revoke):
        return replace(
            member,
            state=MemberState.UNREVOKED_PARTITIONS,
            previous_epoch=member.member_epoch,
            assigned=assigned,
            pending=revoke,
        )
    for topic, partitions in free.items():
        assigned.setdefault(topic, {}).update(dict.fromkeys(partitions, target.epoch))
    return replace(
        member,
        state=MemberState.UNRELEASED_PARTITIONS if unreleased else MemberState.STABLE,
        member_epoch=target.epoch,
        previous_epoch=member.member_epoch,
        assigned=assigned,
        pending={},
    )
