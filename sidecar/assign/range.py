"""`range`: each topic in contiguous runs, in the order of instance ids, then member ids (Kafka's RangeAssignor)."""

from __future__ import annotations

from array import array

from sidecar.assign.layout import ArrayAssignor, Problem
from sidecar.assign.order import sorted_as_java
from sidecar.native import Ints
from sidecar.native import range_ as kernel


class Range(ArrayAssignor):
    def owners(self, problem: Problem) -> Ints:
        layout = problem.layout
        return kernel(layout.off, _order(problem), layout.class_off, layout.class_topics, problem.class_of)


def _order(problem: Problem) -> array[int]:
    """Static members by instance id, then the others by member id."""
    details = problem.details
    static = {i: n for m, n in problem.members.items() if (i := details[m].instance_id) is not None}
    dynamic = {m: n for m, n in problem.members.items() if details[m].instance_id is None}
    return array("i", [ids[i] for ids in (static, dynamic) for i in sorted_as_java(ids)])


RANGE = Range()
