"""The sidecar with assignors that walk through processes and partitions as Kafka's hash maps do, and not in ascending
order: so the results are equal one by one, and a script can go on with them."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, MutableMapping
from typing import cast

from sidecar.assign import SHARE_BUILT_IN, TASK_BUILT_IN
from sidecar.assign.share import ShareArrayAssignor, ShareProblem
from sidecar.assign.sticky import Sticky
from sidecar.assign.task_spec import MemberTasks, TaskArrayAssignor, TaskSpec
from sidecar.cli import main as cli
from sidecar.cli import run, worker
from sidecar.native import simple as kernel
from sidecar.native.groups_twin import Csr
from sidecar.native.twin import read
from tests.assign.java_order import JavaOrder, of_string, of_uuid
from tests.assign.share_oracle import ShareCase, kernel_arguments
from tests.assign.task_oracle import in_java_order


class JavaSticky(Sticky):
    def __call__(self, spec: TaskSpec) -> dict[str, MemberTasks]:
        order = JavaOrder(of_string)
        for m in spec.members:
            order.put(m)
        problem = in_java_order(spec, order.order())
        targets = self.tasks(problem).all(problem.layout, array("i", problem.members.values()))
        return dict(zip(problem.members, targets, strict=True))


class JavaSimple(ShareArrayAssignor):
    def holders(self, problem: ShareProblem) -> Csr:
        """The members are in the order of their ids, as those of the scripts are in a hash map."""
        p, lay, members = problem, problem.layout, [*problem.members]
        off, held_off, held = lay.off, read(p.held_off), read(p.held)
        topic = [(t, q - off[t]) for t in range(len(lay.ids)) for q in range(off[t], off[t + 1])]

        def by_topic(places: Iterable[int]) -> dict[int, tuple[int, ...]]:
            found: dict[int, tuple[int, ...]] = {}
            for q in places:
                t, partition = topic[q]
                found[t] = (*found.get(t, ()), partition)
            return found

        def in_order(topics: Iterable[int]) -> list[int]:
            order = JavaOrder(of_uuid)
            for t in topics:
                order.put(lay.ids[t])
            return [lay.index[i] for i in order.order()]

        allowed = by_topic(read(p.allowed))
        had = {m: by_topic(held[held_off[i] : held_off[i + 1]]) for m, i in p.members.items()}
        classes = [tuple(read(c)) for c in lay.classes]
        case = ShareCase(
            list(lay.ids),
            [t.partitions for t in lay.topics],
            [allowed.get(t, ()) for t in range(len(lay.ids))],
            classes,
            {m: (p.class_of[i], had[m]) for m, i in p.members.items()},
        )
        names = JavaOrder(of_string)
        for t in classes[0] if classes else ():
            names.put(lay.topics[t].name)
        subscribed = [lay.place[n] for n in names.order()]
        answer = {
            "members": members,
            "owned": {m: [[t, *had[m][t]] for t in in_order(had[m])] for m in members},
            "subscribed": dict.fromkeys(members, subscribed),
        }
        return kernel(*kernel_arguments(case, answer))


if __name__ == "__main__":
    cast(MutableMapping[str, ShareArrayAssignor], SHARE_BUILT_IN)["simple"] = JavaSimple()
    cast(MutableMapping[str, TaskArrayAssignor], TASK_BUILT_IN)["sticky"] = JavaSticky()
    run.WORKER = ("-m", "tests.differential.java_sidecar")
    if sys.argv[1:2] == ["run"]:
        cli.app()
    else:
        worker.entry(*sys.argv[1:])
