"""The page's statements, from tables made by hand."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from sidecar.audit.gold.frames import database
from sidecar.audit.page import Budget, Mark, Period, build, view
from sidecar.audit.page.findings import FREE
from sidecar.audit.page.groups import ALIVE
from sidecar.audit.page.pack import Pack, split_budget
from sidecar.audit.page.source import WORDS, opened
from tests.audit.page.example import example
from tests.audit.page.rows import BEGIN, Row, covered, row, said, tables, unpacked

UNTIL = 100_000


def seen(rows: dict[str, list[Row]], *, without: tuple[str, ...] = (), **more: Any) -> dict[str, Any]:
    return view(tables(rows, without=without), title="t", until_ms=BEGIN + UNTIL, **more)


def owned(*rows: Row, **others: list[Row]) -> dict[str, list[Row]]:
    return {"intervals": list(rows), "members": [row("members")], "coverage": [covered(UNTIL)], **others}


def kinds(found: dict[str, Any]) -> dict[str, int]:
    return {key: count for key, _, count, _ in found["kinds"] if count}


def texts(found: dict[str, Any]) -> list[str]:
    return said(found, "findings", "text")


def test_clean_needs_a_complete_history() -> None:
    verdict = seen(owned(row("intervals")))["verdict"]
    assert (verdict["state"], verdict["complete"]) == ("clean", True)
    assert verdict["since"] == BEGIN


def test_before_the_last_missing_value_nobody_can_know() -> None:
    gap = covered(UNTIL, missing=3, whole_from_ms=BEGIN + 40_000, whole_from_offset=40)
    verdict = seen(owned(row("intervals"), coverage=[gap]))["verdict"]
    assert verdict["state"] == "unknown"
    assert verdict["head"] == "Cannot know before 2025-11-23 00:00:40 UTC"
    assert verdict["since"] == BEGIN + 40_000


@pytest.mark.parametrize("coverage", ([], [covered(UNTIL, partition=7)]))
def test_what_no_coverage_speaks_of_is_not_clean(coverage: list[Row]) -> None:
    verdict = seen(owned(row("intervals"), coverage=coverage))["verdict"]
    assert (verdict["state"], verdict["head"], verdict["since"]) == ("unknown", "Cannot know", -1)


@pytest.mark.parametrize("name", ("second_owners", "stale_writes", "unreadable", "coverage"))
def test_without_a_table_of_findings_nothing_is_clean(name: str) -> None:
    rows = owned(row("intervals"))
    rows.pop(name, None)
    found = seen(rows, without=(name,))
    assert found["verdict"]["state"] == "unknown"
    assert any(name in line for line in found["leftOut"])


@pytest.mark.parametrize(
    ("lacks", "said", "since"),
    [
        ({"whole_from_offset": None, "without_record": 9, "longest_hole": 9}, "the log does not tell which", -1),
        ({"whole_from_offset": 7, "whole_from_ms": BEGIN + 7, "without_record": 1}, "does not tell which", BEGIN + 7),
        ({"without_record": 1000, "longest_hole": 1000}, "1,000 offsets in a row have no record", -1),
        ({"read_from_offset": 5000, "whole_from_offset": 5003, "whole_from_ms": BEGIN}, "Reading began late", BEGIN),
        ({"lost": 500, "whole_from_offset": None}, "500 offsets were gone from the topic", -1),
    ],
)
def test_what_is_not_known_is_said_even_if_no_revision_is_missing(lacks: Row, said: str, since: int) -> None:
    verdict = seen(owned(row("intervals"), coverage=[covered(UNTIL, first_hole_offset=5, **lacks)]))["verdict"]
    assert (verdict["state"], verdict["complete"], verdict["since"]) == ("unknown", False, since)
    assert said in verdict["text"] and verdict["head"].startswith("Cannot know")


def test_offsets_that_committed_transactions_took_leave_no_doubt() -> None:
    taken = covered(UNTIL, first_hole_offset=5, without_record=3, longest_hole=1)
    assert seen(owned(row("intervals"), coverage=[taken]))["verdict"]["state"] == "clean"


def test_a_record_that_cannot_be_read_is_no_finding_and_not_clean() -> None:
    verdict = seen(owned(row("intervals"), unreadable=[row("unreadable")]))["verdict"]
    assert (verdict["state"], verdict["faults"], verdict["possible"]) == ("unknown", 0, 0)
    assert verdict["head"] == "Cannot know everything" and "1 records cannot be read" in verdict["text"]


def test_an_epoch_that_went_back_is_a_finding() -> None:
    turns = [row("rebalances", 1, epoch=7, anew=True), row("rebalances", 2, epoch=6, went_back=True)]
    found = seen(owned(row("intervals"), rebalances=turns))
    assert (found["verdict"]["head"], found["verdict"]["text"]) == ("1 finding", "Epoch went back (1).")
    assert kinds(found) == {"back": 1} and texts(found) == ["epoch 6 is not higher than the one before it"]


def test_an_overlap_lasts_until_the_first_of_both_ends() -> None:
    rows = owned(
        row("intervals", 0, 30_000, member_id="m-1"),
        row("intervals", 20_000, member_id="m-2"),
        second_owners=[row("second_owners", 20_000, member_id="m-2", from_offset=20_000, other_member_id="m-1")],
    )
    found = seen(rows)
    assert found["verdict"]["state"] == "findings"
    listed = unpacked(found, "findings")
    assert (listed["t"], listed["d"]) == ([BEGIN + 20_000], [10_000])
    assert texts(found) == ["t-0: m2 (m-2) began while m1 (client) still owned it"]


def test_second_owners_are_found_in_any_time_in_which_both_own() -> None:
    """Symptom: the page of the last hour said Clean while a partition had two owners, for they began before."""
    rows = owned(
        row("intervals", 0, 60_000, member_id="m-1"),
        row("intervals", 20_000, member_id="m-2"),
        second_owners=[row("second_owners", 20_000, member_id="m-2", from_offset=20_000, other_member_id="m-1")],
    )
    for since, until, state in ((0, 10_000, "clean"), (50_000, UNTIL, "findings"), (70_000, UNTIL, "clean")):
        period = Period(BEGIN + since, BEGIN + until)
        assert seen(rows, period=period)["verdict"]["state"] == state, since


def test_the_end_of_an_overlap_that_no_table_tells_is_no_later_than_it_began() -> None:
    """Symptom: a task that was once twice in a process was drawn as if it went on until now."""
    place: Row = {"kind": "streams", "topic_key": "0 in process p", "topic": "0 in process p", "topic_id": None}
    twice = row("second_owners", 20_000, member_id="m-2", from_offset=20_000, other_member_id="m-1", **place)
    for goes_on, lasts in ((False, 0), (True, UNTIL - 20_000)):
        found = seen(owned(second_owners=[{**twice, "open": goes_on}]))
        assert unpacked(found, "findings")["d"] == [lasts]


def test_records_that_are_newer_than_the_audit() -> None:
    """Symptom: the axis ended before them where the clock of the audit's machine was behind."""
    for after, end in ((5_000, 5_000), (1 << 40, 86_400_000)):
        found = seen({"intervals": [row("intervals", UNTIL + after)], "coverage": [covered(UNTIL + after)]})
        assert found["until"] == BEGIN + UNTIL + end


