"""The units: systemd itself verifies them and judges their hardening. Without systemd-analyze these tests fail;
What the sidecar does with the socket: tests/process/test_systemd.py."""

from __future__ import annotations

import configparser
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer
import yaml

from sidecar.cli.main import app
from sidecar.process.admin_access import is_loopback
from sidecar.process.setting_kinds import split
from sidecar.process.settings import Settings, load
from sidecar.process.sockets import CLIENTS

UNIT = "deploy/systemd/kafka-group-sidecar"
DROP_IN = Path(f"{UNIT}.service.d")
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
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("not installed: systemd-analyze")
    return program


@pytest.fixture
def units(root: Path, tmp_path: Path) -> Path:
    """Both units, with a program that is there on this machine."""
    for kind in ("service", "socket"):
        text = (root / f"{UNIT}.{kind}").read_text()
        (tmp_path / f"kafka-group-sidecar.{kind}").write_text(
            text.replace("/opt/kafka-group-sidecar/bin/sidecar", sys.executable)
        )
    drop_in = tmp_path / DROP_IN.name
    drop_in.mkdir()
    for file in (root / DROP_IN).iterdir():
        (drop_in / file.name).write_text(file.read_text())
    return tmp_path


def verify(analyze: str, file: Path) -> tuple[int, list[str]]:
    """Returns exit code and complaints of `systemd-analyze verify` for a unit and its drop-ins."""
    done = subprocess.run([analyze, "verify", "--man=no", str(file)], capture_output=True, text=True, check=False)
    return done.returncode, [line for line in done.stderr.splitlines() if "kafka-group-sidecar" in line]


@pytest.mark.parametrize("kind", ["service", "socket"])
def test_systemd_verifies_it(analyze: str, units: Path, kind: str) -> None:
    file = units / f"kafka-group-sidecar.{kind}"
    assert verify(analyze, file) == (0, [])


def test_systemd_would_notice_a_mistake(analyze: str, units: Path) -> None:
    file = units / "kafka-group-sidecar.service"
    file.write_text(file.read_text().replace("Type=notify", "Type=notified"))
    assert "notified" in "".join(verify(analyze, file)[1])


@pytest.mark.parametrize(
    ("right", "wrong"), [("listener.key:/etc", "listener/key:/etc"), ("LoadCredential=", "LoadCredentials=")]
)
def test_systemd_would_notice_a_mistake_in_the_credentials(analyze: str, units: Path, right: str, wrong: str) -> None:
    file = units / DROP_IN.name / "credentials.conf"
    assert right in file.read_text()
    file.write_text(file.read_text().replace(right, wrong))
    assert "credentials.conf" in "".join(verify(analyze, units / "kafka-group-sidecar.service")[1])


def test_it_may_do_little(analyze: str, root: Path) -> None:
    command = [analyze, "security", "--offline=true", "--json=short", "--no-pager", f"{root / UNIT}.service"]
    limit = ["--threshold", str(int(MOST_EXPOSED * 10))]
    done = subprocess.run([*command, *limit], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(json.loads(done.stdout)) > 50
    strict = subprocess.run([*command, "--threshold", "1"], capture_output=True, text=True, check=False)
    assert strict.returncode != 0  # the threshold is looked at


def assigned(file: Path, name: str) -> list[str]:
    """Each value of a setting that may be repeated."""
    return re.findall(rf"^{name}=(.+)$", file.read_text(), re.M)


@pytest.fixture
def settings(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """The settings of docs/start.md, as the unit runs them: its credentials are in `tmp_path`."""
    for name in [k for k in os.environ if k.startswith("SIDECAR_")]:
        monkeypatch.delenv(name)
    drop_in = root / DROP_IN / "credentials.conf"
    for credential in assigned(drop_in, "LoadCredential"):
        (tmp_path / credential.partition(":")[0]).write_text(f"from {credential.partition(':')[2]}")
    for line in assigned(drop_in, "Environment"):
        name, _, value = line.replace("%d", str(tmp_path)).partition("=")
        monkeypatch.setenv(name, value)
    of_page = re.findall(r"```yaml\n(.+?)```", (root / "docs/start.md").read_text(), re.S)
    assert len(of_page) == 1
    config = tmp_path / "sidecar.yaml"
    config.write_text(of_page[0])
    found = load(config, {})
    config.unlink()
    return found


def test_what_only_root_can_read_comes_as_credentials(settings: Settings, tmp_path: Path) -> None:
    named = (settings.command_config, settings.tls.key)
    found = [p.read_text() for p in named if p is not None]
    assert found == [f"from /etc/kafka-group-sidecar/{name}" for name in ("client.properties", "listener.key")]
    assert sorted(tmp_path.iterdir()) == sorted(p for p in named if p is not None)


def test_the_admin_endpoint_is_for_this_host(settings: Settings) -> None:
    assert is_loopback(split(settings.admin or "")[0])


def test_the_broker_comes_first_where_memory_runs_out(root: Path) -> None:
    service = Unit(root / f"{UNIT}.service")["Service"]
    assert service["MemoryHigh"] == "896M" and service["MemoryMax"] == "1G" and service["Restart"] == "always"
    assert int(service["OOMScoreAdjust"]) > 0
    values = yaml.safe_load((root / "deploy/helm/kafka-group-sidecar/values.yaml").read_text())
    sidecar, broker = (values[name]["resources"] for name in ("sidecar", "brokers"))
    assert sidecar["limits"]["memory"] == "1Gi"
    assert sidecar["requests"]["memory"] == "256Mi" and broker["requests"]["memory"] == "2Gi", (
        "the kubelet has whoever asked for less of it ended first"
    )


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
