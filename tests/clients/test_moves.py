"""Groups move between brokers and sidecars under live consumers: nothing is lost, offsets stay, and nothing is consumed
twice but what was not committed when a rebalance came (tests/clients/moving.py). Many rounds of the same, with the
owner killed at any moment: `python -m tests.clients.moving_rounds`.
"""

from __future__ import annotations

import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from sidecar.core.vocabulary.errors import Code
from sidecar.drill.local import LocalKafka
from sidecar.drill.processes import wait_until
from sidecar.kafka import native
from sidecar.kafka.net import BrokerConnection
from tests.clients.ground import ENV
from tests.clients.moving import MEMBERS, at_the_broker, groups, judge, load, picture, where
from tests.clients.moving_rounds import move
from tests.clients.test_group_configs import BROKER, DELETE, SET, alter
from tests.clients.test_placeholders import at

LATER, NIGHTLY = pytest.mark.tier("all"), pytest.mark.tier("nightly")


@pytest.fixture
def kafka(trio: LocalKafka) -> LocalKafka:
    return trio


@pytest.mark.parametrize(
    ("protocol", "kind"),
    [
        ("eager", "librdkafka"),
        ("consumer", "librdkafka"),
        pytest.param("consumer", "java", marks=LATER),
        pytest.param("cooperative", "librdkafka", marks=NIGHTLY),
        pytest.param("cooperative", "java", marks=NIGHTLY),
    ],
)
def test_there_and_back_under_live_members(kafka: LocalKafka, protocol: str, kind: str) -> None:
    with load(kafka, f"{kind}-{protocol}", protocol, kind) as live:
        assert at_the_broker(kafka, live.group).kind == ("consumer" if protocol == "consumer" else "classic")
        begun = time.monotonic()
        assert groups(kafka, "adopt", live.group) == (0, f"{live.group} is with the sidecars now.\n")
        print("adopted after", round(time.monotonic() - begun, 2))
        live.goes_on("the adoption")
        assert where(kafka, kafka.nodes[0], live.group) == "sidecar"
        assert at_the_broker(kafka, live.group).kind == native.NO_MEMBERS
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
        pytest.param("adopt", "eager", 0.55, marks=LATER),  # it has just been described
        pytest.param("adopt", "consumer", 0.55, marks=LATER),
        pytest.param("release", "eager", 0.1, marks=NIGHTLY),  # it has just begun
        # Its members have been assigned nothing, or are about to be.
        pytest.param("release", "cooperative", 0.5, marks=LATER),
        pytest.param("release", "consumer", 0.2, marks=NIGHTLY),
    ],
)
def test_the_owner_dies_in_the_middle(kafka: LocalKafka, verb: str, protocol: str, after_s: float) -> None:
    with load(kafka, f"dies-{verb}-{protocol}-{round(1000 * after_s)}", protocol) as live:
        if verb == "release":
            move(live, "adopt")
        told = move(live, verb, kill_after_s=after_s)
        assert told["all_seconds"] < 40, "nobody waits for the session of a member that is long gone"
    judge(live, 3)


@LATER
def test_patterns_change_while_everything_runs(kafka: LocalKafka) -> None:
    async def set_patterns(conn: BrokerConnection, value: str | None) -> None:
        op = ("sidecar.groups.include", DELETE if value is None else SET, value)
        assert await alter(conn, "", op, kind=BROKER) == (0, None)
        code, _ = await alter(conn, "1", ("sidecar.groups.include", SET, "x"), kind=BROKER)
        assert code == Code.INVALID_CONFIG, "it is the same for all brokers"

    with load(kafka, "pattern", "eager") as live:
        at(kafka.nodes[0].sidecar_port, lambda c: set_patterns(c, "managed.*,moved-pat.*"))
        wait_until("the group to come", lambda: where(kafka, kafka.nodes[1], live.group) == "sidecar", 120)
        live.goes_on("the new pattern")
        assert at_the_broker(kafka, live.group).kind == native.NO_MEMBERS
        at(kafka.nodes[1].sidecar_port, lambda c: set_patterns(c, None))
        wait_until("the group to leave", lambda: not where(kafka, kafka.nodes[1], live.group), 120)
        live.goes_on("the old pattern")
        assert len(at_the_broker(kafka, live.group).members) == MEMBERS
    judge(live, 2)


