"""No secret is told: a sidecar is given one of every kind here, and everything that it or a command says is
looked through. What ends up in the state topic: test_who.py."""

from __future__ import annotations

import os
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from typer.testing import CliRunner

from sidecar.cli.main import app
from sidecar.drill.local import LocalKafka
from sidecar.drill.processes import wait_until
from sidecar.kafka.tokens import unsecured
from tests.clients.ground import ENV
from tests.kafka.test_properties import pkcs12
from tests.security.ground import ADMIN, MARK, Papers, Secured, assert_no_secret, dumped, secret_of
from tests.security.test_own import consumed

pytestmark = pytest.mark.tier("all")
GROUP = "managed-secret"
TOKEN, FORMER, WRONG = (secret_of(f"{which}-token") for which in ("admin", "former", "wrong"))
BY_ENV = "KEY_PASSWORD_OF_TESTS"
CONTENT = (
    "/about",
    "/owners",
    f"/group?id={GROUP}",
    "/api/v1/overview",
    "/api/v1/groups",
    f"/api/v1/group?id={GROUP}",
    "/metrics",
    "/readyz",
    "/livez",
    "/",
)


@dataclass
class SecuredCluster:
    kafka: LocalKafka
    ground: Secured
    folder: Path
    keys: tuple[str, ...]

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.kafka.nodes[0].admin_port}"

    @property
    def asking(self) -> list[str]:
        return ["--ca", str(self.ground.authority.pem), "--token-file", str(self.folder / "tokens")]

    def get(self, path: str, token: str = TOKEN, form: dict[str, str] | None = None) -> tuple[int, str]:
        """Status, and headers with the body."""
        data = None if form is None else urllib.parse.urlencode(form).encode()
        request = urllib.request.Request(self.url + path, data, {"Authorization": f"Bearer {token}"} if token else {})
        trust = ssl.create_default_context(cafile=self.ground.authority.pem)
        try:
            with urllib.request.urlopen(request, context=trust, timeout=10) as res:
                return res.status, f"{res.headers}{res.read().decode()}"
        except urllib.error.HTTPError as exc:
            return exc.code, f"{exc.headers}{exc.read().decode()}"

    def ready(self) -> bool:
        try:
            return self.get("/readyz", "")[0] == 200
        except OSError:
            return False

    def clean(self, text: str, marker: str) -> None:
        assert_no_secret(text, marker, self.keys)


def closed(papers: Papers, password: str) -> str:
    """The key gets a password; returns a line of the file."""
    key = serialization.load_pem_private_key(papers.key.read_bytes(), None)
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8)
    papers.key.write_bytes(key.private_bytes(*form, serialization.BestAvailableEncryption(password.encode())))
    papers.key.with_suffix(".password").write_text(password + "\n")
    return papers.key.read_text().splitlines()[1]


def own_client(ground: Secured) -> tuple[dict[str, str], str]:
    """Stores with passwords, and a login: each from somewhere else. Also a line of the key."""
    papers = ground.authority.issue("own-client")
    trust = pkcs12(ground.authority.pem, None, secret_of("truststore"), ground.folder / "trust.p12")
    keys = pkcs12(papers.certificate, papers.key, secret_of("keystore"), ground.folder / "keys.p12")
    (ground.folder / "truststore-password").write_text(secret_of("truststore"))
    elsewhere = ground.file("elsewhere", {"keystore": secret_of("keystore"), "login": secret_of(ADMIN)})
    said = ground.java(ADMIN, ground.internal, "SCRAM-SHA-512")
    return {
        **said,
        "sasl.jaas.config": said["sasl.jaas.config"].replace(secret_of(ADMIN), f"${{file:{elsewhere}:login}}"),
        "ssl.truststore.type": "PKCS12",
        "ssl.truststore.location": str(trust),
        "ssl.truststore.password": f"${{directory:{ground.folder}:truststore-password}}",
        "ssl.keystore.location": str(keys),
        "ssl.keystore.password": f"${{file:{elsewhere}:keystore}}",
    }, papers.key.read_text().splitlines()[1]


def seen_client(ground: Secured) -> tuple[dict[str, str], str]:
    """A key as text, with a password from the environment. Also a line of it."""
    papers = ground.authority.issue("seen-client")
    line = closed(papers, secret_of("key"))
    return {
        **ground.java(ADMIN, ground.clients),
        "ssl.keystore.key": papers.key.read_text(),
        "ssl.keystore.certificate.chain": papers.certificate.read_text(),
        "ssl.key.password": f"${{env:{BY_ENV}}}",
    }, line


