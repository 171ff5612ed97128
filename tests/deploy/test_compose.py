"""docker-compose.yml without an engine: its shape, and that it says what the demo starts with."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from sidecar.cli.main import app
from sidecar.drill.local import LocalKafka
from sidecar.drill.scenario import SIDECAR_ENV
from sidecar.process.sections import split
from sidecar.process.settings import load

SERVICE_KEYS = {
    "image",
    "build",
    "restart",
    "healthcheck",
    "hostname",
    "environment",
    "depends_on",
    "ports",
    "command",
    "stop_grace_period",
    "volumes",
}


@pytest.fixture(scope="module")
def compose(root: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((root / "docker-compose.yml").read_text())
    return found


def test_shape(compose: dict[str, Any]) -> None:
    assert {k for k in compose if not k.startswith("x-")} == {"name", "services", "volumes"}
    services = compose["services"]
    assert set(services) == {f"{kind}-{n}" for kind in ("broker", "sidecar") for n in (1, 2, 3)} | {"topic", "audit"}
    for name, s in services.items():
        assert set(s) <= SERVICE_KEYS, name
        assert s["restart"] in ("unless-stopped", "on-failure")
        assert all(isinstance(v, str) for v in s.get("environment", {}).values()), name
        assert set(s.get("depends_on", ())) <= set(services)
        if name != "topic":
            assert s["healthcheck"]["test"]


@pytest.mark.skipif(shutil.which("docker") is None, reason="no docker client to parse it with")
def test_docker_itself_parses_it(root: Path) -> None:
    if subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no compose plugin")
    done = subprocess.run(["docker", "compose", "config", "-q"], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("n", [1, 2, 3])
def test_each_sidecar_stands_on_the_advertised_address_of_its_broker(
    compose: dict[str, Any], n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = compose["services"][f"broker-{n}"]["environment"]
    env = compose["services"][f"sidecar-{n}"]["environment"]
    for name in [k for k in os.environ if k.startswith("SIDECAR_")]:
        monkeypatch.delenv(name)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    settings = load(None, {})  # refuses a name or a value that the sidecar does not know
    advertised = dict(x.split("://") for x in broker["KAFKA_ADVERTISED_LISTENERS"].split(","))
    bound = dict(x.split("://") for x in broker["KAFKA_LISTENERS"].split(","))
    assert advertised["CLIENTS"] == f"sidecar-{n}:{split(settings.listen)[1]}"
    assert settings.broker == f"broker-{n}{bound['CLIENTS']}"
    assert str(settings.node_id) == broker["KAFKA_NODE_ID"]
    assert advertised["INTERNAL"] in settings.bootstrap.split(",")
    ports = compose["services"][f"sidecar-{n}"]["ports"]
    assert f"{split(settings.listen)[1]}:{split(settings.listen)[1]}" in ports


def test_the_same_settings_as_the_demo(compose: dict[str, Any], tmp_path: Path) -> None:
    demo = LocalKafka(tmp_path, sidecar_env=SIDECAR_ENV)
    names = set(demo.sidecar_settings(demo.nodes[0]))
    env = compose["services"]["sidecar-1"]["environment"]
    assert set(env) == names
    for name, value in SIDECAR_ENV.items():
        assert env[name] == value


def test_the_image_runs_the_command_that_pip_installs(root: Path) -> None:
    text = (root / "Dockerfile").read_text()
    assert 'ENTRYPOINT ["sidecar"]' in text and 'CMD ["run"]' in text
    for line in text.splitlines():
        if line.startswith("COPY") and "--from" not in line:
            for source in line.split()[1:-1]:
                assert (root / source).exists(), source


def test_the_audit_is_started_with_options_that_it_knows(compose: dict[str, Any], root: Path) -> None:
    audit = compose["services"]["audit"]
    assert (root / audit["build"]["dockerfile"]).is_file()
    command = typer.main.get_command(app).commands["audit"].commands[audit["command"][0]]  # type: ignore[attr-defined]
    parsed = command.make_context("stream", list(audit["command"][1:])).params
    internal = {e["KAFKA_ADVERTISED_LISTENERS"].split("INTERNAL://")[1] for e in _brokers(compose)}
    assert set(parsed["source"].removeprefix("kafka://").split(",")) == internal
    volume, _, folder = audit["volumes"][0].partition(":")
    assert parsed["lake"] == folder and volume in compose["volumes"]
    assert parsed["metrics"].split(":")[1] in audit["ports"][0]


def _brokers(compose: dict[str, Any]) -> list[dict[str, str]]:
    return [s["environment"] for name, s in compose["services"].items() if name.startswith("broker")]


def test_the_examples_of_the_audit_call_commands_that_there_are(root: Path) -> None:
    command = typer.main.get_command(app).commands["audit"]  # type: ignore[attr-defined]
    said = (root / "deploy/audit/airflow_dag.py").read_text().replace("{SOURCE}", "kafka://h:1").replace("{LAKE}", "/l")
    lines = re.findall(r'sidecar audit ([^"\n]+)', said + (root / "deploy/audit/crontab").read_text())
    assert len(lines) >= 4
    for line in lines:
        name, *words = line.split()
        command.commands[name].make_context(name, words)
