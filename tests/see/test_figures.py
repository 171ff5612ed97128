"""The metrics show the things that happen."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from sidecar.coordinator.inspect import lag_exporter as exporter
from sidecar.coordinator.inspect.group_metrics import Census
from sidecar.coordinator.inspect.lag_exporter import Exporter, ExporterPorts, ExporterSettings
from sidecar.kafka.cluster import ClusterView, ConnectionLost
from sidecar.kafka.lanes import Lane
from sidecar.kafka.offsets import LATEST
from tests.inprocess.embedded_sidecar import EmbeddedSidecar, until
from tests.inprocess.messages import assigned, beat, commit, join


def run(test: Callable[[EmbeddedSidecar], Coroutine[Any, Any, None]], **given: Any) -> None:
    async def main() -> None:
        async with EmbeddedSidecar(consumer={"assignment_interval_ms": 0}, **given) as sidecar:
            await sidecar.topics(orders=4)
            await test(sidecar)

    asyncio.run(main())


def total(sidecar: EmbeddedSidecar, name: str, **labels: str) -> float:
    return sidecar.metrics.registry.get_sample_value(name, labels) or 0.0


def test_a_group_forms_commits_and_ends() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        client = await sidecar.client()
        first = await client.ask(join("g", "a"), 1)
        epoch = first.member_epoch
        reply = first
        while not assigned(reply):
            reply = await client.ask(beat("g", "a", epoch), 1)
            epoch = reply.member_epoch
        await client.ask(beat("g", "a", epoch, assigned(reply)), 1)
        for _ in range(3):
            await client.ask(beat("g", "a", epoch), 1)
        assert (await client.ask(commit("g", "a", epoch, "orders", {0: 5}), 9)).topics[0].partitions[0].error_code == 0
        assert (await client.ask(commit("g", "x", epoch, "orders", {0: 6}), 9)).topics[0].partitions[0].error_code != 0
        sidecar.metrics.settle()
        await Census(sidecar.service, sidecar.metrics).take()
        assert total(sidecar, "sidecar_rebalances_total", kind="consumer", reason="joined") == 1
        assert total(sidecar, "sidecar_partitions_moved_total", assignor="uniform") == 4
        assert total(sidecar, "sidecar_settle_seconds_count", kind="consumer") == 1
        assert total(sidecar, "sidecar_commits_total", result="accepted") == 1
        assert total(sidecar, "sidecar_commits_total", result="unknown_member_id") == 1
        assert total(sidecar, "sidecar_groups", kind="consumer", state="Stable") == 1
        assert total(sidecar, "sidecar_members", kind="consumer", protocol="consumer") == 1
        assert total(sidecar, "sidecar_group_rebalances", consumergroup="g") == 1
        assert total(sidecar, "sidecar_append_seconds_count") > 0
        assert total(sidecar, "sidecar_takeover_seconds_count") == 2
        assert total(sidecar, "sidecar_partition_owned", partition="0") == 1
        assert total(sidecar, "sidecar_partitions", state="serving") == 2
        handled = total(sidecar, "sidecar_request_seconds_count", api="consumer_group_heartbeat")
        steady = total(sidecar, "sidecar_steady_replies_total")
        seen = total(sidecar, "sidecar_requests_total", api="consumer_group_heartbeat", decision="terminated")
        assert steady > 0 and handled + steady == seen, "each request is in one of the two"
        leave = await client.ask(beat("g", "a", -1), 1)
        assert leave.error_code == 0
        await Census(sidecar.service, sidecar.metrics).take()
        assert total(sidecar, "sidecar_rebalances_total", kind="consumer", reason="left") == 1
        assert total(sidecar, "sidecar_groups", kind="consumer", state="Empty") == 1
        assert (
            sidecar.metrics.registry.get_sample_value("sidecar_group_unsettled_seconds", {"consumergroup": "g"}) is None
        ), "a group without members is not under way"

    run(test)


def test_the_tail_says_how_far_behind_it_is() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        assert sidecar.state.behind() == 0
        sidecar.state.reported_ends = [part.position + 7 for part in sidecar.state.partitions]
        assert total(sidecar, "sidecar_tail_lag_records") == 14

    run(test)


def settings(**given: Any) -> ExporterSettings:
    return ExporterSettings(**{"node_id": 1, "every_s": 1.0, "series": 1_000, "named": lambda g: g != "no", **given})


def test_the_exporter_asks_in_rounds_and_says_what_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two groups, of which one is not to be named; the broker of one leader does not answer."""
    asked: list[tuple[str, int]] = []

    async def committed(conn: Any, groups: list[str], timeout_s: float) -> Any:
        asked.extend((g, conn) for g in groups)
        return {g: {("orders", 0): 3, ("orders", 1): 4} for g in groups}

    async def listed(conn: Any, places: Any, timestamp: int, timeout_s: float) -> Any:
        if conn == 2:
            raise ConnectionLost("silent")
        return {(t, p): 10 if timestamp == LATEST else 1 for t, ps in places.items() for p in ps}

    monkeypatch.setattr(exporter, "committed", committed)
    monkeypatch.setattr(exporter, "listed", listed)

    class Lanes:
        async def lane(self, node_id: int, lane: Lane) -> int:
            return node_id

    async def test(sidecar: EmbeddedSidecar) -> None:
        client = await sidecar.client()
        for group in ("g", "no"):
            await client.ask(join(group, "a"), 1)
        view = ClusterView(brokers={1: ("a", 1), 2: ("b", 2)}, leaders={"orders": (1, 2)}, behind=frozenset())
        ports = ExporterPorts(lambda p: 5, lambda: view)
        lanes: Any = Lanes()
        made = Exporter(settings(), sidecar.service, lanes, ports, sidecar.metrics, sidecar.lines)
        assert total(sidecar, "sidecar_exporter_age_seconds") == -1
        await made.look()
        assert asked == [("g", 5)]
        told = {line for line in made.page.text.decode().splitlines() if not line.startswith("#")}
        assert told == {
            'kafka_consumergroup_lag_sum{consumergroup="g",topic="orders"} 7',
            'kafka_consumergroup_members{consumergroup="g"} 1',
            "kafka_brokers 2",
            'kafka_consumergroup_current_offset_sum{consumergroup="g",topic="orders"} 7',
            'kafka_consumergroup_lag{consumergroup="g",topic="orders",partition="0"} 7',
            'kafka_consumergroup_current_offset{consumergroup="g",topic="orders",partition="0"} 3',
            'kafka_consumergroup_current_offset{consumergroup="g",topic="orders",partition="1"} 4',
            'kafka_topic_partitions{topic="orders"} 2',
            'kafka_topic_partition_current_offset{topic="orders",partition="0"} 10',
            'kafka_topic_partition_oldest_offset{topic="orders",partition="0"} 1',
            'kafka_topic_partition_leader{topic="orders",partition="0"} 1',
            'kafka_topic_partition_under_replicated_partition{topic="orders",partition="0"} 0',
        }
        assert total(sidecar, "sidecar_exporter_troubles_total") == 1
        assert (
            total(sidecar, "sidecar_exporter_series") == len(told)
            and total(sidecar, "sidecar_exporter_series_cut") == 0
        )
        assert 0 <= total(sidecar, "sidecar_exporter_age_seconds") < 5
        await until(lambda: sidecar.lines.fields("the exporter was not answered")["broker"] == 2)
        few = Exporter(settings(series=3), sidecar.service, lanes, ports, sidecar.metrics, sidecar.lines)
        await few.look()
        assert few.page.series == 3 and few.page.cut == len(told) - 3
        assert (
            sidecar.lines.fields("not all offsets and lags are exported: see exporter.series")["cut"] == len(told) - 3
        )

    run(test)
