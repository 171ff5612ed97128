"""A sidecar coordinates only when its broker, `__consumer_offsets` and the state topic are there."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest

from sidecar.coordinator.statelog import startup as module
from sidecar.coordinator.statelog.startup import (
    Control,
    StartSettings,
    find_broker,
    offsets_leaders,
    one_cluster,
    state_topic,
)
from sidecar.coordinator.statelog.startup_errors import StartError
from sidecar.core.vocabulary.errors import Code
from sidecar.kafka.net import ConnectionLost, NotAuthenticated
from sidecar.process.make_topic import made_by_default
from sidecar.process.sections import State
from sidecar.wire.apis import Api
from sidecar.wire.primitives import ZERO_UUID, WireError
from tests.inprocess import clock
from tests.inprocess.broker import OFFSETS, STATE, FakeBrokers
from tests.inprocess.cluster import FakeCluster
from tests.inprocess.embedded_sidecar import Lines, until

SETTINGS = StartSettings(1, ("broker-1", 9092), True, "sidecar-1", 0.05, "owners", STATE, 0, 60_000)


class Bench:
    def __init__(self, settings: StartSettings) -> None:
        self.settings = settings
        self.brokers = FakeBrokers(nodes=(1, 2), partitions=4)
        self.cluster = FakeCluster(self.brokers)
        self.control = Control(settings, self.cluster)
        self.lines = Lines()

    async def find(self) -> None:
        await find_broker(self.settings, self.control, self.lines)

    async def leaders(self) -> tuple[int, ...]:
        return await offsets_leaders(self.settings, self.control, self.cluster, self.lines)

    async def topic(self, partitions: int = 4) -> None:
        await state_topic(self.settings, self.control, self.cluster, partitions, self.lines)


def run(test: Callable[[Bench], Coroutine[Any, Any, None]], monkeypatch: pytest.MonkeyPatch, **given: Any) -> None:
    async def main() -> None:
        bench = Bench(replace(SETTINGS, **given))
        monkeypatch.setattr(module, "BrokerConnection", bench.cluster.connections)
        monkeypatch.setattr(module, "RETRY_S", 0.002)
        await test(bench)

    clock.run(main())


def test_the_broker_is_waited_for_and_this_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(b: Bench) -> None:
        b.brokers.down.add(1)
        work = asyncio.get_running_loop().create_task(b.find())
        await until(lambda: b.lines.events())
        assert b.lines.events("warning") == ["waiting for the broker"]
        assert b.lines.fields("waiting for the broker")["problem"] == "broker-1:9092: connection refused"
        b.brokers.start(1)
        await work
        assert b.control.view.brokers[1] == ("broker-1", 9092)

    run(test, monkeypatch, wait_s=0)


def test_a_broker_that_does_not_come_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(b: Bench) -> None:
        b.brokers.down.add(1)
        with pytest.raises(
            StartError, match=r"no use of broker broker-1:9092 for 0\.05 s: .* refused\. Check --broker"
        ):
            await b.find()

    run(test, monkeypatch)


def test_one_that_refuses_these_credentials_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients have credentials of their own: their port must not close because those of the sidecar are wrong."""

    async def test(b: Bench) -> None:
        opens, refuses = b.cluster.connections.open, True

        async def refused(*args: Any, **given: Any) -> Any:
            if refuses:
                raise NotAuthenticated("broker-1:9092: the broker refuses SASL_SSL PLAIN as s: no")
            return await opens(*args, **given)

        monkeypatch.setattr(b.cluster.connections, "open", refused)
        waits: list[str] = []
        work = asyncio.get_running_loop().create_task(find_broker(b.settings, b.control, b.lines, waits.append))
        long_after_s = time.monotonic() + 100 * b.settings.wait_s
        await until(lambda: time.monotonic() > long_after_s)
        assert not work.done() and "refuses SASL_SSL" in waits[-1]
        refuses = False
        await work

    run(test, monkeypatch)


