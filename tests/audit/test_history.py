"""The history of one group, in words and at a moment."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

from sidecar.audit.history.group_history import Event, History, history
from sidecar.audit.history.topic import Raw, Reader, RecordsRead, row_of
from sidecar.audit.moments import moment, shown
from sidecar.audit.page.source import stamp
from sidecar.cli.history import _at, _coordinator, _owners, place_of
from sidecar.cli.main import app
from sidecar.core.runtime.commands import RENEWED
from sidecar.state.codec import Stamp, StateCodec
from sidecar.state.keys import decode_key, encode_key
from tests.audit.explain.recorded_story import RecordedStory
from tests.audit.lake.making import any_record
from tests.audit.test_fold import BEGIN, Row, classic_rows, current, row
from tests.core.test_stories import Story

MEMBER: dict[str, Any] = {
    "client_id": "c1",
    "client_host": "/10.0.0.1",
    "instance_id": None,
    "topic_names": ["t"],
    "topic_regex": None,
}
CLAIM = {"node_id": 3, "address": "h:9092"}


def events(*rows: Row) -> list[tuple[str, str, str]]:
    return [(e.what, e.who, e.detail) for e in history("g", rows).events]


def test_a_target_after_an_upgrade_counts_no_assignments_of_the_classic_group() -> None:
    target = {"assignment_epoch": 2, "assignment_timestamp_ms": 5, "assignor": "uniform"}
    told = events(
        *(row(n, "classic_assignment", f"m{n}", {"generation": 1, "assignment": b""}) for n in range(3)),
        row(3, "classic_group", "", None),
        row(4, "target_member", "m1", {"partitions": []}),
        row(5, "target_metadata", "", target),
    )
    assert told[-1] == ("target assignment", "", "epoch 2 by uniform, changes 1 members")


def test_joins_targets_moves_and_leaves_are_told_in_the_order_of_the_log() -> None:
    target = {"assignment_epoch": 2, "assignment_timestamp_ms": 5, "assignor": "uniform"}
    assert events(
        row(0, "owner_claim", "1", CLAIM, group=""),
        row(1, "member", "m1", MEMBER, why="m1 joined"),
        row(2, "group", "", {"epoch": 2}),
        row(3, "target_member", "m1", {"partitions": []}),
        row(4, "target_metadata", "", target),
        current(5, "m1", [0, 10, 2]),
        row(6, "group", "", {"epoch": 2}, revision=2),
        row(7, "member", "m1", MEMBER | {"topic_names": ["t", "u"]}, revision=2),
        current(8, "m1", [0], revision=2),
        row(9, "current", "m1", None),
        row(10, "member", "m1", None, why="session timeout"),
        row(11, "config", "consumer.session.timeout.ms", {"value": "9000"}),
        row(12, "member", "x", MEMBER, group="another"),
    ) == [
        ("coordinator", "sidecar 3", "h:9092, took over"),
        ("joined", "m1", "c1 at 10.0.0.1, subscribes to t"),
        ("group epoch", "", "2"),
        ("target assignment", "", "epoch 2 by uniform, changes 1 members"),
        ("owns", "m1", "t-0 t-2 t-10"),
        ("says something else of itself", "m1", "c1 at 10.0.0.1, subscribes to t u"),
        ("owns no more", "m1", "t-2 t-10"),
        ("owns no more", "m1", "t-0"),
        ("left", "m1", "c1 at 10.0.0.1"),
        ("setting", "consumer.session.timeout.ms", "= 9000"),
    ]


def test_a_second_owner_and_a_write_of_a_fenced_one_stand_out() -> None:
    found = events(
        row(0, "owner_claim", "1", CLAIM, group="", epoch=1),
        current(1, "m1", [0]),
        current(2, "m2", [0]),
        row(3, "owner_claim", "2", CLAIM | {"node_id": 4}, group="", epoch=2),
        current(4, "m1", [], epoch=1, revision=2),
    )
    assert ("TWO OWNERS", "m2", "t-0, also m1's") in found
    assert found[-1] == ("a write of a fenced owner, which counts for nothing", "", "owner epoch 1")


def test_who_gave_a_partition_up_in_what_is_missing_owned_it_perhaps() -> None:
    """Finding A3: the release was compacted before it was read."""
    rows = [current(1, "m1", [0]), current(5, "m2", [0]), current(9, "m1", [1], revision=3)]
    assert ("perhaps two owners", "m2", "t-0, also m1's, or records are missing") in events(*rows)
    assert not [what for what, _, _ in events(*rows) if what == "TWO OWNERS"]
    found = [(r["member"], r["certain"], r["until"]) for r in _at(history("g", rows), 1006, "t-0")]
    assert found == [("m1", "no: records are missing", f"by {shown(1009)}"), ("m2", "yes", "")]


def test_what_compaction_took_is_told() -> None:
    found = history("g", [current(1, "m1", [0], revision=5), current(9, "m1", [0, 1], revision=6)])
    assert (found.missing, found.complete_ms) == (4, 1001)
    assert history("g", [current(1, "m1", [0])]).missing == 0


def test_a_record_that_cannot_be_read_does_not_hide_the_others() -> None:
    broken = row(1, "current", "m1", None) | {"problem": "damaged value"}
    found = history("g", [current(0, "m1", [0]), broken, current(2, "m2", [1])])
    assert found.unreadable == 1 and len(found.intervals) == 2
    assert [e.what for e in found.events] == ["owns", "a record that cannot be read", "owns"]


def test_who_may_have_given_it_up_in_an_unreadable_record_owned_it_perhaps() -> None:
    """Symptom: two owners were certain, and the first had only one record that nobody could read."""
    broken = row(3, "current", "m1", None) | {"problem": "damaged value"}
    rows = [current(1, "m1", [0]), broken, current(5, "m2", [0])]
    assert ("perhaps two owners", "m2", "t-0, also m1's, or records are missing") in events(*rows)
    found = [(r["member"], r["certain"]) for r in _at(history("g", rows), 1005, "t-0")]
    assert found == [("m1", "no: records are missing"), ("m2", "yes")]
    again = [current(4, "m1", [0], revision=3), current(5, "m2", [0])]
    assert ("TWO OWNERS", "m2", "t-0, also m1's") in events(*rows[:2], *again)


def test_a_claim_counts_although_its_value_is_damaged() -> None:
    """Symptom: all that its sidecar wrote was said to be a fenced owner's, and to count for nothing."""
    broken = row(2, "owner_claim", f"{2:020d}", None, group="") | {"problem": "damaged value", "owner_epoch": None}
    found = events(
        row(0, "owner_claim", f"{1:020d}", CLAIM, group=""),
        current(1, "m1", [0]),
        broken,
        current(3, "m1", [], epoch=2, revision=2),
        current(4, "m1", [0], epoch=1, revision=3),
    )
    assert [what for what, _, _ in found] == [
        "coordinator",
        "owns",
        "a record that cannot be read",
        "owns no more",
        "a write of a fenced owner, which counts for nothing",
    ]


