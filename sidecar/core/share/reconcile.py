"""Reconciliation of one member with its target, in one step. Nothing is revoked first: partitions are shared
(KIP-932)."""

from __future__ import annotations

from dataclasses import replace

from sidecar.core.runtime.records import Partitions
from sidecar.core.share.group import Member
from sidecar.core.vocabulary.topics import TopicImage


def reconcile(member: Member, epoch: int, target: Partitions, changed: bool, image: TopicImage) -> Member:
    """Returns the member's next state, as Kafka's ShareGroupAssignmentBuilder. `epoch`: of the target; `changed`: the
    group's epoch has risen with this heartbeat, so the member may not subscribe to all of its target any more."""
    if member.reconciled_to(epoch):
        return replace(member, assigned=member.subscribed(target, image)) if changed else member
    return replace(
        member,
        member_epoch=epoch,
        previous_epoch=member.member_epoch,
        assigned=member.subscribed(target, image),
    )
