"""The sidecar with assignors that walk through processes and partitions as Kafka's hash maps do, and not in ascending
order: so the results are equal one by one, and a script can go on with them."""

from __future__ import annotations

import sys
from array import array
from collections.abc import MutableMapping
from dataclasses import replace
from itertools import accumulate
from typing import cast

from sidecar.assign import TASK_BUILT_IN
from sidecar.assign.sticky import Sticky
from sidecar.assign.tasks import MemberTasks, TaskArrayAssignor, TaskSpec, task_problem_of
from sidecar.cli import main as cli
from sidecar.cli import run, worker
from tests.assign.java_order import JavaOrder, of_string


class JavaSticky(Sticky):
    def __call__(self, spec: TaskSpec) -> dict[str, MemberTasks]:
        order = JavaOrder(of_string)
        for m in spec.members:
            order.put(m)
        ordered = replace(spec, members={m: spec.members[m] for m in order.order()})
        problem = task_problem_of(ordered)
        processes = JavaOrder(of_string, len(ordered.members))
        in_process: dict[str, JavaOrder[str]] = {}
        for m, s in ordered.members.items():
            processes.compute_if_absent(s.process_id)
            in_process.setdefault(s.process_id, JavaOrder(of_string)).put(m)
        grouped = [[problem.members[m] for m in in_process[p].order()] for p in processes.order()]
        proc_off = array("i", [0, *accumulate(map(len, grouped))])
        problem = replace(problem, proc_off=proc_off, proc_members=array("i", [m for mine in grouped for m in mine]))
        targets = self.tasks(problem).all(problem.layout, array("i", problem.members.values()))
        return dict(zip(problem.members, targets, strict=True))


if __name__ == "__main__":
    cast(MutableMapping[str, TaskArrayAssignor], TASK_BUILT_IN)["sticky"] = JavaSticky()
    run.WORKER = ("-m", "tests.differential.java_sidecar")
    if sys.argv[1:2] == ["run"]:
        cli.app()
    else:
        worker.entry(*sys.argv[1:])
