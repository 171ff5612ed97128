"""The scrape configuration for a guarded admin endpoint: promtool checks it, and a real Prometheus scrapes with it."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml

from tests.process.admin_ground import OTHER, TOKEN, Ground, given, run
from tests.see.prometheus import Prometheus, program

pytestmark = pytest.mark.needs("prometheus", "promtool")
FILE = "guarded.yml"
UP = 'up{job="kafka-group-sidecar"}'


@pytest.fixture
def folder(root: Path, tmp_path: Path) -> Path:
    """deploy/prometheus with the files that the example names."""
    copy = tmp_path / "prometheus"
    shutil.copytree(root / "deploy/prometheus", copy)
    (copy / "sidecar-token").write_text(TOKEN + "\n")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(copy / "sidecar-ca.pem")
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(tmp_path / "admin.pem")
    return copy


def sidecars(folder: Path, file: str = FILE) -> dict[str, Any]:
    """Returns the job that scrapes sidecars: the first one."""
    return dict(yaml.safe_load((folder / file).read_text())["scrape_configs"][0])


def checked(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [program("promtool"), "check", "config", FILE]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_promtool_checks_it(folder: Path) -> None:
    done = checked(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    (folder / "sidecar-token").unlink()
    assert checked(folder).returncode != 0
    assert (
        sidecars(folder)["job_name"]
        == yaml.safe_load((folder / "prometheus.yml").read_text())["scrape_configs"][0]["job_name"]
    )


class Scraped(Ground):
    async def _metrics(self) -> bytes:
        return b"sidecar_ready 1\n"


async def wait_for_value(prometheus: Prometheus, query: str, value: float) -> None:
    for _ in range(60):
        if await asyncio.to_thread(prometheus.values, query) == [value]:
            return
        await asyncio.sleep(0.5)
    pytest.fail(f"{query} is not {value} after 30 s")


def test_a_real_prometheus_scrapes_with_it(folder: Path, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text(f"{OTHER}\n{TOKEN}\n")
    ground = Scraped(given(tls_certificate=tmp_path / "admin.pem", token_file=tokens))
    how = {k: v for k, v in sidecars(folder).items() if k not in ("job_name", "static_configs")}
    jobs = {"kafka-group-sidecar": [f"127.0.0.1:{ground.port}"]}

    async def test(g: Ground) -> None:
        prometheus = Prometheus(folder, jobs, (folder / "rules.yml").read_text(), how=how)
        await asyncio.to_thread(prometheus.__enter__)
        try:
            await wait_for_value(prometheus, UP, 1)
            await wait_for_value(prometheus, "sidecar_ready", 1)
            (folder / "sidecar-token").write_text("a token that does not count\n")
            await wait_for_value(prometheus, UP, 0)
        finally:
            await asyncio.to_thread(prometheus.__exit__)

    run(ground, test)
