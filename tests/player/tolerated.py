"""The differences that docs/reference/differences.md has, each under a name. Everything else is a fault.

A rule looks at one pair of answers. `ends`: what follows in the case is another story then, and is not compared.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.player import states
from tests.player.cases import Case
from tests.player.side import ASKED, NO_TRANSACTION, OF_GROUPS, SILENT, Answered

NONE, UNKNOWN_SERVER_ERROR = 0, -1
INCONSISTENT_GROUP_PROTOCOL, UNKNOWN_MEMBER_ID, GROUP_ID_NOT_FOUND = 23, 25, 69
ILLEGAL_GENERATION, FENCED_MEMBER_EPOCH, UNRELEASED_INSTANCE_ID = 22, 110, 111
INVALID_REGULAR_EXPRESSION = 128
OF_THE_BROKER = frozenset((3, 12, 42, 47, 48, 49, 90, 100, 120, NO_TRANSACTION))
"""Topic, partition or topic id unknown; metadata too large; the producer's id, epoch or transaction; 42: no such id."""
OF_THE_MEMBER = frozenset((22, 25, 27, 35, 69, 82, 113))
OFFSETS_ONLY = (states.offsets, states.transaction)
EMPTY = (states.classic_empty, states.classic_pending, states.offsets)
COMMITS = ("OffsetCommit", "TxnOffsetCommit")
INSTANCE = "groupInstanceId"
CONSUMER_GROUP_APIS = (68, 69)
OFFLOAD = "consumer.assignor.offload.enable"
Says = Callable[[Case, str, Any, Any], bool]
"""Whether the two answers of this API differ by the rule alone: theirs, ours."""


@dataclass(frozen=True)
class Rule:
    row: str
    """The beginning of its row in docs/reference/differences.md."""
    says: Says
    ends: bool = False


def judge(case: Case, theirs: list[Answered], ours: list[Answered]) -> tuple[list[str], bool]:
    """The rows by which the answers differ, and whether they are the same but for these."""
    names: list[str] = []
    for a, b in zip(theirs, ours, strict=False):
        if a != b and in_the_order_asked(b) and ids_of(a) != ids_of(b):
            a, b = in_order_of_names(a), in_order_of_names(b)
            names.append(ORDER)
        if a == b:
            continue
        rule = next((r for r in RULES if a[:2] == b[:2] and r.says(case, a[0], a[2], b[2])), None)
        if rule is None:
            return names, False
        names.append(rule.row)
        if rule.ends:
            return names, True
    return names, len(theirs) == len(ours)


ORDER = "the order of groups in an answer"


def ids_of(answered: Answered) -> list[Any]:
    """Returns the ids of the groups in an answer, in its order."""
    api, _, answer = answered
    return [g["groupId"] for g in answer[OF_GROUPS[api][1]]] if api in OF_GROUPS and isinstance(answer, dict) else []


def in_the_order_asked(answered: Answered) -> bool:
    told = ids_of(answered)
    asked = [name for name in answered[2][ASKED] or () if name in told] if told else []
    return told in (asked, list(dict.fromkeys(asked)))


def in_order_of_names(answered: Answered) -> Answered:
    api, version, answer = answered
    if not isinstance(answer, dict):
        return answered
    name = OF_GROUPS[api][1]
    return api, version, {**answer, name: sorted(answer[name], key=lambda g: str(g["groupId"]))}


def without(value: Any, *names: str) -> Any:
    """The answer without these fields, wherever they are."""
    if isinstance(value, dict):
        return {k: without(v, *names) for k, v in value.items() if k not in names}
    return [without(v, *names) for v in value] if isinstance(value, list) else value


def _code(answer: Any) -> int | None:
    return answer.get("errorCode") if isinstance(answer, dict) else None


def _offsets_only(case: Case, api: str, theirs: Any, ours: Any) -> bool:
    return api == "ConsumerGroupDescribe" and without(theirs, "errorMessage") == without(ours, "errorMessage")


