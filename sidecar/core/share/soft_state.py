"""Soft state of a share group. A takeover loses all of it."""

from __future__ import annotations

from dataclasses import dataclass

from sidecar.core.modern.soft_state import ModernSoft
from sidecar.core.runtime.records import Partitions
from sidecar.core.vocabulary.errors import Code


@dataclass(slots=True)
class ShareSoft(ModernSoft):
    wanted: object = None
    """The last command for the placeholder member (placeholder.py)."""
    assigned_from: Partitions | None = None
    """The partitions that the last assignor run could assign; None: they have changed since, or that run was another
    owner's."""
    uninitialised: bool = False
    """Whether subscribed topics have no share state, by the reports to this owner."""
    refused: int = Code.NONE
    """The broker's last error for the placeholder member; NONE if it took it."""

    def joins_wait(self) -> bool:
        return self.flight is not None or (self.uninitialised and not self.refused)
