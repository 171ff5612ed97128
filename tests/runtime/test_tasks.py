"""A background task that breaks ends the process; one that is cancelled does not."""

from __future__ import annotations

import asyncio

import pytest

from sidecar.runtime.tasks import Broken, Supervisor


def test_an_unexpected_exception_is_not_lost() -> None:
    async def run() -> None:
        tasks = Supervisor()

        async def sleeps() -> None:
            await asyncio.sleep(60)

        async def breaks() -> None:
            raise KeyError("a bug")

        tasks.spawn(sleeps(), "sleeps").cancel()
        await asyncio.sleep(0)
        assert not tasks.failed.done()
        tasks.spawn(breaks(), "breaks")
        await asyncio.wait_for(tasks.failed, 1)

    with pytest.raises(Broken, match="breaks: KeyError") as exc:
        asyncio.run(run())
    assert isinstance(exc.value.__cause__, KeyError)
