"""The answers of /api/v1: rows, one group, its last rebalances; and the time for which they keep the loop."""

from __future__ import annotations

import asyncio
import gc
import json
import time
from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import Any

import pytest

from sidecar.coordinator.inspect import broker_groups
from sidecar.coordinator.inspect.group_views import Lag, Views
from sidecar.coordinator.membership.owners_protocol import SidecarInfo
from sidecar.core.classic import records as classic
from sidecar.core.classic.embedded import assignment
from sidecar.core.consumer import records as consumer
from sidecar.core.consumer.records import MemberState
from sidecar.core.runtime.records import Tombstone
from sidecar.kafka.group_lists import PartitionLag
from sidecar.process.admin import encoded
from tests.harness.collector import no_collector
from tests.process.synthetic import BEGIN_MS, NAMES, TOPIC_ID, Synthetic


def done(work: Generator[None, None, Any]) -> Any:
    while True:
        try:
            next(work)
        except StopIteration as end:
            return end.value


def page(
    views: Views,
    search: str = "",
    kind: str = "",
    state: str = "",
    sort: str = "group",
    begin: int = 0,
    limit: int = 500,
) -> tuple[int, list[dict[str, Any]]]:
    total, rows = done(views.find(search, kind, state, sort, begin, limit))
    return total, [views.row_json(row) for row in rows]


def listed(s: Synthetic, search: str = "", kind: str = "", state: str = "", sort: str = "group") -> list[str]:
    total, rows = page(s.views, search, kind, state, sort)
    assert total == len(rows)
    return [r["group"] for r in rows]


def group(s: Synthetic, name: str) -> Any:
    return done(s.views.group(name, 0, 0, 1_000_000))


def test_the_list_has_all_groups_of_both_kinds() -> None:
    s = Synthetic()
    s.consumer_group("orders", members=3)
    s.classic_group("Audit", members=2, why="a consumer came")
    total, rows = page(s.views)
    assert total == 2
    audit, orders = rows
    assert (audit["kind"], audit["state"], audit["epoch"], audit["members"]) == ("classic", "Stable", 1, 2)
    assert (orders["kind"], orders["state"], orders["epoch"], orders["members"]) == ("consumer", "Stable", 1, 3)
    assert orders["why"] == "members joined" and orders["lag"] is None
    assert orders["owner"] in (1, 2)


def test_the_overview_names_the_cluster_and_its_sidecars() -> None:
    s = Synthetic()
    told, version = done(s.views.overview()), s.views.version()
    assert told["cluster"] == "lkc-1"
    assert [(n["node"], n["here"], n["broker"]) for n in told["sidecars"]] == [
        (1, True, "broker-1:9092"),
        (2, False, "broker-2:9092"),
    ]
    assert [n["answers"] for n in told["sidecars"]] == [None, True]
    s.suspects = (2,)
    assert done(s.views.overview())["sidecars"][1]["answers"] is False and s.views.version() != version
    s.suspects = ()
    s.cluster = ""  # it is not known yet
    assert done(s.views.overview())["cluster"] == "" and s.views.version() != version


def test_the_overview_tells_what_each_sidecar_says_of_itself() -> None:
    s = Synthetic()
    before = s.views.version()
    s.peers = {2: (SidecarInfo(2, "broker-2", 9092, BEGIN_MS, version="1.2.3"), False)}
    assert s.views.version() != before
    one, two = done(s.views.overview())["sidecars"]
    assert (one["version"], one["since_ms"], one["ready"]) == (None, None, None), "an older version says nothing"
    assert (two["version"], two["since_ms"], two["ready"]) == ("1.2.3", BEGIN_MS, False)


