"""The way from the fronts to the coordinator: within one process, or over a Unix socket."""

from __future__ import annotations

from sidecar.coordinator.runtime.coordinator import Coordinator
from sidecar.link.loopback import Loopback
from sidecar.process.settings import Settings
from sidecar.process.shared import Shared
from sidecar.process.unix_link import UnixServer, serve_unix


class LoopbackLink:
    """The link within one process."""

    def __init__(self, loopback: Loopback) -> None:
        self._loopback = loopback

    async def serve(self, coordinator: Coordinator) -> None:
        self._loopback.serve(coordinator)

    def lose(self) -> None:
        self._loopback.lose()

    def close(self) -> None:
        """Does nothing: both ends are in this process."""


class UnixLink:
    """The link where the front is another process."""

    def __init__(self, s: Settings, shared: Shared) -> None:
        self._s, self._shared = s, shared
        self._server: UnixServer | None = None

    async def serve(self, coordinator: Coordinator) -> None:
        s = self._s
        assert s.link is not None
        self._server = await serve_unix(s.link, coordinator, self._shared.log, s.limits.link_frame_bytes)

    def lose(self) -> None:
        if self._server is not None:
            self._server.lose()

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
