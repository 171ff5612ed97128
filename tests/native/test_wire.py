"""The compiled codec by layout, its Python twin and the generated codec agree, also on what is no message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.api.consumer_group_heartbeat import LAYOUTS, REPLY, REPLY_ASSIGNED
from sidecar.native import _wire, wire_twin
from sidecar.wire.frames import header_end, request_frame
from sidecar.wire.generated import consumer_group_heartbeat as ch
from sidecar.wire.primitives import WireError

TEXT = st.text(max_size=12)
NULLABLE = st.none() | TEXT
INTS = st.integers(-(2**31), 2**31 - 1)
TOPICS = st.dictionaries(st.binary(min_size=16, max_size=16), st.lists(INTS, max_size=4).map(tuple), max_size=3)
REQUESTS = st.builds(
    ch.ConsumerGroupHeartbeatRequest,
    group_id=TEXT,
    member_id=TEXT,
    member_epoch=INTS,
    instance_id=NULLABLE,
    rack_id=NULLABLE,
    rebalance_timeout_ms=INTS,
    subscribed_topic_names=st.none() | st.lists(TEXT, max_size=3),
    subscribed_topic_regex=NULLABLE,
    server_assignor=NULLABLE,
    topic_partitions=st.none() | TOPICS.map(lambda ts: [ch.TopicPartitions(t, list(ps)) for t, ps in ts.items()]),
)


def frame_of(r: ch.ConsumerGroupHeartbeatRequest, version: int, client_id: str | None) -> bytes:
    return request_frame(68, version, 7, client_id, True, r.encode(version))


def fields(r: ch.ConsumerGroupHeartbeatRequest, version: int, client_id: str | None) -> tuple[Any, ...]:
    names, owned = r.subscribed_topic_names, r.topic_partitions
    regex = (r.subscribed_topic_regex,) if version else ()
    return (
        client_id,
        r.group_id,
        r.member_id,
        r.member_epoch,
        r.instance_id,
        r.rack_id,
        r.rebalance_timeout_ms,
        None if names is None else tuple(names),
        *regex,
        r.server_assignor,
        None if owned is None else {t.topic_id: tuple(t.partitions) for t in owned},
    )


@given(REQUESTS, st.sampled_from((0, 1)), NULLABLE)
def test_a_request_is_read_alike_by_all(r: ch.ConsumerGroupHeartbeatRequest, version: int, client: str | None) -> None:
    if version == 0:
        r.subscribed_topic_regex = None
    frame = frame_of(r, version, client)
    want = fields(r, version, client)
    assert _wire.unpack(LAYOUTS[version], frame, 12) == wire_twin.unpack(LAYOUTS[version], frame, 12) == want


def outcome(read: Callable[[], object]) -> object:
    try:
        return read()
    except ValueError:
        return ValueError


@settings(max_examples=600)
@given(REQUESTS, st.data())
def test_broken_bytes_are_refused_alike(r: ch.ConsumerGroupHeartbeatRequest, data: st.DataObject) -> None:
    frame = bytearray(frame_of(r, 1, "c"))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(12, len(frame) - 1))
        frame[at] = data.draw(st.integers(0, 255))
    raw = bytes(frame[: data.draw(st.integers(12, len(frame)))])
    compiled = outcome(lambda: _wire.unpack(LAYOUTS[1], raw, 12))
    assert compiled == outcome(lambda: wire_twin.unpack(LAYOUTS[1], raw, 12))
    if compiled is not ValueError:  # what these accept, the generated codec reads as the same message
        try:
            client, pos = header_end(raw, 12, True)
            again = ch.ConsumerGroupHeartbeatRequest.decode(1, raw, pos)
        except WireError as exc:
            raise AssertionError(f"accepted what the generated codec refuses: {exc}") from exc
        assert compiled == fields(again, 1, client)


@given(INTS, st.integers(-1, 200), NULLABLE, NULLABLE, INTS, INTS, st.none() | TOPICS)
def test_a_response_is_written_alike_by_all(
    throttle: int, code: int, message: str | None, member: str | None, epoch: int, every: int, parts: Any
) -> None:
    told = None
    layout, tail = REPLY, tuple[Any, ...]((-1,))
    if parts is not None:
        told = ch.Assignment([ch.ResponseTopicPartitions(t, list(ps)) for t, ps in parts.items()])
        layout, tail = REPLY_ASSIGNED, (1, parts)
    want = ch.ConsumerGroupHeartbeatResponse(throttle, code, message, member, epoch, every, told).encode(1)
    values = (throttle, code, message, member, epoch, every, *tail)
    assert _wire.pack(layout, *values) == wire_twin.pack(layout, *values) == want


@pytest.mark.parametrize("impl", [_wire, wire_twin], ids=["compiled", "twin"])
def test_what_does_not_fit_a_layout(impl: Any) -> None:
    with pytest.raises(ValueError, match="too large"):
        impl.pack("h", 40_000)
    with pytest.raises(TypeError, match="too few"):
        impl.pack("ii", 1)
    with pytest.raises(TypeError, match="too many"):
        impl.pack("i", 1, 2)
    with pytest.raises(TypeError):
        impl.pack("p", {b"short": (1,)})
    with pytest.raises(ValueError, match="past the end"):
        impl.unpack("i", b"\0\0", 9)
    with pytest.raises(ValueError, match="longer than its bytes"):
        impl.unpack("a", b"\xff\xff\xff\xff\x0f", 0)