# ---- what brokers coordinate ----------------------------------------------------------------------------------------
def test_groups_of_brokers_are_in_the_list_with_their_broker() -> None:
    s = Synthetic()
    s.consumer_group("ours")
    s.listed.at = {
        1: {"theirs": ("share", "Stable"), "owners": ("", "Stable")},
        2: {"ours": ("", "Stable"), "a-new-one": ("", "Empty")},
    }
    assert page(s.views)[0] == 1 and s.listed.asked == [], "nobody has looked"
    before = s.views.version()
    asyncio.run(s.views.brokers.look())
    assert s.views.version() != before
    rows = {r["group"]: r for r in page(s.views)[1]}
    assert {g: (r["kind"], r["state"], r["where"], r["broker"]) for g, r in rows.items()} == {
        "a-new-one": ("classic", "Empty", "comes", 2),
        "ours": ("consumer", "Stable", "sidecar", None),
        "theirs": ("share", "Stable", "broker", 1),
    }, "the placeholder of a group of the sidecars is no group, nor is the sidecars' own group"
    assert (rows["theirs"]["owner"], rows["theirs"]["members"], rows["theirs"]["epoch"]) == (None, None, None)
    told = done(s.views.overview())
    assert (told["groups"]["total"], told["groups"]["kinds"]["share"]) == (3, 1)
    assert [(b["node"], b["groups"], b["problem"]) for b in told["brokers"]] == [(1, 1, ""), (2, 1, "")]
    assert sum(n["groups"] for n in told["sidecars"]) == 1
    assert listed(s, kind="share") == ["theirs"] and listed(s, sort="members")[-1] == "ours"
    head = group(s, "theirs")
    assert (head["kind"], head["state"], head["broker"], head["members"]["total"]) == ("share", "Stable", 1, 0)


def test_a_broker_that_does_not_answer_costs_its_own_line(monkeypatch: pytest.MonkeyPatch) -> None:
    s = Synthetic()
    s.listed.at = {1: {"theirs": ("", "Stable")}, 2: None, 3: {}}
    asyncio.run(s.views.brokers.look())
    asyncio.run(s.views.brokers.look())
    first = s.views.brokers.last_answers()
    del s.listed.at[3]
    s.listed.at[1] = None
    monkeypatch.setattr(broker_groups, "FRESH_S", 0.0)
    asyncio.run(s.views.brokers.look())
    then = s.views.brokers.last_answers()
    assert s.listed.asked == [1, 2, 3, 1, 2], "an answer counts for some seconds"
    assert (first[2]["answered_ms"], first[2]["problem"]) == (None, "it stands still")
    assert then[1] == {"answered_ms": first[1]["answered_ms"], "problem": "it stands still"}
    assert 3 not in then, "it is no broker any more"
    assert listed(s) == ["theirs"], "as it was when the broker answered last"


def test_what_is_kept_of_a_broker_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_groups, "GROUPS_MAX", 2)
    s = Synthetic()
    s.listed.at = {1: {f"g{n}": ("", "Stable") for n in range(5)}}
    asyncio.run(s.views.brokers.look())
    assert len(listed(s)) == 2 and s.views.brokers.last_answers()[1]["problem"] == "3 more groups are not shown"


def test_the_list_is_searched_filtered_and_sorted() -> None:
    s = Synthetic()
    for name, members in (("b-2", 1), ("a-1", 3), ("A-9", 2)):
        s.consumer_group(name, members=members)
    s.classic_group("c-3")
    assert listed(s, "a-") == ["A-9", "a-1"]
    assert listed(s, kind="classic") == ["c-3"]
    assert listed(s, state="Reconciling") == []
    assert listed(s, sort="-members", kind="consumer") == ["a-1", "A-9", "b-2"]
    assert listed(s, sort="changed") == ["b-2", "a-1", "A-9", "c-3"]
    assert listed(s, sort="-group") == ["c-3", "b-2", "a-1", "A-9"]


def test_pages_of_the_list_have_every_row_once() -> None:
    s = Synthetic()
    s.many(700)
    seen: list[str] = []
    for begin in range(0, 700, 100):
        total, rows = page(s.views, sort="-group", begin=begin, limit=100)
        assert total == 700
        seen += [r["group"] for r in rows]
    assert seen == [f"group-{i:05d}" for i in reversed(range(700))]


