"""Explanations and history of share and streams groups."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sidecar.audit.explain.ask import explain
from sidecar.audit.explain.replay import replayed
from sidecar.audit.explain.words import words
from sidecar.audit.history.group_history import history
from sidecar.audit.history.topic import Raw, RecordsRead
from sidecar.cli.groups_show import _lines, _picture, in_words
from sidecar.cli.history import _at
from sidecar.core.runtime.records import Record, single
from sidecar.core.vocabulary.topics import TopicImage
from sidecar.state.codec import Encoded, Stamp, StateCodec
from sidecar.state.keys import decode_key
from tests.coordinator.inspect.test_group_views import Seen
from tests.core.share.world import Client as ShareClient
from tests.core.share.world import World as ShareWorld
from tests.core.streams.world import Client as StreamsClient
from tests.core.streams.world import World as StreamsWorld
from tests.core.world import topic, topic_id

BEGIN_MS = 1_000_000


def taken_of(log: Iterable[Record]) -> RecordsRead:
    """The records as they stand in a partition of the state topic, a second after one another, behind a claim."""
    codec = StateCodec()
    taken = RecordsRead(0, schemas=codec.schemas)

    def put(written: Encoded, at_ms: int) -> None:
        headers = {name: value.decode() for name, value in written.headers}
        taken.records.append(Raw(len(taken.records), at_ms, decode_key(written.key), written.value, headers))

    put(codec.claim(Stamp(7, BEGIN_MS), 1, "host-1:9092", "m", 1, "assigned"), BEGIN_MS)
    for i, record in enumerate(single(log), 1):
        put(codec.encode(record, Stamp(7, BEGIN_MS + 1_000 * i), 1), BEGIN_MS + 1_000 * i)
    return taken


def explanation(log: Iterable[Record], image: TopicImage | None = None) -> list[str]:
    """Returns the lines of the explanation, without their times."""
    lines = words(explain(replayed("g", taken_of(log)), image), BEGIN_MS + 60_000)
    return [line.partition(" since ")[0] if " since " in line else line for line in lines]


def events(log: Iterable[Record]) -> list[tuple[str, str, str]]:
    return [(e.what, e.who, e.detail) for e in history("g", taken_of(log).rows()).events]


# ---- streams groups -------------------------------------------------------------------------------------------------
def two_members() -> StreamsWorld:
    """m1 has all tasks and was told to give half of them to m2."""
    world = StreamsWorld()
    world.topics(**{"in": 2, "app_r": 2, "app_c": 2})
    first, second = StreamsClient(world, "m1"), StreamsClient(world, "m2")
    first.heartbeat()
    second.heartbeat()
    world.sleep(6_000)
    first.full = False
    first.send()
    second.send()
    return world


def test_why_a_streams_group_is_not_stable() -> None:
    world = two_members()
    lines = explanation(world.log, world.shard.image)
    assert lines[0].startswith("g is not stable: members are on their way to the target assignment")
    assert lines[1] == "It is a streams group in epoch 3; the assignor is sticky."
    assert lines[2] == "The last rebalance began because: m2 joined."
    found = explain(replayed("g", taken_of(world.log)), world.shard.image)
    (wait,) = found.waits
    group: Any = world.shard.groups["g"]
    given = sorted(f"{s}_{p}" for s, ps in group.members["m1"].pending.active.items() for p in ps)
    assert (wait.member, wait.holder, list(wait.partitions), wait.told) == ("m2", "m1", given, True)
    assert given and any(
        line.startswith(f"m2 waits for m1 to give up {', '.join(given)}. It was told so") for line in lines
    )
    first, second = found.members
    assert (first.state, list(first.gives_up), first.more["process"]) == ("gives up", given, "p-m1")
    assert first.next.endswith("without them it comes to epoch 3")
    assert list(second.target) == given


def test_why_a_streams_group_is_not_ready() -> None:
    world = StreamsWorld()
    StreamsClient(world, "m1").heartbeat()
    lines = explanation(world.log, world.shard.image)
    assert lines[0].startswith("g is not stable: topics that its topology needs are missing, or do not fit (NotReady")
    assert "The topology is not ready: Source topics in are missing." in lines
    lines = explanation(world.log)
    assert not [line for line in lines if "Source topics" in line], "nobody knows the topics"


def test_what_has_happened_to_a_streams_group() -> None:
    world = two_members()
    found = events([*world.log, world.group().record("asked for", shutdown_member="m1")])
    assert found[0] == ("coordinator", "sidecar 1", "host-1:9092, took over")
    assert ("topology", "", "epoch 1, 2 subtopologies") in found
    assert ("joined", "m2", "m2 at h, process p-m2, topology epoch 1") in found
    assert ("group epoch", "", "3") in found and (
        "target assignment",
        "",
        "epoch 3 by sticky, changes 2 members",
    ) in found
    assert ("owns", "m1", "0_0 0_1 1_0 1_1") in found
    assert [what for what, who, _ in found if who == "m1"][-1] == "the end of the application is asked for"


# ---- share groups ---------------------------------------------------------------------------------------------------
def sharing() -> ShareWorld:
    world = ShareWorld()
    world.topics(topic(1, "a", 2))
    ShareClient(world, "g", "m1", ("a",)).heartbeat()
    return world


def test_why_nobody_has_partitions_of_a_share_group() -> None:
    world = sharing()
    lines = explanation(world.log, world.shard.image)
    assert lines[0].startswith("g is stable: it has members (Stable")
    assert lines[1] == "It is a share group in epoch 2; the assignor is simple."
    assert "a-0, a-1 cannot be assigned yet: the broker has not initialised the share state." in lines
    world.initialised("g", {topic_id(1): (0, 1)})
    lines = explanation(world.log, world.shard.image)
    assert not [line for line in lines if "cannot be assigned" in line]


def test_what_has_happened_to_a_share_group() -> None:
    world = sharing()
    client = ShareClient(world, "g", "m2", ("a",))
    world.initialised("g", {topic_id(1): (0, 1)})
    client.heartbeat()
    client.leave()
    found = events(world.log)
    assert ("joined", "m1", "m1 at , subscribes to a") in found
    assert ("left", "m2", "m2 at ") in found
    assert [what for what, _, _ in found].count("group epoch") == 4


def test_several_members_own_a_partition_of_a_share_group() -> None:
    """Symptom: `sidecar owner` told of a share group, as of an empty one, that nobody owned anything."""
    world = sharing()
    clients = [ShareClient(world, "g", m, ("a",)) for m in ("m1", "m2", "m3")]
    world.initialised("g", {topic_id(1): (0, 1)})
    for _ in range(2):
        for client in clients:
            client.heartbeat()
        world.sleep(2_000)
    found = history("g", taken_of(world.log).rows())
    owned = [(r["partition"], r["member"]) for r in _at(found, BEGIN_MS + 600_000, None)]
    assert len(owned) == 4 and {p for p, _ in owned} == {"a-0", "a-1"} and {m for _, m in owned} == {"m1", "m2", "m3"}
    assert not [e for e in found.events if "owners" in e.what.lower()], "that is as it should be"


# ---- what a terminal shows ------------------------------------------------------------------------------------------
def test_a_description_names_tasks_and_topology(capsys: Any) -> None:
    _picture(explain(replayed("g", taken_of(two_members().log))))
    shown = capsys.readouterr().out
    for text in ("type: streams", "state: Reconciling", "topology: 0: in; 1: app-r", "topology epoch: 1", "0_0"):
        assert text in shown, shown
    assert in_words({"0": ["a", "b"], "1": ["c"]}) == "0: a, b; 1: c" and in_words(None) == ""


def test_what_a_sidecar_tells_is_shown_in_lines() -> None:
    lines = _lines(Seen(two_members().log).group_view())
    for line in ("kind: streams", "state: Reconciling", "epoch: 3", "assigned epoch: 3", "topology: 0: in; 1: app-r"):
        assert line in lines, lines
    assert not [line for line in lines if line.startswith(("epoch name", "shutdown", "at rest", "problems"))]
    assert "  m1 (client m1, host /h, protocol streams, epoch 2, state UNREVOKED_TASKS, process p-m1)" in lines
