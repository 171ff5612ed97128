"""Regular expressions are matched again as soon as there may be topics that they were not matched against."""

from __future__ import annotations

from sidecar.core.consumer.adoption import AdoptConsumer, NativeConsumer
from sidecar.core.vocabulary.topics import TopicImage
from tests.core.world import Client, World, topic, topic_id


def test_a_new_owner_matches_the_topics_of_its_own_list() -> None:
    """Symptom: each process counts the versions of its list of topics from 1, so that a topic of a restart's time
    stayed unmatched for ten minutes."""
    world = World()
    world.topics(topic(1, "a1", 1))
    member = Client(world, "g", "m", regex="a.*")
    member.heartbeat()
    world.resolve()
    world.sleep(30_000, 5_000)
    member.heartbeat()
    assert not world.asked, "it has been matched against these topics"
    world.shard.topics_changed(*TopicImage().next([topic(1, "a1", 1), topic(2, "a2", 1)]), world.now)
    world.shard = world.rebuilt()
    member.heartbeat()
    assert [ask.regexes for ask in world.asked] == [("a.*",)]
    world.resolve()
    assert world.group("g").regexes["a.*"].topics == ("a1", "a2")


def test_an_adopted_group_matches_topics_that_no_member_owns() -> None:
    """Symptom: the adoption matched the owned topics only, as if there were no others."""
    world = World()
    world.topics(topic(1, "a1", 1), topic(2, "a2", 1))
    native = NativeConsumer("m", None, None, "c", "/h", (), "a.*", {topic_id(1): (0,)})
    world.ask(AdoptConsumer("g", 5, "uniform", (native,), {topic_id(1): "a1"}, 60_000, "adopted"))
    member = Client(world, "g", "m", regex="a.*", epoch=5, owned={topic_id(1): (0,)})
    member.heartbeat()
    assert [ask.regexes for ask in world.asked] == [("a.*",)]


def test_a_member_that_takes_the_place_of_a_static_one_leaves_no_expression_behind() -> None:
    """Symptom: the log kept the expression, and the next member with it got its topics of that time."""
    world = World()
    world.topics(topic(1, "a1", 2))
    away, member = Client(world, "g", "away", ("a1",), instance_id="i"), Client(world, "g", "m", regex="a.*")
    for each in (away, member):
        each.heartbeat()
        world.resolve()
    away.leave(-2)
    member.instance_id, member.epoch, member.owned = "i", 0, {}
    member.names, member.regex = ("a1",), ""
    member.heartbeat()
    assert world.group("g").regexes == world.rebuilt_group("g").regexes == {}
