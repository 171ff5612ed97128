"""The coordinator's half of a process while there is none: nothing of the coordinator is imported yet."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sidecar.coordinator.inspect.group_views import Views

Slices = Generator[None, None, Any]


def nothing() -> Slices:
    """Returns empty work: there is no such group."""
    yield from ()


class Starting:
    """Stands in for the coordinator while there is none. `problem`: the reason."""

    views: Views | None = None

    def __init__(self, problem: str = "starting: broker or topics not there yet") -> None:
        self.problem = problem

    def problems(self) -> list[str]:
        return [self.problem]

    def ready_fields(self) -> dict[str, object]:
        return {}

    async def metrics(self) -> bytes:
        return b""

    def owners(self, groups: list[str]) -> dict[str, object]:
        return {"generation": -1, "owners": [], "active": [], "groups": dict.fromkeys(groups)}

    def group(self, group_id: str) -> Slices:
        return nothing()

    async def stop(self, for_good: bool) -> None:
        """Does nothing: no coordinator runs."""

    def close(self) -> None:
        """Does nothing: no coordinator holds anything."""
