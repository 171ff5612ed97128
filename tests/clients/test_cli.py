"""The commands of people, on real clusters: a group that is held up, a silent member, a cluster set up wrongly."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from typer.testing import CliRunner, Result

from sidecar.cli.main import app
from sidecar.drill.local import Broker, LocalKafka
from sidecar.drill.processes import wait_until
from sidecar.kafka.cluster import Cluster
from sidecar.wire.generated import consumer_group_heartbeat as ch
from tests.clients.ground import ENV, make_topic
from tests.clients.wire import session_of

SHORT = {**ENV, "SIDECAR_CONSUMER__MIN_SESSION_TIMEOUT_MS": "1000", "SIDECAR_CONSUMER__SESSION_TIMEOUT_MS": "6000"}


def call(*words: str) -> Result:
    return CliRunner().invoke(app, list(words), catch_exceptions=False)


def json_of(*words: str, code: int = 0) -> Any:
    """Returns a command's JSON output; it must end with this exit code."""
    done = call(*words, "-o", "json")
    assert done.exit_code == code, done.output
    return json.loads(done.stdout)


class UnequalBrokers(LocalKafka):
    """Two brokers. The second one advertises its own port, and its sidecar has other patterns."""

    def sidecar_settings(self, n: Broker) -> dict[str, str]:
        env = super().sidecar_settings(n)
        return env | ({"SIDECAR_GROUPS__INCLUDE": '["other.*"]'} if n.node_id == 2 else {})


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    cluster = UnequalBrokers(tmp_path_factory.mktemp("pair"), brokers=2, sidecar_env=SHORT)
    second = cluster.nodes[1]
    cluster.proxied[second.sidecar_port] = second.clients_port
    with cluster:
        cluster.wait_ready()
        yield cluster


def consumer(bootstrap: str, group: str, name: str, **more: Any) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "client.id": name,
            "group.protocol": "consumer",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "log_level": 2,
            **more,
        }
    )


def poll(seconds: float, *consumers: Consumer) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for c in consumers:
            c.poll(0.05)


def at_work(*consumers: Consumer) -> bool:
    poll(0.2, *consumers)
    return all(c.assignment() for c in consumers)


def test_who_does_not_poll_holds_up_the_group_and_is_named(trio: LocalKafka) -> None:
    make_topic(trio, "held", 4)
    group, at = "managed-held", ("--bootstrap", trio.bootstrap)
    first, second = consumer(trio.bootstrap, group, "first"), consumer(trio.bootstrap, group, "second")
    first.subscribe(["held"])
    wait_until("the first one to have all", lambda: first.poll(0.2) is None and len(first.assignment()) == 4, 120)
    assert call("groups", "explain", group, *at).output.startswith(f"{group} is stable: everybody has")
    second.subscribe(["held"])

    def held_up() -> bool:
        second.poll(0.2)
        done = call("groups", "explain", group, *at, "-o", "json")
        return done.exit_code == 1 and any(w["told"] for w in json.loads(done.stdout)["waits"])

    wait_until("the second one to wait for the first", held_up, 120)
    done = call("groups", "explain", group, *at)
    assert done.exit_code == 1 and "is not stable" in done.output
    assert "(second) waits for" in done.output and "(first) to give up held-" in done.output, done.output
    assert "It was told so" in done.output and "is removed" in done.output
    live = call("groups", "explain", group, *at, *admins(trio)).output
    assert "is removed for silence in" in live and "None of these sidecars" not in live, live
    found = json_of("groups", "explain", group, *at, "--if-leaves", "first")
    assert {m["to"] for m in found["moves"]} == {
        m["member"] for m in json_of("groups", "describe", group, *at)["members"] if m["client"] == "second"
    }
    rows = [json.loads(line) for line in call("groups", "members", group, *at, "-o", "json").output.splitlines()]
    assert {(r["client"], r["state"]) for r in rows} == {("first", "gives up"), ("second", "waits")}
    poll(1, first, second)
    wait_until("the group to be stable", lambda: _stable(group, at, first, second), 120)
    for c in (first, second):
        c.close()
    assert "it left" in call("groups", "explain", group, *at).output


def _stable(group: str, at: tuple[str, ...], *consumers: Consumer) -> bool:
    poll(0.3, *consumers)
    return call("groups", "explain", group, *at).exit_code == 0


def test_groups_are_listed_whoever_coordinates_them(trio: LocalKafka) -> None:
    make_topic(trio, "listed", 2)
    at = ("--bootstrap", trio.bootstrap)
    mine, theirs = consumer(trio.bootstrap, "managed-listed", "m"), consumer(trio.bootstrap, "native-listed", "n")
    for c in (mine, theirs):
        c.subscribe(["listed"])
    wait_until(
        "both to have partitions",
        lambda: at_work(mine, theirs),
        30,
    )
    done = call("groups", "list", "--bootstrap", trio.bootstrap, "-o", "json")
    rows = {r["group"]: r for r in map(json.loads, done.output.splitlines())}
    assert (rows["managed-listed"]["where"], rows["native-listed"]["where"]) == ("sidecar", "broker")
    assert all(rows[g]["members"] == 1 and rows[g]["state"] == "Stable" for g in ("managed-listed", "native-listed"))
    owner = trio.owner_of("managed-listed").node_id
    assert rows["managed-listed"]["node"] == owner
    done = call("top", "--bootstrap", trio.bootstrap, "--once", "-o", "json")
    (seen,) = [r for r in map(json.loads, done.output.splitlines()) if r["group"] == "managed-listed"]
    assert (seen["state"], seen["members"], seen["node"]) == ("Stable", 1, owner) and seen["rebalances"] >= 1
    told = [json.loads(x) for x in call("owner", "managed-listed", *at, "-o", "json").output.splitlines()]
    assert {(r["partition"], r["client"], r["coordinator"]) for r in told} == {
        (f"listed-{p}", "m", f"sidecar {owner}") for p in (0, 1)
    }
    # At the brokers' own listener nobody tells where a group is, but its placeholder is seen.
    rows = {
        r["group"]: r
        for r in map(json.loads, call("groups", "list", "--bootstrap", trio.internal, "-o", "json").output.splitlines())
    }
    assert (rows["managed-listed"]["where"], rows["native-listed"]["where"]) == ("sidecar", "")
    missing = call("groups", "explain", "native-listed", "--bootstrap", trio.bootstrap)
    assert missing.exit_code == 1 and "no records of group native-listed: it is the broker's." in missing.output
    for c in (mine, theirs):
        c.close()


