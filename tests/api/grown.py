"""Requests that grow: every API that the sidecar serves, with many elements in one of its arrays, and how much CPU its
handler takes for it.

The arrays are found by walking the generated classes, so that no API and no field escapes.
"""

from __future__ import annotations

import importlib
import time
import types
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import count
from typing import Any, Union, get_args, get_origin, get_type_hints

from msgspec import Struct
from msgspec.structs import fields

from sidecar.api.call import Ask, Call, Client, Coordinate, Scope, Store
from sidecar.api.handlers import HANDLERS, READ_THEIR_HEADER
from sidecar.core.runtime.events import (
    DeletionCheck,
    DeletionCheckReply,
    GroupsWithRecords,
    GroupsWithRecordsReply,
    Listed,
    ListGroups,
    ListReply,
)
from sidecar.core.vocabulary.errors import Code
from sidecar.core.vocabulary.group_config import GROUP as GROUP_RESOURCE
from sidecar.link.messages import DescribeSettings, SettingsReply
from sidecar.wire.apis import SERVED, Api, message_name
from sidecar.wire.frames import PREFIX, header_end, request_frame, response_frame
from tests.api.play import CORRELATION, KEEP_MS, NODE, OTHER, READ, VIEW, flexible
from tests.harness.collector import no_collector

GROUP, THEIRS = "g", "t"
"""Names of groups that begin so are managed, and not."""
DENIED = {"group": Code.GROUP_AUTHORIZATION_FAILED, "topic": Code.TOPIC_AUTHORIZATION_FAILED}
Path = tuple[str, ...]
"""The fields from the request down to an array."""


@dataclass(frozen=True, slots=True)
class Case:
    api: Api
    version: int
    path: Path
    caller: str
    repeated: bool

    def __str__(self) -> str:
        kind = "repeated" if self.repeated else "distinct"
        return f"{self.api.name.lower()}-v{self.version}-{'.'.join(self.path)}-{self.caller}-{kind}"


# ---- requests ---------------------------------------------------------------------------------------------------
def request_class(api: int) -> Any:
    """The generated class of this API's requests."""
    return _module(api, "Request")


def response_class(api: int) -> Any:
    return _module(api, "Response")


def _module(api: int, kind: str) -> Any:
    module = importlib.import_module(f"sidecar.wire.generated.{Api(api).name.lower()}")
    return getattr(module, message_name(api) + kind)


def arrays(cls: Any) -> Iterator[Path]:
    """Every array in requests of this class, also those inside elements of others."""
    for name, hint in _hints(cls):
        element = _element(hint)
        inner = _plain(hint) if element is None else element
        if element is not None:
            yield (name,)
        if is_message(inner):
            yield from ((name, *rest) for rest in arrays(inner))


@cache
def versions_of(api: int, path: Path) -> list[int]:
    """The versions in which this array is sent."""
    spec, cls = SERVED[api], request_class(api)
    return [v for v in range(spec.low, spec.high + 1) if _sent(cls, v, path)]


def _sent(cls: Any, version: int, path: Path) -> bool:
    there: list[Any] = [cls.decode(version, grown(cls, path, 3).encode(version))]
    for name in path[:-1]:
        values = [getattr(at, name) for at in there]
        there = [x for v in values for x in (v if isinstance(v, list) else [v]) if x is not None]
    return any(len(getattr(at, path[-1]) or ()) == 3 for at in there)


def grown(cls: Any, path: Path, n: int, repeated: bool = False) -> Any:
    """A request with `n` elements in this array and one in each other: all different, or the same one again."""
    return _filled(cls, path, n, repeated, 0)


def is_message(it: Any) -> bool:
    """Whether this is a message, or the class of one."""
    return issubclass(it if isinstance(it, type) else type(it), Struct)


def elements(message: Any) -> int:
    """Returns the number of elements in all arrays of a message."""
    found = 0
    for name, _ in _hints(type(message)):
        value = getattr(message, name)
        found += len(value) if isinstance(value, list) else 0
        found += sum(elements(x) for x in (value if isinstance(value, list) else [value]) if is_message(x))
    return found