def by_token(place: SecuredCluster) -> str:
    """A client whose token goes through the sidecar; returns the token."""
    token, end = unsecured(ADMIN, time.time()), time.time() + 600
    how: dict[str, Any] = {"security.protocol": "SASL_SSL", "ssl.ca.location": str(place.ground.authority.pem)}
    bearer = {"sasl.mechanism": "OAUTHBEARER", "oauth_cb": lambda config: (token, end)}
    assert len(consumed(place.kafka, {**how, **bearer}, GROUP, "secured")) == 3
    return token


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    folder = tmp_path_factory.mktemp("secrets")
    ground = Secured(folder, clients="SASL_SSL")
    (own, own_key), (seen, seen_key) = own_client(ground), seen_client(ground)
    (folder / "tokens").write_text(f"{TOKEN}\n{FORMER}\n")
    env = {
        **ENV,
        "SIDECAR_LOG__LEVEL": "debug",
        "SIDECAR_COMMAND_CONFIG": str(ground.file("own", own)),
        "SIDECAR_BROKER_COMMAND_CONFIG": str(ground.file("seen", seen)),
        BY_ENV: secret_of("key"),
        "SIDECAR_ADMIN_ACCESS__TOKEN_FILE": str(folder / "tokens"),
    }
    keys = [own_key, seen_key]
    for name, prefix in (("listener", "SIDECAR_TLS__"), ("admin", "SIDECAR_ADMIN_ACCESS__TLS_")):
        papers = ground.authority.issue(name)
        keys.append(closed(papers, secret_of(f"{name}-key")))
        env[f"{prefix}CERTIFICATE"] = str(papers.certificate)
        env[f"{prefix}KEY"] = str(papers.key)
        env[f"{prefix}KEY_PASSWORD_FILE"] = str(papers.key.with_suffix(".password"))
    kafka = ground.start(brokers=1, sidecar_env=env)
    try:
        ground.create(kafka, "secured", 3)
        found = SecuredCluster(kafka, ground, folder, tuple(keys))
        wait_until("the sidecar", found.ready, 60, [kafka.start_sidecar(kafka.nodes[0])])
        assert len(consumed(kafka, ground.client(ADMIN, "SASL_SSL", "SCRAM-SHA-512"), GROUP, "secured")) == 3
        found.keys = (*found.keys, by_token(found))
        yield found
    finally:
        kafka.stop()


def log(place: SecuredCluster) -> str:
    sidecar = place.kafka.nodes[0].sidecar
    assert sidecar is not None
    return sidecar.log.read_text()


@pytest.mark.parametrize("path", CONTENT)
def test_the_admin_endpoint_tells_none(place: SecuredCluster, path: str) -> None:
    marker = {"/about": "admin_access.token_file", "/metrics": "sidecar_ready", "/": "<html"}.get(path, "{")
    status, text = place.get(path)
    assert status == 200
    place.clean(text, GROUP if GROUP in path or path == "/api/v1/groups" else marker)


def test_neither_do_refusals_and_the_login(place: SecuredCluster) -> None:
    for path in ("/about", "/api/v1/overview"):
        status, text = place.get(path, WRONG)
        assert status == 401
        place.clean(text, "problem")
    status, text = place.get("/login", "", {"token": WRONG})
    assert status == 401
    place.clean(text, "problem")
    status, text = place.get("/login", "", {"token": FORMER})
    assert status == 200
    place.clean(text, "sidecar_admin=")
    place.clean(log(place), "login at the admin endpoint refused")


def test_the_log_tells_none(place: SecuredCluster) -> None:
    place.clean(log(place), "event='ready'")
    assert "level='debug'" in log(place)


