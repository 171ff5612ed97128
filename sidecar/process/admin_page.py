"""/api/v1 and the page at the admin endpoint: read-only, GET only. What they tell comes from
coordinator/inspect/group_views.py, a little at a time, so that no request holds the loop that has clients to serve."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Generator, Mapping
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from uuid import uuid4
from zlib import crc32

import msgspec

from sidecar.coordinator.inspect.group_list import SORTS
from sidecar.coordinator.inspect.group_views import Views
from sidecar.process.version import package_version

if TYPE_CHECKING:
    from aiohttp import web

SLICE_S, REST_S = 0.001, 0.001
"""Time of the loop in one go, and the pause for other work after it."""
PAGE, PAGE_MAX = 100, 500
TEXT_MAX = 1_000
FILES = {
    "/": ("page.html", "text/html"),
    "/page/page.css": ("page.css", "text/css"),
    "/page/page.js": ("page.js", "text/javascript"),
    "/page/icon.svg": ("icon.svg", "image/svg+xml"),
}
Json = dict[str, Any]


class BadQuery(Exception):
    """A parameter of the query is wrong; the text has the reason."""


async def finished(work: Generator[None, None, Any], slice_s: float = SLICE_S) -> Any:
    """Runs this work to its end, with pauses for others, and returns its result."""
    until = time.monotonic() + slice_s
    while True:
        try:
            next(work)
        except StopIteration as done:
            return done.value
        if time.monotonic() >= until:
            await asyncio.sleep(REST_S)
            until = time.monotonic() + slice_s


@cache
def _file(name: str) -> bytes:
    return files("sidecar.process.page").joinpath(name).read_bytes()


def number(query: Mapping[str, str], name: str, default: int, most: int) -> int:
    """Returns a parameter as a number. Raises BadQuery."""
    text = query.get(name, "")
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 9 and int(text) <= most):
        raise BadQuery(f"{name} is not a number from 0 to {most}")
    return int(text)


def word(query: Mapping[str, str], name: str) -> str:
    """Returns a parameter as text. Raises BadQuery."""
    text = query.get(name, "")
    if len(text) > TEXT_MAX:
        raise BadQuery(f"{name} is longer than {TEXT_MAX} characters")
    return text


class Pages:
    """The page and its API. `views()`: None in a process that has no coordinator, or not yet."""

    def __init__(
        self,
        node_id: int,
        role: str,
        problems: Callable[[], tuple[list[str], int | None]],
        views: Callable[[], Views | None],
        wall_ms: Callable[[], int] = lambda: round(time.time() * 1000),
    ) -> None:
        self._node_id = node_id
        self._role = role
        self._problems = problems
        self._views = views
        self._wall_ms = wall_ms
        self._id = uuid4().hex[:8]
        self._turn = asyncio.Lock()

    def add_to(self, routes: web.Application) -> None:
        for path in FILES:
            routes.router.add_get(path, self._static)
        for name in ("overview", "groups", "group"):
            routes.router.add_get(f"/api/v1/{name}", getattr(self, f"_{name}"))

    def public(self, path: str) -> web.Response | None:
        """Returns the page's files, which need no token: they have no data, and the page asks for the token itself."""
        from aiohttp import web

        if path not in FILES:
            return None
        name, kind = FILES[path]
        return web.Response(body=_file(name), content_type=kind, charset="utf-8")

    async def _static(self, request: web.Request) -> web.StreamResponse:
        response = self.public(request.path)
        assert response is not None, "no other path is routed here"
        return response

    # ---- the API ------------------------------------------------------------------------------------------
    async def _overview(self, request: web.Request) -> web.StreamResponse:
        problems, start_ms = self._problems()
        views = self._views()
        if views is not None:
            await views.brokers.look()
        version = "" if views is None else views.version()

        async def content() -> Json:
            head: Json = {"node": self._node_id, "role": self._role, "version": package_version()}
            head |= {"ready": not problems, "problems": problems, "start_ms": start_ms, "now_ms": self._wall_ms()}
            overview = {} if views is None else await self._worked(views.overview())
            return head | {"cluster": "", "generation": -1, "sidecars": [], "brokers": [], "groups": None} | overview

        return await self._answer(request, f"{version}/{problems}/{start_ms}", content)

    async def _groups(self, request: web.Request) -> web.StreamResponse:
        views = self._views()
        if views is None:
            return self._nothing()
        query = request.query
        try:
            limit = max(1, number(query, "limit", PAGE, PAGE_MAX))
            begin = number(query, "cursor", 0, 10**9 - 1)
            search, kind, state = (word(query, n) for n in ("search", "kind", "state"))
            sort = word(query, "sort") or "group"
            if sort.removeprefix("-") not in SORTS:
                raise BadQuery(f"sort is one of {', '.join(SORTS)}, with - before it for the other way round")
        except BadQuery as exc:
            return _bad(exc)

        async def content() -> Json:
            total, rows = await self._worked(views.find(search, kind, state, sort, begin, limit))
            await views.lag.look(rows)
            more = begin + len(rows) < total
            groups = [views.row_json(row) for row in rows]
            return {"total": total, "groups": groups, "next": str(begin + len(rows)) if more and rows else None}

        await views.brokers.look()
        return await self._answer(request, f"{views.version()}/{views.lag.version()}", content)

    async def _group(self, request: web.Request) -> web.StreamResponse:
        views = self._views()
        if views is None:
            return self._nothing()
        group_id = request.query.get("id", "")
        try:
            limit = max(1, number(request.query, "limit", PAGE, PAGE_MAX))
            begins = {n: number(request.query, n, 0, 10**9 - 1) for n in ("members", "partitions")}
        except BadQuery as exc:
            return _bad(exc)

        async def content() -> Json | None:
            if (row := await self._worked(views.row(group_id))) is not None:
                await views.lag.look([row])
            page = views.group(group_id, begins["members"], begins["partitions"], limit)
            body: Json | None = await self._worked(page)
            return body

        await views.brokers.look()
        return await self._answer(request, f"{views.version_of(group_id)}/{views.lag.version()}", content)

    async def _worked(self, work: Generator[None, None, Any]) -> Any:
        """Runs work, one at a time. Brokers are asked outside: a silent one blocks no other request."""
        async with self._turn:
            return await finished(work)

    async def _answer(
        self, request: web.Request, version: str, content: Callable[[], Awaitable[Json | None]]
    ) -> web.StreamResponse:
        """Answers with `content()`, or with 304 if the client has the current version."""
        from aiohttp import web

        tag = f'W/"{self._id}-{crc32(f"{request.query_string} {version}".encode()):08x}"'
        if request.headers.get("If-None-Match") == tag:
            return web.Response(status=304, headers={"ETag": tag})
        body = await content()
        if body is None:
            return web.json_response({"problem": "no such group"}, status=404)
        return web.Response(body=msgspec.json.encode(body), content_type="application/json", headers={"ETag": tag})

    def no_coordinator(self) -> web.Response | None:
        """Returns the answer about groups while this process has no coordinator, and so knows none; None: it has."""
        return self._nothing() if self._views() is None else None

    def _nothing(self) -> web.Response:
        from aiohttp import web

        front_only = "this process holds clients' connections only: ask the coordinator's admin address"
        problem = front_only if self._role == "front" else "; ".join(self._problems()[0]) or "not there yet"
        return web.json_response({"problem": problem}, status=503)


def _bad(exc: BadQuery) -> web.StreamResponse:
    from aiohttp import web

    return web.json_response({"problem": str(exc)}, status=400)
