"""The audit reports what it cannot know: by the command, its exit code, the page and the metrics alike."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from sidecar.audit.ask import query
from sidecar.audit.lake.lake import Lake
from sidecar.audit.page import view
from sidecar.audit.run import pipeline
from sidecar.audit.run.verdict import verdict
from sidecar.audit.source.uri import DumpSource
from sidecar.audit.tables.gold import GOLD
from sidecar.cli.main import app
from sidecar.core.consumer.records import CurrentRecord, GroupRecord, MemberState
from sidecar.state.codec import OWNER_CLAIM, SCHEMA, Encoded, Stamp, StateCodec
from sidecar.state.keys import decode_key
from tests.audit.lake.making import IDS, NAMES, T0, bronze, dump
from tests.audit.lake.test_killed import Died
from tests.audit.lake.test_pipeline import played
from tests.audit.lake.without_spark import SPARK

_, ENTRIES = played(3, 80)
MIDDLE = len(ENTRIES) // 2


pytestmark = pytest.mark.usefixtures("without_spark")


class LakeReport:
    """Verdict on a lake, and the same from the command and the page."""

    def __init__(self, lake: Lake) -> None:
        self.verdict = verdict(lake)
        done = CliRunner().invoke(app, ["audit", "status", "--lake", str(lake.base)])
        self.code, self.text = done.exit_code, done.stdout
        tables = {n: lake.read_arrow(t) for n, t in GOLD.items()}
        page = view(tables, title="t", until_ms=1 << 50, lacks=self.verdict.lacks)["verdict"]
        assert page["complete"] == self.verdict.complete == (self.code == 0)
        assert page["text"] and (page["state"] == "clean") == (self.code == 0)
        self.page = page["text"]


def filled(tmp_path: Path, *parts: tuple[int, list[Encoded]], **options: str) -> LakeReport:
    """Runs the audit after each of `parts` was added to the source. A part: its first offset, and its records."""
    lake, source = Lake.at(tmp_path / "lake"), tmp_path / "dump.jsonl"
    for first, entries in parts:
        dump([bronze(entries, 0, first)], source)
        pipeline.audit(SPARK, f"file://{source}", lake, options)
    return LakeReport(lake)


def test_a_state_partition_whose_records_are_all_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: `status` said that every record was there, from the first one on."""
    known = DumpSource.bounds
    monkeypatch.setattr(DumpSource, "bounds", lambda self: known(self) | {1: (500, 500), 2: (0, 0)})
    report = filled(tmp_path, (0, ENTRIES))
    assert report.code == 4 and "Of 1 state partitions no record was there" in report.text
    assert Lake.at(tmp_path / "lake").batch().position.keys() == {0, 1}


def test_a_log_of_which_everything_is_there(tmp_path: Path) -> None:
    report = filled(tmp_path, (0, ENTRIES[:MIDDLE]), (0, ENTRIES))
    assert report.code == 0 and "Every record is there, from the first one on." in report.text


def test_a_log_that_begins_in_the_middle(tmp_path: Path) -> None:
    report = filled(tmp_path, (5_000, ENTRIES))
    assert report.code == 4 and report.verdict.completeness.not_read == 5_000 and "complete since 2025" in report.text
    assert "Reading began late: 5,000 offsets" in report.text and "Reading began late: 5,000 offsets" in report.page


def test_a_start_in_the_middle(tmp_path: Path) -> None:
    report = filled(tmp_path, (0, ENTRIES), starting_offsets=json.dumps({"0": MIDDLE}))
    assert report.code == 4 and report.verdict.completeness.not_read == MIDDLE


def test_a_hole_behind_which_compaction_had_not_come(tmp_path: Path) -> None:
    lake, source = Lake.at(tmp_path / "lake"), tmp_path / "dump.jsonl"
    dump([bronze(ENTRIES[:MIDDLE], 0), bronze(ENTRIES[MIDDLE:], 0, MIDDLE + 1_000)], source)
    pipeline.audit(SPARK, f"file://{source}", lake)
    report = LakeReport(lake)
    assert report.code == 4 and "1,000 offsets in a row have no record" in report.text
    assert "1,000 offsets in a row have no record" in report.page