def _no_such_group(case: Case, api: str, theirs: Any, ours: Any) -> bool:
    codes = (_code(theirs), _code(ours))
    return api == "ConsumerGroupHeartbeat" and codes == (GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID)


def _partition_codes(answer: Any) -> list[int]:
    return [p["errorCode"] for t in answer["topics"] for p in t["partitions"]] if isinstance(answer, dict) else []


def _codes(api: str, theirs: Any, ours: Any) -> set[tuple[int, int]]:
    """The pairs of codes of the partitions in which two answers to a commit differ; nothing if more differs."""
    theirs, ours = _once(theirs), _once(ours)  # a topic that 3.9 answers once though it was named twice
    if not api.endswith("OffsetCommit") or without(theirs, "errorCode") != without(ours, "errorCode"):
        return set()
    return {(a, b) for a, b in zip(_partition_codes(theirs), _partition_codes(ours), strict=True) if a != b}


def _commit_to_no_group(case: Case, api: str, theirs: Any, ours: Any) -> bool:
    codes = _codes(api, theirs, ours)
    nobody = case.state is states.no_group or bool(_changes(case, "groupId"))
    before_4 = nobody and codes == {(ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID)}
    return before_4 or codes == {(GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID)}


def _commit_to_offsets(case: Case, api: str, theirs: Any, ours: Any) -> bool:
    return _codes(api, theirs, ours) == {(UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION)} and case.state in OFFSETS_ONLY


def _commit_with_two_faults(case: Case, api: str, theirs: Any, ours: Any) -> bool:
    codes = _codes(api, theirs, ours)
    return bool(codes) and all(a in OF_THE_BROKER and b in OF_THE_MEMBER for a, b in codes)


def _without_partitions(case: Case, api: str, theirs: Any, ours: Any) -> bool:
    if api not in ("OffsetCommit", "TxnOffsetCommit", "OffsetDelete") or not isinstance(theirs, dict):
        return False
    return bool({**theirs, "topics": [t for t in theirs["topics"] if t["partitions"]]} == ours)


def _once(value: Any) -> Any:
    """Each element of a list once."""
    if isinstance(value, dict):
        return {k: _once(v) for k, v in value.items()}
    if isinstance(value, list):
        found: list[Any] = []
        for v in map(_once, value):
            if v not in found:
                found.append(v)
        return found
    return value


def _committed_twice(case: Case, api: str, theirs: Any, ours: Any) -> bool:
    return api == "OffsetCommit" and _once(theirs) == ours


def _answered_once(case: Case, api: str, theirs: Any, ours: Any) -> bool:
    """Kafka 3.9."""
    return api in ("OffsetDelete", "OffsetCommit", "TxnOffsetCommit") and _once(ours) == theirs


def _fetched_twice(case: Case, api: str, theirs: Any, ours: Any) -> bool:
    return api == "OffsetFetch" and _once(theirs) == ours


def _fetch_of_null(case: Case, api: str, theirs: Any, ours: Any) -> bool:
    if api != "OffsetFetch" or not isinstance(theirs, dict) or not isinstance(ours, dict) or "groups" not in ours:
        return False
    pairs = {(a["errorCode"], b["errorCode"]) for a, b in zip(theirs["groups"], ours["groups"], strict=False) if a != b}
    return pairs == {(UNKNOWN_SERVER_ERROR, UNKNOWN_MEMBER_ID)}


def _internal(case: Case, api: str, theirs: Any, ours: Any) -> bool:
    return api in ("Metadata", "DescribeTopicPartitions") and without(theirs, "isInternal") == without(
        ours, "isInternal"
    )


def _brought(case: Case, api: str, theirs: Any, ours: Any) -> bool:
    """Kafka 3.9 announces them in other versions."""
    if api != "ApiVersions" or not isinstance(theirs, dict) or not isinstance(ours, dict):
        return False
    a, b = ([k for k in answer["apiKeys"] if k["apiKey"] not in CONSUMER_GROUP_APIS] for answer in (theirs, ours))
    return bool({**theirs, "apiKeys": a} == {**ours, "apiKeys": b})


