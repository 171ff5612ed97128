"""FindCoordinator: a managed group's coordinator is the broker beside its owner."""

from __future__ import annotations

import pytest

from sidecar.core.vocabulary.errors import Code
from sidecar.core.vocabulary.placement import partition_for
from sidecar.link.messages import View
from sidecar.wire.apis import Api
from sidecar.wire.generated import find_coordinator as fc
from tests.api.play import ADDRESSES, NODE, OTHER, TAKEOVER, VIEW, Play

OWNER = View(owners=(OTHER,), leaders=(NODE,), brokers=ADDRESSES)
UNKNOWN = "The group's owner is not known yet."
TRANSACTION = 1


def request(version: int, *keys: str, key_type: int = 0) -> fc.FindCoordinatorRequest:
    if version < 4:
        return fc.FindCoordinatorRequest(key=keys[0], key_type=key_type)
    return fc.FindCoordinatorRequest(key_type=key_type, coordinator_keys=list(keys))


def response(version: int, **fields: object) -> fc.FindCoordinatorResponse:
    """One answer, for the group "g"."""
    one = fc.Coordinator(key="g", **{"error_message": None, **fields})  # type: ignore[arg-type]
    if version < 4:
        return fc.FindCoordinatorResponse(0, one.error_code, one.error_message, one.node_id, one.host, one.port)
    return fc.FindCoordinatorResponse(coordinators=[one])


BROKERS = {"node_id": NODE, "host": "b1", "port": 9092}


@pytest.mark.parametrize("version", range(7))
def test_the_owners_broker_is_named(version: int) -> None:
    play = Play(Api.FIND_COORDINATOR, request(version, "g"), version, view=OWNER).asks()
    play.broker(response(version, **BROKERS)).answers(response(version, node_id=OTHER, host="b2", port=9093))


@pytest.mark.parametrize("version", range(7))
def test_during_a_takeover_nobody_is_named(version: int) -> None:
    nobody = {"node_id": -1, "host": "", "port": -1, "error_message": UNKNOWN}
    play = Play(Api.FIND_COORDINATOR, request(version, "g"), version, view=TAKEOVER).asks()
    answer = response(version, error_code=Code.COORDINATOR_NOT_AVAILABLE, **nobody)
    play.broker(response(version, **BROKERS)).answers(answer)


def test_an_owner_that_is_found_while_the_broker_is_asked_is_named() -> None:
    play = Play(Api.FIND_COORDINATOR, request(4, "g"), 4, view=TAKEOVER).asks().view_changes(OWNER)
    play.broker(response(4, **BROKERS)).answers(response(4, node_id=OTHER, host="b2", port=9093))


def test_a_request_for_many_groups_waits_for_the_owners_of_their_partitions() -> None:
    """Symptom: 25,000 groups held the loop for 80 ms, and again with each change of the owners."""
    view = View(owners=(OTHER, NODE, OTHER), leaders=(NODE,), brokers=ADDRESSES, suspects=(OTHER,))
    groups = [f"g{i}" for i in range(300)]
    there = fc.FindCoordinatorResponse(coordinators=[fc.Coordinator(g, NODE, "b1", 9092) for g in groups])
    play = Play(Api.FIND_COORDINATOR, request(4, *groups), 4, view=view, managed=groups).asks().broker(there)
    waiting = {partition_for(g, 3): g for g in groups}
    assert len(waiting) == 3
    res = fc.FindCoordinatorResponse.decode(4, play.settles(*waiting.values()).settled().gives())
    assert [(c.key, c.node_id) for c in res.coordinators] == [(g, view.owners[partition_for(g, 3)]) for g in groups]


@pytest.mark.parametrize("view", [View(), View(owners=(OTHER,), brokers={NODE: ("b1", 9092)})], ids=["none", "address"])
def test_an_owner_without_an_address_is_not_named(view: View) -> None:
    nobody = {"node_id": -1, "host": "", "port": -1, "error_message": UNKNOWN}
    play = Play(Api.FIND_COORDINATOR, request(4, "g"), 4, view=view).asks()
    play.broker(response(4, **BROKERS)).answers(response(4, error_code=Code.COORDINATOR_NOT_AVAILABLE, **nobody))


@pytest.mark.parametrize("view", [OWNER, TAKEOVER], ids=["owned", "takeover"])
@pytest.mark.parametrize("version", range(7))
def test_a_group_that_the_authorizer_refused_stays_refused(version: int, view: View) -> None:
    refused = response(version, error_code=Code.GROUP_AUTHORIZATION_FAILED, node_id=-1, port=-1)
    play = Play(Api.FIND_COORDINATOR, request(version, "g"), version, view=view).asks()
    play.broker(refused).answers(refused)


@pytest.mark.parametrize("version", range(7))
def test_another_error_of_the_broker_does_not_count(version: int) -> None:
    missing = response(
        version, error_code=Code.COORDINATOR_NOT_AVAILABLE, error_message="no topic", node_id=-1, port=-1
    )
    play = Play(Api.FIND_COORDINATOR, request(version, "g"), version, view=OWNER).asks()
    play.broker(missing).answers(response(version, node_id=OTHER, host="b2", port=9093))


def test_several_groups_each_have_their_own_answer() -> None:
    theirs = fc.Coordinator("theirs", NODE, "b1", 9092)
    refused = fc.Coordinator("g2", -1, "", -1, Code.GROUP_AUTHORIZATION_FAILED)
    answer = fc.FindCoordinatorResponse(coordinators=[fc.Coordinator("g", NODE, "b1", 9092), theirs, refused])
    play = Play(Api.FIND_COORDINATOR, request(6, "g", "theirs", "g2"), 6, view=OWNER).asks().broker(answer)
    named = fc.Coordinator("g", OTHER, "b2", 9093)
    play.answers(fc.FindCoordinatorResponse(coordinators=[named, theirs, refused]))


@pytest.mark.parametrize("version", [1, 6])
def test_a_transaction_that_is_called_like_a_group_is_the_brokers(version: int) -> None:
    Play(Api.FIND_COORDINATOR, request(version, "g", key_type=TRANSACTION), version, view=VIEW).forwards()
