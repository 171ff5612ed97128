"""`uniform`: counts within one of each other, then as few moves as can be (Kafka's UniformAssignor).

One subscription for all members: a quota each, what exceeds it moves. Different subscriptions: balance topic by
topic, the scarcest first, for at most 16 rounds; then "within one" holds per topic, not for the whole group.
"""

from __future__ import annotations

from sidecar.assign.layout import ArrayAssignor, Problem
from sidecar.native import Ints
from sidecar.native import uniform as kernel


class Uniform(ArrayAssignor):
    def owners(self, problem: Problem) -> Ints:
        layout = problem.layout
        return kernel(
            layout.off, layout.id_rank, layout.class_off, layout.class_topics, problem.class_of, problem.owner
        )


UNIFORM = Uniform()
