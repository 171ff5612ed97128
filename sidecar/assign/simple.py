"""`simple`: a share group's partitions in equal parts, then as few moves as can be (Kafka's SimpleAssignor).

With more members than partitions, each partition gets ceil(members / partitions) of them. With one subscription for
all members, these share all partitions; otherwise the members of each topic share that topic, and "equal" holds per
topic. Kafka keeps and counts a held partition that may not be assigned any more; here its holders lose it first.
"""

from __future__ import annotations

from array import array

from sidecar.assign.share import ShareArrayAssignor, ShareProblem
from sidecar.native import simple as kernel
from sidecar.native.groups_twin import Csr

ASCENDING = array("i")


class Simple(ShareArrayAssignor):
    def holders(self, problem: ShareProblem) -> Csr:
        p, layout = problem, problem.layout
        classes = (layout.class_off, layout.class_topics, p.class_of)
        return kernel(layout.off, *classes, p.allowed, p.held_off, p.held, ASCENDING, ASCENDING)


SIMPLE = Simple()
