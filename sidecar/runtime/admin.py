"""HTTP for operators: /metrics, /livez (the loop turns), /readyz (owners known; says why not), /owners."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sidecar.runtime.settings import split

if TYPE_CHECKING:
    from aiohttp import web

    from sidecar.runtime.app import App


class Admin:
    def __init__(self, app: App) -> None:
        self.app = app
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        from aiohttp import web  # 0.15 s to import: only where it is asked for

        routes = web.Application()
        routes.router.add_get("/metrics", self._metrics)
        routes.router.add_get("/livez", self._livez)
        routes.router.add_get("/readyz", self._readyz)
        routes.router.add_get("/owners", self._owners)
        self._runner = web.AppRunner(routes, access_log=None)
        await self._runner.setup()
        host, port = split(self.app.settings.admin or "")
        await web.TCPSite(self._runner, host, port).start()

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _metrics(self, request: web.Request) -> web.Response:
        from aiohttp import web

        return web.Response(body=self.app.metrics.text(), headers={"Content-Type": "text/plain; version=0.0.4"})

    async def _livez(self, request: web.Request) -> web.Response:
        from aiohttp import web

        return web.json_response({"live": True})

    async def _readyz(self, request: web.Request) -> web.Response:
        from aiohttp import web

        problems = self.app.problems()
        body = {"ready": not problems, "problems": problems, "start_ms": self.app.ready_ms}
        return web.json_response(body, status=200 if not problems else 503)

    async def _owners(self, request: web.Request) -> web.Response:
        """Owner node of each partition, and of the groups asked for with ?group=."""
        from aiohttp import web

        host, own = self.app.host, self.app.ownership
        if host is None or own is None:
            return web.json_response({"owners": [], "generation": -1}, status=503)
        groups = {g: host.owner_node(g) for g in request.query.getall("group", [])}
        body = {
            "generation": own.assignment.generation,
            "owners": list(own.assignment.owners),
            "active": sorted(host.active),
            "groups": groups,
        }
        return web.json_response(body)
