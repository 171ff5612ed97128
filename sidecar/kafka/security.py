"""The security of the sidecar's own clients at brokers: TLS and credentials. properties.py reads them from a file of
Kafka's properties.

Two clients use the same values: the sidecar's own (`ssl_context`, `exchange`) and librdkafka (`librdkafka`). Stores may
be PEM or PKCS12. A secret is never part of a text.
"""

from __future__ import annotations

import re
import ssl
import tempfile
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sidecar.kafka.errors import SecurityError, plain
from sidecar.kafka.tokens import Tokens

JKS = b"\xfe\xed\xfe\xed"
PEM = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
PEM_LINE = 64
TOO_MANY_ITERATIONS = re.compile(r",i=\d{6}")
"""In a broker's first message of SCRAM. Kafka allows 16,384; ten million would hold the event loop for 16 s."""
Exchange = Generator[bytes, bytes, None]
"""Yields the client's SASL messages, and takes the broker's answers."""


@dataclass(frozen=True)
class Stores:
    """Certificates and keys: the trusted ones (`trust`), and the client's own (`keys`, and maybe `key_file`). A
    location, or the PEM text itself."""

    trust: str = ""
    trust_password: str = field(default="", repr=False)
    trust_pem: str = ""
    keys: str = ""
    keys_password: str = field(default="", repr=False)
    key_file: str = ""
    key_password: str = field(default="", repr=False)
    key_pem: str = field(default="", repr=False)
    chain_pem: str = ""
    check_host: bool = True
    oldest: str = "TLSv1.2"

    def files(self) -> tuple[Path, ...]:
        return tuple(Path(p) for p in (self.trust, self.keys, self.key_file) if p)

    def authorities(self) -> str:
        """Returns the trusted certificates as PEM text; "": those of the system. Raises SecurityError."""
        if not self.trust:
            return _inline("ssl.truststore.certificates", self.trust_pem) if self.trust_pem else ""
        data = _read(self.trust)
        return _blocks(data) or _certificates(self.trust, data, self.trust_password)

    def own(self) -> tuple[str, str]:
        """Returns the client's key and certificates as PEM text; "" and "" if it has none. Raises SecurityError."""
        if self.key_pem:
            key = _inline("ssl.keystore.key", self.key_pem)
            return key, _inline("ssl.keystore.certificate.chain", self.chain_pem) if self.chain_pem else key
        if not self.keys:
            return "", ""
        data = _read(self.keys)
        if chain := _blocks(data):
            return _some(self.key_file, _read(self.key_file)) if self.key_file else chain, chain
        return _key_and_chain(self.keys, data, self.keys_password)


def _inline(name: str, text: str) -> str:
    """Returns the blocks of a property's value. Raises SecurityError."""
    return _some(name, text.encode(errors="replace"))


def _some(where: str, data: bytes) -> str:
    """Returns the blocks of PEM text. Raises SecurityError if it has none: without them the client would be another
    one, or trust others."""
    if blocks := _blocks(data):
        return blocks
    raise SecurityError(f"{where} has no certificate or key in PEM")


def _blocks(data: bytes) -> str:
    """Returns the certificates and keys of PEM text, in lines; "" if it has none. As in Java, text around them may have
    any encoding, and a block may stand in one line, as properties continue lines (KIP-651)."""
    return "".join(_lines(*block.groups()) for block in PEM.finditer(data))


def _lines(label: bytes, body: bytes) -> str:
    name, text = label.decode(), body.decode(errors="replace")
    if ":" not in text:  # the headers of an encrypted key end with an empty line
        base64 = "".join(text.split())
        text = "\n" + "".join(f"{base64[at : at + PEM_LINE]}\n" for at in range(0, len(base64), PEM_LINE))
    return f"-----BEGIN {name}-----{text}-----END {name}-----\n"


