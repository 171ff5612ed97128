"""One cluster for all tests here that need one: the faults follow each other, and at the end the silence in between is
looked at."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sidecar.drill.local import LocalKafka
from tests.clients.conftest import make_topic
from tests.see.ground import AUDIT, SEE, SIDECARS, TOPIC, Ground, plug_in
from tests.see.load import load
from tests.see.prometheus import Prometheus
from tools.alerts import rules


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
            yield Ground(kafka, prometheus)
