"""The log names each cause of brokers' refusals once, then once a minute, and again when it is over. Finding 3 of the
operators' review: one sidecar's log named no credentials at all, another one wrote 305 lines in two minutes."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from sidecar.core.vocabulary.errors import Code
from sidecar.kafka.denials import AUTHENTICATION, GROUP, LASTS_S, REPEAT_S, TOPIC, Denials
from sidecar.wire.generated import create_topics as ct
from sidecar.wire.generated import describe_configs as dc
from sidecar.wire.generated import describe_groups as dg
from sidecar.wire.generated import find_coordinator as fc
from sidecar.wire.generated import init_producer_id as ip
from sidecar.wire.generated import join_group as jg
from sidecar.wire.generated import metadata as md
from sidecar.wire.generated import offset_commit as oc
from tests.inprocess.embedded_sidecar import Lines

STATE, OWNERS = "__group_state", "__group_state_owners"
REFUSES, OVER = "the broker refuses the sidecar", "the broker refuses it no more"
FIND = fc.FindCoordinatorRequest(key=f"{STATE}-0", key_type=1, coordinator_keys=[f"{STATE}-0"])
NO_TOPIC, NO_GROUP = Code.TOPIC_AUTHORIZATION_FAILED, Code.GROUP_AUTHORIZATION_FAILED
NO_ID, NO_CLUSTER = Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, Code.CLUSTER_AUTHORIZATION_FAILED


class Bench:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lines = Lines()
        self.denials = Denials(self.lines, {STATE: "", OWNERS: "set bootstrap"}, {"__transaction_state"})
        self.now_s = 1_000.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now_s)

    def problems(self) -> list[str]:
        return [d.problem for d in self.denials.lasting()]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(monkeypatch)


def test_a_cause_has_one_line_and_then_one_each_minute(bench: Bench) -> None:
    for _ in range(305):
        bench.denials.outcome("Produce", TOPIC, STATE, NO_TOPIC)
    assert bench.lines.events() == [REFUSES]
    told = bench.lines.fields(REFUSES)
    assert told["problem"] == f"Produce: TOPIC_AUTHORIZATION_FAILED: the sidecar's user lacks Write of topic {STATE}"
    assert "sidecar acls" in told["remedy"]
    bench.now_s += REPEAT_S
    bench.denials.outcome("Produce", TOPIC, STATE, NO_TOPIC)
    assert bench.lines.events() == [REFUSES] * 2 and bench.lines.fields(REFUSES)["times"] == 306
    bench.denials.outcome("Produce", TOPIC, STATE, Code.NONE)
    assert bench.lines.events()[2:] == [OVER] and not bench.denials
    shown = bench.denials.shown()
    assert shown["denials"] == [] and isinstance(last := shown["last_denial"], dict) and last["over"]


def test_what_one_broker_refuses_and_another_does_not_fills_no_log(bench: Bench) -> None:
    """Symptom: a sidecar without `bootstrap` among others that have it wrote 20 lines a second."""
    for _ in range(300):
        bench.denials.outcome("JoinGroup", GROUP, OWNERS, NO_GROUP)
        bench.denials.outcome("JoinGroup", GROUP, OWNERS, Code.NONE)
        bench.now_s += 0.1
    assert bench.lines.events() == [REFUSES, OVER] * 3
    assert bench.lines.fields(REFUSES)["remedy"] == "set bootstrap"


def test_what_it_need_not_see_is_no_denial(bench: Bench) -> None:
    bench.denials.outcome("Metadata", TOPIC, "__transaction_state", NO_TOPIC)
    assert not bench.denials and bench.lines.events() == []


def test_all_managed_groups_are_one_cause_and_it_lasts_until_each_is_allowed(bench: Bench) -> None:
    for n in range(1_000):
        bench.denials.outcome("JoinGroup", GROUP, f"g{n % 3}", NO_GROUP)
    bench.denials.outcome("JoinGroup", GROUP, OWNERS, NO_GROUP)
    assert bench.lines.events() == [REFUSES] * 2 and len(bench.problems()) == 2
    for n in range(3):
        assert len(bench.problems()) == 2
        bench.denials.outcome("JoinGroup", GROUP, f"g{n}", Code.NONE)
    assert len(bench.problems()) == 1 and OWNERS in bench.problems()[0]


def test_what_is_not_asked_for_any_more_does_not_last(bench: Bench) -> None:
    bench.denials.outcome("JoinGroup", GROUP, "gone", NO_GROUP)
    bench.now_s += LASTS_S + 1
    assert bench.problems() == [] and bench.denials.last is not None


def test_credentials_come_first(bench: Bench) -> None:
    bench.denials.outcome("Produce", TOPIC, STATE, NO_TOPIC)
    bench.denials.refused("command_config", "h:1: the broker refuses SASL_SSL PLAIN as s: no", "mend the file")
    assert bench.denials.lasting()[0].kind == AUTHENTICATION
    assert bench.denials.count(AUTHENTICATION) == 1
    bench.denials.accepted("command_config")
    assert bench.denials.count(AUTHENTICATION) == 0


@pytest.mark.parametrize(
    ("api", "req", "res", "lacks"),
    [
        (
            "Metadata",
            md.MetadataRequest(topics=[md.MetadataRequestTopic(name=STATE)]),
            lambda: md.MetadataResponse(topics=[md.MetadataResponseTopic(NO_TOPIC, STATE)]),
            f"Describe of topic {STATE}",
        ),
        (
            "CreateTopics",
            ct.CreateTopicsRequest(),
            lambda: ct.CreateTopicsResponse(topics=[ct.CreatableTopicResult(STATE, error_code=NO_TOPIC)]),
            f"Create of topic {STATE}",
        ),
        (
            "DescribeConfigs",
            dc.DescribeConfigsRequest(),
            lambda: dc.DescribeConfigsResponse(results=[dc.DescribeConfigsResult(NO_CLUSTER, None, 4, "1")]),
            "DescribeConfigs of the cluster",
        ),
        ("FindCoordinator", FIND, lambda: fc.FindCoordinatorResponse(error_code=NO_ID), "Describe of transactional-id"),
        (
            "DescribeGroups",
            dg.DescribeGroupsRequest(["g"]),
            lambda: dg.DescribeGroupsResponse(groups=[dg.DescribedGroup(NO_GROUP, None, "g")]),
            "Describe of group g",
        ),
        (
            "OffsetCommit",
            oc.OffsetCommitRequest(OWNERS),
            lambda: oc.OffsetCommitResponse(
                topics=[oc.OffsetCommitResponseTopic(STATE, partitions=[oc.OffsetCommitResponsePartition(0, NO_TOPIC)])]
            ),
            f"Read of topic {STATE}",
        ),
        (
            "InitProducerId",
            ip.InitProducerIdRequest(f"{STATE}-0"),
            lambda: ip.InitProducerIdResponse(error_code=NO_ID),
            f"Write of transactional-id {STATE}-0",
        ),
        (
            "JoinGroup",
            jg.JoinGroupRequest(OWNERS),
            lambda: jg.JoinGroupResponse(error_code=NO_GROUP),
            f"Read of group {OWNERS}",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and value.isalpha() else "",
)
def test_each_answer_names_the_right_that_is_missing(
    bench: Bench, api: str, req: object, res: Callable[[], object], lacks: str
) -> None:
    bench.denials.answered(api, req, res())
    (problem,) = bench.problems()
    assert lacks in problem
