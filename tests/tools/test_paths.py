"""A heartbeat enters each room of the spine twice at most: once on its way in, and once on its way out."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.house_paths import PATHS
from tools import house

IN_AND_OUT = 2


def calls(name: str) -> Sequence[house.Call]:
    return house.trace(PATHS[name]())


def entries(name: str) -> dict[str, int]:
    return house.path_of(calls(name)).entries


def test_a_steady_heartbeat_stays_at_the_front() -> None:
    assert {c.room for c in calls("steady heartbeat")} == {"front", "proxy"}
    assert max(entries("steady heartbeat").values()) <= IN_AND_OUT


def test_a_joining_heartbeat_goes_in_through_every_room_and_out_again() -> None:
    path = house.path_of(calls("joining heartbeat"))
    rooms = [room for room in path.visited if room in house.SPINE]
    assert rooms == ["front", "proxy", "api", "link", "coordinator", "core"]
    assert max(path.entries.values()) <= IN_AND_OUT


def test_an_offset_commit_asks_the_coordinator_once_and_then_the_broker() -> None:
    found = entries("OffsetCommit")
    assert found["core"] == 2, "it decides, and the handler looks up the partition of the group"
    assert found["coordinator"] == 2, "it is asked, and told that the commit has ended"
    steps = (
        "it begins, goes on with the coordinator's answer and with the broker's, and says twice what the commit does"
    )
    assert found["api"] == 5, steps


def test_a_takeover_fences_then_claims_then_follows() -> None:
    names = [c.name for c in calls("takeover") if c.room == "core"]
    steps = ("Lifecycle.assigned", "Lifecycle.fenced", "Lifecycle.claimed", "Owner.replayed")
    assert [n for n in names if n in steps] == list(steps)


@pytest.mark.parametrize("name", PATHS)
def test_a_path_is_the_same_whenever_it_is_run(name: str) -> None:
    one, other = calls(name), calls(name)
    assert [str(c) for c in one] == [str(c) for c in other]
