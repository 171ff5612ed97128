"""From a dump to gold and to answers: in one batch and in several, over and over."""

from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest
from typer.testing import CliRunner

from sidecar.audit.ask import query
from sidecar.audit.lake.lake import Lake
from sidecar.audit.run.pipeline import audit, make_gold, to_do
from sidecar.audit.run.verdict import verdict
from sidecar.audit.tables.gold import GOLD, INVARIANTS
from sidecar.cli.main import app
from sidecar.coordinator.statelog.encoder import Encoder
from sidecar.core.classic.embedded import assigned
from sidecar.core.consumer.group import ConsumerGroup
from sidecar.state.codec import Encoded, Stamp, StateCodec
from tests.core.mixed_actors import Mixed, make
from tests.core.test_random_mixed import one_event

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T0 = 1_760_000_000_000
EPOCH = 7 << 16


def played(seed: int = 3, events: int = 80) -> tuple[Mixed, list[Encoded]]:
    """A group that changes its protocol now and then, and all that was written for it."""
    mixed = make(seed)
    for _ in range(events):
        one_event(mixed)
        mixed.sleep(200)
    codec = StateCodec()
    encoder = Encoder(codec, EPOCH, {})
    claim = codec.claim(Stamp(EPOCH, T0), 1, "h:1", "s-1", 4, "took over")
    return mixed, [*codec.schema_records(), claim, *encoder.encode(mixed.world.log, T0)]


def dump(path: Path, entries: list[Encoded]) -> None:
    """As file:// reads it: a line for each record."""
    with path.open("w") as out:
        for offset, e in enumerate(entries):
            line: dict[str, Any] = {"partition": 0, "offset": offset, "time_ms": T0 + 10 * offset}
            line |= {"time_type": "create", "key": b64encode(e.key).decode()}
            line["value"] = None if e.value is None else b64encode(e.value).decode()
            line["headers"] = [[name, b64encode(value).decode()] for name, value in e.headers]
            out.write(json.dumps(line) + "\n")


def gold_of(lake: Lake) -> dict[str, list[dict[str, Any]]]:
    def order(row: dict[str, Any]) -> str:
        return json.dumps(row, default=str, sort_keys=True)

    return {name: sorted(lake.read_arrow(table).to_pylist(), key=order) for name, table in GOLD.items()}


