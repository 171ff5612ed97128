"""The fold finds intervals, and bites: planted double owners, stale writers and gaps are seen."""

from __future__ import annotations

import json
from typing import Any

from sidecar.audit.fold import Fold, fold_partition
from sidecar.audit.job import SCHEMAS, Audit
from sidecar.audit.report import Mark, render

T = "01" * 16
Row = dict[str, Any]


def row(
    offset: int, kind: str, sub: str, body: Any, epoch: int = 1, revision: int = 1, why: str = "w", group: str = "g"
) -> Row:
    return {
        "partition": 7,
        "offset": offset,
        "time_ms": 1000 + offset,
        "kind": kind,
        "group_id": group,
        "sub_id": sub,
        "tombstone": body is None,
        "owner_epoch": epoch,
        "revision": None if body is None else revision,
        "why": why,
        "body": None if body is None else json.dumps(body),
    }


def current(offset: int, member: str, assigned: list[int], pending: list[int] | None = None, **kw: Any) -> Row:
    def parts(ps: list[int]) -> list[Row]:
        return [{"topic_id": T, "topic_name": "t", "partitions": ps, "epochs": [1] * len(ps)}] if ps else []

    return row(
        offset,
        "current",
        member,
        {"member_epoch": 2, "assigned": parts(assigned), "pending": parts(pending or [])},
        **kw,
    )


def fold(*rows: Row) -> Any:
    f = Fold(7)
    for r in rows:
        f.add(r)
    return f.result


def test_an_interval_lasts_until_the_partition_is_given_up() -> None:
    found = fold(
        row(0, "member", "m1", {"client_id": "c1"}),
        current(1, "m1", [0, 1]),
        current(2, "m1", [0], [1], revision=2),
        current(3, "m1", [0], revision=3, why="reached epoch 3"),
        current(4, "m2", [1]),
    )
    spans = [(i.partition, i.member_id, i.from_offset, i.to_offset, i.to_why) for i in found.intervals]
    assert spans == [(0, "m1", 1, None, None), (1, "m1", 1, 3, "reached epoch 3"), (1, "m2", 4, None, None)]
    assert found.intervals[0].client_id == "c1"
    assert not found.overlaps and not found.gaps


def test_a_second_owner_is_an_overlap_also_while_the_first_still_revokes() -> None:
    found = fold(current(1, "m1", [0], [1]), current(2, "m2", [1]))
    assert [(o.partition, o.first, o.second, o.offset) for o in found.overlaps] == [(1, "m1", "m2", 2)]


def test_a_removed_member_owns_nothing() -> None:
    found = fold(
        current(1, "m1", [0]),
        row(2, "current", "m1", None, why="left"),
        row(3, "member", "m1", None),
        current(4, "m2", [0]),
    )
    assert not found.overlaps
    assert found.intervals[0].to_why == "left"


def test_a_write_of_a_fenced_owner_is_stale_and_void() -> None:
    claim = {"node_id": 2, "address": "h:1"}
    found = fold(
        row(0, "owner_claim", "5", claim, epoch=5), current(1, "m1", [0], epoch=4), current(2, "m2", [0], epoch=5)
    )
    assert [(s.offset, s.owner_epoch, s.claimed_epoch) for s in found.stale] == [(1, 4, 5)]
    assert [i.member_id for i in found.intervals] == ["m2"]


def test_what_compaction_took_is_a_gap() -> None:
    found = fold(current(5, "m1", [0], revision=4))
    assert [(g.sub_id, g.missing) for g in found.gaps] == [("m1", 3)]


def test_claims_end_where_the_next_begins() -> None:
    claim = {"node_id": 2, "address": "h:1"}
    found = fold(
        row(0, "owner_claim", "5", claim, epoch=5), row(9, "owner_claim", "6", {**claim, "node_id": 3}, epoch=6)
    )
    assert [(c.node_id, c.from_ms, c.to_ms) for c in found.claims] == [(2, 1000, 1009), (3, 1009, None)]


def test_rows_have_the_columns_of_their_table() -> None:
    claim = {"node_id": 2, "address": "h:1"}
    rows = [
        row(0, "owner_claim", "5", claim, epoch=5),
        row(1, "group", "", {"epoch": 2, "metadata_hash": 1}, epoch=5),
        current(2, "m1", [0], epoch=4),
        current(3, "m1", [0], epoch=5, revision=3),
        current(4, "m2", [0], epoch=5),
        row(5, "config", "consumer.session.timeout.ms", {"value": "50000"}, epoch=0),
    ]
    seen = set()
    for table, text in fold_partition(rows):
        seen.add(table)
        assert set(json.loads(text)) == {c.split()[0] for c in SCHEMAS[table].split(", ")}
    assert seen == set(SCHEMAS)


def test_the_report_escapes_what_clients_call_themselves() -> None:
    evil = "<script>alert(1)</script>"
    found = fold(row(0, "member", "m1", {"client_id": evil}), current(1, "m1", [0]))
    from dataclasses import asdict

    audit = Audit(records=2, intervals=[asdict(i) for i in found.intervals])
    page = render(audit, "g", [Mark(1001, "SIGKILL", True)], 2000, [("lost", 0, True)], "title")
    assert evil not in page and "&lt;script&gt;" in page
    assert "http" not in page.replace("http-equiv", ""), "opens offline: nothing is fetched"
