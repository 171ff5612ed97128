"""The state topic is deleted, made anew, loses records, or is set to forget (S6 of the safety review)."""

from __future__ import annotations

import pytest

from sidecar.assign.topic import Topic
from sidecar.coordinator.start import StartAnew
from sidecar.coordinator.state_topic import LOOKS, StateTopic, faults, policy_fault
from sidecar.wire.apis import Api
from tests.inprocess import clock
from tests.inprocess.broker import FakeBrokers
from tests.inprocess.cluster import FakeCluster
from tests.inprocess.house import Lines

NAME = "__group_state"
FIRST = Topic(bytes([1] * 16), NAME, ((),))
AGAIN = Topic(bytes([2] * 16), NAME, ((),))
OTHER = Topic(bytes([3] * 16), "orders", ((),))


def test_the_same_topic_is_looked_at_for_ever() -> None:
    watch = StateTopic(NAME, [FIRST], Lines())
    for _ in range(10):
        watch.look([OTHER, FIRST])


def test_a_topic_that_was_made_anew_makes_the_sidecar_start_anew() -> None:
    """Symptom: owners went on writing into it, without schemas and without what their groups were."""
    lines = Lines()
    watch = StateTopic(NAME, [FIRST], lines)
    with pytest.raises(StartAnew, match="__group_state was deleted and made anew"):
        watch.look([AGAIN, OTHER])
    (said,) = lines.events("error")
    assert said == "the state topic is another one; starting anew, members will join again"


def test_it_is_said_once_however_many_writers_find_out() -> None:
    """Symptom: 34 lines in one second, one for each partition that had something to write."""
    lines = Lines()
    watch = StateTopic(NAME, [FIRST], lines)
    assert [str(watch.made_anew()) for _ in range(3)] == [str(watch.made_anew())] * 3
    assert len(lines.events("error")) == 1


def test_a_topic_that_is_gone_is_looked_for_again_before_that() -> None:
    watch = StateTopic(NAME, [FIRST], Lines())
    for _ in range(LOOKS - 1):
        watch.look([OTHER])
    watch.look([FIRST])
    for _ in range(LOOKS - 1):
        watch.look([OTHER])
    with pytest.raises(StartAnew, match="has been deleted"):
        watch.look([OTHER])


def test_a_topic_that_was_not_listed_yet_is_taken_as_it_comes() -> None:
    watch = StateTopic(NAME, [OTHER], Lines())
    watch.look([OTHER])
    watch.look([FIRST])
    with pytest.raises(StartAnew):
        watch.look([AGAIN])


def test_a_log_that_has_lost_records_is_another_one() -> None:
    assert "lost records of partition 3" in str(StateTopic(NAME, [FIRST], Lines()).went_back(3))


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
        cluster, watch = FakeCluster(brokers), StateTopic(NAME, [FIRST], lines)
        brokers.settings["cleanup.policy"] = ("delete", 1)
        for _ in range(2):
            await watch.check(cluster, 2)
        assert len(watch.faults) == 1
        assert lines.events("error") == ["the state topic is not set to keep its records"]
        brokers.settings["cleanup.policy"] = ("compact", 1)
        await watch.check(cluster, 2)
        assert watch.faults == [] and lines.events("info") == ["the state topic is set to keep its records"]
        brokers.faults.drop(Api.DESCRIBE_CONFIGS)
        await watch.check(cluster, 2)

    clock.run(test())
