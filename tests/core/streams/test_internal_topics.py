"""Internal topics are created, created again after errors, and reported in a status."""

from __future__ import annotations

import pytest

from sidecar.core.runtime.effects import Log
from sidecar.core.streams.events import StreamsHeartbeatReply, TopicsCreated
from sidecar.core.streams.internal_topics import DENIED_NAMES, GIVE_UP_MS, NewTopic, TopicCreations
from sidecar.core.streams.soft_state import StreamsSoft
from sidecar.core.streams.status_texts import StatusCode, missing_internal_topics
from sidecar.core.vocabulary.errors import Code
from tests.core.streams.world import Client, World

WANTED = {name: NewTopic(name, 1, -1) for name in ("b", "a", "c", "d")}
STATUS = missing_internal_topics(["a"])
DENIED = "; Unauthorized to CREATE on topics app-c."
TWO_INTERVALS_MS = 10_000


def topics_to_create(creations: TopicCreations, now_ms: int, member_id: str = "m") -> list[str]:
    return [t.name for t in creations.ask(member_id, WANTED, now_ms)]


def detail(creations: TopicCreations, now_ms: int, member_id: str = "m") -> str:
    return creations.explain(member_id, STATUS, WANTED, now_ms).detail.removeprefix(STATUS.detail)


def test_a_topic_is_asked_for_once() -> None:
    creations = TopicCreations()
    assert topics_to_create(creations, 0) == ["b", "a", "c", "d"]
    assert topics_to_create(creations, 1) == topics_to_create(creations, 1, "n") == []
    assert topics_to_create(creations, GIVE_UP_MS) == ["b", "a", "c", "d"]


def test_errors_are_shown_and_then_it_is_tried_again() -> None:
    creations = TopicCreations()
    topics_to_create(creations, 0)
    creations.failed("b", "no brokers", until_ms=10)
    assert detail(creations, 9) == detail(creations, 9, "n") == "; Creation failed: b (no brokers)."
    assert topics_to_create(creations, 9) == []
    assert detail(creations, 10) == ""
    assert topics_to_create(creations, 10) == ["b"]


def test_a_denial_is_shown_to_its_member_until_the_next_result() -> None:
    creations = TopicCreations()
    topics_to_create(creations, 0)
    creations.refused("m", WANTED, WANTED, ["a", "b"], until_ms=10)
    creations.failed("c", "no brokers", until_ms=100)
    shown = "; Unauthorized to CREATE on topics b, a."
    assert detail(creations, 9) == shown, "in Kafka's order of topics, and without the errors"
    assert detail(creations, 9, "n") == "; Creation failed: c (no brokers)."
    assert topics_to_create(creations, 9) == [] and topics_to_create(creations, 10) == ["b", "a"]
    assert detail(creations, 90) == shown
    creations.refused("m", WANTED, ["a"], [], until_ms=100)
    assert detail(creations, 90) == "; Unauthorized to CREATE on topics b.", "nothing is known of b"
    creations.refused("m", WANTED, ["b"], [], until_ms=100)
    assert detail(creations, 90) == "; Creation failed: c (no brokers)."


def test_another_member_is_asked_for_what_one_may_not_create() -> None:
    creations = TopicCreations()
    topics_to_create(creations, 0)
    creations.refused("m", WANTED, WANTED, ["a"], until_ms=10)
    assert topics_to_create(creations, 1) == [] and topics_to_create(creations, 1, "n") == ["a"]


def test_denials_end_when_nothing_is_missing() -> None:
    creations = TopicCreations()
    creations.refused("m", WANTED, WANTED, ["a"], until_ms=10)
    assert creations.explain("m", STATUS, {"b": WANTED["b"]}, 9) == STATUS and creations.denials
    assert creations.explain("n", STATUS, {}, 9) == STATUS and not creations.denials


def test_a_denial_names_a_hundred_topics() -> None:
    many = {f"t{i}": NewTopic(f"t{i}", 1, -1) for i in range(DENIED_NAMES + 7)}
    creations = TopicCreations()
    creations.refused("m", many, many, list(many), until_ms=10)
    assert creations.explain("m", STATUS, many, 9).detail.endswith(", t99 and 7 more.")


