"""Requests for settings: describes, checks and stores settings as Kafka does.

Settings that brokers do not know (offload, moves) are kept in the state topic, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

from sidecar.coordinator.moves.managed_groups import Rules
from sidecar.coordinator.settings.settings_in_force import SettingsInForce
from sidecar.coordinator.settings.stored_settings import Append
from sidecar.coordinator.statelog.read_index import ReadIndex
from sidecar.coordinator.statelog.write_errors import WriteLost
from sidecar.core.runtime.events import Answer, Event
from sidecar.core.vocabulary import group_config as cf
from sidecar.core.vocabulary.errors import TEXT, Code, CoordinatorError
from sidecar.link.messages import (
    AlterReply,
    AlterSettings,
    CheckGroupIsBrokers,
    ConfiguredGroups,
    ConfiguredReply,
    DescribeSettings,
    SettingChange,
    SettingsReply,
)

KNOWN_WITHIN_S = 5.0
"""Seconds that a request for settings waits until the broker has answered with its own settings."""
AT_ONCE = 64
"""Groups that a request describes or checks before the loop turns: each takes some 20 microseconds."""
T = TypeVar("T")


class SettingsRequests:
    """Answers requests. `configs`: the settings in force; `rules`: the managed groups; `written`: the read index."""

    def __init__(self, configs: SettingsInForce, rules: Rules, read_index: ReadIndex) -> None:
        self.configs = configs
        self.rules = rules
        self.read_index = read_index
        self._settings = rules.settings

    async def handle(self, event: Event, append: Append) -> Answer:
        """Returns the answer. Before the broker has answered with its own settings, that is an error."""
        if isinstance(event, CheckGroupIsBrokers):
            return await self._group_is_brokers(event)
        try:
            async with asyncio.timeout(KNOWN_WITHIN_S):
                await self.configs.broker.known.wait()
        except TimeoutError:
            return _not_available(event)
        if isinstance(event, AlterSettings):
            return await self._alter(event, append)
        if isinstance(event, DescribeSettings):
            return await self._describe(event)
        assert isinstance(event, ConfiguredGroups)
        return ConfiguredReply(groups=tuple(self.configured()))

    async def _describe(self, event: DescribeSettings) -> SettingsReply:
        reply = SettingsReply(moves={"": self._moves("")})
        async for g in _in_turns(event.groups):
            at_broker = self.configs.broker.groups.get(g, {})
            if not event.own or at_broker or self.configs.own(g):
                reply.groups[g], reply.at_broker[g] = self.configs.describe(g), at_broker
                reply.moves[g] = self._moves(g)
        return reply

    async def _group_is_brokers(self, event: CheckGroupIsBrokers) -> Answer:
        """Answers when the front's rules for a group are surely up to date: the tail has read all records that were
        written, and fronts receive them at once. Else refuses."""
        if await self.read_index.is_read({self._settings.partition_of(""), self._settings.partition_of(event.name)}):
            return Answer(Code.NONE)
        return _not_available(event)

    async def _alter(self, event: AlterSettings, append: Append) -> AlterReply:
        refused: dict[str, tuple[int, str | None]] = {}
        async for change in _in_turns(event.changes):
            key = f"{change.resource_type}/{change.name}"
            try:
                self._check(change)
                if not event.validate_only and change.values:
                    await self._store(change, event.client, append)
            except CoordinatorError as exc:
                refused[key] = (exc.code, exc.message)
            except WriteLost as exc:
                refused[key] = (Code.REQUEST_TIMED_OUT, str(exc))
        return AlterReply(refused=refused)

    def _check(self, change: SettingChange) -> None:
        """Raises CoordinatorError, with Kafka's message, if the change is not valid."""
        moves = {n: v for n, v in change.values.items() if n in (*cf.GROUP_MOVES, *cf.BROKER_MOVES)}
        for name, value in moves.items():
            if value is not None:
                cf.check_move(name, value)
        settings = {n: v for n, v in change.values.items() if n not in moves}
        if settings and change.resource_type == cf.GROUP:
            after = {**self.configs.own(change.name), **settings}
            cf.validate({n: v for n, v in after.items() if v is not None}, self.configs.effective())
        for name, value in change.values.items() if change.resource_type == cf.BROKER else ():
            if value is not None and name in cf.BROKER_OFFLOADS:
                cf.parse(cf.BROKER_OFFLOADS[name], value)

    async def _store(self, change: SettingChange, client: str, append: Append) -> None:
        group_id = change.name if change.resource_type == cf.GROUP else ""
        values = {key if group_id else f"{change.name}/{key}": value for key, value in change.values.items()}
        if group_id and cf.MANAGED in values and cf.VERDICT in self._settings.all(group_id):
            values[cf.VERDICT] = None
        await self._settings.put(group_id, values, f"changed by {client}", append)

    def _moves(self, group_id: str) -> dict[str, str]:
        """Returns the settings that only sidecars know: those of moves, and the group's place or move."""
        names = cf.GROUP_MOVES if group_id else cf.BROKER_MOVES
        stored = self._settings.all(group_id)
        values = {n: stored.get(n if group_id else f"/{n}") for n in names}
        settings = {n: v for n, v in values.items() if v is not None}
        if group_id:
            settings[cf.STATE] = self.rules.whereabouts(group_id)
            settings[cf.WHY] = self._settings.why(group_id)
            if (order := self.rules.overrides.get(group_id)) is not None:
                settings[cf.MANAGED] = order
            settings[cf.EPOCH] = str(self._settings.state.last_assignment(group_id))
        return settings

    def configured(self) -> list[str]:
        """Returns the managed groups that have settings of their own in the state topic."""
        return sorted(g for p in self._settings.state.partitions for g in p.configs if g and self.rules.managed(g))


async def _in_turns(items: Iterable[T]) -> AsyncIterator[T]:
    """Yields the items of a request, which may be many; the loop turns in between."""
    for n, item in enumerate(items, 1):
        yield item
        if n % AT_ONCE == 0:
            await asyncio.sleep(0)


def _not_available(event: Event) -> Answer:
    code = Code.COORDINATOR_NOT_AVAILABLE
    return event.refused(code, TEXT[code])
