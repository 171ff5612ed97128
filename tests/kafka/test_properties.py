"""A file of Kafka's client properties, in its own names or in librdkafka's, becomes how we reach brokers."""

from __future__ import annotations

import base64
import json
import pickle
import ssl
from contextlib import suppress
from pathlib import Path

import pytest

from sidecar.kafka.errors import SecurityError
from sidecar.kafka.properties import librdkafka_of, parse, read, secure
from sidecar.kafka.security import PLAINTEXT, Security, Stores
from sidecar.kafka.tokens import Tokens
from tests.security.ground import Authority

SCRAM = """
# as kafka-acls takes it
bootstrap.servers=ignored:9092
request.timeout.ms = 5000
security.protocol: SASL_PLAINTEXT
sasl.mechanism=SCRAM-SHA-512
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\
   username="side=car" \\
   password="pass \\\\"word\\\\"; and more";
"""


def test_scram_in_javas_names() -> None:
    found = parse(SCRAM)
    assert (found.protocol, found.mechanism, found.user) == ("SASL_PLAINTEXT", "SCRAM-SHA-512", "side=car")
    assert found.password == 'pass "word"; and more'
    assert found.librdkafka()["sasl.password"] == found.password


def test_librdkafkas_names() -> None:
    found = parse("security.protocol=sasl_plaintext\nsasl.mechanisms=PLAIN\nsasl.username=u\nsasl.password=p=q\n")
    assert (found.mechanism, found.user, found.password) == ("PLAIN", "u", "p=q")
    exchange = found.exchange()
    assert next(exchange) == b"\0u\0p=q"


def test_nothing_said_is_plaintext() -> None:
    assert parse("client.id=x\n") == PLAINTEXT
    assert parse("").librdkafka() == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("security.protocol=SASL", "security.protocol is 'SASL'"),
        ("security.protocol=SASL_SSL", "GSSAPI"),
        ("security.protocol=SASL_SSL\nsasl.mechanism=PLAIN", "needs a username and a password"),
        ("security.protocol=SSL\nssl.cipher.suites=TLS_X", "ssl.cipher.suites is not known here"),
        ("security.protocol=SSL\nssl.enabled.protocols=TLSv1.1", "TLSv1.2 and TLSv1.3 are known"),
        ("security.protocol=SASL_SSL\nsasl.mechanism=OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url"),
        (
            "security.protocol=SASL_SSL\nsasl.mechanism=OAUTHBEARER\nsasl.oauthbearer.token.endpoint.url=https://x/",
            "client.secret",
        ),
        ("security.protocol=SSL\nssl.key.password=${env:NO_SUCH_NAME_HERE}", "ssl.key.password names ${env:NO_SUCH"),
        ("sasl.jaas.config=X required tokenauth=true;\nsecurity.protocol=SASL_SSL\nsasl.mechanism=PLAIN", "tokenauth"),
        ("security.protocl=SSL", "security.protocl is not known here"),
        ("security.protocol=SSL\nenable.ssl.certificate.verification=false", "verification is not known here"),
    ],
)
def test_what_is_of_no_use_is_refused(text: str, said: str) -> None:
    with pytest.raises(SecurityError, match=said.replace("$", r"\$").replace("{", r"\{").replace(".", r"\.")):
        parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=u\nsasl.password=p\n"
        "ssl.cipher.suites=TLS_X\nssl.truststore.location=/no/such\nsasl.kerberos.service.name=kafka\n",
        "sasl.mechanism=NONE-SUCH\nsasl.unheard.of=1\nssl.cipher.suites=TLS_X\n",
    ],
)
def test_what_does_not_count_is_ignored(text: str) -> None:
    """Kerberos beside another mechanism, TLS without TLS, and everything where nothing is secured."""
    found = parse(text)
    assert found.stores == Stores()
    assert found.ssl_context() is None


def test_both_clients_take_the_same_way() -> None:
    """Both clients take the same properties: what one refuses the other refuses, too."""
    with pytest.raises(SecurityError, match="unheard"):
        librdkafka_of({"security.protocol": "SSL", "ssl.unheard.of": "1"})
    with pytest.raises(SecurityError, match="NO_SUCH"):
        librdkafka_of({"client.id": "${env:NO_SUCH_NAME_HERE}"})
    plain = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanisms": "PLAIN", "sasl.username": "u"}
    with pytest.raises(SecurityError, match="needs a username and a password"):
        librdkafka_of(plain)
    assert librdkafka_of({**plain, "sasl.password": "p", "debug": "all"})["debug"] == "all"
    assert secure({**plain, "default.api.timeout.ms": "1"}) == plain


def test_a_store_that_is_of_no_use_is_found_before_librdkafka_does(tmp_path: Path) -> None:
    store = tmp_path / "trust.pem"
    store.write_text("-----BEGIN CERTIFICATE-----\nnone\n-----END CERTIFICATE-----\n")
    with pytest.raises(SecurityError, match=r"the certificates of .*trust\.pem"):
        librdkafka_of({"security.protocol": "SSL", "ssl.truststore.location": str(store)})


