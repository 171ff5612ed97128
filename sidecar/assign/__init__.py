"""Assignors: pure functions from a group's members and topics to a target. Same results as Kafka's of the same name.

`rack_aware` is the example of a plug-in: it comes by entry point like any other. Each kind of group has an interface
of its own: spec.py for consumer groups, share.py for share groups, tasks.py for streams groups.
"""

from __future__ import annotations

from collections.abc import Mapping

from sidecar.assign.layout import ArrayAssignor
from sidecar.assign.range import RANGE
from sidecar.assign.share import ShareArrayAssignor
from sidecar.assign.simple import SIMPLE
from sidecar.assign.sticky import STICKY
from sidecar.assign.task_spec import TaskArrayAssignor
from sidecar.assign.uniform import UNIFORM

BUILT_IN: Mapping[str, ArrayAssignor] = {"uniform": UNIFORM, "range": RANGE}
SHARE_BUILT_IN: Mapping[str, ShareArrayAssignor] = {"simple": SIMPLE}
TASK_BUILT_IN: Mapping[str, TaskArrayAssignor] = {"sticky": STICKY}

__all__ = ["BUILT_IN", "RANGE", "SHARE_BUILT_IN", "SIMPLE", "STICKY", "TASK_BUILT_IN", "UNIFORM"]
