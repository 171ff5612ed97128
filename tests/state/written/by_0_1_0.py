"""Wrote v0.1.0.jsonl, run by the code of version 0.1.0 (commit b2ae96b), whose modules it imports:

git archive b2ae96b | tar x -C FOLDER && cd FOLDER && PYTHONPATH=. python .../tests/state/written/by_0_1_0.py
"""

from __future__ import annotations

import base64
import importlib
import json
import sys
from typing import Any

PARTITIONS = 50
STAMP = (7 << 16, 1_795_000_000_000)
TOPIC_ID = bytes(range(16))
NAMES = {TOPIC_ID: "orders"}


def records(r: Any) -> list[Any]:
    """Records of a group of two members, one of them static, during a rebalance, and the tombstone of a third one."""
    stable, waits = r.MemberState.STABLE, r.MemberState.UNREVOKED_PARTITIONS
    return [
        r.GroupRecord("g", 3, 0x1234, "joined"),
        r.RegexRecord("g", "ord.*", ("orders",), 5, 1_795_000_000_000, "resolved"),
        r.MemberRecord("g", "a", None, "rack-1", "c", "/10.0.0.1", 30_000, ("orders",), None, "uniform", "joined"),
        r.MemberRecord("g", "b", "static", None, "c", "/10.0.0.2", 30_000, (), "ord.*", None, "joined"),
        r.StaticMemberRecord("g", "static", "b", "joined"),
        r.TargetMetadataRecord("g", 3, 1_795_000_000_500, "uniform", "target"),
        r.TargetMemberRecord("g", "a", {TOPIC_ID: (0, 1)}, NAMES, "target"),
        r.TargetMemberRecord("g", "b", {TOPIC_ID: (2, 3)}, NAMES, "target"),
        r.CurrentRecord("g", "a", 2, 1, waits, {TOPIC_ID: {0: 2, 1: 2}}, {TOPIC_ID: {2: 2}}, NAMES, "revokes"),
        r.CurrentRecord("g", "b", 3, 2, stable, {TOPIC_ID: {3: 3}}, {}, NAMES, "reached"),
        r.Tombstone(r.Kind.CURRENT, "g", "gone", "left"),
    ]


def main() -> None:
    codecs, old = importlib.import_module("sidecar.state.codec"), importlib.import_module("sidecar.core.records")
    codec, stamp = codecs.StateCodec(), codecs.Stamp(*STAMP)
    entries = [
        *codec.schema_records(),
        codec.claim(stamp, 1, "sidecar-1:9092", "1-abc", 4, "assigned"),
        codec.config("g", "consumer.session.timeout.ms", "50000", 1_795_000_000_000, 1, "set by an administrator"),
        *(codec.encode(record, stamp, revision) for revision, record in enumerate(records(old), 1)),
    ]
    partition = importlib.import_module("sidecar.core.placement").partition_for("g", PARTITIONS)
    for offset, (key, value, headers) in enumerate(entries):
        row: dict[str, Any] = {"partition": partition, "offset": offset, "time_ms": STAMP[1], "time_type": "create"}
        row |= {"key": text(key), "value": None if value is None else text(value)}
        sys.stdout.write(json.dumps(row | {"headers": [[name, text(v)] for name, v in headers]}) + "\n")


def text(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


if __name__ == "__main__":
    main()