def test_a_hole_before_anything_says_how_far_compaction_had_come(tmp_path: Path) -> None:
    """The claim stays, and so do schemas; a group that had ended does not."""
    lake, source = Lake.at(tmp_path / "lake"), tmp_path / "dump.jsonl"
    begin = next(n for n, e in enumerate(ENTRIES) if decode_key(e.key).kind not in (SCHEMA, OWNER_CLAIM))
    dump([bronze(ENTRIES[:begin], 0), bronze(ENTRIES[begin:], 0, begin + 40)], source)
    pipeline.audit(SPARK, f"file://{source}", lake)
    report = LakeReport(lake)
    known = report.verdict.completeness
    assert report.code == 4 and (known.missing, known.not_whole) == (0, 1)
    assert "40 offsets have no record. Transactions may have taken them, or compaction" in report.text


def test_committed_transactions_leave_no_doubt(tmp_path: Path) -> None:
    lake, source = Lake.at(tmp_path / "lake"), tmp_path / "dump.jsonl"
    dump([bronze(ENTRIES[:MIDDLE], 0), bronze(ENTRIES[MIDDLE:], 0, MIDDLE + 1)], source)
    pipeline.audit(SPARK, f"file://{source}", lake)
    report = LakeReport(lake)
    assert report.code == 0 and "1 offsets have no record" in report.text


def test_what_was_gone_between_two_runs(tmp_path: Path) -> None:
    report = filled(tmp_path, (0, ENTRIES[:MIDDLE]), (MIDDLE + 500, ENTRIES[MIDDLE:]))
    assert report.code == 4 and report.verdict.lost == report.verdict.completeness.lost == 500
    assert "500 offsets were gone from the topic" in report.text and "500 offsets were gone" in report.page
    assert not report.verdict.stale_writes and not report.verdict.proven, "who was the coordinator then is not known"


def test_what_was_gone_is_told_even_if_nothing_came_after_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake, source = Lake.at(tmp_path / "lake"), tmp_path / "dump.jsonl"
    dump([bronze(ENTRIES, 0)], source)
    uri = f"file://{source}"
    pipeline.audit(SPARK, uri, lake)
    end = len(ENTRIES) + 70
    with monkeypatch.context() as patch:
        patch.setattr("sidecar.audit.source.uri.DumpSource.bounds", lambda self: {0: (end, end)})
        assert pipeline.to_do(uri, lake) == 1
        batch = pipeline.audit(SPARK, uri, lake)
        assert (batch.new, batch.records, batch.lost, batch.position) == (True, 0, {0: (len(ENTRIES), end)}, {0: end})
        assert pipeline.to_do(uri, lake) == 0 and pipeline.audit(SPARK, uri, lake).number == 1, "it is reported once"
    assert lake.batch().number == 1
    report = LakeReport(lake)
    assert report.code == 4 and report.verdict.completeness.lost == 70


