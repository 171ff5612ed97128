"""Requests leave nothing in memory that grows with what a client has sent, for every API that is served.

Each caller sends requests in which every string is long and new: nobody (a broker with SASL closes its connection), a
client without rights, and one that may do everything to groups that are not there.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import random
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sidecar.core.vocabulary.errors import Code
from sidecar.front.front import Front
from sidecar.front.session import Session
from sidecar.wire.apis import SERVED, Api, message_name, response_flexible
from sidecar.wire.frames import PREFIX, header_end, request_frame, response_frame
from sidecar.wire.generated import api_versions as av
from sidecar.wire.generated import describe_groups as dg
from sidecar.wire.generated import metadata as md
from tests.inprocess import clock
from tests.inprocess.broker import flexible, module, refusal
from tests.inprocess.embedded_sidecar import EmbeddedSidecar, turns, until
from tests.inprocess.transport import MemoryTransport, frames
from tests.wire.messages import Spec, specs
from tools.wire_model import INTS, Field

SIZES = (2_000, 20_000)
"""Sizes of the strings: a request with one of the former is read before a client has authenticated."""
REQUESTS = 40
KEPT_BYTES = 150_000
"""Far less than the strings of one field take, and more than what a run of the loop leaves behind."""
JOINS = (Api.JOIN_GROUP, Api.CONSUMER_GROUP_HEARTBEAT)
"""APIs that make a group of that name if the client has the right: that is state, and has limits of its own."""
GROUP_RESOURCE = 32
Caller = Callable[[int, int, Any], Any]
"""Returns the broker's answer to a request of the sidecar's, or to one that passes; None: it closes the connection."""


def no_answer(api: int, version: int, request: Any) -> Any:
    return av.ApiVersionsResponse() if api == Api.API_VERSIONS else None


def without_rights(api: int, version: int, request: Any) -> Any:
    return _answer(api, version, request, Code.GROUP_AUTHORIZATION_FAILED, Code.TOPIC_AUTHORIZATION_FAILED)


def with_rights(api: int, version: int, request: Any) -> Any:
    return _answer(api, version, request, Code.NONE, Code.NONE)


def _answer(api: int, version: int, request: Any, group: Code, topic: Code) -> Any:
    if api == Api.METADATA:
        return md.MetadataResponse()
    if api == Api.DESCRIBE_GROUPS:
        return dg.DescribeGroupsResponse(groups=[dg.DescribedGroup(group, group_id=g) for g in request.groups])
    if api in (Api.HEARTBEAT, Api.OFFSET_DELETE, Api.FIND_COORDINATOR, Api.DESCRIBE_CONFIGS):
        return refusal(Api(api), request, version, group)
    if api == Api.LIST_OFFSETS:
        return refusal(Api.LIST_OFFSETS, request, version, topic)
    return no_answer(api, version, request)


class Broker:
    """The broker behind one connection of this caller."""

    def __init__(self, caller: Caller, upstream: asyncio.Protocol) -> None:
        self._caller = caller
        self._bytes = bytearray()
        self._transport = MemoryTransport(upstream, ("broker", 9092))
        self._transport.on_write = self._written
        self._transport.protocol.connection_made(self._transport)

    def _written(self, data: bytes) -> None:
        self._bytes += data
        for frame in frames(bytes(self._bytes)):
            del self._bytes[: len(frame)]
            self._asked(frame)

    def _asked(self, frame: bytes) -> None:
        _, api, version, correlation = PREFIX.unpack_from(frame)
        _, pos = header_end(frame, PREFIX.size, flexible(api, version))
        request = getattr(module(api), f"{message_name(api)}Request").decode(version, frame, pos)
        response = self._caller(api, version, request)
        loop = asyncio.get_running_loop()
        if response is None:
            loop.call_soon(self._transport.lose)
        else:
            flexible_head = api != Api.API_VERSIONS and (
                response_flexible(api, version) if api in SERVED else flexible(api, version)
            )
            loop.call_soon(self._transport.feed, response_frame(correlation, flexible_head, response.encode(version)))


class SessionWithBroker(Session):
    def __init__(self, front: Front, caller: Caller) -> None:
        super().__init__(front.server)
        self._caller = caller
        self.upstream.connect = self._reach

    async def _reach(self, factory: Callable[[], Any]) -> None:
        Broker(self._caller, factory())


class Named(Spec):
    """A message whose strings are all new."""

    def __init__(self, spec: Spec, size: int, numbers: Iterator[int]) -> None:
        super().__init__(spec.message, spec.module)
        self._size, self._numbers = size, numbers

    def _value(self, f: Field, rng: random.Random, version: int, depth: int) -> Any:
        if f.name == "resource_type":
            return GROUP_RESOURCE
        one = self._one(f.element if f.is_array else f.type, rng, version, depth + 1)
        return [one] if f.is_array else one

    def _one(self, kind: str, rng: random.Random, version: int, depth: int) -> Any:
        if kind == "string":
            return f"{next(self._numbers)}-".ljust(self._size, "x")
        return 0 if kind in INTS else super()._one(kind, rng, version, depth)


@pytest.fixture(scope="module")
def requests(libs: Path) -> dict[str, Spec]:
    return {s.message.name: s for s in specs()}


async def _send(sidecar: EmbeddedSidecar, caller: Caller, api: Api, spec: Named, version: int) -> None:
    session = SessionWithBroker(sidecar.front, caller)
    client = MemoryTransport(session, ("10.0.0.9", 50_000))
    session.connection_made(client)
    body = spec.make(random.Random(1), version).encode(version)
    client.feed(request_frame(api, version, 1, "c" * 100, flexible(api, version), body))
    await turns(12)
    client.lose()
    await turns(3)


def _left(sidecar: EmbeddedSidecar) -> int:
    sidecar.brokers.asked.clear()
    sidecar.lines.lines.clear()
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


CASES = [
    pytest.param(Api(key), caller, id=f"{Api(key).name.lower()}-{caller.__name__}", marks=pytest.mark.tier(tier))
    for key in SERVED
    for caller, tier in ((no_answer, "nightly"), (without_rights, "nightly"), (with_rights, "test"))
    if key not in JOINS or caller is not with_rights
]
"""A caller with rights goes the longest way; refused ones have their turn at night."""


@pytest.mark.parametrize(("api", "caller"), CASES)
def test_nothing_stays_of_names_that_a_client_makes_up(requests: dict[str, Spec], api: Api, caller: Caller) -> None:
    numbers = itertools.count()

    async def main() -> None:
        async with EmbeddedSidecar(partitions=1) as sidecar:
            version = min(SERVED[api].high, max(requests[f"{message_name(api)}Request"].versions))
            for size in SIZES:
                spec = Named(requests[f"{message_name(api)}Request"], size, numbers)
                for _ in range(3):
                    await _send(sidecar, caller, api, spec, version)
                before = _left(sidecar)
                for _ in range(REQUESTS * SIZES[-1] // size // 4):
                    await _send(sidecar, caller, api, spec, version)
                await until(lambda: not sidecar.front.channel.under_way and not len(sidecar.coordinator.moves.parked))
                kept = _left(sidecar) - before
                assert kept < KEPT_BYTES, f"{kept} bytes of names of {size}"

    tracemalloc.start()
    try:
        clock.run(main())
    finally:
        tracemalloc.stop()