def test_a_group_without_a_name() -> None:
    """Symptom: no page at all, because of one record of another program."""
    nobody: Row = {"group_id": ""}
    found = seen(owned(row("intervals", **nobody), setting_changes=[row("setting_changes", **nobody)]))
    assert [g["id"] for g in found["groups"]] == ["", "g"]
    found = seen(owned(row("intervals"), setting_changes=[row("setting_changes", **nobody)]))
    assert [g["id"] for g in found["groups"]] == ["g"]


def test_an_epoch_that_may_have_begun_anew_is_no_fault() -> None:
    """Symptom: a group that was removed and made again was a fault, where compaction had taken the removal."""
    back = row("rebalances", 2, epoch=6, went_back=True, grade="possible")
    found = seen(owned(row("intervals"), rebalances=[back]))
    assert (found["verdict"]["state"], found["verdict"]["faults"], found["verdict"]["possible"]) == ("unknown", 0, 1)


def test_a_check_made_elsewhere_counts() -> None:
    rows = owned(row("intervals"))
    found = seen(rows, checks=[("records produced", 500, None), ("records lost", 0, True)])
    assert found["verdict"]["state"] == "clean"
    assert found["checks"] == [["records produced", "500", None], ["records lost", "0", True]]
    verdict = seen(rows, checks=[("records lost", 3, False)])["verdict"]
    assert (verdict["head"], verdict["text"]) == ("1 finding", "Records lost (1).")


