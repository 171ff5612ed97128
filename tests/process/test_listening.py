"""The settings of the listener's TLS, and what stops a start."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sidecar.coordinator.membership.peer_links import PeerListener
from sidecar.coordinator.statelog.startup_errors import StartError
from sidecar.drill.processes import free_ports
from sidecar.process.listening import listen, tls_settings
from sidecar.process.settings import Settings, SettingsError, load
from sidecar.process.sockets import listens_at
from tests.inprocess.embedded_front import EmbeddedFront
from tests.inprocess.embedded_sidecar import until
from tests.security.ground import Authority

GIVEN = {"listen": "127.0.0.1:1", "broker": "127.0.0.1:19092", "node_id": 1}


def settings_of(tls: dict[str, Any], listening: str = "127.0.0.1:1") -> Settings:
    return Settings.model_validate({**GIVEN, "listen": listening, "tls": tls})


@pytest.mark.parametrize(
    ("tls", "words"),
    [
        ("{key: k.pem}", "without tls.certificate"),
        ("{client_auth: required}", "without tls.certificate"),
        ("{certificate: c.pem, client_auth: required}", "go together"),
        ("{certificate: c.pem, ca: ca.pem}", "go together"),
        ("{certificate: c.pem, min_version: TLSv1}", "TLSv1.2"),
        ("{certificate: c.pem, handshakes: 0}", "tls.handshakes"),
    ],
)
def test_settings_that_contradict_each_other(tmp_path: Path, tls: str, words: str) -> None:
    config = tmp_path / "sidecar.yaml"
    config.write_text(f"tls: {tls}")
    with pytest.raises(SettingsError, match=words):
        load(config, GIVEN)


def test_settings_reach_the_listener() -> None:
    assert tls_settings(settings_of({})) is None
    found = tls_settings(
        settings_of(
            {"certificate": "c", "client_auth": "required", "ca": "a", "min_version": "TLSv1.3", "reload_ms": 500}
        )
    )
    assert found is not None and found.clients_from == Path("a") and found.reload_s == 0.5
    assert found.min_version is ssl.TLSVersion.TLSv1_3 and found.handshakes == 256 and found.handshake_s == 10


def test_a_start_that_cannot_succeed_says_why(tmp_path: Path) -> None:
    async def main() -> None:
        embedded = EmbeddedFront()
        papers = Authority(tmp_path).issue("sidecar")
        for tls, words in (
            ({"certificate": tmp_path / "no.pem"}, "no.pem: No such file"),
            ({"certificate": papers.certificate}, "no certificate and key"),
        ):
            with pytest.raises(StartError, match=words):
                await listen(
                    settings_of(tls), embedded.front.server, embedded.metrics, embedded.lines, embedded.tasks, []
                )
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            where = f"127.0.0.1:{taken.getsockname()[1]}"
            for given in ({}, {"certificate": papers.store}):
                with pytest.raises(StartError, match=f"cannot listen on {where}: .*ddress already in use"):
                    await listen(
                        settings_of(given, where),
                        embedded.front.server,
                        embedded.metrics,
                        embedded.lines,
                        embedded.tasks,
                        [],
                    )

    asyncio.run(main())


def test_a_signal_reads_the_files_again(tmp_path: Path) -> None:
    async def main() -> None:
        embedded = EmbeddedFront()
        (port,) = free_ports(1)
        papers = Authority(tmp_path).issue("sidecar")
        given = {"certificate": papers.certificate, "key": papers.key, "reload_ms": 0}
        reloads: list[Callable[[], None]] = []
        where = settings_of(given, f"127.0.0.1:{port}")
        listener = await listen(where, embedded.front.server, embedded.metrics, embedded.lines, embedded.tasks, reloads)
        assert embedded.lines.fields("listening")["tls"] == "TLSv1.2"
        for reload in reloads:
            reload()
        await until(lambda: embedded.metrics.value("tls_reloads", "done") == 1)
        context = ssl.create_default_context(cafile=str(papers.authority))
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        writer.close()
        listener.close()
        with pytest.raises(OSError):
            await asyncio.open_connection("127.0.0.1", port)
        await until(lambda: not embedded.front.server.sessions)
        assert not embedded.tasks.failed.done()

    asyncio.run(main())


def two_families() -> bool:
    return listens_at(":1")[0] == ["0.0.0.0", "::"]


@pytest.mark.parametrize("host", ["", "*", "[::]"])
def test_all_addresses_are_those_of_both_families(tmp_path: Path, host: str) -> None:
    """Symptom: `[::]:9092` refused clients of IPv4, and `:9092` was no address. Kafka takes both."""

    async def main() -> None:
        embedded, (port,) = EmbeddedFront(), free_ports(1)
        papers = Authority(tmp_path).issue("sidecar")
        for tls in ({}, {"certificate": papers.certificate, "key": papers.key}):
            listener = await listen(
                settings_of(tls, f"{host}:{port}"),
                embedded.front.server,
                embedded.metrics,
                embedded.lines,
                embedded.tasks,
                [],
            )
            for address in ("127.0.0.1", "::1") if two_families() else ("127.0.0.1",):
                _, writer = await asyncio.open_connection(address, port)
                assert writer.get_extra_info("peername")[0] == address
                writer.close()
            listener.close()
        peers = await PeerListener.open(listens_at(f"{host}:1")[0], 0)
        for address in ("127.0.0.1", "::1") if two_families() else ("127.0.0.1",):
            _, writer = await asyncio.open_connection(address, peers.port)
            writer.close()
        peers.close()
        await until(lambda: not embedded.front.server.sessions)

    asyncio.run(main())


def test_one_address_is_one() -> None:
    assert listens_at("127.0.0.1:5") == (["127.0.0.1"], 5)
    assert listens_at("[::1]:5") == (["::1"], 5)
    assert listens_at("0.0.0.0:5") == (["0.0.0.0"], 5)


@pytest.mark.parametrize("name", ["broker", "bootstrap"])
def test_all_addresses_are_no_place_to_go_to(name: str) -> None:
    assert load(None, {**GIVEN, "listen": "*:9092", "admin": ":9400"}).admin == ":9400"
    with pytest.raises(SettingsError, match="HOST:PORT"):
        load(None, {**GIVEN, name: ":9092"})