@pytest.mark.parametrize("number", ["", "x", "²", "-1", " 1", "1_0", "٣", "9" * 5000])
def test_a_header_that_is_no_number_is_none(number: str) -> None:
    """Symptom: `sidecar history` ended with a traceback."""
    raw = Raw(1, 1, decode_key(encode_key("group", "g", "")), None, {"owner_epoch": number, "revision": number})
    told = row_of(raw, StateCodec().schemas)
    assert (raw.owner_epoch, told["owner_epoch"], told["revision"]) == (-1, None, None)


@pytest.mark.parametrize(
    ("ms", "text"),
    [(1 << 62, "9999-12-31 23:59:59.999"), (-(1 << 62), "1970-01-01 00:00:00.000"), (1, "1970-01-01 00:00:00.001")],
)
def test_any_time_of_a_record_can_be_shown(ms: int, text: str) -> None:
    """Symptom: one record with the time in microseconds ended `sidecar history` with a traceback."""
    assert shown(ms) == text
    assert stamp(ms).startswith(text[:19])


def test_a_classic_group_is_told_by_its_generations() -> None:
    s = Story()
    for line in filter(None, map(str.strip, BEGIN.splitlines())):
        s.run(line)
    events = history("g", classic_rows(s.world)).events
    assert [(e.what, e.detail) for e in events if e.what in ("CompletingRebalance", "Stable")][-1:] == [
        ("Stable", "generation 1, leader m1-1")
    ]
    assert ("owns", "m2-1", "a-2 a-3") in [(e.what, e.who, e.detail) for e in events]


