"""The tail passes on what it finds in the state topic, and knows when it has read it."""

from __future__ import annotations

import asyncio

import pytest

from sidecar.core.vocabulary.errors import Code
from sidecar.core.vocabulary.placement import partition_for
from sidecar.front.managed import Managed
from sidecar.link.messages import GroupRules
from sidecar.state.codec import Stamp
from sidecar.state.keys import decode_key
from sidecar.wire.apis import Api
from tests.coordinator.runtime.watched import Bench, run, shorten_pauses
from tests.inprocess.embedded_sidecar import turns, until
from tests.inprocess.messages import join


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_pauses(monkeypatch)


@pytest.mark.parametrize(("theirs", "expected"), [("another", True), ("in-memory", False), (None, False)])
def test_a_claim_of_another_cluster_is_named(
    monkeypatch: pytest.MonkeyPatch, theirs: str | None, expected: bool
) -> None:
    async def test(b: Bench) -> None:
        await until(lambda: b.sidecar.service.serving() == [0, 1])
        claim = b.sidecar.codec.claim(Stamp(1 << 40, 1), 2, "h:1", "m", 1, "assigned", theirs)
        b.sidecar.state.apply(0, 10_000, decode_key(claim.key), claim.value)
        b.watch.from_tail.claim_read(0)
        said = "a sidecar of another cluster has claimed a partition" in b.sidecar.lines.events("error")
        assert said == expected

    run(test, monkeypatch)


def test_a_sidecar_takes_part_when_it_has_read_the_state_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: a sidecar that was started again took partitions from an owner that knew them, and its groups stood
    still until it had read the whole topic (L2 of the safety review)."""

    async def test(b: Bench) -> None:
        assert not b.watch.ownership.takes_part and b.brokers.count(Api.JOIN_GROUP) == 0
        b.watch.from_tail.tail_read(0)
        assert not b.watch.ownership.takes_part
        b.watch.from_tail.tail_read(1)
        assert b.watch.ownership.takes_part
        await until(lambda: not b.problems)

    run(test, monkeypatch, slow_tail=True)


def test_a_partition_that_cannot_be_read_does_not_keep_the_others_waiting_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test(b: Bench) -> None:
        b.watch.from_tail.tail_read(0)
        await until(lambda: "the state topic is not read to its end yet" in b.sidecar.lines.events("warning"))
        assert b.sidecar.lines.fields("the state topic is not read to its end yet")["partitions"] == 1
        await until(lambda: not b.problems)

    run(test, monkeypatch, slow_tail=True, tail_wait_s=0.05)


def of_partition(partition: int) -> str:
    """Returns a group of this partition, of two."""
    return next(g for g in map(str, range(100)) if partition_for(g, 2) == partition)


def test_groups_are_served_while_another_partition_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: a sidecar that was started while a partition of the state topic had no leader took all others from their
    owners after `ownership.tail_wait_ms`, and refused every request until that partition could be read."""

    async def test(b: Bench) -> None:
        client = await b.sidecar.client()
        b.watch.from_tail.tail_read(0)
        await until(lambda: not b.problems)
        assert (await client.ask(join(of_partition(0), "m1"), 1)).error_code == Code.NONE
        rules = b.front.of(GroupRules)[-1]
        assert rules.unread == (1,)
        b.watch.from_tail.tail_read(1)
        assert b.front.of(GroupRules)[-1].unread == ()

    run(test, monkeypatch, slow_tail=True, tail_wait_s=0.05)


def test_who_does_not_know_the_patterns_takes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(b: Bench) -> None:
        b.watch.from_tail.tail_read(1)
        await until(lambda: "the state topic is not read to its end yet" in b.sidecar.lines.events("warning"))
        await turns()
        assert b.problems == ["1 partitions of the state topic are being read"]
        assert b.brokers.count(Api.JOIN_GROUP) == 0
        b.watch.from_tail.tail_read(0)
        await until(lambda: not b.problems)

    run(test, monkeypatch, slow_tail=True, tail_wait_s=0.05)


def test_no_group_of_an_unread_partition_is_passed_to_its_broker() -> None:
    managed = Managed(lambda group_id: False, False)
    unread, read = of_partition(1), of_partition(0)
    managed.follow(GroupRules(unread=(1,), partitions=2))
    assert managed.managing and managed.managed(unread) and not managed.managed(read)
    managed.follow(GroupRules(moved={unread: False}, unread=(1,), partitions=2))
    assert not managed.managed(unread)
    managed.follow(GroupRules(partitions=2))
    assert not managed.managing and not managed.managed(unread)


def test_what_the_tail_finds_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(b: Bench) -> None:
        b.watch.from_tail.tail_trouble("a damaged key")
        assert b.sidecar.lines.fields("state tail") == {"problem": "a damaged key"}
        b.watch.from_tail.tail_broke(KeyError("a bug"))
        assert b.sidecar.tasks.failed.done()
        with pytest.raises(Exception, match="state-tail: KeyError"):
            b.sidecar.tasks.failed.result()
        b.sidecar.tasks.failed = asyncio.get_running_loop().create_future()

    run(test, monkeypatch)