# ---- members with different rights ----------------------------------------------------------------------------------
def missing_app_c() -> World:
    world = World()
    world.topics(**{"in": 1, "app_r": 1})
    return world


def denies(world: World, client: Client) -> None:
    """The broker denies the topics that the member's last answer lets it create."""
    denied = tuple((t.name, int(Code.TOPIC_AUTHORIZATION_FAILED), None) for t in client.create)
    client.create.clear()
    world.ask(TopicsCreated("g", client.member_id, denied))


def internal(reply: StreamsHeartbeatReply) -> str:
    (status,) = (s for s in reply.status if s.code == StatusCode.MISSING_INTERNAL_TOPICS)
    return status.detail


@pytest.mark.parametrize("drift_ms", [-15, -5, 0, 5, 15])
@pytest.mark.parametrize("phase_ms", [1, 5, 2_500, 4_995])
def test_a_member_with_the_right_creates_what_another_one_may_not(drift_ms: int, phase_ms: int) -> None:
    world = missing_app_c()
    without, has_right = Client(world, "m1"), Client(world, "m2")
    start_ms = world.now_ms
    due = {"m1": (start_ms, without), "m2": (start_ms + phase_ms, has_right)}
    denial_ms: int | None = None
    while not has_right.create:
        at_ms, client = min(due.values(), key=lambda one: one[0])
        if denial_ms is not None and denial_ms <= at_ms:
            world.now_ms, denial_ms = denial_ms, None
            denies(world, without)
        world.now_ms = at_ms
        assert world.now_ms - start_ms <= 2 * TWO_INTERVALS_MS, "the member with the right is never asked"
        client.heartbeat()
        due[client.member_id] = at_ms + 5_000 + drift_ms, client
        if without.create and denial_ms is None:
            denial_ms = at_ms + 10
    assert [t.name for t in has_right.create] == ["app-c"]


def test_each_answer_of_a_member_without_the_right_has_the_denial() -> None:
    world = missing_app_c()
    without = Client(world, "m1")
    assert not internal(without.heartbeat()).endswith(DENIED)
    denies(world, without)
    asked = 0
    for _ in range(12):
        world.sleep(2_500)
        assert internal(without.heartbeat()).endswith(DENIED)
        asked += len(without.create)
        if without.create:
            assert internal(without.heartbeat()).endswith(DENIED), "the next result is under way"
            denies(world, without)
    assert asked == 3
    world.grow({"app-c": 1})
    assert without.heartbeat().status == ()


def test_a_denial_goes_with_its_member() -> None:
    world = missing_app_c()
    gone, other = Client(world, "m1"), Client(world, "m2")
    gone.heartbeat()
    denies(world, gone)
    other.heartbeat()
    soft = world.shard.soft["g"]
    assert isinstance(soft, StreamsSoft) and list(soft.creations.denials) == ["m1"]
    gone.leave()
    assert not soft.creations.denials
    late = tuple((t.name, int(Code.TOPIC_AUTHORIZATION_FAILED), None) for t in other.create)
    other.leave()
    Client(world, "m3").heartbeat()
    world.ask(TopicsCreated("g", "m2", late))
    assert not soft.creations.denials and not world.shard.soft["g"].creations.denials  # type: ignore[attr-defined]
    assert Client(world, "m4").heartbeat().create, "its topics are free for others"


def test_members_with_one_problem_cause_one_warning_in_each_interval() -> None:
    world = missing_app_c()
    clients = [Client(world, f"m{i}") for i in range(5)]

    def warnings() -> list[str]:
        logged = [note for note in world.notes if isinstance(note, Log)]
        return [str(note.fields["member_id"]) for note in logged if note.level == "warning"]

    for client in clients:
        client.heartbeat()
        denies(world, client)
    assert warnings() == ["m0"]
    world.sleep(TWO_INTERVALS_MS)
    for client in clients:
        client.heartbeat()
        denies(world, client)
    assert warnings() == ["m0", "m0"]