def test_gold_that_lacks_a_batch_is_not_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs die before silver, before gold, and between two tables of gold."""
    lake, source, real = Lake.at(tmp_path / "lake"), tmp_path / "dump.jsonl", Lake.commit
    dies_at = ""

    def dies(self: Lake, target: Any, *args: Any) -> bool:
        if dies_at in (target.table.layer, target.table.name):
            raise Died
        return real(self, target, *args)

    monkeypatch.setattr(Lake, "commit", dies)
    for batch, (begin, end) in enumerate(((0, MIDDLE), (MIDDLE, len(ENTRIES)))):
        dump([bronze(ENTRIES[begin:end], 0, begin)], source)
        for name in ("silver", "gold", "stale_writes"):
            dies_at = name
            with pytest.raises(Died):
                pipeline.audit(SPARK, f"file://{source}", lake)
            assert not verdict(lake).complete and f"Gold lacks batch {batch}, " in "".join(verdict(lake).lines())
            if batch and name != "stale_writes":  # gold is whole, and behind
                page = tmp_path / "page.html"
                drawn = CliRunner().invoke(app, ["audit", "report", "--lake", str(lake.base), "--out", str(page)])
                assert drawn.exit_code == 0 and "Gold lacks batch 1, so this is not all" in page.read_text()
        done = CliRunner().invoke(app, ["audit", "status", "--lake", str(lake.base)])
        assert done.exit_code == 4 and "Every record is there" not in done.stdout
        dies_at = ""
        pipeline.audit(SPARK, f"file://{source}", lake)
        assert LakeReport(lake).code == 0


def test_a_state_partition_without_a_record_is_not_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake, source = Lake.at(tmp_path / "lake"), tmp_path / "dump.jsonl"
    dump([bronze(ENTRIES, 0)], source)
    with monkeypatch.context() as patch:
        patch.setattr("sidecar.audit.source.uri.DumpSource.bounds", lambda self: {0: (0, len(ENTRIES)), 1: (0, 5)})
        pipeline.audit(SPARK, f"file://{source}", lake)
    done = CliRunner().invoke(app, ["audit", "status", "--lake", str(lake.base)])
    assert (done.exit_code, verdict(lake).unknown) == (4, 1) and "Of 1 state partitions no record" in done.stdout


def test_a_question_is_answered_from_tables_of_one_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a writer is between two tables nobody reads; one that has died there is named."""
    filled(tmp_path, (0, ENTRIES))
    lake, real, asked = Lake.at(tmp_path / "lake"), Lake.committed, list[str]()

    def writes(self: Lake, table: Any) -> int:
        asked.append(table.name)
        return real(self, table) + (table.name == "members" and len(asked) < 3 * len(GOLD))

    with monkeypatch.context() as patch:
        patch.setattr(Lake, "committed", writes)
        assert query.ask(lake, "select count(*) as n from coverage") == [{"n": 2}]
    assert len(asked) > 3 * len(GOLD)
    monkeypatch.setattr(query, "WAIT_S", 0.2)
    monkeypatch.setattr(Lake, "committed", lambda self, table: real(self, table) + (table.name == "members"))
    done = CliRunner().invoke(app, ["audit", "coverage", "--lake", str(lake.base)])
    assert done.exit_code == 3 and "is half written" in done.stderr


@pytest.mark.parametrize(("hole", "wanted"), [(9, (0, 1, 0, 0, 4)), (1, (0, 0, 1, 0, 1))])
def test_members_and_claims_that_compaction_took_between_two_runs(
    tmp_path: Path, hole: int, wanted: tuple[int, ...]
) -> None:
    """Symptom: after some weeks without a run, each member that had left was a proven second owner, and records of a
    claim that was gone were writes of a fenced coordinator. One offset alone is the end of a transaction."""
    codec, member = StateCodec(), MemberState.STABLE

    def entry(epoch: int, record: Any, revision: int = 1) -> Encoded:
        return codec.encode(record, Stamp(epoch, T0), revision)

    def claim(epoch: int) -> Encoded:
        return codec.claim(Stamp(epoch, T0), 1, "h:1", "s-1", 4, "took over")

    def owner(epoch: int, member_id: str) -> Encoded:
        held = {IDS[0]: {0: 1}}
        return entry(epoch, CurrentRecord("g", member_id, 3, 2, member, held, {}, NAMES, ""))

    read = [*codec.schema_records(), claim(1), entry(1, GroupRecord("g", 9, 1, "")), owner(1, "m1")]
    left = [owner(2, "m2"), claim(3), entry(3, GroupRecord("g", 2, 1, ""), 4)]
    lake, source = Lake.at(tmp_path / "lake"), tmp_path / "dump.jsonl"
    for parts in ([bronze(read, 0)], [bronze(read, 0), bronze(left, 0, len(read) + hole)]):
        dump(parts, source)
        pipeline.audit(SPARK, f"file://{source}", lake)
    report = LakeReport(lake)
    found = report.verdict
    assert (found.proven, found.possible, found.stale_writes, found.went_back, report.code) == wanted
    assert [r["went_back"] for r in query.ask(lake, "select went_back from rebalances order by from_offset")][-1]
