"""An admin endpoint with its API and page on a free port, over a synthetic copy of the state topic."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from aiohttp import ClientSession

from sidecar.drill.processes import free_ports
from sidecar.process.admin import Admin
from sidecar.process.admin_access import Access
from sidecar.process.admin_page import Pages
from sidecar.process.sections import AdminAccess
from sidecar.process.starting import Slices
from tests.inprocess.embedded_sidecar import Counted, Lines
from tests.process.synthetic import Synthetic

TOKEN, OTHER = "a-token-of-these-tests", "another-token-of-these-tests"


def given(**settings: Any) -> AdminAccess:
    return AdminAccess(**settings)


class Ground:
    """`views` False: a process that has no coordinator yet."""

    def __init__(self, settings: AdminAccess, views: bool = True, host: str = "127.0.0.1") -> None:
        (self.port,) = free_ports(1)
        self.lines = Lines()
        self.problems: list[str] = []
        self.synthetic = Synthetic()
        self.hold = asyncio.Event()
        self.hold.set()
        self.asked = 0
        """The number of requests for /metrics, which are answered while `hold` is set."""
        self.text = b"metrics\n"
        address = f"{host}:{self.port}"
        self.metrics = Counted()
        self.access = Access(address, settings, self.lines, self.metrics)
        pages = Pages(1, "both", lambda: (self.problems, 5), lambda: self.synthetic.views if views else None)
        self.admin = Admin(
            address,
            self._metrics,
            lambda: (self.problems, 5),
            lambda groups: {"owners": [1], "groups": {}},
            self._group,
            lambda: {"version": "1"},
            self.access,
            pages,
        )

    def _group(self, group_id: str) -> Slices:
        yield
        return {"group": group_id}

    async def _metrics(self) -> bytes:
        self.asked += 1
        await self.hold.wait()
        return self.text

    def url(self, path: str) -> str:
        return f"http{'s' if self.access.context else ''}://127.0.0.1:{self.port}{path}"

    async def get(self, path: str, method: str = "GET", **more: Any) -> tuple[int, Any, Any]:
        """Status, headers and body."""
        async with ClientSession() as http, http.request(method, self.url(path), **more) as res:
            body = await res.json() if "json" in res.content_type else await res.text()
            return res.status, res.headers, body

    async def status(self, path: str, **more: Any) -> int:
        return (await self.get(path, **more))[0]


def run(ground: Ground, test: Callable[[Ground], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        await ground.admin.start()
        keeping = asyncio.create_task(ground.admin.keep())
        try:
            await test(ground)
        finally:
            keeping.cancel()
            await ground.admin.stop()

    asyncio.run(main())
