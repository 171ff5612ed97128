"""What a fault may raise beside the alerts that it must: fault -> alert -> why that is right. And the alerts for which
no fault can be brought about here."""

from __future__ import annotations

MOVES = {
    "SidecarDown": "a sidecar is stopped, and does not answer before it has started again",
    "SidecarNotReady": "it has to take its partitions over first",
    "SidecarFenced": "what a former owner still writes is refused",
    "SidecarAppendSlow": "the claims of many partitions are written at once, and a stopped sidecar had begun some",
    "SidecarCommitsRefused": "a commit still goes to the former owner, or waits for the new one",
    "SidecarGroupNotSettling": "a rebalance waits for the new owner, longer than the 5 s that are 10 minutes here",
}
"""Where partitions go from one sidecar to another."""
RAISES_TOO: dict[str, dict[str, str]] = {
    "a sidecar is suspended": MOVES,
    "no broker": MOVES,
    "another sidecar": MOVES,
    "two state topics": {**MOVES, "SidecarTakeoverSlow": "a topic that was just made has no leaders yet"},
    "two fleets": MOVES,
    "no fence": MOVES,
    "small limits": MOVES,
    "slow replica": {"SidecarCommitsRefused": "commits wait for the same replica, longer than they may"},
    "damaged": MOVES,
}
NO_FAULT: dict[str, str] = {}
"""Alert -> why. promtool tries them all (test_alerts.py)."""
