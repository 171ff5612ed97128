"""The units: systemd itself verifies them and judges their hardening. Without systemd-analyze these tests fail;
SIDECAR_WITHOUT_SYSTEMD=1 leaves them out. What the sidecar does with the socket: tests/process/test_systemd.py."""

from __future__ import annotations

import configparser
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from sidecar.cli.main import app
from sidecar.process.settings import Settings
from sidecar.process.systemd import CLIENTS

UNIT = "deploy/systemd/kafka-group-sidecar"
MOST_EXPOSED = 1.5
"""systemd-analyze gives 0 to what can do nothing, and 10 to what may do everything. A server has 1.4 at best: it needs
sockets of the Internet, and logs."""


class Unit(configparser.RawConfigParser):
    """A unit: names keep their case, and of those that are repeated the last counts."""

    def __init__(self, file: Path) -> None:
        super().__init__(strict=False, comment_prefixes=("#",), interpolation=None)
        self.read(file)

    def optionxform(self, optionstr: str) -> str:
        return optionstr


@pytest.fixture(scope="module")
def analyze() -> str:
    if os.environ.get("SIDECAR_WITHOUT_SYSTEMD") == "1":
        pytest.skip("SIDECAR_WITHOUT_SYSTEMD=1")
    program = shutil.which("systemd-analyze")
    assert program, "no systemd-analyze: install systemd, or set SIDECAR_WITHOUT_SYSTEMD=1"
    return program


@pytest.fixture
def units(root: Path, tmp_path: Path) -> Path:
    """Both units, with a program that is there on this machine."""
    for kind in ("service", "socket"):
        text = (root / f"{UNIT}.{kind}").read_text()
        (tmp_path / f"kafka-group-sidecar.{kind}").write_text(
            text.replace("/opt/kafka-group-sidecar/bin/sidecar", sys.executable)
        )
    return tmp_path


@pytest.mark.parametrize("kind", ["service", "socket"])
def test_systemd_verifies_it(analyze: str, units: Path, kind: str) -> None:
    file = units / f"kafka-group-sidecar.{kind}"
    done = subprocess.run([analyze, "verify", "--man=no", str(file)], capture_output=True, text=True, check=False)
    said = [line for line in done.stderr.splitlines() if "kafka-group-sidecar" in line]
    assert done.returncode == 0 and not said, done.stderr


def test_systemd_would_notice_a_mistake(analyze: str, units: Path) -> None:
    file = units / "kafka-group-sidecar.service"
    file.write_text(file.read_text().replace("Type=notify", "Type=notified"))
    done = subprocess.run([analyze, "verify", "--man=no", str(file)], capture_output=True, text=True, check=False)
    assert "notified" in done.stderr


def test_it_may_do_little(analyze: str, root: Path) -> None:
    command = [analyze, "security", "--offline=true", "--json=short", "--no-pager", f"{root / UNIT}.service"]
    limit = ["--threshold", str(int(MOST_EXPOSED * 10))]
    done = subprocess.run([*command, *limit], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(json.loads(done.stdout)) > 50
    strict = subprocess.run([*command, "--threshold", "1"], capture_output=True, text=True, check=False)
    assert strict.returncode != 0  # the threshold is looked at


def test_service_and_sidecar_mean_the_same(root: Path) -> None:
    service, sock = Unit(root / f"{UNIT}.service"), Unit(root / f"{UNIT}.socket")
    assert sock["Socket"]["FileDescriptorName"] == CLIENTS
    assert service["Unit"]["Requires"] == "kafka-group-sidecar.socket"
    assert service["Service"]["Type"] == "notify"
    program, *words = service["Service"]["ExecStart"].split()
    assert Path(program).name == "sidecar"
    command = typer.main.get_command(app)
    command.commands[words[0]].make_context(words[0], words[1:])  # type: ignore[attr-defined]
    limits = Settings.model_fields["limits"].annotation
    assert limits is not None
    assert int(service["Service"]["LimitNOFILE"]) > 2 * limits.model_fields["connections"].default
    assert int(service["Service"]["TimeoutStopSec"]) * 1000 > Settings.model_fields["drain_ms"].default
    assert int(sock["Socket"]["Backlog"]) == limits.model_fields["accept_backlog"].default