@pytest.mark.parametrize("exc", [ConnectionLost("gone"), TimeoutError(), WireError("no version")])
def test_a_coordinator_that_is_not_found_is_looked_for_again(exc: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: brokers that were slow while their cluster started ended the coordinator as a bug does. Cause: only a
    lost connection was waited for, and not an answer that came too late."""

    async def test(b: Bench) -> None:
        find, failed = b.cluster.coordinator, [exc]

        async def coordinator(key: str, key_type: int) -> Any:
            if failed:
                raise failed.pop()
            return await find(key, key_type)

        monkeypatch.setattr(b.cluster, "coordinator", coordinator)
        await b.control.look()
        b.control.view = replace(b.control.view, leaders={})
        waits: list[str] = []
        assert len(await offsets_leaders(b.settings, b.control, b.cluster, b.lines, waits.append)) == 4
        assert waits == [f"waiting for {OFFSETS}: {str(exc) or 'timed out'}"]

    run(test, monkeypatch)


def test_a_state_topic_that_may_not_be_described_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(b: Bench) -> None:
        b.brokers.no_describe.add(STATE)
        await b.control.look()
        waits: list[str] = []
        topic = state_topic(b.settings, b.control, b.cluster, 4, b.lines, waits.append)
        work = asyncio.get_running_loop().create_task(topic)
        await until(lambda: len(waits) > 3)
        assert "may not DESCRIBE topic __group_state" in waits[-1] and b.brokers.count(Api.CREATE_TOPICS) == 0
        b.brokers.no_describe.clear()
        await work

    run(test, monkeypatch)


def test_one_with_another_id_is_there_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: the sidecar ended after `broker_wait_ms`, and with it the port of clients that need no coordinator."""

    async def test(b: Bench) -> None:
        waits: list[str] = []
        work = asyncio.get_running_loop().create_task(find_broker(b.settings, b.control, b.lines, waits.append))
        long_after_s = time.monotonic() + 100 * b.settings.wait_s
        await until(lambda: time.monotonic() > long_after_s)
        assert not work.done(), "and no coordinator begins"
        problem = "node id 7 is not among the brokers [1, 2]. Check --node-id and --broker, and restart the sidecar"
        assert waits[-1] == f"waiting for the broker: {problem}"
        assert b.lines.fields("waiting for the broker")["problem"] == problem
        work.cancel()

    run(test, monkeypatch, node_id=7)


def test_one_that_is_another_node_of_the_cluster_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: settings copied with another's node_id, and this sidecar took partitions from the right one."""

    async def test(b: Bench) -> None:
        waits: list[str] = []
        work = asyncio.get_running_loop().create_task(find_broker(b.settings, b.control, b.lines, waits.append))
        await until(lambda: bool(waits))
        assert not work.done()
        assert "it is not node 2: Unexpected broker id, expected 1 or empty string, but received 2" in waits[-1]
        assert "Check --node-id and --broker" in waits[-1]
        work.cancel()

    run(test, monkeypatch, node_id=2)


def test_brokers_without_topic_ids_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers before 2.8, or with an older inter.broker.protocol.version, have no topic ids."""

    async def test(b: Bench) -> None:
        b.brokers.topics[STATE].topic_id = ZERO_UUID
        waits: list[str] = []
        with pytest.raises(StartError, match=r"topics have no ids, .* Kafka 2\.8 or later"):
            await find_broker(b.settings, b.control, b.lines, waits.append)
        assert "topics have no ids" in waits[-1]
        assert "topics have no ids" in b.lines.fields("waiting for the broker")["problem"]

    run(test, monkeypatch)


def test_so_are_those_whose_first_topic_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(b: Bench) -> None:
        offsets = b.brokers.topics[OFFSETS]
        b.brokers.topics = {}
        await b.find()
        offsets.topic_id, b.brokers.topics = ZERO_UUID, {OFFSETS: offsets}
        waits: list[str] = []
        leaders = offsets_leaders(b.settings, b.control, b.cluster, b.lines, waits.append)
        work = asyncio.get_running_loop().create_task(leaders)
        await until(lambda: any("topics have no ids" in w for w in waits))
        assert not work.done()
        work.cancel()

    run(test, monkeypatch)


def test_the_offsets_topic_is_waited_for_until_every_partition_has_a_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(b: Bench) -> None:
        b.brokers.topics[OFFSETS].leaders[2] = -1
        await b.control.look()
        work = asyncio.get_running_loop().create_task(b.leaders())
        await until(lambda: b.brokers.count(Api.FIND_COORDINATOR) > 1)
        assert not work.done(), "asking for a coordinator makes the broker create the topic"
        b.brokers.faults.drop(Api.METADATA)
        b.brokers.topics[OFFSETS].leaders[2] = 1
        assert await work == (1, 2, 1, 2)

    run(test, monkeypatch)


def test_who_makes_it_in_a_sidecars_place_makes_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(b: Bench) -> None:
        del b.brokers.topics[STATE]
        await b.control.look()
        await b.topic()
        del b.brokers.topics[STATE]
        assert await made_by_default(b.cluster, STATE, 4) == Code.NONE
        mine, its = (made.topics[0] for made in b.brokers.requests(Api.CREATE_TOPICS))
        assert its == mine
        assert await made_by_default(b.cluster, STATE, 4) == Code.TOPIC_ALREADY_EXISTS

    defaults = State.model_validate({})
    lag_ms, largest = defaults.min_compaction_lag_ms, defaults.max_message_bytes
    run(test, monkeypatch, min_compaction_lag_ms=lag_ms, max_message_bytes=largest)


def test_the_state_topic_is_made_if_it_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(b: Bench) -> None:
        del b.brokers.topics[STATE]
        await b.control.look()
        await b.topic()
        (made,) = b.brokers.requests(Api.CREATE_TOPICS)
        topic = made.topics[0]
        assert (topic.name, topic.num_partitions, topic.replication_factor) == (STATE, 4, 2)
        configs = {c.name: c.value for c in topic.configs}
        assert (configs["cleanup.policy"], configs["min.insync.replicas"]) == ("compact", "2")
        assert configs["min.compaction.lag.ms"] == "60000"
        assert b.lines.events("info") == ["created the state topic"]

    run(test, monkeypatch)


@pytest.mark.parametrize("controller", [-1, 1, 2])
def test_the_controller_makes_the_state_topic(monkeypatch: pytest.MonkeyPatch, controller: int) -> None:
    """Without KRaft nobody else does (Kafka 2.8 with ZooKeeper and three brokers)."""

    async def test(b: Bench) -> None:
        del b.brokers.topics[STATE]
        b.brokers.controller = controller
        assert await b.cluster.create_topic(STATE, 4, 2, {}) == Code.NONE
        assert b.brokers.count(Api.CREATE_TOPICS) == 1 and STATE in b.brokers.topics

    run(test, monkeypatch)


@pytest.mark.parametrize("gone", [False, True])
def test_the_state_topic_is_where_the_offsets_are(monkeypatch: pytest.MonkeyPatch, gone: bool) -> None:
    """Symptom: after the death of a broker its groups waited a second longer than at Kafka's coordinator. Cause: their
    offsets and their state got different leaders, and one of them was not ready when its follower asked first. A broker
    of the list may be gone for good: then the controller chooses."""

    async def test(b: Bench) -> None:
        del b.brokers.topics[STATE]
        nodes = [[1, 2], [2, 1], [2, 1], [1, 9 if gone else 2]]
        b.brokers.topics[OFFSETS].replicas = nodes
        await b.control.look()
        await b.topic()
        first, *again = (made.topics[0] for made in b.brokers.requests(Api.CREATE_TOPICS))
        assert [a.broker_ids for a in first.assignments] == nodes
        assert (first.num_partitions, first.replication_factor) == (-1, -1)
        assert [(t.assignments, t.num_partitions, t.replication_factor) for t in again] == [([], 4, 2)] * gone
        assert b.brokers.topics[STATE].leaders == ([1, 2, 1, 2] if gone else [1, 2, 2, 1])

    run(test, monkeypatch)


def test_a_state_topic_with_another_number_of_partitions_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(b: Bench) -> None:
        await b.control.look()
        await b.topic()
        assert b.brokers.count(Api.CREATE_TOPICS) == 0
        with pytest.raises(StartError, match=r"__group_state has 4 partitions, __consumer_offsets has 5"):
            await b.topic(5)

    run(test, monkeypatch)


def test_two_sidecars_that_make_it_at_once_are_no_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(b: Bench) -> None:
        await b.control.look()
        view = b.control.view
        b.control.view = replace(view, leaders={k: v for k, v in view.leaders.items() if k != STATE})
        await b.topic()
        assert b.brokers.count(Api.CREATE_TOPICS) == 0 and b.lines.events() == [], "it is there when asked for by name"
        assert (await b.cluster.create_topic(STATE, 4, 2, {})) == Code.TOPIC_ALREADY_EXISTS

    run(test, monkeypatch)


def test_a_bootstrap_of_another_cluster_ends_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two clusters may have the same node ids: the sidecar would coordinate groups here, alone in a group there."""

    async def test(b: Bench) -> None:
        await b.find()
        other = FakeBrokers(nodes=(1, 2), partitions=4)
        other.cluster_id = "another"
        there = FakeCluster(other)
        there.bootstrap = [("b", 9093)]
        with pytest.raises(StartError, match=r"of cluster in-memory, and bootstrap b:9093 of cluster another\. Both"):
            await one_cluster(b.settings, b.control, there, b.lines)

    run(test, monkeypatch, same_listener=False)


def test_one_cluster_behind_both_is_well_and_its_bootstrap_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(b: Bench) -> None:
        await b.find()
        await one_cluster(b.settings, b.control, b.cluster, b.lines)
        assert b.lines.events() == []
        away = FakeBrokers(nodes=(1,), partitions=4)
        away.down.add(1)
        work = asyncio.get_running_loop().create_task(one_cluster(b.settings, b.control, FakeCluster(away), b.lines))
        await until(lambda: "waiting for bootstrap" in b.lines.events("warning"))
        away.start(1)
        await work

    run(test, monkeypatch, same_listener=False)
