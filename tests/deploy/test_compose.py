"""docker-compose.yml without an engine: its shape, and that it says what the demo starts with."""

from __future__ import annotations

import asyncio
import os
import re
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
from sidecar.process.setting_kinds import split
from sidecar.process.settings import Settings, load
from tests.process.admin_ground import Ground, run
from tools.deploy_tools import ToolError, load_compose

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
    "mem_limit",
    "memswap_limit",
    "oom_score_adj",
}
ROOTLESS = re.compile(r"[1-9][0-9]*(:[1-9][0-9]*)?")
PINNED = re.compile(r"[a-z./-]+(:v?[0-9]+\.[0-9]+\.[0-9]+)?(@sha256:[0-9a-f]{64})?")
"""An exact tag, a digest, or both; see pinned()."""
go = pytest.mark.needs("go")


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


def pinned(image: str) -> bool:
    found = PINNED.fullmatch(image)
    return found is not None and (found[1] or found[2]) is not None


def test_a_floating_tag_is_not_pinned() -> None:
    digest = f"@sha256:{'0' * 64}"
    for image in ("a/b:v1.2.3", "a/b" + digest, "a/b:1.2.3" + digest, "registry.example.org/a/b:1.2.3"):
        assert pinned(image), image
    for image in ("a/b", "a/b:latest", "a/b:1", "a/b:1.2", "a/b:v1", "a/b@sha256:00"):
        assert not pinned(image), image


def test_every_container_is_pinned_and_can_do_little(compose: dict[str, Any]) -> None:
    for name, s in compose["services"].items():
        assert pinned(re.sub(r"\$\{KAFKA:-([^}]+)\}", r"\1", s["image"])), name
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


@go
@pytest.mark.timeout(600)
def test_the_library_of_docker_compose_loads_it(compose: dict[str, Any], root: Path, tmp_path: Path) -> None:
    """The library checks the file against the specification, merges and interpolates, like `docker compose config`."""
    loaded = load_compose(root / "docker-compose.yml")
    assert set(loaded["services"]) == set(compose["services"])
    for name in ("broker-1", "sidecar-1"):
        assert loaded["services"][name]["healthcheck"]["start_interval"] in ("2s", "5s")
    assert loaded["services"]["broker-2"]["volumes"][0]["source"] == "broker-2"
    text = (root / "docker-compose.yml").read_text()
    for right, wrong in (("start_interval", "start_intervals"), ("  broker-2:\n  broker-3:", ""), ("15s", "often")):
        assert right in text
        file = tmp_path / "docker-compose.yml"
        file.write_text(text.replace(right, wrong))
        with pytest.raises(ToolError):
            load_compose(file)


def test_what_a_service_keeps_is_in_a_named_volume_of_its_own(compose: dict[str, Any]) -> None:
    """After `docker compose down` an anonymous one is another one: brokers without the topics that the audit knows."""
    services = compose["services"]
    kept: dict[str, str] = {}
    for name, s in services.items():
        for mount in s.get("volumes", ()):
            source, _, rest = mount.partition(":")
            assert rest, f"{name}: {mount} is anonymous"
            if not source.startswith("."):
                assert kept.setdefault(source, name) == name, f"{source} belongs to two services"
    assert set(kept) == set(compose["volumes"])
    assert all(kept[f"broker-{n}"] == f"broker-{n}" for n in (1, 2, 3))
    keeps = {"prometheus": "/prometheus", "grafana": "/var/lib/grafana", "audit": "/lake"}
    keeps |= {name: s["environment"]["KAFKA_LOG_DIRS"] for name, s in services.items() if name.startswith("broker")}
    for name, folder in keeps.items():
        assert folder in [mount.rpartition(":")[2] for mount in services[name]["volumes"]], name


def seconds(text: str) -> int:
    assert text.endswith("s")
    return int(text[:-1])


def test_health_checks_are_rare_once_a_service_is_healthy(compose: dict[str, Any]) -> None:
    """A check of a sidecar takes 0.2 to 0.3 s of a processor, one of a broker starts a JVM."""
    for name, s in compose["services"].items():
        if name.startswith(("sidecar", "broker")):
            check = s["healthcheck"]
            assert seconds(check["interval"]) >= 15, name
            assert seconds(check["start_interval"]) <= 5 < 60 < seconds(check["start_period"]), name


def test_what_git_does_not_have_stays_out_of_the_images(root: Path) -> None:
    """A kernel built here would be in the image besides, and a changed document would build it anew."""
    ignored = set((root / ".dockerignore").read_text().split())
    assert {".venv", ".git", "out", "build", "dist", "docs", "tests", "**/*.so", "**/__pycache__"} <= ignored
    texts = (root / "Dockerfile").read_text() + (root / "deploy/audit/Dockerfile").read_text()
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", texts, re.M)
    assert {name for line in copied for name in line.split()} & ignored == set()


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
    port = split(settings.listen)[1]
    assert f"${{PUBLISH:-127.0.0.1}}:{port}:{port}" in ports


def published(service: dict[str, Any]) -> dict[int, tuple[str, int]]:
    """Port of the container -> where the host has it."""
    found = {}
    for text in service.get("ports", ()):
        text = re.sub(r"\$\{\w+:-([^}]+)\}", r"\1", str(text))
        where, _, inside = text.rpartition(":")
        host, _, port = where.rpartition(":")
        found[int(inside)] = (host, int(port))
    return found


def test_the_broker_comes_first_where_memory_runs_out(compose: dict[str, Any]) -> None:
    for name, s in compose["services"].items():
        assert (s.get("mem_limit"), s.get("oom_score_adj", 0) > 0) == (
            ("1g", True) if name.startswith("sidecar") else (None, False)
        ), name


def test_everything_is_published_on_loopback_unless_told_otherwise(compose: dict[str, Any]) -> None:
    hosts = {p: at for s in compose["services"].values() for p, at in published(s).items()}
    assert set(hosts) == {9400, 9410, 9090, 3000, 19091, 19092, 19093}
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
