"""HTTP for operators: /metrics, /livez (the loop turns), /readyz (it serves what it was assigned, or says why not),
/owners, /group, /about."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Awaitable, Callable
from typing import Any

from sidecar.process.sections import split


class Admin:
    """`problems()`: why the sidecar is not ready, and how long its start took; `owners(groups)`: who owns each
    partition, none while unknown; `group(id)`: what the state topic says of one; `about()`: this process (about.py)."""

    def __init__(
        self,
        address: str | None,
        metrics: Callable[[], Awaitable[bytes]],
        problems: Callable[[], tuple[list[str], int | None]],
        owners: Callable[[list[str]], dict[str, object]],
        group: Callable[[str], dict[str, object] | None] = lambda group_id: None,
        about: Callable[[], dict[str, object]] = dict,
    ) -> None:
        self._address = address
        self._metrics_text = metrics
        self._problems = problems
        self._find_owners = owners
        self._find_group = group
        self._about = about
        self._runner: Any = None

    async def start(self) -> None:
        # Only where it is asked for, and not on the loop: the import takes 0.2 s, and seconds on a busy machine, in
        # which the sidecar would answer nobody.
        await asyncio.to_thread(importlib.import_module, "aiohttp.web")
        from aiohttp import web

        async def metrics(request: web.Request) -> web.Response:
            return web.Response(body=await self._metrics_text(), headers={"Content-Type": "text/plain; version=0.0.4"})

        async def livez(request: web.Request) -> web.Response:
            return web.json_response({"live": True})

        async def readyz(request: web.Request) -> web.Response:
            problems, start_ms = self._problems()
            body = {"ready": not problems, "problems": problems, "start_ms": start_ms}
            return web.json_response(body, status=503 if problems else 200)

        async def owners(request: web.Request) -> web.Response:
            """Owner node of each partition, and of the groups asked for with ?group=."""
            found = self._find_owners(request.query.getall("group", []))
            return web.json_response(found, status=200 if found["owners"] else 503)

        async def group(request: web.Request) -> web.Response:
            """One group: where it is, its members, what they own, stale claims. In ?id=, as a name may be anything."""
            found = self._find_group(request.query.get("id", ""))
            return web.json_response(found or {"problem": "no such group"}, status=200 if found else 404)

        async def about(request: web.Request) -> web.Response:
            """Version, settings without secrets, the clock: what `sidecar doctor` compares."""
            return web.json_response(self._about())

        routes = web.Application()
        for handler in (metrics, livez, readyz, owners, group, about):
            routes.router.add_get(f"/{handler.__name__}", handler)
        self._runner = web.AppRunner(routes, access_log=None)
        await self._runner.setup()
        host, port = split(self._address or "")
        await web.TCPSite(self._runner, host, port).start()

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
