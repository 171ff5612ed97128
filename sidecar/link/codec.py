"""The messages as bytes, for a front and a coordinator in two processes.

A frame is its length (4 bytes, big-endian, without itself), the kind of its message (1 byte) and MessagePack. Which
events and answers there are is read from the registry of kinds of groups. Both processes are of one version, which
they exchange first (`Hello`): the frames are no interface for others, and are never stored.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from functools import cached_property, reduce
from operator import or_
from typing import Any

import msgspec
from msgspec import MsgspecError, Struct
from msgspec.msgpack import Decoder, Encoder

from sidecar.core.kinds import REGISTRY
from sidecar.core.runtime.events import DeleteGroup, DeletionCheck, Event, GroupsWithRecords, ListGroups
from sidecar.core.runtime.registry import Registry
from sidecar.link.messages import (
    SETTINGS_EVENTS,
    AccessAnswer,
    AskAccess,
    BrokerSilence,
    CommitEnded,
    Grant,
    GroupRules,
    Lease,
    OpenOffsets,
    OpenShareState,
    Reply,
    Request,
    SettingsPassed,
    TopicsPassed,
    Touch,
    View,
    Void,
)

SIMPLE: tuple[type[Struct], ...] = (
    Touch,
    AccessAnswer,
    CommitEnded,
    SettingsPassed,
    TopicsPassed,
    Lease,
    View,
    GroupRules,
    AskAccess,
    Void,
    BrokerSilence,
)
REQUEST, REPLY = len(SIMPLE), len(SIMPLE) + 1
HELLO = 255
"""The kind of the first frame in either direction, in this and all later versions. Its body is JSON."""
FRAME_BYTES = 256 << 20
"""Default of `limits.link_frame_bytes`; a longer frame closes the link."""


class LinkError(Exception):
    """Bytes that are no message of this version. The link must be closed."""


class Hello(Struct, frozen=True):
    """The sender's version: that of its package, and a digest of the shapes of all messages, which also differs
    between two states of one version under development."""

    version: str
    shapes: str


class LinkCodec:
    def __init__(self, registry: Registry = REGISTRY) -> None:
        inner = [e for e in registry.events if not e.inner]
        every = (DeletionCheck, DeleteGroup, ListGroups, GroupsWithRecords, OpenOffsets, OpenShareState)
        events: list[type[Event]] = [*inner, *every, *SETTINGS_EVENTS]
        answers = list(dict.fromkeys(e.answer for e in events))
        any_event, any_answer = reduce(or_, events), reduce(or_, answers)
        self._types = (*SIMPLE, *events, *answers, Grant)
        self._encoder = Encoder()
        self._kinds = {cls: i for i, cls in enumerate(SIMPLE)}
        self._simple: list[Decoder[Any]] = [Decoder(cls) for cls in SIMPLE]
        self._request: Decoder[Any] = Decoder(tuple[int, any_event])  # type: ignore[valid-type]
        self._reply: Decoder[Any] = Decoder(tuple[int, any_answer, Grant | None])  # type: ignore[valid-type]

    @cached_property
    def shapes(self) -> str:
        """Digest of the messages' shapes: names, order, types and defaults of their fields."""
        schema = json.dumps(msgspec.json.schema_components(self._types), sort_keys=True)
        return hashlib.sha256(schema.encode()).hexdigest()[:16]

    def encode(self, message: Struct) -> bytes:
        if isinstance(message, Hello):
            kind, body = HELLO, msgspec.json.encode(message)
        elif isinstance(message, Request):
            kind, body = REQUEST, self._encoder.encode((message.token, message.event))
        elif isinstance(message, Reply):
            kind, body = REPLY, self._encoder.encode((message.token, message.answer, message.grant))
        else:
            kind, body = self._kinds[type(message)], self._encoder.encode(message)
        return (len(body) + 1).to_bytes(4, "big") + bytes((kind,)) + body

    def decode(self, frame: memoryview | bytes) -> Any:
        """Decodes a frame without its length. Raises LinkError."""
        kind, body = frame[0], frame[1:]
        try:
            if kind == HELLO:
                return msgspec.json.decode(body, type=Hello)
            if kind == REQUEST:
                return Request(*self._request.decode(body))
            if kind == REPLY:
                return Reply(*self._reply.decode(body))
            return self._simple[kind].decode(body)
        except (MsgspecError, ValueError, IndexError) as exc:  # text that is no UTF-8 is a plain ValueError
            raise LinkError(f"message of kind {kind}: {exc}") from exc


class Frames:
    """Cuts incoming bytes into messages."""

    def __init__(self, codec: LinkCodec, frame_bytes: int = FRAME_BYTES) -> None:
        self._codec = codec
        self._frame_bytes = frame_bytes
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Any]:
        """Takes in bytes. Returns an iterator over the messages that are complete; those that the caller does not take
        come with the next call. It raises LinkError."""
        self._buffer += data
        return self._complete()

    def _complete(self) -> Iterator[Any]:
        while len(self._buffer) >= 5:
            size = int.from_bytes(self._buffer[:4], "big")
            if size < 1:
                raise LinkError(f"a frame of {size} bytes")
            if size > self._frame_bytes:
                most = f"more than limits.link_frame_bytes {self._frame_bytes}"
                raise LinkError(f"a frame of {size} bytes, {most}: raise it in both processes")
            if len(self._buffer) < 4 + size:
                return
            frame = bytes(self._buffer[4 : 4 + size])
            del self._buffer[: 4 + size]
            yield self._codec.decode(frame)
