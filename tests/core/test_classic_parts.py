"""Classic groups: what fronts may answer by themselves, states that may follow each other, deleted groups."""

from __future__ import annotations

import pytest

from sidecar.core.classic.config import ClassicConfig
from sidecar.core.classic.embedded import assignment
from sidecar.core.classic.events import JoinReply
from sidecar.core.classic.group import ClassicGroup
from sidecar.core.classic.records import AssignmentRecord, GroupRecord, MemberRecord, State
from sidecar.core.classic.stale_claims import stale_claims_of
from sidecar.core.consumer.records import GroupRecord as ConsumerGroupRecord
from sidecar.core.runtime.effects import TOUCH_MS, Grant, Log
from sidecar.core.runtime.events import Answer, DeleteGroup
from sidecar.core.vocabulary.errors import Code, InvariantError
from tests.core.classic_client import ClassicClient, subscription
from tests.core.world import World

SESSION_MS = 10_000


def client(world: World, name: str) -> ClassicClient:
    return ClassicClient(name, protocols=(("range", subscription(["a"])),), session_ms=SESSION_MS)


def joined(world: World, *names: str) -> list[ClassicClient]:
    """Members of the first generation, which have not synced."""
    clients = [client(world, name) for name in names]
    waiting = []
    for c in clients:
        c.joined(_join_reply(world.ask(c.join())))
        waiting.append((c, world.request(c.join())))
    world.sleep(6_000)
    for c, token in waiting:
        c.joined(_join_reply(world.replies.pop(token).answer))
    return clients


def _join_reply(answer: Answer) -> JoinReply:
    assert isinstance(answer, JoinReply)
    return answer


def beat(world: World, c: ClassicClient) -> tuple[Code, Grant | None]:
    reply = world.replies.pop(world.request(c.beat()))
    return Code(reply.answer.code), reply.grant


def revision(world: World) -> int:
    return world.shard.soft["g"].revision


def test_a_stable_group_s_assignment_is_given_only_under_a_fenced_write() -> None:
    """The member may have joined a later generation at another owner, whose answer was lost."""
    world = World()
    m1, m2 = joined(world, "m1", "m2")
    world.ask(m1.sync({"m1-1": b"x", "m2-1": b"y"}))
    fx = world.shard.handle(m2.sync({}), 100, world.now)
    assert (fx.proved, fx.records, len(fx.replies)) == (["g"], [], 1)


def test_a_heartbeat_is_granted_until_the_session_ends_or_something_changes() -> None:
    world = World()
    m1, m2 = joined(world, "m1", "m2")
    until = world.now_ms + SESSION_MS
    assert beat(world, m1) == (Code.NONE, Grant("g", "m1-1", revision(world), until)), "while members sync, too"
    granted = revision(world)
    world.ask(m1.sync({"m1-1": b"x", "m2-1": b"y"}))
    assert revision(world) > granted, "the assignments are there: what was granted is void"
    code, grant = beat(world, m1)
    assert code == Code.NONE and grant is not None and grant.revision == revision(world)
    world.ask(m2.sync({}))
    world.ask(m2.commit())
    assert revision(world) == grant.revision, "nothing has changed"


def test_what_members_must_be_told_at_once_is_not_granted() -> None:
    world = World()
    m1, _ = joined(world, "m1", "m2")
    _, grant = beat(world, m1)
    assert grant is not None
    m3 = client(world, "m3")
    m3.joined(_join_reply(world.ask(m3.join())))
    assert revision(world) == grant.revision, "a member id was given out: no rebalance yet"
    world.request(m3.join())
    assert revision(world) > grant.revision
    assert beat(world, m1) == (Code.REBALANCE_IN_PROGRESS, None)
    m1.generation -= 1
    assert beat(world, m1) == (Code.ILLEGAL_GENERATION, None)


def test_a_member_whom_the_front_answers_lives_a_little_longer_than_its_session() -> None:
    world = World()
    m1, m2 = joined(world, "m1", "m2")
    world.sleep(SESSION_MS - 100)
    for c in (m1, m2):
        world.shard.touch("g", c.member_id, world.now)
    world.shard.touch("g", "nobody", world.now)
    world.shard.touch("nothing", m1.member_id, world.now)
    world.sleep(SESSION_MS, 50)
    assert world.member_ids("g") == {"m1-1", "m2-1"}
    world.sleep(TOUCH_MS, 50)
    assert world.member_ids("g") == set()


@pytest.mark.parametrize(
    ("state", "next_state"),
    [
        (State.EMPTY, State.STABLE),
        (State.EMPTY, State.COMPLETING),
        (State.STABLE, State.COMPLETING),
        (State.STABLE, State.EMPTY),
        (State.COMPLETING, State.EMPTY),
        (State.PREPARING, State.STABLE),
    ],
)
def test_no_other_state_follows(state: State, next_state: State) -> None:
    from sidecar.core.classic.rebalance import go

    world = World()
    world.shard.replay(GroupRecord("g", state, 1, "consumer", "range", None, -1, 0))
    with pytest.raises(InvariantError, match=f"{next_state} after {state}"):
        go(world.shard._turn, world.shard.groups["g"], next_state, "a test")  # type: ignore[arg-type]


def test_a_group_has_records_of_its_own_kind_only() -> None:
    world = World()
    world.shard.replay(GroupRecord("g", State.EMPTY, 1, None, None, None, -1, 0))
    with pytest.raises(InvariantError, match="is a classic group and has a record group"):
        world.shard.replay(ConsumerGroupRecord("g", 2, 0))


