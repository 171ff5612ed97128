"""A whole new target assignment as one change of the state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from sidecar.core.runtime.records import Record


@dataclass(frozen=True, slots=True)
class TargetRecord:
    """A target assignment, written as one record for each of `changed` and one for the target's epoch; `parts` yields
    them. The thread of the assignor run may have made the members' values beforehand: `run_id` names that run."""

    kind: ClassVar[str]
    """Kind of the record that `metadata` makes."""

    group_id: str
    table: Any
    """A MemberTable, or the kind's own class in its place."""
    changed: tuple[str, ...]
    assignment_epoch: int
    assignment_timestamp_ms: int
    assignor: str
    names: Mapping[bytes, str]
    why: str = ""
    run_id: int = 0

    @property
    def sub_id(self) -> str:
        return ""

    def metadata(self) -> Record:
        raise NotImplementedError

    def member(self, member_id: str) -> Record:
        raise NotImplementedError

    def parts(self) -> Iterator[Record]:
        for member_id in self.changed:
            yield self.member(member_id)
        yield self.metadata()
