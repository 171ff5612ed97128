"""A cluster with TLS, SASL and an authorizer is read with Kafka's own settings, and with the least rights that do."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)

from sidecar.audit import source_kafka
from sidecar.audit.errors import AuditError
from sidecar.audit.ingest import ingest
from sidecar.audit.lake import Lake
from sidecar.audit.source_uri import open_source
from sidecar.drill.artifacts import java
from sidecar.drill.local import LocalKafka
from tests.audit.lake.making import log
from tests.audit.lake.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.kafka
TOPIC, AUDITOR, STRANGER, SECRET = "secured", "auditor", "stranger", "a-secret-of-the-auditor"
RIGHTS = (AclOperation.READ, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS)
COUNT = 400
LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule required"


@dataclass(frozen=True)
class Secured:
    address: str
    certificate: Path

    def options(self, user: str = AUDITOR, password: str = SECRET) -> dict[str, str]:
        return {
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "SCRAM-SHA-512",
            "kafka.sasl.username": user,
            "kafka.sasl.password": password,
            "kafka.ssl.ca.location": str(self.certificate),
        }

    def java(self) -> dict[str, str]:
        """The same in the names of Kafka's own clients."""
        login = f'{LOGIN} username="{AUDITOR}" password="{SECRET}";'
        return {
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "SCRAM-SHA-512",
            "kafka.sasl.jaas.config": login,
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.location": str(self.certificate),
        }


def keytool(*words: str) -> None:
    subprocess.run([str(Path(shutil.which(java()) or java()).with_name("keytool")), *words], check=True)


def certified(folder: Path) -> tuple[Path, Path]:
    """The broker's key store, and its certificate as clients take it."""
    store, certificate = folder / "broker.p12", folder / "broker.pem"
    of_store = ("-keystore", str(store), "-storepass", "changeit", "-alias", "broker")
    names = ("-dname", "CN=127.0.0.1", "-ext", "SAN=IP:127.0.0.1,DNS:localhost")
    keytool(
        "-genkeypair", "-keyalg", "RSA", "-keysize", "2048", "-validity", "2", "-storetype", "PKCS12", *names, *of_store
    )
    keytool("-exportcert", "-rfc", "-file", str(certificate), *of_store)
    return store, certificate


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    store, certificate = certified(folder)
    login = f"{LOGIN};"
    properties = {
        "listener.security.protocol.map": "CLIENTS:SASL_SSL,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "listener.name.clients.ssl.keystore.location": str(store),
        "listener.name.clients.ssl.keystore.password": "changeit",
        "listener.name.clients.ssl.keystore.type": "PKCS12",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.clients.scram-sha-512.sasl.jaas.config": login,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with LocalKafka(folder / "kafka", brokers=1, front="none", properties=properties) as kafka:
        topics = Topics(kafka.internal)
        topics.create(TOPIC, 1)
        topics.write(TOPIC, {0: log(21, COUNT)})
        admin = AdminClient({"bootstrap.servers": kafka.internal})
        how = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        users: list[UserScramCredentialAlteration] = [
            UserScramCredentialUpsertion(name, how, SECRET.encode()) for name in (AUDITOR, STRANGER)
        ]
        for future in admin.alter_user_scram_credentials(users).values():
            future.result(30)
        acls = [
            AclBinding(
                *(ResourceType.TOPIC, TOPIC, ResourcePatternType.LITERAL, f"User:{AUDITOR}", "*"),
                *(right, AclPermissionType.ALLOW),
            )
            for right in RIGHTS
        ]
        for done in admin.create_acls(acls).values():
            done.result(30)
        yield Secured(f"kafka://{kafka.bootstrap}/{TOPIC}", certificate)


def test_it_is_read_with_the_least_rights(secured: Secured, spark: SparkSession, tmp_path: Path) -> None:
    """Read, Describe and DescribeConfigs of the topic, and nothing of any group."""
    done = ingest(spark, secured.address, Lake.at(tmp_path / "lake"), secured.options())
    assert done.records == COUNT


def test_javas_names_do_as_well(secured: Secured) -> None:
    assert open_source(secured.address, secured.java()).bounds() == {0: (0, COUNT)}


@pytest.mark.parametrize(
    ("user", "password", "why"),
    [(AUDITOR, "another-secret", "uthentication"), (STRANGER, SECRET, "uthoriz")],
)
def test_who_may_not_is_told_why(
    secured: Secured, monkeypatch: pytest.MonkeyPatch, user: str, password: str, why: str
) -> None:
    monkeypatch.setattr(source_kafka, "TIMEOUT_S", 5.0)
    with pytest.raises(AuditError, match=why) as raised:
        open_source(secured.address, secured.options(user, password)).bounds()
    assert password not in str(raised.value)


def test_a_certificate_that_nobody_vouches_for_ends_it(secured: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_kafka, "TIMEOUT_S", 5.0)
    options = {n: v for n, v in secured.options().items() if n != "kafka.ssl.ca.location"}
    with pytest.raises(AuditError, match="certificate"):
        open_source(secured.address, options).bounds()