def test_a_row_follows_its_group() -> None:
    s = Synthetic()
    s.consumer_group("g", members=2, each=2)

    def state() -> str:
        return str(page(s.views)[1][0]["state"])

    assert state() == "Stable"
    s.write(consumer.GroupRecord("g", 2, 0, "a topic has more partitions"))
    assert state() == "Assigning"
    s.target("g", ["m00000", "m00001"], 3, 2)
    assert state() == "Reconciling", "nobody has the new target"
    s.current("g", "m00000", 2, range(3))
    s.current("g", "m00001", 2, range(3, 5), state=MemberState.UNRELEASED_PARTITIONS)
    assert state() == "Reconciling"
    s.current("g", "m00001", 2, range(3, 6))
    assert state() == "Stable"
    for m in ("m00000", "m00001"):
        s.leaves("g", m)
    assert state() == "Empty"
    s.write(Tombstone(consumer.Kind.TARGET_METADATA, "g", ""), Tombstone(consumer.Kind.GROUP, "g", ""))
    assert listed(s) == []


def test_a_group_in_which_nobody_has_subscribed_to_anything_is_a_stable_one() -> None:
    """Symptom: the page called it `other`, in epoch -1, changed 20,782 days ago."""
    s = Synthetic()
    s.write(consumer.MemberRecord("g", "m", None, None, "client", "/10.0.0.1", 1000, (), None, None))
    s.current("g", "m", 1, range(0))
    ((row,), told) = page(s.views)[1], group(s, "g")
    for seen in (row, told):
        assert (seen["kind"], seen["state"], seen["epoch"]) == ("consumer", "Stable", 1)
    assert row["changed_ms"] == BEGIN_MS


def test_a_group_is_told_with_what_each_partition_waits_for() -> None:
    s = Synthetic()
    s.consumer_group("g", members=2, each=2)
    s.write(consumer.GroupRecord("g", 2, 0, "m00001 subscribes to more"))
    s.target("g", ["m00001", "m00000"], 2, 2)
    s.current("g", "m00000", 1, range(1), pending=range(1, 2), state=MemberState.UNREVOKED_PARTITIONS)
    told = group(s, "g")
    assert told["state"] == "Reconciling"
    assert (told["epoch"], told["assignment_epoch"], told["assignor"]) == (2, 2, "uniform")
    assert [m["member"] for m in told["members"]["rows"]] == ["m00000", "m00001"]
    first = told["members"]["rows"][0]
    assert (first["owns"], first["gives_up"]) == ({"orders": [0]}, {"orders": [1]})
    assert first["target"] == {"orders": [2, 3]}
    rows = {p["partition"]: (p["owner"], p["target"], p["leaves"]) for p in told["partitions"]["rows"]}
    assert rows == {
        0: ("m00000", "m00001", None),
        1: (None, "m00001", "m00000"),
        2: ("m00001", "m00000", None),
        3: ("m00001", "m00000", None),
    }


def test_lag_is_told_where_it_is_known() -> None:
    s = Synthetic()
    s.consumer_group("g", members=1, each=2)
    assert {p["lag"] for p in group(s, "g")["partitions"]["rows"]} == {None}
    known = {
        ("orders", 0): PartitionLag(5, 9, 4),
        ("orders", 1): PartitionLag(7, None, 2),
        ("left", 0): PartitionLag(1, 1, 0),
    }
    s.views.lag = Lag(lambda name: known)
    told = group(s, "g")
    assert [(p["topic"], p["partition"], p["lag"], p["end"]) for p in told["partitions"]["rows"]] == [
        ("left", 0, 0, 1),
        ("orders", 0, 4, 9),
        ("orders", 1, 2, None),
    ]
    assert told["lag"] == 6
    assert page(s.views)[1][0]["lag"] == 6
    s.views.lag = Lag(lambda name: {})
    assert group(s, "g")["lag"] is None, "it has committed nothing"


