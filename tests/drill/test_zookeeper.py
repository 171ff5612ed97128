"""Brokers before 3.3 run with ZooKeeper, and all others without: drills know no difference."""

from __future__ import annotations

import socket
import threading
from contextlib import closing
from pathlib import Path

import pytest

from sidecar.drill import local, zookeeper
from sidecar.drill.artifacts import _wanted
from sidecar.drill.local import LocalKafka
from sidecar.drill.processes import DrillError
from sidecar.drill.zookeeper import ZooKeeper, numbers


@pytest.fixture(autouse=True)
def no_jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "kafka_libs", lambda version: tmp_path)


def properties(version: str, folder: Path) -> dict[str, str]:
    kafka = LocalKafka(folder, version=version)
    return dict(line.split("=", 1) for line in kafka._server_properties(kafka.nodes[1]).splitlines())


@pytest.mark.parametrize("version", ["2.8.2", "3.0.2", "3.2.3"])
def test_a_broker_from_the_time_of_zookeeper(version: str, tmp_path: Path) -> None:
    p = properties(version, tmp_path)
    assert p["broker.id"] == "2" and p["zookeeper.connect"].startswith("127.0.0.1:")
    assert "process.roles" not in p and "CONTROLLER://" not in p["listeners"]


@pytest.mark.parametrize("version", ["3.3.2", "3.9.1", "4.0.0", "4.4.0", "10.0.0"])
def test_a_broker_without_it(version: str, tmp_path: Path) -> None:
    p = properties(version, tmp_path)
    assert p["process.roles"] == "broker,controller" and p["node.id"] == "2" and "CONTROLLER://" in p["listeners"]
    assert "zookeeper.connect" not in p


def test_a_version_has_numbers() -> None:
    assert numbers("4.4.0-rc1")[:3] == (4, 4, 0)
    with pytest.raises(DrillError, match="'trunk' is no version"):
        numbers("trunk")


def test_users_from_the_start_are_refused_with_zookeeper(tmp_path: Path) -> None:
    with pytest.raises(DrillError, match="no users from the start"):
        LocalKafka(tmp_path, version="2.8.2", scram={"drill": "x"}).start_brokers()


def test_what_is_fetched_makes_a_broker_write_a_log() -> None:
    logs = {v: [a for group, a, _ in _wanted(v) if group != "org.apache.kafka"] for v in ("2.8.2", "3.9.1", "4.4.0")}
    assert logs == {"2.8.2": [], "3.9.1": ["slf4j-reload4j"], "4.4.0": ["log4j-slf4j-impl"]}


def test_a_broker_comes_back_when_its_session_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it ends at its start: its id is taken."""
    told = [b"/brokers/ids/1\n\t/brokers/ids/2\n", b"/brokers/ids/2\n", b"/brokers/ids/12\n"]
    zoo = ZooKeeper(tmp_path)
    with closing(socket.create_server(("127.0.0.1", zoo.port))) as server:

        def answers() -> None:
            while told:
                with server.accept()[0] as conn:
                    assert conn.recv(4) == b"dump"
                    conn.sendall(told.pop(0))

        thread = threading.Thread(target=answers)
        thread.start()
        zoo.wait_without(1)
        assert len(told) == 1
        zoo.wait_without(1)
        thread.join()
    monkeypatch.setattr(zookeeper, "UP_S", 0.0)
    with pytest.raises(ConnectionError):
        zoo.wait_without(1)
