"""Records of the first version are read, and it reads today's records as docs/reference/versions.md says.

v0.1.0.jsonl is a dump by the code of 0.1.0: written/by_0_1_0.py. It must never change.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sidecar.audit.source.dump import DumpRecord, read_dump
from sidecar.cli.state import _checked
from sidecar.core.classic.records import GroupRecord as ClassicGroup
from sidecar.core.classic.records import State
from sidecar.core.consumer import records as consumer_records
from sidecar.core.consumer.group import ConsumerGroup
from sidecar.core.consumer.records import ClassicTraits, MemberRecord
from sidecar.core.kinds import REGISTRY
from sidecar.core.runtime.records import Record, Tombstone
from sidecar.core.vocabulary.placement import partition_for
from sidecar.drill.drills.upgrade import checkout, has_commit
from sidecar.state.codec import CONFIG, OWNER_CLAIM, SCHEMA, Stamp, StateCodec
from sidecar.state.fold import PartitionFold
from sidecar.state.keys import decode_key
from sidecar.state.schema import published
from tests.state.written import by_0_1_0

FIRST = Path(by_0_1_0.__file__).with_name("v0.1.0.jsonl")
COMMIT = "b2ae96b"
STAMP = Stamp(8 << 16, 1_795_000_001_000)


def dumped() -> list[DumpRecord]:
    return list(read_dump(FIRST))


def read() -> list[Record]:
    """The records of groups, by today's codec."""
    codec = StateCodec()
    found: list[Record] = []
    for d in dumped():
        key = decode_key(d.key or b"")
        if key.kind not in (SCHEMA, OWNER_CLAIM, CONFIG):
            record, revision = codec.decode(key, d.value)
            assert revision == (0 if d.value is None else len(found) + 1)
            found.append(record)
    return found


def test_every_record_is_read_as_it_was_meant() -> None:
    kinds = type("Today", (), {**vars(consumer_records), "Tombstone": Tombstone})
    wanted = by_0_1_0.records(kinds)
    wanted[-1] = Tombstone("current", "g", "gone")  # its reason stands in the headers
    assert read() == wanted


def test_its_schemas_are_published_still() -> None:
    known = StateCodec().schemas.texts
    told = {k.sub_id for d in dumped() if (k := decode_key(d.key or b"")).kind == SCHEMA}
    assert len(told) == 10 and told <= set(known)


def test_its_claim_and_its_setting_are_read() -> None:
    codec = StateCodec()
    values = {decode_key(d.key or b"").kind: d.value or b"" for d in dumped()}
    assert codec.claimed_by(values[OWNER_CLAIM]) == (1, "1-abc")
    assert codec.config_value(values[CONFIG]) == ("50000", 1)


def test_the_group_is_there_again() -> None:
    fold = PartitionFold()
    for d in dumped():
        fold.apply(d.offset, decode_key(d.key or b""), d.value)
    assert fold.owners.void == 0
    codec, group = StateCodec(), ConsumerGroup("g")
    for key, value in sorted(fold.groups["g"].items(), key=lambda item: REGISTRY.order(item[0].kind)):
        group.replay(codec.decode(key, value)[0])
    assert group.epoch == group.assignment_epoch == 3
    assert sorted(group.members) == ["a", "b"] and group.static_member("static") is group.members["b"]
    assert group.members["a"].pending == {by_0_1_0.TOPIC_ID: {2: 2}}


def test_the_dump_can_be_loaded() -> None:
    assert _checked(FIRST, by_0_1_0.PARTITIONS) == {partition_for("g", by_0_1_0.PARTITIONS): len(dumped())}


OLD = """
import json, sys
from sidecar.state.codec import StateCodec
from sidecar.state.keys import decode_key
codec = StateCodec()
for text in json.loads(sys.stdin.readline()):
    codec.schemas.learn(text)
for line in sys.stdin:
    key, value = map(bytes.fromhex, json.loads(line))
    try:
        print(codec.decode(decode_key(key), value)[0])
    except Exception as exc:
        print("cannot be read:", repr(exc))
"""
MEMBER = MemberRecord(
    "g", "m", None, None, "c", "/h", 30_000, ("a",), None, "range", "joined", ClassicTraits(45_000, (("range", b"x"),))
)
NEWER_KIND = ClassicGroup("g", State.STABLE, 3, "consumer", "range", "m", 3, 1_795_000_000_000, "assigned")

if has_commit(COMMIT):

    @pytest.fixture(scope="module")
    def first_version(tmp_path_factory: pytest.TempPathFactory) -> Path:
        return checkout(COMMIT, tmp_path_factory.mktemp("versions"))

    @pytest.mark.tier("test")  # a process each
    def test_the_first_version_reads_a_newer_schema_and_no_newer_kind(first_version: Path) -> None:
        today = StateCodec()
        lines = [json.dumps(list(published().values()))]
        for record in (MEMBER, NEWER_KIND):
            e = today.encode(record, STAMP, 1)
            lines.append(json.dumps([e.key.hex(), (e.value or b"").hex()]))
        env = {**os.environ, "PYTHONPATH": str(first_version)}
        done = subprocess.run(
            [sys.executable, "-c", OLD],
            cwd=first_version,
            env=env,
            input="\n".join(lines),
            capture_output=True,
            text=True,
        )
        member, classic = done.stdout.splitlines()
        assert member.startswith("MemberRecord(group_id='g', member_id='m'") and "classic" not in member
        assert classic.startswith("cannot be read")

    @pytest.mark.tier("test")
    def test_the_first_version_writes_the_same_dump_today(first_version: Path) -> None:
        """The dump therefore comes from the first version."""
        env = {**os.environ, "PYTHONPATH": str(first_version)}
        script = [sys.executable, by_0_1_0.__file__]
        done = subprocess.run(script, cwd=first_version, env=env, capture_output=True, check=True)
        assert done.stdout == FIRST.read_bytes()
