"""What would move if members left or joined: a dry run of the real coordinator and the real assignor on the state of
the group as it stands in the log. All changes come within one assignment interval, so into one assignment. Nothing is
written anywhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sidecar.assign.spec import Assignor
from sidecar.audit.explain.model import ExplainError, Move, WhatIf
from sidecar.audit.explain.replay import INTERVAL_MS, MONO_MS, Replayed
from sidecar.core.classic.events import LeaveGroup, Leaving
from sidecar.core.consumer.events import ConsumerHeartbeat
from sidecar.core.consumer.group import ConsumerGroup
from sidecar.core.runtime.effects import Log
from sidecar.core.runtime.events import NO_TOKEN
from sidecar.core.runtime.shard import Shard
from sidecar.core.runtime.turn import Now
from sidecar.core.vocabulary.topics import TopicImage

Owners = dict[tuple[bytes, int], str]
CLASSIC_NOTE = (
    "It is a classic group: its leader, a client, runs the assignor, and no sidecar knows what it would decide. "
    "All members would join again; with the protocol cooperative-sticky they keep meanwhile what they have."
)

DOWNGRADE_NOTE = (
    "The last members of the consumer protocol would be gone, and the group would become a classic one: its leader, a "
    "client, would run the assignor."
)


@dataclass(frozen=True, slots=True)
class Change:
    """`leaves`: members by id, instance id, client id or the beginning of their id; `joins`: so many new members, which
    subscribe to what most members subscribe to."""

    leaves: tuple[str, ...] = ()
    joins: int = 0


def what_if(told: Replayed, image: TopicImage, assignors: Mapping[str, Assignor], change: Change) -> WhatIf:
    """Raises ExplainError, also for an assignor that is not installed here and a member that is not there."""
    shard = told.shard(image, assignors)
    group = shard.groups.get(told.group_id)
    if group is None:
        raise ExplainError(f"There is no group {told.group_id} in the state topic.", "sidecar groups list shows all.")
    if not isinstance(group, ConsumerGroup):
        led = shard.registry.kinds[group.kind].inspect.phases
        note = CLASSIC_NOTE if led else f"It is a {group.kind} group, and there is a dry run of consumer groups only."
        return WhatIf(told.group_id, change.leaves, change.joins, "", note=note)
    wanted = group.votes or Counter([group.assignor] if group.assignor else [])
    if missing := [name for name in wanted if name not in assignors]:
        what = f"The assignor {', '.join(missing)} is not installed here."
        raise ExplainError(what, "Install its package beside this one.")
    leaves = tuple(_member(group, text) for text in change.leaves)
    held = {(t, p): m for t, owners in group.owners.items() for p, m in owners.items()}
    before = _target(told, image, assignors, group.assignor, Change())
    after = _target(told, image, assignors, group.assignor, Change(leaves, change.joins))
    if before is None or after is None:
        return WhatIf(told.group_id, leaves, change.joins, group.assignor, note=DOWNGRADE_NOTE)
    names = told.names | dict(image.names)
    moves = []
    for place in sorted(held.keys() | before.keys() | after.keys(), key=lambda p: (names.get(p[0], p[0].hex()), p[1])):
        holder, anyway, to = held.get(place, ""), before.get(place, ""), after.get(place, "")
        if holder != to:
            topic = names.get(place[0]) or place[0].hex()
            moves.append(Move(f"{topic}-{place[1]}", holder, to, anyway == to))
    kept = sum(after.get(place) == holder for place, holder in held.items())
    return WhatIf(told.group_id, leaves, change.joins, group.assignor, tuple(moves), kept)


def _member(group: ConsumerGroup, text: str) -> str:
    """The id of the member that is meant. Raises ExplainError."""
    if text in group.members:
        return text
    found = [
        m.member_id
        for m in group.members.values()
        if text in (m.instance_id, m.client_id) or m.member_id.startswith(text)
    ]
    if len(found) == 1:
        return found[0]
    said = "no member is called so" if not found else f"{len(found)} members are called so: {', '.join(found)}"
    raise ExplainError(f"{text}: {said}.", f"sidecar groups members {group.group_id} shows all members.")


def _target(
    told: Replayed, image: TopicImage, assignors: Mapping[str, Assignor], default: str, change: Change
) -> Owners | None:
    """Who would own what once all have reconciled. None: no assignor of a sidecar's would decide that."""
    shard = told.shard(image, assignors, default)
    group = shard.groups[told.group_id]
    assert isinstance(group, ConsumerGroup)
    now = Now(MONO_MS, group.assignment_timestamp_ms)  # within the interval: all changes come into one assignment
    if change.leaves:
        gone = tuple(Leaving(m, None, "what if") for m in change.leaves)
        shard.handle(LeaveGroup(told.group_id, gone), NO_TOKEN, now)
    for hb in _joins(group, change.joins):
        shard.handle(hb, NO_TOKEN, now)
    found = shard.groups.get(told.group_id)
    if isinstance(found, ConsumerGroup):
        _heartbeat(shard, found, now)
    later = Now(now.mono_ms + INTERVAL_MS, now.wall_ms + INTERVAL_MS)
    _assign(shard, later)
    found = shard.groups.get(told.group_id)
    if not isinstance(found, ConsumerGroup):
        return None
    return {(t, p): m for m in found.members for t, ps in found.target.of(m).items() for p in ps}


def _heartbeat(shard: Shard, group: ConsumerGroup, now: Now) -> None:
    """The first one of anybody finds out that topics have changed."""
    for m in group.members.values():
        if m.classic is None and m.member_epoch > 0:
            who = {"instance_id": m.instance_id, "client_id": m.client_id, "client_host": m.client_host}
            shard.handle(ConsumerHeartbeat(group.group_id, m.member_id, m.member_epoch, **who), NO_TOKEN, now)  # type: ignore[arg-type]
            return


def _assign(shard: Shard, now: Now) -> None:
    """Raises ExplainError if the assignor fails."""
    for note in shard.wake(now).notes:
        if isinstance(note, Log) and note.event == "assignor failed":
            fields = note.fields
            what = f"The assignor {fields['assignor']} fails on this group: {fields['error']}"
            raise ExplainError(what, "It would fail in the sidecars as well. Mend it, or name another assignor.")


def _joins(group: ConsumerGroup, count: int) -> Sequence[ConsumerHeartbeat]:
    """Raises ExplainError in a group without members, to whose topics nobody subscribes."""
    if not count:
        return ()
    common = Counter((m.topic_names, m.topic_regex) for m in group.members.values()).most_common(1)
    if not common:
        what = f"{group.group_id} has no members, so nobody knows what a new one would subscribe to."
        raise ExplainError(what, "Ask again when it has a member.")
    (names, regex), _ = common[0]
    return [
        ConsumerHeartbeat(
            group.group_id,
            f"new-{i}",
            0,
            rebalance_timeout_ms=300_000,
            topic_names=names,
            topic_regex=regex,
            owned={},
            client_id=f"new-{i}",
            client_host="/",
        )
        for i in range(1, count + 1)
    ]
