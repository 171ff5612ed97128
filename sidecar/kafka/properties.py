"""Kafka's own client properties, as the file that `--command-config` of its tools names: how to reach secured brokers.

Java's names count, and those of librdkafka where it has others (`sasl.username`, `ssl.ca.location`). Properties without
an effect on security are ignored, so one file serves Kafka's tools and this program. Those of TLS are ignored where the
protocol has no TLS, and those of SASL where it has no SASL. An unknown property of security is refused: a connection
must not be less secure than its file says.

Values may name their source, as Kafka's configuration providers do: ${env:NAME}, ${file:PATH:KEY}, a key of another
properties file, and ${directory:PATH:FILE}, the contents of a file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import javaproperties

from sidecar.kafka.errors import SecurityError, plain
from sidecar.kafka.security import Security, Stores
from sidecar.kafka.tokens import Tokens

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
SECURE = re.compile(r"(security|sasl|ssl|enable\.ssl|enable\.sasl)\.")
TLS, SASL = re.compile(r"(enable\.)?ssl\."), re.compile(r"(enable\.)?sasl\.")
NAMED = re.compile(r"\$\{(env|file|directory):([^}]+)\}")
OPTION = re.compile(r"""([\w.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"']+))""")
ALIASES = {
    "sasl.mechanisms": "sasl.mechanism",
    "ssl.ca.location": "ssl.truststore.location",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
    "ssl.key.pem": "ssl.keystore.key",
    "sasl.oauthbearer.client.id": "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.secret": "sasl.oauthbearer.client.credentials.client.secret",
}
"""Names of librdkafka -> those of Java."""
KNOWN = frozenset(
    (
        *ALIASES,
        *ALIASES.values(),
        "security.protocol",
        "sasl.jaas.config",
        "sasl.username",
        "sasl.password",
        "sasl.oauthbearer.scope",
        "sasl.oauthbearer.token.endpoint.url",
        "ssl.truststore.type",
        "ssl.truststore.password",
        "ssl.keystore.type",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.certificate.location",
        "ssl.key.location",
        "ssl.key.password",
        "ssl.enabled.protocols",
        "ssl.endpoint.identification.algorithm",
    )
)
BAD_ESCAPE = "a \\u escape has not four digits"
WITHOUT_EFFECT = re.compile(
    r"ssl\.protocol|ssl\.engine\.factory\.class|ssl\.secure\.random\.implementation|ssl\.(key|trust)manager\.algorithm"
    r"|sasl\.login\.callback\.handler\.class|sasl\.oauthbearer\.method|sasl\.login\.(refresh|connect|read|retry)\..*"
    r"|security\.providers|sasl\.kerberos\..*"
)
"""Properties without effect here: they concern how Java's client works, repeat other properties, or are of GSSAPI,
which is refused."""


def read(path: Path) -> Security:
    """Reads a file of properties. Raises SecurityError, which names the file and the property, and no value that may be
    a secret."""
    try:
        return parse(path.read_text())
    except (OSError, ValueError) as exc:  # not text; a path with a character that no path has
        raise SecurityError(f"{path}: {plain(exc)}") from None
    except SecurityError as exc:
        raise SecurityError(f"{path}: {exc}") from None


def parse(text: str) -> Security:
    """Reads properties from text. Raises SecurityError."""
    try:
        return of(javaproperties.loads(text))
    except javaproperties.InvalidUEscapeError:
        raise SecurityError(BAD_ESCAPE) from None


def of(properties: Mapping[str, str]) -> Security:
    """Checks properties. Raises SecurityError."""
    protocol = _resolved("security.protocol", properties.get("security.protocol", "PLAINTEXT").strip()).upper()
    if protocol not in PROTOCOLS:
        raise SecurityError(f"security.protocol is {protocol!r}, and not one of {', '.join(PROTOCOLS)}")
    resolved = {
        ALIASES.get(name, name): _resolved(name, value.strip())
        for name, value in properties.items()
        if _counts(name, protocol)
    }
    mechanism = resolved.get("sasl.mechanism", "GSSAPI").upper() if protocol.startswith("SASL") else ""
    if mechanism and mechanism not in MECHANISMS:
        raise SecurityError(f"sasl.mechanism is {mechanism}; the sidecar's own clients know {', '.join(MECHANISMS)}")
    login = _jaas(resolved.get("sasl.jaas.config", ""))
    user = login.get("username", resolved.get("sasl.username", ""))
    password = login.get("password", resolved.get("sasl.password", ""))
    if login.get("tokenauth", "").lower() == "true":
        raise SecurityError("sasl.jaas.config has tokenauth: the sidecar's own clients know no delegation tokens")
    if mechanism and mechanism != "OAUTHBEARER" and not (user and password):
        raise SecurityError(f"{mechanism} needs a username and a password, in sasl.jaas.config or sasl.username")
    tokens = _tokens(resolved, login) if mechanism == "OAUTHBEARER" else None
    return Security(protocol, mechanism, user, password, tokens, _stores(resolved))


def secure(properties: Mapping[str, str]) -> dict[str, str]:
    """Returns the properties that concern security, as they are."""
    return {name: value for name, value in properties.items() if SECURE.match(name)}


def librdkafka_of(properties: Mapping[str, str]) -> dict[str, Any]:
    """Returns the properties for librdkafka. Those that do not concern security are passed on, and librdkafka refuses
    any that it does not know: use `secure` for a file that is not meant for it. Raises SecurityError."""
    rest = {n: _resolved(n, value.strip()) for n, value in properties.items() if not SECURE.match(n)}
    return rest | of(properties).librdkafka()


def _counts(name: str, protocol: str) -> bool:
    if not SECURE.match(name) or WITHOUT_EFFECT.fullmatch(name):
        return False
    if (TLS.match(name) and not protocol.endswith("SSL")) or (SASL.match(name) and not protocol.startswith("SASL")):
        return False
    if name in KNOWN:
        return True
    raise SecurityError(f"{name} is not known here; remove it from the file, or copy the file without it")


def _resolved(name: str, value: str) -> str:
    def value_of(match: re.Match[str]) -> str:
        provider, where = match.groups()
        path, _, key = where.rpartition(":") if provider != "env" else ("", "", where)
        try:
            if provider == "env":
                return os.environ[key]
            if provider == "directory":
                return Path(path, key).read_text().strip()
            return javaproperties.loads(Path(path).read_text())[key]
        except javaproperties.InvalidUEscapeError:
            raise SecurityError(f"{name} names {match.group()}: {BAD_ESCAPE}") from None
        except (KeyError, OSError, ValueError) as exc:  # not text; a path that cannot be
            why = f"there is no {key}" if isinstance(exc, KeyError) else plain(exc)
            raise SecurityError(f"{name} names {match.group()}: {why}") from None

    resolved = NAMED.sub(value_of, value)
    try:
        resolved.encode()
    except UnicodeEncodeError:  # a \u escape of half a pair
        raise SecurityError(f"{name} has half of a character") from None
    return resolved


def _jaas(text: str) -> dict[str, str]:
    """Returns the options of a login module. The mechanism determines the module."""
    return {
        name: re.sub(r"\\(.)", r"\1", double or single) or bare for name, double, single, bare in OPTION.findall(text)
    }


def _tokens(properties: Mapping[str, str], login: Mapping[str, str]) -> Tokens:
    prefix = "sasl.oauthbearer.client.credentials."
    principal = login.get("unsecuredLoginStringClaim_sub", "")
    url = properties.get("sasl.oauthbearer.token.endpoint.url", "")
    client_id = properties.get(prefix + "client.id", login.get("clientId", ""))
    secret = properties.get(prefix + "client.secret", login.get("clientSecret", ""))
    scope = properties.get("sasl.oauthbearer.scope", login.get("scope", ""))
    if url.startswith("file:") or principal:
        return Tokens(url, principal=principal)
    if not url.startswith(("http:", "https:")):
        raise SecurityError("OAUTHBEARER needs sasl.oauthbearer.token.endpoint.url, which is an http(s) or a file URL")
    if not (client_id and secret):
        raise SecurityError(f"OAUTHBEARER needs {prefix}client.id and {prefix}client.secret")
    return Tokens(url, client_id, secret, scope)


def _stores(properties: Mapping[str, str]) -> Stores:
    enabled = tuple(p.strip() for p in properties.get("ssl.enabled.protocols", "TLSv1.2,TLSv1.3").split(","))
    if not set(enabled) & {"TLSv1.2", "TLSv1.3"}:
        raise SecurityError(f"ssl.enabled.protocols is {','.join(enabled)}; TLSv1.2 and TLSv1.3 are known")
    algorithm = properties.get("ssl.endpoint.identification.algorithm", "https").lower()
    if algorithm not in ("https", "", "none"):
        raise SecurityError("ssl.endpoint.identification.algorithm is https, or empty for no check of the host's name")
    return Stores(
        trust=properties.get("ssl.truststore.location", ""),
        trust_password=properties.get("ssl.truststore.password", ""),
        trust_pem=properties.get("ssl.truststore.certificates", ""),
        keys=properties.get("ssl.keystore.location", properties.get("ssl.certificate.location", "")),
        keys_password=properties.get("ssl.keystore.password", ""),
        key_file=properties.get("ssl.key.location", ""),
        key_password=properties.get("ssl.key.password", ""),
        key_pem=properties.get("ssl.keystore.key", ""),
        chain_pem=properties.get("ssl.keystore.certificate.chain", ""),
        check_host=algorithm == "https",
        oldest="TLSv1.2" if "TLSv1.2" in enabled else "TLSv1.3",
    )
