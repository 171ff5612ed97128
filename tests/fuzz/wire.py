"""Targets: what clients and brokers send. The compiled layouts, their Python twins and the generated codec must agree.

The first two bytes of an input choose the message and its version, so that a guided run can move from one to another.
"""

from __future__ import annotations

import asyncio
import importlib
import random
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from types import ModuleType
from typing import Any

from sidecar.api.classic import BEAT, JOIN, SYNC
from sidecar.api.consumer_group_heartbeat import LAYOUTS
from sidecar.core.classic import embedded
from sidecar.kafka.net import BrokerConnection, ConnectionLost
from sidecar.native import unpack, wire_twin
from sidecar.proxy.actions import Action, Answered, Close, Got, ToClient, ToUpstream
from sidecar.proxy.connection import ClientConnection
from sidecar.wire.apis import PRODUCE_FLEXIBLE_FROM, SERVED, Api
from sidecar.wire.frames import Limits, header_end, produce_acks, request_frame, response_body, response_frame
from sidecar.wire.primitives import WireError
from tests.inprocess.transport import MemoryTransport
from tools.wire_model import SERVED as GENERATED
from tools.wire_model import snake


@cache
def messages(kind: str) -> list[tuple[type[Any], range]]:
    """Every generated message of this kind ("Request" or "Response") with its versions."""
    found = []
    for name in GENERATED:
        module: ModuleType = importlib.import_module(f"sidecar.wire.generated.{snake(name)}")
        cls = getattr(module, name + kind, None)
        if cls is not None:
            low, high = getattr(module, f"{snake(name).upper()}_{kind.upper()}_VERSIONS")
            found.append((cls, range(low, high + 1)))
    return found


def chosen(kind: str, data: bytes) -> tuple[type[Any], int, bytes]:
    many = messages(kind)
    cls, versions = many[data[0] % len(many)]
    return cls, versions[data[1] % len(versions)], data[2:]


def seeds_of(kind: str) -> Callable[[], list[bytes]]:
    """The defaults of each message, and messages of every version filled by their types."""

    def made() -> list[bytes]:
        rng = random.Random(kind)
        out = []
        for n, (cls, versions) in enumerate(messages(kind)):
            for v, version in enumerate(versions):
                out.append(bytes((n, v)) + cls().encode(version))
                out.append(bytes((n, v)) + filled(cls, rng).encode(version))
        return out

    return made


def filled(cls: type[Any], rng: random.Random) -> Any:
    """A message with something in each field, by the field's annotation."""
    module = importlib.import_module(cls.__module__)
    values: dict[str, Any] = {}
    for name in cls.__struct_fields__:
        kind = cls.__annotations__[name].removesuffix(" | None")
        if kind.startswith("list["):
            inner = kind[5:-1]
            values[name] = [random_value(inner, module, rng, cls, name) for _ in range(rng.randint(1, 3))]
        else:
            values[name] = random_value(kind, module, rng, cls, name)
    return cls(**values)


def random_value(kind: str, module: ModuleType, rng: random.Random, cls: type[Any], name: str) -> Any:
    simple: dict[str, Any] = {"str": "ab" * rng.randint(0, 3), "int": rng.randint(0, 100), "bool": rng.random() < 0.5}
    simple |= {"float": 0.5, "bytes": rng.randbytes(16)}
    return simple[kind] if kind in simple else filled(getattr(module, kind), rng)


# ---- generated messages
def request(data: bytes) -> None:
    if len(data) < 2:
        return
    cls, version, body = chosen("Request", data)
    with suppress(WireError):
        check_round_trip(cls, version, body)


def response(data: bytes) -> None:
    if len(data) < 2:
        return
    cls, version, body = chosen("Response", data)
    with suppress(WireError):
        check_round_trip(cls, version, body)


def check_round_trip(cls: type[Any], version: int, body: bytes) -> None:
    """Decodes, encodes and decodes again, and compares. Raises WireError for bytes that cannot be decoded."""
    message = cls.decode(version, body)
    raw = message.encode(version)
    other = cls.decode(version, raw)
    assert repr(other) == repr(message), (cls, version)  # by repr: NaN is not equal to itself


# ---- layouts of the compiled codec
EVERY: list[tuple[int, int, str]] = [
    *((68, v, layout) for v, layout in enumerate(LAYOUTS)),
    *((11, v, layout) for v, layout in JOIN.items()),
    *((12, v, layout) for v, layout in BEAT.items()),
    *((14, v, layout) for v, layout in SYNC.items()),
]
"""API, version, layout."""


READ_BY = {68: "ConsumerGroupHeartbeat", 11: "JoinGroup", 12: "Heartbeat", 14: "SyncGroup"}


@cache
def reader(api: int) -> type[Any]:
    """The generated request of this API."""
    return next(cls for cls, _ in messages("Request") if cls.__name__ == READ_BY[api] + "Request")


def layout_seeds() -> list[bytes]:
    rng = random.Random(14)
    out = []
    for n, (api, version, _) in enumerate(EVERY):
        for _ in range(3):
            frame = request_frame(api, version, 7, "client", True, filled(reader(api), rng).encode(version))
            out.append(bytes((n,)) + frame[12:])
    return out


def outcome(read: Callable[[], object]) -> object:
    try:
        return read()
    except ValueError:
        return ValueError


