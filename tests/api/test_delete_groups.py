"""DeleteGroups: a group with members stays; of an empty one both halves go (docs/reference/behaviour.md 1.29)."""

from __future__ import annotations

import pytest

from sidecar.core.runtime.events import Answer, DeleteGroup, DeletionCheck, DeletionCheckReply
from sidecar.core.vocabulary.errors import Code
from sidecar.wire.apis import Api
from sidecar.wire.generated import delete_groups as dl
from tests.api.play import ELSEWHERE, OTHER, WHO, Play

NOTHING, EMPTY = DeletionCheckReply(), DeletionCheckReply(exists=True)
FULL = DeletionCheckReply(exists=True, members=2, subscribed=frozenset({"orders"}))


def response(*results: tuple[str, Code]) -> dl.DeleteGroupsResponse:
    return dl.DeleteGroupsResponse(results=[dl.DeletableGroupResult(*r) for r in results])


def play(*groups: str, version: int = 2) -> Play:
    return Play(Api.DELETE_GROUPS, dl.DeleteGroupsRequest(list(groups)), version)


@pytest.mark.parametrize("version", range(4))
@pytest.mark.parametrize("theirs", [Code.NONE, Code.GROUP_ID_NOT_FOUND])
def test_an_empty_group_goes_at_the_broker_and_then_here(version: int, theirs: Code) -> None:
    conversation = (
        play("g", version=version).may_delete("g").coordinates(DeletionCheck("g")).coordinator(EMPTY).opens("g")
    )
    conversation.asks(dl.DeleteGroupsRequest(["g"])).broker(response(("g", theirs)))
    conversation.coordinates(DeleteGroup("g", f"deleted by {WHO}")).coordinator(Answer()).answers(
        response(("g", Code.NONE))
    )


@pytest.mark.parametrize("refusal", [Code.GROUP_AUTHORIZATION_FAILED, Code.NON_EMPTY_GROUP, Code.NOT_COORDINATOR])
def test_what_the_broker_refuses_stays_here_too(refusal: Code) -> None:
    conversation = play("g").may_delete("g").coordinates(DeletionCheck("g")).coordinator(EMPTY).opens("g")
    conversation.asks(dl.DeleteGroupsRequest(["g"])).broker(response(("g", refusal))).answers(response(("g", refusal)))


@pytest.mark.parametrize("code", [Code.NON_EMPTY_GROUP, Code.NOT_COORDINATOR])
def test_somebody_joined_or_the_owner_changed_meanwhile(code: Code) -> None:
    conversation = play("g").may_delete("g").coordinates(DeletionCheck("g")).coordinator(EMPTY).opens("g")
    conversation.asks(dl.DeleteGroupsRequest(["g"])).broker(response(("g", Code.NONE)))
    conversation.coordinates(DeleteGroup("g", f"deleted by {WHO}")).coordinator(Answer(code, "any text")).answers(
        response(("g", code))
    )


def test_a_group_with_members_stays() -> None:
    conversation = play("g").may_delete("g").coordinates(DeletionCheck("g")).coordinator(FULL)
    conversation.answers(response(("g", Code.NON_EMPTY_GROUP)))


def test_who_may_not_delete_learns_nothing_of_the_group() -> None:
    conversation = play("g").may_delete("g", Code.GROUP_AUTHORIZATION_FAILED)
    conversation.answers(response(("g", Code.GROUP_AUTHORIZATION_FAILED)))


def test_a_managed_group_of_which_nothing_but_offsets_is_there_is_the_brokers() -> None:
    conversation = play("g").may_delete("g").coordinates(DeletionCheck("g")).coordinator(NOTHING).opens("g")
    conversation.asks(dl.DeleteGroupsRequest(["g"])).broker(response(("g", Code.NONE))).answers(
        response(("g", Code.NONE))
    )


def test_managed_and_other_groups_in_one_request() -> None:
    conversation = play("g", "theirs", "g2", "g3").may_delete("g").coordinates(DeletionCheck("g")).coordinator(FULL)
    conversation.may_delete("g2").coordinates(DeletionCheck("g2")).coordinator(EMPTY).opens("g2")
    answer = response(("theirs", Code.NON_EMPTY_GROUP), ("g2", Code.NONE), ("g3", Code.GROUP_ID_NOT_FOUND))
    conversation.asks(dl.DeleteGroupsRequest(["theirs", "g2", "g3"])).broker(answer)
    conversation.coordinates(DeleteGroup("g2", f"deleted by {WHO}")).coordinator(Answer()).answers(
        response(
            ("g", Code.NON_EMPTY_GROUP),
            ("theirs", Code.NON_EMPTY_GROUP),
            ("g2", Code.NONE),
            ("g3", Code.GROUP_ID_NOT_FOUND),
        )
    )


def test_without_its_coordinator_a_group_is_not_deleted_at_the_broker() -> None:
    conversation = (
        play("g")
        .may_delete("g")
        .coordinates(DeletionCheck("g"))
        .coordinator(DeletionCheckReply(Code.COORDINATOR_LOAD_IN_PROGRESS))
    )
    conversation.answers(response(("g", Code.COORDINATOR_LOAD_IN_PROGRESS)))


def test_the_offsets_leader_is_elsewhere() -> None:
    """Symptom: NOT_COORDINATOR for ever. The owner's broker was asked, not the one that keeps the offsets."""
    request = dl.DeleteGroupsRequest(["g"])
    conversation = (
        Play(Api.DELETE_GROUPS, request, 2, view=ELSEWHERE)
        .may_delete("g")
        .coordinates(DeletionCheck("g"))
        .coordinator(EMPTY)
    )
    conversation.opens("g").stores(OTHER, request, 2).broker(response(("g", Code.NONE)))
    conversation.coordinates(DeleteGroup("g", f"deleted by {WHO}")).coordinator(Answer()).answers(
        response(("g", Code.NONE))
    )


def test_who_may_not_delete_is_refused_before_another_broker_is_asked() -> None:
    request, refused = dl.DeleteGroupsRequest(["g"]), Code.GROUP_AUTHORIZATION_FAILED
    conversation = Play(Api.DELETE_GROUPS, request, 2, view=ELSEWHERE).may_delete("g", refused)
    conversation.answers(response(("g", refused)))
