"""Security of a drill's cluster: SASL_SSL with SCRAM on both listeners of each broker, and at the sidecars.

The certificate and the password are made for this one cluster. They lie in its folder, readable by their owner only.
"""

from __future__ import annotations

import datetime
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path

PROTOCOL, MECHANISM, USER = "SASL_SSL", "SCRAM-SHA-512", "drill"
MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
LIFE = datetime.timedelta(days=7)
HOST = "127.0.0.1"


@dataclass(frozen=True)
class Secured:
    """Arguments for a LocalKafka. `client`: properties of all clients, sidecars and commands; `scram`: user ->
    password."""

    properties: Mapping[str, str]
    client: Mapping[str, str]
    scram: Mapping[str, str]
    sidecar_env: Mapping[str, str]


def private(path: Path, text: str) -> Path:
    """Write a file that only its owner may read; return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as out:
        out.write(text)
    return path


def secured(folder: Path) -> Secured:
    password = secrets.token_urlsafe(24)
    key, certificate = _issued()
    trust = private(folder / "authority.pem", certificate)
    store = private(folder / "key-and-certificate.pem", key + certificate)
    login = f'{MODULE} required username="{USER}" password="{password}";'
    trusted = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(trust)}
    logins = {f"listener.name.{n}.{MECHANISM.lower()}.sasl.jaas.config": login for n in ("clients", "internal")}
    return Secured(
        properties={
            "listener.security.protocol.map": f"CLIENTS:{PROTOCOL},INTERNAL:{PROTOCOL},CONTROLLER:PLAINTEXT",
            "sasl.enabled.mechanisms": MECHANISM,
            "sasl.mechanism.inter.broker.protocol": MECHANISM,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(store),
            **trusted,
            **logins,
        },
        client={"security.protocol": PROTOCOL, "sasl.mechanism": MECHANISM, "sasl.jaas.config": login, **trusted},
        scram={USER: password},
        sidecar_env={"SIDECAR_TLS__CERTIFICATE": str(store)},
    )


def _issued() -> tuple[str, str]:
    """Return a key and its self-signed certificate, as PEM."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, USER)])
    now = datetime.datetime.now(datetime.UTC)
    hosts = x509.SubjectAlternativeName([x509.IPAddress(IPv4Address(HOST)), x509.DNSName("localhost")])
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + LIFE)
        .add_extension(hosts, critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    return pem, made.public_bytes(Encoding.PEM).decode()
