"""The metrics as an operator reads them."""

from __future__ import annotations

from sidecar.process.metrics import Metrics


def test_steps_that_are_counted_elsewhere_are_added_up_when_somebody_looks() -> None:
    metrics, seen = Metrics(), [3]
    metrics("requests", "heartbeat", "terminated").set_function(lambda: seen[0])
    name = next(line for line in metrics.text().splitlines() if line.endswith(b" 3.0")).removesuffix(b" 3.0")
    assert b"requests" in name and b"heartbeat" in name
    seen[0] = 5
    assert name + b" 5.0" in metrics.text()
    assert name + b" 5.0" in metrics.text(), "no step is added up twice"
