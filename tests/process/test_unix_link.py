"""Front and coordinator in two processes say to each other who they are, and part if they are not of one version."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sidecar.coordinator.statelog.startup_errors import StartError
from sidecar.link.codec import Hello, LinkCodec
from sidecar.link.loopback import IN_A_ROW
from sidecar.link.messages import SettingsPassed, ToCoordinator, Touch, Void
from sidecar.process import unix_link
from sidecar.process.tasks import Supervisor
from sidecar.process.unix_link import UnixClient, UnixServer, serve_unix
from sidecar.process.version import package_version
from tests.inprocess.embedded_sidecar import Lines, turns, until
from tests.process.test_limits import Ends

CLOSED = "the link between front and coordinator is closed"
OWN = Hello(package_version(), LinkCodec().shapes)
STRANGERS = [Hello("9.9.9", OWN.shapes), Hello(OWN.version, "other shapes"), Void(("g",))]
"""The last one is what a version sends that does not say who it is."""


@pytest.mark.parametrize("said", STRANGERS)
def test_a_front_of_another_version_is_not_let_in(said: Hello | Void, tmp_path: Path) -> None:
    async def main() -> None:
        ends, lines, codec, path = Ends(), Lines(), LinkCodec(), tmp_path / "link"
        server = await serve_unix(path, ends, lines)
        reader, writer = await asyncio.open_unix_connection(str(path))
        writer.write(codec.encode(said) + codec.encode(SettingsPassed()))
        told = await asyncio.wait_for(reader.read(), 60)
        assert codec.decode(told[4:]) == OWN, "it says who it is, and nothing else"
        assert ends.fronts == []
        error = lines.fields(CLOSED)["error"]
        other = said.version if isinstance(said, Hello) else "an earlier one"
        assert OWN.version in error and other in error and "Start both anew" in error
        writer.close()
        server.close()

    asyncio.run(main())


@pytest.mark.parametrize("said", STRANGERS)
def test_a_coordinator_of_another_version_is_not_believed(
    said: Hello | Void, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unix_link, "STRANGER_S", 0.05)

    async def main() -> None:
        ends, lines, codec, path, came = Ends(), Lines(), LinkCodec(), tmp_path / "link", []

        async def stranger(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            came.append(writer)
            writer.write(codec.encode(said) + codec.encode(Void(("g",))))
            await reader.read()
            writer.close()

        server = await asyncio.start_unix_server(stranger, str(path))
        tasks = Supervisor()
        tasks.watch(asyncio.get_running_loop())
        UnixClient(path, lines, tasks).attach(ends)
        await until(lambda: len(came) >= 3)
        assert ends.got == [] and ends.lost == 0
        assert lines.events("info") == [] and set(lines.events("error")) == {CLOSED}
        server.close()
        # Its successor is of this version.
        successor = await serve_unix(path, ends, lines)
        await until(lambda: len(ends.fronts) == 1)
        await until(lambda: "linked to the coordinator" in lines.events("info"))
        successor.lose()
        await until(lambda: ends.lost == 1)  # as when the coordinator ends alone

    asyncio.run(main())


class Serving(Ends):
    """A coordinator that takes messages; `breaks`: it raises at the first one that waited."""

    def __init__(self, breaks: bool = False) -> None:
        super().__init__()
        self.taken: list[ToCoordinator] = []
        self.breaks = breaks

    def from_front(self, front: Any, message: ToCoordinator) -> None:
        self.taken.append(message)
        if self.breaks and len(self.taken) > IN_A_ROW:
            raise RuntimeError("a bug")


@contextlib.asynccontextmanager
async def served(path: Path, ends: Ends) -> AsyncIterator[tuple[Any, asyncio.StreamWriter]]:
    """The coordinator's end of the link to a front that has said its Hello, and the front's stream."""
    server = await serve_unix(path, ends, Lines())
    _, writer = await asyncio.open_unix_connection(str(path))
    writer.write(LinkCodec().encode(OWN))
    await until(lambda: len(ends.fronts) == 1)
    yield ends.fronts[0], writer
    writer.close()
    server.close()


def touches(first: int, last: int) -> list[ToCoordinator]:
    return [Touch("g", str(i)) for i in range(first, last)]


def as_bytes(messages: list[ToCoordinator]) -> bytes:
    return b"".join(map(LinkCodec().encode, messages))


def test_messages_that_come_together_let_the_loop_turn(tmp_path: Path) -> None:
    """Symptom: 10,000 replies that came at once were handled in one iteration of the loop, and the socket was read on
    meanwhile."""

    async def main() -> None:
        ends, total = Serving(), 5 * IN_A_ROW
        async with served(tmp_path / "link", ends) as (link, writer):
            link.data_received(as_bytes(touches(0, total)))
            assert len(ends.taken) < IN_A_ROW and not link.transport.is_reading(), "its Hello was the first one"
            writer.write(as_bytes(touches(total, total + 1)))
            while (before := len(ends.taken)) < total:
                await asyncio.sleep(0)
                assert len(ends.taken) <= before + IN_A_ROW
            await until(lambda: len(ends.taken) > total)
            assert ends.taken == touches(0, total + 1) and link.transport.is_reading()

    asyncio.run(main())


def test_messages_that_wait_go_with_the_link(tmp_path: Path) -> None:
    """The coordinator knows a front no more whose link is closed, and takes a message of it for a bug."""

    async def main() -> None:
        ends = Serving()
        async with served(tmp_path / "link", ends) as (link, _):
            link.data_received(as_bytes(touches(0, 5 * IN_A_ROW)))
            taken = len(ends.taken)
            link.transport.close()
            await until(lambda: ends.fronts == [])
            await turns()
            assert len(ends.taken) == taken

    asyncio.run(main())


def test_a_message_that_waits_and_breaks_the_coordinator_closes_the_link(tmp_path: Path) -> None:
    async def main() -> None:
        ends, broken = Serving(breaks=True), []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: broken.append(context["exception"]))
        async with served(tmp_path / "link", ends) as (link, _):
            link.data_received(as_bytes(touches(0, 5 * IN_A_ROW)))
            await turns()
            assert ends.fronts == [] and len(ends.taken) == IN_A_ROW + 1
            assert [type(exc) for exc in broken] == [RuntimeError]

    asyncio.run(main())


def test_only_a_socket_is_replaced(tmp_path: Path) -> None:
    """Symptom: whatever was at the path of `link` was deleted."""

    async def main() -> None:
        path = tmp_path / "link"
        path.write_text("a file of somebody")
        with pytest.raises(StartError, match="no socket"):
            await serve_unix(path, Ends(), Lines())
        assert path.read_text() == "a file of somebody"

    asyncio.run(main())


def test_a_path_that_cannot_be_had_is_the_operators_to_mend(tmp_path: Path) -> None:
    """Symptom: with a `link` in a folder that is not there, the log had a bug with its trace, again and again."""
    (tmp_path / "file").touch()

    async def main() -> None:
        for path in (tmp_path / "none" / "link", tmp_path / ("long" * 40), tmp_path / "file" / "link"):
            with pytest.raises(StartError, match="Name another path by `link`"):
                await serve_unix(path, Ends(), Lines())

    asyncio.run(main())


def test_a_front_says_why_it_reaches_no_coordinator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: the front of another user, which may not use the socket, was silent. One that waits says nothing."""
    monkeypatch.setattr(unix_link, "RETRY_S", 0.001)
    folder, lines = tmp_path / "folder", Lines()

    async def main() -> None:
        tasks = Supervisor()
        UnixClient(folder / "link", lines, tasks).attach(Ends())
        await turns()
        assert lines.events("warning") == []
        folder.touch()
        await until(lambda: lines.events("warning") != [])
        await turns()
        assert lines.events("warning") == ["no link to the coordinator"]
        assert lines.fields("no link to the coordinator")["problem"] == "Not a directory"
        await tasks.end()

    asyncio.run(main())


def test_only_a_socket_that_a_former_process_has_left_gives_its_place_up(tmp_path: Path) -> None:
    """Symptom: anything else at `link` was removed: a file that a typo named, or the socket of a process that runs."""
    path, other = tmp_path / "link", tmp_path / "precious"
    other.write_text("precious")

    async def serve() -> UnixServer:
        return await serve_unix(path, Ends(), Lines())

    async def main() -> None:
        for make in (path.touch, partial(path.symlink_to, other), path.mkdir):
            make()
            with pytest.raises(StartError, match="is no socket of this user"):
                await serve()
            assert other.read_text() == "precious"
            path.rmdir() if path.is_dir() else path.unlink()
        server = await serve()
        with pytest.raises(StartError, match="another process listens"):
            await serve()
        server.close()
        left = socket.socket(socket.AF_UNIX)
        path.unlink(missing_ok=True)
        left.bind(str(path))
        left.close()  # its process was killed
        (await serve()).close()

    asyncio.run(main())
