"""The program is built once and not for each command line: that takes longer than most commands."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest
import typer.testing

once = cache(typer.main.get_command)


@pytest.fixture(autouse=True, scope="package")
def _built_once() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.testing, "_get_command", once)
        yield
