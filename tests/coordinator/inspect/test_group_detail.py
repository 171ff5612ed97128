"""What `sidecar groups describe` tells of a group and DescribeGroups of Kafka does not: generation, leader, reason."""

from __future__ import annotations

from typing import Any

from sidecar.coordinator.inspect.group_detail import picture
from sidecar.coordinator.migration.managed_groups import OwnRules, Rules
from sidecar.coordinator.statelog.tail import StateLog
from sidecar.core.classic.embedded import assignment
from sidecar.core.classic.events import JoinReply
from sidecar.state.codec import Stamp, StateCodec
from sidecar.state.keys import decode_key
from tests.core.classic_client import ClassicClient, subscription
from tests.core.share.world import Client as ShareClient
from tests.core.share.world import World as ShareWorld
from tests.core.streams.world import Client as StreamsClient
from tests.core.streams.world import World as StreamsWorld
from tests.core.world import Client, World, topic
from tests.inprocess.house import Counted, Lines
from tests.process.test_admin_views import done


class Bench:
    """The copy of the state topic that any sidecar has, from the records of a world."""

    def __init__(self) -> None:
        self.world = World()
        self.codec = StateCodec()
        self.lines = Lines()

    def told(self, group_id: str) -> tuple[Any, int]:
        state = StateLog(1, self.codec, self.lines, Counted())
        for offset, record in enumerate(self.world.log):
            written = self.codec.encode(record, Stamp(1, 1), 0)
            state.apply(0, offset, decode_key(written.key), written.value)
        rules = Rules(OwnRules(lambda name: name != "theirs"), self.codec, state, self.lines)
        return done(picture(state, self.codec, rules, group_id)), state.last_assignment(group_id)


def test_a_classic_group() -> None:
    b = Bench()
    said = (("range", subscription(["a"])),)
    first, second = ClassicClient("m1", protocols=said), ClassicClient("m2", protocols=said, instance_id="i2")
    tokens = []
    for c in (first, second):
        if not c.instance_id:
            given = b.world.ask(c.join())
            assert isinstance(given, JoinReply)
            c.joined(given)
        tokens.append(b.world.request(c.join()))
    b.world.sleep(6_000)
    for c, token in zip((first, second), tokens, strict=True):
        reply = b.world.replies.pop(token).answer
        assert isinstance(reply, JoinReply)
        c.joined(reply)
    told, generation = b.told("g")
    assert (told["state"], told["generation"], told["leader"]) == ("CompletingRebalance", 1, "m1-1")
    assert generation == -1, "nothing is assigned yet"
    b.world.ask(first.sync({"m1-1": assignment(3, [("a", (0, 1))]), "i2-1": b"what no consumer reads"}))
    told, generation = b.told("g")
    assert generation == 1
    assert told == {
        "group": "g",
        "where": "sidecar",
        "managed": "as the patterns say",
        "why": "",
        "rebalance": "",
        "type": "classic",
        "state": "Stable",
        "generation": 1,
        "protocol": "range",
        "because": "assigned by m1-1 in generation 1",
        "leader": "m1-1",
        "members": [
            {
                "member": "i2-1",
                "instance": "i2",
                "client": "m2",
                "host": "/10.0.0.1",
                "stale_claims": [],
                "owns": "22 bytes",
            },
            {
                "member": "m1-1",
                "instance": None,
                "client": "m1",
                "host": "/10.0.0.1",
                "stale_claims": [],
                "owns": {"a": [0, 1]},
            },
        ],
    }


def test_a_consumer_group() -> None:
    b = Bench()
    b.world.topics(topic(1, "a", 2))
    Client(b.world, "g", "m1", ("a",)).heartbeat()
    told, epoch = b.told("g")
    assert (told["type"], told["epoch"], told["assignment_epoch"], told["assignor"]) == ("consumer", 2, 2, "uniform")
    assert epoch == 2
    (member,) = told["members"]
    assert (member["member"], member["protocol"], member["epoch"], member["state"]) == ("m1", "consumer", 2, "STABLE")
    assert (member["owns"], member["gives_up"]) == ({"a": [0, 1]}, {})


def test_a_streams_group() -> None:
    """Symptom: it was told to be a consumer group without members."""
    b, world = Bench(), StreamsWorld()
    b.world.log = world.log
    world.topics(**{"in": 2, "app_r": 2, "app_c": 2})
    StreamsClient(world, "m1").heartbeat()
    told, epoch = b.told("g")
    assert (told["type"], told["epoch"], told["assignment_epoch"], told["assignor"]) == ("streams", 2, 2, "sticky")
    assert epoch == 2
    (member,) = told["members"]
    assert (member["member"], member["client"], member["process"], member["epoch"]) == ("m1", "m1", "p-m1", 2)
    assert (member["owns"], member["gives_up"]) == ({"0": [0, 1], "1": [0, 1]}, {})


def test_a_share_group() -> None:
    b, world = Bench(), ShareWorld()
    b.world.log = world.log
    ShareClient(world, "g", "m1", ("a",)).heartbeat()
    told, _ = b.told("g")
    assert told["type"] == "share" and [m["member"] for m in told["members"]] == ["m1"]


def test_a_group_that_is_not_there() -> None:
    assert Bench().told("theirs") == (None, -1)
    told, _ = Bench().told("to-come")
    assert told["where"] == "comes" and "type" not in told
