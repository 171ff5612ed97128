"""`sticky`: a streams group's tasks, first to the members that have them or their state (Kafka's StickyTaskAssignor).

Active tasks go to the members that have them now, then to those with a standby task or an offset of it, then to the
process with the fewest tasks per member; no member gets more than its part of all tasks. Standby tasks of stateful
subtopologies likewise, and never to a process that has the task already; where too few processes are there, some
standby tasks are left out. The behaviour is that of 4.4.0: no warm-up tasks, and no look at racks or tags.
"""

from __future__ import annotations

from sidecar.assign.task_spec import TaskArrayAssignor, TaskProblem, TaskTable
from sidecar.native import sticky as kernel


class Sticky(TaskArrayAssignor):
    def tasks(self, problem: TaskProblem) -> TaskTable:
        p, layout, had = problem, problem.layout, problem.had
        now = (had.active_off, had.active, had.standby_off, had.standby)
        hints = (p.hint_off, p.hint, p.hint_sums)
        return TaskTable(
            *kernel(p.proc_off, p.proc_members, layout.off, layout.stateful, *now, *hints, p.standby_replicas)
        )


STICKY = Sticky()