def _read(path: str) -> bytes:
    try:
        data = Path(path).read_bytes()
    except (OSError, ValueError) as exc:  # a path with a character that no path has
        raise SecurityError(f"{path}: {plain(exc)}") from None
    if data.startswith(JKS):
        into = "keytool -importkeystore -srckeystore OLD -destkeystore NEW.p12 -deststoretype PKCS12"
        raise SecurityError(f"{path} is a JKS store. Make it one of PKCS12: {into}")
    return data


def _loaded(path: str, data: bytes, password: str) -> Any:
    from cryptography.hazmat.primitives.serialization import pkcs12

    try:
        return pkcs12.load_pkcs12(data, password.encode() or None)
    except ValueError:
        raise SecurityError(f"{path} is no PEM or PKCS12 store, or its password is another one") from None


def _pem(certificate: Any) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding

    return str(certificate.certificate.public_bytes(Encoding.PEM).decode())


def _certificates(path: str, data: bytes, password: str) -> str:
    store = _loaded(path, data, password)
    certificates = [c for c in (store.cert, *store.additional_certs) if c is not None]
    if not certificates:
        raise SecurityError(f"{path} has no certificates")
    return "".join(map(_pem, certificates))


def _key_and_chain(path: str, data: bytes, password: str) -> tuple[str, str]:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    store = _loaded(path, data, password)
    if store.key is None or store.cert is None:
        raise SecurityError(f"{path} has no key with its certificate")
    key = store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return key.decode(), "".join(map(_pem, (store.cert, *store.additional_certs)))


