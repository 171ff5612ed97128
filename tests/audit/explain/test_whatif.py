"""A dry run says what then happens: it is played, and the group is brought to rest."""

from __future__ import annotations

import random
from typing import Any

import pytest

from sidecar.assign import BUILT_IN
from sidecar.audit.explain.model import ExplainError
from sidecar.audit.explain.whatif import what_if
from tests.audit.explain.recorded_story import RecordedStory
from tests.core.test_stories import GROUP
from tests.core.world import topic_id
from tests.harness.tiers import seeds_of_run

TOPICS = {"a": (1, 5), "b": (2, 7)}
NEW = "topics a=5 b=7"


def offered(kind: str) -> Any:
    return BUILT_IN


def owners(recorded: RecordedStory) -> dict[str, str]:
    group = recorded.story.world.group(GROUP)
    names = {topic_id(n): name for name, (n, _) in TOPICS.items()}
    return {f"{names[t]}-{p}": m for t, ps in group.owners.items() for p, m in ps.items()}


def settle(recorded: RecordedStory, members: list[str]) -> None:
    for _ in range(8):
        recorded.play("sleep 1100")
        for m in members:
            recorded.play(f"{m} heartbeat")


@pytest.mark.parametrize("assignor", ["uniform", "range"])
@pytest.mark.parametrize("seed", seeds_of_run(15))
def test_what_is_foretold_happens(seed: int, assignor: str) -> None:
    rng = random.Random(seed)
    recorded = RecordedStory(f"{NEW}\nconfig assignors={assignor}")
    members = [f"m{i}" for i in range(rng.randint(2, 5))]
    for m in members:
        recorded.play(f"{m} join names={rng.choice(['a', 'a,b', 'a,b'])}")
    settle(recorded, members)
    gone = rng.sample(members, rng.randint(0, len(members) - 1))
    joins = rng.randint(0 if gone else 1, 3)
    before = owners(recorded)
    found = what_if(recorded.replayed(), recorded.story.world.shard.image, offered, gone, joins)
    subscribed = recorded.story.world.group(GROUP)
    names = [(m.topic_names, m.topic_regex) for m in subscribed.members.values()]
    common = max(dict.fromkeys(names), key=names.count)[0]
    recorded.play("config assignment_interval_ms=100000")
    for m in gone:
        recorded.play(f"{m} leave")
    new = [f"new-{i}" for i in range(1, joins + 1)]
    for m in new:
        recorded.play(f"{m} join names={','.join(common)}")
    recorded.play("config assignment_interval_ms=1000")
    settle(recorded, [m for m in members if m not in gone] + new)
    after = owners(recorded)
    moved = {p: (before.get(p, ""), after.get(p, "")) for p in before.keys() | after.keys()}
    assert {m.partition: (m.holder, m.to) for m in found.moves} == {p: w for p, w in moved.items() if w[0] != w[1]}
    assert not any(m.anyway for m in found.moves)
    assert found.kept == sum(a == b for a, b in moved.values())


def small() -> RecordedStory:
    recorded = RecordedStory(f"{NEW}\nm1 join names=a\nm2 join names=a instance=i2")
    settle(recorded, ["m1", "m2"])
    return recorded


@pytest.mark.parametrize("text", ["m2", "i2"])
def test_members_are_named_by_more_than_their_id(text: str) -> None:
    recorded = small()
    assert what_if(recorded.replayed(), recorded.story.world.shard.image, offered, (text,)).leaves == ("m2",)


@pytest.mark.parametrize(("text", "message"), [("x", "no member is called so"), ("m", "2 members are called so")])
def test_who_is_nobody_or_several_is_refused(text: str, message: str) -> None:
    recorded = small()
    with pytest.raises(ExplainError, match=message):
        what_if(recorded.replayed(), recorded.story.world.shard.image, offered, (text,))


def test_an_assignor_that_is_not_installed_is_not_guessed_at() -> None:
    recorded = RecordedStory(f"{NEW}\nm1 join names=a server_assignor=uniform")
    with pytest.raises(ExplainError, match="uniform is not installed"):
        what_if(
            recorded.replayed(), recorded.story.world.shard.image, lambda kind: {"range": BUILT_IN["range"]}, joins=1
        )


def test_one_that_fails_is_told() -> None:
    def fails(spec: object) -> object:
        raise ValueError("no")

    recorded = small()
    with pytest.raises(ExplainError, match=r"uniform fails on this group: ValueError\('no'\)"):
        what_if(recorded.replayed(), recorded.story.world.shard.image, lambda kind: {"uniform": fails}, joins=1)


def test_what_new_members_of_an_empty_group_would_subscribe_to_is_not_guessed() -> None:
    recorded = small()
    recorded.play("m1 leave\nm2 leave")
    with pytest.raises(ExplainError, match="nobody knows what a new one would subscribe to"):
        what_if(recorded.replayed(), recorded.story.world.shard.image, offered, joins=1)


def test_partitions_that_move_anyway_are_told_apart() -> None:
    recorded = small()
    recorded.play("topics a=6 b=7")  # a topic has grown, and nobody has heartbeated since
    grown = what_if(recorded.replayed(), recorded.story.world.shard.image, offered)
    assert [(m.partition, m.holder, m.anyway) for m in grown.moves] == [("a-5", "", True)]