def _offload(case: Case, api: str, theirs: Any, ours: Any) -> bool:
    if api != "DescribeConfigs" or not isinstance(ours, dict):
        return False
    results = [{**r, "configs": [c for c in r["configs"] if c["name"] != OFFLOAD]} for r in ours["results"]]
    return bool({**ours, "results": results} == theirs)


DUE = ("groupState", "assignmentEpoch", "targetAssignment", "groupEpoch")


def _due(case: Case, api: str, theirs: Any, ours: Any) -> bool:
    if api not in ("ListGroups", "ConsumerGroupDescribe") or not isinstance(theirs, dict):
        return False
    due = any(g.get("groupState") in ("Assigning", "Empty") for g in theirs["groups"])
    return due and without(theirs, *DUE) == without(ours, *DUE)


def _order_of_members(case: Case, api: str, theirs: Any, ours: Any) -> bool:
    if api not in ("ConsumerGroupHeartbeat", "ConsumerGroupDescribe", "SyncGroup") or _code(theirs) != _code(ours):
        return False
    return bool(without(theirs, *SHARES) == without(ours, *SHARES))


SHARES = ("topicPartitions", "assignment", "targetAssignment", "groupState", "memberEpoch")


def _unreadable(case: Case, api: str, theirs: Any, ours: Any) -> bool:
    codes = (_code(theirs), _code(ours))
    return api == "JoinGroup" and codes == (UNKNOWN_SERVER_ERROR, INCONSISTENT_GROUP_PROTOCOL)


def _changes(case: Case, field: str) -> set[str]:
    return {c.name for c in case.changes if field in c.path}


def _two_faults_of_a_join(case: Case, api: str, theirs: Any, ours: Any) -> bool:
    codes = (_code(theirs), _code(ours))
    to_offsets = api == "JoinGroup" and case.state in OFFSETS_ONLY
    return to_offsets and codes == (INCONSISTENT_GROUP_PROTOCOL, UNKNOWN_MEMBER_ID)


def _unreadable_in_classic(case: Case, api: str, theirs: Any, ours: Any) -> bool:
    fails = theirs == SILENT or _code(theirs) == UNKNOWN_SERVER_ERROR
    return api == "JoinGroup" and fails and _code(ours) == NONE and bool(_changes(case, "metadata"))


def _protocol_twice(case: Case, api: str, theirs: Any, ours: Any) -> bool:
    return api == "JoinGroup" and _code(ours) == NONE and "twice" in _changes(case, "protocols")


def _given_out(case: Case, api: str, theirs: Any, ours: Any) -> bool:
    codes = (_code(theirs), _code(ours))
    return api == "JoinGroup" and codes == (UNKNOWN_SERVER_ERROR, UNKNOWN_MEMBER_ID) and bool(_changes(case, INSTANCE))


def _empty_group_left(case: Case, api: str, theirs: Any, ours: Any) -> bool:
    """Returns whether an empty group was left: it shows with the next record of its partition. A commit through the
    sidecar leaves one at the broker, too."""
    if case.api not in ("JoinGroup", *COMMITS) or not isinstance(theirs, dict) or not isinstance(ours, dict):
        return False
    return _left_behind(api, theirs, ours) or (case.api in COMMITS and _left_behind(api, ours, theirs))


def _left_behind(api: str, more: Any, less: Any) -> bool:
    if api == "ListGroups":
        empty = {"protocolType": "", "groupState": "Empty", "groupType": "classic"}
        left = [g for g in more["groups"] if g not in less["groups"]]
        there = [g for g in more["groups"] if g in less["groups"]]
        return there == less["groups"] and all({**g, **empty} == g for g in left)
    shown = [[g["groupState"] for g in answer.get("groups", ()) if "groupState" in g] for answer in (more, less)]
    if api == "DescribeGroups":
        return shown == [["Empty"], ["Dead"]]
    return api == "ConsumerGroupDescribe" and shown == [[""], [""]]


