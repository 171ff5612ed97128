"""Requests that are allowed and large: others have their turns while they are answered, and answers have a limit."""

from __future__ import annotations

import pytest

from sidecar.api.call import Sizes
from sidecar.core.vocabulary.errors import Code
from sidecar.wire.generated import consumer_group_describe as cd
from sidecar.wire.generated import describe_groups as dg
from sidecar.wire.generated import heartbeat as hb
from tests.inprocess.embedded_sidecar import EmbeddedClient, EmbeddedSidecar, run, turns
from tests.inprocess.messages import join

MANY = 2_000
NAMES = [f"group-{i}" for i in range(MANY)]


async def others_first(large: EmbeddedClient, sidecar: EmbeddedSidecar, message: object, version: int) -> None:
    """Another client is answered before this request is, though that came first."""
    other = await sidecar.client()
    probe = hb.HeartbeatRequest("another", 1, "m")
    await other.ask(probe, 4)  # the broker's word on its rights is kept
    large.post(message, version)  # type: ignore[arg-type]
    await turns(3)
    assert not large.waiting
    await other.ask(probe, 4)
    assert not large.waiting


@pytest.mark.tier("test")
@pytest.mark.parametrize("known", [False, True])
def test_whoever_describes_thousands_of_groups_holds_nobody_up(known: bool) -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        client = await sidecar.client()
        if known:
            await client.ask(join("g", "m"), 1)
        names = ["g"] * MANY if known else NAMES
        await others_first(client, sidecar, cd.ConsumerGroupDescribeRequest(names), 1)
        told = await client.answer(cd.ConsumerGroupDescribeRequest(), 1)
        assert [g.group_id for g in told.groups] == names
        assert {g.error_code for g in told.groups} == {Code.NONE if known else Code.GROUP_ID_NOT_FOUND}

    run(test)


def test_a_group_that_is_named_often_has_room_in_an_answer_as_often_as_it_fits() -> None:
    """Symptom: 5 KB with one name 300 times were answered with 543 MiB."""

    async def test(sidecar: EmbeddedSidecar) -> None:
        client = await sidecar.client()
        await client.ask(join("g", "m" * 20_000), 1)
        told = await client.ask(cd.ConsumerGroupDescribeRequest(["g"] * 300), 1)
        codes = [g.error_code for g in told.groups]
        assert codes[0] == Code.NONE
        assert set(codes[1:]) == {Code.NONE, Code.COORDINATOR_LOAD_IN_PROGRESS}
        assert sum(len(m.member_id) for g in told.groups for m in g.members) < 100_000
        assert sidecar.metrics.value("cut", "answer_bytes") == 1
        # Those are asked for again, and each round brings some.
        again = await client.ask(cd.ConsumerGroupDescribeRequest(["g"]), 1)
        assert [g.error_code for g in again.groups] == [Code.NONE]

    run(test, front={"sizes": Sizes(answer_bytes=65_536)})


def test_every_field_of_a_description_takes_room() -> None:
    """Symptom: a hundred members with racks of 8 KB, described 300 times: 473 MiB."""

    async def test(sidecar: EmbeddedSidecar) -> None:
        client = await sidecar.client()
        first = join("g", "m")
        first.rack_id = "r" * 20_000
        await client.ask(first, 1)
        told = await client.ask(cd.ConsumerGroupDescribeRequest(["g"] * 300), 1)
        assert [g.error_code for g in told.groups].count(Code.NONE) == 3

    run(test, front={"sizes": Sizes(answer_bytes=65_536)})


@pytest.mark.tier("test")
def test_a_request_with_too_many_elements_closes_its_connection() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        client = await sidecar.client()
        client.post(dg.DescribeGroupsRequest([f"g{i}" for i in range(5_001)]), 6)
        await turns()
        assert client.closed and sidecar.metrics.value("cut", "request_elements") == 1
        other = await sidecar.client()
        told = await other.ask(cd.ConsumerGroupDescribeRequest([f"g{i}" for i in range(5_000)]), 1)
        assert len(told.groups) == 5_000

    run(test, front={"sizes": Sizes(request_elements=5_000)})
