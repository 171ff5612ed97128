"""A new kind of group is one folder and one row: a toy kind with a record, a timer, and an answer that another member's
event releases goes through shard, owner, codec and link, and nothing of them was told of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import pytest

from sidecar.core.consumer.registration import CONSUMER
from sidecar.core.kinds import KINDS
from sidecar.core.runtime.events import (
    Answer,
    DeleteGroup,
    DeletionCheck,
    DeletionCheckReply,
    Event,
    ListGroups,
    ListReply,
)
from sidecar.core.runtime.inspect import Explained, Heading, Inspect
from sidecar.core.runtime.offset_checks import CheckReply, CommitCheck, FetchCheck
from sidecar.core.runtime.records import Record, RecordKind, Role, Tombstone
from sidecar.core.runtime.registry import NO_GROUP, GroupKind, Registry
from sidecar.core.runtime.turn import Soft, Turn
from sidecar.core.vocabulary.errors import Code, CoordinatorError
from sidecar.link.codec import Frames, LinkCodec
from sidecar.link.messages import Request
from sidecar.state.schema import published
from tests.core.one_sidecar import Log, OneSidecar

# ---- the kind: two members meet; the first waits for the second, for a second at most ------------------------------
MEETING = "toy_meeting"
SCHEMA = {
    "type": "record",
    "name": "ToyMeeting",
    "fields": [
        {"name": "owner_epoch", "type": "long"},
        {"name": "time_ms", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "revision", "type": "long"},
        {"name": "why", "type": "string"},
        {"name": "guests", "type": {"type": "array", "items": "string"}},
    ],
}


@dataclass(frozen=True, slots=True)
class MeetingRecord:
    group_id: str
    guests: tuple[str, ...]
    why: str = ""

    kind = MEETING
    sub_id = ""

    def body(self) -> dict[str, Any]:
        return {"guests": list(self.guests)}

    @classmethod
    def of(cls, group_id: str, sub_id: str, body: Mapping[str, Any]) -> Self:
        return cls(group_id, tuple(body["guests"]), body["why"])


class ToyAnswer(Answer):
    guests: tuple[str, ...] = ()


class Meet(Event):
    answer: ClassVar[type[Answer]] = ToyAnswer

    name: str = ""


@dataclass
class Meeting:
    group_id: str
    guests: tuple[str, ...] = ()

    held_bytes = 0
    kind = "toy"
    protocol_type = "toy"

    def state_name(self) -> str:
        return "Met" if self.guests else "Empty"

    def member_ids(self) -> tuple[str, ...]:
        return ()

    def member_count(self) -> int:
        return 0

    def deletion_check(self) -> DeletionCheckReply:
        return DeletionCheckReply(exists=True)

    def replay(self, record: Record) -> None:
        assert isinstance(record, MeetingRecord)
        self.guests = record.guests

    def tombstones(self, why: str) -> list[Tombstone]:
        return [Tombstone(MEETING, self.group_id, "", why)]


@dataclass
class ToySoft(Soft):
    waiting: dict[str, int] = field(default_factory=dict)
    """Name -> token."""


def meet(turn: Turn, event: Meet, token: int) -> None:
    if not event.name:
        raise CoordinatorError(Code.INVALID_REQUEST, "A guest has a name.")
    if event.group_id not in turn.groups:
        turn.write(MeetingRecord(event.group_id, (), "opened"))
    soft: ToySoft = turn.soft_of(event.group_id)
    soft.waiting[event.name] = token
    if len(soft.waiting) == 1:
        turn.timers.set(("alone", event.group_id), turn.now.mono_ms + 1_000)
        return
    turn.timers.cancel(("alone", event.group_id))
    guests = tuple(sorted(soft.waiting))
    turn.write(MeetingRecord(event.group_id, guests, "met"))
    for waiting in soft.waiting.values():
        turn.reply(waiting, ToyAnswer(guests=guests))
    soft.waiting = {}


def refuse_waiting(turn: Turn, group: Meeting, key: tuple[str, ...], tag: int) -> None:
    soft: ToySoft = turn.soft_of(group.group_id)
    for token in soft.waiting.values():
        turn.reply(token, ToyAnswer(Code.REBALANCE_IN_PROGRESS, "Nobody else came."))
    soft.waiting = {}


INSPECT = Inspect(
    states={"Empty": "nobody has come", "Met": "they have met"},
    at_rest=frozenset(("Empty", "Met")),
    facts=lambda group: {"epoch": len(group.guests), "assignment_epoch": 0, "assignor": ""},
    member=lambda group, member_id, names: None,
    heading=lambda body: Heading(len(body["guests"])),
    begins=lambda before, now: before != now,
    places=lambda body: set(),
    history={},
    explain=lambda told, group, image, live: Explained(0, {}),
)
TOY = GroupKind(
    name="toy",
    make=Meeting,
    soft=ToySoft,
    config=dict,
    records=(RecordKind(MEETING, MeetingRecord, "toy-v1", Role.GROUP),),
    events={Meet: meet},
    timers={"alone": refuse_waiting},
    loaded=lambda turn, group: None,
    touched=lambda turn, group, member_id: None,
    topics_changed=lambda turn, group, changed: None,
    inspect=INSPECT,
)
REGISTRY = Registry((*KINDS, TOY))
FILES = {**published(), "toy-v1": json.dumps(SCHEMA), "hall-v1": json.dumps({**SCHEMA, "name": "ToyHall"})}


class OneLog(Log):
    def __init__(self, registry: Registry = REGISTRY) -> None:
        super().__init__(registry, FILES)


class Sidecar(OneSidecar):
    def __init__(self, log: Log, registry: Registry = REGISTRY) -> None:
        super().__init__(log, registry)


def test_an_answer_is_released_by_another_members_event() -> None:
    s = Sidecar(OneLog())
    assert s.ask(1, Meet("g", "ann")) is None
    assert s.ask(2, Meet("g", "bob")) == s.replies[1] == ToyAnswer(guests=("ann", "bob"))
    assert [r.why for r in s.log.written] == ["opened", "met"]
    assert s.service.tally.open == 0


def test_the_driver_rests_until_a_timer_is_due_and_no_longer_than_it_likes() -> None:
    s = Sidecar(OneLog())
    assert s.service.rest_s(s.now, 0.05) == 0.05
    s.ask(1, Meet("g", "ann"))
    due = s.service.owners[0].shard.timers.next_ms()  # type: ignore[union-attr]
    assert due is not None
    for before_ms, rest_s in ((100, 0.05), (20, 0.02), (1, 0.005), (0, 0.05), (-10, 0.05)):
        s.at = due - before_ms
        assert s.service.rest_s(s.now, 0.05) == rest_s


def test_an_answer_is_released_by_a_timer() -> None:
    s = Sidecar(OneLog())
    assert s.ask(1, Meet("g", "ann")) is None
    s.sleep(900)
    assert 1 not in s.replies
    s.sleep(200)
    assert s.replies[1].code == Code.REBALANCE_IN_PROGRESS


def test_a_new_owner_rebuilds_it_and_who_waited_is_sent_there() -> None:
    s = Sidecar(OneLog())
    s.ask(1, Meet("g", "ann"))
    s.ask(2, Meet("g", "bob"))
    assert s.ask(3, Meet("g", "cid")) is None
    s.service.lost("a test")
    s.drive()
    assert s.replies[3].code == Code.NOT_COORDINATOR
    heir = Sidecar(s.log)
    found = heir.ask(1, ListGroups())
    assert isinstance(found, ListReply)
    assert [(g.group_id, g.state, g.group_type) for g in found.groups] == [("g", "Met", "toy")]


def test_a_refusal_names_no_kind() -> None:
    s = Sidecar(OneLog())
    assert s.ask(1, Meet("g", "")) == ToyAnswer(Code.INVALID_REQUEST, "A guest has a name.")


def test_deletion_check_and_delete_know_every_kind() -> None:
    s = Sidecar(OneLog())
    assert s.ask(1, DeletionCheck("g")) == DeletionCheckReply()
    s.ask(2, Meet("g", "ann"))
    s.sleep(1_100)
    assert s.ask(3, DeletionCheck("g")) == DeletionCheckReply(exists=True)
    assert s.ask(4, DeleteGroup("g")) == Answer()
    assert s.log.values == {}


def test_the_link_carries_its_event() -> None:
    codec = LinkCodec(REGISTRY)
    assert list(Frames(codec).feed(codec.encode(Request(5, Meet("g", "ann"))))) == [Request(5, Meet("g", "ann"))]


def test_a_name_belongs_to_one_kind() -> None:
    twin = GroupKind(**{**vars(TOY), "name": "twin"})
    with pytest.raises(ValueError, match="taken already"):
        Registry((CONSUMER, TOY, twin))


def test_it_is_gone_without_a_trace() -> None:
    assert "toy" not in Registry(KINDS).kinds and MEETING not in Registry(KINDS).records


# ---- a second kind that answers the same event: a hall lets everybody in at once -----------------------------------
HALL = "toy_hall"


@dataclass(frozen=True, slots=True)
class HallRecord(MeetingRecord):
    kind = HALL


@dataclass
class Hall(Meeting):
    kind = "hall"

    def tombstones(self, why: str) -> list[Tombstone]:
        return [Tombstone(HALL, self.group_id, "", why)]


class Close(Event):
    """An event that only halls handle."""


def enter(turn: Turn, event: Meet, token: int) -> None:
    group = turn.groups.get(event.group_id)
    guests = (*(group.guests if group else ()), event.name)
    turn.write(HallRecord(event.group_id, guests, "entered"))
    turn.reply(token, ToyAnswer(guests=guests))


def close(turn: Turn, event: Close, token: int) -> None:
    if not isinstance(turn.groups.get(event.group_id), Hall):
        raise CoordinatorError(Code.GROUP_ID_NOT_FOUND, "There is no such hall.")
    turn.write(Tombstone(HALL, event.group_id, "", "closed"))
    turn.reply(token, Answer())


def make_a_hall_of_it(turn: Turn, event: Close, token: int) -> None:
    """A crossing that makes a hall of a meeting within one turn."""
    guests = turn.groups[event.group_id].guests
    turn.write(Tombstone(MEETING, event.group_id, "", "became a hall"))
    turn.write(HallRecord(event.group_id, guests, "was a meeting"))
    turn.reply(token, Answer())


HALLS = GroupKind(
    name="hall",
    make=Hall,
    soft=ToySoft,
    config=dict,
    records=(RecordKind(HALL, HallRecord, "hall-v1", Role.GROUP),),
    events={Meet: enter, Close: close},
    timers={},
    loaded=lambda turn, group: None,
    touched=lambda turn, group, member_id: None,
    topics_changed=lambda turn, group, changed: None,
    inspect=INSPECT,
)
BOTH = Registry((*KINDS, HALLS, TOY))
CROSSED = Registry((*KINDS, HALLS, TOY), {"toy": {Close: make_a_hall_of_it}})


def met(registry: Registry) -> Sidecar:
    """A hall `h` and a meeting `m`."""
    log = OneLog(registry)
    log.append([MeetingRecord("m", ("ann", "bob"), "met")])
    s = Sidecar(log, registry)
    s.ask(101, Meet("h", "ann"))
    return s


def test_several_kinds_answer_one_event_each_for_its_own_groups() -> None:
    s = met(BOTH)
    assert s.ask(1, Meet("h", "bob")) == ToyAnswer(guests=("ann", "bob"))
    assert s.ask(2, Meet("m", "cid")) is None, "a meeting waits for a second guest"
    assert s.ask(3, Meet("m", "dan")) == ToyAnswer(guests=("cid", "dan"))
    listed = s.ask(4, ListGroups())
    assert isinstance(listed, ListReply)
    assert sorted((g.group_id, g.group_type) for g in listed.groups) == [("h", "hall"), ("m", "toy")]


def test_the_first_of_them_answers_where_there_is_no_group() -> None:
    assert BOTH.events[Meet][NO_GROUP] is enter and Registry((*KINDS, TOY, HALLS)).events[Meet][NO_GROUP] is meet
    assert met(BOTH).ask(1, Meet("new", "ann")) == ToyAnswer(guests=("ann",))


def test_an_event_that_a_kind_does_not_know_finds_no_group() -> None:
    s = met(BOTH)
    assert s.ask(1, Close("m")) == Answer(Code.GROUP_ID_NOT_FOUND, "There is no such hall.")
    assert s.ask(2, Close("h")) == Answer()
    assert s.ask(3, CommitCheck("m", "", -1, None, 9, False, ())) == CheckReply()
    assert s.ask(4, CommitCheck("m", "ann", 1, None, 9, False, ())) == CheckReply(Code.UNKNOWN_MEMBER_ID)
    assert s.ask(5, FetchCheck("m", "ann", 1)) == CheckReply()


def test_a_crossing_says_what_becomes_of_it() -> None:
    s = met(CROSSED)
    assert s.ask(1, Close("m")) == Answer()
    assert {(kind, group_id) for kind, group_id, _ in s.log.values} == {(HALL, "m"), (HALL, "h")}
    assert s.ask(2, Meet("m", "cid")) == ToyAnswer(guests=("ann", "bob", "cid")), "it is a hall now"
    assert s.ask(3, Close("m")) == Answer()
    assert s.ask(4, Close("m")) == Answer(Code.GROUP_ID_NOT_FOUND, "There is no such hall.")
    heir = Sidecar(s.log, CROSSED)
    listed = heir.ask(1, ListGroups())
    assert isinstance(listed, ListReply) and [g.group_id for g in listed.groups] == ["h"]


def test_no_crossing_for_what_a_kind_answers_itself() -> None:
    with pytest.raises(ValueError, match="kind toy answers Meet itself"):
        Registry((*KINDS, HALLS, TOY), {"toy": {Meet: enter}})


def test_the_kinds_of_this_coordinator_share_the_offset_checks() -> None:
    for event in (CommitCheck, FetchCheck):
        assert Registry(KINDS).events[event].keys() >= {kind.name for kind in KINDS}
