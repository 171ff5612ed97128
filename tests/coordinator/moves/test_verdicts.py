"""Verdicts and orders that the state topic does not take at first, over brokers in memory."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from sidecar.core.vocabulary import group_config as cf
from sidecar.core.vocabulary.errors import Code
from sidecar.kafka import native
from sidecar.kafka.native import Native
from sidecar.wire.apis import Api
from tests.coordinator.moves.moving import Broker, at_work, classic, run, store_settings
from tests.inprocess.embedded_sidecar import EmbeddedSidecar, until
from tests.inprocess.faults import ALWAYS

UNSTABLE = classic("n1", state="PreparingRebalance")


async def no_writes_for_a_while(sidecar: EmbeddedSidecar, begin: Callable[[], object]) -> None:
    """The state topic refuses all writes for longer than its timeout, from this condition on."""
    fault = sidecar.brokers.faults.fail(Api.PRODUCE, Code.NOT_ENOUGH_REPLICAS, ALWAYS, lambda req: bool(begin()))
    await until(lambda: fault.met)
    end_s = time.monotonic() + 3.0
    await until(lambda: time.monotonic() > end_s)
    fault.end()


@pytest.mark.parametrize(
    ("group", "first", "after", "given_up"),
    [
        pytest.param(Native(native.OTHER), "true", "false", 1, id="it cannot be taken in"),
        pytest.param(UNSTABLE, "true", "later", 0, id="it is not stable"),
        pytest.param(UNSTABLE, "later", "false", 1, id="it never was stable"),
        pytest.param(UNSTABLE, "later", "true", 0, id="it is stable now"),
    ],
)
def test_a_lost_write_of_a_verdict_is_repeated(
    monkeypatch: pytest.MonkeyPatch, group: Native, first: str, after: str, given_up: int
) -> None:
    """Symptom: the state topic refused writes for a few seconds while a group was given up, and the coordinator broke
    with all its partitions. Cause: the wait for the group had been forgotten before the verdict was written."""
    broker = Broker(monkeypatch, group)

    async def test(sidecar: EmbeddedSidecar) -> None:
        await store_settings(sidecar, "theirs", managed="true")
        await until(lambda: sidecar.rules.overrides == {"theirs": first})
        if after == "true":
            broker.group = classic("n1")
        await no_writes_for_a_while(sidecar, lambda: sidecar.rules.overrides == {"theirs": first})
        await until(lambda: sidecar.rules.overrides == {"theirs": after})
        assert sidecar.metrics.value("moves", "sidecar", "given up") == given_up
        assert sidecar.lines.events("error").count("group not taken in") == given_up
        assert not sidecar.tasks.failed.done()

    run(test)


def test_a_lost_write_of_the_verdict_that_a_group_stays_is_repeated() -> None:
    """Symptom: as above, where the broker does not serve the group's kind. Cause: nothing caught the lost write."""

    async def test(sidecar: EmbeddedSidecar) -> None:
        await at_work(sidecar, await sidecar.client())
        sidecar.brokers.unserved.add(Api.CONSUMER_GROUP_DESCRIBE)
        await store_settings(sidecar, "g", managed="false")
        await no_writes_for_a_while(sidecar, lambda: sidecar.rules.overrides == {"g": "false"})
        await until(lambda: sidecar.rules.overrides == {"g": "true"})
        assert sidecar.metrics.value("moves", "broker", "given up") == 1
        assert sidecar.lines.events("error").count("group not given back") == 1
        assert not sidecar.tasks.failed.done()

    run(test)


def test_a_lost_removal_of_an_order_to_rebalance_is_repeated() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        await at_work(sidecar, await sidecar.client())
        await store_settings(sidecar, "g", rebalance="lag is uneven")
        state = sidecar.stored.state
        await no_writes_for_a_while(sidecar, lambda: state.last_reason("g").startswith("lag is uneven"))
        await until(lambda: sidecar.stored.groups_with(cf.REBALANCE) == [])
        assert sidecar.lines.events("info").count("rebalance asked for") == 1
        assert not sidecar.tasks.failed.done()

    run(test)
