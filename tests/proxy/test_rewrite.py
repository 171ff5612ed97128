from __future__ import annotations

from sidecar.api import offsets as po
from sidecar.api import rewrite
from sidecar.core.errors import Code
from sidecar.core.events import CheckReply
from sidecar.wire.generated import api_versions as av
from sidecar.wire.generated import find_coordinator as fc
from sidecar.wire.generated import list_groups as lg
from sidecar.wire.generated import offset_commit as oc
from sidecar.wire.primitives import ZERO_UUID


def versions(*rows: tuple[int, int, int]) -> bytes:
    return av.ApiVersionsResponse(api_keys=[av.ApiVersion(*r) for r in rows]).encode(3)


def ranges(body: bytes) -> dict[int, tuple[int, int]]:
    return {k.api_key: (k.min_version, k.max_version) for k in av.ApiVersionsResponse.decode(3, body).api_keys}


def test_an_old_broker_gets_the_consumer_protocol() -> None:
    body, theirs = rewrite.api_versions(versions((0, 0, 9), (8, 0, 8), (18, 0, 3)), 3, managing=True)
    assert ranges(body) == {0: (0, 9), 8: (2, 9), 18: (0, 3), 68: (0, 1), 69: (0, 1)}
    assert theirs[8] == (0, 8)


def test_without_managed_groups_nothing_is_brought() -> None:
    body, _ = rewrite.api_versions(versions((8, 2, 10), (18, 0, 4)), 3, managing=False)
    assert ranges(body) == {8: (2, 10), 18: (0, 4)}


def test_never_more_than_both_can() -> None:
    body, _ = rewrite.api_versions(versions((16, 0, 7), (10, 0, 4)), 3, managing=True)
    assert ranges(body)[16] == (0, 5)
    assert ranges(body)[10] == (0, 4)


def test_api_versions_of_an_unknown_version_stays_version_0() -> None:
    res = av.ApiVersionsResponse(error_code=Code.UNSUPPORTED_VERSION, api_keys=[av.ApiVersion(18, 0, 3)])
    body, _ = rewrite.api_versions(res.encode(0), 9, managing=True)
    assert av.ApiVersionsResponse.decode(0, body).error_code == Code.UNSUPPORTED_VERSION


def test_find_coordinator_names_the_owner_and_keeps_a_refusal() -> None:
    rows = [
        fc.Coordinator(key="mine", node_id=1, host="b1", port=1),
        fc.Coordinator(key="theirs", node_id=1, host="b1", port=1),
        fc.Coordinator(key="mine-refused", error_code=Code.GROUP_AUTHORIZATION_FAILED),
        fc.Coordinator(key="mine-unknown", node_id=1, host="b1", port=1),
    ]
    body = fc.FindCoordinatorResponse(coordinators=rows).encode(4)
    owners = {"mine": (3, "s3", 9093)}
    out = rewrite.find_coordinator(body, 4, "", 0, lambda g: g.startswith("mine"), owners.get)
    found = {
        c.key: (c.error_code, c.node_id, c.host, c.port) for c in fc.FindCoordinatorResponse.decode(4, out).coordinators
    }
    assert found["mine"] == (0, 3, "s3", 9093)
    assert found["theirs"] == (0, 1, "b1", 1)
    assert found["mine-refused"][0] == Code.GROUP_AUTHORIZATION_FAILED
    assert found["mine-unknown"][0] == Code.COORDINATOR_NOT_AVAILABLE


def test_list_groups_shows_each_group_once() -> None:
    theirs = [
        lg.ListedGroup("classic", "consumer", "Stable", "classic"),
        lg.ListedGroup("mine", "", "Empty", "classic"),
    ]
    body = lg.ListGroupsResponse(groups=theirs).encode(5)
    out = rewrite.list_groups(body, 5, [], [], lambda g: g == "mine", [("mine", "Stable")], Code.NONE)
    groups = lg.ListGroupsResponse.decode(5, out).groups
    assert [(g.group_id, g.group_state, g.group_type) for g in groups] == [
        ("classic", "Stable", "classic"),
        ("mine", "Stable", "consumer"),
    ]
    out = rewrite.list_groups(body, 5, ["empty"], ["Consumer"], lambda g: g == "mine", [("mine", "Stable")], Code.NONE)
    assert [g.group_id for g in lg.ListGroupsResponse.decode(5, out).groups] == ["classic"]


def test_refused_partitions_of_a_commit_come_back_with_their_error() -> None:
    req = oc.OffsetCommitRequest("g", 3, "m", topics=[oc.OffsetCommitRequestTopic("t", partitions=[
        oc.OffsetCommitRequestPartition(0, 10), oc.OffsetCommitRequestPartition(1, 11)])])  # fmt: skip
    refused = frozenset({("t", ZERO_UUID, 1)})
    po.strip_commit(req, refused)
    assert (req.member_id, req.generation_id_or_member_epoch) == ("", -1)
    assert [p.partition_index for p in req.topics[0].partitions] == [0]
    res = po.commit_failed(req, 0)
    po.merge_refused(res, CheckReply(Code.NONE, Code.STALE_MEMBER_EPOCH, refused))
    assert [(p.partition_index, p.error_code) for p in res.topics[0].partitions] == [(0, 0), (1, 113)]
