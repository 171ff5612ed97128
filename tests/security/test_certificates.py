"""A broker that knows clients by their certificates: a sidecar in front of it does not start, and says what to do."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from sidecar.coordinator.statelog.startup_errors import StartError
from sidecar.drill.local import LocalKafka
from sidecar.kafka.cluster import Cluster
from sidecar.kafka.properties import of
from sidecar.process.principals import knows_clients
from tests.clients.ground import ENV
from tests.inprocess.embedded_sidecar import Lines
from tests.security.ground import ADMIN, Secured

pytestmark = pytest.mark.tier("all")


@pytest.fixture(scope="module", params=["required", "requested"])
def place(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Secured, LocalKafka]]:
    ground = Secured(tmp_path_factory.mktemp("certificates"), clients="SSL", client_auth=request.param)
    kafka = ground.start(brokers=1)
    try:
        yield ground, kafka
    finally:
        kafka.stop()


def test_it_is_refused_with_two_ways_out(place: tuple[Secured, LocalKafka]) -> None:
    """The sidecar itself may have a certificate: that does not make it its clients."""
    ground, kafka = place
    node = kafka.nodes[0]
    own = ground.authority.issue("the-sidecar")
    seen = ground.java(ADMIN, "SSL") | {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(own.store)}
    env = {
        **ENV,
        **kafka.sidecar_settings(node),
        "SIDECAR_COMMAND_CONFIG": str(ground.file("own", ground.java(ADMIN, ground.internal))),
        "SIDECAR_BROKER_COMMAND_CONFIG": str(ground.file("seen", seen)),
    }
    command = [sys.executable, "-m", "sidecar.cli.main", "run"]
    done = subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 1, done.stderr
    assert f"listener CLIENTS at 127.0.0.1:{node.clients_port} takes principals from the certificates" in done.stderr
    assert f"ssl.client.auth={ground.client_auth}" in done.stderr
    assert "(a)" in done.stderr and "SASL_SSL" in done.stderr and "(b)" in done.stderr
    assert "Traceback" not in done.stderr


def log_lines_at_start(place: tuple[Secured, LocalKafka], port: int) -> list[Any]:
    """Returns the log lines of a sidecar's start with this `broker`. Raises StartError."""
    ground, kafka = place
    node, lines = kafka.nodes[0], Lines()

    async def ask() -> None:
        how = of(ground.java(ADMIN, ground.internal))
        cluster = Cluster([("127.0.0.1", node.internal_port)], "test", {}, 1 << 20, how)
        try:
            await knows_clients(cluster, node.node_id, ("127.0.0.1", port), lines)
        finally:
            cluster.close()

    asyncio.run(ask())
    return lines.lines


def test_its_other_listener_is_not(place: tuple[Secured, LocalKafka]) -> None:
    assert log_lines_at_start(place, place[1].nodes[0].internal_port) == []


def test_the_listener_is_known_by_its_advertised_address_as_well(place: tuple[Secured, LocalKafka]) -> None:
    """As where ports are mapped: here the sidecar's address is the one that the listener for clients advertises."""
    with pytest.raises(StartError, match="listener CLIENTS at 127"):
        log_lines_at_start(place, place[1].nodes[0].sidecar_port)


def test_a_mapped_port_that_nobody_knows_is_told(place: tuple[Secured, LocalKafka]) -> None:
    (line,) = log_lines_at_start(place, 1)
    level, event, fields = line
    assert (level, event) == ("warning", "not known which listener of the broker clients come to")
    assert (fields["broker"], fields["by_certificate"]) == ("127.0.0.1:1", "CLIENTS")
    assert "let broker lead to another one" in fields["remedy"]