def test_pages_of_members_and_partitions() -> None:
    s = Synthetic()
    s.consumer_group("g", members=25, each=3)
    seen: list[tuple[str, int]] = []
    for begin in range(0, 80, 20):
        told = done(s.views.group("g", begin, begin, 20))
        assert (told["members"]["total"], told["partitions"]["total"]) == (25, 75)
        assert len(told["members"]["rows"]) == max(0, min(20, 25 - begin))
        seen += [(p["topic"], p["partition"]) for p in told["partitions"]["rows"]]
    assert seen == [("orders", n) for n in range(75)]


def test_a_group_that_nobody_knows_is_none() -> None:
    assert group(Synthetic(), "theirs") is None


def test_a_value_that_cannot_be_read_is_told_and_hides_nothing() -> None:
    s = Synthetic()
    s.consumer_group("g", members=1)
    fold = next(p for p in s.state.partitions if "g" in p.groups)
    key = next(k for k in fold.groups["g"] if k.kind == consumer.Kind.CURRENT)
    s.state.apply(s.state.partitions.index(fold), fold.position, key, b"\xc3\x01damaged")
    told = group(s, "g")
    assert told["members"]["rows"][0]["client"] == "client"
    assert "current m00000" in told["problems"][0]


# ---- the last rebalances --------------------------------------------------------------------------------------------
def test_rebalances_of_a_consumer_group() -> None:
    s = Synthetic()
    s.consumer_group("g", members=2, each=2)
    s.now_ms += 10_000
    began = s.now_ms
    s.leaves("g", "m00001")
    s.write(consumer.GroupRecord("g", 2, 0, "m00001 left"))
    s.now_ms += 40
    s.target("g", ["m00000"], 4, 2)
    s.now_ms += 60
    s.current("g", "m00000", 2, range(4))
    newest, first = group(s, "g")["rebalances"]
    assert first["joined"] == {"count": 2, "names": ["m00000", "m00001"]}
    assert (first["epoch"], first["moved"]) == (1, 4), "four partitions that nobody had"
    assert newest == {
        "at_ms": began,
        "epoch": 2,
        "why": "m00001 left",
        "joined": {"count": 0, "names": []},
        "left": {"count": 1, "names": ["m00001"]},
        "moved": 2,
        "assigned_ms": began + 40,
        "settled_ms": began + 100,
    }
    assert group(s, "g")["rebalances"][0]["moved"] == 2, "and it is told again"


def test_an_assignment_that_ends_when_the_group_has_gone_on_belongs_to_its_epoch() -> None:
    s = Synthetic()
    s.consumer_group("g", members=1)
    s.write(consumer.GroupRecord("g", 2, 0, "a topic came"), consumer.GroupRecord("g", 3, 0, "another one came"))
    s.target("g", ["m00000"], 3, 2)
    s.current("g", "m00000", 1, range(2))
    newest, before, _ = group(s, "g")["rebalances"]
    assert newest["settled_ms"] is None, "somebody has changed, but it goes on"
    assert (newest["epoch"], newest["assigned_ms"]) == (3, None)
    assert (before["epoch"], before["assigned_ms"]) == (2, s.now_ms)


def test_rebalances_of_a_classic_group() -> None:
    s = Synthetic()
    s.classic_group("g", members=2)
    s.now_ms += 5_000
    began = s.now_ms
    s.state_of("g", classic.State.PREPARING, 1, "c00001 timed out")
    s.write(Tombstone(classic.Kind.ASSIGNMENT, "g", "c00001"), Tombstone(classic.Kind.MEMBER, "g", "c00001"))
    newest = group(s, "g")["rebalances"][0]
    assert (newest["state"], newest["settled_ms"]) == ("PreparingRebalance", None)
    s.state_of("g", classic.State.COMPLETING, 2, "all members have joined")
    s.now_ms += 70
    s.write(classic.AssignmentRecord("g", "c00000", 2, b"what no consumer reads"))
    s.state_of("g", classic.State.STABLE, 2, "the leader has assigned")
    newest, first = group(s, "g")["rebalances"]
    assert (newest["epoch"], newest["why"], newest["at_ms"]) == (2, "c00001 timed out", began)
    assert newest["left"] == {"count": 1, "names": ["c00001"]}
    assert (newest["state"], newest["settled_ms"]) == ("Stable", began + 70)
    assert (first["epoch"], first["moved"], first["joined"]["count"]) == (1, 4, 2)


