"""In which order partitions are taken over."""

from __future__ import annotations

import pytest

from sidecar.coordinator.runtime import takeover_order as module
from sidecar.core.runtime.phases import Phase
from sidecar.wire.apis import Api
from tests.inprocess.embedded_sidecar import EmbeddedSidecar, run, turns, until
from tests.inprocess.messages import join

USED, UNUSED = 0, 1
"""Partitions with and without a group."""


async def given_up_with_a_group(sidecar: EmbeddedSidecar) -> None:
    client = await sidecar.client()
    await client.ask(join(group_in(sidecar), "m1"), 1)
    await until(lambda: sidecar.state.groups(USED))
    sidecar.assign(2, 2)


def group_in(sidecar: EmbeddedSidecar) -> str:
    return next(g for g in "abcdef" if sidecar.service.partition_of(g) == USED)


def fences(sidecar: EmbeddedSidecar, since: int) -> list[str]:
    return [r.transactional_id[-1] for r in sidecar.brokers.requests(Api.INIT_PRODUCER_ID)[since:]]


def test_a_partition_with_groups_is_taken_over_before_those_without() -> None:
    """Symptom: an owner was killed, and the first commit waited for the fences and claims of partitions that nobody
    used."""

    async def test(sidecar: EmbeddedSidecar) -> None:
        await given_up_with_a_group(sidecar)
        before = sidecar.brokers.count(Api.INIT_PRODUCER_ID)
        claim = sidecar.brokers.faults.hang(Api.PRODUCE)
        sidecar.assign(1, 1)
        await until(lambda: claim.met)
        await turns()
        assert fences(sidecar, before) == [str(USED)]
        claim.release()
        await until(lambda: sidecar.service.owners[UNUSED].phase is Phase.SERVING)
        assert fences(sidecar, before) == [str(USED), str(UNUSED)]

    run(test, partitions=2)


@pytest.mark.parametrize("given_up", [False, True], ids=["which takes long", "which is given up"])
def test_nobody_waits_for_ever_for_a_partition(monkeypatch: pytest.MonkeyPatch, given_up: bool) -> None:
    monkeypatch.setattr(module, "WAIT_S", 60.0 if given_up else 0.02)

    async def test(sidecar: EmbeddedSidecar) -> None:
        await given_up_with_a_group(sidecar)
        claim = sidecar.brokers.faults.hang(Api.PRODUCE)
        sidecar.assign(1, 1)
        await until(lambda: claim.met)
        if given_up:
            sidecar.assign(2, 1)
        await until(lambda: sidecar.service.owners[UNUSED].phase is Phase.SERVING)
        claim.release()

    run(test, partitions=2)
