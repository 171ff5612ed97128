"""No conversation may be left open: the rest of it would go unseen."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.register_assert_rewrite("tests.api.play")

from tests.api.play import Play  # noqa: E402


@pytest.fixture(autouse=True)
def _every_conversation_ends() -> Iterator[None]:
    Play.open.clear()
    yield
    assert not Play.open, "a conversation does not end with answers() or forwards()"