def _filled(cls: Any, path: Path, n: int, repeated: bool, i: int) -> Any:
    built = cls()
    for name, hint in _hints(cls):
        rest = path[1:] if path and path[0] == name else ()
        element = _element(hint)
        if element is None:
            setattr(built, name, _value(name, _plain(hint), rest, n, repeated, i))
            continue
        size = n if path == (name,) else 1
        values = [_value(name, element, rest, n, repeated, i + k * (not repeated)) for k in range(size)]
        setattr(built, name, values)
    return built


def _value(name: str, hint: Any, path: Path, n: int, repeated: bool, i: int) -> Any:
    if is_message(hint):
        return _filled(hint, path, n, repeated, i)
    if hint is str:
        # The first is the group itself; of the others, every other one is managed.
        return GROUP if i == 0 else f"{THEIRS if i % 2 else GROUP}{i}"
    if hint is int:
        return _SPECIAL.get(name, i % 128 if name in OF_ONE_BYTE else i)
    if hint is bytes:
        return i.to_bytes(16, "big")
    return False


_SPECIAL = {"key_type": 0, "resource_type": GROUP_RESOURCE, "config_operation": 0, "member_epoch": 1}
"""Numbers without which a handler would not look further."""
OF_ONE_BYTE = ("node_type", "resource_types")


def _hints(cls: Any) -> list[tuple[str, Any]]:
    found = _HINTS.get(cls)
    if found is None:
        hints = get_type_hints(cls)  # takes longer than a handler does
        found = _HINTS[cls] = [(f.name, hints[f.name]) for f in fields(cls)]
    return found


_HINTS: dict[Any, list[tuple[str, Any]]] = {}


@cache
def _plain(hint: Any) -> Any:
    """The type without None."""
    if get_origin(hint) in (Union, types.UnionType):
        return next(a for a in get_args(hint) if a is not type(None))
    return hint


@cache
def _element(hint: Any) -> Any:
    """Returns the type of a list's elements, or None for another type."""
    plain = _plain(hint)
    return get_args(plain)[0] if get_origin(plain) is list else None


# ---- a handler at work ------------------------------------------------------------------------------------------
PACE_TURNS = 50_000
"""Turns of an empty loop, which take some 0.6 ms."""


@dataclass(slots=True)
class Taken:
    """CPU of one request in ms: all together, and the longest stretch without a pause. `request_bytes`: what was
    sent. `pace_ms`: what a fixed piece of work takes beside it, which a busy machine makes longer in the same way.
    `compared`: most names of groups that were compared with the patterns, or looked up by the coordinator, without a
    pause."""

    total_ms: float = 0.0
    stretch_ms: float = 0.0
    request_bytes: int = 0
    pace_ms: float = 0.0
    compared: int = 0


def play(case: Case, n: int) -> Taken:
    """Drive the handler to its end, or for nobody to the first question to the broker, which answers nothing then."""
    call = _call(case, _body(case.api, case.version, case.path, n, case.repeated))
    handler = HANDLERS[case.api](call)
    taken = Taken(request_bytes=len(call.frame))
    names = count()
    value: Any = None

    def managed(group_id: str) -> bool:
        next(names)
        return group_id.startswith(GROUP)

    call.scope.managed = managed
    with no_collector(), closing(handler):
        taken.pace_ms = _pace_ms()
        while True:
            names, began = count(), time.process_time_ns()
            try:
                want = handler.send(value)
            except StopIteration:
                return taken
            finally:
                ms = (time.process_time_ns() - began) / 1e6
                taken.total_ms += ms
                taken.stretch_ms = max(taken.stretch_ms, ms)
                taken.compared = max(taken.compared, next(names))
            if isinstance(want, Coordinate) and isinstance(want.event, GroupsWithRecords):
                taken.compared = max(taken.compared, len(want.event.candidates))
            if case.caller == "nobody" and isinstance(want, Ask | Store):
                return taken
            value = came_of(want, refused=case.caller == "without rights")


def _pace_ms() -> float:
    began = time.process_time_ns()
    for _ in range(PACE_TURNS):
        pass
    return (time.process_time_ns() - began) / 1e6


@lru_cache(maxsize=4)
def _body(api: int, version: int, path: Path, n: int, repeated: bool) -> bytes:
    return bytes(grown(request_class(api), path, n, repeated).encode(version))


