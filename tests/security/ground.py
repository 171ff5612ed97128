"""A secured Apache Kafka for tests: certificates of a test authority, users by SCRAM and PLAIN, an authorizer.

Each of the two listeners has a protocol of its own. Brokers speak PLAIN among themselves as `broker`, where INTERNAL
has SASL. `ADMIN` may do everything, on both listeners; what others may do, a test says.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trustme
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)
from cryptography.hazmat.primitives import serialization

from sidecar.drill.local import LocalKafka
from tests.security import acls

BROKER, ADMIN = "broker", "admin"
MODULE = "org.apache.kafka.common.security"
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SCRAM = {"SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256, "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512}
MECHANISMS = ("PLAIN", *SCRAM, "OAUTHBEARER")
MARK = "S3CRET"
"""In every secret of these tests but keys, so that a search finds one that leaked."""
NAMES = r"RULE:^.*CN=([^,]+).*$/$1/"
"""A rule by which only the common name of a certificate is the principal."""


def secret_of(user: str) -> str:
    return f"{user}-{MARK}-of-tests"


def assert_no_secret(text: str, marker: str, keys: Iterable[str] = ()) -> None:
    """Asserts that a text has no secret. `marker`: a text that must be in it; `keys`: lines of private keys."""
    assert marker in text, text[-2000:]
    assert MARK not in text
    assert not [key for key in keys if key in text]


@dataclass(frozen=True)
class Papers:
    """Certificates, all of one authority, as PEM files. `store`: key and chain in one file, as Kafka takes them."""

    authority: Path
    certificate: Path
    key: Path
    store: Path


def dumped(path: Path) -> str:
    """Returns the output of `sidecar state dump`, with keys and values as text where they are text."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    blobs = (line.get(part) for line in lines for part in ("key", "value"))
    return path.read_text() + "".join(base64.b64decode(blob or "").decode("latin-1") for blob in blobs)


def _as_pkcs8(key: bytes) -> bytes:
    """Kafka reads no other form of a key."""
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return serialization.load_pem_private_key(key, password=None).private_bytes(*form)


class Authority:
    def __init__(self, folder: Path, name: str = "authority") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.pem = folder / f"{name}.pem"
        self._ca = trustme.CA(organization_name=name)
        self._ca.cert_pem.write_to_path(str(self.pem))

    def issue(self, name: str, *hosts: str) -> Papers:
        """`hosts`: names and addresses in the certificate; `name`: its common name, and that of the files."""
        made = self._ca.issue_cert(*(hosts or ("127.0.0.1", "localhost")), common_name=name)
        chain = b"".join(blob.bytes() for blob in made.cert_chain_pems)
        papers = Papers(self.pem, *(self.folder / f"{name}.{end}" for end in ("crt", "key", "pem")))
        papers.certificate.write_bytes(chain)
        key = _as_pkcs8(made.private_key_pem.bytes())
        papers.key.write_bytes(key)
        papers.store.write_bytes(key + chain)
        return papers


