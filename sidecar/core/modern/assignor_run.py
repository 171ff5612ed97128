"""Input and output of one assignor run. Pure, and safe in any thread: everything in the input is immutable or a copy
(KIP-1263 'Assignment Offload').

`Targets.update` (target_assignment.py) makes the input. Without offload it runs the assignor itself; else
coordinator/runtime/assignor_task.py does so in a background thread, and `Targets.done` takes the output.

A kind adds the data of its problem to the input, and the data for the next run to the output.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from sidecar.core.vocabulary.topics import TopicImage


@dataclass(frozen=True, slots=True)
class RunInput:
    """Input of one run. `epoch`: the group's when the run began, and that of the resulting target."""

    kind: ClassVar[str]
    """Kind of the group."""
    member_record: ClassVar[str]
    """The kind of record that holds a member's target."""

    group_id: str
    run_id: int
    epoch: int
    assignor: str
    image: TopicImage

    @property
    def why(self) -> str:
        return f"target of epoch {self.epoch} by {self.assignor}"


@dataclass(frozen=True, slots=True)
class RunOutput:
    """Output of one run. `table`: a MemberTable, or the kind's own class in its place; `changed`: members whose target
    has changed, or is their first; `moved`: partitions, or active tasks, with a new owner."""

    table: Any
    changed: tuple[str, ...]
    moved: int


Run = Callable[[Any, Any], Any]
"""(input, assignor) -> output. Exceptions of the assignor propagate."""
