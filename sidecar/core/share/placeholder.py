"""The placeholder member: the owner's member in the broker's share group of the same name.

Purpose: the broker initialises the share state of the topics that its members subscribe to, and refuses to alter or
delete that state while it has a member. So the sidecar never initialises share state, and the broker alone fences its
administrators. The placeholder member's assignment serves only as a report of the initialised partitions.

This module decides which placeholder member a group needs, and takes in its reports. Two commands go out, and
coordinator/placeholder carries them out. A group has a placeholder member while it has members that subscribe to a
topic that exists. It leaves when the group is empty. Its reports are void from then on, as an administrator may delete
the state.

**Takeover**: the new owner's placeholder member joins beside those of former owners, and then removes them. The record
names the initialised partitions: assignments go on from there while the broker cannot be asked. The first complete
report of the new one replaces it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from sidecar.core.runtime.records import Tombstone
from sidecar.core.runtime.turn import Turn
from sidecar.core.share.events import PlaceholderLeft
from sidecar.core.share.group import ShareGroup
from sidecar.core.share.records import Kind
from sidecar.core.share.soft_state import ShareSoft

TIMER = "share_placeholder"


@dataclass(frozen=True, slots=True)
class HoldPlaceholder:
    """Background work without an end: keeps a member in the broker's share group, subscribed to these topics, until the
    next command for this group. Each report of the broker comes back as `ShareInitialised` with this `hold_id`.
    `complete`: all their partitions are known to be initialised, so reports are not urgent. Once this member is in,
    those of former owners are removed."""

    group_id: str
    topic_names: tuple[str, ...]
    complete: bool
    hold_id: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class LeavePlaceholder:
    """Background work: takes all placeholder members out of the broker's share group, and tries again until the broker
    has none. Ends as `PlaceholderLeft`. `placeholder_id`: the recorded one; "": no report has named one."""

    group_id: str
    placeholder_id: str


def keep_placeholder(turn: Turn, group: ShareGroup) -> None:
    """Issues the command for the placeholder member that the group needs now, if that has changed. Must be called after
    changes of members, topics or the record."""
    soft: ShareSoft = turn.soft_of(group.group_id)
    if group.members:
        _hold(turn, group, soft)
    elif group.placeholder is not None or type(soft.wanted) is HoldPlaceholder:
        _leave(turn, group, soft)


def _hold(turn: Turn, group: ShareGroup, soft: ShareSoft) -> None:
    names = tuple(sorted(n for n in group.subscribed_topics() if n in turn.image.by_name))
    topics = [turn.image.by_name[n] for n in names]
    known = group.assignable(turn.image)
    soft.uninitialised = any(t.partitions and t.id not in known for t in topics)
    held = soft.wanted
    if not names:
        return  # the broker takes no member without topics, so the former subscription stays
    complete = all(len(known.get(t.id, ())) == t.partitions for t in topics)
    hold_id = held.hold_id if type(held) is HoldPlaceholder else turn.next_run()
    wanted = HoldPlaceholder(group.group_id, names, complete, hold_id)
    if wanted != held:
        soft.wanted = wanted
        turn.fx.background.append(wanted)


def _leave(turn: Turn, group: ShareGroup, soft: ShareSoft) -> None:
    record = group.placeholder
    if record is not None and record.initialised:
        turn.write(replace(record, initialised={}, names={}, why="the group has no members"))
    wanted = LeavePlaceholder(group.group_id, "" if record is None else record.member_id)
    if wanted != soft.wanted:
        soft.wanted, soft.uninitialised = wanted, False
        turn.fx.background.append(wanted)


def left(turn: Turn, e: PlaceholderLeft, token: int) -> None:
    group = turn.groups.get(e.group_id)
    if type(group) is not ShareGroup:
        return
    record, soft = group.placeholder, turn.soft_of(e.group_id)
    if type(soft.wanted) is HoldPlaceholder:
        return  # the next placeholder member is on its way
    if record is not None and record.member_id in ("", e.placeholder_id):
        turn.write(Tombstone(Kind.PLACEHOLDER, e.group_id, "", "the placeholder member has left"))
    soft.wanted = None


def placeholder_there(turn: Turn, group: ShareGroup) -> bool:
    """Whether a placeholder member is at the broker, or may be: that of a former owner is known by its record alone."""
    soft: ShareSoft = turn.soft_of(group.group_id)
    return group.placeholder is not None or soft.wanted is not None


def look_after(turn: Turn, group: ShareGroup, key: tuple[str, ...], tag: int) -> None:
    """Issues the command after a takeover has loaded the group."""
    keep_placeholder(turn, group)
