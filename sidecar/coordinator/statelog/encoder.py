"""Encodes the records of one term, with its owner epoch and a revision for each key.

The members' records of a new target assignment are many, so the background thread that ran the assignor encodes them
too, and `prepared` keeps their bytes until the record of that run is written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sidecar.core.modern.assignor_run import RunInput, RunOutput
from sidecar.core.modern.records import TargetRecord
from sidecar.core.runtime.records import Key, Record, Tombstone, single
from sidecar.state.codec import Encoded, EncodedTargets, Stamp, StateCodec


class Encoder:
    def __init__(self, codec: StateCodec, owner_epoch: int, revisions: dict[Key, int]) -> None:
        self.owner_epoch = owner_epoch
        self._codec = codec
        self._revisions = revisions
        self._stamp = Stamp(owner_epoch, 0)
        self._prepared: dict[tuple[str, int], EncodedTargets] = {}

    def encode(self, records: Sequence[Record], wall_ms: int) -> list[Encoded]:
        stamp = self._stamp
        if stamp.time_ms != wall_ms:
            stamp = self._stamp = Stamp(self.owner_epoch, wall_ms)
        out: list[Encoded] = []
        for r in records:
            if isinstance(r, TargetRecord):
                made = self._prepared.pop((r.group_id, r.run_id), None)
                if made is not None and made.members == r.changed and self._follow(made.revisions):
                    self._revisions.update(made.revisions)
                    out += made.values.values()
                    out.append(self._one(r.metadata(), stamp))
                    continue
                out += [self._one(part, stamp) for part in single([r])]
            else:
                out.append(self._one(r, stamp))
        return out

    def _one(self, r: Record, stamp: Stamp) -> Encoded:
        key = (r.kind, r.group_id, r.sub_id)
        if isinstance(r, Tombstone):
            return self._codec.encode(r, stamp, self._revisions.pop(key, 0) + 1)
        revision = self._revisions[key] = self._revisions.get(key, 0) + 1
        return self._codec.encode(r, stamp, revision)

    def _follow(self, revisions: Mapping[Key, int]) -> bool:
        """Whether these are still the next revisions. A static member that left and came back under its member id
        during the run has a new record of its target: after a gap, readers would report that values are missing."""
        return all(self._revisions.get(key, 0) + 1 == revision for key, revision in revisions.items())

    def targets(self, inp: RunInput, out: RunOutput, wall_ms: int) -> EncodedTargets:
        """Returns the encoded members' records of this run. Safe in another thread: it only reads the revisions. If one
        of them changes while the run is under way, the bytes are not used."""
        stamp = Stamp(self.owner_epoch, wall_ms)
        return self._codec.targets(
            inp.member_record, inp.group_id, out.table, out.changed, inp.why, stamp, self._revisions
        )

    def prepared(self, inp: RunInput, made: EncodedTargets) -> None:
        self._prepared = {k: v for k, v in self._prepared.items() if k[0] != inp.group_id}
        self._prepared[(inp.group_id, inp.run_id)] = made