def test_who_is_turned_away_is_given_no_member_id() -> None:
    world = World(classic=ClassicConfig(max_size=1))
    joined(world, "m1")
    for member_id in ("", "m9-1"):
        told = _join_reply(world.ask(client(world, "m9").join(member_id)))
        assert (told.code, told.member_id, told.generation) == (Code.GROUP_MAX_SIZE_REACHED, "", -1)


def test_nothing_of_a_deleted_group_is_left() -> None:
    world = World()
    m1 = client(world, "m1")
    m1.joined(_join_reply(world.ask(m1.join())))  # it was given a member id, and nothing more
    assert world.ask(DeleteGroup("g")).code == Code.NONE
    assert world.compacted() == [] and world.shard.groups == {} and world.shard.soft == {}
    assert len(world.shard.timers) == 0
    assert world.ask(m1.join()).code == Code.UNKNOWN_MEMBER_ID
    world.sleep(SESSION_MS * 2)
    m2, m3 = joined(world, "m2", "m3")
    world.ask(m2.sync({"m2-1": b"x", "m3-1": b"y"}))
    for c in (m2, m3):
        assert world.ask(DeleteGroup("g")).code == Code.NON_EMPTY_GROUP
        world.ask(c.leave())
    assert world.ask(DeleteGroup("g")).code == Code.NONE
    assert world.compacted() == [] and len(world.shard.timers) == 0


@pytest.mark.parametrize("rebalance_ms", [0, -1])
def test_a_rebalance_to_which_nobody_comes_says_so_once(rebalance_ms: int) -> None:
    """A static member whose client gives no time for rebalances stays until its session is over. Until then the group
    looks once a second, not on every tick."""
    world = World()
    static = ClassicClient("s", instance_id="i", rebalance_ms=rebalance_ms, protocols=(("range", b""),))
    other = ClassicClient("m", version=3, protocols=(("range", b""),))
    for c in (static, other):
        world.request(c.join())
    static.member_id, other.member_id = "i-1", "m-1"
    world.sleep(3_000)
    assert world.member_ids("g") == {"i-1", "m-1"}
    world.notes.clear()
    assert world.ask(other.leave()).code == Code.NONE
    for _ in range(9):
        world.sleep(1_000)
        due = world.shard.timers.deadline(("classic_join", "g"))
        assert due is not None and world.now_ms < due <= world.now_ms + 1_000
    assert [n.event for n in world.notes if isinstance(n, Log)].count("nobody joined") == 1
    world.sleep(2_000)
    assert world.member_ids("g") == set()
    assert world.shard.groups["g"].state_name() == "Empty"


@pytest.mark.parametrize(
    ("said", "holder", "stale"),
    [
        (1, None, True),
        (2, None, False),
        (-1, None, False),
        (1, "m1", False),
        (2, "m2", True),
        (-1, "m2", True),
    ],
)
def test_a_claim_is_stale_if_it_is_older_than_the_assignment_or_the_partition_is_anothers(
    said: int, holder: str | None, stale: bool
) -> None:
    """A claim may also be stale where the last assignment gives the partition to nobody: an assignor that trusts the
    claim would keep it."""
    group = ClassicGroup("g", type="consumer", assigned_generation=2)
    for name, owned in (("m1", {"t": (1,)}), ("m2", {})):
        protocols = (("range", subscription(["t"], owned, said)),)
        group.replay(MemberRecord("g", name, None, "c", "/h", 10_000, 60_000, protocols))
    if holder is not None:
        group.replay(AssignmentRecord("g", holder, 2, assignment(3, [("t", (1,))])))
    assert set(stale_claims_of(group, "range")) == ({"m1"} if stale else set())


def test_a_group_whose_only_member_left_in_its_initial_delay_admits_a_member() -> None:
    """Symptom: a group without members supported no protocol, and each client got INCONSISTENT_GROUP_PROTOCOL, which
    ends it for good."""
    world = World()
    first, second = client(world, "m1"), client(world, "m2")
    for c in (first, second):
        c.joined(_join_reply(world.ask(c.join())))
    world.request(first.join())
    world.ask(first.leave())
    token = world.request(second.join())
    world.sleep(6_000)
    assert world.replies[token].answer.code == Code.NONE


def test_the_next_process_of_a_static_member_has_its_assignment_of_the_last_assigned_generation() -> None:
    """Symptom: it came back before a generation was assigned, whose number its assignment then had, and the audit took
    it for no owner."""
    world = World()
    m1, static = client(world, "m1"), client(world, "m2")
    static.instance_id = "i2"
    m1.joined(_join_reply(world.ask(m1.join())))
    for generation in (1, 2):
        waiting = [(c, world.request(c.join())) for c in (static, m1)]
        world.sleep(6_000)
        for c, token in waiting:
            c.joined(_join_reply(world.replies.pop(token).answer))
        assert static.generation == m1.generation == generation
        if generation == 1:
            leader = next(c for c in (m1, static) if c.leads)
            world.ask(leader.sync({m1.member_id: b"x", static.member_id: b"y"}))
    world.request(static.join(member_id=""))
    last = [r for r in world.log if isinstance(r, AssignmentRecord)][-1]
    assert (last.member_id != static.member_id, last.generation, last.assignment) == (True, 1, b"y")
