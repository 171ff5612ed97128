"""The owner of each partition, as the owners' group has agreed."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sidecar.core.runtime.commands import ASSIGNED, MOVED, Command
from sidecar.core.runtime.effects import Log


class OwnerMap:
    def __init__(self, node_id: int, out: list[Command]) -> None:
        """`node_id`: of the broker beside this sidecar."""
        self._node_id, self._out = node_id, out
        self.owners: Sequence[int] = ()
        """Node id of each partition's owner; -1, or missing at the end, while unknown."""
        self._before: Sequence[int] = ()
        self._logged: dict[str, int] = {}

    def node(self, partition: int) -> int:
        """Returns the node id of the broker beside this partition's owner; -1 while unknown."""
        return self.owners[partition] if partition < len(self.owners) else -1

    def next(self, owners: Sequence[int]) -> set[int]:
        """Takes in a new map, and returns the partitions that this sidecar owns in it."""
        self._before, self.owners = self.owners, owners
        return {p for p, node_id in enumerate(owners) if node_id == self._node_id}

    def lost(self) -> None:
        self.owners = ()

    def why(self, partition: int, members: Collection[int]) -> str:
        """Returns the reason for a takeover of this partition; the claim carries it."""
        before = self._before[partition] if partition < len(self._before) else -1
        if before in (-1, self._node_id):
            return ASSIGNED
        return f"{MOVED} {before}" if before in members else f"sidecar {before} is gone"

    def log(self, generation: int, owned: int, gained: int, sidecars: int) -> None:
        """Logs the map, at debug level if unchanged: a member may join the same generation again and again."""
        fields = {"generation": generation, "mine": owned, "gained": gained, "sidecars": sidecars}
        self._out.append(Log("owners", fields, "debug" if fields == self._logged else "info"))
        self._logged = fields
