"""Settings of the sidecars' own group, which no client may see or change: what a request says of it is refused, the
rest of the request goes its way."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from sidecar.api.call import Call, Forward, Handler, upstream
from sidecar.core import config as cf
from sidecar.core.errors import Code
from sidecar.wire.apis import SERVED
from sidecar.wire.frames import PREFIX, header_end, request_frame


def keeps_own_group(
    request: Any, response: Any, results: str, refused: Any
) -> Callable[[Callable[[Call], Handler]], Callable[[Call], Handler]]:
    """For a handler of an API whose requests list `resources`. `results`: where `response` lists the answers, each of
    which is a `refused`. A request without the group's name in it is not decoded twice."""

    def around(handler: Callable[[Call], Handler]) -> Callable[[Call], Handler]:
        @wraps(handler)
        def guarded(call: Call) -> Handler:
            own = call.scope.own
            if not own.group or own.group.encode() not in call.frame:
                return (yield from handler(call))
            req = request.decode(call.version, call.frame, call.pos)
            mine = [r for r in req.resources if r.resource_type == cf.GROUP and own.is_group(r.resource_name)]
            if not mine:
                return (yield from handler(call))
            res = response()
            if left := [r for r in req.resources if r not in mine]:
                req.resources = left
                _rewrite(call, req)
                body = yield from handler(call)
                if isinstance(body, Forward):
                    body = yield from upstream(call)
                res = response.decode(call.version, body)
            told: list[Any] = getattr(res, results)
            told += [refused(Code.GROUP_AUTHORIZATION_FAILED, None, cf.GROUP, own.group) for _ in mine]
            answer: bytes = res.encode(call.version)
            return answer

        return guarded

    return around


def _rewrite(call: Call, req: Any) -> None:
    """The client's request is another one from now on."""
    flexible = call.version >= SERVED[call.api_key].flexible_from
    body = req.encode(call.version)
    call.frame = request_frame(call.api_key, call.version, call.correlation_id, call.client_id, flexible, body)
    call.pos = header_end(call.frame, PREFIX.size, flexible)[1]