@LATER
@pytest.mark.parametrize(
    ("protocol", "kind"),
    [
        ("consumer", "librdkafka"),
        pytest.param("eager", "java", marks=NIGHTLY),
        pytest.param("eager", "librdkafka", marks=NIGHTLY),
        pytest.param("consumer", "java", marks=NIGHTLY),
    ],
)
def test_a_static_member_that_restarts_while_its_group_goes_back(kafka: LocalKafka, kind: str, protocol: str) -> None:
    """The others wait for it, but not for the session of the one that it was, which is 45 s. One of the consumer
    protocol has said that it comes back: whoever does not say so may not come back before its session is over."""
    with load(kafka, f"static-{kind}-{protocol}", protocol, kind, instances=("i0", "i1", "i2")) as live:
        move(live, "adopt")
        first = live.clients[0]
        first.process.kill() if protocol == "eager" else first.stop()
        first.journal.end(int(time.time() * 1000))
        live.remove(first)
        begun = time.monotonic()
        with ThreadPoolExecutor(1) as pool:
            moved = pool.submit(groups, kafka, "release", live.group)
            wait_until("the others to wait for it", lambda: where(kafka, kafka.nodes[0], live.group) == "leaves", 120)
            again = live.add(f"{first.name}-again", "i0")
            assert moved.result(200)[0] == 0
        live.goes_on("the restart")
        assert time.monotonic() - begun < 45
        assert again.process.alive and all(c.process.alive for c in live.clients)
        members = at_the_broker(kafka, live.group).members
        assert sorted(str(m.instance_id) for m in members) == ["i0", "i1", "i2"]
    judge(live, 3)


@LATER
def test_the_next_owner_does_the_rebalance_that_the_last_one_did_not_begin(kafka: LocalKafka) -> None:
    """The last owner stands still when the order comes, and is killed."""

    async def order(conn: BrokerConnection) -> None:
        assert await alter(conn, live.group, ("sidecar.rebalance", SET, "lag is uneven")) == (0, None)

    with load(kafka, "order", "eager") as live:
        move(live, "adopt")
        owner = kafka.owner_of(live.group)
        other = next(n for n in kafka.nodes if n is not owner)
        generation = picture(kafka, other, live.group)["epoch"]
        assert owner.sidecar is not None
        owner.sidecar.signal(signal.SIGSTOP)
        at(other.sidecar_port, order)
        assert "lag is uneven" in picture(kafka, other, live.group)["rebalance_asked"]
        assert picture(kafka, other, live.group)["epoch"] == generation
        owner.sidecar.kill()
        kafka.start_sidecar(owner)
        wait_until("a new generation", lambda: picture(kafka, other, live.group)["epoch"] > generation, 120)
        kafka.wait_ready()
        live.goes_on("the rebalance")
        assert picture(kafka, other, live.group)["rebalance_asked"] == ""
    judge(live, 3)


@LATER
@pytest.mark.parametrize("protocol", ["cooperative", pytest.param("consumer", marks=NIGHTLY)])
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
        assert code == 0 and "where: sidecar" in told and f"members: {MEMBERS}" in told and "owns: " in told
        assert groups(kafka, "rebalance", live.group, "--remove-instance", "nobody")[0] == 1
        assert groups(kafka, "release", live.group)[0] == 0
    judge(live, 3)


@NIGHTLY
def test_a_broker_that_knows_no_settings_of_groups(tmp_path_factory: pytest.TempPathFactory) -> None:
    old = LocalKafka(tmp_path_factory.mktemp("moves-old"), brokers=1, version="3.9.1", sidecar_env=ENV)
    with old:
        old.wait_ready()
        test_there_and_back_under_live_members(old, "eager", "librdkafka")


@NIGHTLY
def test_sidecars_of_two_processes(tmp_path_factory: pytest.TempPathFactory) -> None:
    split = LocalKafka(tmp_path_factory.mktemp("moves-split"), brokers=1, split=True, sidecar_env=ENV)
    with split:
        split.wait_ready()
        test_there_and_back_under_live_members(split, "consumer", "librdkafka")