def test_tables_that_lack_a_batch_are_not_clean() -> None:
    verdict = seen(owned(row("intervals")), lacks="Gold lacks batch 3.")["verdict"]
    assert (verdict["state"], verdict["head"], verdict["text"]) == ("unknown", "Cannot know", "Gold lacks batch 3.")


def test_a_possible_overlap_is_no_fault_and_not_clean() -> None:
    overlap = row("second_owners", 5, member_id="m-2", from_offset=5, other_member_id="m-1", grade="possible")
    verdict = seen(owned(row("intervals"), row("intervals", 5, member_id="m-2"), second_owners=[overlap]))["verdict"]
    assert (verdict["state"], verdict["faults"], verdict["possible"]) == ("unknown", 0, 1)


def test_every_kind_of_finding_is_listed() -> None:
    found = seen(
        owned(
            row("intervals"),
            stale_writes=[row("stale_writes", 5, what="claim", owner_epoch=1, claimed_epoch=2)],
            unreadable=[row("unreadable", 6, group_id=None, kind=None, reason="no such schema")],
            unowned=[row("unowned", 7, 9000, former_member_id="m-1", member_id="m-1")],
            outages=[row("outages", 8, 700, former_claim=1, claim=2, at_most_ms=692, why="sidecar 1 is gone")],
            stale_claims=[row("stale_claims", 9, generation=-1, holder="")],
            setting_changes=[row("setting_changes", 10, group_id="", name="x", value=None)],
        )
    )
    assert kinds(found) == {"stale": 1, "unreadable": 1, "unowned": 1, "outage": 1, "claimed": 1, "setting": 1}
    assert texts(found)[0].startswith("a claim of a fenced producer: owner epoch 1, the last claim was 2")
    assert "unknown kind: no such schema" in texts(found)
    assert "brokers: x removed" in texts(found)


def test_the_dead_coordinator_is_not_painted_until_the_next_claim() -> None:
    claims = [row("coordinators", 0, 60_000, claim=1), row("coordinators", 60_000, claim=2, node_id=2)]
    away = row("outages", 20_000, 60_000, former_claim=1, claim=2, at_most_ms=40_000, why="sidecar 1 is gone")
    found = seen(owned(row("intervals"), coordinators=claims, outages=[away]))
    away = unpacked(found, "outages")
    assert unpacked(found, "claims")["d"] == [20_000, -1]
    assert (away["t"], away["d"]) == ([BEGIN + 20_000], [40_000])
    assert found["groups"][0]["takeovers"] == 1


def test_a_coordinator_that_hands_over_was_there_until_then() -> None:
    claims = [
        row("coordinators", 0, 60_000, claim=1),
        row("coordinators", 60_000, 90_000, claim=2, node_id=2),
        row("coordinators", 90_000, claim=3, node_id=2, from_why="fence renewed"),
    ]
    moved = row("outages", 20_000, 60_000, former_claim=1, claim=2, at_most_ms=40_000, why="moved from sidecar 1")
    found = seen(owned(row("intervals"), coordinators=claims, outages=[moved]))
    assert unpacked(found, "claims")["d"] == [60_000, 30_000, -1] and unpacked(found, "outages")["t"] == []
    assert found["groups"][0]["takeovers"] == 1
    assert kinds(found) == {}


def test_the_first_claim_is_no_takeover_and_the_first_epoch_no_rebalance() -> None:
    turns = [row("rebalances", 0, epoch=1, anew=True), row("rebalances", 5, epoch=2, settled_ms=BEGIN + 50)]
    found = seen(owned(row("intervals"), coordinators=[row("coordinators")], rebalances=turns))
    g = found["groups"][0]
    assert (g["takeovers"], g["rebalances"], g["settle"], g["unowned"]) == (0, 1, 45, -1)


def test_unowned_time_counts_while_the_group_has_members() -> None:
    rows = owned(row("intervals", 0, 1000), unowned=[row("unowned", 1000, 50_000)])
    rows["members"] = [row("members", 0, 1000), row("members", 45_000, member_id="m-2")]
    found = seen(rows)
    assert found["groups"][0]["unowned"] == 5000
    assert unpacked(found, "findings")["t"] == [BEGIN + 45_000]