def layout(data: bytes) -> None:
    if not data:
        return
    api, version, letters = EVERY[data[0] % len(EVERY)]
    raw = b"\0" * 12 + data[1:]
    compiled = outcome(lambda: unpack(letters, raw, 12))
    assert compiled == outcome(lambda: wire_twin.unpack(letters, raw, 12)), "the twin says something else"
    if compiled is ValueError:
        return
    assert isinstance(compiled, tuple)
    client, pos = header_end(raw, 12, True)  # what a layout accepts, the generated codec accepts
    message = reader(api).decode(version, raw, pos)
    assert compiled[0] == client and compiled[1] == message.group_id


# ---- headers
def headers(data: bytes) -> None:
    for flexible in (False, True):
        with suppress(WireError):
            header_end(data, 0, flexible)
        with suppress(WireError):
            response_body(data, flexible)
    for version in (2, 3, PRODUCE_FLEXIBLE_FROM):
        with suppress(WireError):
            produce_acks(data, version, PRODUCE_FLEXIBLE_FROM)


def header_seeds() -> list[bytes]:
    return [
        request_frame(68, 1, 7, "client", True, b"body")[12:],
        request_frame(0, 9, 7, None, True, b"\0\0\1\0")[12:],
        response_frame(7, True, b"body"),
    ]


# ---- embedded metadata of classic members
def metadata(data: bytes) -> None:
    found = embedded.subscription(data)
    topics = embedded.topics_of(data)
    assert found is None or topics is not None, "what all versions begin with can be read wherever the rest can"
    if found is not None:
        stripped = embedded.subscription(embedded.without_claims(data, found.owned))
        assert stripped is not None and not any(stripped.owned.values())
    embedded.assigned(data)


def metadata_seeds() -> list[bytes]:
    rng = random.Random(0)
    out = []
    for cls, versions in messages_of("consumer_protocol_subscription", "consumer_protocol_assignment"):
        out += [v.to_bytes(2, "big") + filled(cls, rng).encode(v) for v in versions for _ in range(2)]
    return out


def messages_of(*modules: str) -> list[tuple[type[Any], range]]:
    found = []
    for name in modules:
        module = importlib.import_module(f"sidecar.wire.generated.{name}")
        cls = getattr(module, "".join(w.title() for w in name.split("_")))
        low, high = next(v for k, v in vars(module).items() if k.endswith("_VERSIONS"))
        found.append((cls, range(low, high + 1)))
    return found


# ---- one connection, both sides of it
def connection(data: bytes) -> None:
    """The first byte cuts: client's and broker's bytes in pieces, each request answered, forwarded or asked about."""
    if len(data) < 2:
        return
    step, rest = data[0] % 61 + 1, data[1:]
    half = len(rest) * (data[0] >> 6) // 4
    c = ClientConnection(Limits(100_000, 10_000, 4, 3))
    sides = ((c.from_client, rest[half:]), (c.from_upstream, rest[:half]))
    for take, raw in sides:
        for at in range(0, len(raw), step):
            play(c, take(raw[at : at + step]))
            play(c, c.go_on())
    assert c.closed or c.held_bytes <= len(rest)


def play(c: ClientConnection, actions: list[Action]) -> None:
    todo = list(actions)
    for _ in range(10_000):
        if not todo:
            return
        a = todo.pop(0)
        assert isinstance(a, Got | Close | ToClient | ToUpstream | Answered)
        if isinstance(a, Got):
            way = a.correlation_id % 3
            if way == 1:
                todo += c.ask(a.token, b"\0\0\0\4abcd")
            todo += c.forward(a.token, a.frame) if way == 2 else c.answer(a.token, b"R")
    raise AssertionError("it never ends")


def connection_seeds() -> list[bytes]:
    served = [request_frame(api, spec.high, i, "c", True, b"x" * i) for i, (api, spec) in enumerate(SERVED.items())]
    passed = [request_frame(3, 9, i, "c", True, b"y" * 30) for i in range(5)]
    produce = [request_frame(0, v, 3, "c", v >= 9, b"\xff\xff\0\0" + b"r" * 50) for v in (2, 3, 9)]
    answers = [response_frame(i, True, b"z" * 20) for i in range(4)]
    block = b"".join(served[:6] + passed + produce)
    return [bytes((n,)) + b"".join(answers) + block for n in (0, 7, 64, 130, 200)] + [
        b"\5" + s for s in (*served, *passed, *produce)
    ]


# ---- our own connection to a broker
def own_connection(data: bytes) -> None:
    async def main() -> None:
        conn = BrokerConnection("fuzz")
        transport = MemoryTransport(conn)
        conn.connection_made(transport)
        waiting = [conn._send(Api.METADATA, 9, b"", True) for _ in range(2)]
        step = data[0] % 50 + 1 if data else 1
        for at in range(1, len(data), step):
            transport.feed(data[at : at + step])
        assert len(conn._buffer) <= len(data)
        transport.lose()
        for said in await asyncio.gather(*waiting, return_exceptions=True):
            if isinstance(said, bytes):
                with suppress(WireError):
                    response_body(said, True)
            else:
                assert isinstance(said, ConnectionLost)

    asyncio.run(main())


def own_seeds() -> list[bytes]:
    two = response_frame(1, True, b"one") + response_frame(2, True, b"two")
    return [bytes((n,)) + two for n in (0, 3, 49)] + [b"\x31" + two + two, b"\x00" + two[:9]]
