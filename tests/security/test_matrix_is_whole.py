"""The matrix of rights has a case for every API that is served here, and for every API of Kafka that names a group."""

from __future__ import annotations

from sidecar.api.handlers import HANDLERS
from sidecar.drill.artifacts import KAFKA
from sidecar.wire.apis import Api, message_name
from tests.api.announced import announced
from tests.api.test_own_names import LISTS, NAMING_GROUPS, NAMING_IDS
from tests.security.matrix_cases import CASES
from tests.security.passed import of_groups, that_name

PASSES = "its rights are the broker's; the sidecars' own ids are refused to everybody (tests/api/test_own_names.py)"
ABOUT_NO_GROUP = {
    Api.API_VERSIONS: "everybody may ask it",
    Api.METADATA: "the broker answers it on the client's own connection",
    Api.SASL_AUTHENTICATE: "it gives the rights",
    Api.INIT_PRODUCER_ID: PASSES,
    Api.ADD_PARTITIONS_TO_TXN: PASSES,
    Api.END_TXN: PASSES,
    Api.ADD_OFFSETS_TO_TXN: PASSES,
    Api.DESCRIBE_TRANSACTIONS: PASSES,
    Api.LIST_TRANSACTIONS: PASSES,
}
OF_PARTITIONS = {"ShareFetch", "ShareAcknowledge"}
"""APIs that go to the leader of a partition, read records, and pass."""


NOT_OF_A_SHARE_GROUP = "it is about share or streams groups, and ShareGroupHeartbeat and StreamsGroupHeartbeat, which "
NOT_OF_A_SHARE_GROUP += "alone make one, are refused"
LEFT_TO_THE_BROKER = {
    "Produce": "it needs Write of the state topic, which is the right to decide",
    "ShareFetch": NOT_OF_A_SHARE_GROUP,
    "ShareAcknowledge": NOT_OF_A_SHARE_GROUP,
    "InitializeShareGroupState": NOT_OF_A_SHARE_GROUP,
    "ReadShareGroupState": NOT_OF_A_SHARE_GROUP,
    "ReadShareGroupStateSummary": NOT_OF_A_SHARE_GROUP,
    "WriteShareGroupState": NOT_OF_A_SHARE_GROUP,
    "DeleteShareGroupState": NOT_OF_A_SHARE_GROUP,
}
"""Requests that name a group or a transactional id and may name those of the sidecars, and why nothing comes of it."""


def cases_of(name: str) -> set[int]:
    return {v for c in CASES if c.name.split()[0] == name for v in c.versions}


def test_every_handler_is_asked_in_its_oldest_and_its_newest_version() -> None:
    """The versions are those that the broker of these tests serves."""
    ranges = announced()[KAFKA]
    for api in HANDLERS.keys() - ABOUT_NO_GROUP.keys():
        assert set(ranges[api]) <= cases_of(message_name(api)), message_name(api)


def test_every_api_of_kafka_that_names_a_group_is_asked() -> None:
    assert {name for name in of_groups() if not cases_of(name)} == OF_PARTITIONS


def test_every_api_of_kafka_that_names_a_group_or_a_transactional_id_keeps_those_of_the_sidecars() -> None:
    naming = that_name('"entityType": "groupId"', '"entityType": "transactionalId"', '"GroupId"', '"TransactionalId')
    guarded = {message_name(api) for api in (*NAMING_GROUPS, *NAMING_IDS, *LISTS)}
    assert naming - guarded == LEFT_TO_THE_BROKER.keys()
