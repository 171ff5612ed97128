"""Assignors: pure functions from a group's spec to a target. Same results as Kafka's of the same name."""

from __future__ import annotations

from collections.abc import Mapping

from sidecar.assign.range import assign_range
from sidecar.assign.uniform import assign_uniform
from sidecar.core.assignor import Assignor

BUILT_IN: Mapping[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}
