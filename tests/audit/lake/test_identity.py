"""A topic has an id and a dump has none: a dump does not hide which topic a lake has, and does not stand for one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from sidecar.audit.ask import query
from sidecar.audit.errors import Refused
from sidecar.audit.ingest.batch import ingest, waiting
from sidecar.audit.lake.lake import Lake
from sidecar.audit.source.uri import open_source
from sidecar.state.codec import Encoded
from tests.audit.lake.making import bronze, dump, log
from tests.audit.lake.topics import Topics
from tests.audit.lake.without_spark import SPARK

pytestmark = pytest.mark.usefixtures("without_spark")
ANEW = {"new_incarnation": "true"}


def dumped(folder: Path, entries: list[Encoded]) -> str:
    dump([bronze(entries, 0)], folder)
    return f"file://{folder}"


@pytest.mark.tier("all")
def test_a_dump_in_between_does_not_hide_that_the_topic_was_re_created(topics: Topics, tmp_path: Path) -> None:
    uri, entries, lake = topics.create("identity", 1), log(61, 120), Lake.at(tmp_path / "lake")
    topics.write("identity", {0: entries[:60]})
    ingest(SPARK, uri, lake)
    known = lake.batch().identity
    assert known == open_source(uri).identity() != ""
    file = dumped(tmp_path / "all.jsonl", entries)
    assert open_source(file).identity() == ""
    done = ingest(SPARK, file, lake, ANEW)
    assert (done.records, done.incarnation, done.identity) == (60, 0, known), "a dump begins nothing anew"

    topics.delete("identity")
    topics.create("identity", 1)
    topics.write("identity", {0: log(62, 200)})
    with pytest.raises(Refused, match=f"re-created: its id was {re.escape(known)}"):
        ingest(SPARK, uri, lake)
    assert waiting(uri, lake) > 0, "the command does not take it for nothing new"
    done = ingest(SPARK, uri, lake, ANEW)
    assert (done.records, done.incarnation) == (200, 1) and done.identity not in ("", known)
    anew = Lake.at(lake.base)
    with pytest.raises(Refused, match=r"of partition 0 is another than the lake's. Give it a lake of its own"):
        ingest(SPARK, file, anew, ANEW)
    assert anew.batch().identity == done.identity
    assert [r["identity"] for r in query.ask(anew, "select identity from runs")] == [done.identity]
    assert Lake.at(lake.base, incarnation=0).batch().identity == known


@pytest.mark.tier("all")
def test_a_lake_of_a_dump_has_no_topic_until_one_fits(topics: Topics, tmp_path: Path) -> None:
    entries, lake = log(63, 100), Lake.at(tmp_path / "lake")
    ingest(SPARK, dumped(tmp_path / "all.jsonl", entries), lake)
    assert lake.batch().identity == "" and [r["identity"] for r in query.ask(lake, "select identity from runs")] == [""]
    assert open_source(f"delta://{lake.base}").identity() == "", "nor has a copy of it"

    uri = topics.create("shorter", 1)
    topics.write("shorter", {0: entries[:99]})
    with pytest.raises(Refused, match="partition 0 ends at 99, but the lake has it up to 100"):
        ingest(SPARK, uri, lake)
    uri = topics.create("not-it", 1)
    topics.write("not-it", {0: log(64, 200)})
    with pytest.raises(Refused, match=r"not-it: the record at offset .* of partition 0 is another than the lake's"):
        ingest(SPARK, uri, lake)
    assert waiting(uri, lake) > 0
    uri = topics.create("fits", 1)
    topics.write("fits", {0: [*entries, *log(64, 20)]})
    assert ingest(SPARK, uri, lake).records == 20
    assert lake.batch().identity == open_source(uri).identity() != ""
    other = topics.create("other", 1)
    topics.write("other", {0: log(65, 300)})
    with pytest.raises(Refused, match="re-created"):
        ingest(SPARK, other, lake)


def test_a_batch_that_was_begun_is_ended_first_whatever_the_source_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a batch needs no source, because all of its bronze is there. Before that nothing is visible, and no batch
    has begun."""
    one, other = (dumped(tmp_path / f"{n}.jsonl", log(66 + n, 80)) for n in (0, 1))
    lake = Lake.at(tmp_path / "lake")

    def raise_killed(*args: Any) -> Any:
        raise RuntimeError("killed here")

    for step in ("begin_batch", "end_batch"):
        with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="killed here"):
            patch.setattr(f"sidecar.audit.ingest.batch.{step}", raise_killed)
            ingest(SPARK, one, lake)
    Path(one.removeprefix("file://")).unlink()
    assert waiting(other, lake) > 0
    done = ingest(SPARK, other, lake)
    assert (done.source, done.records) == (one, 80)
    with pytest.raises(Refused, match="Give it a lake of its own"):
        ingest(SPARK, other, lake)


def test_only_records_that_both_have_tell_of_another_topic(tmp_path: Path) -> None:
    """Compaction may have been there before the lake was filled, or before the copy was made."""
    entries = log(67, 100)
    rows = bronze(entries, 0)
    lake = Lake.at(tmp_path / "lake")
    for name, kept in (("some", range(0, 80, 2)), ("others", range(1, 90, 3)), ("none", range(90, 100))):
        dump([rows.take(list(kept))], tmp_path / f"{name}.jsonl")
        ingest(SPARK, f"file://{tmp_path / name}.jsonl", lake)
    assert lake.batch().position == {0: 100}
    changed = [*entries[:99], log(68, 100)[99]]
    assert changed[99] != entries[99]
    with pytest.raises(Refused, match=r"the record at offset 99 of partition 0 is another"):
        waiting(dumped(tmp_path / "changed.jsonl", changed), lake)
