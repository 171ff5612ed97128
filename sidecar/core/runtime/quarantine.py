"""What a coordinator does that began anew because the log of its groups was lost (coordinator/statelog/topic_watch.py).

It knows no member, but former members go on working on what they own until they are told UNKNOWN_MEMBER_ID, which is
with their next heartbeat, sync or commit. If the first of them that comes back were given partitions at once, these
would have two owners until then. So nobody joins for a while, and whoever asks is told COORDINATOR_LOAD_IN_PROGRESS,
after which clients ask again. This time counts from each takeover, as only then can members be told anything; and it
counts for takeovers in the first minute or so of the process only, as by then every sidecar has begun anew.
"""

from __future__ import annotations

from dataclasses import dataclass

from sidecar.core.runtime.events import Event
from sidecar.core.vocabulary.errors import TEXT, Code, CoordinatorError


@dataclass(frozen=True, slots=True)
class Anew:
    """`quarantine_ms`: for so long after a takeover nobody joins; `until_ms`: if it comes before that, by the clock of
    `Now.mono_ms`. The default is a coordinator that has lost nothing."""

    quarantine_ms: int = 0
    until_ms: int = 0

    def closed_until_ms(self, now_ms: int) -> int:
        """For a partition that is taken over now."""
        return now_ms + self.quarantine_ms if now_ms < self.until_ms else 0


def check_closed(event: Event) -> None:
    """Raises what the request is refused with while nobody may join."""
    if event.joins():
        raise CoordinatorError(Code.COORDINATOR_LOAD_IN_PROGRESS, TEXT[Code.COORDINATOR_LOAD_IN_PROGRESS])
