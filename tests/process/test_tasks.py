"""A task of the coordinator or a callback that breaks ends all that belong to it; a task of the process that breaks is
told and started again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
import uvloop

from sidecar.process.tasks import Broken, Lasting, Supervisor
from tests.inprocess import clock
from tests.inprocess.embedded_sidecar import Counted, Lines, until


def test_an_unexpected_exception_is_not_lost() -> None:
    async def run() -> None:
        tasks = Supervisor()

        async def sleeps() -> None:
            await asyncio.Event().wait()

        async def breaks() -> None:
            raise KeyError("a bug")

        tasks.spawn(sleeps(), "sleeps").cancel()
        await asyncio.sleep(0)
        assert not tasks.failed.done()
        tasks.spawn(breaks(), "breaks")
        await asyncio.wait_for(tasks.failed, 60)

    with pytest.raises(Broken, match="breaks: KeyError") as exc:
        asyncio.run(run())
    assert isinstance(exc.value.__cause__, KeyError)


def test_tasks_that_belong_together_end_together_and_none_begins_later() -> None:
    async def run() -> None:
        tasks = Supervisor()
        begun: list[str] = []

        async def lasts(name: str) -> None:
            begun.append(name)
            try:
                await asyncio.Event().wait()
            finally:
                tasks.spawn(lasts(f"after {name}"), "after")

        task = tasks.spawn(lasts("one"), "one")
        await asyncio.sleep(0)
        await tasks.end()
        assert task.cancelled() and begun == ["one"]
        await asyncio.wait([tasks.spawn(lasts("late"), "late")])
        assert begun == ["one"]

    asyncio.run(run())


def test_what_should_last_is_started_again_and_told() -> None:
    async def run() -> None:
        lines, metrics = Lines(), Counted()
        tasks = Lasting(lines, metrics)
        goes_on = asyncio.Event()
        times = 0

        async def works() -> None:
            nonlocal times
            times += 1
            if times < 3:
                raise KeyError("a bug")
            goes_on.set()

        tasks.keep(works, "works")
        await goes_on.wait()
        assert lines.events("error") == ["a background task broke; ports stay open"] * 2
        assert lines.fields("a background task broke; ports stay open")["task"] == "works"
        assert metrics.value("task_faults") == 2

    clock.run(run())


def test_a_callback_that_breaks_ends_the_coordinator_while_there_is_one() -> None:
    async def run() -> None:
        lines = Lines()
        tasks = Lasting(lines, Counted())
        tasks.watch(asyncio.get_running_loop())

        def breaks() -> None:
            raise KeyError("a bug")

        asyncio.get_running_loop().call_soon(breaks)
        await until(lambda: lines.events("error") == ["a background task broke; ports stay open"])
        coordination = tasks.coordination = Supervisor()
        asyncio.get_running_loop().call_soon(breaks)
        with pytest.raises(Broken, match="KeyError"):
            await coordination.failed

    clock.run(run())


class Raises(asyncio.Protocol):
    def data_received(self, data: bytes) -> None:
        raise KeyError("a client's bytes")


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_nor_is_that_of_a_callback_but_a_connections_own_ends_that_connection(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        tasks = Supervisor()
        tasks.watch(loop)
        server = await loop.create_server(Raises, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"x")
        assert await reader.read() == b""
        writer.close()
        server.close()
        assert not tasks.failed.done()
        gone: dict[str, int] = {}
        future = loop.create_future()
        future.add_done_callback(lambda f: gone.pop("a bug"))
        future.set_result(None)
        await asyncio.wait_for(tasks.failed, 60)

    with asyncio.Runner(loop_factory=new_loop) as runner, pytest.raises(Broken, match="KeyError"):
        runner.run(run())