def test_commands_tell_none(place: SecuredCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in place.kafka.sidecar_settings(place.kafka.nodes[0]).items():
        monkeypatch.setenv(name, value)
    wrong = place.folder / "wrong"
    wrong.write_text(WRONG)
    open_bootstrap = ["--bootstrap", place.kafka.internal, "--command-config", str(place.folder / "own.properties")]
    said = {
        "admin_access.token_file": ["config", "show", "--origin", "-o", "json"],
        "valid": ["config", "check"],
        GROUP: ["groups", "describe", GROUP, "--admin", place.url, *place.asking],
        "coordinates it": ["groups", "explain", GROUP, *open_bootstrap, "--admin", place.url, *place.asking],
        "sidecars ready": ["doctor", *open_bootstrap, "--admin", place.url, *place.asking],
        "token is wanted": ["groups", "describe", GROUP, "--admin", place.url, *place.asking[:3], str(wrong)],
        "https only": ["groups", "describe", GROUP, "--admin", "192.0.2.1:1", *place.asking],
    }
    for marker, words in said.items():
        result = CliRunner().invoke(app, words)
        place.clean(result.output, marker)


def test_neither_do_a_dump_and_the_audit(place: SecuredCluster, tmp_path: Path) -> None:
    """Both commands print no secret, and neither Spark's log nor the files that they leave have one."""
    reach = ["--command-config", str(place.folder / "own.properties")]
    dump, lake = tmp_path / "state.jsonl", tmp_path / "lake"
    words = {
        "dump": ["state", "dump", str(dump), "--bootstrap", place.kafka.internal, *reach],
        "audit": ["audit", "run", "--from", f"kafka://{place.kafka.internal}", "--lake", str(lake), *reach],
    }
    for how, marker in zip(words.values(), (str(dump), "records of"), strict=True):
        command = [sys.executable, "-m", "sidecar.cli.main", *how]
        done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
        assert done.returncode == 0, done.stderr
        place.clean(done.stdout + done.stderr, marker)
    place.clean(dumped(dump), GROUP)
    files = [path for path in lake.rglob("*") if path.is_file()]
    place.clean("".join(path.read_bytes().decode("latin-1") for path in files), "PAR1")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("SIDECAR_ADMIN_ACCESS__TLS_KEY_PASSWORD_FILE", secret_of("wrong-key"), "tls_key"),
        ("SIDECAR_TLS__KEY_PASSWORD_FILE", secret_of("wrong-key"), "key"),
        ("SIDECAR_ADMIN_ACCESS__TOKEN_FILE", MARK, "at least 16 characters"),
        (
            "SIDECAR_BROKER_COMMAND_CONFIG",
            f"security.protocol=SASL_SSL\nsasl.mechanism=OAUTHBEARER\nsasl.oauthbearer.client.id=x\n"
            f"sasl.oauthbearer.client.secret={MARK}\nsasl.oauthbearer.token.endpoint.url=http://x:{MARK}@127.0.0.1:1/\n",
            "no token from http://127.0.0.1:1/",
        ),
        (
            "SIDECAR_COMMAND_CONFIG",
            f"security.protocol=SSL\nssl.keystore.location={{folder}}/keys.p12\nssl.keystore.password={MARK}\n",
            "its password is another one",
        ),
        ("SIDECAR_COMMAND_CONFIG", f"security.protocol=SASL_SSL\nsasl.jaas.config={MARK}\n", "sasl"),
    ],
)
def test_a_start_that_fails_tells_none(
    place: SecuredCluster, tmp_path: Path, name: str, content: str, said: str
) -> None:
    """Nor a traceback, which would be a bug."""
    given = tmp_path / "given"
    given.write_text(content.replace("{folder}", str(place.folder)))
    env = {**place.kafka.sidecar_settings(place.kafka.nodes[0]), name: str(given), "SIDECAR_BROKER_WAIT_MS": "1500"}
    env["SIDECAR_LISTEN"] = f"127.0.0.1:{place.kafka.nodes[0].peer_port}"
    command = [sys.executable, "-m", "sidecar.cli.main", "run"]
    goes_on = name == "SIDECAR_BROKER_COMMAND_CONFIG"
    with subprocess.Popen(
        command, env={**os.environ, **env}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as started:
        try:
            told, _ = started.communicate(timeout=15)
        except subprocess.TimeoutExpired:  # clients, who have credentials of their own, go on meanwhile
            assert goes_on
            started.terminate()
            told, _ = started.communicate(timeout=30)
        else:
            assert not goes_on and started.returncode in (1, 2)
    place.clean(told, said)
    assert "Traceback" not in told


def test_a_traceback_has_no_variables(tmp_path: Path) -> None:
    """A bug in a command whose variables are secrets."""
    tokens = tmp_path / "tokens"
    tokens.write_text(TOKEN)
    bug = """
import sys, urllib.request
from sidecar.cli.main import app
def add(request, name, value):
    raise RuntimeError("a bug")
urllib.request.Request.add_unredirected_header = add
app(sys.argv[1:])
"""
    words = ["groups", "describe", GROUP, "--admin", "127.0.0.1:1", "--token-file", str(tokens)]
    done = subprocess.run([sys.executable, "-c", bug, *words], capture_output=True, text=True, timeout=60, check=False)
    assert "a bug" in done.stderr and "asking.py" in done.stderr
    assert MARK not in done.stdout + done.stderr
