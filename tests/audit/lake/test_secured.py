"""A cluster with TLS, SASL and an authorizer is read with Kafka's own settings, and with the least rights that do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AclOperation, ResourceType  # type: ignore[attr-defined]

from sidecar.audit.errors import AuditError
from sidecar.audit.ingest.batch import ingest
from sidecar.audit.lake.lake import Lake
from sidecar.audit.source import kafka as source_kafka
from sidecar.audit.source.uri import open_source
from sidecar.process.rights import rights_of_the_audit
from tests.audit.lake.making import log
from tests.audit.lake.topics import Topics
from tests.security.ground import Secured, secret_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.tier("all")
TOPIC, AUDITOR, STRANGER = "secured", "auditor", "stranger"
COUNT = 400
OPERATIONS = {"Read": AclOperation.READ, "DescribeConfigs": AclOperation.DESCRIBE_CONFIGS}
PARTLY = {f"without-{name}": name for name in OPERATIONS}
"""User -> the right that they have not."""


@dataclass(frozen=True)
class SecuredTopic:
    address: str
    ground: Secured

    def options(self, user: str = AUDITOR, password: str = "") -> dict[str, str]:
        how = self.ground.client(user, "SASL_SSL", "SCRAM-SHA-512")
        more = {"sasl.password": password} if password else {}
        return {f"kafka.{name}": value for name, value in {**how, **more}.items()}

    def java(self) -> dict[str, str]:
        """The same in the names of Kafka's own clients."""
        how = self.ground.java(AUDITOR, "SASL_SSL", "SCRAM-SHA-512")
        return {f"kafka.{name}": value for name, value in how.items()}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredTopic]:
    folder = tmp_path_factory.mktemp("secured")
    users = (AUDITOR, STRANGER, *PARTLY)
    ground = Secured(folder, clients="SASL_SSL", internal="PLAINTEXT", users=users)
    kafka = ground.start(brokers=1, front="none")
    try:
        topics = Topics(kafka.internal)
        topics.create(TOPIC, 1)
        topics.write(TOPIC, {0: log(21, COUNT)})
        (right,) = rights_of_the_audit(TOPIC)
        for user in (AUDITOR, *PARTLY):
            given = [OPERATIONS[o] for o in right.operations if o != PARTLY.get(user)]
            ground.allow(kafka, user, [(ResourceType.TOPIC, right.name, operation) for operation in given])
        yield SecuredTopic(f"kafka://{kafka.bootstrap}/{TOPIC}", ground)
    finally:
        kafka.stop()


def test_it_is_read_with_the_least_rights(secured: SecuredTopic, spark: SparkSession, tmp_path: Path) -> None:
    """The audit needs only the rights that `sidecar acls --for-audit` prints: none of any group."""
    done = ingest(spark, secured.address, Lake.at(tmp_path / "lake"), secured.options())
    assert done.records == COUNT


def test_javas_names_do_as_well(secured: SecuredTopic) -> None:
    assert open_source(secured.address, secured.java()).bounds() == {0: (0, COUNT)}


@pytest.mark.parametrize(
    ("user", "password", "why"),
    [
        (AUDITOR, "another-secret", "uthentication"),
        (STRANGER, secret_of(STRANGER), "uthoriz"),
        ("without-Read", secret_of("without-Read"), "uthoriz"),
    ],
)
def test_who_may_not_is_told_why(
    secured: SecuredTopic, monkeypatch: pytest.MonkeyPatch, user: str, password: str, why: str
) -> None:
    monkeypatch.setattr("sidecar.audit.source.topic.TIMEOUT_S", 5.0)
    with pytest.raises(AuditError, match=why) as raised:
        open_source(secured.address, secured.options(user, password)).bounds()
    assert password not in str(raised.value)


def test_without_the_right_to_its_settings_it_is_told(secured: SecuredTopic) -> None:
    source = open_source(secured.address, secured.options("without-DescribeConfigs"))
    assert isinstance(source, source_kafka.KafkaSource)
    with pytest.raises(AuditError, match="; needed: DescribeConfigs of the topic"):
        source.setting("cleanup.policy")


def test_an_option_that_the_client_does_not_know_is_told(secured: SecuredTopic) -> None:
    with pytest.raises(AuditError, match=r'No such configuration property: "default\.api\.timeout\.ms"'):
        open_source(secured.address, {**secured.options(), "kafka.default.api.timeout.ms": "1"}).bounds()


def test_a_certificate_that_nobody_vouches_for_ends_it(secured: SecuredTopic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sidecar.audit.source.topic.TIMEOUT_S", 5.0)
    options = {n: v for n, v in secured.options().items() if n != "kafka.ssl.ca.location"}
    with pytest.raises(AuditError, match="certificate"):
        open_source(secured.address, options).bounds()