def test_brief_unowned_time_is_drawn_but_not_listed() -> None:
    found = seen(owned(row("intervals", 0, 10), unowned=[row("unowned", 10, 60)]))
    assert kinds(found) == {}
    assert unpacked(found, "free")["d"] == [50]
    assert found["leftOut"] == ["1 times a partition was nobody’s for less than 1.0 s: drawn, but not listed."]


def test_the_axis_ends_where_the_log_or_the_last_mark_does() -> None:
    rows = owned(row("intervals"), coverage=[covered(5000)])
    assert seen(rows)["until"] == BEGIN + 5000
    assert seen(rows, marks=[Mark(BEGIN + 7000, "kill", True)])["until"] == BEGIN + 7000
    day = 86_400_000
    assert seen(rows, marks=[Mark(BEGIN + UNTIL + 2 * day, "later")])["until"] == BEGIN + UNTIL + day


def test_one_group_takes_its_state_partition_along_and_nothing_else() -> None:
    other: Row = {"group_id": "h", "state_partition": 3}
    rows = {
        "intervals": [row("intervals"), row("intervals", **other)],
        "coordinators": [row("coordinators"), row("coordinators", state_partition=3)],
        "coverage": [covered(UNTIL), covered(UNTIL, 3, missing=1, complete_since_ms=BEGIN + 9)],
        "stale_writes": [row("stale_writes", group_id="", what="claim"), row("stale_writes", **other)],
        "unreadable": [row("unreadable", group_id=None), row("unreadable", state_partition=3, group_id=None)],
    }
    found = seen(rows, groups=("g",))
    assert [g["id"] for g in found["groups"]] == ["g"]
    assert unpacked(found, "claims")["sp"] == [0]
    assert kinds(found) == {"stale": 1, "unreadable": 1}
    assert not found["verdict"]["missing"], "that is another's"


def test_of_one_group_only_its_own_gaps_count_but_it_is_not_better_known_than_its_partition() -> None:
    gap = {"missing": 9, "whole_from_offset": 9, "whole_from_ms": BEGIN + 9}
    rows = owned(
        row("intervals"),
        coverage=[
            covered(UNTIL, **gap),
            row("coverage", scope="group", group_id="g", last_ms=BEGIN + 50, records=3, **(gap | {"missing": 0})),
            row("coverage", scope="group", group_id="h", last_ms=BEGIN + 50, **gap),
        ],
    )
    assert seen(rows)["verdict"]["state"] == "unknown"
    found = seen(rows, groups=("g",))
    assert (found["verdict"]["state"], found["verdict"]["missing"]) == ("unknown", 0)
    assert (found["verdict"]["records"], found["until"]) == (3, BEGIN + UNTIL)


def test_inexact_ends_keep_their_bounds() -> None:
    life = row("intervals", 50, 90, from_exact=False, from_not_before_offset=20, unseen=4)
    own = unpacked(seen(owned(life)), "own")
    assert (own["from_exact"], own["to_exact"], own["unseen"]) == ([0], [1], [4])
    assert (own["from_not_before_offset"], own["to_not_before_offset"]) == ([20], [-1])


def test_a_topic_that_was_made_anew_gets_lanes_of_its_own() -> None:
    found = seen(owned(row("intervals", 0, 9), row("intervals", 20, topic_key="id-u", topic_id="id-u")))
    assert said(found, "places", "name") == ["t-0 (id-t)", "t-0 (id-u)"]


def test_a_group_that_came_from_classic_keeps_its_lanes() -> None:
    classic = row("intervals", 0, 9, kind="classic", topic_key="t", topic_id=None)
    found = seen(owned(classic, row("intervals", 20)))
    assert said(found, "places", "name") == ["t-0"]
    assert found["groups"][0]["kinds"] == ["classic", "consumer"]


def test_too_many_short_bars_become_few_and_the_page_says_so() -> None:
    rows = [row("intervals", n * 10, n * 10 + 10, member_id=f"m-{n % 3}") for n in range(500)]
    found = seen(owned(*rows, row("intervals", 5000, partition=1)), budget=Budget(intervals=50))
    own = unpacked(found, "own")
    assert len(own["t"]) <= 50
    assert own["p"].count(1) == 1
    assert sum(own["many"]) == 501
    assert any("501 rows of intervals are drawn as" in line for line in found["leftOut"])