def test_values_from_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secrets.properties").write_text("password=from-a-file\n")
    (tmp_path / "user").write_text("from-a-folder\n")
    monkeypatch.setenv("MECHANISM", "PLAIN")
    found = parse(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=${env:MECHANISM}\n"
        f"sasl.username=${{directory:{tmp_path}:user}}\nsasl.password=${{file:{tmp_path}/secrets.properties:password}}\n"
    )
    assert (found.mechanism, found.user, found.password) == ("PLAIN", "from-a-folder", "from-a-file")


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(SecurityError, match="no-such-file: No such file"):
        read(Path("no-such-file"))


def test_no_secret_in_any_text() -> None:
    found = parse(SCRAM)
    tokens = Tokens("https://x/", "id", "S3CRET")
    for text in (repr(found), str(found), found.shown(), repr(tokens)):
        assert "word" not in text
        assert "S3CRET" not in text


def test_it_goes_to_workers_of_spark() -> None:
    assert pickle.loads(pickle.dumps(parse(SCRAM))) == parse(SCRAM)


# ---- stores ---------------------------------------------------------------------------------------------------------
def pkcs12(papers: Path, key: Path | None, password: str, into: Path) -> Path:
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import (
        BestAvailableEncryption,
        load_pem_private_key,
        pkcs12,
    )

    certificates = x509.load_pem_x509_certificates(papers.read_bytes())
    loaded = load_pem_private_key(key.read_bytes(), None) if key else None
    assert loaded is None or hasattr(loaded, "curve") or hasattr(loaded, "key_size")
    data = pkcs12.serialize_key_and_certificates(
        b"name",
        loaded,  # type: ignore[arg-type]
        certificates[0] if key else None,
        certificates[1:] if key else certificates,
        BestAvailableEncryption(password.encode()),
    )
    into.write_bytes(data)
    return into


def test_pem_and_pkcs12_stores_say_the_same(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    papers = authority.issue("client", "localhost")
    pem = f"security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location={authority.pem}\n"
    pem += f"ssl.keystore.type=PEM\nssl.keystore.location={papers.store}\n"
    trust = pkcs12(authority.pem, None, "of-the-trust", tmp_path / "trust.p12")
    keys = pkcs12(papers.certificate, papers.key, "of-the-keys", tmp_path / "keys.p12")
    stores = f"security.protocol=SSL\nssl.truststore.location={trust}\nssl.truststore.password=of-the-trust\n"
    stores += f"ssl.keystore.location={keys}\nssl.keystore.password=of-the-keys\n"
    for text in (pem, stores):
        found = parse(text)
        context = found.ssl_context()
        assert context is not None
        assert context.minimum_version == ssl.TLSVersion.TLSv1_2
        assert "authority" in str(context.get_ca_certs())
        assert found.ssl_context() is context
        assert "BEGIN PRIVATE KEY" in found.librdkafka()["ssl.key.pem"]
    wrong = stores.replace("of-the-keys", "another")
    with pytest.raises(SecurityError, match="its password is another one"):
        parse(wrong).ssl_context()


AROUND = {
    "Bag Attributes": b"Bag Attributes\n    friendlyName: client\nsubject=CN = client\n",
    "UTF-8": "# Issuer: F\u0151tan\u00fas\u00edtv\u00e1ny\n".encode(),
    "Latin-1": b"# M\xfcller\n",
}
"""Lines that openssl and bundles of authorities write around the blocks of PEM."""


@pytest.mark.parametrize("around", AROUND.values(), ids=AROUND)
def test_text_around_the_blocks_of_pem_does_not_count(tmp_path: Path, around: bytes) -> None:
    authority = Authority(tmp_path)
    papers = authority.issue("client", "localhost")
    for store in (authority.pem, papers.store, papers.certificate, papers.key):
        store.write_bytes(around + store.read_bytes() + around)
    trust = f"security.protocol=SSL\nssl.truststore.location={authority.pem}\n"
    apart = f"ssl.certificate.location={papers.certificate}\nssl.key.location={papers.key}\n"
    for keys in (f"ssl.keystore.location={papers.store}\n", apart):
        found = parse(trust + keys)
        context = found.ssl_context()
        assert context is not None and "authority" in str(context.get_ca_certs())
        assert "BEGIN PRIVATE KEY" in found.librdkafka()["ssl.key.pem"]
        assert all(str(text).isascii() for text in found.librdkafka().values())


def test_pem_in_one_line_as_properties_continue_it(tmp_path: Path) -> None:
    """KIP-651 writes it so: each line of the file ends with a backslash."""
    authority = Authority(tmp_path)
    papers = authority.issue("client", "localhost")
    files = {
        "ssl.truststore.certificates": authority.pem,
        "ssl.keystore.certificate.chain": papers.certificate,
        "ssl.keystore.key": papers.key,
    }
    lines = (f"{name}={path.read_text().strip()}".replace("\n", " \\\n") for name, path in files.items())
    found = parse("\n".join(("security.protocol=SSL", *lines)))
    context = found.ssl_context()
    assert context is not None and "authority" in str(context.get_ca_certs())
    assert found.librdkafka()["ssl.key.pem"].split() == papers.key.read_text().split()


@pytest.mark.parametrize("name", ["ssl.truststore.certificates", "ssl.keystore.key", "ssl.keystore.certificate.chain"])
def test_a_value_without_pem_is_refused_and_not_left_out(tmp_path: Path, name: str) -> None:
    """Left out, the client would trust the system's authorities, or have no certificate."""
    papers = Authority(tmp_path).issue("client", "localhost")
    given = {"ssl.keystore.key": papers.key.read_text(), "security.protocol": "SSL", name: "none"}
    with pytest.raises(SecurityError, match=f"{name} has no certificate or key in PEM"):
        librdkafka_of(given)


NO_PATH = ["/a\\u0000b", "/a\\ud800b"]


@pytest.mark.parametrize("path", NO_PATH)
@pytest.mark.parametrize("name", ["ssl.truststore.location", "ssl.keystore.location", "ssl.key.location"])
def test_a_path_that_no_file_can_have_is_a_fault_of_the_file(name: str, path: str) -> None:
    for value in (path, f"${{file:{path}:key}}", f"${{directory:{path}:key}}"):
        with pytest.raises(SecurityError):
            parse(f"security.protocol=SSL\n{name}={value}\n").ssl_context()


def test_a_fault_of_a_file_that_a_value_names_is_a_fault_of_that_value(tmp_path: Path) -> None:
    """Symptom: a bad escape there was told as a bug of the program, with a trace."""
    secrets = tmp_path / "secrets.properties"
    secrets.write_text("password=\\u12")
    given = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "u"}
    with pytest.raises(SecurityError, match=r"^sasl\.password names .*: a \\u escape has not four digits$"):
        librdkafka_of({**given, "sasl.password": f"${{file:{secrets}:password}}"})


