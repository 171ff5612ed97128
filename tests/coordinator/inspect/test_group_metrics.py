"""For how long a group has not been stable, also where its owner is a new one."""

from __future__ import annotations

import asyncio
from typing import Any

from sidecar.coordinator.inspect.group_metrics import Census
from sidecar.core.runtime.phases import Phase
from tests.inprocess import clock
from tests.inprocess.house import House, until
from tests.inprocess.messages import beat, join

STUCK_S = 20.0


def unsettled_s(house: House) -> float | None:
    house.metrics.settle()
    return house.metrics.registry.get_sample_value("sidecar_group_unsettled_seconds", {"consumergroup": "g"})


def test_a_takeover_does_not_hide_who_is_stuck() -> None:
    """Symptom: the metric counted for minutes and was gone with the owner, and the alert was never true."""

    async def whole() -> None:
        async with House(partitions=1, consumer={"join_wait_ms": 0}) as house:
            await house.topics(orders=2)
            client, census = await house.client(), Census(house.service, house.metrics, house.state.changed_ms)
            epoch = (await client.ask(join("g", "m1"), 1)).member_epoch
            group: Any = house.owner_of("g").shard.groups["g"]  # type: ignore[union-attr]
            while not group.members["m1"].assigned:
                epoch = (await client.ask(beat("g", "m1", epoch), 1)).member_epoch
                await asyncio.sleep(0.005)
            await census.take()
            assert unsettled_s(house) is None, "it is stable"
            await client.ask(join("g", "m2"), 1)
            await asyncio.sleep(STUCK_S)  # m1 gives nothing up
            await client.ask(beat("g", "m2", group.members["m2"].member_epoch), 1)
            await census.take()
            before = unsettled_s(house)
            assert before is not None and STUCK_S - 1 <= before <= STUCK_S + 5
            house.assign(2)
            house.assign(1)
            await until(lambda: house.service.owners[0].phase is Phase.SERVING and house.owner_of("g").has("g"))
            await until(lambda: not house.service.owners[0].loader.queue.left)
            await census.take()
            after = unsettled_s(house)
            assert after is not None and before - 5 <= after <= before + 5
            await Census(house.service, house.metrics).take()
            assert unsettled_s(house) is None, "without the record the new owner would know nothing"

    clock.run(whole())


def test_states_of_all_kinds_are_there_before_there_is_a_group() -> None:
    """An alert on a state needs its series before the state."""

    async def whole() -> None:
        async with House(partitions=1) as house:
            await Census(house.service, house.metrics).take()
            house.metrics.settle()
            for name, kind in house.service.registry.kinds.items():
                for state in kind.inspect.states:
                    labels = {"kind": name, "state": state}
                    assert house.metrics.registry.get_sample_value("sidecar_groups", labels) == 0, labels
            for labels in ({"kind": "consumer", "protocol": "classic"}, {"kind": "streams", "protocol": "streams"}):
                assert house.metrics.registry.get_sample_value("sidecar_members", labels) == 0, labels

    clock.run(whole())
