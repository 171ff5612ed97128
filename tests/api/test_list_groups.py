"""ListGroups: each group once, at its owner, for those who may see it (docs/reference/behaviour.md 1.27, 1.28)."""

from __future__ import annotations

from collections import Counter

import pytest
from msgspec.structs import astuple

from sidecar.api import slices
from sidecar.core.runtime.events import GroupsWithRecords, GroupsWithRecordsReply, Listed, ListGroups, ListReply
from sidecar.core.vocabulary.errors import Code
from sidecar.wire.apis import Api
from sidecar.wire.generated import list_groups as lg
from sidecar.wire.generated import metadata as md
from tests.api.play import NO_AUTHORIZER, Play

CLASSIC = lg.ListedGroup("theirs", "consumer", "Stable", "classic")
LEFT_OVER = lg.ListedGroup("g", "", "Empty", "classic")
"""A managed group as the broker lists it: it has only the offsets."""
MINE = lg.ListedGroup("g", "consumer", "Stable", "consumer")
OWNED = ListReply(groups=(Listed("g2", "consumer", "Empty", "consumer"), Listed("g", "consumer", "Stable", "consumer")))
ONE = ListReply(groups=(Listed("g", "consumer", "Stable", "consumer"),))


CLUSTER = md.MetadataRequest([], allow_auto_topic_creation=False, include_cluster_authorized_operations=True)


def response(*groups: lg.ListedGroup) -> lg.ListGroupsResponse:
    return lg.ListGroupsResponse(groups=list(groups))


def play(*theirs: lg.ListedGroup, version: int = 5, states: tuple[str, ...] = (), types: tuple[str, ...] = ()) -> Play:
    request = lg.ListGroupsRequest(list(states), list(types))
    return Play(Api.LIST_GROUPS, request, version).asks().broker(response(*theirs)).coordinates(ListGroups())


@pytest.mark.parametrize("version", range(6))
def test_each_group_is_listed_once(version: int) -> None:
    second = lg.ListedGroup("g2", "consumer", "Empty", "consumer")
    conversation = play(CLASSIC, LEFT_OVER, version=version).coordinator(OWNED).may_describe("g2", "g")
    conversation.answers(response(CLASSIC, MINE, second))


def test_a_group_that_is_owned_beside_another_broker_is_listed_there() -> None:
    conversation = play(CLASSIC, LEFT_OVER).coordinator(ListReply()).coordinates(GroupsWithRecords(candidates=("g",)))
    conversation.coordinator(GroupsWithRecordsReply(groups=frozenset({"g"}))).answers(response(CLASSIC))


def test_a_managed_group_of_which_nothing_but_offsets_is_there_is_still_the_brokers() -> None:
    conversation = play(CLASSIC, LEFT_OVER).coordinator(ListReply()).coordinates(GroupsWithRecords(candidates=("g",)))
    conversation.coordinator(GroupsWithRecordsReply()).answers(response(CLASSIC, LEFT_OVER))


@pytest.mark.parametrize("code", [Code.COORDINATOR_LOAD_IN_PROGRESS, Code.COORDINATOR_NOT_AVAILABLE])
def test_while_a_partition_is_loading_the_whole_call_fails(code: Code) -> None:
    play(CLASSIC, LEFT_OVER).coordinator(ListReply(code)).answers(lg.ListGroupsResponse(error_code=code))


@pytest.mark.parametrize("why", [Code.NOT_COORDINATOR, Code.COORDINATOR_NOT_AVAILABLE])
def test_a_list_is_not_cut_short_because_the_coordinator_went_away(why: Code) -> None:
    """Kafka's clients would not ask again after NOT_COORDINATOR."""
    code = Code.COORDINATOR_NOT_AVAILABLE
    play(LEFT_OVER).coordinator(ListReply(why)).answers(lg.ListGroupsResponse(error_code=code))
    conversation = play(LEFT_OVER).coordinator(ListReply()).coordinates(GroupsWithRecords(candidates=("g",)))
    conversation.coordinator(GroupsWithRecordsReply(why)).answers(lg.ListGroupsResponse(error_code=code))


