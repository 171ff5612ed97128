"""The claim on a partition, which its new owner appends first."""

from __future__ import annotations

from sidecar.coordinator.clock import now
from sidecar.coordinator.membership.owners_protocol import Assignment
from sidecar.coordinator.runtime.settings import CoordinatorSettings
from sidecar.core.runtime.commands import ASSIGNED, MOVED
from sidecar.kafka.resolver import joined
from sidecar.state.codec import OWNER_CLAIM, Encoded, Stamp, StateCodec
from sidecar.state.fold import PartitionFold
from sidecar.state.keys import encode_key
from sidecar.state.schema import StateError


def claim_of(
    codec: StateCodec,
    fold: PartitionFold,
    settings: CoordinatorSettings,
    assignment: Assignment,
    owner_epoch: int,
    why: str,
) -> list[Encoded]:
    """Returns the records: schemas that the partition lacks, tombstones of claims too old to be kept, the claim.
    `why`: the reason of the takeover. A sidecar that has just joined the owners' group has not seen the previous owner,
    and takes the reason from the last claim in the log."""
    known = sorted(codec.schemas.texts)
    schemas = [r for r, fp in zip(codec.schema_records(), known, strict=True) if fp not in fold.schemas]
    old = list(fold.claims)[: max(0, len(fold.claims) - settings.claims_kept)]
    member_id = assignment.members.get(settings.node_id, ("", "", 0))[0]
    stamp = Stamp(owner_epoch, now().wall_ms)
    if why == ASSIGNED:
        why = _since_the_last_claim(codec, fold, settings.node_id, assignment)
    identity = (settings.node_id, joined([settings.address]), member_id, assignment.generation)
    claim = codec.claim(stamp, *identity, why, settings.cluster_id)
    return [*schemas, *(Encoded(encode_key(OWNER_CLAIM, "", epoch), None) for epoch in old), claim]


def _since_the_last_claim(codec: StateCodec, fold: PartitionFold, node_id: int, assignment: Assignment) -> str:
    """Returns what happened to the process that claimed the partition last; a member id belongs to one process."""
    last = next(reversed(fold.claims.values()), None)
    if last is None:
        return ASSIGNED
    try:
        before, member_id = codec.claimed_by(last)
    except StateError:
        return ASSIGNED  # damaged: the claimant is unknown, and the audit lists it
    is_now = assignment.members.get(before, ("", "", 0))[0]
    if is_now != member_id:
        return f"sidecar {before} has joined anew" if is_now else f"sidecar {before} is gone"
    return ASSIGNED if before == node_id else f"{MOVED} {before}"
