"""The machine of epochs and targets is of no kind: a toy kind (crew.py), in whose target a partition is two members',
goes through shard, owner, codec, link and background threads, and nothing of them was told of it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from sidecar.coordinator.runtime.assignor_task import assigning
from sidecar.coordinator.runtime.background import Background
from sidecar.core.kinds import KINDS
from sidecar.core.modern.config import ModernConfig
from sidecar.core.modern.target_assignment import AssignorDone, RunAssignor
from sidecar.core.runtime.commands import Work
from sidecar.core.runtime.events import (
    Answer,
    DeleteGroup,
    ListGroups,
    ListReply,
    Rebalance,
    ReleaseGroup,
    ReleaseReply,
)
from sidecar.core.runtime.records import Partitions
from sidecar.core.runtime.registry import Registry
from sidecar.core.runtime.turn import Computed
from sidecar.core.vocabulary.errors import Code
from sidecar.core.vocabulary.topics import Topic
from sidecar.link.codec import Frames, LinkCodec
from sidecar.link.messages import Request
from tests.core.modern import crew
from tests.core.modern.crew import ASSIGNORS, CREW, Crew, CrewBeat, CrewReply, CrewSoft
from tests.core.one_sidecar import Log, OneSidecar

REGISTRY = Registry((*KINDS, crew.KIND))
ORDERS = Topic(bytes(15) + b"\1", "orders", ((),) * 3)
CONFIG = ModernConfig(assignors=("pairs",), assignment_interval_ms=0)
AT_ONCE = replace(CONFIG, assignor_offload_enable=False)


class Crews(OneSidecar):
    def __init__(self, config: ModernConfig = AT_ONCE, log: Log | None = None) -> None:
        log = log or Log(REGISTRY, crew.FILES)
        super().__init__(log, REGISTRY, ASSIGNORS, Computed(lambda kind, group_id: config), (ORDERS,))
        self.last = 0

    def beat(self, member_id: str, epoch: int) -> CrewReply | None:
        """None: the answer waits."""
        self.last += 1
        answer = self.ask(self.last, CrewBeat("g", member_id, epoch, ("orders",)))
        assert answer is None or isinstance(answer, CrewReply)
        return answer

    def settle(self, *members: str) -> None:
        for epoch in (0, None, None):
            for m in members:
                self.beat(m, self.group.members[m].member_epoch if epoch is None else epoch)

    @property
    def group(self) -> Crew:
        shard = self.service.owners[0].shard
        assert shard is not None
        group = shard.groups["g"]
        assert isinstance(group, Crew)
        return group

    @property
    def soft(self) -> CrewSoft:
        shard = self.service.owners[0].shard
        assert shard is not None
        soft = shard.soft["g"]
        assert isinstance(soft, CrewSoft)
        return soft

    def finish(self, works: int = 1) -> None:
        """Background threads run what is under way."""
        assert len(self.work) == works
        work, self.work = self.work, []

        async def run_all() -> None:
            background, left = Background(1), len(work)
            ended = asyncio.Event()
            for w in work:
                self._submit(background, w, ended)
            await asyncio.wait_for(ended.wait(), 10)
            background.stop()
            assert left == works

        asyncio.run(run_all())

    def _submit(self, background: Background, w: Work, ended: asyncio.Event) -> None:
        assert isinstance(w.item, RunAssignor)
        inp = w.item.input

        def on_done(event: AssignorDone) -> None:
            self.done(w, event)
            ended.set()

        assignor = ASSIGNORS[inp.kind].get(inp.assignor)
        work, done = assigning(REGISTRY.runner(inp.kind), inp, assignor, self.log.encoder, on_done)
        background.submit(f"assignor {inp.assignor}", work, done)


def partition_set(*partitions: int) -> Partitions:
    return {ORDERS.id: partitions}


def test_a_partition_is_two_members() -> None:
    s = Crews()
    assert s.beat("a", 0) == CrewReply(
        member_id="a", member_epoch=2, heartbeat_interval_ms=5_000, assignment=partition_set(0, 1, 2)
    )
    s.settle("b", "c")
    s.beat("a", 2)
    assert {m: s.group.target.of(m) for m in "abc"} == {
        "a": partition_set(0, 2),
        "b": partition_set(0, 1),
        "c": partition_set(1, 2),
    }
    assert s.group.epoch == s.group.assignment_epoch == 4
    assert [m.member_epoch for m in s.group.members.values()] == [4, 4, 4]


def test_the_answer_to_a_join_waits_for_the_run_and_the_run_makes_the_bytes() -> None:
    s = Crews(CONFIG)
    assert s.beat("a", 0) is None
    s.finish()
    assert s.replies[1] == CrewReply(
        member_id="a", member_epoch=2, heartbeat_interval_ms=5_000, assignment=partition_set(0, 1, 2)
    )
    assert s.log.encoder._prepared == {}, "used"
    written = [r for r in s.log.written if r.kind == crew.TARGET]
    assert [(r.sub_id, r.why) for r in written] == [("a", "target of epoch 2 by pairs")]
    assert s.log.codec.schemas.decode(s.log.values[(crew.TARGET, "g", "a")])["partitions"][0]["topic_name"] == "orders"


def test_no_longer_than_the_settings_say() -> None:
    s = Crews(CONFIG)
    assert s.beat("a", 0) is None
    s.sleep(CONFIG.join_wait_ms + 10)
    answer = s.replies[1]
    assert isinstance(answer, CrewReply) and answer.member_epoch == 0
    s.finish()
    assert s.beat("a", 0) is not None and s.group.members["a"].member_epoch == 2


def test_a_run_of_a_member_that_left_meanwhile_assigns_nothing_to_it() -> None:
    s = Crews(replace(CONFIG, join_wait_ms=0))
    s.beat("a", 0)
    s.finish()
    s.beat("b", 0)
    s.beat("a", -1)
    s.finish()
    assert "a" not in s.group.target and list(s.group.members) == ["b"]
    assert s.group.assignment_epoch == 3 and s.group.epoch == 4, "the removal is the next run's"
    s.finish()
    assert s.group.target.of("b") == partition_set(0, 1, 2) and s.group.assignment_epoch == 4


def test_an_assignor_that_is_too_slow_is_given_up_and_run_again_ever_less_often() -> None:
    s = Crews(replace(CONFIG, join_wait_ms=0))
    s.beat("a", 0)
    (late,) = s.work
    s.sleep(CONFIG.assignor_timeout_ms + 10)
    assert s.soft.failures == 1 and s.soft.flight is None
    s.work = [late]
    s.finish()
    assert s.group.assignment_epoch == 1, "the late result is dropped"
    s.sleep(1_100)
    s.finish()
    assert s.group.assignment_epoch == 2 and s.soft.failures == 0


def test_a_kind_may_call_a_result_void_and_the_next_run_begins_at_once() -> None:
    s = Crews(replace(CONFIG, assignment_interval_ms=1_000, join_wait_ms=0))
    s.beat("a", 0)
    s.soft.void = True
    s.finish()
    assert s.group.assignment_epoch == 1
    assert "assignment dropped" in [line.event for line in s.lines]
    s.finish()
    assert s.group.assignment_epoch == 2


def test_silence_removes_a_member_and_the_last_one_leaves_an_empty_target() -> None:
    s = Crews()
    s.settle("a", "b")
    s.sleep(30_000)
    s.beat("a", s.group.members["a"].member_epoch)
    s.sleep(16_000)
    assert list(s.group.members) == ["a"]
    s.sleep(200)
    assert s.group.target.of("a") == partition_set(0, 1, 2), "by the timer"
    s.sleep(45_000)
    assert not s.group.members and s.group.epoch == s.group.assignment_epoch
    assert s.group.assignment_timestamp_ms == 0
    shard = s.service.owners[0].shard
    assert shard is not None and len(shard.timers) == 0


def test_kafkas_words_have_the_name_of_the_kind() -> None:
    s = Crews(replace(AT_ONCE, max_size=1))
    s.settle("a")
    refused = s.beat("a", 7)
    assert refused is not None and refused.code == Code.FENCED_MEMBER_EPOCH
    assert (refused.message or "").startswith("The crew group member has a greater member epoch (7)")
    full = s.beat("b", 0)
    assert full is not None and full.code == Code.GROUP_MAX_SIZE_REACHED
    assert full.message == "The crew group has reached its maximum capacity of 1 members."


def test_a_topic_that_grows_raises_the_epoch() -> None:
    s = Crews()
    s.settle("a")
    s.service.topics((Topic(ORDERS.id, "orders", ((),) * 4),), s.now)
    s.drive()
    s.beat("a", 2)
    assert s.group.epoch == 3 and s.group.target.of("a") == partition_set(0, 1, 2, 3)


def test_a_new_owner_goes_on_with_the_targets_and_arms_the_sessions() -> None:
    s = Crews()
    s.settle("a", "b", "c")
    heir = Crews(log=s.log)
    assert {m: heir.group.target.of(m) for m in "abc"} == {m: s.group.target.of(m) for m in "abc"}
    assert heir.group.epoch == s.group.epoch and [m.member_epoch for m in heir.group.members.values()] == [4, 4, 4]
    heir.sleep(46_000)
    assert not heir.group.members


def test_it_is_rebalanced_drained_listed_and_deleted_as_any_other() -> None:
    s = Crews()
    s.settle("a", "b")
    epoch = s.group.epoch
    assert s.ask(101, Rebalance("g", "the operator wants it")) == Answer()
    assert s.group.epoch == epoch + 1
    assert s.ask(102, ReleaseGroup("g", "it goes")) == ReleaseReply(members=2)
    assert [s.group.target.of(m) for m in "ab"] == [{}, {}]
    for m in "ab":
        gone = s.beat(m, s.group.members[m].member_epoch)
        assert gone is not None and gone.code == Code.UNKNOWN_MEMBER_ID
    listed = s.ask(103, ListGroups())
    assert isinstance(listed, ListReply) and [(g.group_id, g.group_type) for g in listed.groups] == [("g", CREW)]
    assert s.ask(104, DeleteGroup("g")) == Answer()
    assert s.log.values == {}


def test_the_link_carries_its_heartbeat() -> None:
    codec, request = LinkCodec(REGISTRY), Request(5, CrewBeat("g", "a", 0, ("orders",)))
    assert list(Frames(codec).feed(codec.encode(request))) == [request]


def test_a_kind_without_background_work_has_no_runner() -> None:
    with pytest.raises(TypeError, match="kind classic has no background work"):
        REGISTRY.runner("classic")


def test_the_toy_knows_no_other_kind() -> None:
    text = Path(crew.__file__).read_text()
    assert not [k for k in ("consumer", "classic", "migration") if f"sidecar.core.{k}" in text]