ODD_TEXT = ["\ud800", "a\a", "\u00ad", "\u06271"]
"""Half of a character, and texts that SASLprep refuses (RFC 4013)."""


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"])
@pytest.mark.parametrize("odd", ODD_TEXT)
def test_credentials_that_cannot_be_sent_are_a_fault_of_theirs(mechanism: str, odd: str) -> None:
    for user, password in ((odd, "p"), ("u", odd)):
        exchange = Security("SASL_PLAINTEXT", mechanism, user, password).exchange(token=odd)
        with suppress(SecurityError, StopIteration):
            first = next(exchange)
            exchange.send(first.rpartition(b"n,,")[2].rpartition(b",")[2] + b"x,s=c2FsdHNhbHRzYWx0c2FsdA==,i=4096")


def test_a_store_of_java_is_refused_with_the_way_out(tmp_path: Path) -> None:
    store = tmp_path / "trust.jks"
    store.write_bytes(b"\xfe\xed\xfe\xed\0\0\0\2")
    with pytest.raises(SecurityError, match="-deststoretype PKCS12"):
        parse(f"security.protocol=SSL\nssl.truststore.location={store}\n").ssl_context()


def test_files_that_change_are_read_again(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    found = parse(f"security.protocol=SSL\nssl.ca.location={authority.pem}\n")
    before = found.ssl_context()
    authority.pem.write_bytes(Authority(tmp_path / "other").pem.read_bytes())
    import os

    os.utime(authority.pem, ns=(1, 1))
    assert found.ssl_context() is not before


def test_a_key_that_does_not_fit(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    one, other = authority.issue("one"), authority.issue("other")
    text = f"security.protocol=SSL\nssl.certificate.location={one.certificate}\nssl.key.location={other.key}\n"
    with pytest.raises(SecurityError, match="does not fit the certificate"):
        parse(text).ssl_context()


# ---- tokens ---------------------------------------------------------------------------------------------------------
def test_an_unsecured_token() -> None:
    text = "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
    found = parse(text + 'sasl.jaas.config=X required unsecuredLoginStringClaim_sub="me";\n')
    assert found.tokens is not None
    token, ends_s = found.tokens.current()
    middle = token.split(".")[1]
    said = json.loads(base64.urlsafe_b64decode(middle + "=="))
    assert said["sub"] == "me"
    assert said["exp"] == ends_s
    assert found.tokens.current()[0] == token
    assert next(found.exchange(token)) == f"n,,\x01auth=Bearer {token}\x01\x01".encode()


def test_a_token_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("abc\n")
    assert Tokens((tmp_path / "token").as_uri()).current()[0] == "abc"
    with pytest.raises(SecurityError, match="no token from file"):
        Tokens((tmp_path / "none").as_uri()).current()


@pytest.mark.parametrize("path", ["/token", "/token?key=S3CRET"])
def test_a_user_in_a_url_is_in_no_message(path: str) -> None:
    """The address has no listener, and the error must not show the user in it."""
    tokens = Tokens(f"http://user:S3CRET@127.0.0.1:1{path}", "id", "S3CRET")
    with pytest.raises(SecurityError, match=r"no token from http://127\.0\.0\.1:1/token: ") as raised:
        tokens.current()
    assert "S3CRET" not in f"{raised.value} {tokens}"
