"""What goes into one run of an assignor, and what comes out of it. Pure, and safe in any thread: everything in the
input is immutable or a copy (KIP-1263 'Assignment Offload').

`Targets.update` (target_assignment.py) makes the input. Without offload it runs the assignor itself; else
coordinator/runtime/assignor_task.py does so in a background thread, and `Targets.done` takes the output.

A kind adds what its problem is made of to the input, and what it wants to keep for the next run to the output.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from sidecar.core.vocabulary.topics import TopicImage


@dataclass(frozen=True, slots=True)
class RunInput:
    """`epoch`: the group's when the run began, that of the target it makes."""

    kind: ClassVar[str]
    """Of the group."""
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
    """`table`: a MemberTable, or whatever the kind has in its place; `changed`: members whose target is another one
    now, or is their first; `moved`: partitions, or active tasks, with a new owner."""

    table: Any
    changed: tuple[str, ...]
    moved: int


Run = Callable[[Any, Any], Any]
"""(input, assignor) -> output. Whatever the assignor raises comes through."""
