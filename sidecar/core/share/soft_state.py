"""What a coordinator knows of a share group beside its records. All of it is lost at a takeover."""

from __future__ import annotations

from dataclasses import dataclass

from sidecar.core.modern.soft_state import ModernSoft
from sidecar.core.runtime.records import Partitions
from sidecar.core.vocabulary.errors import Code


@dataclass(slots=True)
class ShareSoft(ModernSoft):
    wanted: object = None
    """What the coordinator was last asked to do about the placeholder member (placeholder.py)."""
    placeholder_id: str = ""
    """The placeholder member of this owner; "": the broker has not taken it so far."""
    assigned_from: Partitions | None = None
    """The partitions that the last assignor run could assign; None: others than when it ended, or it was another
    owner's."""
    uninitialised: bool = False
    """Topics that somebody subscribes to have no share state, as far as this owner has heard."""
    refused: int = Code.NONE
    """What the broker has said to the placeholder member last, if that was a refusal."""

    def joins_wait(self) -> bool:
        return self.flight is not None or (self.uninitialised and not self.refused)
