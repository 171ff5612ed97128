"""A broker in memory that keeps groups which the sidecars may take in, and members of groups that move."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import replace
from typing import Any

import pytest

from sidecar.coordinator.moves.moves import MoveSettings
from sidecar.coordinator.moves.unstable_groups import Patience
from sidecar.core.classic.embedded import assignment
from sidecar.core.runtime.phases import Phase
from sidecar.kafka import native
from sidecar.kafka.cluster import ConnectionLost
from sidecar.kafka.native import Member, Native
from sidecar.wire.generated import heartbeat as hb
from tests.core.classic_client import subscription
from tests.inprocess import clock
from tests.inprocess.embedded_sidecar import EmbeddedClient, EmbeddedSidecar, until
from tests.inprocess.messages import beat, join

QUICK = MoveSettings(settle_s=0.01, hold_s=0.5, patience=Patience(limit_s=0.3, look_s=0.01))


class Broker:
    """The broker's answers about a group, and the members that it was asked to remove."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, group: Native) -> None:
        self.group = group
        self.asked = 0
        self.silent = self.cut_off = False
        self.held_up: asyncio.Event | None = None
        """If set, no member is removed before this event."""
        self.gone: list[str] = []
        monkeypatch.setattr(native, "describe", self._describe)
        monkeypatch.setattr(native, "send_away", self._send_away)
        monkeypatch.setattr(native, "leave_one_by_one", self._leave_one_by_one)

    async def _describe(self, conn: object, group_id: str, timeout_s: float) -> Native:
        self.asked += 1
        if self.silent:
            raise TimeoutError
        return self.group

    async def _send_away(self, conn: object, group_id: str, members: Any, reason: str, timeout_s: float) -> None:
        if self.cut_off:
            raise ConnectionLost("a test")
        if self.held_up is not None:
            await self.held_up.wait()
        self._without(members)

    async def _leave_one_by_one(self, conn: object, found: Native, group_id: str, timeout_s: float) -> None:
        if self.cut_off:
            raise ConnectionLost("a test")
        self._without(found.members)

    def _without(self, members: Iterable[Member]) -> None:
        self.gone += [m.member_id for m in members]
        left = tuple(m for m in self.group.members if m.member_id not in self.gone)
        self.group = replace(self.group, members=left) if left else Native(native.NO_MEMBERS)


def run(test: Callable[[EmbeddedSidecar], Coroutine[Any, Any, None]], **given: Any) -> None:
    async def main() -> None:
        sidecar = EmbeddedSidecar(**{"partitions": 1, "consumer": {"join_wait_ms": 0}, "moves": QUICK, **given})
        async with sidecar:
            await sidecar.topics(orders=2)
            await test(sidecar)

    clock.run(main())


async def store_settings(sidecar: EmbeddedSidecar, group_id: str, **values: str | None) -> None:
    named = {f"sidecar.{n}": v for n, v in values.items()}
    await sidecar.stored.put(group_id, named, "changed by a test", sidecar.coordinator.append_unfenced)


def classic(*members: str, state: str = "Stable") -> Native:
    said, given = subscription(["orders"], {}, 4), assignment(3, [("orders", (0,))])
    natives = tuple(Member(m, None, "app", "/h", said, given) for m in members)
    return Native(native.CLASSIC, state, natives, "consumer", "range")


def beats(member_id: str, generation: int, group: str = "g") -> hb.HeartbeatRequest:
    return hb.HeartbeatRequest(group, generation, member_id)


async def at_work(sidecar: EmbeddedSidecar, client: EmbeddedClient) -> int:
    """Member m1 of group g owns both partitions; its epoch."""
    epoch = (await client.ask(join("g", "m1"), 1)).member_epoch
    group: Any = sidecar.owner_of("g").shard.groups["g"]  # type: ignore[union-attr]
    while not group.members["m1"].assigned:
        epoch = (await client.ask(beat("g", "m1", epoch), 1)).member_epoch
        await asyncio.sleep(0.005)
    return int(epoch)


async def being_taken_over(sidecar: EmbeddedSidecar) -> None:
    """The only partition is another's for a moment, and then what is written there is being read."""
    sidecar.assign(2)
    sidecar.hold_tail()
    sidecar.assign(1)
    await until(lambda: sidecar.coordinator.service.owners[0].phase is Phase.REPLAYING)
