"""The probe of the event loop sees a stop."""

from __future__ import annotations

import asyncio

from sidecar.process.lag import watch_loop
from sidecar.process.metrics import Metrics
from tests.inprocess import clock


def test_a_stop_of_the_loop_is_seen_with_its_length() -> None:
    metrics = Metrics()

    def above(seconds: float) -> float:
        sample = metrics.registry.get_sample_value
        total = sample("sidecar_loop_lag_seconds_count")
        below = sample("sidecar_loop_lag_seconds_bucket", {"le": str(seconds)})
        assert total is not None and below is not None
        return total - below

    def counted() -> float | None:
        return metrics.registry.get_sample_value("sidecar_loop_busy_seconds_count")

    async def main() -> None:
        task = asyncio.get_running_loop().create_task(watch_loop(metrics, 0.002))
        await asyncio.sleep(0.02)
        before = above(0.1)
        clock.block_loop(0.15)
        await asyncio.sleep(0.02)
        task.cancel()
        assert (before, above(0.1)) == (0, 1)
        assert metrics.registry.get_sample_value("sidecar_loop_busy_seconds_bucket", {"le": "0.05"}) == counted()

    clock.run(main())
