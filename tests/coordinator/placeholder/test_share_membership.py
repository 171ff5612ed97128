"""The requests of share placeholders to one broker, of which only some are under way at a time."""

from __future__ import annotations

import asyncio
from typing import Any

from sidecar.coordinator.placeholder.share_membership import ANSWER_S, AT_ONCE, ShareMembership
from sidecar.kafka.cluster import ConnectionLost
from tests.inprocess import clock
from tests.inprocess.embedded_sidecar import Lines


class SilentBroker:
    """A cluster whose brokers accept connections and answer nothing."""

    def __init__(self) -> None:
        self.asked = 0

    async def lane(self, node_id: int, lane: Any, which: int = 0) -> SilentBroker:
        return self

    async def request(self, *args: Any, timeout_s: float, **kwargs: Any) -> None:
        self.asked += 1
        await asyncio.sleep(timeout_s)
        raise TimeoutError


def test_who_waits_for_a_broker_that_is_silent_asks_it_no_more_when_another_one_has_its_group() -> None:
    """Symptom: of a thousand share groups the last ones were asked for at the suspended broker for 50 s, though the
    next one had them, and there their placeholders' sessions had ended by then."""

    async def main() -> None:
        broker: Any = SilentBroker()
        keeper = 2
        membership = ShareMembership(broker, Lines(), lambda node_id, group_id: node_id == keeper)
        ends = [asyncio.ensure_future(membership.heartbeat(2, f"g{n}", "m", 0, ("a",))) for n in range(3 * AT_ONCE)]
        await asyncio.sleep(1)
        keeper = 1
        began_s = asyncio.get_running_loop().time()
        found = await asyncio.gather(*ends, return_exceptions=True)
        assert asyncio.get_running_loop().time() - began_s <= ANSWER_S and broker.asked == AT_ONCE
        assert [type(e) for e in found] == [TimeoutError] * AT_ONCE + [ConnectionLost] * 2 * AT_ONCE

    clock.run(main())
