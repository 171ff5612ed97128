"""Rebalances that the administrator orders by the setting `sidecar.rebalance` (docs/design/decisions.md, Moves).

The setting is an order: it is in the state topic before the command is answered, and the group's owner removes it when
the rebalance has begun, that is, when the group's record with its reason is committed. So every sidecar sees an order
that is not carried out yet, and the next owner carries it out. If an owner dies between the record and the removal, the
next one finds the order in the group's last record, and only removes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from sidecar.coordinator.moves.managed_groups import Rules
from sidecar.core.runtime.events import Answer, Event, Rebalance
from sidecar.core.vocabulary import group_config as cf
from sidecar.core.vocabulary.errors import Code
from sidecar.kafka.cluster import ConnectionLost
from sidecar.link.ports import Logger, Tasks

PAUSE_S, PAUSE_MAX_S = 0.5, 10.0
"""First and longest pause between two tries of one order. An unreadable group refuses each of them."""


class RebalanceOrders:
    """Carries out orders for a rebalance. `mine(group)`: whether the group is served here; `ask(event)`: asks the core,
    which answers when all is committed; `store(group, values, why)`: writes settings."""

    def __init__(
        self,
        rules: Rules,
        mine: Callable[[str], bool],
        ask: Callable[[Event], Awaitable[Answer]],
        store: Callable[[str, dict[str, str | None], str], Awaitable[None]],
        log: Logger,
        tasks: Tasks,
    ) -> None:
        self._rules = rules
        self._mine = mine
        self._ask = ask
        self._store = store
        self._log = log
        self._tasks = tasks
        self._orders: dict[str, str] = {}
        """Group -> its last order, which the group's record will have as its reason."""
        self._at_work: set[str] = set()

    def begin(self) -> None:
        """Collects the open orders, once the state topic has been read to its end."""
        self._orders = {g: self._rules.settings.order(g) for g in self._rules.settings.groups_with(cf.REBALANCE)}

    def stored(self, group_id: str) -> None:
        """Takes in an order that was written to the state topic, or removed from it."""
        order = self._rules.settings.order(group_id)
        if order:
            self._orders[group_id] = order
        else:  # done, perhaps by the next owner while this one still tried
            self._orders.pop(group_id, None)
        self.tick()

    def tick(self) -> None:
        """Begins open orders of groups served here; called about every 50 ms, so that a new owner finds them too."""
        for group_id in self._orders.keys() - self._at_work:
            if self._mine(group_id):
                self._at_work.add(group_id)
                self._tasks.spawn(self._carry_out(group_id), "rebalance")

    async def _carry_out(self, group_id: str) -> None:
        tried, pause_s = "", PAUSE_S
        try:
            while self._mine(group_id) and (order := self._orders.get(group_id)) is not None:
                first, tried = order != tried, order
                if not await self._once(group_id, order, first):
                    pause_s = PAUSE_S if first else min(2 * pause_s, PAUSE_MAX_S)
                    await asyncio.sleep(pause_s)
        finally:
            self._at_work.discard(group_id)

    async def _once(self, group_id: str, order: str, first: bool) -> bool:
        """Tries to carry the order out; returns whether it needs no further try."""
        if self._rules.settings.state.last_reason(group_id) != order:
            if first:
                self._log.info("rebalance asked for", group_id=group_id, why=order)
            answer = await self._ask(Rebalance(group_id, order))
            if answer.code not in (Code.NONE, Code.GROUP_ID_NOT_FOUND):
                return False
        if self._orders.get(group_id) != order:
            return True  # another order came meanwhile; it is not to be removed with this one
        try:
            await self._store(group_id, {cf.REBALANCE: None}, "the rebalance has begun")
        except ConnectionLost as exc:
            self._log.debug("an order stays", group_id=group_id, problem=str(exc))
            return False
        if self._orders.get(group_id) == order:
            del self._orders[group_id]
        return True
