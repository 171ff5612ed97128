"""Hypothesis as these tests use it: how long an example takes decides nothing, and a failing one says how to repeat it.

from tests.harness.properties import given, settings, st
"""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

__all__ = ["HealthCheck", "given", "settings", "st"]
settings.register_profile("any load", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("any load")