def _call(case: Case, body: bytes) -> Call:
    api, version = case.api, case.version
    frame = request_frame(api, version, CORRELATION, "app", flexible(api, version), body)
    pos = PREFIX.size
    if api not in READ_THEIR_HEADER:
        _, pos = header_end(frame, pos, flexible(api, version))
    leaders = (OTHER,) if case.caller == "elsewhere" else (NODE,)
    view = type(VIEW)(owners=(NODE,), leaders=leaders, brokers=VIEW.brokers)
    scope = Scope(
        NODE,
        lambda g: g.startswith(GROUP),
        True,
        KEEP_MS,
        lambda: "new-id",
        share=True,
        streams=True,
        moved=lambda g: True,
    )
    client = Client("10.0.0.9", broker_versions={a: (s.low, s.high) for a, s in SERVED.items()})
    return Call(scope, client, view, api, version, CORRELATION, frame, pos, "app", 1_000)


def came_of(want: Any, refused: bool = False) -> Any:
    """Returns the result of this want. `refused`: the broker refuses the client everything."""
    if isinstance(want, Coordinate):
        return _coordinator(want.event)
    if isinstance(want, Ask):
        _, api, version, _ = PREFIX.unpack_from(want.frame, 0)
        _, pos = header_end(want.frame, PREFIX.size, flexible(api, version))
        body = want.frame[pos:]
    elif isinstance(want, Store):
        api, version, body = want.api_key, want.version, want.body
    else:
        return None
    answer = broker(api, version, body, refused)
    return response_frame(CORRELATION, api != Api.API_VERSIONS and flexible(api, version), answer.encode(version))


def _coordinator(event: Any) -> Any:
    if isinstance(event, GroupsWithRecords):
        return GroupsWithRecordsReply(groups=frozenset(event.candidates[::2]))
    if isinstance(event, ListGroups):
        return ListReply(groups=tuple(Listed(f"{GROUP}{i}", "consumer", "Stable", "classic") for i in range(100)))
    if isinstance(event, DeletionCheck):
        return DeletionCheckReply(exists=True, subscribed=frozenset(f"{GROUP}{i}" for i in range(100)))
    if isinstance(event, DescribeSettings):
        return SettingsReply(groups=dict.fromkeys(event.groups, ()))
    return event.answer()


# ---- the broker's answers ---------------------------------------------------------------------------------------
def broker(api: int, version: int, body: bytes, refused: bool) -> Any:
    """An answer that names everything that the request has named, as a broker's does."""
    request = request_class(api).decode(version, body)
    answer = _mirrored(response_class(api), request, version)
    if refused:
        _refuse(answer)
    return answer


RENAMED = {
    "results": ("groups_names", "resources"),
    "responses": ("resources",),
    "groups": ("groups", "group_ids"),
    "coordinators": ("coordinator_keys",),
}
"""Arrays of a response, with their names in the request."""
ELEMENT_NAMES = ("group_id", "key")
"""The field of an answer's element that repeats an element of the request that is a string."""


def _mirrored(cls: Any, request: Any, version: int) -> Any:
    built = cls()
    for name, hint in _hints(cls):
        element = _element(hint)
        if element is None:
            if hasattr(request, name):
                setattr(built, name, getattr(request, name))
            elif name.endswith("authorized_operations"):
                setattr(built, name, READ)
            continue
        said = next((getattr(request, x) for x in (name, *RENAMED.get(name, ())) if hasattr(request, x)), None)
        setattr(built, name, [_mirror(element, x, version) for x in said or ()])
    return built


def _mirror(element: Any, said: Any, version: int) -> Any:
    if not is_message(element):
        return said
    if is_message(said):
        return _mirrored(element, said, version)
    make: Any = element
    built = make()
    for name, hint in _hints(element):
        if (hint is str and name in ELEMENT_NAMES) or name in ("partition_index", "partition"):
            setattr(built, name, said)
    return built


def _refuse(answer: Any) -> None:
    for name, hint in _hints(type(answer)):
        value = getattr(answer, name)
        if name == "error_code":
            of_topic = any(field.startswith(("partition", "topic")) for field, _ in _hints(type(answer)))
            setattr(answer, name, DENIED["topic" if of_topic else "group"])
        elif name.endswith("authorized_operations"):
            setattr(answer, name, 0)
        elif _element(hint) is not None and is_message(_element(hint)):
            for x in value:
                _refuse(x)