@dataclass(frozen=True)
class Security:
    protocol: str = "PLAINTEXT"
    mechanism: str = ""
    user: str = ""
    password: str = field(default="", repr=False)
    tokens: Tokens | None = None
    stores: Stores = Stores()
    _made: dict[tuple[bool, tuple[int, ...]], ssl.SSLContext] = field(default_factory=dict, repr=False, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_made": {}}

    @property
    def tls(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def sasl(self) -> bool:
        return self.protocol.startswith("SASL")

    @property
    def principal(self) -> str:
        """Principal by which brokers know it by default; "": only a broker knows."""
        return f"User:{self.user}" if self.sasl and self.user else ""

    def shown(self) -> str:
        """Returns the protocol and the user, for people."""
        return f"{self.protocol} {self.mechanism} as {self.user or 'a token says'}" if self.sasl else self.protocol

    # ---- as credentials that nobody reads again (Login in credentials.py) ---------------------------------
    @property
    def now(self) -> Security:
        return self

    def refusal(self, host: str, port: int) -> str:
        return ""

    def refused(self, host: str, port: int, why: str, sure: bool = True, used: Security | None = None) -> None:
        """Does nothing: the caller that made the connection reports the refusal."""

    def accepted(self, host: str, port: int) -> None: ...

    def answered(self, api: str, req: object, res: object) -> None: ...

    def outcome(self, api: str, kind: str, name: str, code: int) -> None: ...

    # ---- our own client -----------------------------------------------------------------------------------
    def ssl_context(self, own: bool = True) -> ssl.SSLContext | None:
        """Returns the context of TLS; None without TLS. `own`: with the client's own certificate, if there is one.
        Files that have changed are read again. Raises SecurityError."""
        if not self.tls:
            return None
        try:
            stamp = (own, tuple(path.stat().st_mtime_ns for path in self.stores.files()))
        except (OSError, ValueError) as exc:  # a path with a character that no path has
            raise SecurityError(f"{getattr(exc, 'filename', None) or 'ssl.*.location'}: {plain(exc)}") from None
        if stamp not in self._made:
            made = _context(self.stores, own)
            for former in [s for s in self._made if s[1] != stamp[1]]:
                del self._made[former]
            self._made[stamp] = made
        return self._made[stamp]

    def exchange(self, token: str = "") -> Exchange:
        """Exchanges the messages in SaslAuthenticate. `token`: for OAUTHBEARER. Raises SecurityError, also if the
        broker cannot prove that it knows the password (SCRAM)."""
        try:
            yield from self._messages(token)
        except UnicodeError:
            raise SecurityError(f"{self.mechanism}: the credentials or the broker's answer are no text") from None

    def _messages(self, token: str) -> Exchange:
        if self.mechanism == "PLAIN":
            yield f"\0{self.user}\0{self.password}".encode()
        elif self.mechanism == "OAUTHBEARER":
            refused = yield f"n,,\x01auth=Bearer {token}\x01\x01".encode()
            if refused:
                yield b"\x01"  # the broker says what is wrong only then
        else:
            from scramp import ScramClient, ScramException  # takes a while, and few need it

            try:
                client = ScramClient([self.mechanism], self.user, self.password)
                first = (yield client.get_client_first().encode()).decode()
                if TOO_MANY_ITERATIONS.search(first):
                    raise SecurityError(f"{self.mechanism}: the broker wants 100,000 iterations or more")
                client.set_server_first(first)
                client.set_server_final((yield client.get_client_final().encode()).decode())
            except ScramException as exc:
                raise SecurityError(f"{self.mechanism}: {exc}") from None

    # ---- librdkafka ---------------------------------------------------------------------------------------
    def librdkafka(self) -> dict[str, Any]:
        """Returns librdkafka's properties. Stores are read now: files that change later do not count. Their faults are
        found here, and not by librdkafka. Raises SecurityError."""
        self.ssl_context()
        config: dict[str, Any] = {} if self.protocol == "PLAINTEXT" else {"security.protocol": self.protocol}
        if self.sasl:
            config |= {"sasl.mechanism": self.mechanism, **self._login()}
        if self.tls:
            authorities, (key, chain) = self.stores.authorities(), self.stores.own()
            if authorities:
                config["ssl.ca.pem"] = authorities
            if key:
                config |= {"ssl.key.pem": key, "ssl.certificate.pem": chain}
                if self.stores.key_password:
                    config["ssl.key.password"] = self.stores.key_password
            config["ssl.endpoint.identification.algorithm"] = "https" if self.stores.check_host else "none"
        return config

    def _login(self) -> dict[str, Any]:
        if self.tokens is None:
            return {"sasl.username": self.user, "sasl.password": self.password}
        tokens = self.tokens
        if tokens.url.startswith("http"):
            oidc = {"sasl.oauthbearer.method": "oidc", "sasl.oauthbearer.token.endpoint.url": tokens.url}
            scope = {"sasl.oauthbearer.scope": tokens.scope} if tokens.scope else {}
            client = {"sasl.oauthbearer.client.id": tokens.client_id, "sasl.oauthbearer.client.secret": tokens.secret}
            return oidc | client | scope
        return {"oauth_cb": lambda config: tokens.current()}


def _context(stores: Stores, own: bool) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2 if stores.oldest == "TLSv1.2" else ssl.TLSVersion.TLSv1_3
    context.check_hostname = stores.check_host
    authorities = stores.authorities()
    try:
        if authorities:
            context.load_verify_locations(cadata=authorities)
        else:
            context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    except (ssl.SSLError, ValueError, TypeError) as exc:  # TypeError: what is no ASCII
        raise SecurityError(f"the certificates of {stores.trust or 'ssl.truststore.certificates'}: {exc}") from None
    key, chain = stores.own() if own else ("", "")
    if key:
        _load(context, stores, key, chain)
    return context


def _load(context: ssl.SSLContext, stores: Stores, key: str, chain: str) -> None:
    """Loads the client's key. Python takes keys from files only: from one that no other user can read, briefly."""
    with tempfile.TemporaryDirectory(prefix="sidecar-") as folder:  # of mode 0700
        path = Path(folder, "own.pem")
        path.write_text(f"{key}{chain}" if key != chain else key)
        try:
            context.load_cert_chain(path, password=lambda: stores.key_password)
        except (ssl.SSLError, OSError, ValueError):
            where = stores.keys or "ssl.keystore.key"
            raise SecurityError(
                f"{where}: the key cannot be read or does not fit the certificate; is ssl.key.password right?"
            ) from None


PLAINTEXT = Security()
