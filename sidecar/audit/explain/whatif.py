"""Dry run of members that leave or join: the real coordinator and the real assignor run on the group's state in the
log. All changes come within one assignment interval, so into one target assignment. Nothing is written anywhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any

from sidecar.audit.explain.dry_runs import DRY_RUNS, DryRun
from sidecar.audit.explain.model import ExplainError, Move, WhatIf
from sidecar.audit.explain.replay import INTERVAL_MS, MONO_MS, Replayed
from sidecar.core.runtime.effects import Log
from sidecar.core.runtime.events import NO_TOKEN
from sidecar.core.runtime.shard import Shard
from sidecar.core.runtime.turn import Now
from sidecar.core.vocabulary.topics import TopicImage

Held = dict[tuple[str, int], set[str]]
"""(Topic or subtopology, partition) -> ids of members."""
CLASSIC_NOTE = (
    "It is a classic group: its leader, a client, runs the assignor, and no sidecar knows what it would decide. "
    "All members would join again; with the protocol cooperative-sticky they keep meanwhile what they have."
)

DOWNGRADE_NOTE = (
    "The last members of the consumer protocol would be gone, and the group would become a classic one: its leader, a "
    "client, would run the assignor."
)


def what_if(
    replayed: Replayed,
    image: TopicImage,
    assignors_of: Callable[[str], Mapping[str, Any]],
    leaves: Sequence[str] = (),
    joins: int = 0,
) -> WhatIf:
    """Returns the moves that a change of membership would cause. `assignors_of`: returns those of a kind of group;
    `leaves`: members by id, instance id, client id or the beginning of their id; `joins`: number of new members, with
    the most common subscription. Raises ExplainError, also for an assignor that is not installed here and for an
    unknown member."""
    shard = replayed.shard(image)
    group = replayed.group(shard)
    outcome, assignors = WhatIf(replayed.group_id, tuple(leaves), joins), assignors_of(group.kind)
    run = DRY_RUNS.get(type(group))
    if run is None:
        return replace(outcome, note=CLASSIC_NOTE)
    wanted = getattr(group, "votes", None) or Counter([group.assignor] if group.assignor else [])
    if missing := [name for name in wanted if name not in assignors]:
        what = f"The assignor {', '.join(missing)} is not installed here."
        raise ExplainError(what, "Install its package beside this one.")
    outcome = replace(outcome, leaves=tuple(_member(group, text) for text in leaves), assignor=group.assignor)
    held = _held(shard, group, replayed.names | dict(image.names), now=True)
    before = _target(replayed, image, assignors, run)
    after = _target(replayed, image, assignors, run, outcome.leaves, joins)
    if before is None or after is None:
        return replace(outcome, note=DOWNGRADE_NOTE)
    write = shard.registry.kinds[group.kind].inspect.place
    moves = tuple(
        Move(write(*place), holder, to, _same(before.get(place, set()), holder, to))
        for place in sorted(held.keys() | before.keys() | after.keys())
        for holder, to in _moved(held.get(place, set()), after.get(place, set()))
    )
    kept = sum(len(after.get(place, set()) & holders) for place, holders in held.items())
    return replace(outcome, moves=moves, kept=kept)


def _moved(holders: set[str], heirs: set[str]) -> Iterable[tuple[str, str]]:
    """Returns the members that lose a partition or task, each with one that gets it; "" for no member. Partitions of
    share groups and standby tasks may have several of each."""
    return zip_longest(sorted(holders - heirs), sorted(heirs - holders), fillvalue="")


def _same(before: set[str], holder: str, to: str) -> bool:
    """Returns whether this move would also come without the change."""
    return holder not in before and (to in before if to else not before)


def _member(group: Any, text: str) -> str:
    """Returns the id of the member that `text` names. Raises ExplainError unless it is exactly one."""
    if text in group.members:
        return text
    ids = [
        str(m.member_id)
        for m in group.members.values()
        if text in (getattr(m, "instance_id", None), m.client_id) or m.member_id.startswith(text)
    ]
    if len(ids) == 1:
        return ids[0]
    problem = "no member is called so" if not ids else f"{len(ids)} members are called so: {', '.join(ids)}"
    raise ExplainError(f"{text}: {problem}.", f"sidecar groups members {group.group_id} shows all members.")


def _target(
    replayed: Replayed,
    image: TopicImage,
    assignors: Mapping[str, Any],
    run: DryRun,
    leaves: Sequence[str] = (),
    joins: int = 0,
) -> Held | None:
    """Returns the target assignment after the change. None if the group would become a classic one, whose leader
    assigns. Raises ExplainError."""
    shard = replayed.shard(image, assignors, run.config)
    group = replayed.group(shard)
    now = Now(MONO_MS, group.assignment_timestamp_ms)  # within the interval: all changes come into one assignment
    joining = run.joins(group, joins)
    if joining is None:
        what = f"{replayed.group_id} has no members, so nobody knows what a new one would subscribe to."
        raise ExplainError(what, "Ask again when it has a member.")
    for event in (*run.leaves(group, leaves), *joining):
        shard.handle(event, NO_TOKEN, now)
    changed = shard.groups.get(replayed.group_id)
    if type(changed) is type(group):
        for event in run.beat(changed):
            shard.handle(event, NO_TOKEN, now)
    _assign(shard, Now(now.mono_ms + INTERVAL_MS, now.wall_ms + INTERVAL_MS))
    changed = shard.groups.get(replayed.group_id)
    if type(changed) is not type(group):
        return None
    return _held(shard, changed, replayed.names | dict(image.names), now=False)


def _held(shard: Shard, group: Any, names: Mapping[bytes, str], now: bool) -> Held:
    """Returns the members' partitions or tasks: if `now`, those they own or must still give up, else their targets."""
    view = shard.registry.kinds[group.kind].inspect.member
    held: Held = {}
    for member_id in group.members:
        m = view(group, member_id, names)
        assert m is not None
        for owned in (m.owns, m.gives_up) if now else (m.target,):
            for key, partitions in {} if isinstance(owned, str) else owned.items():
                for partition in partitions:
                    held.setdefault((key, partition), set()).add(member_id)
    return held


def _assign(shard: Shard, now: Now) -> None:
    """Runs the assignor by waking the shard. Raises ExplainError if the assignor fails."""
    for note in shard.wake(now).notes:
        if isinstance(note, Log) and note.event == "assignor failed":
            fields = note.fields
            what = f"The assignor {fields['assignor']} fails on this group: {fields['error']}"
            raise ExplainError(what, "It would fail in the sidecars as well. Mend it, or name another assignor.")
