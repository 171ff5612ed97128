"""Targets: what stands in the state topic, what passes between front and coordinator, settings, and a whole session."""

from __future__ import annotations

import asyncio
import os
import random
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

from sidecar.coordinator.statelog.tail import StateLog
from sidecar.core.vocabulary.errors import InvariantError
from sidecar.front.session import Session, SessionServer
from sidecar.link.codec import Frames, LinkCodec, LinkError
from sidecar.link.messages import Reply, Request
from sidecar.process.settings import Settings, SettingsError, load
from sidecar.state.codec import StateCodec
from sidecar.state.keys import decode_key, encode_key
from sidecar.state.schema import StateError
from sidecar.wire.apis import SERVED, message_name
from sidecar.wire.frames import request_frame
from tests.fuzz.wire import filled, messages
from tests.inprocess.embedded_sidecar import Counted, EmbeddedSidecar, Lines, turns
from tests.inprocess.transport import MemoryTransport, frames
from tests.link.test_codec import ANSWERS, EVENTS
from tests.state.test_state import RECORDS, STAMP


# ---- link
@cache
def link_codec() -> LinkCodec:
    return LinkCodec()


def link(data: bytes) -> None:
    frames = Frames(link_codec())
    with suppress(LinkError):
        for at in range(0, len(data), 37):
            for message in frames.feed(data[at : at + 37]):
                link_codec().encode(message)


def link_seeds() -> list[bytes]:
    found = [link_codec().encode(Request(n, e)) for n, e in enumerate(EVENTS)]
    return found + [link_codec().encode(Reply(n, a, None)) for n, a in enumerate(ANSWERS)]


# ---- the state topic
@cache
def codec() -> StateCodec:
    return StateCodec()


def state(data: bytes) -> None:
    """One record, as the tail finds it and as an owner reads it: two bytes of length, key, value."""
    size = int.from_bytes(data[:2], "big") % 512
    raw, value = data[2 : 2 + size], data[2 + size :]
    try:
        key = decode_key(raw)
    except StateError:
        return
    assert decode_key(encode_key(*key)) == key
    lines = Lines()
    log = StateLog(1, codec(), lines, Counted())
    log.apply(0, 7, key, value)
    log.apply(0, 8, key, None, 3)
    log.apply(0, 9, key, value)
    assert log.partitions[0].position == 10
    for group_id in list(log.groups(0)):
        with suppress(InvariantError):
            for record in log.records(0, group_id):
                repr(record)
    if key.kind == "config":
        with suppress(StateError):
            codec().config_value(value)


def state_seeds() -> list[bytes]:
    made = [codec().encode(r, STAMP, 3) for r in RECORDS]
    made += [codec().claim(STAMP, 1, "h:9092", "m", 3, "why"), codec().config("g", "a.b", "1", 5, 3, "set")]
    made += codec().schema_records()[:3]
    return [len(e.key).to_bytes(2, "big") + e.key + (e.value or b"") for e in made]


# ---- settings
@cache
def folder() -> tempfile.TemporaryDirectory[str]:
    """Returns a folder that is removed when the process ends."""
    for name in [n for n in os.environ if n.startswith("SIDECAR_")]:
        del os.environ[name]
    return tempfile.TemporaryDirectory(prefix="sidecar-fuzz-")


def settings(data: bytes) -> None:
    file = Path(folder().name) / "settings.yaml"
    file.write_bytes(data)
    with suppress(SettingsError):
        load(file, {"listen": "127.0.0.1:9092", "broker": "127.0.0.1:19092"})


def settings_seeds() -> list[bytes]:
    lines = ["node_id: 1", "groups:", "  include: ['a.*', \"b\"]", "consumer: {max_size: 5}", "state: {topic: x}"]
    lines += [f"limits:\n  {name}: 5000" for name in type(Settings.model_fields["limits"].default).model_fields]
    whole = "\n".join(lines[:5]).encode()
    return [
        whole,
        *(line.encode() for line in lines),
        b"node_id: 2001-01-01",
        b"? [1, 2]\n: *x",
        b"a: &a [*a]",
        b"1: 2",
    ]


# ---- a whole session
class SameAnswerSession(Session):
    """A session whose broker answers every complete request with the same bytes, `answer`."""

    answer = b""

    def __init__(self, server: SessionServer) -> None:
        super().__init__(server)
        self.upstream.connect = self._reach

    async def _reach(self, factory: Callable[[], Any]) -> None:
        upstream = factory()
        transport = MemoryTransport(upstream, ("broker", 9092))
        transport.on_write = partial(self._written, transport, bytearray())
        upstream.connection_made(transport)

    def _written(self, transport: MemoryTransport, kept: bytearray, data: bytes) -> None:
        kept += data
        for frame in frames(bytes(kept)):
            del kept[: len(frame)]
            body = frame[8:12] + self.answer
            asyncio.get_running_loop().call_soon(transport.feed, len(body).to_bytes(4, "big") + body)


class Reception:
    """One sidecar in memory that takes the bytes of one client after another. It is made anew now and then, since what
    hostile clients leave behind is kept for their session's time."""

    LASTS = 400

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.sidecar: EmbeddedSidecar | None = None
        self.taken = 0

    def take(self, data: bytes) -> None:
        self.loop.run_until_complete(self._take(data))

    async def _take(self, data: bytes) -> None:
        if self.sidecar is None or self.taken >= self.LASTS:
            if self.sidecar is not None:
                await self.sidecar.__aexit__(None, None, None)
            self.sidecar = EmbeddedSidecar(managed=lambda group_id: True)
            await self.sidecar.__aenter__()
            await self.sidecar.topics(orders=4)
            self.taken = 0
        self.taken += 1
        sidecar = self.sidecar
        session = SameAnswerSession(sidecar.front.server)
        client = MemoryTransport(session)
        session.connection_made(client)
        session.answer = data[:1] * 40 if data[:1] != b"\x80" else data[20:]
        step = data[0] * 4 + 1 if data else 1
        for at in range(1, len(data), step):
            client.feed(data[at : at + step])
            await turns(2)
        await turns(6)
        client.lose()
        await turns(2)
        assert session not in sidecar.front.server.sessions
        assert sidecar.metrics.value("handler_faults") == 0, sidecar.lines.lines[-3:]
        assert sidecar.metrics.value("invariant_violations") == 0, sidecar.lines.lines[-3:]
        if sidecar.tasks.failed.done():
            sidecar.tasks.failed.result()


@cache
def reception() -> Reception:
    return Reception()


def session(data: bytes) -> None:
    reception().take(data)


def session_seeds() -> list[bytes]:
    rng = random.Random(7)
    out = []
    for cls, _ in messages("Request"):
        for api, spec in SERVED.items():
            if message_name(api) + "Request" == cls.__name__:
                for version in range(spec.low, spec.high + 1):
                    body = filled(cls, rng).encode(version)
                    flexible = version >= spec.flexible_from
                    frame = request_frame(api, version, 7, "client", flexible, body)
                    out += [b"\xff" + frame, b"\x00" + frame, b"\x80" + frame]
    return [*out, b"\x03" + out[0][1:] + out[5][1:] + out[9][1:]]
