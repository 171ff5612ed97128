"""An answer waits for the records of its own group, and of no other."""

from __future__ import annotations

from sidecar.core.consumer.config import ConsumerConfig
from sidecar.core.consumer.events import ConsumerHeartbeat, HeartbeatReply
from sidecar.core.consumer.group import consumer_group
from sidecar.core.runtime.commands import Append, Command
from sidecar.core.runtime.effects import Effects, Reply
from sidecar.core.runtime.events import Answer
from sidecar.core.runtime.records import Partitions
from sidecar.core.runtime.shard import Shard
from sidecar.core.vocabulary.errors import Code
from tests.core.test_loading import CONFIG, NewOwner, beat, written


class SlowAppends(NewOwner):
    """A new owner whose appends a test commits. No answer waits for an assignor."""

    config = ConsumerConfig(join_wait_ms=0)

    def __init__(self, **members: int) -> None:
        log, self.clients = written(**members)
        self.appended: list[Append] = []
        super().__init__(log)
        self.take_over()
        self.all()

    def drive(self) -> None:
        out: list[Command] = self.service.out
        self.appended += [c for c in out if isinstance(c, Append)]
        out[:] = [c for c in out if not isinstance(c, Append)]
        super().drive()

    def commit(self, count: int) -> None:
        """The first so many appends."""
        for _ in range(count):
            c = self.appended.pop(0)
            self.owner.committed(c.attempt, c.serial, self.now)
        self.drive()

    def join(self, token: int, group_id: str, member_id: str) -> None:
        event = ConsumerHeartbeat(group_id, member_id, 0, rebalance_timeout_ms=1_000, topic_names=("t",), owned={})
        assert self.ask(token, event) is None

    def sleep_until(self, at_ms: int) -> None:
        while self.at < at_ms:
            self.at += 50
            self.service.wake(self.now)
            self.drive()

    def members(self, group_id: str) -> int:
        assert self.owner.shard is not None
        group = self.owner.shard.groups.get(group_id)
        return 0 if group is None else group.member_count()

    def code(self, token: int) -> Code | None:
        answer = self.replies.get(token)
        assert answer is None or isinstance(answer, HeartbeatReply)
        return None if answer is None else answer.code


def test_an_answer_waits_for_the_records_of_its_group() -> None:
    s = SlowAppends(g=2)
    s.join(1, "g", "new")
    assert s.ask(2, beat(s.clients["g"])) is None, "what it says rests on records that may be lost"
    s.commit(1)
    assert s.code(2) == Code.NONE


def test_an_answer_does_not_wait_for_the_records_of_others() -> None:
    s = SlowAppends(g=2, h=2)
    s.join(1, "g", "new")
    assert s.ask(2, beat(s.clients["h"])) is not None and s.code(2) == Code.NONE


def test_answers_leave_as_their_groups_are_committed() -> None:
    """Answers of one group wait for an earlier append than those of another, which were held before."""
    s = SlowAppends(g=2, h=2)
    s.join(1, "h", "new")
    s.join(2, "g", "new")
    assert s.ask(3, beat(s.clients["g"])) is None
    assert s.ask(4, beat(s.clients["h"])) is None
    s.commit(1)
    assert s.code(4) == Code.NONE and s.code(3) is None
    s.commit(1)
    assert s.code(3) == Code.NONE


def test_whoever_waits_when_the_state_is_dropped_is_sent_on() -> None:
    s = SlowAppends(g=2, h=2)
    s.join(1, "g", "new")
    assert s.ask(2, beat(s.clients["g"])) is None
    s.owner.resigned("moved")
    s.drive()
    assert s.code(2) == Code.NOT_COORDINATOR
    s.take_over()
    s.all()
    assert s.ask(3, beat(s.clients["h"])) is not None, "nothing is left of what was held"


