"""Records go into the state topic that this sidecar knows, and not into another one of its name (S6).

At a real broker: tests/clients/test_made_anew.py.
"""

from __future__ import annotations

import asyncio

import pytest

from sidecar.coordinator.statelog.large_write import Transaction
from sidecar.coordinator.statelog.unfenced_append import append_unfenced
from sidecar.coordinator.statelog.write_errors import WriteLost
from sidecar.core.vocabulary.errors import Code
from sidecar.wire.apis import Api
from sidecar.wire.primitives import ZERO_UUID
from tests.coordinator.writing import Bench, record, run
from tests.inprocess.broker import STATE
from tests.inprocess.embedded_sidecar import until


def pin(b: Bench) -> bytes:
    found = b.appender.pinned[STATE] = b.brokers.topics[STATE].topic_id
    return found


def make_anew(b: Bench) -> None:
    """Deletes the state topic and creates it again."""
    b.brokers.logs.clear()
    b.brokers.add_topic(STATE, b.brokers.partitions)


def meant(b: Bench) -> list[tuple[str, bytes]]:
    """Name and id of the topic of each Produce request that a broker has got."""
    return [(r.topic_data[0].name, r.topic_data[0].topic_id) for r in b.brokers.requests(Api.PRODUCE)]


def test_batches_go_to_the_topic_with_the_pinned_id() -> None:
    async def test(b: Bench) -> None:
        b.append(1)
        await until(lambda: len(b.written) == 1)
        found = pin(b)
        b.append(2)
        await until(lambda: len(b.written) == 2)
        assert meant(b) == [(STATE, ZERO_UUID), ("", found)] and b.keys() == ["1-0", "2-0"]

    run(test)


def test_a_broker_that_knows_no_ids_in_produce_is_told_the_name() -> None:
    """Kafka before 4.1."""

    async def test(b: Bench) -> None:
        b.brokers.versions[Api.PRODUCE] = (3, 12)
        pin(b)
        b.append(1)
        await until(lambda: len(b.written) == 1)
        assert meant(b) == [(STATE, ZERO_UUID)]

    run(test)


def test_nothing_is_written_into_a_topic_that_was_made_anew() -> None:
    """Symptom: for up to 2 s owners went on writing into it, and a group of whose records the first were missing could
    not be read by the next owner."""

    async def test(b: Bench) -> None:
        pin(b)
        told: list[str] = []
        b.appender.topic_recreated = lambda: told.append("another")
        b.append(1)
        await until(lambda: len(b.written) == 1)
        make_anew(b)
        b.append(2)
        await until(lambda: b.failed)
        assert "__group_state is another topic now (UNKNOWN_TOPIC_ID)" in str(b.failed[0])
        assert b.keys() == [] and b.written == [(1, 0)] and told == ["another"], "the sidecar starts anew at once"
        with pytest.raises(WriteLost, match="UNKNOWN_TOPIC_ID"):
            await append_unfenced(b.cluster, b.appender, None, STATE, 0, [record("setting")], 0.2)  # type: ignore[arg-type]
        assert b.keys() == []

    run(test)


def test_a_broker_that_does_not_know_the_topic_yet_is_asked_again() -> None:
    async def test(b: Bench) -> None:
        pin(b)
        b.brokers.faults.fail(Api.PRODUCE, Code.UNKNOWN_TOPIC_ID)
        b.append(1)
        await until(lambda: len(b.written) == 1)
        assert not b.failed and b.keys() == ["1-0"]

    run(test)


def test_a_large_write_is_not_committed_in_another_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction writes by the topic's name, because AddPartitionsToTxn knows no ids."""

    async def test(b: Bench) -> None:
        found = pin(b)
        begin = Transaction.begin

        async def begin_and_recreate_topic(self: Transaction, until: float) -> object:
            ended = await begin(self, until)
            make_anew(b)
            return ended

        monkeypatch.setattr(Transaction, "begin", begin_and_recreate_topic)
        b.append(1, count=9)
        await until(lambda: b.failed)
        assert found not in [topic_id for _, topic_id in meant(b)]
        assert "__group_state is another topic now" in str(b.failed[0]) and b.brokers.count(Api.END_TXN) == 0

    run(test, batch_bytes=240)


def test_without_a_topic_nothing_is_written_in_time() -> None:
    async def test(b: Bench) -> None:
        pin(b)
        del b.brokers.topics[STATE]
        b.append(1)
        await until(lambda: b.failed)
        assert "no leader for 0.2 s" in str(b.failed[0])
        await asyncio.sleep(0)

    run(test, timeout_s=0.2)
