"""The state topic is deleted, made anew, loses records, or is set to forget (S6 of the safety review)."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from sidecar.assign.topic import Topic
from sidecar.coordinator.statelog.startup_errors import StartAnew
from sidecar.coordinator.statelog.topic_existence import BY_ID, KnownTopics
from sidecar.coordinator.statelog.topic_watch import LOOKS, StateTopic, faults, policy_fault
from sidecar.core.vocabulary.errors import Code
from sidecar.wire.apis import Api
from sidecar.wire.generated import metadata as md
from tests.inprocess import clock
from tests.inprocess.broker import FakeBrokers
from tests.inprocess.cluster import FakeCluster
from tests.inprocess.embedded_sidecar import Lines, until

NAME = "__group_state"
FIRST = Topic(bytes([1] * 16), NAME, ((),))
AGAIN = Topic(bytes([2] * 16), NAME, ((),))
OTHER = Topic(bytes([3] * 16), "orders", ((),))
REFRESH_S = 2.0
GONE = Topic(bytes([4] * 16), "payments", ((),))


async def pass_s(s: float) -> None:
    end_s = time.monotonic() + s
    await until(lambda: time.monotonic() >= end_s)


class WatchBench:
    """A topic's watch, over brokers who are asked where the listing lacks it."""

    def __init__(self, *first: Topic) -> None:
        self.lines = Lines()
        self.brokers = FakeBrokers(nodes=(1, 2), partitions=1)
        self.cluster = FakeCluster(self.brokers)
        self.brokers.topics[NAME].topic_id = FIRST.id
        self.watch = StateTopic(NAME, first, self.lines, REFRESH_S)

    async def look(self, *topics: Topic, times: int = 1) -> None:
        for _ in range(times):
            await self.watch.look(topics, self.cluster)
            await pass_s(REFRESH_S)

    def delete_topic(self) -> None:
        del self.brokers.topics[NAME]

    @property
    def warnings(self) -> list[tuple[str, str]]:
        """Level and state of each line."""
        said = [(level, f) for level, event, f in self.lines.lines if event == "no use of the state topic"]
        return [(level, f["state"]) for level, f in said]


def play(test: Callable[[WatchBench], Coroutine[Any, Any, None]], *first: Topic) -> None:
    async def main() -> None:
        await test(WatchBench(*first))

    clock.run(main())


def test_the_same_topic_is_looked_at_for_ever() -> None:
    async def test(b: WatchBench) -> None:
        await b.look(OTHER, FIRST, times=10)
        assert b.brokers.count(Api.METADATA) == 0 and b.lines.events() == []

    play(test, FIRST)


def test_a_topic_that_was_made_anew_makes_the_coordinator_start_anew() -> None:
    """Symptom: owners went on writing into it, without schemas and without what their groups were."""

    async def test(b: WatchBench) -> None:
        with pytest.raises(StartAnew, match="__group_state was deleted and made anew"):
            await b.look(AGAIN, OTHER)
        (said,) = b.lines.events("error")
        assert said == "the state topic is another one; starting anew, members will join again"

    play(test, FIRST)


def test_so_does_one_that_is_not_listed_but_has_another_id() -> None:
    async def test(b: WatchBench) -> None:
        b.brokers.topics[NAME].topic_id = AGAIN.id
        with pytest.raises(StartAnew, match="__group_state was deleted and made anew"):
            await b.look(OTHER)

    play(test, FIRST)


def test_it_is_said_once_however_many_writers_find_out() -> None:
    """Symptom: 34 lines in one second, one for each partition that had something to write."""
    lines = Lines()
    watch = StateTopic(NAME, [FIRST], lines, REFRESH_S)
    assert [str(watch.made_anew()) for _ in range(3)] == [str(watch.made_anew())] * 3
    assert len(lines.events("error")) == 1


def test_a_topic_that_is_gone_is_looked_for_again_before_that() -> None:
    async def test(b: WatchBench) -> None:
        there = b.brokers.topics[NAME]
        b.delete_topic()
        await b.look(OTHER, times=LOOKS - 1)
        assert b.warnings == [("warning", "missing")] and "there is no topic" in b.watch.problem
        b.brokers.topics[NAME] = there
        await b.look(FIRST)
        assert b.watch.problem == "" and b.lines.events("info") == ["the state topic is there again"]
        b.delete_topic()
        await b.look(OTHER, times=LOOKS - 1)
        with pytest.raises(StartAnew, match="has been deleted"):
            await b.look(OTHER)

    play(test, FIRST)


def test_looks_on_demand_do_not_make_a_broker_that_has_just_started_right() -> None:
    """Symptom: members asked for unknown topics at a broker that listed nothing yet, and after 0.2 s the coordinator
    started anew."""

    async def test(b: WatchBench) -> None:
        b.delete_topic()
        for _ in range(10 * LOOKS):
            await b.watch.look([OTHER], b.cluster)
            await pass_s(0.1)
        await pass_s(REFRESH_S)
        with pytest.raises(StartAnew, match="has been deleted"):
            await b.look(OTHER)

    play(test, FIRST)


