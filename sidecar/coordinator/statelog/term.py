"""One attempt at owning a partition, and proofs that it still lasts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sidecar.coordinator.statelog.encoder import Encoder
from sidecar.coordinator.statelog.fenced_writer import FencedWriter
from sidecar.coordinator.statelog.tail import StateLog
from sidecar.coordinator.statelog.write_errors import WriteLost
from sidecar.core.runtime.commands import Append
from sidecar.state.codec import OWNER_CLAIM, Encoded
from sidecar.state.keys import encode_key

PROOF_SERIAL, RENEWAL_SERIAL = -1, -2
OWN_CLAIM_READ_S = 30.0
"""The tail has read what was before the claim: if it does not come to the claim, something is wrong."""
NO_CLAIM = Encoded(encode_key(OWNER_CLAIM, "", "-1"), None)
"""A tombstone of what never was: it changes nothing, and is refused once another sidecar has fenced us out."""


@dataclass(slots=True)
class Term:
    """One attempt at owning a partition, from its fence on: what it writes with, and what waits to be written."""

    attempt: int
    writer: FencedWriter
    encoder: Encoder | None = None
    claim: list[Encoded] = field(default_factory=list)
    """What is written first."""
    _proving: list[Callable[[], None]] = field(default_factory=list)
    """Called when the proof under way is committed."""
    _next: list[Callable[[], None]] = field(default_factory=list)
    """They came too late for that one."""
    renewing: bool = False
    """A new fence is being set: writes wait."""
    later: list[Append] = field(default_factory=list)
    fresh: FencedWriter | None = None
    """Under the new fence."""
    claimed_again: asyncio.Future[int] | None = None
    """Its claim's offset."""

    @property
    def epochs(self) -> tuple[int, ...]:
        """The last claim in the log may carry one of these."""
        mine = self.writer.owner_epoch
        return (mine,) if self.fresh is None else (mine, self.fresh.owner_epoch)

    def stop(self) -> None:
        self.writer.stop()
        self._proving, self._next = [], []
        if self.fresh is not None:
            self.fresh.stop()
        if self.claimed_again is not None and not self.claimed_again.done():
            self.claimed_again.set_result(-1)

    def claim_written(self, offset: int) -> None:
        """Called when the claim under the new fence is committed."""
        assert self.claimed_again is not None
        self.claimed_again.set_result(offset)

    def resume(self) -> list[Append]:
        """The fence is renewed, or stays as it was; returns what has waited."""
        self.renewing = False
        if not self._proving:
            self._prove_next()
        later, self.later = self.later, []
        return later

    def prove(self, then: Callable[[], None]) -> None:
        """`then` is called when a write that begins now is committed, so that nobody has taken over before it. Never,
        if it fails: then the term is over. One proof serves all who asked before it began."""
        self._next.append(then)
        if not self._proving and not self.renewing:
            self._prove_next()

    def proved(self) -> None:
        proving, self._proving = self._proving, []
        if not self.renewing:
            self._prove_next()
        for then in proving:
            then()

    def _prove_next(self) -> None:
        self._proving, self._next = self._next, []
        if self._proving:
            self.writer.append([NO_CLAIM], PROOF_SERIAL)


async def wait_for_own_claim(state: StateLog, partition: int, offset: int) -> None:
    """Returns once the tail has read the claim of this sidecar, at `offset`. Raises WriteLost."""
    try:
        async with asyncio.timeout(OWN_CLAIM_READ_S):
            await state.wait_past(partition, offset)
    except TimeoutError:
        raise WriteLost(f"the own claim has not been read back for {OWN_CLAIM_READ_S:g} s") from None


class Terms(dict[int, Term]):
    """By partition."""

    def late(self, s: float) -> bool:
        """Whether any append has waited for so long."""
        return any(t.writer.late(s) for t in self.values())

    def led_by(self, leaders: Sequence[int]) -> None:
        """These brokers lead the state's partitions now."""
        for p, node_id in enumerate(leaders):
            if (term := self.get(p)) is not None:
                for writer in (term.writer, term.fresh):
                    if writer is not None:
                        writer.led_by(node_id)
