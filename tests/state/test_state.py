"""Records to bytes and back, the pinned schemas, the batch format."""

from __future__ import annotations

from array import array
from dataclasses import asdict
from io import BytesIO
from struct import unpack_from

import pytest
from crc32c import crc32c
from fastavro import schemaless_reader, schemaless_writer

from sidecar.assign.layout import Layout
from sidecar.core.classic import records as classic
from sidecar.core.consumer.records import (
    CurrentRecord,
    GroupRecord,
    Kind,
    MemberRecord,
    MemberState,
    RegexRecord,
    StaticMemberRecord,
    TargetMemberRecord,
    TargetMetadataRecord,
)
from sidecar.core.consumer.target_table import Table
from sidecar.core.runtime.records import Record, Tombstone
from sidecar.core.vocabulary.topics import Topic, TopicImage
from sidecar.native import _kernel, twin
from sidecar.state.batch import encode_batch
from sidecar.state.codec import Encoded, Stamp, StateCodec, owner_epoch_of
from sidecar.state.keys import StateKey, decode_key, encode_key
from sidecar.state.schema import Schemas, StateError, published
from tests.harness.properties import given, settings, st

STAMP = Stamp(131_465_217 << 16 | 7, 1_795_000_000_000)
TOPIC = b"\x01" * 16
RECORDS: list[Record] = [
    GroupRecord("g", 5, -7, "a joined"),
    MemberRecord("g", "m", "i", None, "c", "/127.0.0.1", 300_000, ("a", "b"), None, "range", "joined"),
    MemberRecord("ü", "m☃", None, "r", "", "", -1, (), "a.*", None, ""),
    StaticMemberRecord("g", "i", "m", "joined"),
    TargetMetadataRecord("g", 5, 1_795_000_000_123, "uniform", "w"),
    TargetMemberRecord("g", "m", {TOPIC: (0, 2)}, {TOPIC: "orders"}, "w"),
    CurrentRecord(
        "g", "m", 5, 4, MemberState.UNREVOKED_PARTITIONS, {TOPIC: {0: 3, 2: 5}}, {TOPIC: {1: 3}}, {TOPIC: "t"}, "w"
    ),
    RegexRecord("g", "a.*", ("a", "ab"), 3, 1_795_000_000_000, "resolved"),
    classic.GroupRecord("g", classic.State.STABLE, 3, "consumer", "range", "m", 3, 1_795_000_000_000, "assigned"),
    classic.GroupRecord("g", classic.State.EMPTY, 0, None, None, None, -1, 0, ""),
    classic.MemberRecord(
        "g",
        "m☃",
        "i",
        "c",
        "/127.0.0.1",
        10_000,
        -1,
        (("range", b"\xff\x00"), ("range", b""), ("", b"x")),
        False,
        3,
        (classic.StaleClaim("a", (0, 2), -1, ""), classic.StaleClaim("b", (), 2, "m2")),
        "joined",
    ),
    classic.MemberRecord("g", "m", None, "", "", 6_000, 300_000, ()),
    classic.AssignmentRecord("g", "m", 3, b"\x00\xff", "assigned"),
    classic.AssignmentRecord("g", "m", 0, b""),
]

# A released schema never changes: a new version is a new file. See sidecar/state/schemas/README.md.
PINNED = {
    "bba0277fc072526b": "Current",
    "f6baf3d2d3889a99": "Group",
    "8089df6d3f754f94": "GroupStateKey",
    "ef5c839c1592e574": "Member",
    "46be12deca2869c3": "OwnerClaim",
    "bbd66fdc1ba1ea73": "OwnerClaim",
    "a9e126d9b18f7d7a": "Regex",
    "d7a209daed3e60c6": "StaticMember",
    "1a1c4c1cfec18174": "TargetMember",
    "dad84baa39afcada": "Config",
    "efdd024131489f26": "TargetMetadata",
    "728ef049d6f0b127": "Member",
    "17ebf1cb3df48115": "ClassicGroup",
    "12dd656028c4db28": "ClassicGroup",
    "c1e8e4e5e1bf1659": "ClassicMember",
    "d52175ab8c4f360b": "ClassicAssignment",
    "f2a3eeb5d9cadc7e": "ShareCurrent",
    "272a9e04f3279bca": "ShareGroup",
    "2f6a442d4ba227be": "ShareMember",
    "bfe8e8a6fb07819d": "SharePlaceholder",
    "8f2bfb1ee157c310": "ShareTargetMember",
    "3af8a74a6d2e0ae3": "ShareTargetMetadata",
    "2a64496feefd8ca5": "StreamsGroup",
    "84f2c386734fc839": "StreamsTopology",
    "6155cbcb8db97b75": "StreamsMember",
    "240bf6e4bb469808": "StreamsTargetMetadata",
    "42f8e79497fd09eb": "StreamsTargetMember",
    "f328b6f1a2055280": "StreamsCurrent",
}