def test_denial_is_not_deletion() -> None:
    """Symptom: the sidecar's rights at the topic were removed and made anew after 6 s, and all sidecars ended together.
    Cause: a topic that was not in the listing was taken for deleted."""

    async def test(b: WatchBench) -> None:
        b.brokers.no_describe.add(NAME)
        await b.look(OTHER, times=100)
        assert "may not DESCRIBE topic __group_state" in b.watch.problem
        assert b.warnings == [("error", "denied")] * 4, "at once, and then once a minute"
        b.brokers.no_describe.clear()
        await b.look(FIRST)
        assert b.watch.problem == "" and b.lines.fields("the state topic is there again")["before"] == "denied"

    play(test, FIRST)


def test_a_denied_topic_that_is_gone_is_gone() -> None:
    """By its id a broker says so even to a principal that may not describe it."""

    async def test(b: WatchBench) -> None:
        b.brokers.no_describe.add(NAME)
        b.brokers.topics[NAME].topic_id = AGAIN.id
        with pytest.raises(StartAnew, match="has been deleted"):
            await b.look(OTHER, times=LOOKS)
        assert b.warnings == [("warning", "missing")]

    play(test, FIRST)


def test_silence_is_not_deletion_either() -> None:
    async def test(b: WatchBench) -> None:
        b.brokers.down.update((1, 2))
        await b.look(OTHER, times=10)
        assert b.warnings == [("warning", "unreachable")] and "no broker answers" in b.watch.problem

    play(test, FIRST)


def test_a_topic_that_was_not_listed_yet_is_taken_as_it_comes() -> None:
    async def test(b: WatchBench) -> None:
        b.delete_topic()
        await b.look(OTHER, times=2 * LOOKS)
        await b.look(FIRST)
        with pytest.raises(StartAnew):
            await b.look(AGAIN)

    play(test, OTHER)


def test_topics_that_may_not_be_described_any_more_are_kept_as_they_were() -> None:
    """The same fault at the topics of groups: every member would be told to give its partitions up."""

    class Control:
        def __init__(self) -> None:
            self.codes = {OTHER.id: Code.TOPIC_AUTHORIZATION_FAILED, GONE.id: Code.UNKNOWN_TOPIC_ID}
            self.denied_topics: list[str] = []

        async def ask(self, topics: list[md.MetadataRequestTopic], low: int = 0) -> md.MetadataResponse:
            assert low == BY_ID
            return md.MetadataResponse(
                topics=[md.MetadataResponseTopic(self.codes[t.topic_id], None, t.topic_id) for t in topics]
            )

        def denied(self, topic: str, code: int) -> None:
            self.denied_topics.append(topic)

    async def test() -> None:
        known, control = KnownTopics([FIRST, OTHER, GONE]), Control()
        assert await known.next((FIRST,), control) == (FIRST, OTHER)
        assert await known.next((FIRST,), control) == (FIRST, OTHER)
        assert control.denied_topics == ["orders", "orders"]
        control.codes[OTHER.id] = Code.UNKNOWN_TOPIC_ID
        assert await known.next((FIRST,), control) == (FIRST,)

    clock.run(test())


def test_a_log_that_has_lost_records_is_another_one() -> None:
    assert "lost records of partition 3" in str(StateTopic(NAME, [FIRST], Lines(), REFRESH_S).went_back(3))


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_a_policy_by_which_records_go_is_a_fault(policy: str) -> None:
    assert f"cleanup.policy={policy}" in policy_fault(NAME, {"cleanup.policy": policy})


def test_what_one_broker_can_lose_is_a_fault_where_there_are_more() -> None:
    alone = {"cleanup.policy": "compact", "min.insync.replicas": "1", "unclean.leader.election.enable": "false"}
    assert faults(NAME, alone, 1) == []
    assert len(faults(NAME, alone, 3)) == 1
    assert len(faults(NAME, {**alone, "unclean.leader.election.enable": "true"}, 3)) == 2


def test_faults_are_told_once_and_when_they_are_over() -> None:
    async def test() -> None:
        brokers, lines = FakeBrokers(nodes=(1, 2), partitions=1), Lines()
        cluster, watch = FakeCluster(brokers), StateTopic(NAME, [FIRST], lines, REFRESH_S)
        cluster.bootstrap = [("b1", 9092), ("b2", 9092)]
        brokers.settings["cleanup.policy"] = ("delete", 1)
        for _ in range(2):
            await watch.check(cluster, 2)
        assert len(watch.faults) == 1
        assert lines.events("error") == ["the state topic is not set to keep its records"]
        told = lines.fields("the state topic is not set to keep its records")["problem"]
        alter = f"--alter --entity-type topics --entity-name {NAME} --add-config cleanup.policy=compact"
        assert told.endswith(f"compact: kafka-configs.sh --bootstrap-server b1:9092,b2:9092 {alter}")
        brokers.settings["cleanup.policy"] = ("compact", 1)
        await watch.check(cluster, 2)
        assert watch.faults == [] and lines.events("info") == ["the state topic is set to keep its records"]
        brokers.faults.drop(Api.DESCRIBE_CONFIGS)
        await watch.check(cluster, 2)

    clock.run(test())
