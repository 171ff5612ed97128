"""The units under a systemd that runs: who holds the port after a stop, and what the sidecar sees of its process.
It needs root and namespaces."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest
import yaml

from sidecar.drill.processes import free_ports, port_open, wait_until
from tests.deploy.own_systemd import PYTHON, SEEN, OwnSystemd, missing

SERVICE, SOCKET = "kafka-group-sidecar.service", "kafka-group-sidecar.socket"
FOLDER = "deploy/systemd"
PROCESS = ("process_cpu_seconds_total", "process_resident_memory_bytes", "process_open_fds", "process_max_fds")
"""Metrics of a process that the board `fleet` shows."""


@dataclass(frozen=True)
class Host:
    """`units` is where the units are; the sidecar's broker is not there, so it waits for one."""

    systemd: OwnSystemd
    units: Path
    clients: int
    admin: int

    def metrics(self) -> str:
        def answers() -> bool:
            try:
                with urlopen(f"http://127.0.0.1:{self.admin}/metrics", timeout=2) as answer:
                    found.append(answer.read().decode())
            except (URLError, ConnectionError, TimeoutError):
                return False
            return True

        found: list[str] = []
        wait_until(f"metrics of the sidecar; its log is {self.units}/sidecar.log", answers, 60)
        return found[0]


@pytest.fixture
def host(root: Path, tmp_path: Path) -> Iterator[Host]:
    if missing():
        pytest.skip(f"not installed: {missing()}")
    clients, admin, broker = free_ports(3)
    units = tmp_path / "units"
    units.mkdir()
    settings = {
        "listen": f"127.0.0.1:{clients}",
        "broker": f"127.0.0.1:{broker}",
        "node_id": 1,
        "admin": f"127.0.0.1:{admin}",
    }
    (units / "sidecar.yaml").write_text(yaml.safe_dump(settings))
    service = (root / FOLDER / SERVICE).read_text()
    for there, here in (
        ("/opt/kafka-group-sidecar/bin/sidecar", f"{PYTHON} {SEEN}/venv/bin/sidecar"),
        ("/etc/kafka-group-sidecar/sidecar.yaml", f"{SEEN}/units/sidecar.yaml"),
    ):
        assert there in service
        service = service.replace(there, here)
    (units / SERVICE).write_text(service)
    (units / SOCKET).write_text((root / FOLDER / SOCKET).read_text().replace("=9092", f"=127.0.0.1:{clients}"))
    drop_in = units / f"{SERVICE}.d"
    drop_in.mkdir()
    site = Path(SEEN, "venv", "lib", PYTHON.name, "site-packages")
    (drop_in / "here.conf").write_text(
        f"[Service]\nEnvironment=PYTHONPATH={SEEN}/root:{site} LD_LIBRARY_PATH={SEEN}/python/lib\n"
        f"StandardError=append:{SEEN}/units/sidecar.log\n"
    )
    with OwnSystemd(units, root) as systemd:
        yield Host(systemd, units, clients, admin)


def test_a_stop_that_is_to_last_stops_the_socket_too(host: Host) -> None:
    """docs/operate/procedures.md stops both units before a broker takes its port back."""
    run = host.systemd.systemctl
    assert run("start", "--no-block", SOCKET, SERVICE).returncode == 0
    host.metrics()
    assert run("stop", SERVICE).returncode == 0
    assert host.systemd.show(SERVICE, "ActiveState") == "inactive"
    assert port_open(host.clients)  # systemd holds it, and this very connection starts the sidecar again
    host.metrics()
    assert run("stop", SOCKET, SERVICE).returncode == 0
    assert [host.systemd.show(unit, "ActiveState") for unit in (SOCKET, SERVICE)] == ["inactive", "inactive"]
    with socket.socket() as broker:
        broker.bind(("127.0.0.1", host.clients))


@pytest.mark.parametrize("subset", ["", "ProcSubset=pid"])
def test_the_sidecar_reads_what_its_process_takes(host: Host, subset: str) -> None:
    """With ProcSubset=pid there is no /proc/stat, without which prometheus_client tells nothing of the process."""
    (host.units / f"{SERVICE}.d" / "proc.conf").write_text(f"[Service]\n{subset}\n")
    assert host.systemd.systemctl("daemon-reload").returncode == 0
    assert host.systemd.systemctl("start", "--no-block", SOCKET, SERVICE).returncode == 0
    told = {line.split()[0] for line in host.metrics().splitlines()}
    assert {name for name in PROCESS if name in told} == (set() if subset else set(PROCESS))
    assert host.systemd.show(SERVICE, "User") and host.systemd.show(SERVICE, "MainPID") != "0"
