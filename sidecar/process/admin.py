"""HTTP for operators: /metrics, /livez (the loop turns), /readyz (it serves its partitions, or tells why not), /owners,
/group, /about; /api/v1 and the page (admin_page.py). admin_access.py decides which requests are answered.

The cost of a client is limited: its connections, the size of its requests, and the time that they take.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

import msgspec

from sidecar.front.accepting import Acceptor
from sidecar.process.admin_access import COOKIE, HEADERS, METRICS, PROBES, Access
from sidecar.process.admin_connections import AdminConnections
from sidecar.process.admin_log import RequestLog
from sidecar.process.admin_page import Pages, finished
from sidecar.process.sockets import listens_at
from sidecar.process.starting import Slices, nothing

if TYPE_CHECKING:
    from aiohttp import web

Handle = Callable[["web.Request"], Awaitable["web.StreamResponse"]]
REFRESH_S = 1.0
BODY_MAX = 8_192
LINE_MAX, FIELD_MAX = 8_190, 16_380
BACKLOG = 128
GRACE_S = 0.2
"""Time at the end for the answers that are being written. aiohttp waits for it twice, and by default for 60 s."""
AT_ONCE = 16
"""Elements that become JSON before others have their turn."""


class Admin:
    """The HTTP server. `problems()`: reasons why the sidecar is not ready, and the duration of its start in ms;
    `owners(groups)`: the owner of each partition, none while unknown; `group(id)`: one group by the state topic, a
    little at a time, None if it is not there; `about()`: this process (about.py); `denied()`: the brokers' refusals to
    the sidecar."""

    def __init__(
        self,
        address: str | None,
        metrics: Callable[[], Awaitable[bytes]],
        problems: Callable[[], tuple[list[str], int | None]],
        owners: Callable[[list[str]], dict[str, object]],
        group: Callable[[str], Slices] = lambda group_id: nothing(),
        about: Callable[[], dict[str, object]] = dict,
        access: Access | None = None,
        pages: Pages | None = None,
        denied: Callable[[], dict[str, object]] = dict,
    ) -> None:
        self._denied = denied
        self._address = address
        self._metrics_text = metrics
        self._problems = problems
        self._find_owners = owners
        self._find_group = group
        self._about = about
        self._access = access
        self._pages = pages
        self._runner: Any = None
        self._acceptor: Acceptor | None = None
        self._connections: AdminConnections | None = None
        self._turn = asyncio.Lock()

    async def start(self) -> None:
        """Listens at the address; both it and `access` must be set. Raises OSError if it is not free: then it
        may be called again."""
        # Only where it is needed, and not on the loop: the import takes 0.2 s, and seconds on a busy machine, in
        # which the sidecar would answer no request.
        await asyncio.to_thread(importlib.import_module, "aiohttp.web")
        from aiohttp import web

        @web.middleware
        async def headed(request: web.Request, handler: Handle) -> web.StreamResponse:
            return await self._headed(request, handler)

        @web.middleware
        async def guarded(request: web.Request, handler: Handle) -> web.StreamResponse:
            return await self._guarded(request, handler)

        address, access = self._address, self._access
        assert address is not None and access is not None
        routes = web.Application(client_max_size=BODY_MAX, middlewares=[headed, guarded])
        self._plain(routes)
        if self._pages is not None:
            self._pages.add_to(routes)
        if access.guarded:
            routes.router.add_post("/login", self._login)
        self._runner = web.AppRunner(
            routes,
            access_log=None,
            logger=RequestLog(access.log),
            keepalive_timeout=access.settings.request_timeout_ms / 1000,
            max_line_size=LINE_MAX,
            max_field_size=FIELD_MAX,
            read_bufsize=1 << 14,
            shutdown_timeout=GRACE_S,
        )
        await self._runner.setup()
        hosts, port = listens_at(address)
        self._connections = AdminConnections(access.settings, access.context, self._runner.server, access.figures)
        self._acceptor = Acceptor(self._connections.arrived, access.log)
        try:
            await self._acceptor.open(hosts, port, BACKLOG)
        except OSError:
            await self.stop()
            raise

    async def stop(self) -> None:
        if self._acceptor is not None:
            self._acceptor.close()
        if self._runner is not None:
            await self._runner.cleanup()
        if self._connections is not None:
            self._connections.close()

    def routes(self) -> set[tuple[str, str]]:
        """Returns method and path of each route, once it has started."""
        routes = self._runner.app.router.routes()
        return {(r.method, r.resource.canonical) for r in routes if r.resource is not None}

    async def keep(self) -> None:
        """Follows the files of tokens and certificates, for ever."""
        while self._access is not None:
            await asyncio.sleep(REFRESH_S)
            await asyncio.to_thread(self._access.refresh)

    # ---- what every request goes through --------------------------------------------------------------------
    async def _headed(self, request: web.Request, handler: Handle) -> web.StreamResponse:
        door = self._connections
        assert door is not None
        door.asked(request.protocol)
        try:
            answer = await self._errors_as_json(request, handler)
        finally:
            door.answered(request.protocol)
        for name, value in HEADERS.items():
            answer.headers.setdefault(name, value)
        return answer

    async def _errors_as_json(self, request: web.Request, handler: Handle) -> web.StreamResponse:
        from aiohttp import web

        try:
            return await handler(request)
        except web.HTTPException as exc:
            body = {"problem": exc.reason}
            answer = web.json_response(body, status=exc.status)
            if "Allow" in exc.headers:
                answer.headers["Allow"] = exc.headers["Allow"]
            return answer
        except web.RequestPayloadError:
            return web.json_response({"problem": "the body is not in its encoding"}, status=400)

    async def _guarded(self, request: web.Request, handler: Handle) -> web.StreamResponse:
        from aiohttp import web

        access, path = self._access, request.path
        assert access is not None
        trusted = access.guarded and access.bearer(request.headers.get("Authorization"))
        exempt = trusted or path in PROBES or path == METRICS
        if not exempt and not access.knows_host(request.headers.get("Host")):
            problem = "this endpoint has another name: add this one to admin_access.hosts, or use an address"
            return web.json_response({"problem": problem}, status=421)
        if trusted or access.open_path(path) or path == "/login" or access.is_cookie(request.cookies.get(COOKIE)):
            return await handler(request)
        if self._pages is not None and (public := self._pages.public(path)) is not None:
            return public
        problem = "a token is wanted: Authorization: Bearer, with a token of admin_access.token_file"
        return web.json_response(
            {"problem": problem}, status=401, headers={"WWW-Authenticate": 'Bearer realm="sidecar"'}
        )

    async def _login(self, request: web.Request) -> web.StreamResponse:
        """Gives the page a cookie for the token, once: a browser sends no header of its own."""
        from aiohttp import web

        access = self._access
        assert access is not None
        origin = request.headers.get("Origin")
        if origin is not None and origin.partition("://")[2] != request.headers.get("Host"):
            return web.json_response({"problem": "this form belongs to another page"}, status=403)
        # Not by request.post(): multipart and charsets, which no page of ours sends, have faults of many types.
        form = dict(parse_qsl((await request.read()).decode(errors="replace")))
        cookie = access.new_cookie(form.get("token", ""))
        if cookie is None:
            access.log.warning("login at the admin endpoint refused", client=request.remote)
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
            body = {"ready": not problems, "problems": problems, "start_ms": start_ms, **self._denied()}
            return web.json_response(body, status=503 if problems else 200)

        async def owners(request: web.Request) -> web.Response:
            """Returns the owner node of each partition, and of the groups in ?group=."""
            body = self._find_owners(request.query.getall("group", []))
            return web.json_response(body, status=200 if body["owners"] else 503)

        async def group(request: web.Request) -> web.Response:
            """Returns one group: its place, members, partitions, stale claims. In ?id=, as a name may be any text."""
            if self._pages is not None and (unknown := self._pages.no_coordinator()) is not None:
                return unknown
            async with self._turn:  # one after the other: many at once would only take longer
                content = await finished(self._find_group(request.query.get("id", "")))
                parts: list[bytes] = []
                await finished(encoded(content or {"problem": "no such group"}, parts))
            body = b"".join(parts)
            return web.Response(body=body, content_type="application/json", status=200 if content else 404)

        async def about(request: web.Request) -> web.Response:
            """Returns version, settings without secrets, and the clock, which `sidecar doctor` compares."""
            return web.json_response(self._about())

        for handler in (metrics, livez, readyz, owners, group, about):
            routes.router.add_get(f"/{handler.__name__}", handler)


def encoded(content: Any, parts: list[bytes]) -> Slices:
    """Encodes as JSON in parts. Only lists and objects of lists and objects are long."""
    if isinstance(content, dict):
        parts.append(b"{")
        for i, (name, value) in enumerate(content.items()):
            parts.append((b"," if i else b"") + msgspec.json.encode(name) + b":")
            yield from encoded(value, parts)
        parts.append(b"}")
    elif isinstance(content, list):
        parts.append(b"[")
        for i in range(0, len(content), AT_ONCE):
            parts.append((b"," if i else b"") + msgspec.json.encode(content[i : i + AT_ONCE])[1:-1])
            yield
        parts.append(b"]")
    else:
        parts.append(msgspec.json.encode(content))
        yield
