"""Requests that wait until it is known which groups are managed."""

from __future__ import annotations

from typing import Any

import pytest

from sidecar.core.vocabulary.errors import Code
from sidecar.front.api_sets import MEMBERS_ASK, WAIT_FOR_OTHERS
from sidecar.wire.apis import SERVED, Api
from sidecar.wire.generated import delete_groups as dl
from sidecar.wire.generated import offset_delete as od
from tests.front.test_front import run
from tests.inprocess import broker
from tests.inprocess.embedded_front import EmbeddedFront
from tests.inprocess.owners import Answer

ONLY_READ = {
    Api.FIND_COORDINATOR,
    Api.LIST_GROUPS,
    Api.METADATA,
    Api.API_VERSIONS,
    Api.DESCRIBE_CONFIGS,
    Api.LIST_CONFIG_RESOURCES,
    Api.SASL_AUTHENTICATE,
    Api.DESCRIBE_SHARE_GROUP_OFFSETS,
    Api.DESCRIBE_TRANSACTIONS,
    Api.LIST_TRANSACTIONS,
}
CHANGE_AND_DO_NOT_WAIT = {
    Api.ALTER_CONFIGS: "most are about topics and brokers; what a broker keeps of a group counts until it is set here",
    Api.INCREMENTAL_ALTER_CONFIGS: "the same",
    Api.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE: "a broker refuses it for a member that it does not have",
    Api.INIT_PRODUCER_ID: "a transaction is the broker's, and the ids of the sidecars are known from the start",
    Api.ADD_PARTITIONS_TO_TXN: "the same",
    Api.ADD_OFFSETS_TO_TXN: "the same; the commit behind it waits",
    Api.END_TXN: "the same",
}
PARTITION = od.OffsetDeleteRequestPartition(0)
REQUESTS: dict[Api, Any] = {
    Api.DELETE_GROUPS: dl.DeleteGroupsRequest(["g"]),
    Api.OFFSET_DELETE: od.OffsetDeleteRequest("g", [od.OffsetDeleteRequestTopic("orders", [PARTITION])]),
}


def test_each_request_that_changes_something_waits_or_has_a_reason() -> None:
    assert MEMBERS_ASK | ONLY_READ | set(CHANGE_AND_DO_NOT_WAIT) == set(SERVED)
    assert not MEMBERS_ASK & (ONLY_READ | set(CHANGE_AND_DO_NOT_WAIT))


def test_the_heartbeats_of_all_groups_with_epochs_wait_for_others() -> None:
    """The classic one alone is answered at once."""
    heartbeats = {api for api in map(Api, SERVED) if api.name.endswith("HEARTBEAT")} - {Api.HEARTBEAT}
    assert set(WAIT_FOR_OTHERS) == heartbeats | {Api.JOIN_GROUP, Api.SYNC_GROUP}


@pytest.mark.parametrize("api", REQUESTS)
def test_nothing_of_a_group_is_deleted_at_the_wrong_coordinator(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: after a start, the broker's part of a group that an order had made a managed one was deleted under its
    members, while their sidecar had not read the order yet."""
    asked: list[Any] = []

    def deleted(b: Any, node_id: int, request: Any, version: int, answer: Answer) -> None:
        asked.append(request)
        answer(broker.refusal(Api.OFFSET_DELETE, request, version, Code.NONE))

    for other in REQUESTS:
        monkeypatch.setitem(broker.HANDLERS, other, deleted)

    async def test(embedded: EmbeddedFront) -> None:
        answer = await (await embedded.client()).ask(REQUESTS[api], SERVED[api].low)
        code = answer.error_code if api is Api.OFFSET_DELETE else answer.results[0].error_code
        assert code == Code.COORDINATOR_NOT_AVAILABLE
        assert all(request == od.OffsetDeleteRequest("g") for request in asked), "only the client's right is asked for"

    run(test, managed=lambda group_id: False, hold_ms=50)