@pytest.mark.parametrize("record", RECORDS, ids=lambda r: str(r.kind))
def test_round_trip(record: Record) -> None:
    codec = StateCodec()
    e = codec.encode(record, STAMP, 9)
    assert e.value is not None
    key = decode_key(e.key)
    assert key == (str(record.kind), record.group_id, record.sub_id)
    assert codec.decode(key, e.value) == (record, 9)
    assert owner_epoch_of(e.value) == STAMP.owner_epoch


def test_a_member_of_before_mixed_groups_speaks_the_consumer_protocol() -> None:
    """The older record has no field for the classic protocol."""
    old = MemberRecord("g", "m", None, "r1", "c", "/h", 30_000, ("a",), None, "range", "joined")
    files = {name: text for name, text in published().items() if name != "member-v2"}
    writer = Schemas({"member": "member-v1"}, files)
    body = old.body() | {"owner_epoch": 1, "time_ms": 2, "revision": 3, "why": "joined"}
    body.pop("classic")
    read, revision = StateCodec().decode(StateKey("member", "g", "m"), writer.encode("member", body))
    assert (read, revision) == (old, 3)
    assert isinstance(read, MemberRecord) and read.classic is None


def test_a_tombstone_says_why() -> None:
    e = StateCodec().encode(Tombstone(Kind.MEMBER, "g", "m", "session timeout"), STAMP, 0)
    assert e.value is None and dict(e.headers)["why"] == b"session timeout"


def test_the_topic_describes_itself() -> None:
    """A reader that knows nothing but the schema records of the topic reads every value."""
    writer, reader = StateCodec(), Schemas.empty()
    with pytest.raises(StateError, match="unknown schema"):
        reader.decode(writer.encode(RECORDS[0], STAMP, 1).value or b"")
    for r in writer.schema_records():
        reader.learn((r.value or b"").decode())
    for record in RECORDS:
        body = reader.decode(writer.encode(record, STAMP, 1).value or b"")
        assert body["owner_epoch"] == STAMP.owner_epoch


def test_schemas_are_pinned() -> None:
    found = {fp: text[:60] for fp, text in StateCodec().schemas.texts.items()}
    assert set(found) == set(PINNED), found


@pytest.mark.parametrize("value", [b"", b"\xc3", b"\xc3\x01" + b"x" * 8, b"{}"])
def test_damaged_values_are_a_state_error(value: bytes) -> None:
    with pytest.raises(StateError):
        StateCodec().schemas.decode(value)


def test_every_cut_of_a_value_is_a_state_error_or_a_record() -> None:
    codec = StateCodec()
    for record in RECORDS:
        value = codec.encode(record, STAMP, 1).value or b""
        for n in range(len(value)):
            with pytest.raises(StateError):
                codec.schemas.decode(value[:n])


@given(st.text(max_size=300), st.text(max_size=10), st.text(max_size=10))
def test_keys_are_plain_avro(a: str, b: str, c: str) -> None:
    raw = encode_key(a, b, c)
    assert decode_key(raw) == StateKey(a, b, c)
    schema = StateCodec().schemas.key_schema
    assert schemaless_reader(BytesIO(raw), schema, None) == {"kind": a, "group_id": b, "sub_id": c}
    out = BytesIO()
    schemaless_writer(out, schema, {"kind": a, "group_id": b, "sub_id": c})
    assert out.getvalue() == raw


@given(st.binary(max_size=40))
def test_damaged_keys_are_a_state_error(raw: bytes) -> None:
    try:
        decode_key(raw)
    except StateError:
        return


def test_batch_header() -> None:
    raw = encode_batch([Encoded(b"k", b"v"), Encoded(b"k2", None, (("h", b"x"),))], 123, 77, 3, 9)
    offset, length, _, magic, crc = unpack_from(">qiibI", raw)
    assert (offset, length, magic) == (0, len(raw) - 12, 2)
    assert crc == crc32c(raw[21:])
    assert unpack_from(">hiqqqhii", raw, 21) == (0, 1, 123, 123, 77, 3, 9, 2)


