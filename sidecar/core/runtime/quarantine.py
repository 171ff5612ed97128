"""The time after the loss of the state topic in which joins are refused (coordinator/statelog/topic_watch.py).

The new coordinator knows no members. Former members go on working on their partitions until they receive
UNKNOWN_MEMBER_ID, at their next heartbeat, sync or commit. If the first of them that comes back got partitions at once,
these would have two owners until then. So a request that would make a member is answered with
COORDINATOR_LOAD_IN_PROGRESS for a while, after which clients ask again. This time counts from each takeover, because
only from then on can members receive answers. It applies only to takeovers in the first minute or so of the process: by
then every sidecar has started again with an empty log.
"""

from __future__ import annotations

from dataclasses import dataclass

from sidecar.core.runtime.events import Event
from sidecar.core.vocabulary.errors import TEXT, Code, CoordinatorError


@dataclass(frozen=True, slots=True)
class Quarantine:
    """`quarantine_ms`: how long joins are refused after a takeover; `until_ms`: only takeovers before this time count,
    by the clock of `Now.mono_ms`. The default is a coordinator that has lost nothing."""

    quarantine_ms: int = 0
    until_ms: int = 0

    def closed_until_ms(self, now_ms: int) -> int:
        """Returns until when a partition that is taken over now refuses joins."""
        return now_ms + self.quarantine_ms if now_ms < self.until_ms else 0


def refuse_joins(event: Event) -> None:
    """Raises COORDINATOR_LOAD_IN_PROGRESS for a request of a client that is not a member yet."""
    if event.joins():
        raise CoordinatorError(Code.COORDINATOR_LOAD_IN_PROGRESS, TEXT[Code.COORDINATOR_LOAD_IN_PROGRESS])
