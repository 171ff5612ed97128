"""Views show groups of all kinds and name no kind themselves: the list, the description, JSON. A toy kind is shown
alike."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from sidecar.coordinator.inspect.group_views import ClusterFacts, Views
from sidecar.coordinator.inspect.rebalance_history import RebalanceHistory
from sidecar.coordinator.membership.owners_protocol import Assignment
from sidecar.coordinator.moves.managed_groups import OwnRules, Rules
from sidecar.coordinator.settings.stored_settings import StoredSettings
from sidecar.coordinator.statelog.tail import StateLog
from sidecar.core.classic.embedded import assignment
from sidecar.core.classic.events import JoinReply
from sidecar.core.runtime.records import Record, Tombstone
from sidecar.core.runtime.registry import Registry
from sidecar.core.streams.topology import Subtopology, Topology
from sidecar.state.codec import Stamp, StateCodec
from sidecar.state.keys import decode_key
from tests.core.classic_client import ClassicClient, subscription
from tests.core.modern import crew
from tests.core.modern.test_another_kind import REGISTRY, Crews
from tests.core.share.world import Client as ShareClient
from tests.core.share.world import World as ShareWorld
from tests.core.streams.world import Client as StreamsClient
from tests.core.streams.world import World as StreamsWorld
from tests.core.world import Client, World, topic, topic_id
from tests.inprocess.embedded_sidecar import Counted, Lines
from tests.process.synthetic import Listed
from tests.process.test_admin_views import done, page

NOW_MS = 5_000


class Seen:
    """Views of these records by a sidecar that does not own them, from its copy of the state topic."""

    def __init__(
        self, log: Iterable[Record] = (), registry: Registry | None = None, files: Mapping[str, str] | None = None
    ) -> None:
        self.codec = StateCodec() if registry is None else StateCodec(registry, files)
        lines = Lines()
        self.state = StateLog(1, self.codec, lines, Counted())
        self.past = self.state.watcher = RebalanceHistory(20, self.codec)
        rules = Rules(OwnRules(lambda name: name != "theirs"), StoredSettings(self.codec, self.state, lines), lines)
        owned = Assignment(1, (1,), {1: ("m", "broker-1", 9092)})
        self.views = Views(1, self.state, self.codec, rules, self.past, lambda: owned, ClusterFacts(Listed(1).groups))
        self.write(*log)

    def write(self, *records: Record) -> None:
        for record in records:
            written = self.codec.encode(record, Stamp(1, NOW_MS), 1)
            self.state.apply(0, self.state.partitions[0].position, decode_key(written.key), written.value)

    def group_view(self, group_id: str = "g") -> Any:
        told = done(self.views.whole(group_id))
        assert told is None or json.loads(json.dumps(told)) is not None
        return told

    def page(self, group_id: str = "g") -> Any:
        return done(self.views.group(group_id, 0, 0, 100))

    def rows(self) -> dict[str, Any]:
        found = {r["group"]: r for r in page(self.views)[1]}
        for group_id, row in found.items():
            whole = self.group_view(group_id)
            assert (row["kind"], row["state"], row["epoch"]) == (whole["kind"], whole["state"], whole["epoch"])
            assert row["members"] == len(whole["members"])
        return found

    def row(self, group_id: str = "g") -> Any:
        return self.rows()[group_id]


def test_a_classic_group() -> None:
    world, said = World(), (("range", subscription(["a"])),)
    first, second = ClassicClient("m1", protocols=said), ClassicClient("m2", protocols=said, instance_id="i2")
    tokens = []
    for c in (first, second):
        if not c.instance_id:
            given = world.ask(c.join())
            assert isinstance(given, JoinReply)
            c.joined(given)
        tokens.append(world.request(c.join()))
    world.sleep(6_000)
    for c, token in zip((first, second), tokens, strict=True):
        reply = world.replies.pop(token).answer
        assert isinstance(reply, JoinReply)
        c.joined(reply)
    s = Seen(world.log)
    assert (s.row()["state"], s.row()["epoch"], s.row()["members"]) == ("CompletingRebalance", 1, 2)
    assert s.group_view()["leader"] == "m1-1"
    assert s.state.last_assignment("g") == -1, "nothing is assigned yet"
    world.ask(first.sync({"m1-1": assignment(3, [("a", (0, 1))]), "i2-1": b"what no consumer reads"}))
    s = Seen(world.log)
    told = s.group_view()
    assert s.state.last_assignment("g") == 1
    assert told.pop("since_ms") == world.now_ms
    nobody: dict[str, Any] = {"rack": None, "state": "", "regex": None, "gives_up": {}, "stale_claims": []}
    second_owns = "22 bytes"
    assert told == {
        "group": "g",
        "partition": 0,
        "owner": 1,
        "broker": None,
        "here": True,
        "where": "sidecar",
        "managed": "as the patterns say",
        "managed_why": "",
        "rebalance_asked": "",
        "kind": "classic",
        "state": "Stable",
        "at_rest": True,
        "because": "assigned by m1-1 in generation 1",
        "problems": [],
        "epoch_name": "generation",
        "assignor_name": "protocol",
        "epoch": 1,
        "assignment_epoch": 1,
        "assignor": "range",
        "leader": "m1-1",
        "lag": None,
        "members": [
            {"member": "i2-1", "client": "m2", "host": "/10.0.0.1", "instance": "i2", "protocol": "classic"}
            | {"epoch": 1, "topics": ("a",), "owns": second_owns, "target": second_owns, **nobody},
            {"member": "m1-1", "client": "m1", "host": "/10.0.0.1", "instance": None, "protocol": "classic"}
            | {"epoch": 1, "topics": ("a",), "owns": {"a": [0, 1]}, "target": {"a": [0, 1]}, **nobody},
        ],
    }


def test_a_consumer_group() -> None:
    world = World()
    world.topics(topic(1, "a", 2))
    Client(world, "g", "m1", ("a",)).heartbeat()
    s = Seen(world.log)
    told = s.group_view()
    assert (told["kind"], told["epoch"], told["assignment_epoch"], told["assignor"]) == ("consumer", 2, 2, "uniform")
    assert s.state.last_assignment("g") == 2
    assert (s.row()["state"], s.row()["why"], s.row()["changed_ms"]) == ("Stable", "m1 joined", NOW_MS)
    (member,) = told["members"]
    assert (member["member"], member["protocol"], member["epoch"], member["state"]) == ("m1", "consumer", 2, "STABLE")
    assert (member["owns"], member["gives_up"], member["target"]) == ({"a": [0, 1]}, {}, {"a": [0, 1]})


def streams_world() -> StreamsWorld:
    world = StreamsWorld()
    world.topics(**{"in": 2, "app_r": 2, "app_c": 2})
    StreamsClient(world, "m1").heartbeat()
    return world


def test_a_streams_group() -> None:
    """Symptom: it was told to be a consumer group without members, and the page showed it as `other`."""
    s = Seen(streams_world().log)
    told = s.group_view()
    assert (told["kind"], told["epoch"], told["assignment_epoch"], told["assignor"]) == ("streams", 2, 2, "sticky")
    assert (told["topology_epoch"], told["topology"]) == (1, {"0": ["in"], "1": ["app-r"]})
    assert s.state.last_assignment("g") == 2
    assert (s.row()["kind"], s.row()["state"], s.row()["members"]) == ("streams", "Stable", 1)
    (member,) = told["members"]
    assert (member["member"], member["client"], member["process"], member["epoch"]) == ("m1", "m1", "p-m1", 2)
    assert (member["owns"], member["gives_up"]) == ({"0": [0, 1], "1": [0, 1]}, {})
    page = s.page()
    (rebalance,) = page["rebalances"]
    assert (rebalance["epoch"], rebalance["joined"]["names"], rebalance["moved"]) == (2, ["m1"], 4)
    assert [(p["name"], p["owner"]) for p in page["partitions"]["rows"]] == [
        ("0_0", "m1"),
        ("0_1", "m1"),
        ("1_0", "m1"),
        ("1_1", "m1"),
    ]


def test_a_streams_group_whose_topics_are_missing_is_not_ready() -> None:
    world = StreamsWorld()
    StreamsClient(world, "m1", topology=Topology(1, (Subtopology("0", ("nowhere",)),))).heartbeat()
    assert Seen(world.log).row()["state"] == world.shard.groups["g"].state_name() == "NotReady"


def test_another_record_of_the_same_epoch_is_no_rebalance() -> None:
    """A streams group writes its record also when endpoints change or the end of the application is asked for."""
    world = streams_world()
    group: Any = world.shard.groups["g"]
    s = Seen([*world.log, group.record("m1 asks for the end of the application", shutdown_member="m1")])
    assert [r["epoch"] for r in s.page()["rebalances"]] == [2]
    assert s.group_view()["shutdown_asked_by"] == "m1"


def test_a_share_group() -> None:
    world = ShareWorld()
    world.topics(topic(1, "a", 2))
    first, second = (ShareClient(world, "g", m, ("a",)) for m in ("m1", "m2"))
    for _ in range(3):
        first.heartbeat()
        world.initialised("g", {topic_id(1): (0, 1)})
        second.heartbeat()
    s = Seen(world.log)
    group: Any = world.shard.groups["g"]
    told = s.group_view()
    assert (told["kind"], told["state"], told["epoch"], told["assignor"]) == ("share", "Stable", group.epoch, "simple")
    assert (told["subscribes"], told["initialised"]) == (["a"], 2)
    assert (s.row()["kind"], s.row()["members"]) == ("share", 2)
    owned = {m["member"]: m["owns"].get("a", []) for m in told["members"]}
    assert owned == {m.member_id: sorted(m.assigned.get(topic_id(1), ())) for m in group.members.values()}
    assert s.page()["rebalances"][0]["epoch"] == group.epoch


def test_a_group_of_a_kind_that_nobody_was_told_of() -> None:
    crews = Crews()
    crews.settle("a", "b", "c")
    crews.beat("a", crews.group.members["a"].member_epoch)
    s = Seen(crews.log.written, REGISTRY, crew.FILES)
    told = s.group_view()
    assert (told["kind"], told["state"], told["epoch"], told["assignment_epoch"]) == ("crew", "Stable", 4, 4)
    assert (s.row()["kind"], s.row()["state"], s.row()["members"], s.row()["epoch"]) == ("crew", "Stable", 3, 4)
    assert [m["owns"] for m in told["members"]] == [{"orders": [0, 2]}, {"orders": [0, 1]}, {"orders": [1, 2]}]
    assert s.state.last_assignment("g") == 4
    page = s.page()
    assert [p["owner"] for p in page["partitions"]["rows"]] == ["a, b", "b, c", "a, c"], "each is two members'"
    assert [(r["epoch"], r["joined"]["names"]) for r in page["rebalances"]] == [(4, ["c"]), (3, ["b"]), (2, ["a"])]
    s.write(*crews.group.tombstones("gone"))
    assert s.rows() == {}


def test_a_group_that_is_not_there() -> None:
    s = Seen()
    assert s.group_view("theirs") is None and s.page("theirs") is None
    assert s.group_view("to-come")["where"] == "comes" and s.group_view("to-come")["kind"] == ""


def test_what_is_left_of_another_kind_is_told_and_hides_nothing() -> None:
    """The owner cannot build such a group, so the view must show why."""
    world = World()
    world.topics(topic(1, "a", 2))
    Client(world, "g", "m1", ("a",)).heartbeat()
    left = next(r for r in streams_world().log if r.kind == "streams_member")
    s = Seen([left, *world.log])
    told = s.group_view()
    assert (told["kind"], [m["member"] for m in told["members"]]) == ("consumer", ["m1"])
    assert told["problems"] == ["streams_member m1: left over from when it was a group of another kind"]


def test_records_that_contradict_each_other_are_told() -> None:
    world = World()
    world.topics(topic(1, "a", 2))
    Client(world, "g", "m1", ("a",)).heartbeat()
    s = Seen(world.log)
    (current,) = [r for r in world.log if r.kind == "current"][-1:]
    s.write(type(current)("g", "m2", 2, 1, current.state, current.assigned, {}, current.names))  # type: ignore[call-arg, attr-defined]
    assert "assigned to m2" in s.group_view()["problems"][0]
    s.write(Tombstone("current", "g", "m2"))
    assert s.group_view()["problems"] == []
