"""Front and coordinator in two processes: the messages over a Unix socket, in the bytes of link/codec.py.

When the socket closes, both sides forget what they knew of each other. The front refuses open requests and gives no
answer of its own any more, and the coordinator drops the front; then the front connects again.

Thousands of messages may come at once. Only some of them are handled before the event loop turns, and the socket is not
read while others wait.

Each side sends a Hello with its version first. Sides of two versions would misunderstand each other, so they close the
link at once, and both logs name the versions.
"""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import cast

from msgspec import Struct

from sidecar.coordinator.statelog.startup_errors import StartError
from sidecar.link.codec import FRAME_BYTES, Frames, Hello, LinkCodec, LinkError
from sidecar.link.loopback import IN_A_ROW
from sidecar.link.messages import ToCoordinator, ToFront
from sidecar.link.ports import CoordinatorEnd, LinkedFront, Logger, Tasks
from sidecar.process.version import package_version

RETRY_S = 0.05
STARTS = (FileNotFoundError, ConnectionRefusedError)
"""Errors while there is no coordinator yet."""
STRANGER_S = 1.0
"""Pause before the next attempt where the other process is of another version."""


class _Link(asyncio.Protocol):
    """One end of the socket."""

    def __init__(self, codec: LinkCodec, frame_bytes: int, log: Logger) -> None:
        self._codec = codec
        self._frames = Frames(codec, frame_bytes)
        self._log = log
        self._own = Hello(package_version(), codec.shapes)
        self.met = False
        """Whether the other side has sent its Hello, and it is of this version."""
        self.stranger = False
        self.lost = asyncio.get_running_loop().create_future()
        self._left = IN_A_ROW
        """Messages that may still be handled before the loop turns; at 0 the socket is not read."""
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.send(self._own)

    def data_received(self, data: bytes) -> None:
        messages = self._frames.feed(data)
        if self._left:  # otherwise `_go_on` handles them
            self._handle(messages)

    def _handle(self, messages: Iterator[Struct]) -> None:
        try:
            for message in messages:
                if self.met:
                    self.received(message)
                else:
                    self._meet(message)
                self._left -= 1
                if not self._left:
                    break
        except LinkError as exc:
            self._log.error("the link between front and coordinator is closed", error=str(exc))
            if self.transport is not None:
                self.transport.close()
        if not self._left and self.transport is not None and not self.transport.is_closing():
            self.transport.pause_reading()
            asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        """Handles more of the messages that were read, and reads the socket again when none are left. Drops them if the
        link was closed meanwhile: to the other parts of this process it is lost."""
        transport = self.transport
        if transport is None or transport.is_closing():
            return
        self._left = IN_A_ROW
        try:
            self._handle(self._frames.feed(b""))
        except Exception:
            transport.abort()  # as when `data_received` raises
            raise
        if self._left and not transport.is_closing():
            transport.resume_reading()

    def _meet(self, message: Struct) -> None:
        """Compares the other side's Hello with the own one. Raises LinkError."""
        if message != self._own:
            self.stranger = True
            other = message if isinstance(message, Hello) else Hello("an earlier one", "none")
            both = f"this one is {self._own.version} ({self._own.shapes}), that one {other.version} ({other.shapes})"
            raise LinkError(f"the other process is of another version: {both}. Start both anew, of one version")
        self.met = True
        self.greeted()

    @abstractmethod
    def greeted(self) -> None: ...

    @abstractmethod
    def received(self, message: Struct) -> None: ...

    def send(self, message: Struct) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(self._codec.encode(message))

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.lost.done():
            self.lost.set_result(None)


class _FrontLink(_Link):
    """The front's end."""

    def __init__(self, codec: LinkCodec, frame_bytes: int, log: Logger, front: LinkedFront) -> None:
        super().__init__(codec, frame_bytes, log)
        self._front = front

    def greeted(self) -> None:
        self._log.info("linked to the coordinator")

    def received(self, message: Struct) -> None:
        self._front.from_coordinator(cast(ToFront, message))


