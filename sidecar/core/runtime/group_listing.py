"""Requests that name no group: which groups have their coordinator here."""

from __future__ import annotations

from collections.abc import Sequence

from sidecar.core.runtime.commands import Command
from sidecar.core.runtime.effects import Reply
from sidecar.core.runtime.events import GroupsWithRecords, GroupsWithRecordsReply, ListGroups, ListReply
from sidecar.core.runtime.owner import Owner
from sidecar.core.runtime.pending_requests import Held, LogView, Tally
from sidecar.core.runtime.phases import Phase
from sidecar.core.runtime.turn import Now
from sidecar.core.vocabulary.errors import Code
from sidecar.core.vocabulary.placement import partition_for


class GroupListing:
    def __init__(self, owners: Sequence[Owner], log: LogView, hold_ms: int, tally: Tally, out: list[Command]) -> None:
        self._owners, self._log = owners, log
        self._hold_ms = hold_ms
        self._tally, self._out = tally, out
        self._held: list[Held] = []
        """ListGroups that wait until all groups are loaded."""

    def answer_groups_with_records(self, token: int, event: GroupsWithRecords) -> None:
        self._out.append(
            Reply(token, GroupsWithRecordsReply(groups=frozenset(filter(self._has_records, event.candidates))))
        )

    def _has_records(self, group_id: str) -> bool:
        owner = self._owners[partition_for(group_id, len(self._owners))]
        if owner.shard is not None:
            return owner.has(group_id)
        return group_id in self._log.groups(owner.partition)

    def answer_list(self, token: int, event: ListGroups, now: Now) -> None:
        """Lists every group whose coordinator is here; a partition in a takeover fails the whole list (row 1.27 of
        docs/reference/behaviour.md). The answer waits for groups that are being loaded."""
        owners = [o for o in self._owners if o.lease.valid(now)]
        taking_over = any(o.phase not in (Phase.ELSEWHERE, Phase.SERVING) for o in owners)
        if taking_over or any(o.phase is Phase.SERVING and o.lease.in_doubt(now) for o in self._owners):
            self._out.append(Reply(token, ListReply(Code.COORDINATOR_LOAD_IN_PROGRESS)))
        elif not any(o.loader.queue.left for o in owners):
            shards = [o.shard for o in owners if o.shard is not None]
            self._out.append(Reply(token, ListReply(groups=tuple(g for s in shards for g in s.listed()))))
        elif self._hold_ms:
            self._tally.open += 1
            self._held.append(Held(token, event, now.mono_ms + self._hold_ms))
        else:
            self._out.append(Reply(token, ListReply(Code.COORDINATOR_LOAD_IN_PROGRESS)))

    def go_on(self, now: Now) -> None:
        """Answers or refuses the waiting ListGroups requests whose groups are loaded or whose time is over."""
        held, self._held = self._held, []
        loading = bool(held) and any(o.loader.queue.left for o in self._owners)
        for h in held:
            if loading and now.mono_ms < h.until_ms:
                self._held.append(h)
                continue
            self._tally.open -= 1
            if loading:
                self._out.append(Reply(h.token, ListReply(Code.COORDINATOR_LOAD_IN_PROGRESS)))
            else:
                self.answer_list(h.token, ListGroups(), now)
