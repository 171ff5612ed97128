"""`sidecar health` and `sidecar groups describe` at an endpoint with TLS and a token."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from sidecar.cli.asking import WHERE, Asking
from sidecar.cli.doctor.facts import about
from sidecar.cli.doctor.model import Unknown
from sidecar.cli.doctor.refused import WAIT
from sidecar.cli.exits import Code
from sidecar.cli.groups_show import _live
from sidecar.cli.main import app
from tests.page.browser import Served
from tests.process.admin_ground import OTHER, TOKEN, Ground, given
from tests.process.test_admin_access import Papers


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Served, Path]]:
    papers, tokens = Papers(tmp_path), tmp_path / "tokens"
    papers.issue()
    papers.authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    tokens.write_text(f"# for these tests\n{TOKEN}\n")
    settings = given(tls_certificate=papers.certificate, tls_key=papers.key, token_file=tokens)
    with Served(Ground(settings)) as running:
        yield running, tmp_path


def test_health_by_https(served: tuple[Served, Path]) -> None:
    running, folder = served
    where = f"https://127.0.0.1:{running.ground.port}"
    ready = CliRunner().invoke(app, ["health", where, "--ca", str(folder / "ca.pem")])
    assert (ready.exit_code, ready.output) == (0, "ready\n")
    refused = CliRunner().invoke(app, ["health", where])
    assert refused.exit_code == 3
    assert "the certificate is not accepted: unable to get local issuer certificate" in refused.output
    running.ground.problems.append("no owner is known yet")
    told = CliRunner().invoke(app, ["health", where, "--ca", str(folder / "ca.pem")])
    assert (told.exit_code, told.output) == (1, f"no owner is known yet\n{WAIT}\n")
    running.ground.problems[:] = [wrong := "node id 9 is not among the brokers [1]. Check --node-id and restart"]
    told = CliRunner().invoke(app, ["health", where, "--ca", str(folder / "ca.pem")])
    assert (told.exit_code, told.output) == (1, f"{wrong}\n")  # to wait does not heal it


def test_health_names_what_brokers_refuse_before_what_follows_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    denial = {"kind": "authorization", "problem": "the user lacks Read of topic s", "remedy": "give it", "at_ms": 0}
    body = {"ready": False, "problems": ["no owner is known yet"], "denials": [{**denial, "times": 3}]}
    monkeypatch.setattr(Asking, "get", lambda *args: body)
    told = CliRunner().invoke(app, ["health", "h:1"])
    assert told.exit_code == 1
    assert -1 < told.output.find("lacks Read of topic s") < told.output.find("no owner is known yet")
    assert WAIT not in told.output


def test_describe_with_a_token(served: tuple[Served, Path]) -> None:
    running, folder = served
    where = f"https://127.0.0.1:{running.ground.port}"
    words = ["groups", "describe", "g", "--ca", str(folder / "ca.pem"), "--admin", where]
    without = CliRunner().invoke(app, words)
    assert without.exit_code != 0
    assert "a token is wanted" in without.output
    done = CliRunner().invoke(app, [*words, "--token-file", str(folder / "tokens")])
    assert (done.exit_code, done.output.splitlines()[0]) == (0, "group: g")


def test_a_token_is_not_sent_in_the_clear(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(OTHER)
    words = ["groups", "describe", "g", "--admin", "example.invalid:9400", "--token-file", str(path)]
    done = CliRunner().invoke(app, words)
    assert done.exit_code != 0
    assert "by https only" in done.output and OTHER not in done.output


def test_a_sidecar_without_a_coordinator_does_not_say_that_a_group_is_not_there() -> None:
    """Symptom: while a coordinator was being started, and always at a front alone, there was no such group."""
    ground = Ground(given(), views=False)
    ground.problems.append("starting: broker or topics not there yet")
    with Served(ground) as running:
        address = f"127.0.0.1:{running.ground.port}"
        done = CliRunner().invoke(app, ["groups", "describe", "g", "--admin", address])
    assert (done.exit_code, done.stdout) == (Code.UNREACHED, "")
    assert done.stderr == f"{address}: {ground.problems[0]}\nAsk another sidecar, or try again.\n"


def http(body: str, status: str = "200 OK") -> bytes:
    """Returns an answer with this body."""
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return (head + body).encode()


FOREIGN = {
    "an alert of TLS": b"\x15\x03\x03\x00\x02\x02\x46",
    "SSH": b"SSH-2.0-x\r\n",
    "nothing": b"",
    "half a body": b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{",
    "no such path": http('{"error_code": 404, "message": "x"}', "404 Not Found"),
    "a refusal": http("[]", "401 Unauthorized"),
    "another name": http("{}", "421 Misdirected Request"),
    "a list": http("[]"),
    "a number": http("7"),
    "a page": http("<html>"),
    "a deep list": http("[" * 100_000),
    "other fields": http('{"status": "UP", "ready": "yes", "group": null}'),
    "no group": http('{"problem": "no such group"}', "404 Not Found"),
}
"""Answers of services that are no sidecars."""


@pytest.fixture(params=FOREIGN)
def foreign(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """Yields the kind and the address of a service that is no sidecar."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection, suppress(OSError):
                    connection.recv(4096)
                    connection.sendall(FOREIGN[request.param])

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield request.param, f"127.0.0.1:{listener.getsockname()[1]}"
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


def test_another_service_is_no_sidecar(foreign: tuple[str, str]) -> None:
    """Symptom: a service that is no sidecar was a bug of this program, or a group without members."""
    kind, address = foreign
    for words in (["health", address], ["groups", "describe", "g", "--admin", address]):
        done = CliRunner().invoke(app, words)
        expected = Code.FINDINGS if kind == "no group" and words[0] == "groups" else Code.UNREACHED
        assert done.exit_code == expected, (words[0], done.output, done.exception)
        assert done.stdout == ""
    assert isinstance(about(address, Asking()), Unknown), "of `doctor`"
    assert _live("g", [address], Asking()) is None, "of `groups explain`"


def test_the_commands_that_ask_sidecars_are_those_above() -> None:
    root: Any = typer.main.get_command(app)
    asks = {
        name
        for group in (root, root.commands["groups"])
        for name, command in group.commands.items()
        if any(p.metavar == WHERE for p in command.params)
    }
    assert asks == {"health", "doctor", "describe", "explain"}
