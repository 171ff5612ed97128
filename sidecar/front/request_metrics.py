"""Counts requests by API and how long they take, as Kafka's RequestMetrics."""

from __future__ import annotations

from functools import partial

from sidecar.link.ports import Figures
from sidecar.wire.apis import SERVED, Api


class RequestMetrics:
    """Counts requests in plain integers, which a scrape of the metrics reads."""

    def __init__(self, figures: Figures) -> None:
        self.seen = dict.fromkeys(SERVED, 0)
        self.steady = 0
        """Heartbeats that were answered under a grant."""
        self.probes = 0
        """Questions to the broker whether it lets a client in."""
        self.handler_faults = figures("handler_faults")
        self.took = {api: figures("request_seconds", Api(api).name.lower()).observe for api in SERVED}
        figures("steady").set_function(lambda: self.steady)
        figures("probes").set_function(lambda: self.probes)
        for api in SERVED:
            seen = partial(self.seen.__getitem__, api)
            figures("requests", Api(api).name.lower(), SERVED[api].decision).set_function(seen)
