"""`range`: each topic in contiguous runs, in the order of instance ids, then member ids (Kafka's RangeAssignor)."""

from __future__ import annotations

from array import array

from sidecar.assign.layout import ArrayAssignor, Problem
from sidecar.native import Ints
from sidecar.native import range_ as kernel


class Range(ArrayAssignor):
    def owners(self, problem: Problem) -> Ints:
        lay = problem.layout
        return kernel(lay.off, _order(problem), lay.class_off, lay.class_topics, problem.class_of)


def _order(problem: Problem) -> array[int]:
    """Static members by instance id, then the others by member id."""
    details = problem.details
    static = {i: n for m, n in problem.members.items() if (i := details[m].instance_id) is not None}
    dynamic = {m: n for m, n in problem.members.items() if details[m].instance_id is None}
    return array("i", [ids[i] for ids in (static, dynamic) for i in _sorted(ids)])


def _sorted(ids: dict[str, int]) -> list[str]:
    """As Java compares strings, by UTF-16 units; for ASCII that is what Python does."""
    if all(map(str.isascii, ids)):
        return sorted(ids)
    return sorted(ids, key=lambda i: i.encode("utf-16-be", "surrogatepass"))


RANGE = Range()
