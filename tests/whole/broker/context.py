"""The context of a request, for every handler: the client, its connection, and the way of the answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.whole.broker.node import Node
    from tests.whole.broker.rights import Rights

Reply = Callable[[Any], None]


@dataclass(frozen=True, slots=True)
class Context:
    """`principal`: see rights.py."""

    node: Node
    listener: str
    peer: str
    client_id: str
    version: int
    principal: str

    @property
    def rights(self) -> Rights:
        return self.node.cluster.rights

    def may(self, operation: int, kind: int, name: str) -> bool:
        return self.rights.may(self.principal, operation, kind, name)