def test_who_was_silent_is_named(trio: LocalKafka) -> None:
    """A process that is stopped does not say that it leaves."""
    at = ("--bootstrap", trio.internal)
    session_of(trio, "managed-quiet", 2_000)
    wire = asyncio.run(join_and_go_silent(trio.internal_sidecars().split(",")[0], "managed-quiet"))

    def silent_member_removed() -> bool:
        done = call("groups", "explain", "managed-quiet", *at)
        return f"{wire} (mute)" in done.output and "silent for longer than its session timeout" in done.output

    wait_until("the silent member to be removed, and told so", silent_member_removed, 120)
    assert json_of("groups", "explain", "managed-quiet", *at)["state"] == "Empty"
    assert "session timeout" in call("groups", "history", "managed-quiet", *at).output


async def join_and_go_silent(address: str, group: str) -> str:
    """Join once, and say nothing more. Returns the member id."""
    host, _, port = address.rpartition(":")
    cluster = Cluster([(host, int(port))], "mute", {})
    try:
        conn = await cluster.coordinator(group, 0)
        hb = ch.ConsumerGroupHeartbeatRequest(
            group,
            "quiet-member",
            0,
            rebalance_timeout_ms=30_000,
            subscribed_topic_names=["held-no"],
            topic_partitions=[],
        )
        res = await conn.request(ch, "ConsumerGroupHeartbeat", hb)
        assert res.error_code == 0, res
        return str(res.member_id)
    finally:
        cluster.close()


def checks(*words: str) -> dict[str, dict[str, str]]:
    done = call("doctor", *words, "-o", "json")
    return {c["name"]: c for c in map(json.loads, done.output.splitlines())} | {"": {"status": str(done.exit_code)}}


def admins(kafka: LocalKafka) -> list[str]:
    return [w for n in kafka.nodes for w in ("--admin", f"127.0.0.1:{n.admin_port}")]


def alter(bootstrap: str, topic: str, name: str, value: str | None) -> None:
    op = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
    entry = ConfigEntry(name, value or "", incremental_operation=op)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(timeout=30)


def test_a_doctor_finds_nothing_wrong_where_nothing_is(trio: LocalKafka) -> None:
    found = checks("--bootstrap", trio.bootstrap, *admins(trio))
    assert {n: c for n, c in found.items() if c["status"] not in ("ok", "0")} == {}
    bypass = checks("--bootstrap", trio.internal)
    assert bypass["listeners"]["status"] == "fail" and "bypass" in bypass["listeners"]["finding"]
    assert bypass["clocks"]["status"] == "unknown" and "--admin" in bypass["clocks"]["remedy"]
    assert bypass[""]["status"] == "1"


@pytest.mark.tier("all")
def test_a_doctor_finds_what_is_wrong(pair: LocalKafka) -> None:
    bootstrap = f"127.0.0.1:{pair.nodes[0].sidecar_port}"
    alter(pair.internal, "__group_state", "min.compaction.lag.ms", "1000")
    found = checks("--bootstrap", bootstrap, *admins(pair), "--admin", "127.0.0.1:1")
    second = pair.nodes[1]
    assert found["listeners"]["status"] == "fail"
    assert f"node 2 (127.0.0.1:{second.clients_port})" in found["listeners"]["finding"]
    assert (
        found["patterns of groups"]["status"] == "fail"
        and "other.* at sidecar 2" in found["patterns of groups"]["finding"]
    )
    assert found["settings of the state topic"]["status"] == "warn"
    assert "min.compaction.lag.ms=1000" in found["settings of the state topic"]["finding"]
    assert found["sidecars ready"]["status"] == "fail" and "127.0.0.1:1" in found["sidecars ready"]["finding"]
    alter(pair.internal, "__group_state", "cleanup.policy", "delete")
    found = checks("--bootstrap", bootstrap)
    assert found["settings of the state topic"]["status"] == "fail"
    assert "cleanup.policy=delete" in found["settings of the state topic"]["finding"]
    alter(pair.internal, "__group_state", "cleanup.policy", "compact")
    assert checks("--bootstrap", bootstrap)["settings of the state topic"]["status"] == "warn"


def test_a_sidecar_tells_of_itself(trio: LocalKafka) -> None:
    told = trio.get(trio.nodes[0], "/about")
    assert told["node_id"] == 1 and told["settings"]["groups.include"] == ["managed.*", "copy.*", "matrix.*"]
    assert abs(told["wall_ms"] - time.time() * 1000) < 5_000
