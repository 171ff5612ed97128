"""Targets of streams groups: what an assignor is shown, plug-ins that are wrong, and settings."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sidecar.assign.task_spec import AssignmentConfigs, MemberTasks, Subtopology, TaskResult, TaskSpec
from sidecar.coordinator.statelog.encoder import Encoder
from sidecar.core.streams.assignor_run import StreamsRun, run
from sidecar.core.streams.config import StreamsConfig
from sidecar.core.streams.target_assignment import preferred
from sidecar.state.codec import StateCodec
from tests.core.streams.world import REGISTRY, Client, World, quick


def world_of(**settings: object) -> World:
    world = World(quick(assignment_interval_ms=0, **settings))
    world.grow({"in": 2, "app-r": 3, "app-c": 3})
    world.grow({"in": 3})
    return world


def test_an_assignor_is_shown_members_tasks_and_hints() -> None:
    seen: list[TaskSpec] = []

    def watch(spec: TaskSpec) -> TaskResult:
        seen.append(spec)
        tasks = {i: tuple(range(s.partitions)) for i, s in spec.subtopologies.items()}
        return {m: MemberTasks(tasks if m == "b" else {}) for m in spec.members}

    world = world_of(num_standby_replicas=5, rack_aware_assignment_tags=("zone",))
    world.assignors["sticky"] = watch
    b = Client(world, "b", client_tags=(("zone", "x"),))
    b.heartbeat()
    b.offsets = (("1", 2, 99),)
    b.heartbeat()
    Client(world, "a", instance_id="i").heartbeat()
    spec = seen[-1]
    assert list(spec.members) == ["a", "b"] and spec.members["a"].instance_id == "i"
    assert spec.subtopologies == {"0": Subtopology(3, False), "1": Subtopology(3, True)}
    assert spec.configs == AssignmentConfigs(2, ("zone",)), "no more standbys than max.standby.replicas"
    shown = spec.members["b"]
    assert (shown.process_id, shown.tags) == ("p-b", {"zone": "x"})
    assert shown.active == {"0": (0, 1, 2), "1": (0, 1, 2)} and shown.offsets == {"1": {2: 99}}


@pytest.mark.parametrize(
    "result",
    [
        {},
        {"m": MemberTasks({"0": (0, 1, 2)})},
        {"m": MemberTasks({"0": (0, 1, 2, 3), "1": (0, 1, 2)})},
        {"x": MemberTasks()},
    ],
    ids=["nothing", "too few", "too many", "nobody"],
)
def test_a_plug_in_that_is_wrong_leaves_the_last_target(result: TaskResult) -> None:
    world = world_of()
    client = Client(world, "m")
    client.heartbeat()
    before = world.group().target
    world.assignors["sticky"] = lambda spec: result
    other = Client(world, "n")
    assert not other.heartbeat().code and not client.heartbeat().code
    assert world.group().target == before and world.group().assignment_epoch < world.group().epoch


def test_a_group_may_have_an_assignor_of_its_own() -> None:
    world = world_of()
    Client(world, "m").heartbeat()
    group = world.group()
    config = StreamsConfig(assignors=("sticky", "mine"))
    assert preferred(group, config) == "sticky"
    assert preferred(group, replace(config, assignor_name="mine")) == "mine"
    assert preferred(group, replace(config, assignor_name="unknown")) == "sticky"


def test_the_bytes_of_an_offloaded_target_are_those_that_are_made_one_by_one() -> None:
    world = world_of(assignor_offload_enable=True)
    for name in "ab":
        Client(world, name).heartbeat()
    world.finish()
    inp = world.running[0].input
    assert isinstance(inp, StreamsRun)
    out = run(inp, world.assignors["sticky"])
    codec = StateCodec(REGISTRY)
    prepared = Encoder(codec, 1, {})
    made = prepared.targets(inp, out, 7)
    at = len(world.log)
    world.finish()
    targets = [r for r in world.log[at:] if r.kind == "streams_target_member"]
    assert made.members == tuple(r.sub_id for r in targets) != ()
    assert list(made.values.values()) == Encoder(codec, 1, {}).encode(targets, 7)
