"""One attempt at owning a partition, and proofs that it still lasts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from sidecar.coordinator.encoder import Encoder
from sidecar.coordinator.writer import FencedWriter
from sidecar.state.codec import OWNER_CLAIM, Encoded, StateCodec
from sidecar.state.fold import PartitionFold
from sidecar.state.keys import encode_key

PROOF_SERIAL = -1
NO_CLAIM = Encoded(encode_key(OWNER_CLAIM, "", "-1"), None)
"""A tombstone of what never was: it changes nothing, and is refused once another sidecar has fenced us out."""


@dataclass(slots=True)
class Tenure:
    attempt: int
    writer: FencedWriter
    encoder: Encoder | None = None
    _proving: list[Callable[[], None]] = field(default_factory=list)
    """Called when the proof under way is committed."""
    _next: list[Callable[[], None]] = field(default_factory=list)
    """They came too late for that one."""

    def prove(self, then: Callable[[], None]) -> None:
        """`then` is called when a write that begins now is committed, so that nobody has taken over before it. Never,
        if it fails: then the tenure is over. One proof serves all who asked before it began."""
        self._next.append(then)
        if not self._proving:
            self._prove_next()

    def proved(self) -> None:
        proving = self._proving
        self._prove_next()
        for then in proving:
            then()

    def _prove_next(self) -> None:
        self._proving, self._next = self._next, []
        if self._proving:
            self.writer.append([NO_CLAIM], PROOF_SERIAL)


def before_claim(codec: StateCodec, there: PartitionFold, kept: int) -> list[Encoded]:
    """What is appended with a claim: schemas that the partition lacks, and tombstones of claims too old to be kept."""
    known = sorted(codec.schemas.texts)
    schemas = [r for r, fp in zip(codec.schema_records(), known, strict=True) if fp not in there.schemas]
    old = list(there.claims)[: max(0, len(there.claims) - kept)]
    return [*schemas, *(Encoded(encode_key(OWNER_CLAIM, "", epoch), None) for epoch in old)]
