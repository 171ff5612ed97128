"""Groups move between brokers and sidecars under live consumers: nothing is lost, offsets stay, and nothing is consumed
twice but what was not committed when a rebalance came (tests/clients/moving.py). Many rounds of the same, with the
owner killed at any moment: `python -m tests.clients.moving_rounds`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from sidecar.core.errors import Code
from sidecar.drill.local import LocalKafka
from sidecar.drill.processes import wait_until
from sidecar.kafka import native
from sidecar.kafka.net import BrokerConnection
from tests.clients.conftest import ENV
from tests.clients.moving import MEMBERS, PROTOCOLS, at_the_broker, groups, judge, load, where
from tests.clients.moving_rounds import move
from tests.clients.test_group_configs import BROKER, DELETE, SET, alter
from tests.clients.test_placeholders import at

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    cluster = LocalKafka(tmp_path_factory.mktemp("moves"), brokers=2, sidecar_env=ENV)
    with cluster:
        cluster.wait_ready()
        yield cluster


@pytest.mark.parametrize("protocol", list(PROTOCOLS))
def test_there_and_back_under_live_members(kafka: LocalKafka, protocol: str) -> None:
    with load(kafka, protocol, protocol) as live:
        assert at_the_broker(kafka, live.group).kind == ("consumer" if protocol == "consumer" else "classic")
        begun = time.monotonic()
        assert groups(kafka, "adopt", live.group) == (0, f"{live.group} is with the sidecars now.\n")
        print("adopted after", round(time.monotonic() - begun, 2))
        live.goes_on("the adoption")
        assert where(kafka, kafka.nodes[0], live.group) == "sidecar"
        assert at_the_broker(kafka, live.group).kind == native.NOBODY
        begun = time.monotonic()
        assert groups(kafka, "release", live.group) == (0, f"{live.group} is with the broker now.\n")
        print("released after", round(time.monotonic() - begun, 2))
        live.goes_on("the release")
        assert where(kafka, kafka.nodes[0], live.group) == "broker"
        assert len(at_the_broker(kafka, live.group).members) == MEMBERS
    judge(live, 2)


@pytest.mark.parametrize(
    ("verb", "protocol", "after_s"),
    [
        ("adopt", "eager", 0.2),  # nobody has asked the broker yet
        ("adopt", "eager", 0.55),  # it has just been described
        ("adopt", "consumer", 0.55),
        ("release", "eager", 0.1),  # it has just begun to drain
        ("release", "cooperative", 0.5),  # its members have been assigned nothing, or are about to be
        ("release", "consumer", 0.2),
    ],
)
def test_the_owner_dies_in_the_middle(kafka: LocalKafka, verb: str, protocol: str, after_s: float) -> None:
    with load(kafka, f"dies-{verb}-{protocol}-{round(1000 * after_s)}", protocol) as live:
        if verb == "release":
            move(live, "adopt")
        told = move(live, verb, kill_after_s=after_s)
        assert told["all_seconds"] < 40, "nobody waits for the session of a member that is long gone"
    judge(live, 3)


def test_patterns_change_while_everything_runs(kafka: LocalKafka) -> None:
    async def say(conn: BrokerConnection, value: str | None) -> None:
        op = ("sidecar.groups.include", DELETE if value is None else SET, value)
        assert await alter(conn, "", op, kind=BROKER) == (0, None)
        code, _ = await alter(conn, "1", ("sidecar.groups.include", SET, "x"), kind=BROKER)
        assert code == Code.INVALID_CONFIG, "it is the same for all brokers"

    with load(kafka, "pattern", "eager") as live:
        at(kafka.nodes[0].sidecar_port, lambda c: say(c, "managed.*,moved-pat.*"))
        wait_until("the group to come", lambda: where(kafka, kafka.nodes[1], live.group) == "sidecar", 30)
        live.goes_on("the new pattern")
        assert at_the_broker(kafka, live.group).kind == native.NOBODY
        at(kafka.nodes[1].sidecar_port, lambda c: say(c, None))
        wait_until("the group to leave", lambda: not where(kafka, kafka.nodes[1], live.group), 60)
        live.goes_on("the old pattern")
        assert len(at_the_broker(kafka, live.group).members) == MEMBERS
    judge(live, 2)


@pytest.mark.parametrize("protocol", ["cooperative", "consumer"])
def test_the_administrator_has_a_group_assigned_anew(kafka: LocalKafka, protocol: str) -> None:
    with load(kafka, f"anew-{protocol}", protocol) as live:
        code, told = groups(kafka, "rebalance", live.group)
        assert code == 1 and "is not with the sidecars" in told
        assert groups(kafka, "adopt", live.group)[0] == 0
        live.goes_on("the adoption")
        code, told = groups(kafka, "rebalance", live.group, "--reason", "lag is uneven")
        assert code == 0 and "was assigned anew" in told
        live.goes_on("the rebalance")
        code, told = groups(kafka, "describe", live.group, "--admin", f"127.0.0.1:{kafka.nodes[0].admin_port}")
        assert code == 0 and "where: sidecar" in told and f"members: {MEMBERS}" in told and "owns: {" in told
        assert groups(kafka, "rebalance", live.group, "--remove-instance", "nobody")[0] == 1
        assert groups(kafka, "release", live.group)[0] == 0
    judge(live, 3)


def test_a_broker_that_knows_no_settings_of_groups(tmp_path_factory: pytest.TempPathFactory) -> None:
    old = LocalKafka(tmp_path_factory.mktemp("moves-old"), brokers=1, version="3.9.1", sidecar_env=ENV)
    with old:
        old.wait_ready()
        test_there_and_back_under_live_members(old, "eager")


def test_sidecars_of_two_processes(tmp_path_factory: pytest.TempPathFactory) -> None:
    split = LocalKafka(tmp_path_factory.mktemp("moves-split"), brokers=1, split=True, sidecar_env=ENV)
    with split:
        split.wait_ready()
        test_there_and_back_under_live_members(split, "consumer")
