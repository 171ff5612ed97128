"""The metrics as an operator reads them."""

from __future__ import annotations

import re

from sidecar.process.metrics import Metrics
from sidecar.process.process_metrics import set_process_metrics
from sidecar.process.settings import load
from tests.process.test_about import GIVEN


def test_steps_that_are_counted_elsewhere_are_added_up_when_somebody_looks() -> None:
    metrics, seen = Metrics(), [3]
    metrics("requests", "heartbeat", "terminated").set_function(lambda: seen[0])
    name = next(line for line in metrics.text().splitlines() if line.endswith(b" 3.0")).removesuffix(b" 3.0")
    assert b"requests" in name and b"heartbeat" in name
    seen[0] = 5
    assert name + b" 5.0" in metrics.text()
    assert name + b" 5.0" in metrics.text(), "no step is added up twice"


def test_every_assignor_of_a_kind_that_is_served_has_failed_no_time_at_the_start() -> None:
    """Symptom: an alert on the increase missed the first failure of an assignor of share or streams groups."""
    settings = load(None, {**GIVEN, "groups__kinds": '["classic", "consumer", "streams"]'})
    metrics = Metrics()
    set_process_metrics(metrics, settings, lambda: True)
    lines = b"\n".join(metrics.text().splitlines()).decode()
    told = set(re.findall(r'sidecar_assignor_failures_total\{assignor="(.*)"\} 0\.0', lines))
    assert told == {*settings.consumer.assignors, *settings.streams.assignors}
