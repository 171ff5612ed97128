"""Alerts that a fault may raise beside those that it must: fault -> alert -> why that is right. And the alerts for
which no fault can be brought about here."""

from __future__ import annotations

RESTARTS = {
    "SidecarDown": "a sidecar is stopped, and does not answer before it has started again",
    "SidecarNotReady": "it has to take its partitions over first",
    "SidecarCommitsRefused": "a commit still goes to the former owner, or waits for the new one",
    "SidecarGroupNotSettling": "a rebalance waits for the new owner, longer than the 5 s that are 10 minutes here",
}
"""A sidecar is killed and started again, and its partitions go to another one and back."""
GOES_ON = {
    **RESTARTS,
    "SidecarFenced": "what it still writes as the former owner is refused",
    "SidecarAppendSlow": "it had begun some writes, and the claims of many partitions are written at once",
}
"""An owner is shut out by another one while it still writes, such as one that stood still and goes on."""
RAISES_TOO: dict[str, dict[str, str]] = {
    "a sidecar is suspended": GOES_ON,
    "no broker": RESTARTS,
    "another sidecar": RESTARTS,
    "two state topics": {**RESTARTS, "SidecarTakeoverSlow": "a topic that was just made has no leaders yet"},
    "two fleets": GOES_ON,
    "no fence": GOES_ON,
    "small limits": RESTARTS,
    "slow replica": {"SidecarCommitsRefused": "commits wait for the same replica, longer than they may"},
    "damaged": RESTARTS,
}
NO_FAULT: dict[str, str] = {}
"""Alert -> why. promtool tries them all (test_alerts.py)."""
