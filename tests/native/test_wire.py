"""The compiled codec by layout, its Python twin and the generated codec agree, also on what is no message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sidecar.api.classic import BEAT, JOIN, JOINED, SYNC, SYNCED
from sidecar.api.consumer_group_heartbeat import LAYOUTS
from sidecar.api.heartbeat_reply import REPLY, REPLY_ASSIGNED
from sidecar.native import _wire, wire_twin
from sidecar.wire.frames import header_end, request_frame
from sidecar.wire.generated import consumer_group_heartbeat as ch
from sidecar.wire.generated import heartbeat as hb
from sidecar.wire.generated import join_group as jg
from sidecar.wire.generated import sync_group as sy
from sidecar.wire.primitives import STRING_MAX, WireError, put_uvarint
from tests.harness.properties import given, settings, st

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


@settings(max_examples=200)
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


# ---- the classic protocol
NAMED = st.lists(st.tuples(TEXT, st.binary(max_size=200)), max_size=3).map(tuple)
CLASSIC: dict[int, tuple[dict[int, str], st.SearchStrategy[tuple[Any, ...]]]] = {
    11: (JOIN, st.tuples(TEXT, INTS, INTS, TEXT, NULLABLE, TEXT, NAMED, NULLABLE)),
    12: (BEAT, st.tuples(TEXT, INTS, TEXT, NULLABLE)),
    14: (SYNC, st.tuples(TEXT, INTS, TEXT, NULLABLE, NULLABLE, NULLABLE, NAMED)),
}
"""By API: the layouts, and the fields as the newest layout reads them."""


def classic_body(api: int, version: int, f: tuple[Any, ...]) -> tuple[bytes, tuple[Any, ...]]:
    """As the generated codec writes it, and the fields that this version has."""
    if api == 11:
        protocols = [jg.JoinGroupRequestProtocol(n, m) for n, m in f[6]]
        return jg.JoinGroupRequest(f[0], f[1], f[2], f[3], f[4], f[5], protocols, f[7]).encode(
            version
        ), f if version >= 8 else f[:7]
    if api == 12:
        return hb.HeartbeatRequest(*f).encode(version), f
    given_ = [sy.SyncGroupRequestAssignment(m, a) for m, a in f[6]]
    body = sy.SyncGroupRequest(f[0], f[1], f[2], f[3], f[4], f[5], given_).encode(version)
    return body, f if version >= 5 else (*f[:4], f[6])


def classic_read(api: int, version: int, raw: bytes) -> tuple[Any, ...]:
    """As the generated codec reads it. Raises WireError."""
    client, pos = header_end(raw, 12, True)
    if api == 11:
        j = jg.JoinGroupRequest.decode(version, raw, pos)
        named = tuple((p.name, p.metadata) for p in j.protocols)
        times = (j.session_timeout_ms, j.rebalance_timeout_ms)
        who = (j.member_id, j.group_instance_id, j.protocol_type)
        return (client, j.group_id, *times, *who, named, *((j.reason,) if version >= 8 else ()))
    if api == 12:
        b = hb.HeartbeatRequest.decode(version, raw, pos)
        return (client, b.group_id, b.generation_id, b.member_id, b.group_instance_id)
    s = sy.SyncGroupRequest.decode(version, raw, pos)
    protocol = (s.protocol_type, s.protocol_name) if version >= 5 else ()
    parts = tuple((a.member_id, a.assignment) for a in s.assignments)
    return (client, s.group_id, s.generation_id, s.member_id, s.group_instance_id, *protocol, parts)


@settings(max_examples=200)
@given(st.sampled_from((11, 12, 14)), NULLABLE, st.data())
def test_classic_requests_are_read_alike_by_all(api: int, client: str | None, data: st.DataObject) -> None:
    layouts, drawn = CLASSIC[api]
    version = data.draw(st.sampled_from(sorted(layouts)))
    body, want = classic_body(api, version, data.draw(drawn))
    raw = request_frame(api, version, 7, client, True, body)
    layout = layouts[version]
    assert _wire.unpack(layout, raw, 12) == wire_twin.unpack(layout, raw, 12) == (client, *want)
    broken = bytearray(raw)
    for _ in range(data.draw(st.integers(1, 3))):
        broken[data.draw(st.integers(12, len(raw) - 1))] = data.draw(st.integers(0, 255))
    bad = bytes(broken[: data.draw(st.integers(12, len(raw)))])
    compiled = outcome(lambda: _wire.unpack(layout, bad, 12))
    assert compiled == outcome(lambda: wire_twin.unpack(layout, bad, 12))
    if compiled is not ValueError:  # what these accept, the generated codec reads as the same message
        assert compiled == classic_read(api, version, bad)


MEMBERS = st.lists(st.tuples(TEXT, NULLABLE, st.binary(max_size=700)), max_size=3).map(tuple)


@given(INTS, NULLABLE, NULLABLE, TEXT, st.booleans(), TEXT, MEMBERS, st.binary(max_size=700))
def test_classic_answers_are_written_alike_by_all(
    generation: int, kind: str | None, name: str | None, leader: str, skip: bool, member: str, of: Any, part: bytes
) -> None:
    told = [jg.JoinGroupResponseMember(*m) for m in of]
    want = jg.JoinGroupResponse(0, 27, generation, kind, name, leader, skip, member, told).encode(9)
    values = (0, 27, generation, kind, name, leader, skip, member, of)
    assert _wire.pack(JOINED, *values) == wire_twin.pack(JOINED, *values) == want
    want = sy.SyncGroupResponse(0, 27, kind, name, part).encode(5)
    assert _wire.pack(SYNCED, 0, 27, kind, name, part) == wire_twin.pack(SYNCED, 0, 27, kind, name, part) == want


def skipped(impl: Any, raw: bytes | bytearray, at: int, end: int) -> int | str:
    try:
        return int(impl.skip_tags(raw, at, end))
    except (ValueError, IndexError) as exc:
        return type(exc).__name__


@given(st.lists(st.tuples(st.integers(0, 1 << 33), st.binary(max_size=300)), max_size=9), st.binary(max_size=9), INTS)
def test_tagged_fields_are_skipped_alike(fields: list[tuple[int, bytes]], more: bytes, n: int) -> None:
    raw = bytearray()
    put_uvarint(raw, len(fields))
    for tag, data in fields:
        put_uvarint(raw, tag)
        put_uvarint(raw, len(data))
        raw += data
    end = len(raw)
    fits = all(tag < 1 << 32 for tag, _ in fields)
    raw += more
    assert skipped(_wire, raw, 0, end) == skipped(wire_twin, raw, 0, end) == (end if fits else "ValueError")
    at = abs(n) % (len(raw) + 1)  # of anything
    for stop in (at, end, len(raw), len(raw) + 1_000_000):
        assert skipped(_wire, raw[at:], 0, stop) == skipped(wire_twin, raw[at:], 0, stop)


@pytest.mark.parametrize(
    ("text", "value"),
    [("", 0), ("a", 97), ("demo", 3079651), ("polygenelubricants", -(1 << 31)), ("☃", 9731), ("😀", 1772899)],
)
def test_hashes_that_java_printed(text: str, value: int) -> None:
    assert _wire.java_hash(text) == wire_twin.java_hash(text) == value


@given(st.text(max_size=300))
def test_hashes_are_javas(text: str) -> None:
    units = text.encode("utf-16-be", "surrogatepass")
    want = 0
    for i in range(0, len(units), 2):
        want = (31 * want + int.from_bytes(units[i : i + 2], "big")) % (1 << 32)
    assert _wire.java_hash(text) % (1 << 32) == want and _wire.java_hash(text) == wire_twin.java_hash(text)


@pytest.mark.parametrize("impl", [_wire, wire_twin], ids=["compiled", "twin"])
def test_strings_are_as_long_as_kafka_has_them(impl: Any) -> None:
    fits, long = "x" * STRING_MAX, "ü" * (STRING_MAX // 2 + 1)
    assert impl.unpack("S", impl.pack("S", fits), 0) == (fits,)
    for layout, value in (("S", long), ("m", ((long, None, b""),)), ("m", (("a", long, b""),))):
        with pytest.raises(ValueError, match="too long"):
            impl.pack(layout, value)
    out = bytearray()
    put_uvarint(out, STRING_MAX + 2)
    raw = bytes(out) + b"x" * (STRING_MAX + 1)
    for layout in "sS":
        with pytest.raises(ValueError, match="too long"):
            impl.unpack(layout, raw, 0)


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
    for layout, value in (("B", "text"), ("m", [1]), ("m", (("a", None),)), ("m", (("a", None, "text"),))):
        with pytest.raises(TypeError):
            impl.pack(layout, value)
    with pytest.raises(ValueError, match="past the end"):
        impl.unpack("i", b"\0\0", 9)
    with pytest.raises(ValueError, match="longer than its bytes"):
        impl.unpack("a", b"\xff\xff\xff\xff\x0f", 0)


@pytest.mark.parametrize("impl", [_wire, wire_twin], ids=["compiled", "twin"])
def test_values_at_the_limits_of_their_kinds(impl: Any) -> None:
    for size in (0, 126, 127, 128, 16_382, 16_383, 16_384, 32_767):
        text = "x" * size
        raw = impl.pack("S", text)
        assert raw == wire_twin.pack("S", text) and impl.unpack("S", raw, 0) == impl.unpack("s", raw, 0) == (text,)
    for size in (16_384, 2_097_151, 2_097_152):
        assert impl.pack("B", b"x" * size) == wire_twin.pack("B", b"x" * size)
    with pytest.raises(ValueError, match="too long"):
        impl.unpack("s", wire_twin.pack("S", "x" * 32_768), 0)
    assert impl.unpack("S", b"\0", 0) == (None,)
    with pytest.raises(ValueError, match="null"):
        impl.unpack("s", b"\0", 0)
