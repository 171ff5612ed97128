"""The lease: until when a sidecar may rely on its membership in the owners' group (owners_group.py says why)."""

from __future__ import annotations

from collections.abc import Callable

from sidecar.coordinator.clock import lease_end
from sidecar.core.runtime.turn import Now

NEVER = Now(-(1 << 62), -(1 << 62))


class MemberLease:
    """The lease ends `proof_ms` after the last request whose answer proves a commit, or a session timeout after the
    last request that any broker answered, whichever is earlier. Both count from when the request was *sent*.
    `proved(until)` is called with each new end."""

    def __init__(self, session_timeout_ms: int, proof_ms: int, proved: Callable[[Now], None]) -> None:
        self._session_timeout_ms = session_timeout_ms
        self._proof_ms = proof_ms
        self._proved = proved
        self._committed = NEVER
        """Time at which the last request was sent whose answer proves that the group's coordinator could commit."""
        self._last_answered = NEVER
        """Time at which the last request was sent that a broker answered as it answers a live member."""

    @property
    def has_answer(self) -> bool:
        """Whether a broker has answered this member since the previous membership was lost."""
        return self._last_answered is not NEVER

    def lost(self) -> None:
        """Forgets the proofs: answers to the previous member prove nothing about the next one."""
        self._committed = self._last_answered = NEVER

    def committed(self, sent: Now) -> None:
        """Extends the lease: the commit that was sent at `sent` is written."""
        self._committed = sent
        self.answered(self._last_answered)

    def answered(self, sent: Now, written: bool = False) -> None:
        """Extends the lease: a broker has answered the request that was sent at `sent`. `written`: the answer needed
        the other brokers too, so it also proves a commit."""
        if written:
            self._committed = sent
        self._last_answered = sent
        session = lease_end(sent, self._session_timeout_ms)
        proof = lease_end(self._committed, self._proof_ms)
        # Of each clock the earlier end: on a paused machine only the wall clock goes on, and a broker on that machine
        # answers heartbeats, but no commit, from what it remembers.
        until = Now(min(session.mono_ms, proof.mono_ms), min(session.wall_ms, proof.wall_ms))
        if until.mono_ms > sent.mono_ms:
            self._proved(until)
