"""Names of the drills. The command line shows them without importing the drills."""

from __future__ import annotations

NAMES = (
    "kill-owner",
    "kill-worker",
    "upgrade-worker",
    "kill-any",
    "stop",
    "suspend-owner",
    "rolling-restart",
    "rolling-upgrade",
    "rollback",
    "kill-broker",
    "suspend-broker",
    "full-restart",
    "remove-broker",
    "restore",
    "state-topic",
    "roll-out",
    "take-out",
    "cut-sidecar",
    "cut-broker",
    "disk-full",
    "kill-unit",
    "kill-share-owner",
    "kill-streams-owner",
    "single-broker",
)
ALL = "all"
BOTH = {"cut": ("cut-sidecar", "cut-broker")}
"""Names for several drills."""
SECURITIES = ("plaintext", "sasl_ssl")
"""Securities that a drill's cluster can have."""
