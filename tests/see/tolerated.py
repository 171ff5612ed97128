"""What a fault may raise beside the alerts that it must: fault -> alert -> why that is right. And the alerts for which
no fault can be brought about here."""

from __future__ import annotations

RAISES_TOO: dict[str, dict[str, str]] = {}
NO_FAULT: dict[str, str] = {}
"""Alert -> why. promtool tries them all (test_alerts.py)."""