def _empty_group_forgotten(case: Case, api: str, theirs: Any, ours: Any) -> bool:
    """The broker shows it when another record is committed in the group's partition."""
    if case.api != "JoinGroup" or case.state is not states.consumer_empty or not isinstance(theirs, dict):
        return False
    if api == "DescribeGroups":
        stays = "is not a classic group." in str(ours)
        return stays and not theirs["groups"][0]["members"]
    if api == "ConsumerGroupDescribe":
        told = [(g["errorCode"], g["groupState"], g["members"]) for answer in (theirs, ours) for g in answer["groups"]]
        return told == [(GROUP_ID_NOT_FOUND, "", []), (NONE, "Empty", [])]
    return api == "ListGroups" and [g["groupType"] for g in ours["groups"]] == ["consumer"] and not theirs["groups"]


def _another_kind(case: Case, api: str, theirs: Any, ours: Any) -> bool:
    kinds = ("ShareGroupHeartbeat", "StreamsGroupHeartbeat")
    return api in kinds and _code(ours) == GROUP_ID_NOT_FOUND and _code(theirs) not in (NONE, None)


def _no_settings_of_groups(case: Case, api: str, theirs: Any, ours: Any) -> bool:
    """Kafka 3.9."""
    refused = "Unknown resource type 32" in str(theirs) or "incompatible broker" in str(theirs)
    return api.endswith("Configs") and refused and "'resourceType': 32" in str(theirs)


def _assignments_while_members_join(case: Case, api: str, theirs: Any, ours: Any) -> bool:
    names = ("memberAssignment", "memberMetadata")
    shown = [g["groupState"] for g in ours["groups"]] if api == "DescribeGroups" and isinstance(ours, dict) else []
    return shown in (["PreparingRebalance"], ["CompletingRebalance"]) and without(theirs, *names) == without(
        ours, *names
    )


def _unresolved(case: Case, api: str, theirs: Any, ours: Any) -> bool:
    """Each resolves the expression beside the requests, and when it has is a race."""
    if case.api != "ConsumerGroupHeartbeat" or not _changes(case, "subscribedTopicRegex"):
        return False
    if api in ("ListGroups", "ConsumerGroupDescribe"):
        return bool(without(theirs, *DUE, *SHARES) == without(ours, *DUE, *SHARES))
    return api == "ConsumerGroupHeartbeat" and _code(theirs) == _code(ours) == NONE


def _epoch_of_the_wait(case: Case, api: str, theirs: Any, ours: Any) -> bool:
    """The former epoch is accepted, so that the second fault of a request is answered."""
    fenced, accepted = _code(theirs) == FENCED_MEMBER_EPOCH, _code(ours) in (NONE, INVALID_REGULAR_EXPRESSION)
    claims = case.state is states.consumer and bool(_changes(case, "memberEpoch"))
    return api == "ConsumerGroupHeartbeat" and fenced and accepted and claims


def _joins_once_more(case: Case, api: str, theirs: Any, ours: Any) -> bool:
    if api != "ConsumerGroupHeartbeat" or (_code(theirs), _code(ours)) != (UNRELEASED_INSTANCE_ID, NONE):
        return False
    owner_and_member: int = theirs["errorMessage"].count(ours["memberId"])
    return owner_and_member == 2


def _another_assignor(case: Case, api: str, theirs: Any, ours: Any) -> bool:
    """Kafka 4.3."""
    if api != "ConsumerGroupHeartbeat" or not _changes(case, "serverAssignor"):
        return False
    both_let_in = _code(theirs) == _code(ours) == NONE
    return both_let_in and bool(ours["memberEpoch"] == theirs["memberEpoch"] + 1)


