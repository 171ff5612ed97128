"""Requests of outsiders, of users without rights and of members of one group: others notice little (effect.py).

`python -m tests.hostile.run --callers` prints the same as a table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache

import pytest

from tests.hostile.attacks import CALLERS
from tests.hostile.effect import AttackedSidecar, place

SECONDS, LONGER = 2.0, 6.0
OPEN = ("", "bob")
"""Callers whose attacks need no right: where the broker is open, anybody can play them. Those are played each night."""
EACH = [
    pytest.param(world, user, name, id=f"{world}-{user or 'nobody'}-{name}", marks=pytest.mark.tier(tier))
    for world, tier, users in (("secured", "all", tuple(CALLERS)), ("open", "nightly", OPEN))
    for user in users
    for name in CALLERS[user]
]


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], AttackedSidecar]]:
    """One sidecar of each kind for all attacks. A fixture with a parameter would start one for each."""
    with ExitStack() as stack:

        @cache
        def at(world: str) -> AttackedSidecar:
            return stack.enter_context(place(tmp_path_factory.mktemp("callers") / "run", world == "secured"))

        yield at


@pytest.mark.drawn(0.5)
@pytest.mark.parametrize(("world", "user", "name"), EACH)
def test_others_notice_little(attacked: Callable[[str], AttackedSidecar], world: str, user: str, name: str) -> None:
    effect = attacked(world).attacked(name, user, SECONDS)
    assert not effect.faults(), effect.row()


def test_whoever_leaves_large_answers_unread_gives_way(attacked: Callable[[str], AttackedSidecar]) -> None:
    """The limit for unread answers holds at a real broker, beside which nothing else is as large."""
    at = attacked("secured")
    before = at.closed("not_read")
    effect = at.attacked("large_answers", "alice", LONGER)
    assert not effect.faults(), effect.row()
    assert at.closed("not_read") > before