@pytest.mark.parametrize(("at_ms", "owners"), [(1000, []), (1001, ["m1"]), (1003, []), (1004, ["m2"])])
def test_who_owned_a_partition_at_a_moment(at_ms: int, owners: list[str]) -> None:
    found = history("g", [current(1, "m1", [0]), current(3, "m1", [], revision=2), current(4, "m2", [0])])
    assert [r["member"] for r in _at(found, at_ms, "t-0")] == owners
    assert list(_at(found, at_ms, "t-1")) == []


def test_the_coordinator_is_told_with_the_time_since_when_it_is_it() -> None:
    found = history(
        "g",
        [
            row(0, "owner_claim", "1", CLAIM, group="", why="assigned"),
            row(1, "owner_claim", "2", CLAIM | {"node_id": 4, "address": "i:9092"}, epoch=2, group="", why="assigned"),
            row(2, "owner_claim", "3", CLAIM | {"node_id": 4, "address": "i:9092"}, epoch=3, group="", why=RENEWED),
            current(3, "m1", [0], epoch=3),
        ],
    )
    (now,) = _at(found, 2000, None)
    told = {name: now[name] for name in ("coordinator", "address", "coordinates_since")}
    assert told == {"coordinator": "sidecar 4", "address": "i:9092", "coordinates_since": shown(1001)}
    assert _coordinator(found, 1000)["coordinator"] == "sidecar 3"
    assert _coordinator(found, 999)["coordinator"] == ""


def test_a_coordinator_whose_first_claim_is_missing_may_have_been_it_earlier() -> None:
    found = history("g", [row(1, "owner_claim", "3", CLAIM, group="", why=RENEWED), current(3, "m1", [0])])
    assert _coordinator(found, 2000)["coordinates_since"] == f"by {shown(1001)}"


def owner_of(monkeypatch: pytest.MonkeyPatch, rows: list[Row], *more: str) -> Any:
    monkeypatch.setattr(Reader, "of_group", lambda reader, group: iter(rows))
    words = ["owner", "t-0", "--group", "g", "--bootstrap", "127.0.0.1:1", "-o", "json", *more]
    return CliRunner().invoke(app, words)


def test_an_owner_of_now_is_found_by_a_clock_that_is_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: nobody owned what a sidecar with a faster clock had given to a member a moment ago."""
    late = current(1, "m1", [0]) | {"time_ms": int(time.time() * 1000) + 3_600_000}
    done = owner_of(monkeypatch, [late])
    assert done.exit_code == 0 and json.loads(done.stdout)["member"] == "m1"
    done = owner_of(monkeypatch, [late, {**current(2, "m1", [], revision=2), "time_ms": late["time_ms"] + 1}])
    assert done.exit_code == 1 and "Nobody owns t-0, as far as" in done.stderr


def test_an_owner_of_a_time_whose_records_are_missing_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: before what compaction left, nobody owned anything, and no word was said of missing records."""
    rows = [row(1, "member", "m1", MEMBER, revision=9), current(5, "m1", [0], revision=40)]
    done = owner_of(monkeypatch, rows, "--at", "1970-01-01T00:00:00")
    assert done.exit_code == 1 and done.stdout == ""
    assert "Compaction took 47 records" in done.stderr and "is not known" in done.stderr
    done = owner_of(monkeypatch, [*rows, current(6, "m1", [], revision=41)])
    assert done.exit_code == 1 and "Compaction took" in done.stderr and "Nobody owns t-0" in done.stderr


class Counted(list[Event]):
    """Events that count how often they are all looked at."""

    looks = 0

    def __iter__(self) -> Iterator[Event]:
        self.looks += 1
        return super().__iter__()


def test_all_owners_of_a_group_cost_one_look_at_its_events() -> None:
    """Symptom: for each row all events were looked at: 25 s for a large group."""
    found = history("g", [current(1, "m1", list(range(100)))])
    found.events = Counted(found.events)
    assert len(list(_at(found, 2000, None))) == 100
    assert found.events.looks <= 3