def test_a_long_list_of_the_broker_does_not_hold_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: 10,000 groups at the broker held all heartbeats for 0.2 s, at the comparison with the patterns."""
    monkeypatch.setattr(slices, "CHECKED", 64)
    theirs = [lg.ListedGroup(f"t{i:04}", "consumer", "Stable", "classic") for i in range(1_000)]
    owned = [Listed(f"g{i:04}", "consumer", "Stable", "classic") for i in range(1_000)]
    conversation = play(*theirs)
    stretches: Counter[int] = Counter()

    def managed(group_id: str) -> bool:
        stretches[conversation.pauses] += 1
        return group_id.startswith("g")

    conversation.call.scope.managed, conversation.call.view = managed, NO_AUTHORIZER
    conversation.coordinator(ListReply(groups=tuple(owned))).may_describe("g0000")
    conversation.answers(response(*theirs, *(lg.ListedGroup(*astuple(g)) for g in owned)))
    assert sum(stretches.values()) == 2_000
    assert max(stretches.values()) <= 2 * slices.CHECKED


def test_what_the_broker_refuses_is_refused() -> None:
    refusal = lg.ListGroupsResponse(error_code=Code.CLUSTER_AUTHORIZATION_FAILED)
    Play(Api.LIST_GROUPS, lg.ListGroupsRequest(), 5).asks().broker(refusal).answers(refusal)


def test_hidden_groups_are_listed_neither_as_ours_nor_as_the_brokers() -> None:
    conversation = play(CLASSIC, LEFT_OVER).coordinator(ONE).may_describe("g", hidden=["g"])
    conversation.asks(CLUSTER, 8).broker(md.MetadataResponse(cluster_authorized_operations=0))
    conversation.coordinates(GroupsWithRecords(candidates=("g",))).coordinator(
        GroupsWithRecordsReply(groups=frozenset({"g"}))
    )
    conversation.answers(response(CLASSIC))


def test_who_may_describe_the_cluster_sees_all_groups() -> None:
    conversation = play(CLASSIC, LEFT_OVER).coordinator(ONE).may_describe("g", hidden=["g"])
    conversation.asks(CLUSTER, 8).broker(md.MetadataResponse(cluster_authorized_operations=1 << 8))
    conversation.answers(response(CLASSIC, MINE))


def test_groups_that_are_managed_no_longer_are_not_listed() -> None:
    gone = ListReply(groups=(Listed("theirs", "consumer", "Stable", "consumer"),))
    play(CLASSIC).coordinator(gone).answers(response(CLASSIC))


@pytest.mark.parametrize(
    ("states", "types", "shown"),
    [
        (("stable",), (), True),
        ((" STABLE ", "Dead"), (), True),
        (("empty",), (), False),
        ((), ("Consumer",), True),
        ((), ("classic", "share"), False),
        (("stable",), ("classic",), False),
    ],
)
def test_filters(states: tuple[str, ...], types: tuple[str, ...], shown: bool) -> None:
    conversation = play(states=states, types=types).coordinator(ONE).may_describe("g")
    conversation.answers(response(*([MINE] if shown else [])))


def test_without_an_authorizer_one_group_is_asked_for() -> None:
    conversation = Play(Api.LIST_GROUPS, lg.ListGroupsRequest(), 5, view=NO_AUTHORIZER).asks().broker(response())
    conversation.coordinates(ListGroups()).coordinator(OWNED).may_describe("g2")
    conversation.answers(response(MINE, lg.ListedGroup("g2", "consumer", "Empty", "consumer")))


@pytest.mark.parametrize("state", ["NotReady", "notready", "not_ready", " NOT_READY "])
def test_a_streams_group_that_is_not_ready_is_found_by_both_names(state: str) -> None:
    """Kafka finds it by not_ready only, and its AdminClient sends NotReady."""
    owned = ListReply(
        groups=(Listed("g", "streams", "NotReady", "streams"), Listed("g2", "streams", "Stable", "streams"))
    )
    conversation = play(states=(state,)).coordinator(owned).may_describe("g", "g2")
    conversation.answers(response(lg.ListedGroup("g", "streams", "NotReady", "streams")))
