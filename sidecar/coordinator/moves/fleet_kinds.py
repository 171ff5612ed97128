"""The kinds of groups that all sidecars coordinate. Any sidecar may get any group, so a group comes only when all can
coordinate its kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sidecar.kafka.native import OTHER, SHARE, STREAMS


@dataclass(frozen=True)
class FleetKinds:
    """The kinds of the whole fleet. `lacking(kind)`: node ids of the sidecars that do not coordinate groups of this
    kind; `size()`: the number of sidecars."""

    lacking: Callable[[str], Sequence[int]]
    size: Callable[[], int]

    def unserved(self, kind: str) -> str:
        """Returns why a group of this kind cannot come now; "" if it can."""
        if kind == OTHER:
            return "its kind is not known here"
        nodes = self.lacking(kind) if kind in (SHARE, STREAMS) else ()
        listed = ", ".join(map(str, nodes))
        return f"it is a {kind} group, and sidecars {listed} do not coordinate these (groups.kinds)" if nodes else ""

    def none_coordinates(self, kind: str) -> bool:
        """Returns whether no sidecar coordinates groups of this kind."""
        return kind == OTHER or len(self.lacking(kind)) >= self.size()
