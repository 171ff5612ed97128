"""Requests of outsiders, of users without rights and of members of one group: others notice little (effect.py).

`python -m tests.hostile.run --callers` prints the same as a table.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.hostile.attacks import CALLERS
from tests.hostile.effect import Place, place

SECONDS = 3.0
OPEN = ("", "bob")
"""Whose attacks need no right: where the broker is open, they are anybody's. Those are played each night."""
EACH = [
    pytest.param(world, user, name, id=f"{world}-{user or 'nobody'}-{name}", marks=pytest.mark.tier(tier))
    for world, tier, users in (("secured", "all", tuple(CALLERS)), ("open", "nightly", OPEN))
    for user in users
    for name in CALLERS[user]
]


@pytest.fixture(scope="module")
def at(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with place(tmp_path_factory.mktemp("callers") / "run", request.param == "secured") as found:
        yield found


@pytest.mark.parametrize(("at", "user", "name"), EACH, indirect=["at"])
def test_others_notice_little(at: Place, user: str, name: str) -> None:
    effect = at.attacked(name, user, SECONDS)
    assert not effect.faults(), effect