class _CoordinatorLink(_Link):
    """The coordinator's end: to the coordinator it is the front."""

    def __init__(
        self, codec: LinkCodec, frame_bytes: int, log: Logger, coordinator: CoordinatorEnd, links: set[_CoordinatorLink]
    ) -> None:
        super().__init__(codec, frame_bytes, log)
        self._coordinator = coordinator
        self._links = links

    def greeted(self) -> None:
        self._coordinator.connect(self)

    def received(self, message: Struct) -> None:
        self._coordinator.from_front(self, cast(ToCoordinator, message))

    def from_coordinator(self, message: ToFront) -> None:
        self.send(message)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._links.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._links.discard(self)
        if self.met:
            self._coordinator.disconnect(self)


class UnixClient:
    """The front's side of the link: connects to the coordinator's socket, again and again."""

    def __init__(self, path: Path, log: Logger, tasks: Tasks, frame_bytes: int = FRAME_BYTES) -> None:
        self._path = path
        self._frame_bytes = frame_bytes
        self._log = log
        self._tasks = tasks
        self._codec = LinkCodec()
        self._link: _FrontLink | None = None

    def attach(self, front: LinkedFront) -> Callable[[ToCoordinator], None]:
        """Connects this front; returns its function to send. What is sent while the link is down is lost."""
        self._tasks.spawn(self._keep(front), "link")

        def send(message: ToCoordinator) -> None:
            if self._link is not None:
                self._link.send(message)

        return send

    async def _keep(self, front: LinkedFront) -> None:
        loop = asyncio.get_running_loop()
        problem = ""
        while True:
            try:
                _, link = await loop.create_unix_connection(
                    lambda: _FrontLink(self._codec, self._frame_bytes, self._log, front), str(self._path)
                )
            except OSError as exc:
                former, problem = problem, exc.strerror or str(exc)
                if problem != former and not isinstance(exc, STARTS):
                    self._log.warning("no link to the coordinator", path=str(self._path), problem=problem)
                await asyncio.sleep(RETRY_S)
                continue
            self._link, problem = link, ""
            await link.lost
            self._link = None
            if link.met:
                self._log.warning("the coordinator is gone", path=str(self._path))
                front.link_lost()
            else:
                await asyncio.sleep(STRANGER_S if link.stranger else RETRY_S)


class UnixServer:
    """The coordinator's socket and the fronts at it."""

    def __init__(self, server: asyncio.Server, links: set[_CoordinatorLink]) -> None:
        self._server, self._links = server, links

    def close(self) -> None:
        self._server.close()

    def lose(self) -> None:
        """Closes the socket and all links: no front reaches this coordinator any more."""
        self._server.close()
        for link in self._links:
            if link.transport is not None:
                link.transport.close()


async def serve_unix(
    path: Path, coordinator: CoordinatorEnd, log: Logger, frame_bytes: int = FRAME_BYTES
) -> UnixServer:
    """Serves the coordinator's side: every connection is a front. The caller keeps the server. Raises StartError."""
    codec = LinkCodec()
    try:
        sock = _bind(path)
    except OSError as exc:
        remedy = "Name another path by `link`, in a folder where this user may make files"
        raise StartError(f"cannot listen at {path}: {exc.strerror or exc}. {remedy}") from None
    links: set[_CoordinatorLink] = set()
    loop = asyncio.get_running_loop()
    made = partial(_CoordinatorLink, codec, frame_bytes, log, coordinator, links)
    return UnixServer(await loop.create_unix_server(made, sock=sock), links)


def _bind(path: Path) -> socket.socket:
    """Returns a socket that only this user can connect to, in the place of one that an earlier process has left. Any
    other file stays, and so does a socket of a running process. Raises StartError, OSError."""
    with suppress(FileNotFoundError):
        status = path.lstat()
        if not stat.S_ISSOCK(status.st_mode) or status.st_uid != os.geteuid():
            raise StartError(
                f"{path} is there and is no socket of this user: name another path by `link`, or remove it"
            )
        if _listens(path):
            raise StartError(f"another process listens at {path}: each coordinator needs a `link` of its own")
        path.unlink()
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.bind(str(path))
    path.chmod(0o600)
    return sock


def _listens(path: Path) -> bool:
    """Returns whether a process listens on this socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return False
    return True
