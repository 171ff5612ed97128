"""A request whose handler has not ended."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from sidecar.api.call import Call, Handler
from sidecar.core.runtime.events import Event
from sidecar.front.session import Session
from sidecar.link.messages import CommitEnded, Grant
from sidecar.proxy.actions import Got


@dataclass(slots=True, eq=False)
class Run(Call):
    session: Session
    got: Got
    handler: Handler | None = None
    event: Event | None = None
    """The event that the coordinator has not answered yet."""
    grant: Grant | None = None
    owed: CommitEnded | None = None
    """The message that the coordinator must get if this request ends early."""
    began_s: float = field(default_factory=time.perf_counter)

    def comes_too_late(self, event: Event) -> bool:
        """Whether this is the join of a client that went away while it waited. Behind the next join of the same static
        member it would take that one's place, and end the client that waits there (KAFKA-20985)."""
        gone = self.session.facts.left or self.session.conn.closed
        return gone and event.joins()
