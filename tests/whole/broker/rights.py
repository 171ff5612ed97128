"""The authorizer: everybody may do everything, except what was forbidden to them. There is no login in the simulation:
the first client id on a connection says who is at its other end. Without an authorizer nothing is forbidden."""

from __future__ import annotations

ASKS_FOR_CLIENTS = "kafka-group-sidecar"
"""The client id of what a sidecar asks on a client's connection. Where that comes first, nobody has said who is there:
with a login there would be no answer either."""
READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE = 3, 4, 5, 6, 7, 8
CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE = 9, 10, 11, 12
TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = 2, 3, 4, 5
CLUSTER_NAME = "kafka-cluster"
SUPPORTED = {
    TOPIC: (READ, WRITE, CREATE, DESCRIBE, DELETE, ALTER, DESCRIBE_CONFIGS, ALTER_CONFIGS),
    GROUP: (READ, DESCRIBE, DELETE, DESCRIBE_CONFIGS, ALTER_CONFIGS),
    CLUSTER: (CREATE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE, ALTER, DESCRIBE),
    TRANSACTIONAL_ID: (DESCRIBE, WRITE),
}


class Rights:
    def __init__(self, on: bool) -> None:
        self.on = on
        self._denied: dict[tuple[str, int, str], set[int]] = {}

    def deny(self, principal: str, kind: int, name: str, *operations: int) -> None:
        """Without operations: all of them, so that the resource is hidden."""
        self._denied.setdefault((principal, kind, name), set()).update(operations or SUPPORTED[kind])

    def allow(self, principal: str, kind: int, name: str) -> None:
        """Everything again."""
        self._denied.pop((principal, kind, name), None)

    def may(self, principal: str, operation: int, kind: int, name: str) -> bool:
        return not self.on or operation not in self._denied.get((principal, kind, name), ())

    def operations(self, principal: str, kind: int, name: str) -> int:
        """As the bit field of the answers that tell authorized operations."""
        return sum(1 << op for op in SUPPORTED[kind] if self.may(principal, op, kind, name))
