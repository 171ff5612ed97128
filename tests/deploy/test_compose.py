"""docker-compose.yml without an engine: its shape, and that it says what the demo starts with."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from typer.testing import CliRunner

from sidecar.cli.main import app
from sidecar.drill.local import LocalKafka
from sidecar.drill.scenario import SIDECAR_ENV
from sidecar.process.sections import split
from sidecar.process.settings import Settings, load
from tests.process.admin_ground import Ground, run

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
    "read_only",
    "cap_drop",
    "security_opt",
    "user",
    "tmpfs",
}
ROOTLESS = re.compile(r"[1-9][0-9]*(:[1-9][0-9]*)?")
PINNED = re.compile(r"[a-z/-]+:v?[0-9]+\.[0-9]+\.[0-9]+(@sha256:[0-9a-f]{64})?")


@pytest.fixture(scope="module")
def compose(root: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((root / "docker-compose.yml").read_text())
    return found


def test_shape(compose: dict[str, Any]) -> None:
    assert {k for k in compose if not k.startswith("x-")} == {"name", "services", "volumes"}
    services = compose["services"]
    nodes = {f"{kind}-{n}" for kind in ("broker", "sidecar") for n in (1, 2, 3)}
    assert set(services) == nodes | {"topic", "audit", "prometheus", "grafana"}
    for name, s in services.items():
        assert set(s) <= SERVICE_KEYS, name
        assert s["restart"] in ("unless-stopped", "on-failure")
        assert all(isinstance(v, str) for v in s.get("environment", {}).values()), name
        assert set(s.get("depends_on", ())) <= set(services)
        if name != "topic":
            assert s["healthcheck"]["test"]


def test_every_container_is_pinned_and_can_do_little(compose: dict[str, Any]) -> None:
    for name, s in compose["services"].items():
        assert PINNED.fullmatch(re.sub(r"\$\{KAFKA:-([^}]+)\}", r"\1", s["image"])), name
        assert s["read_only"] is True and s["cap_drop"] == ["ALL"], name
        assert s["security_opt"] == ["no-new-privileges:true"], name
        assert ROOTLESS.fullmatch(s["user"]), name
        if "kafka" in s["image"] and "tmpfs" in s:
            assert "/tmp:exec" in s["tmpfs"], (
                f"{name}: Java loads native libraries from there, and Docker's default is noexec"
            )
        for mount in s.get("volumes", ()):
            source = mount.partition(":")[0]
            if source.startswith("."):
                assert mount.endswith(":ro"), (name, mount)
            elif ":" in mount:
                assert source in compose["volumes"], (name, mount)


def test_the_versions_of_the_images_built_here_are_that_of_the_package(compose: dict[str, Any], root: Path) -> None:
    version = tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"]
    built = {s["image"] for s in compose["services"].values() if "build" in s}
    assert built == {f"kafka-group-sidecar:{version}", f"kafka-group-sidecar-audit:{version}"}


@pytest.mark.parametrize("file", ["Dockerfile", "deploy/audit/Dockerfile"])
def test_images_are_built_of_what_is_locked_and_run_as_a_user_with_a_health_check(root: Path, file: str) -> None:
    text = (root / file).read_text()
    stages = text.split("\nFROM ")[1:]
    assert re.search(r"^ARG PYTHON=3\.\d+\.\d+-slim-\w+$", text, re.M)
    assert [s.split()[0] for s in stages] == ["python:${PYTHON}"] * 2
    assert "USER 10001" in stages[-1] and "HEALTHCHECK" in stages[-1] and "gcc" not in stages[-1]
    for line in re.findall(r"pip install[^\n]*", text):
        assert "--require-hashes" in line or "--no-deps" in line, line
    for lock in re.findall(r"-r (\S+)", text):
        assert (root / lock).is_file() and lock.endswith(".lock")


@pytest.mark.skipif(shutil.which("docker") is None, reason="no docker client to parse it with")
def test_docker_itself_parses_it(root: Path) -> None:
    if subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no compose plugin")
    done = subprocess.run(["docker", "compose", "config", "-q"], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def loaded(env: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Settings:
    for name in [k for k in os.environ if k.startswith("SIDECAR_")]:
        monkeypatch.delenv(name)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    return load(None, {})  # refuses a name or a value that the sidecar does not know


@pytest.mark.parametrize("n", [1, 2, 3])
def test_each_sidecar_stands_on_the_advertised_address_of_its_broker(
    compose: dict[str, Any], n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = compose["services"][f"broker-{n}"]["environment"]
    env = compose["services"][f"sidecar-{n}"]["environment"]
    settings = loaded(env, monkeypatch)
    advertised = dict(x.split("://") for x in broker["KAFKA_ADVERTISED_LISTENERS"].split(","))
    bound = dict(x.split("://") for x in broker["KAFKA_LISTENERS"].split(","))
    assert advertised["CLIENTS"] == f"sidecar-{n}:{split(settings.listen)[1]}"
    assert settings.broker == f"broker-{n}{bound['CLIENTS']}"
    assert str(settings.node_id) == broker["KAFKA_NODE_ID"]
    assert advertised["INTERNAL"] in settings.bootstrap.split(",")
    ports = compose["services"][f"sidecar-{n}"]["ports"]
    assert f"{split(settings.listen)[1]}:{split(settings.listen)[1]}" in ports


def published(service: dict[str, Any]) -> dict[int, tuple[str, int]]:
    """Port of the container -> where the host has it."""
    found = {}
    for text in service.get("ports", ()):
        where, _, inside = str(text).rpartition(":")
        host, _, port = where.rpartition(":")
        found[int(inside)] = (host, int(port))
    return found


def test_what_is_for_people_is_published_on_loopback_only(compose: dict[str, Any]) -> None:
    kafka = {19091, 19092, 19093}
    hosts = {p: at for s in compose["services"].values() for p, at in published(s).items() if p not in kafka}
    assert set(hosts) == {9400, 9410, 9090, 3000}
    assert {host for host, _ in hosts.values()} == {"127.0.0.1"}


def test_page_scrapes_and_health_check_have_names_that_count(
    compose: dict[str, Any], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An admin endpoint with the settings of the containers, but a port of its own, is asked as they are asked."""
    settings = loaded(compose["services"]["sidecar-1"]["environment"], monkeypatch)
    host, inside = split(settings.admin or "")
    ground = Ground(settings.admin_access, host=host)
    scraped = yaml.safe_load((root / "deploy/prometheus/prometheus.yml").read_text())["scrape_configs"][0]
    targets = scraped["static_configs"][0]["targets"]
    pages = [f"localhost:{published(compose['services'][f'sidecar-{n}'])[inside][1]}" for n in (1, 2, 3)]
    program, word, asked = compose["services"]["sidecar-1"]["healthcheck"]["test"][1:]
    assert (program, asked) == ("sidecar", f"127.0.0.1:{inside}")

    async def test(g: Ground) -> None:
        for target in targets:
            assert await g.status("/metrics", headers={"Host": target}) == 200
        for page in pages:
            status, _, text = await g.get("/", headers={"Host": page})
            assert status == 200 and "<html" in text
            assert await g.status("/api/v1/overview", headers={"Host": page}) == 200
        assert await g.status("/api/v1/overview", headers={"Host": "elsewhere.example.org"}) == 421
        done = await asyncio.to_thread(CliRunner().invoke, app, [word, f"127.0.0.1:{g.port}"])
        assert done.exit_code == 0, done.output

    run(ground, test)
    assert ground.lines.fields("the admin endpoint is open to the network")["without"] == "a token and TLS"


