"""The matrix of rights has a case for every API that is served here, and for every API of Kafka that names a group."""

from __future__ import annotations

from sidecar.api.handlers import HANDLERS
from sidecar.wire.apis import SERVED, Api, message_name
from tests.security.matrix_cases import CASES
from tests.security.passed import of_groups

ABOUT_NO_GROUP = {Api.API_VERSIONS: "everybody may ask it", Api.SASL_AUTHENTICATE: "it gives the rights"}
OF_PARTITIONS = {"ShareFetch", "ShareAcknowledge"}
"""They go to the leader of a partition, read records, and pass."""


def cases_of(name: str) -> set[int]:
    return {v for c in CASES if c.name.split()[0] == name for v in c.versions}


def test_every_handler_is_asked_in_its_oldest_and_its_newest_version() -> None:
    for api in HANDLERS.keys() - ABOUT_NO_GROUP.keys():
        spec = SERVED[api]
        assert {spec.low, spec.high} <= cases_of(message_name(api)), message_name(api)


def test_every_api_of_kafka_that_names_a_group_is_asked() -> None:
    assert {name for name in of_groups() if not cases_of(name)} == OF_PARTITIONS
