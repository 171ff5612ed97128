"""A background task or a callback that breaks ends the process; a task that is cancelled does not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
import uvloop

from sidecar.process.tasks import Broken, Supervisor


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