def _unassigned_at_upgrade(case: Case, api: str, theirs: Any, ours: Any) -> bool:
    if api != "ConsumerGroupHeartbeat" or case.state is not states.classic_syncing or _code(ours) != NONE:
        return False
    return bool(
        ours["memberEpoch"] == theirs["memberEpoch"] + 1 and {**ours, "memberEpoch": 1} == {**theirs, "memberEpoch": 1}
    )


def _resource_twice(case: Case, api: str, theirs: Any, ours: Any) -> bool:
    return api == "AlterConfigs" and theirs == SILENT and "Each resource must appear at most once." in str(ours)


def _out_of_range(case: Case, api: str, theirs: Any, ours: Any) -> bool:
    """Kafka 4.3."""
    same = api.endswith("AlterConfigs") and without(theirs, "errorMessage") == without(ours, "errorMessage")
    return same and "must be in the range" in str(ours) and " than or equal to group." in str(theirs)


def _last_offset(case: Case, api: str, theirs: Any, ours: Any) -> bool:
    """Kafka 3.9."""
    looks = api in ("DescribeGroups", "ListGroups") and isinstance(theirs, dict)
    gone = looks and [g["groupState"] for g in theirs["groups"]] in (["Dead"], [])
    return gone and case.api == "OffsetDelete" and case.state in EMPTY


RULES = (
    Rule("feature gates (2.28)", _no_settings_of_groups, ends=True),
    Rule("assignments as DescribeGroups shows them during a rebalance (1.26)", _assignments_while_members_join),
    Rule("a member with an unresolved regular expression (2.19)", _unresolved, ends=True),
    Rule("an empty group whose last offset is deleted", _last_offset),
    Rule("ConsumerGroupDescribe of a group of which only offsets are there", _offsets_only),
    Rule("a heartbeat or a leave of a member whose group is not there", _no_such_group),
    Rule("a commit of a member whose group is not there", _commit_to_no_group),
    Rule("a commit with a generation to a group of which only offsets are there", _commit_to_offsets),
    Rule("a JoinGroup with an unknown member id and no protocol", _two_faults_of_a_join, ends=True),
    Rule("a commit that the member may not make, with a second fault", _commit_with_two_faults),
    Rule("a joining member under offload", _epoch_of_the_wait, ends=True),
    Rule("a static member that joins once more under the same member id (2.5)", _joins_once_more, ends=True),
    Rule("a member whose wish changes the group's assignor (2.6, 2.15)", _another_assignor, ends=True),
    Rule(
        "a group that upgrades though its last assignment leaves partitions out (2.22)",
        _unassigned_at_upgrade,
        ends=True,
    ),
    Rule("a resource that AlterConfigs names twice", _resource_twice),
    Rule("a setting of a group outside of its range (2.29)", _out_of_range),
    Rule("a topic without partitions in a commit", _without_partitions),
    Rule("a partition that a commit names twice", _committed_twice),
    Rule("a partition that an OffsetDelete, or a commit that is refused as a whole, names twice", _answered_once),
    Rule("an OffsetFetch with a member epoch and without a member id", _fetch_of_null),
    Rule("a group, topic or partition that an OffsetFetch names twice", _fetched_twice),
    Rule("`__group_state` in Metadata", _internal),
    Rule("ApiVersions", _brought),
    Rule("offload (3.9, 3.10)", _offload),
    Rule("a due assignment (3.1)", _due),
    Rule("order of members for an assignor (2.16, 2.17)", _order_of_members),
    Rule("a JoinGroup to a consumer group whose subscription cannot be read", _unreadable, ends=True),
    Rule("a subscription that cannot be read, in a classic group of consumers", _unreadable_in_classic, ends=True),
    Rule("a protocol that a member lists twice (1.7)", _protocol_twice, ends=True),
    Rule("a member id that was given out, used with an instance id (1.4)", _given_out),
    Rule("a refused JoinGroup (1.3, 1.6)", _empty_group_left),
    Rule("a JoinGroup that an empty consumer group refuses (2.23)", _empty_group_forgotten, ends=True),
    Rule("a share or streams group under the name of a managed group", _another_kind),
)
