"""A claim says why it was made: so the audit tells a coordinator that hands over from one that is gone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sidecar.core.kinds import REGISTRY
from sidecar.core.runtime.commands import Claim
from sidecar.core.runtime.service import Service
from sidecar.core.runtime.turn import Computed, Now, Ports

START = Now(0, 0)


class Empty:
    """A log without records."""

    def groups(self, partition: int) -> list[str]:
        return []

    def size(self, partition: int, group_id: str) -> int:
        return 0

    def records(self, partition: int, group_id: str) -> Iterator[Any]:
        return iter(())


@pytest.mark.parametrize(
    ("before", "members", "why"),
    [
        (None, {1, 2}, "assigned"),
        (-1, {1, 2}, "assigned"),
        (2, {1, 2}, "moved from sidecar 2"),
        (2, {1, 3}, "sidecar 2 is gone"),
    ],
)
def test_why(before: int | None, members: set[int], why: str) -> None:
    service = Service(1, 1, REGISTRY, Ports({}, Computed(lambda kind, group_id: None)), Empty())
    if before is not None:
        service.assigned([before], 1, {1, 2, 3}, START)
    service.assigned([1], 2, members, START)
    owner = service.owners[0]
    owner.lifecycle.fenced(owner.attempt, 7, START)
    assert [c.why for c in service.out if isinstance(c, Claim)] == [why]


def test_whoever_was_shut_out_meanwhile_does_not_know() -> None:
    service = Service(1, 1, REGISTRY, Ports({}, Computed(lambda kind, group_id: None)), Empty())
    service.assigned([2], 1, {1, 2}, START)
    service.lost("removed")
    service.assigned([1], 4, {1, 2}, START)
    owner = service.owners[0]
    owner.lifecycle.fenced(owner.attempt, 7, START)
    assert [c.why for c in service.out if isinstance(c, Claim)] == ["assigned"]
