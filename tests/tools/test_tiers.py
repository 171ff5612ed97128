"""Which tests a command runs (tests/harness/tiers.py)."""

from __future__ import annotations

import pytest

from tests.harness.tiers import tier_of


@pytest.mark.tier("test")
@pytest.mark.parametrize("tier", ["test", pytest.param("quick", marks=pytest.mark.tier("quick"))])
def test_the_mark_of_a_case_is_nearer_than_that_of_its_function(request: pytest.FixtureRequest, tier: str) -> None:
    assert tier_of(request.node) == tier
