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
"""Longest wait for the tail to read the own claim. It has read all records before, so a longer wait is a fault."""
MAP_CONFIRMED_S = 10.0
"""Longest wait of an attempt for the confirmation of the owner map, in seconds; then another attempt begins."""
NO_CLAIM = Encoded(encode_key(OWNER_CLAIM, "", "-1"), None)
"""A tombstone of a key that never existed: it changes nothing, and brokers refuse it after another sidecar's fence."""


@dataclass(slots=True)
class Term:
    """One attempt at owning a partition, from its fence on: its writer, and the appends and proofs that wait."""

    attempt: int
    writer: FencedWriter
    encoder: Encoder | None = None
    claim: list[Encoded] = field(default_factory=list)
    """The records of the claim, which are written first."""
    confirmed: asyncio.Future[None] | None = None
    """Done once the brokers, asked after the fence, have confirmed that this sidecar knows the newest owner map."""
    _proving: list[Callable[[], None]] = field(default_factory=list)
    """The calls for the commit of the proof under way."""
    _next: list[Callable[[], None]] = field(default_factory=list)
    """The calls for the commit of the proof after that: they came when one was under way already."""
    renewing: bool = False
    """Whether the fence is being renewed: writes wait."""
    later: list[Append] = field(default_factory=list)
    fresh: FencedWriter | None = None
    """The writer under the new fence, during a renewal."""
    claimed_again: asyncio.Future[int] | None = None
    """The offset of the claim under the new fence; -1: unknown, or the term is over."""

    @property
    def epochs(self) -> tuple[int, ...]:
        """The owner epochs that this term's last claim in the log may have."""
        epoch = self.writer.owner_epoch
        return (epoch,) if self.fresh is None else (epoch, self.fresh.owner_epoch)

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
        """Ends a renewal, successful or not; returns the appends that have waited."""
        self.renewing = False
        if not self._proving:
            self._prove_next()
        later, self.later = self.later, []
        return later

    def prove(self, then: Callable[[], None]) -> None:
        """Calls `then` when a write that begins now is committed, which proves that no other sidecar had taken over
        before it. Never, if it fails: then the term is over. One proof serves all calls before it began."""
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
            await state.wait_applied(partition, offset)
    except TimeoutError:
        raise WriteLost(f"the own claim has not been read back for {OWN_CLAIM_READ_S:g} s") from None


async def wait_for_confirmation(confirmed: asyncio.Future[None]) -> None:
    """Returns once the brokers have confirmed the owner map. Raises WriteLost if they do not in MAP_CONFIRMED_S."""
    try:
        async with asyncio.timeout(MAP_CONFIRMED_S):
            await confirmed
    except TimeoutError:
        raise WriteLost("the brokers do not confirm that this sidecar knows the newest owner map") from None


class Terms(dict[int, Term]):
    """Partition -> its term."""

    def late(self, s: float) -> bool:
        """Returns whether any append has waited for more than `s` seconds."""
        return any(t.writer.late(s) for t in self.values())

    def led_by(self, leaders: Sequence[int]) -> None:
        """Tells the writers the leaders of the state topic's partitions."""
        for p, node_id in enumerate(leaders):
            if (term := self.get(p)) is not None:
                for writer in (term.writer, term.fresh):
                    if writer is not None:
                        writer.led_by(node_id)
