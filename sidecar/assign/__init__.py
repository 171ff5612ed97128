"""Assignors: pure functions from a group's members and topics to a target. Same results as Kafka's of the same name.

`rack_aware` is the example of a plug-in: it comes by entry point like any other.
"""

from __future__ import annotations

from collections.abc import Mapping

from sidecar.assign.layout import ArrayAssignor
from sidecar.assign.range import RANGE
from sidecar.assign.uniform import UNIFORM

BUILT_IN: Mapping[str, ArrayAssignor] = {"uniform": UNIFORM, "range": RANGE}

__all__ = ["BUILT_IN", "RANGE", "UNIFORM"]