def test_an_answer_that_waited_while_the_lease_ended_is_not_given() -> None:
    """Symptom: a sidecar that was suspended between an append and its answer told a member that it owns partitions,
    which a new owner had taken from it since. Cause: the lease was looked at when the request came, and not when its
    answer left. Found by the model (tests/model)."""
    s = SlowAppends(g=2)
    s.join(1, "g", "new")
    assert s.ask(2, beat(s.clients["g"])) is None
    s.at = s.service.lease.until_ms  # the process stood still
    s.commit(1)
    assert s.code(2) == Code.NOT_COORDINATOR


def test_partitions_that_a_member_does_not_report_are_given_again_only_under_a_fenced_write() -> None:
    """The member may have given them up at another owner, whose answer was lost: this sidecar would learn of that only
    by its tail. Found by the model (tests/model)."""
    s = SlowAppends(g=2)
    assert s.owner.shard is not None
    group = consumer_group(s.owner.shard.groups, "g")
    assert group is not None
    member = group.members[s.clients["g"].member_id]
    assigned = member.assigned_partitions()

    def ask(token: int, owned: Partitions) -> Answer | None:
        timeout_ms, names = member.rebalance_timeout_ms, member.topic_names
        identity = "g", member.member_id, member.member_epoch
        return s.ask(
            token, ConsumerHeartbeat(*identity, rebalance_timeout_ms=timeout_ms, topic_names=names, owned=owned)
        )

    assert ask(1, {}) is None
    (proof,) = s.appended
    assert not proof.records
    s.commit(1)
    answer = s.replies[1]
    assert isinstance(answer, HeartbeatReply) and answer.assignment == assigned
    assert ask(2, assigned) is not None and not s.appended


def test_one_turn_can_prove_several_groups() -> None:
    """Due timers of all groups of a partition run in one turn."""
    s = SlowAppends(g=2, h=2)

    def prove_both(shard: Shard) -> Effects:
        shard._turn.prove("g")
        shard._turn.prove("h")
        return shard._turn.fx

    s.owner._run(prove_both, s.now)
    assert s.ask(1, beat(s.clients["g"])) is None and s.ask(2, beat(s.clients["h"])) is None
    (proof,) = s.appended
    assert not proof.records
    s.commit(1)
    assert s.code(1) == s.code(2) == Code.NONE


def test_nobody_is_removed_for_silence_while_nobody_can_be_answered() -> None:
    """A broker that died stays in the in-sync set for longer than a session: the answer to a join waits for as long."""
    s = SlowAppends(g=2, h=2)
    s.join(1, "g", "new")
    assert s.ask(2, beat(s.clients["g"])) is None
    began, session_ms = s.at, CONFIG.session_timeout_ms
    s.sleep_until(began + session_ms + 1_000)
    assert s.members("g") == 3, "it waits for an answer"
    assert s.members("h") == 0, "whoever could be answered has been silent"
    s.commit(len(s.appended))
    assert s.code(1) == s.code(2) == Code.NONE
    s.sleep_until(began + 2 * session_ms - 1_000)
    assert s.members("g") == 3, "they have the time back in which they could not hear"
    s.sleep_until(began + 2 * session_ms + 1_000)
    s.commit(len(s.appended))
    s.sleep_until(began + 2 * session_ms + 2_000)
    assert s.members("g") == 0


def test_an_answer_that_waited_brings_no_grant_if_the_group_has_changed_meanwhile() -> None:
    s = SlowAppends(g=2)
    replies: list[Reply] = []
    s.join(1, "g", "new")
    assert s.ask(2, beat(s.clients["g"])) is None
    s.join(3, "g", "newer")
    while s.appended:
        c = s.appended.pop(0)
        s.owner.committed(c.attempt, c.serial, s.now)
        replies += [r for r in s.service.out if isinstance(r, Reply)]
        s.drive()
    (waited,) = [r for r in replies if r.token == 2]
    assert waited.grant is None
    assert s.owner.shard is not None and not s.owner.shard.soft["g"].granted
