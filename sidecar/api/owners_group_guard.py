"""Refuses what a client asks about settings of the owners' group, and lets the rest of its request pass."""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import wraps
from typing import Any

from sidecar.api import slices
from sidecar.api.call import Call, Forward, Handler, Want, upstream
from sidecar.core.vocabulary import group_config as cf
from sidecar.core.vocabulary.errors import Code
from sidecar.wire.apis import SERVED
from sidecar.wire.frames import PREFIX, header_end, request_frame


def guards_owners_group(
    request: Any, response: Any, results: str, refused: Any
) -> Callable[[Callable[[Call], Handler]], Callable[[Call], Handler]]:
    """Decorates the handler of an API whose requests list `resources`. `results`: the field of `response` that lists
    the answers; `refused`: the class of one. A request without the name of the owners' group is not decoded twice."""

    def around(handler: Callable[[Call], Handler]) -> Callable[[Call], Handler]:
        @wraps(handler)
        def guarded(call: Call) -> Handler:
            own = call.scope.own
            if not own.group or own.group.encode() not in call.frame:
                return (yield from handler(call))

            def is_own(r: Any) -> bool:
                return r.resource_type == cf.GROUP and own.is_group(r.resource_name)

            req = yield from slices.request(call, request)
            denied = yield from slices.chosen(req.resources, is_own)
            if not denied:
                return (yield from handler(call))
            res = response()
            if left := (yield from slices.chosen(req.resources, lambda r: not is_own(r))):
                req.resources = left
                yield from _rewrite(call, req)
                body = yield from handler(call)
                if isinstance(body, Forward):
                    body = yield from upstream(call)
                res = yield from slices.decoded(response, call.version, body)
            answers: list[Any] = getattr(res, results)
            answers += [refused(Code.GROUP_AUTHORIZATION_FAILED, None, cf.GROUP, own.group) for _ in denied]
            return (yield from slices.encoded(res, call.version))

        return guarded

    return around


def _rewrite(call: Call, req: Any) -> Generator[Want, Any, None]:
    """Replaces the client's request, which the handler may forward to the broker byte for byte."""
    flexible = call.version >= SERVED[call.api_key].flexible_from
    body = yield from slices.encoded(req, call.version)
    call.frame = request_frame(call.api_key, call.version, call.correlation_id, call.client_id, flexible, body)
    call.pos = header_end(call.frame, PREFIX.size, flexible)[1]
