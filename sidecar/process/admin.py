"""HTTP for operators: /metrics, /livez (the loop turns), /readyz (it serves what it was assigned, or says why not),
/owners, /group, /about; /api/v1 and the page (admin_page.py). Who may ask is decided by admin_access.py.

What a client can cost is limited: connections, the size of what it sends, and the time it takes for it.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from sidecar.link.ports import Logger
from sidecar.process.admin_access import COOKIE, HEADERS, METRICS, PROBES, Access
from sidecar.process.admin_page import Pages
from sidecar.process.sections import split

if TYPE_CHECKING:
    from aiohttp import web

Handle = Callable[["web.Request"], Awaitable["web.StreamResponse"]]
REFRESH_S = 1.0
BODY_MAX = 8_192
LINE_MAX, FIELD_MAX = 8_190, 16_380
TLS_S = 10.0


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
        access: Access | None = None,
        pages: Pages | None = None,
        log: Logger | None = None,
    ) -> None:
        self._address = address
        self._metrics_text = metrics
        self._problems = problems
        self._find_owners = owners
        self._find_group = group
        self._about = about
        self._access = access
        self._pages = pages
        self._log = log
        self._runner: Any = None
        self._server: asyncio.Server | None = None
        self._timers: dict[Any, asyncio.TimerHandle] = {}

    async def start(self) -> None:
        """Raises OSError if the address is not free."""
        # Only where it is asked for, and not on the loop: the import takes 0.2 s, and seconds on a busy machine, in
        # which the sidecar would answer nobody.
        await asyncio.to_thread(importlib.import_module, "aiohttp.web")
        from aiohttp import web

        @web.middleware
        async def headed(request: web.Request, handler: Handle) -> web.StreamResponse:
            return await self._headed(request, handler)

        @web.middleware
        async def guarded(request: web.Request, handler: Handle) -> web.StreamResponse:
            return await self._guarded(request, handler)

        middlewares = [headed] if self._access is None else [headed, guarded]
        routes = web.Application(client_max_size=BODY_MAX, middlewares=middlewares)
        self._plain(routes)
        if self._pages is not None:
            self._pages.add_to(routes)
        if self._access is not None and self._access.guarded:
            routes.router.add_post("/login", self._login)
        self._runner = web.AppRunner(
            routes,
            access_log=None,
            keepalive_timeout=self._patience_s,
            max_line_size=LINE_MAX,
            max_field_size=FIELD_MAX,
            read_bufsize=1 << 14,
        )
        await self._runner.setup()
        host, port = split(self._address or "")
        context = None if self._access is None else self._access.context
        tls: dict[str, Any] = {} if context is None else {"ssl": context, "ssl_handshake_timeout": TLS_S}
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._connection, host, port, **tls)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        if self._runner is not None:
            await self._runner.cleanup()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def routes(self) -> set[tuple[str, str]]:
        """Method and path of what it answers, once it has started."""
        routes = self._runner.app.router.routes()
        return {(r.method, r.resource.canonical) for r in routes if r.resource is not None}

    async def keep(self) -> None:
        """Follow the files of tokens and certificates, for ever."""
        while self._access is not None:
            await asyncio.sleep(REFRESH_S)
            await asyncio.to_thread(self._access.refresh)

    # ---- connections --------------------------------------------------------------------------------------
    @property
    def _patience_s(self) -> float:
        return 30.0 if self._access is None else self._access.settings.request_timeout_ms / 1000

    def _connection(self) -> asyncio.BaseProtocol:
        """One more. It is closed when it has been so long since it was made, or since its last request came: whoever
        sends a request byte by byte, or reads the answer so, holds it no longer."""
        most = None if self._access is None else self._access.settings.connections
        if most is not None and len(self._runner.server.connections) >= most:
            return _Refused()
        made: asyncio.BaseProtocol = self._runner.server()
        self._arm(made)
        return made

    def _arm(self, connection: Any) -> None:
        if (old := self._timers.pop(connection, None)) is not None:
            old.cancel()
        loop = asyncio.get_running_loop()
        self._timers[connection] = loop.call_later(self._patience_s, self._too_slow, connection)

    def _too_slow(self, connection: Any) -> None:
        self._timers.pop(connection, None)
        if connection.transport is not None:
            connection.transport.abort()

    # ---- what every request goes through --------------------------------------------------------------------
    async def _headed(self, request: web.Request, handler: Handle) -> web.StreamResponse:
        from aiohttp import web

        self._arm(request.protocol)
        try:
            answer = await handler(request)
        except web.HTTPException as exc:
            told = {"problem": exc.reason}
            answer = web.json_response(told, status=exc.status)
            if "Allow" in exc.headers:
                answer.headers["Allow"] = exc.headers["Allow"]
        for name, value in HEADERS.items():
            answer.headers.setdefault(name, value)
        return answer

    async def _guarded(self, request: web.Request, handler: Handle) -> web.StreamResponse:
        from aiohttp import web

        access, path = self._access, request.path
        assert access is not None
        trusted = access.guarded and access.bearer(request.headers.get("Authorization"))
        exempt = trusted or path in PROBES or path == METRICS
        if not exempt and not access.knows_host(request.headers.get("Host")):
            told = "this endpoint has another name: add this one to admin_access.hosts, or use an address"
            return web.json_response({"problem": told}, status=421)
        if trusted or access.open_path(path) or path == "/login" or access.is_cookie(request.cookies.get(COOKIE)):
            return await handler(request)
        if self._pages is not None and (public := self._pages.public(path)) is not None:
            return public
        told = "a token is wanted: Authorization: Bearer, with a token of admin_access.token_file"
        return web.json_response({"problem": told}, status=401, headers={"WWW-Authenticate": 'Bearer realm="sidecar"'})

    async def _login(self, request: web.Request) -> web.StreamResponse:
        """The page's way: a browser sends no header of its own, so it gets a cookie for the token, once."""
        from aiohttp import web

        access = self._access
        assert access is not None
        origin = request.headers.get("Origin")
        if origin is not None and origin.partition("://")[2] != request.headers.get("Host"):
            return web.json_response({"problem": "this form belongs to another page"}, status=403)
        form = await request.post()
        token = form.get("token")
        cookie = access.new_cookie(token) if isinstance(token, str) else None
        if cookie is None:
            if self._log is not None:
                self._log.warning("login at the admin endpoint refused", client=request.remote)
            return web.json_response({"problem": "this token does not count"}, status=401)
        answer = web.json_response({"until_s": access.settings.session_s})
        answer.set_cookie(
            COOKIE,
            cookie,
            max_age=access.settings.session_s,
            path="/",
            httponly=True,
            samesite="Strict",
            secure=access.context is not None,
        )
        return answer

    # ---- the plain paths ----------------------------------------------------------------------------------
    def _plain(self, routes: web.Application) -> None:
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

        for handler in (metrics, livez, readyz, owners, group, about):
            routes.router.add_get(f"/{handler.__name__}", handler)


class _Refused(asyncio.Protocol):
    """A connection too many."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()
