"""Until when a sidecar may take itself for a member of the owners' group (owners_group.py says why so)."""

from __future__ import annotations

from collections.abc import Callable

from sidecar.coordinator.clock import lease_end
from sidecar.core.runtime.turn import Now

NEVER = Now(-(1 << 62), -(1 << 62))


class MemberLease:
    """The lease ends `proof_ms` after the last request that proves that something could be committed, and a session
    timeout after the last answer of any broker. Each counts from when it was *sent*. `proved(until)` is told each new
    end."""

    def __init__(self, session_timeout_ms: int, proof_ms: int, proved: Callable[[Now], None]) -> None:
        self._session_timeout_ms = session_timeout_ms
        self._proof_ms = proof_ms
        self._proved = proved
        self._committed = NEVER
        """When the last request was sent whose answer proves that something could be committed."""
        self._heard = NEVER
        """When the last request was sent that a broker answered, as to a member that was alive when it last heard."""

    @property
    def heard(self) -> bool:
        """A broker has answered this member, since the former one was lost."""
        return self._heard is not NEVER

    def lost(self) -> None:
        """A new member begins: what the former one was told says nothing of it."""
        self._committed = self._heard = NEVER

    def committed(self, sent: Now) -> None:
        """The commit that was sent then is written."""
        self._committed = sent
        self.answered(self._heard)

    def answered(self, sent: Now, written: bool = False) -> None:
        """A broker has answered what was sent then. `written`: it could do so only together with the others."""
        if written:
            self._committed = sent
        self._heard = sent
        session = lease_end(sent, self._session_timeout_ms)
        proof = lease_end(self._committed, self._proof_ms)
        until = min(session, proof, key=lambda end: end.mono_ms)
        if until.mono_ms > sent.mono_ms:
            self._proved(until)
