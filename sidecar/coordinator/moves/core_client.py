"""The coordinator as a client of its own core: its requests, and its questions about groups."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Any

from sidecar.coordinator.clock import now
from sidecar.core.runtime.events import Answer, Event
from sidecar.core.runtime.registry import Group
from sidecar.core.runtime.service import Service
from sidecar.link.messages import Reply, ToFront

COORDINATORS_OWN = (1 << 16) - 1
"""Stands for a front's number in tokens of the coordinator's own requests."""


class CoreClient:
    """Client of the core. `configs[(kind, group)]`: the settings in force; `run_commands()` carries out the core's
    commands. The answers come as they come to a front, by `from_coordinator`."""

    def __init__(
        self, service: Service, configs: Mapping[tuple[str, str], Any], run_commands: Callable[[], None]
    ) -> None:
        self._service, self._configs = service, configs
        self._run_commands = run_commands
        self._asked: dict[int, asyncio.Future[Answer]] = {}
        self._last = 0

    async def ask(self, event: Event) -> Answer:
        """Returns the core's answer, which comes when all records of the event are committed."""
        self._last = key = self._last + 1
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._asked[key] = future
        self._service.request(key << 16 | COORDINATORS_OWN, event, now())
        self._run_commands()
        return await future

    def from_coordinator(self, message: ToFront) -> None:
        """Takes in a message that the core sends to a front: a Reply answers an open request."""
        if isinstance(message, Reply):
            future = self._asked.pop(message.token, None)
            if future is not None and not future.done():
                future.set_result(message.answer)

    # ---- questions ------------------------------------------------------------------------------------------
    def serves(self, partition: int) -> bool:
        """Returns whether this sidecar serves the partition under a valid lease."""
        owner = self._service.owners[partition]
        return owner.shard is not None and owner.lease.valid(now())

    def serves_group(self, group_id: str) -> bool:
        """Returns whether this sidecar is the group's coordinator, whether the group exists or not."""
        return self.serves(self._service.partition_of(group_id))

    def settings(self, kind: str, group_id: str) -> Any:
        """Returns the settings that a group of this kind works with here."""
        return self._configs[kind, group_id]

    def has(self, group_id: str) -> bool:
        return self._service.owner_of(group_id).has(group_id)

    def member_ids(self, group_id: str) -> Collection[str]:
        group = self._group(group_id)
        return () if group is None else group.member_ids()

    def kind_of_members(self, group_id: str) -> str:
        """Returns the kind of this group; "" if it has no members."""
        group = self._group(group_id)
        return group.kind if group is not None and group.member_count() else ""

    def knows_topics(self, group_id: str, topic_ids: Collection[bytes], names: Collection[str] = ()) -> bool:
        """Returns whether the group's coordinator knows all these topics, by id or name."""
        shard = self._service.owner_of(group_id).shard
        if shard is None:
            return False
        return all(t in shard.image.by_id for t in topic_ids) and all(n in shard.image.by_name for n in names)

    def _group(self, group_id: str) -> Group | None:
        shard = self._service.owner_of(group_id).shard
        return None if shard is None else shard.groups.get(group_id)
