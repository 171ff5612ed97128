"""For how long a group has not been stable, also where its owner is a new one."""

from __future__ import annotations

import asyncio
from typing import Any

from sidecar.coordinator.inspect.group_metrics import Census
from sidecar.core.runtime.phases import Phase
from tests.inprocess import clock
from tests.inprocess.embedded_sidecar import EmbeddedSidecar, until
from tests.inprocess.messages import beat, join

STUCK_S = 20.0


def unsettled_s(sidecar: EmbeddedSidecar) -> float | None:
    sidecar.metrics.settle()
    return sidecar.metrics.registry.get_sample_value("sidecar_group_unsettled_seconds", {"consumergroup": "g"})


def test_a_takeover_does_not_hide_who_is_stuck() -> None:
    """Symptom: the metric counted for minutes and was gone with the owner, and the alert was never true."""

    async def main() -> None:
        async with EmbeddedSidecar(partitions=1, consumer={"join_wait_ms": 0}) as sidecar:
            await sidecar.topics(orders=2)
            client, census = await sidecar.client(), Census(sidecar.service, sidecar.metrics, sidecar.state.changed_ms)
            epoch = (await client.ask(join("g", "m1"), 1)).member_epoch
            group: Any = sidecar.owner_of("g").shard.groups["g"]  # type: ignore[union-attr]
            while not group.members["m1"].assigned:
                epoch = (await client.ask(beat("g", "m1", epoch), 1)).member_epoch
                await asyncio.sleep(0.005)
            await census.take()
            assert unsettled_s(sidecar) is None, "it is stable"
            await client.ask(join("g", "m2"), 1)
            await asyncio.sleep(STUCK_S)  # m1 gives nothing up
            await client.ask(beat("g", "m2", group.members["m2"].member_epoch), 1)
            await census.take()
            before = unsettled_s(sidecar)
            assert before is not None and STUCK_S - 1 <= before <= STUCK_S + 5
            sidecar.assign(2)
            sidecar.assign(1)
            await until(lambda: sidecar.service.owners[0].phase is Phase.SERVING and sidecar.owner_of("g").has("g"))
            await until(lambda: not sidecar.service.owners[0].loader.queue.left)
            await census.take()
            after = unsettled_s(sidecar)
            assert after is not None and before - 5 <= after <= before + 5
            await Census(sidecar.service, sidecar.metrics).take()
            assert unsettled_s(sidecar) is None, "without the record the new owner would know nothing"

    clock.run(main())


def test_states_of_all_kinds_are_there_before_there_is_a_group() -> None:
    """An alert on a state needs its series before the state."""

    async def main() -> None:
        async with EmbeddedSidecar(partitions=1) as sidecar:
            await Census(sidecar.service, sidecar.metrics).take()
            sidecar.metrics.settle()
            for name, kind in sidecar.service.registry.kinds.items():
                for state in kind.inspect.states:
                    labels = {"kind": name, "state": state}
                    assert sidecar.metrics.registry.get_sample_value("sidecar_groups", labels) == 0, labels
            for labels in ({"kind": "consumer", "protocol": "classic"}, {"kind": "streams", "protocol": "streams"}):
                assert sidecar.metrics.registry.get_sample_value("sidecar_members", labels) == 0, labels

    clock.run(main())
