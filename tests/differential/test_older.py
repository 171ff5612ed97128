"""The listed differences are excused on a broker before the anchor, and nothing that looks like them."""

from __future__ import annotations

from typing import cast

import pytest

from sidecar.kafka.net import BrokerConnection
from sidecar.wire.generated import consumer_group_describe as cd
from tests.differential.older import ASSIGNOR, EMPTIED, RANGE, harmless_difference, is_older, parts
from tests.differential.script import Step
from tests.differential.streams_before import FULL, PROMOTED, STICKY, StreamsSideBefore

pytestmark = pytest.mark.tier("quick")

HEARTBEAT = "consumer.heartbeat.interval.ms"
NOW = f"{HEARTBEAT} must be in the range 5000 to 15000 inclusive."
THEN = f"{HEARTBEAT} must be greater than or equal to group.consumer.min.heartbeat.interval.ms"


@pytest.mark.parametrize(("version", "older"), [("4.3.1", True), ("3.9.1", True), ("4.4.0", False), ("4.10.0", False)])
def test_which_brokers_are_older(version: str, older: bool) -> None:
    assert is_older(version) == older


def empty(assignment_epoch: int, state: str = "Empty", members: object = None) -> tuple[object, ...]:
    return 0, None, state, 5, assignment_epoch, "uniform", members or {}


@pytest.mark.parametrize(
    ("ours", "theirs", "why"),
    [
        (empty(5), empty(4), EMPTIED),
        (empty(4), empty(3), ""),
        (empty(5), empty(4, "Assigning"), ""),
        (empty(5, members={"m": 1}), empty(4), ""),
    ],
)
def test_the_assignment_epoch_of_an_emptied_group(ours: object, theirs: object, why: str) -> None:
    assert harmless_difference(Step("describe"), ours, theirs) == why
    assert not harmless_difference(Step("list"), ours, theirs)


@pytest.mark.parametrize(
    ("ours", "theirs", "why"),
    [
        ((40, NOW), (40, THEN), RANGE),
        ((40, NOW), (0, None), ""),
        ((40, "else"), (40, THEN), ""),
        ((0, NOW), (0, THEN), ""),
    ],
)
def test_the_text_of_a_range(ours: object, theirs: object, why: str) -> None:
    assert harmless_difference(Step("alter", options={HEARTBEAT: "100"}), ours, theirs) == why


def joined(epoch: int, given: dict[str, list[int]] | None = None, code: int = 0) -> tuple[object, ...]:
    return code, None, epoch, 5000, given or {}, "m"


GONE = cd.DescribedGroup(69, None, "g")
THERE = cd.DescribedGroup(0, None, "g", "Stable", 5, 5, "range")
EMPTY = cd.DescribedGroup(0, None, "g", "Empty", 5, 3, "uniform")


@pytest.mark.parametrize(
    ("before", "assignor", "names", "ours", "theirs", "why"),
    [
        (EMPTY, "uniform", True, joined(6, {"a": [0]}), joined(3), EMPTIED),
        (EMPTY, "uniform", True, joined(3), joined(6), ""),
        (THERE, "range", True, joined(6, {"a": [0]}), joined(3), ""),
        (GONE, "range", False, joined(2), joined(1), ASSIGNOR),
        (GONE, "range", True, joined(2), joined(1), ""),
        (GONE, "uniform", False, joined(2), joined(1), ""),
        (THERE, "range", False, joined(6), joined(5), ""),
        (THERE, "uniform", False, joined(6), joined(5), ASSIGNOR),
        (THERE, "uniform", False, joined(7), joined(5), ""),
        (THERE, "uniform", False, joined(6, code=25), joined(5), ""),
    ],
)
def test_a_join_after_which_the_groups_differ(
    before: cd.DescribedGroup, assignor: str, names: bool, ours: object, theirs: object, why: str
) -> None:
    assert parts(before, assignor, names, ours, theirs) == why


ALL, SOME = {"active": {"0": [0, 1]}, "standby": {}, "warmup": {}}, {"active": {"0": [0]}, "standby": {}, "warmup": {}}


def beat(epoch: int = 2, tasks: object = None, code: int = 0) -> tuple[object, ...]:
    return code, None, "m1", epoch, (5000,), [], tasks, 0, None, False


@pytest.mark.parametrize(
    ("members", "standby", "ours", "theirs", "why"),
    [
        ("m1 m2", {}, beat(3, ALL), beat(2, SOME), STICKY),
        ("m1", {}, beat(2, ALL), beat(2, SOME), ""),
        ("m1 m2", {}, beat(3), beat(2), ""),
        ("m1", {"0": [1]}, beat(3, ALL), beat(2, SOME), PROMOTED),
        ("m1", {"0": [1]}, beat(2, SOME), beat(3, ALL), ""),
        ("m1", {}, beat(3), beat(0, None, 81), FULL),
        ("m2", {}, beat(3), beat(0, None, 81), ""),
    ],
)
def test_where_a_script_of_a_streams_group_ends(
    members: str, standby: dict[str, list[int]], ours: tuple[object, ...], theirs: tuple[object, ...], why: str
) -> None:
    side = StreamsSideBefore(cast(BrokerConnection, None), "g", {})
    side.static.update(dict.fromkeys(members.split()))
    side.known, side.standbys = "m1" in side.static, standby
    assert side.ends(ours, theirs) == why
