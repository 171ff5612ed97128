"""Requests that wait before they come to the core, over brokers in memory."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sidecar.core.vocabulary import group_config as cf
from sidecar.core.vocabulary.errors import Code
from sidecar.link.messages import GroupRules
from sidecar.wire.generated import join_group as jg
from tests.coordinator.moves.moving import Broker, beats, being_taken_over, classic, run
from tests.core.classic_client import subscription
from tests.inprocess.embedded_sidecar import EmbeddedSidecar, RecordingFront, until

NEWCOMER = [jg.JoinGroupRequestProtocol("range", subscription(["orders"], {}, -1))]


@pytest.mark.parametrize("said", ["beat", "join"])
def test_what_waits_for_a_takeover_is_not_answered_before_the_broker_has_told_of_the_group(
    monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    """The core knows nothing of the group: it would answer UNKNOWN_MEMBER_ID, or begin a second group."""
    broker = Broker(monkeypatch, classic("n1"))

    async def test(sidecar: EmbeddedSidecar) -> None:
        client, other = await sidecar.client(), await sidecar.client()
        await being_taken_over(sidecar)
        client.post(beats("n1", 7), 4)
        if said == "join":
            other.post(jg.JoinGroupRequest("g", 10_000, 60_000, "", None, "consumer", NEWCOMER), 3)
        await asyncio.sleep(0.02)
        sidecar.tail.release()
        assert (await client.answer(beats("n1", 7), 4)).error_code == Code.REBALANCE_IN_PROGRESS
        assert broker.gone == ["n1"]
        group: Any = sidecar.owner_of("g").shard.groups["g"]  # type: ignore[union-attr]
        assert "n1" in group.members and group.adopted

    run(test)


def test_a_request_that_waits_for_the_lease_does_not_get_past_the_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by the simulation: the brokers' word came after the group was ordered here, and a newcomer founded it anew
    beside its members at the broker."""
    broker = Broker(monkeypatch, classic("n1"))

    async def test(sidecar: EmbeddedSidecar) -> None:
        client, other = await sidecar.client(), await sidecar.client()
        sidecar.coordinator.service.lease.lost()
        other.post(jg.JoinGroupRequest("g", 10_000, 60_000, "", None, "consumer", NEWCOMER), 3)
        client.post(beats("n1", 7), 4)
        await until(lambda: sidecar.metrics.value("parked") == 2)
        sidecar.prove()
        assert (await client.answer(beats("n1", 7), 4)).error_code == Code.REBALANCE_IN_PROGRESS
        assert broker.gone == ["n1"]
        group: Any = sidecar.owner_of("g").shard.groups["g"]  # type: ignore[union-attr]
        assert "n1" in group.members and group.adopted

    run(test)


def test_stored_patterns_count_for_everybody_until_they_go() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        front = RecordingFront(sidecar.coordinator)
        include = {f"/{cf.INCLUDE}": "theirs-[0-9]{1,2},theirs-more"}
        await sidecar.stored.put("", include, "a test", sidecar.coordinator.append_unfenced)
        assert front.of(GroupRules)[-1].include == ("theirs-[0-9]{1,2}", "theirs-more")
        assert (
            sidecar.rules.wanted("theirs-12")
            and not sidecar.rules.wanted("g")
            and sidecar.front.scopes.clients.managed("theirs-more")
        )
        assert not sidecar.front.scopes.clients.managed("g")
        await sidecar.stored.put("", {f"/{cf.INCLUDE}": None}, "a test", sidecar.coordinator.append_unfenced)
        assert (
            sidecar.rules.wanted("g")
            and sidecar.front.scopes.clients.managed("g")
            and not sidecar.front.scopes.clients.managed("theirs-more")
        )

    run(test)


def test_sidecars_whose_own_patterns_differ_are_told_until_patterns_are_stored() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        told = "sidecars have different patterns"
        sidecar.rules.peers({1: sidecar.rules.own_patterns(), 2: {"include": [], "exclude": []}})
        assert sidecar.rules.differing() == [] and told not in sidecar.lines.events()
        sidecar.rules.peers({1: sidecar.rules.own_patterns(), 2: {"include": ["b.*"], "exclude": []}})
        assert sidecar.metrics.value("patterns_differ") == 1
        assert sidecar.lines.fields(told)["theirs"] == {2: {"include": ["b.*"], "exclude": []}}
        include = {f"/{cf.INCLUDE}": "c.*"}
        await sidecar.stored.put("", include, "a test", sidecar.coordinator.append_unfenced)
        assert sidecar.metrics.value("patterns_differ") == 0

    run(test)