def test_gold_is_the_same_however_the_log_is_cut(spark: SparkSession, tmp_path: Path) -> None:
    mixed, entries = played()
    source, whole, parts = tmp_path / "dump.jsonl", Lake.at(tmp_path / "a"), Lake.at(tmp_path / "b")
    for cut in (len(entries) // 3, len(entries) * 2 // 3, len(entries)):
        dump(source, entries[:cut])
        assert to_do(f"file://{source}", parts) > 0
        audit(spark, f"file://{source}", parts)
    assert to_do(f"file://{source}", parts) == 0
    assert audit(spark, f"file://{source}", parts).number == 2, "nothing is new"
    audit(spark, f"file://{source}", whole)
    told = gold_of(whole)
    assert gold_of(parts) == told and told["intervals"] and told["rebalances"]
    group = mixed.world.now_is
    owned: set[tuple[int, str]] = set()
    if isinstance(group, ConsumerGroup):
        owned = {(p, member) for owners in group.owners.values() for p, member in owners.items()}
    elif group is not None:
        owned = {(p, m) for m, a in group.assignments.items() for p in (assigned(a) or {}).get("t", ())}
    assert {(i["partition"], i["member_id"]) for i in told["intervals"] if i["open"]} == owned
    found = verdict(whole)
    assert (found.proven, found.stale_writes, found.unreadable, found.lost, found.completeness.missing) == (
        0,
        0,
        0,
        0,
        0,
    )
    assert found.complete and found.records == len(entries) and query.broken(whole) == {}
    for name, table in GOLD.items():
        whole.read(spark, table).createOrReplaceTempView(name)
    for name, (_, statement) in INVARIANTS.items():  # they are for Spark as well
        assert spark.sql(statement).limit(1).collect() == [], name


def test_a_batch_of_gold_that_was_broken_off_is_done_again(spark: SparkSession, tmp_path: Path) -> None:
    _, entries = played(4)
    source, lake, whole = tmp_path / "dump.jsonl", Lake.at(tmp_path / "a"), Lake.at(tmp_path / "b")
    for cut in (len(entries) // 2, len(entries)):
        dump(source, entries[:cut])
        with pytest.MonkeyPatch.context() as patch:
            real, written = Lake.commit, list[Any]()

            def dies_at_the_fourth_commit(
                self: Lake, target: Any, *args: Any, real: Any = real, written: Any = written
            ) -> bool:
                if len(written) == 3:
                    raise KeyboardInterrupt
                written += [target] if target.table.layer == "gold" else []
                return bool(real(self, target, *args))

            patch.setattr(Lake, "commit", dies_at_the_fourth_commit)
            with pytest.raises(KeyboardInterrupt):
                audit(spark, f"file://{source}", lake)
        make_gold(spark, lake)
    audit(spark, f"file://{source}", whole)
    assert gold_of(lake) == gold_of(whole)


def test_the_command_answers_from_the_lake_and_its_exit_codes_say_what_was_found(
    spark: SparkSession, tmp_path: Path
) -> None:
    _, entries = played(5)
    source, lake = tmp_path / "dump.jsonl", Lake.at(tmp_path / "lake")
    dump(source, entries)
    audit(spark, f"file://{source}", lake)

    def ask(*words: str) -> tuple[int, list[dict[str, Any]]]:
        done = CliRunner().invoke(app, ["audit", *words, "--lake", str(lake.base), "-o", "json"])
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return done.exit_code, [json.loads(line) for line in done.stdout.splitlines()]

    code, (status,) = ask("status")
    assert code == 0 and status["complete"] and status["groups"] == 1
    code, owners = ask("ownership", "--topic", "t-0", "--since", "1970-01-01")
    assert code == 0 and owners and {o["topic"] for o in owners} == {"t"} and {o["partition"] for o in owners} == {0}
    assert ask("ownership", "--at", "1970-01-02") == (0, [])
    code, rebalances = ask("rebalances", "--group", owners[0]["group_id"])
    assert code == 0 and {r["state"] for r in rebalances} >= {"settled"}
    assert ask("overlaps") == (0, [])
    code, (covered,) = ask("coverage")
    assert code == 0 and covered["records"] == len(entries) and covered["missing"] == 0
    code, (one,) = ask("sql", "select from_time, from_ms, to_time from intervals order by from_ms limit 1")
    assert code == 0 and one["from_time"] == one["from"] and one["from_time"].startswith("20")
    code, (run,) = ask("sql", "select * from runs")
    assert code == 0 and (run["batch"], run["records"], run["lost"]) == (0, len(entries), 0)
    assert sum(r["until_offset"] - r["from_offset"] for r in run["ranges"]) == len(entries)
    checked = CliRunner().invoke(app, ["audit", "check", "--lake", str(lake.base)])
    assert (checked.exit_code, checked.stdout) == (0, "All that must hold does.\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(INVARIANTS, "never", ("There is no interval.", "select * from intervals"))
        checked = CliRunner().invoke(app, ["audit", "check", "--lake", str(lake.base)])
    assert checked.exit_code == 1 and "There is no interval." in checked.stdout
    said = CliRunner().invoke(app, ["audit", "views", "--lake", str(lake.base)])
    with duckdb.connect() as db:
        db.execute(said.stdout)
        assert db.execute("select count(*) from bronze.records").fetchall() == [(len(entries),)]
        assert db.execute("select count(*) from gold.intervals where topic = 't'").fetchall() != [(0,)]
        both = "select count(*) from silver.claims s join gold.coordinators g using (state_partition)"
        assert db.execute(both).fetchall() != [(0,)]
    assert CliRunner().invoke(app, ["audit", "status", "--lake", str(tmp_path / "none")]).exit_code == 3
    assert CliRunner().invoke(app, ["audit", "run", "--from", "nowhere", "--lake", str(lake.base)]).exit_code == 3