def test_a_history_of_nothing_has_its_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Reader, "of_group", lambda reader, group: iter([current(1, "m1", [0])]))
    words = ["history", "g", "--since", "2099-01-01", "--bootstrap", "127.0.0.1:1", "-o", "csv"]
    assert CliRunner().invoke(app, words).stdout == "time,offset,what,who,detail,why\n"


def test_nobody_owned_anything_in_an_empty_history() -> None:
    assert list(_at(History("g"), 0, None)) == []


@pytest.mark.parametrize(
    ("text", "place"), [("t-0", ("t", 0)), ("a-b-12", ("a-b", 12)), ("group", None), ("a-b", None), ("-1", None)]
)
def test_a_partition_is_told_from_a_group(text: str, place: tuple[str, int] | None) -> None:
    assert place_of(text) == place


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1970-01-01T00:00:01", 1_000),
        ("1970-01-01 01:00:01.5+01:00", 1_500),
        ("1970-01-02", 86_400_000),
        ("1795420800000", 1_795_420_800_000),
        ("15m", 9_100_000),
        ("2h", 2_800_000),
    ],
)
def test_moments_as_people_write_them(text: str, ms: int) -> None:
    assert moment(text, 10_000_000) == ms


@pytest.mark.parametrize("text", ["20261123103200", "202611231032", "946684799999", "4102444800000"])
def test_a_date_without_dashes_is_no_unix_ms(text: str) -> None:
    with pytest.raises(ValueError, match=rf"{text} is no Unix ms of the years 2000 to 2099\. Write 2026-11-23T08:15"):
        moment(text, 0)


def test_what_is_no_moment_says_what_would_be_one() -> None:
    with pytest.raises(ValueError, match="so long ago"):
        moment("yesterday", 0)
    assert shown(1_500) == "1970-01-01 00:00:01.500"


ANEW = "m1 join-group\nm2 join-group\nm1 sync-group m1=a:0,1 m2=a:2,3\n"
UPGRADED = """
    config assignment_interval_ms=0
    c1 join names=a
    m1 join-group owned=a:0,1 of=2
    m2 join-group owned=a:2 of=2
    c1 heartbeat
"""


@pytest.mark.parametrize(("more", "owner"), [(ANEW, ("m2-1", 2)), (ANEW + UPGRADED, ("c1", 3))])
def test_a_partitions_owner_has_the_same_epoch_whether_the_group_is_named_or_not(
    more: str, owner: tuple[str, int]
) -> None:
    """Symptom: without --group it was the generation of the member's first assignment, not the classic group's."""
    taken = RecordedStory(BEGIN + more).taken

    class OneGroup(Reader):
        def __init__(self) -> None: ...

        def partitions(self) -> int:
            return 1

        def read(self, partition: int, wanted: Any = lambda key: True, after: RecordsRead | None = None) -> RecordsRead:
            return RecordsRead(partition, [r for r in taken.records if wanted(r.key)], taken.schemas)

    named, found = (_owners(OneGroup(), "a-3", group, 1 << 60)[0] for group in ("g", None))
    assert [(r["member"], r["epoch"]) for r in found] == [owner] and found == named


def test_of_a_partition_only_the_groups_that_name_its_topic_are_decoded() -> None:
    """The others' values stand in the topic too, but nothing is asked of them."""
    codec, rng = StateCodec(), random.Random(1)
    taken = RecordsRead(0)
    claim = codec.claim(Stamp(1, 0), 1, "topic-7:1", "m", 1, "assigned")
    taken.records += [Raw(400, 400, decode_key(claim.key), claim.value), Raw(401, 401, None, b"topic-7")]
    named = set()
    for offset in range(400):
        made = codec.encode(any_record(rng, f"group-{offset % 40}"), Stamp(1, offset), 1)
        key = decode_key(made.key)
        taken.records.append(Raw(offset, offset, key, made.value))
        body = row_of(taken.records[-1], taken.schemas)["body"] or ""
        if key.kind in ("current", "target_member") and "'topic-7'" in str(body):
            named.add(key.group_id)
    found = taken.about_topic("topic-7")
    assert named and named <= found.keys() and len(found) < 40
    for group_id, its in found.items():
        with_claims = [r for r in taken.records if r.key is None or r.key.group_id in ("", group_id)]
        assert its.records == with_claims, "and with what may be the group's"
    assert taken.about_topic("no-such-topic") == {}