def test_only_the_last_rebalances_are_kept() -> None:
    s = Synthetic(kept=3)
    for epoch in range(1, 10):
        s.write(consumer.GroupRecord("g", epoch, 0, f"reason {epoch}"))
        s.classic_group("c", generation=epoch)
    assert [r["epoch"] for r in group(s, "g")["rebalances"]] == [9, 8, 7]
    assert [r["epoch"] for r in group(s, "c")["rebalances"]] == [9, 8, 7]
    s = Synthetic(kept=0)
    s.consumer_group("g")
    assert group(s, "g")["rebalances"] == []
    assert listed(s) == ["g"], "the list needs no past"


def test_what_is_kept_of_assignments_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sidecar.coordinator.inspect.rebalance_history.CHANGES_MAX", 5)
    s = Synthetic()
    s.consumer_group("g", members=4)
    s.consumer_group("h", members=4)
    assert group(s, "g")["rebalances"][0]["moved"] is None, "not known any more, and not zero"
    assert group(s, "h")["rebalances"][0]["moved"] == 8
    assert len(s.past._changed) <= 5


def test_what_is_kept_of_assignments_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: an assignment of 1.6 MB in each of some dozen groups, whose members were long gone, stayed."""
    s = Synthetic()
    s.classic_group("c")
    large = assignment(3, [("orders", tuple(range(20_000)))])
    s.write(classic.AssignmentRecord("c", "c00000", 1, large))
    assert group(s, "c")["rebalances"][0]["moved"] is None
    assert not s.past._groups["c"].steps[-1].changes
    monkeypatch.setattr("sidecar.coordinator.inspect.rebalance_history.CHANGES_BYTES", 1_000)
    for n in range(20):
        s.consumer_group(f"g{n}")
    assert s.past._changes_bytes == sum(size for _, size in s.past._changed) <= 1_000
    assert group(s, "g0")["rebalances"][0]["moved"] is None and group(s, "g19")["rebalances"][0]["moved"] == 4


def test_what_is_kept_of_all_groups_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sidecar.coordinator.inspect.rebalance_history.STEPS_MAX", 6)
    s = Synthetic(kept=3)
    for epoch in range(1, 20):
        s.write(consumer.GroupRecord("busy", epoch, 0, "again"))
    s.write(consumer.GroupRecord("quiet", 1, 0, "once"), consumer.GroupRecord("gone", 1, 0, "once"))
    s.write(Tombstone(consumer.Kind.GROUP, "gone", ""))
    for epoch in range(1, 5):
        s.write(consumer.GroupRecord("other", epoch, 0, "again"))
    kept = {g: len(p.steps) for g, p in s.past._groups.items()}
    assert kept == {"busy": 0, "quiet": 1, "other": 4}, "the oldest were forgotten"
    assert [r["epoch"] for r in group(s, "other")["rebalances"]] == [4, 3, 2]
    assert group(s, "busy")["rebalances"] == []
    assert len(s.past._order) == 6


def test_a_group_that_is_deleted_leaves_no_past() -> None:
    """The next record of another group shows that it has not changed its protocol."""
    s = Synthetic()
    s.consumer_group("g", members=1)
    s.write(Tombstone(consumer.Kind.GROUP, "g", ""))
    s.leaves("g", "m00000")
    s.consumer_group("h", members=1)
    assert list(s.past._groups) == ["h"]


def test_a_void_record_is_no_rebalance() -> None:
    s = Synthetic()
    s.consumer_group("g", members=1)
    fold = next(p for p in s.state.partitions if "g" in p.groups)
    fold.owners.claim(1)
    fold.owners.claim(5)  # who writes with owner epoch 1 has been fenced
    s.write(consumer.GroupRecord("g", 2, 0, "a zombie"))
    assert [r["epoch"] for r in group(s, "g")["rebalances"]] == [1]


# ---- time -----------------------------------------------------------------------------------------------------------
def longest_ms(work: Iterator[None]) -> float:
    """The longest that it keeps the loop between two chances for others: processor time, without the collector, which a
    sidecar sets to look at little (process/app.py)."""
    longest, ended = 0.0, False
    gc.collect()
    with no_collector():
        while not ended:
            began = time.thread_time()
            ended = next(work, ENDED) is ENDED
            longest = max(longest, (time.thread_time() - began) * 1000)
    return longest


ENDED = object()
STEP_MS, TRIES = 20.0, 3


def held_ms(make: Callable[[], Iterator[None]]) -> float:
    """As above, of work that may be done again. The least of three: what else the machine does lengthens a step, too,
    but not in each try. The bound is that of every request (tests/api/test_linear.py); a quiet machine takes 2 ms."""
    least = longest_ms(make())
    for _ in range(TRIES - 1):
        if least >= STEP_MS:
            least = min(least, longest_ms(make()))
    return least


def ten_thousand_groups() -> Synthetic:
    s = Synthetic()
    s.many(10_000)
    return s


def five_thousand_members() -> Synthetic:
    s = Synthetic()
    s.consumer_group("g", members=5_000, each=1)
    return s


@pytest.mark.tier("test")  # large groups: 6 s
def test_ten_thousand_groups_do_not_hold_the_loop() -> None:
    assert held_ms(lambda: ten_thousand_groups().views.overview()) < STEP_MS
    views = ten_thousand_groups().views
    for sort in ("group", "-members", "changed"):
        assert held_ms(partial(views.find, "", "", "", sort, 0, 100)) < STEP_MS
    assert held_ms(lambda: views.find("7", "classic", "", "group", 4_000, 100)) < STEP_MS


@pytest.mark.tier("test")  # large groups: 6 s
def test_a_group_of_five_thousand_members_does_not_hold_the_loop() -> None:
    assert held_ms(lambda: five_thousand_members().views.overview()) < STEP_MS
    s = five_thousand_members()
    assert held_ms(lambda: s.views.group("g", 0, 0, 100)) < STEP_MS
    assert group(s, "g")["rebalances"][0]["moved"] == 5_000


@pytest.mark.tier("test")  # a large group
def test_what_group_tells_does_not_hold_the_loop() -> None:
    """/group tells all of a group at once. Symptom: 3,000 members held everybody up for 0.15 s, with each reader."""
    s = five_thousand_members()
    told, parts = done(s.views.whole("g")), list[bytes]()
    assert held_ms(lambda: s.views.whole("g")) < STEP_MS
    assert held_ms(lambda: encoded(told, [])) < STEP_MS
    done(encoded(told, parts))
    assert json.loads(b"".join(parts)) == json.loads(json.dumps(told)) and len(told["members"]) == 5_000
    assert encodes_equally({"a": {}, "b": [], "c": [{"d": [1, "\x1b"]}] * 40, "e": None})


def encodes_equally(told: Any) -> bool:
    parts: list[bytes] = []
    done(encoded(told, parts))
    return bool(json.loads(b"".join(parts)) == told)


def test_names_of_topics_that_are_unknown_are_ids() -> None:
    s = Synthetic()
    s.write(consumer.MemberRecord("g", "m", None, None, "client", "/10.0.0.1", 1000, ("orders",), None, None))
    s.write(consumer.TargetMemberRecord("g", "m", {TOPIC_ID: (1,)}, {}), consumer.GroupRecord("g", 1, 0, "x"))
    assert group(s, "g")["members"]["rows"][0]["target"] == {TOPIC_ID.hex(): [1]}
    assert NAMES[TOPIC_ID] == "orders"
