"""One group as this sidecar's copy of the state topic has it, for people: any sidecar can tell, not its owner alone."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from typing import Any

from sidecar.coordinator.migration.managed_groups import Rules
from sidecar.coordinator.statelog.tail import StateLog
from sidecar.core.classic import records as classic
from sidecar.core.classic.embedded import assigned
from sidecar.core.consumer import records as consumer
from sidecar.core.runtime.records import Record
from sidecar.core.share import records as share
from sidecar.core.streams import records as streams
from sidecar.core.streams.tasks import AssignedTasks
from sidecar.core.vocabulary.placement import partition_for
from sidecar.state.codec import StateCodec
from sidecar.state.keys import StateKey
from sidecar.state.schema import StateError

LOOKED_AT = 16
"""Records between two turns of others: a group may have thousands, and clients must not wait for them."""
SHARE_KINDS, STREAMS_KINDS = frozenset(share.Kind), frozenset(streams.Kind)
Slices = Generator[None, None, Any]


def _there(state: StateLog, group_id: str) -> Mapping[StateKey, bytes]:
    return state.partitions[partition_for(group_id, len(state.partitions))].groups.get(group_id, {})


def _records(state: StateLog, codec: StateCodec, group_id: str) -> Iterable[Record]:
    for key, value in list(_there(state, group_id).items()):  # it may change between two slices
        try:
            yield codec.decode(key, value)[0]
        except StateError:
            continue


def picture(state: StateLog, codec: StateCodec, rules: Rules, group_id: str) -> Slices:
    """The group as a dict, a little at a time. None: neither is it here nor was anything said of it."""
    kinds = {key.kind for key in _there(state, group_id)}
    if not kinds and group_id not in rules.overrides and not rules.wanted(group_id):
        return None
    found: dict[str, object] = {
        "group": group_id,
        "where": rules.whereabouts(group_id),
        "managed": rules.overrides.get(group_id, "as the patterns say"),
        "why": rules.why(group_id),
        "rebalance": rules.order(group_id),
    }
    records = _records(state, codec, group_id)  # one after the other: to let go of thousands takes its time, too
    if classic.Kind.GROUP in kinds:
        found |= yield from _classic(records)
    elif kinds & STREAMS_KINDS:
        found |= yield from _streams(records)
    elif kinds & SHARE_KINDS:
        found |= yield from _share(records)
    elif kinds:
        found |= yield from _consumer(records)
    return found


def _classic(records: Iterable[Record]) -> Slices:
    found: dict[str, object] = {"type": "classic"}
    members: dict[str, dict[str, Any]] = {}
    for i, r in enumerate(records):
        if i % LOOKED_AT == 0:
            yield
        if isinstance(r, classic.GroupRecord):
            found |= {"state": str(r.state), "generation": r.generation, "protocol": r.protocol, "because": r.why}
            found |= {"leader": r.leader} | ({"generation": "unknown until all have joined"} if r.adopted else {})
        elif isinstance(r, classic.MemberRecord):
            claims = [
                {"topic": c.topic, "partitions": list(c.partitions), "generation": c.generation, "holder": c.holder}
                for c in r.stale_claims
            ]
            members.setdefault(r.member_id, {}).update(
                instance=r.instance_id, client=r.client_id, host=r.client_host, stale_claims=claims
            )
        elif isinstance(r, classic.AssignmentRecord):
            owned = assigned(r.assignment)
            told = f"{len(r.assignment)} bytes" if owned is None else {t: list(ps) for t, ps in owned.items()}
            members.setdefault(r.member_id, {})["owns"] = told
    return {**found, "members": (yield from _sorted(members))}


def _consumer(records: Iterable[Record]) -> Slices:
    found: dict[str, object] = {"type": "consumer"}
    members: dict[str, dict[str, Any]] = {}
    for i, r in enumerate(records):
        if i % LOOKED_AT == 0:
            yield
        if isinstance(r, consumer.GroupRecord):
            found |= {"epoch": r.epoch, "because": r.why}
        elif isinstance(r, consumer.TargetMetadataRecord):
            found |= {"assignment_epoch": r.assignment_epoch, "assignor": r.assignor}
        elif isinstance(r, consumer.MemberRecord):
            members.setdefault(r.member_id, {}).update(
                instance=r.instance_id,
                client=r.client_id,
                host=r.client_host,
                protocol="consumer" if r.classic is None else "classic",
            )
        elif isinstance(r, consumer.CurrentRecord):
            names = r.names
            members.setdefault(r.member_id, {}).update(
                epoch=r.member_epoch,
                state=str(r.state),
                owns={names.get(t, t.hex()): sorted(ps) for t, ps in r.assigned.items()},
                gives_up={names.get(t, t.hex()): sorted(ps) for t, ps in r.pending.items()},
            )
    return {**found, "members": (yield from _sorted(members))}


def _streams(records: Iterable[Record]) -> Slices:
    found: dict[str, object] = {"type": "streams"}
    members: dict[str, dict[str, Any]] = {}
    for i, r in enumerate(records):
        if i % LOOKED_AT == 0:
            yield
        if isinstance(r, streams.GroupRecord):
            found |= {"epoch": r.epoch, "because": r.why}
        elif isinstance(r, streams.TargetMetadataRecord):
            found |= {"assignment_epoch": r.assignment_epoch, "assignor": r.assignor}
        elif isinstance(r, streams.MemberRecord):
            who = {"instance": r.instance_id, "client": r.client_id, "host": r.client_host, "process": r.process_id}
            members.setdefault(r.member_id, {}).update(who)
        elif isinstance(r, streams.CurrentRecord):
            tasks = {"owns": _tasks(r.assigned), "gives_up": _tasks(r.pending)}
            members.setdefault(r.member_id, {}).update(epoch=r.member_epoch, state=str(r.state), **tasks)
    return {**found, "members": (yield from _sorted(members))}


def _tasks(held: AssignedTasks) -> dict[str, list[int]]:
    """Active ones by subtopology; standby and warm-up tasks by role and subtopology."""
    found = {s: sorted(ps) for s, ps in held.active.items()}
    found |= {f"standby {s}": sorted(ps) for s, ps in held.standby.items()}
    return found | {f"warm-up {s}": sorted(ps) for s, ps in held.warmup.items()}


def _share(records: Iterable[Record]) -> Slices:
    found: dict[str, object] = {"type": "share"}
    members: dict[str, dict[str, Any]] = {}
    for i, r in enumerate(records):
        if i % LOOKED_AT == 0:
            yield
        if isinstance(r, share.GroupRecord):
            found |= {"epoch": r.epoch, "because": r.why}
        elif isinstance(r, share.TargetMetadataRecord):
            found |= {"assignment_epoch": r.assignment_epoch, "assignor": r.assignor}
        elif isinstance(r, share.MemberRecord):
            members.setdefault(r.member_id, {}).update(client=r.client_id, host=r.client_host)
        elif isinstance(r, share.CurrentRecord):
            owns = {r.names.get(t, t.hex()): sorted(ps) for t, ps in r.assigned.items()}
            members.setdefault(r.member_id, {}).update(epoch=r.member_epoch, owns=owns)
    return {**found, "members": (yield from _sorted(members))}


def _sorted(members: dict[str, dict[str, Any]]) -> Slices:
    found: list[dict[str, Any]] = []
    for i, member_id in enumerate(sorted(members)):
        if i % LOOKED_AT == 0:
            yield
        found.append({"member": member_id, **members[member_id]})
    return found