def test_the_token_that_the_file_tells_of(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (root / "docker-compose.yml").read_text()
    copy = tmp_path / "docker-compose.yml"
    copy.write_text(text)
    (command,) = re.findall(r"sed -i '.+' docker-compose\.yml", text)
    subprocess.run(["sh", "-c", command], cwd=tmp_path, check=True)
    changed = zip(text.splitlines(), copy.read_text().splitlines(), strict=True)
    assert len([old for old, new in changed if old != new]) == 4
    guarded = yaml.safe_load(copy.read_text())
    (secret,) = guarded["secrets"]
    access = loaded(guarded["services"]["sidecar-2"]["environment"], monkeypatch).admin_access
    assert access.token_file == Path("/run/secrets", secret) and access.metrics_open
    for n in (1, 2, 3):
        assert guarded["services"][f"sidecar-{n}"]["secrets"] == [secret]
    assert f"> {Path(guarded['secrets'][secret]['file']).name} " in text
    assert f"/{secret}" in (root / ".gitignore").read_text().split()
    assert secret in (root / ".dockerignore").read_text().split()


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
    for line in (text + (root / "deploy/audit/Dockerfile").read_text()).splitlines():
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


def test_prometheus_and_grafana_find_what_they_read(compose: dict[str, Any], root: Path) -> None:
    services = compose["services"]
    scraped = yaml.safe_load((root / "deploy/prometheus/prometheus.yml").read_text())
    for rules in scraped["rule_files"]:
        assert (root / "deploy/prometheus" / rules).is_file()
    targets = {t for job in scraped["scrape_configs"] for group in job["static_configs"] for t in group["targets"]}
    assert targets == {f"sidecar-{n}:9400" for n in (1, 2, 3)} | {"audit:9410"}
    mounts = dict(m.split(":")[:2] for m in services["grafana"]["volumes"] + services["prometheus"]["volumes"])
    for source in (m for m in mounts if m.startswith("./")):
        assert any((root / source).iterdir()), source
    assert mounts["./deploy/prometheus"] == "/etc/prometheus"
    assert mounts["./deploy/grafana/provisioning"] == "/etc/grafana/provisioning"
    folder = root / "deploy/grafana/provisioning"
    for file in (folder / "dashboards").glob("*.yml"):
        for provider in yaml.safe_load(file.read_text())["providers"]:
            assert mounts["./deploy/grafana/dashboards"] == provider["options"]["path"]
    sources = [yaml.safe_load(f.read_text()) for f in (folder / "datasources").glob("*.yml")]
    assert [d["url"] for s in sources for d in s["datasources"]] == ["http://prometheus:9090"]


def _brokers(compose: dict[str, Any]) -> list[dict[str, str]]:
    return [s["environment"] for name, s in compose["services"].items() if name.startswith("broker")]


def test_the_examples_of_the_audit_call_commands_that_there_are(root: Path) -> None:
    command = typer.main.get_command(app).commands["audit"]  # type: ignore[attr-defined]
    said = (root / "deploy/audit/airflow_dag.py").read_text().replace("{SOURCE}", "kafka://h:1").replace("{LAKE}", "/l")
    lines = re.findall(r'sidecar audit ((?:(?! 2>)[^"\n])+)', said + (root / "deploy/audit/crontab").read_text())
    assert len(lines) >= 4
    for line in lines:
        name, *words = line.split()
        command.commands[name].make_context(name, words)