def test_targets_encoded_ahead_are_the_same_bytes() -> None:
    """By the arrays in the background, or one record at a time."""
    codec = StateCodec()
    topics = [Topic(bytes([i]) * 16, f"topic-{i}ä", ((),) * n) for i, n in enumerate((3, 1, 200))]
    image, _ = TopicImage().next(topics)
    layout = Layout.of(tuple(topics))
    owner = array("i", [i % 3 - (i % 5 == 0) for i in range(204)])
    table = Table.of(layout, {"a": 0, "b": 1, "c": 2, "d": 3}, owner)
    revisions = {(str(Kind.TARGET_MEMBER), "g", "b"): 300}
    made = codec.targets(Kind.TARGET_MEMBER, "g", table, ["a", "b", "d"], "why ü", STAMP, revisions)
    for member, revision in (("a", 1), ("b", 301), ("d", 1)):
        parts = table.get(member) or {}
        record = TargetMemberRecord("g", member, parts, image.names, "why ü")
        assert made.values[member] == codec.encode(record, STAMP, revision)
        assert made.revisions[("target_member", "g", member)] == revision


PARTS = st.dictionaries(
    st.binary(min_size=16, max_size=16), st.dictionaries(st.integers(0, 5000), st.integers(0, 2**31 - 1)), max_size=5
)


@settings(deadline=None)
@given(PARTS, PARTS, st.text(max_size=9), st.sampled_from(list(MemberState)), st.integers(-2, 2**31 - 1))
def test_current_records_are_fastavros_bytes(
    assigned: dict[bytes, dict[int, int]],
    pending: dict[bytes, dict[int, int]],
    text: str,
    state: MemberState,
    epoch: int,
) -> None:
    """The fast way, compiled and in Python, against the schema."""
    codec = StateCodec()
    names = {t: text + t.hex()[:3] for t in assigned}
    record = CurrentRecord("g", "m", epoch, epoch - 1, state, assigned, pending, names, text)

    def owned(parts: dict[bytes, dict[int, int]]) -> list[dict[str, object]]:
        return [
            {"topic_id": t, "topic_name": names.get(t, ""), "partitions": list(ps), "epochs": list(ps.values())}
            for t, ps in parts.items()
        ]

    body = {"member_epoch": epoch, "previous_epoch": epoch - 1, "state": str(state)}
    lists = {"assigned": owned(assigned), "pending": owned(pending)}
    slow = codec.schemas.encode("current", {**asdict(STAMP), "revision": 3, "why": text, **body, **lists})
    assert codec.encode(record, STAMP, 3).value == slow
    heads = {t: t + b"x" for t in (*assigned, *pending)}
    assert _kernel.avro_owned(assigned, heads, b"h") == twin.avro_owned(assigned, heads, b"h")


def test_topics_are_written_under_the_names_that_they_have_now() -> None:
    """A topic that was deleted may come again under its id's former name, or under another."""
    codec, t = StateCodec(), b"\1" * 16
    for name in ("before", "after", "before"):
        record = CurrentRecord("g", "m", 1, 0, MemberState.STABLE, {t: {0: 1}}, {}, {t: name}, "w")
        value = codec.encode(record, STAMP, 1).value
        assert value is not None
        (item,) = codec.schemas.decode(value)["assigned"]
        assert item["topic_name"] == name


TEXT = st.text(max_size=9)
INTS = st.integers(-1, 2**31 - 1)


@settings(deadline=None)
@given(
    st.lists(st.tuples(TEXT, st.binary(max_size=200)), max_size=3), TEXT, st.none() | TEXT, INTS, INTS, st.booleans()
)
def test_records_of_classic_groups_are_fastavros_bytes(
    protocols: list[tuple[str, bytes]], text: str, instance_id: str | None, a: int, b: int, told: bool
) -> None:
    """The fast way against the schema."""
    codec = StateCodec()
    member = classic.MemberRecord(
        "g", "m", instance_id, text, text + "/", a, b, tuple(protocols), told, b - 1, why=text
    )
    assignment = classic.AssignmentRecord("g", "m", a, b"".join(data for _, data in protocols), text)
    head = {**asdict(STAMP), "revision": 3, "why": text}
    records: list[classic.MemberRecord | classic.AssignmentRecord] = [member, assignment]
    for record in records:
        assert codec.encode(record, STAMP, 3).value == codec.schemas.encode(record.kind, {**head, **record.body()})
