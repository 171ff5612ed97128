"""A dry run says what then happens: it is played, and the group is brought to rest."""

from __future__ import annotations

import random

import pytest

from sidecar.assign import BUILT_IN
from sidecar.audit.explain.model import ExplainError
from sidecar.audit.explain.whatif import Change, what_if
from tests.audit.explain.told import Told
from tests.core.test_stories import GROUP
from tests.core.world import topic_id

TOPICS = {"a": (1, 5), "b": (2, 7)}
NEW = "topics a=5 b=7"


def owners(told: Told) -> dict[str, str]:
    group = told.story.world.group(GROUP)
    names = {topic_id(n): name for name, (n, _) in TOPICS.items()}
    return {f"{names[t]}-{p}": m for t, ps in group.owners.items() for p, m in ps.items()}


def settle(told: Told, members: list[str]) -> None:
    for _ in range(8):
        told.play("sleep 1100")
        for m in members:
            told.play(f"{m} heartbeat")


@pytest.mark.parametrize("assignor", ["uniform", "range"])
@pytest.mark.parametrize("seed", range(15))
def test_what_is_foretold_happens(seed: int, assignor: str) -> None:
    rng = random.Random(seed)
    told = Told(f"{NEW}\nconfig assignors={assignor}")
    members = [f"m{i}" for i in range(rng.randint(2, 5))]
    for m in members:
        told.play(f"{m} join names={rng.choice(['a', 'a,b', 'a,b'])}")
    settle(told, members)
    gone = rng.sample(members, rng.randint(0, len(members) - 1))
    joins = rng.randint(0 if gone else 1, 3)
    before = owners(told)
    found = what_if(told.replayed(), told.story.world.shard.image, BUILT_IN, Change(tuple(gone), joins))
    subscribed = told.story.world.group(GROUP)
    names = [(m.topic_names, m.topic_regex) for m in subscribed.members.values()]
    common = max(dict.fromkeys(names), key=names.count)[0]
    told.play("config assignment_interval_ms=100000")
    for m in gone:
        told.play(f"{m} leave")
    new = [f"new-{i}" for i in range(1, joins + 1)]
    for m in new:
        told.play(f"{m} join names={','.join(common)}")
    told.play("config assignment_interval_ms=1000")
    settle(told, [m for m in members if m not in gone] + new)
    after = owners(told)
    moved = {p: (before.get(p, ""), after.get(p, "")) for p in before.keys() | after.keys()}
    assert {m.partition: (m.holder, m.to) for m in found.moves} == {p: w for p, w in moved.items() if w[0] != w[1]}
    assert not any(m.anyway for m in found.moves)
    assert found.kept == sum(a == b for a, b in moved.values())


def small() -> Told:
    told = Told(f"{NEW}\nm1 join names=a\nm2 join names=a instance=i2")
    settle(told, ["m1", "m2"])
    return told


@pytest.mark.parametrize("text", ["m2", "i2"])
def test_members_are_named_by_more_than_their_id(text: str) -> None:
    told = small()
    assert what_if(told.replayed(), told.story.world.shard.image, BUILT_IN, Change((text,))).leaves == ("m2",)


@pytest.mark.parametrize(("text", "said"), [("x", "no member is called so"), ("m", "2 members are called so")])
def test_who_is_nobody_or_several_is_refused(text: str, said: str) -> None:
    told = small()
    with pytest.raises(ExplainError, match=said):
        what_if(told.replayed(), told.story.world.shard.image, BUILT_IN, Change((text,)))


def test_an_assignor_that_is_not_installed_is_not_guessed_at() -> None:
    told = Told(f"{NEW}\nm1 join names=a server_assignor=uniform")
    with pytest.raises(ExplainError, match="uniform is not installed"):
        what_if(told.replayed(), told.story.world.shard.image, {"range": BUILT_IN["range"]}, Change(joins=1))


def test_one_that_fails_is_told() -> None:
    def fails(spec: object) -> object:
        raise ValueError("no")

    told = small()
    with pytest.raises(ExplainError, match=r"uniform fails on this group: ValueError\('no'\)"):
        what_if(told.replayed(), told.story.world.shard.image, {"uniform": fails}, Change(joins=1))


def test_what_new_members_of_an_empty_group_would_subscribe_to_is_not_guessed() -> None:
    told = small()
    told.play("m1 leave\nm2 leave")
    with pytest.raises(ExplainError, match="nobody knows what a new one would subscribe to"):
        what_if(told.replayed(), told.story.world.shard.image, BUILT_IN, Change(joins=1))


def test_partitions_that_move_anyway_are_told_apart() -> None:
    told = small()
    told.play("topics a=6 b=7")  # a topic has grown, and nobody has heartbeated since
    grown = what_if(told.replayed(), told.story.world.shard.image, BUILT_IN, Change())
    assert [(m.partition, m.holder, m.anyway) for m in grown.moves] == [("a-5", "", True)]