@dataclass
class Secured:
    """The security of a cluster. `clients`, `internal`: security protocols of the listeners; `client_auth`: whether
    CLIENTS asks for certificates (none, requested, required), as INTERNAL always does with SSL; `users`: made with
    SCRAM of both sizes and PLAIN; `reauth_ms`: connections.max.reauth.ms, 0: for ever."""

    folder: Path
    clients: str = "SASL_PLAINTEXT"
    internal: str = "SASL_SSL"
    client_auth: str = "none"
    users: tuple[str, ...] = ()
    authorizer: bool = True
    reauth_ms: int = 0
    more: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.authority = Authority(self.folder / "papers")
        self.broker = self.authority.issue("broker")
        self.everybody = (BROKER, ADMIN, *self.users)

    # ---- the brokers' side --------------------------------------------------------------------------------
    def properties(self) -> dict[str, str]:
        names = "".join(f' user_{u}="{secret_of(u)}"' for u in self.everybody)
        plain = f'{MODULE}.plain.PlainLoginModule required username="{BROKER}" password="{secret_of(BROKER)}"{names};'
        scram = f"{MODULE}.scram.ScramLoginModule required;"
        bearer = f'{MODULE}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="{BROKER}";'
        found = {
            "listener.security.protocol.map": f"CLIENTS:{self.clients},INTERNAL:{self.internal},CONTROLLER:PLAINTEXT",
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.broker.store),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority.pem),
            "ssl.principal.mapping.rules": NAMES,
            "listener.name.clients.ssl.client.auth": self.client_auth,
            "listener.name.internal.ssl.client.auth": "required" if self.internal == "SSL" else "none",
        }
        for listener in ("clients", "internal"):
            found[f"listener.name.{listener}.plain.sasl.jaas.config"] = plain
            found[f"listener.name.{listener}.oauthbearer.sasl.jaas.config"] = bearer
            for mechanism in SCRAM:
                found[f"listener.name.{listener}.{mechanism.lower()}.sasl.jaas.config"] = scram
        if self.authorizer:
            found["authorizer.class.name"] = AUTHORIZER
            found["super.users"] = f"User:{BROKER};User:{ADMIN};User:ANONYMOUS"
        if self.reauth_ms:
            found["listener.name.clients.connections.max.reauth.ms"] = str(self.reauth_ms)
        return {**found, **self.more}

    def start(self, **more: Any) -> LocalKafka:
        """Brokers, without sidecars yet; everybody has a password. `more`: for LocalKafka."""
        kafka = LocalKafka(self.folder / "kafka", properties=self.properties(), **more)
        try:
            kafka.start_brokers()
            self._make_users(kafka)
        except BaseException:
            kafka.stop()
            raise
        return kafka

    def _make_users(self, kafka: LocalKafka) -> None:
        admin = self.admin(kafka)  # must outlive its answers
        for how in SCRAM.values():  # a request changes a user once
            changes: list[UserScramCredentialAlteration] = [
                UserScramCredentialUpsertion(user, ScramCredentialInfo(how, 4096), secret_of(user).encode())
                for user in (ADMIN, *self.users)
            ]
            for future in admin.alter_user_scram_credentials(changes).values():
                future.result(60)

    # ---- the clients' side --------------------------------------------------------------------------------
    def client(self, user: str, protocol: str, mechanism: str = "PLAIN") -> dict[str, str]:
        """Returns librdkafka's properties for this user. With SSL the certificate names the user."""
        found = {"security.protocol": protocol}
        if protocol.endswith("SSL"):
            found["ssl.ca.location"] = str(self.authority.pem)
        if protocol == "SSL":
            own = self.authority.issue(user)
            found |= {"ssl.certificate.location": str(own.certificate), "ssl.key.location": str(own.key)}
        if protocol.startswith("SASL"):
            found |= {"sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": secret_of(user)}
        return found

    def java(self, user: str, protocol: str, mechanism: str = "PLAIN") -> dict[str, str]:
        """The same in Kafka's own properties, as its tools and this project's `--command-config` take them."""
        found = {"security.protocol": protocol}
        if protocol.endswith("SSL"):
            found |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.authority.pem)}
        if protocol == "SSL":
            found |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(self.authority.issue(user).store)}
        if protocol.startswith("SASL"):
            module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
            login = f'{MODULE}.{module} required username="{user}" password="{secret_of(user)}";'
            if mechanism == "OAUTHBEARER":
                login = f'{MODULE}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="{user}";'
            found |= {"sasl.mechanism": mechanism, "sasl.jaas.config": login}
        return found

    def file(self, name: str, properties: Mapping[str, str]) -> Path:
        path = self.folder / f"{name}.properties"
        lines = (f"{k}={v}".replace("\n", "\\n") for k, v in properties.items())
        path.write_text("".join(f"{line}\n" for line in lines))
        return path

    def admin(self, kafka: LocalKafka) -> AdminClient:
        how = self.client(ADMIN, self.internal)
        return AdminClient({"bootstrap.servers": kafka.internal, "log_level": 2, **how})

    def create(self, kafka: LocalKafka, topic: str, partitions: int) -> None:
        admin = self.admin(kafka)  # must outlive its answers
        for future in admin.create_topics([NewTopic(topic, partitions, min(3, kafka.brokers))]).values():
            future.result(30)

    def allow(
        self,
        kafka: LocalKafka,
        user: str,
        rights: Iterable[tuple[ResourceType, str, AclOperation]],
        pattern: ResourcePatternType = ResourcePatternType.LITERAL,
    ) -> None:
        """Literal names unless `pattern` says otherwise; "*" for all."""
        made = [
            AclBinding(kind, name, pattern, f"User:{user}", "*", what, AclPermissionType.ALLOW)
            for kind, name, what in rights
        ]
        self.create_acls(kafka, made)

    def create_acls(self, kafka: LocalKafka, made: Sequence[AclBinding]) -> None:
        """Every broker knows them when this returns."""
        acls.create(self.admin(kafka), kafka, made, self.java(ADMIN, self.internal))

    def delete_acls(self, kafka: LocalKafka, filters: Sequence[AclBindingFilter]) -> list[AclBinding]:
        """Every broker knows of it when this returns."""
        return acls.delete(self.admin(kafka), kafka, filters, self.java(ADMIN, self.internal))

    def wait_for_acls(self, kafka: LocalKafka, made: Sequence[AclBinding]) -> None:
        acls.wait_until_known(kafka, made, self.java(ADMIN, self.internal))

    def take(self, kafka: LocalKafka, user: str, kind: ResourceType, name: str, what: AclOperation) -> None:
        """A right, whatever its pattern."""
        of = f"User:{user}"
        gone = AclBindingFilter(kind, name, ResourcePatternType.ANY, of, "*", what, AclPermissionType.ALLOW)
        assert len(self.delete_acls(kafka, [gone])) == 1, (name, what)
