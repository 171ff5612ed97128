"""One cluster for all tests here that need one: the faults follow each other, and at the end the silence in between is
looked at."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sidecar.drill.local import LocalKafka
from sidecar.drill.processes import wait_until
from tests.clients.ground import make_topic
from tests.see.auditing import Audit
from tests.see.ground import AUDIT, SEE, SIDECARS, TOPIC, Ground, plug_in
from tests.see.load import load
from tests.see.prometheus import Prometheus
from tools.alert_rules import rules


@pytest.fixture(scope="package")
def starting_audit(ground: Ground, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Audit]:
    audit = Audit(ground, tmp_path_factory.mktemp("audit"))
    yield audit
    audit.process.stop(30)


@pytest.fixture(scope="package")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    folder = tmp_path_factory.mktemp("see")
    env = {**SEE, "PYTHONPATH": str(plug_in(folder / "plug-in"))}
    with LocalKafka(folder / "kafka", sidecar_env=env) as kafka:
        kafka.wait_ready()
        make_topic(kafka, TOPIC, 6)
        jobs = {SIDECARS: [f"127.0.0.1:{n.admin_port}" for n in kafka.nodes], AUDIT: []}
        prometheus = Prometheus(folder / "prometheus", jobs, rules(), labels={"cluster": "here"})
        with load(kafka), prometheus:
            # A counter that rises before its first scrape does not rise for Prometheus.
            up = f'count(sidecar_ready) == count(up{{job="{SIDECARS}"}} == 1) == {len(kafka.nodes)}'
            wait_until("all sidecars to be scraped", lambda: bool(prometheus.values(up)), 30, step_s=0.5)
            yield Ground(kafka, prometheus)