class Counting:
    """A database that counts what it is asked."""

    def __init__(self, db: Any) -> None:
        self.db, self.queries = db, 0

    def __enter__(self) -> Counting:
        return self

    def __exit__(self, *_: object) -> None:
        self.db.close()

    def __getattr__(self, name: str) -> Any:
        self.queries += 1
        return getattr(self.db, name)


def test_bars_of_many_groups_are_merged_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: each group took some queries over the bars of all, so 10,000 groups took half an hour."""
    asked: list[Counting] = []

    def counting(*args: Any) -> Counting:
        asked.append(Counting(opened(*args)))
        return asked[-1]

    monkeypatch.setattr("sidecar.audit.page.model.opened", counting)
    for groups in (2, 20):
        rows = [row("intervals", n * 10, n * 10 + 10, group_id=f"g{g}") for n in range(40) for g in range(groups)]
        rows.append(row("intervals", 0, group_id="one"))
        found = seen(owned(*rows), budget=Budget(intervals=groups * 10 + 1))
        assert unpacked(found, "own")["many"].count(40) == groups, "one bar each"
        merged = [line for line in found["leftOut"] if "drawn as 1 bars" in line]
        assert len(merged) == groups and merged[1].startswith("g1: 40 rows of intervals")
    few, many = asked
    assert few.queries == many.queries


def test_unowned_time_of_a_group_that_comes_and_goes_takes_no_square_of_its_lives() -> None:
    def cpu(lives: int) -> float:
        with database() as db:
            db.connection.execute(f"""{WORDS} set variable until = 1::bigint;
                create table members as select 0 as g, range * 10 as from_ms, range * 10 + 5 as to_ms
                    from range({lives});
                create table unowned as select 0 as g, range as id, range * 10 + 5 as from_ms, range * 10 + 11 as to_ms
                    from range({lives})""")
            db.connection.execute(ALIVE)
            began = time.process_time()
            db.connection.execute(FREE)
            took = time.process_time() - began
            assert db.connection.sql("select count(*), max(lasted) from free").fetchall() == [(lives - 1, 1)]
            return took

    assert cpu(40_000) < 30 * max(cpu(4000), 0.05)  # the square would be 100 times as much, tens of seconds


def test_epochs_may_be_any_number() -> None:
    """Symptom: `Overflow in subtraction of INT32`, and no page."""
    wide = row("intervals", 0, first_epoch=-2, last_epoch=2**31 - 1)
    assert unpacked(seen(owned(wide)), "own")["le"] == [2**31 + 1]


def test_what_is_over_the_budget_is_counted() -> None:
    settings = [row("setting_changes", n, name="x", value=str(n)) for n in range(30)]
    turns = [row("rebalances", n, epoch=n, anew=n == 0, why=f"reason {n}") for n in range(30)]
    lives = [row("intervals", n, n + 1, from_why="a reason of some length " * 3 + str(n)) for n in range(5)]
    budget = Budget(findings=10, rebalances=8, reasons=100)
    found = seen(owned(*lives, setting_changes=settings, rebalances=turns), budget=budget)
    assert kinds(found) == {"setting": 30}
    assert len(unpacked(found, "findings")["t"]) == 10
    assert found["groups"][0]["rebalances"] == 29
    assert unpacked(found, "epochs")["epoch"] == list(range(22, 30)), "the newest"
    told = " ".join(found["leftOut"])
    assert "20 of 30 findings of the kind “setting changed”" in told
    assert "22 older rows of rebalances" in told
    assert "4 reasons of intervals, members or claims" in told


def test_the_example_has_what_an_incident_has() -> None:
    rows, marks, until = example()
    found = view(rows, marks=marks, title="t", until_ms=until)
    assert found["verdict"]["head"] == "2 findings"
    assert set(kinds(found)) == {"overlap", "overlap?", "stale", "unowned", "outage", "claimed", "setting"}
    json.dumps(found, allow_nan=False)


def test_a_page_without_anything_opens_and_claims_nothing() -> None:
    found = view({}, title="t", until_ms=BEGIN)
    assert (found["verdict"]["state"], found["from"] < found["until"]) == ("unknown", True)
    assert "coverage" in found["verdict"]["text"]
    build(found)


def test_hostile_names_stay_in_the_data() -> None:
    evil = "</script><img src=x onerror=alert(1)><!--<script>@@data@@\u2028"
    found = seen(
        {
            "members": [row("members", group_id=evil, client_id=evil, member_id=evil)],
            "intervals": [row("intervals", group_id=evil, topic=evil, member_id=evil)],
        },
    )
    found["title"] = evil
    page = build(found)
    assert page.count("<script") == 2
    assert page.count("</script>") == 2
    assert "<img" not in page
    assert "\u2028" not in page.split('id="data">')[1]
    data = page.split('id="data">')[1].split("</script>")[0]
    assert json.loads(data)["groups"][0]["id"] == evil


def test_the_page_asks_for_nothing_from_elsewhere() -> None:
    page = build(seen(owned(row("intervals"))))
    assert "default-src 'none'" in page
    assert "unsafe-inline" not in page
    for word in ("http://", "https://", "fetch(", "XMLHttpRequest", "import(", "innerHTML", "eval("):
        assert word not in page


def test_a_budget_is_split() -> None:
    assert split_budget([1, 50, 100], 31) == [1, 15, 15]


def test_columns_are_packed() -> None:
    with database() as db:
        pack = Pack(db.connection, 4)
        rising, reasons = (
            pack("select unnest([5, 7, 6]) as t"),
            pack("select unnest(['abc', 'de', 'abc', null]) as to_why"),
        )
        most = pack("select case when n = 4 then 7 end as x from range(10) r(n)")
    assert rising == {"rows": 3, "columns": {"t": [5, 2, -1]}}
    assert (reasons["columns"]["to_why"], pack.texts, pack.left_out) == ([0, -1, 0, -1], ["abc"], 1)
    assert most["columns"] == {"x": {"": -1, "4": 7}}


def test_unowned_time_counts_in_the_longest_part_with_members() -> None:
    rows = {
        "unowned": [row("unowned", 2000, 80_000)],
        "members": [
            row("members", n, until) for n, until in ((5000, 9000), (1000, 3000), (8000, 20_000), (70_000, None))
        ],
    }
    found = unpacked(seen(rows), "findings")
    assert (found["t"], found["d"]) == ([BEGIN + 5000], [15_000])


def between(since: int, until: int) -> Period:
    return Period(BEGIN + since, BEGIN + until)


def test_of_a_period_only_what_touches_it_is_shown() -> None:
    lasted = [row("intervals", ms, to, member_id=m) for m, ms, to in (("a", 0, 9), ("b", 0, 10), ("c", 20, None))]
    turns = [
        row("rebalances", 0, epoch=1, superseded=True),
        row("rebalances", 5, epoch=2, settled_ms=BEGIN + 10),
        row("rebalances", 6, epoch=3, settled_ms=BEGIN + 7),
        row("rebalances", 7, epoch=4),
        row("rebalances", 21, epoch=5),
    ]
    found = seen(owned(*lasted, row("intervals", 21), rebalances=turns), period=between(10, 20))
    assert sorted(unpacked(found, "epochs")["epoch"]) == [2, 4]
    assert len(unpacked(found, "own")["t"]) == 2, "b, which ended as it began, and c, which began as it ended"
    assert (found["from"], found["until"]) == (BEGIN + 10, BEGIN + 20)
    assert any("is shown" in line for line in found["leftOut"])


def test_the_verdict_on_a_period_counts_what_was_in_it() -> None:
    rows = owned(row("intervals"), stale_writes=[row("stale_writes", 5)])
    assert seen(rows, period=between(5, 9))["verdict"]["head"] == "1 finding"
    clean = seen(rows, period=between(6, 9))["verdict"]
    assert clean["head"] == "Clean"
    assert clean["text"].startswith("Of the time from 2025-11-23 00:00:00 UTC until 2025-11-23 00:00:00 UTC: ")


@pytest.mark.parametrize(("since", "head"), [(39_999, "Cannot know before 2025-11-23 00:00:40 UTC"), (40_000, "Clean")])
def test_what_was_missing_before_a_period_does_not_count(since: int, head: str) -> None:
    gap = covered(UNTIL, missing=3, whole_from_ms=BEGIN + 40_000, whole_from_offset=40)
    verdict = seen(owned(row("intervals"), coverage=[gap]), period=between(since, UNTIL))["verdict"]
    assert verdict["head"] == head
    assert verdict["since"] == BEGIN + 40_000, "of all that was read, as without a period"
