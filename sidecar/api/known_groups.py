"""Asks the coordinator which groups have records in the state topic, some at a time: it looks them up in one turn."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

from sidecar.api import slices
from sidecar.api.call import Want, coordinate
from sidecar.core.runtime.events import GroupsWithRecords, GroupsWithRecordsReply
from sidecar.core.vocabulary.errors import Code


def groups_with_records(groups: Sequence[str]) -> Generator[Want, Any, GroupsWithRecordsReply]:
    """Returns those of the groups that have records, or the coordinator's first error."""
    known: set[str] = set()
    for at in range(0, len(groups), slices.CHECKED):
        candidates = tuple(groups[at : at + slices.CHECKED])
        reply: GroupsWithRecordsReply = yield from coordinate(GroupsWithRecords(candidates=candidates))
        if reply.code != Code.NONE:
            return reply
        known |= reply.groups
    return GroupsWithRecordsReply(groups=frozenset(known))
