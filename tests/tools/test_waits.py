"""Waits without a bound, in sources of a few lines; and in the sidecar there is none that is not known."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

import pytest

from tools import waits


def written(folder: Path, body: str) -> Path:
    """A package with one function of this body."""
    (folder / "room").mkdir()
    source = "class A:\n    async def b(self):\n" + indent(body, " " * 8)
    (folder / "room" / "a.py").write_text(source)
    return folder


@pytest.mark.parametrize(
    ("body", "n"),
    [
        ("await self.event.wait()", 1),
        ("await future", 1),
        ("await self.link.lost", 1),
        ("await asyncio.wait({task})", 1),
        ("await asyncio.gather(one(), other())", 1),
        ("async with self.lock:\n    pass", 1),
        ("async with self.lock, self.room:\n    await future", 3),
        ("await loop.create_connection(make, host, port)", 1),
        ("async with asyncio.timeout(1):\n    await future\n    async with self.lock:\n        pass", 0),
        ("async with asyncio.timeout(1):\n    async def c():\n        await future\n    await c()", 1),
        ("async with asyncio.timeout(1):\n    pass\nawait future", 1),
        ("await asyncio.wait({task}, timeout=1)", 0),
        ("await asyncio.sleep(1)", 0),
        ("await conn.request(hb, 'Heartbeat', req)", 0),
    ],
)
def test_a_wait_without_a_bound_is_found(tmp_path: Path, body: str, n: int) -> None:
    assert sum(waits.counts(written(tmp_path, body)).values()) == n


def test_a_wait_that_nobody_knows_is_a_problem_and_one_that_is_gone_too(tmp_path: Path) -> None:
    root, name = written(tmp_path, "await future"), "room/a.py A.b"
    assert list(waits.problems(root, {name: (1, waits.CALLER)})) == []
    (problem,) = waits.problems(root, {})
    assert f"{name}: 1 waits without a bound, and it may have 0" in problem
    (problem,) = waits.problems(root, {name: (2, waits.CALLER)})
    assert "lower it" in problem


def test_a_wait_that_may_drop_a_cancellation_is_a_problem(tmp_path: Path) -> None:
    (problem,) = waits.problems(written(tmp_path, "await asyncio.wait_for(event.wait(), 1)"), {})
    assert problem == "room/a.py: asyncio.wait_for may drop a cancellation: use asyncio.timeout"


def test_no_wait_of_the_sidecar_is_without_a_bound_but_those_that_are_known() -> None:
    assert list(waits.problems()) == []
