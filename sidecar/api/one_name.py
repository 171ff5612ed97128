"""One name, one group: a managed group and a group of another kind at the broker may not have the same id.

Heartbeats of share and streams groups pass to the broker where groups of that kind are left to it (`groups.kinds`).
The broker does not know the groups that live here; so a join under the id of one of these is refused here, in Kafka's
words. And before the first member of a new group is let in here, its broker is asked whether the name is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sidecar.api import access, slices
from sidecar.api.call import CLIENT_ID, Call, Want, coordinate
from sidecar.api.known_groups import groups_with_records
from sidecar.api.store import store_at
from sidecar.core.runtime.events import (
    Answer,
    DeleteGroup,
    DeletionCheck,
    DeletionCheckReply,
)
from sidecar.core.share.config import SHARE
from sidecar.core.streams.config import STREAMS
from sidecar.core.vocabulary.errors import Code
from sidecar.link.messages import CheckGroupIsBrokers
from sidecar.wire.apis import Api
from sidecar.wire.generated import consumer_group_describe as cd
from sidecar.wire.generated import describe_groups as dg
from sidecar.wire.generated import share_group_describe as sd
from sidecar.wire.generated import streams_group_describe as st

CLASSIC, DEAD = "classic", "Dead"
NOT_NOW: tuple[int, ...] = (Code.COORDINATOR_LOAD_IN_PROGRESS, Code.COORDINATOR_NOT_AVAILABLE, Code.NOT_COORDINATOR)
SHARE_SINCE = 1
"""The first version of ShareGroupDescribe that was not early access."""
FREE_MS, NEVER_MS = 100, -1_000_000
"""Time for which a name counts as free, and a time that is long over. A group of another kind that begins at the broker
meanwhile races with this one; until the new group is in the log takes about as long."""
OTHER_KINDS_SINCE = 6
"""First version of DescribeGroups that distinguishes other kinds. Older brokers have classic groups only, or show
consumer groups as "Dead"."""


# ---- groups of the broker under the name of a group here ----------------------------------------------------------
def join_refused_by_managed_group(
    call: Call, group_id: str, topics: Iterable[str], kind: str
) -> Generator[Want, Any, Code]:
    """Returns the error for a member of a group of `kind`, which this sidecar leaves to the broker; NONE: it passes.
    Rights come first, as at the broker. A group of that kind that is here waits for a sidecar that coordinates it."""
    if not call.scope.managed(group_id):
        return Code.NONE
    if call.scope.own.is_group(group_id):
        return Code.GROUP_AUTHORIZATION_FAILED
    known = yield from groups_with_records((group_id,))
    if group_id not in known.groups:
        return Code.NONE
    refused: Code = yield from access.refused_read(call, group_id)
    if refused != Code.NONE:
        return refused
    if (yield from access.hidden_topics(call, topics)):
        return Code.TOPIC_AUTHORIZATION_FAILED
    check: DeletionCheckReply = yield from coordinate(DeletionCheck(group_id))
    if check.code != Code.NONE:
        return Code(check.code)
    if check.kind == kind:
        return Code.COORDINATOR_NOT_AVAILABLE
    if kind == STREAMS and check.kind == CLASSIC and not check.members:  # it gives its name to no other kind
        deleted: Answer = yield from coordinate(DeleteGroup(group_id))
        if deleted.code in (Code.NONE, Code.GROUP_ID_NOT_FOUND):
            return Code.NONE
    return Code.GROUP_ID_NOT_FOUND


# ---- a group of the broker, for all that is known here ------------------------------------------------------------
def left_to_the_broker(call: Call, group_id: str) -> Generator[Want, Any, Code]:
    """Checks before a join that the group is the broker's: this sidecar may have missed its adoption, and a second
    coordinator would begin it anew. After NONE, `call.scope.managed` is up to date. Any other code refuses the join; a
    client without READ of the group gets that error first, as from the broker."""
    answer: Answer = yield from coordinate(CheckGroupIsBrokers("", name=group_id))
    if answer.code == Code.NONE:
        return Code.NONE
    refused: Code = yield from access.refused_read(call, group_id)
    return refused or Code(answer.code)


# ---- a group here under the name of a group of the broker ---------------------------------------------------------
def name_taken_at_broker(call: Call, group_id: str, came_ms: int) -> Generator[Want, Any, Code]:
    """Returns GROUP_ID_NOT_FOUND if the broker has a share or streams group of this name, and its own error if it
    cannot tell now. It is asked for groups that no sidecar knows yet. The members of a new group come together: an
    answer from after `came_ms`, when this request came, or from just before, counts for this one, too."""
    free = call.scope.learnt.free
    answer = yield from _asked(call, group_id, came_ms, free)
    if answer is None:
        return Code.NONE
    if not _of_another_kind(answer.description):
        return _free(answer, answer.description.error_code, free, group_id)
    consumer = yield from _described(call, answer.keeper, group_id, AS_CONSUMER)
    if consumer.error_code == Code.GROUP_ID_NOT_FOUND:
        return Code.GROUP_ID_NOT_FOUND
    return Code(consumer.error_code) if consumer.error_code in NOT_NOW else Code.NONE


def taken_from_share(call: Call, group_id: str, came_ms: int) -> Generator[Want, Any, Code]:
    """Returns the same for a share group: GROUP_ID_NOT_FOUND if the broker has a group of any other kind, with members
    or without; its own error if it cannot tell now."""
    if (yield from _waits(call, group_id, SHARE)):
        return Code.COORDINATOR_NOT_AVAILABLE
    free = call.scope.learnt.free_to_share
    answer = yield from _asked(call, group_id, came_ms, free)
    if answer is None:
        return Code.NONE
    description = answer.description
    taken, code = description.error_code == Code.NONE and description.group_state != DEAD, description.error_code
    if _of_another_kind(description):
        share = yield from _described(call, answer.keeper, group_id, AS_SHARE)
        taken, code = share.error_code == Code.GROUP_ID_NOT_FOUND, share.error_code
    if taken:
        return Code.GROUP_ID_NOT_FOUND
    return _free(answer, code, free, group_id)


def taken_from_streams(call: Call, group_id: str, came_ms: int) -> Generator[Want, Any, Code]:
    """Returns the same for a streams group: GROUP_ID_NOT_FOUND if the broker has a group of another kind of this name.
    An empty classic group there keeps the offsets, and an empty streams group gives way to it. A streams group with
    members is adopted with them before anybody joins. Until then a task would have two owners:
    COORDINATOR_LOAD_IN_PROGRESS, and clients ask again."""
    if (yield from _waits(call, group_id, STREAMS)):
        return Code.COORDINATOR_NOT_AVAILABLE
    free = call.scope.learnt.free_to_streams
    answer = yield from _asked(call, group_id, came_ms, free)
    if answer is None:
        return Code.NONE
    description = answer.description
    if any(m.group_instance_id != CLIENT_ID for m in description.members):  # others than our placeholder
        return Code.GROUP_ID_NOT_FOUND
    if _of_another_kind(description):
        if Api.STREAMS_GROUP_DESCRIBE not in (call.broker_versions or ()):
            return Code.GROUP_ID_NOT_FOUND
        streams = yield from _described(call, answer.keeper, group_id, AS_STREAMS)
        if streams.error_code == Code.GROUP_ID_NOT_FOUND:
            return Code.GROUP_ID_NOT_FOUND
        if streams.error_code != Code.NONE:
            return Code.COORDINATOR_LOAD_IN_PROGRESS
        if streams.members:
            check: DeletionCheckReply = yield from coordinate(DeletionCheck(group_id))
            adopted = check.code == Code.NONE and check.kind == STREAMS and check.members
            return Code.NONE if adopted else Code.COORDINATOR_LOAD_IN_PROGRESS
    return _free(answer, description.error_code, free, group_id)


def _waits(call: Call, group_id: str, kind: str) -> Generator[Want, Any, bool]:
    """Returns whether the group would begin while a sidecar that does not coordinate its kind may become its owner."""
    if kind not in call.view.lacking:
        return False
    known = yield from groups_with_records((group_id,))
    return known.code == Code.NONE and group_id not in known.groups


@dataclass(frozen=True, slots=True)
class _Asked:
    """The answer of the broker `keeper` to DescribeGroups."""

    description: dg.DescribedGroup
    keeper: int
    at_ms: int


def _free(answer: _Asked, code: int, free: dict[str, int], group_id: str) -> Code:
    """Returns NONE and notes the name as free, unless the broker could not tell now: then its error."""
    if code in NOT_NOW:
        return Code(code)
    if code != Code.GROUP_AUTHORIZATION_FAILED:  # which is no information about the name
        free[group_id] = answer.at_ms
    return Code.NONE


def _asked(call: Call, group_id: str, came_ms: int, free: Mapping[str, int]) -> Generator[Want, Any, _Asked | None]:
    """Asks the broker for the name. Returns None if the name was free a moment ago, or is known here, or the broker has
    groups of one kind only. `free`: name -> when it was found free."""
    versions = call.broker_versions
    if free.get(group_id, NEVER_MS) > came_ms - FREE_MS:
        return None
    if versions is None or versions.get(Api.DESCRIBE_GROUPS, (0, 0))[1] < OTHER_KINDS_SINCE:
        return None
    known = yield from groups_with_records((group_id,))
    if known.code != Code.NONE or group_id in known.groups:
        return None
    keeper, at_ms = call.keeper_of(group_id), call.now_ms
    description = yield from _described(call, keeper, group_id, AS_CLASSIC)
    return _Asked(description, keeper, at_ms)


@dataclass(frozen=True, slots=True)
class _Describe:
    """The API that describes one kind of groups."""

    api: Api
    version: int
    request: Callable[[list[str]], Any]
    response: type[Any]


AS_CLASSIC = _Describe(Api.DESCRIBE_GROUPS, OTHER_KINDS_SINCE, dg.DescribeGroupsRequest, dg.DescribeGroupsResponse)
AS_CONSUMER = _Describe(
    Api.CONSUMER_GROUP_DESCRIBE, 0, cd.ConsumerGroupDescribeRequest, cd.ConsumerGroupDescribeResponse
)
AS_SHARE = _Describe(Api.SHARE_GROUP_DESCRIBE, SHARE_SINCE, sd.ShareGroupDescribeRequest, sd.ShareGroupDescribeResponse)
AS_STREAMS = _Describe(Api.STREAMS_GROUP_DESCRIBE, 0, st.StreamsGroupDescribeRequest, st.StreamsGroupDescribeResponse)


def _described(call: Call, keeper: int, group_id: str, how: _Describe) -> Generator[Want, Any, Any]:
    """Returns the group as the broker `keeper` describes it."""
    body = yield from store_at(call, keeper, how.version, how.request([group_id]).encode(how.version), how.api)
    return slices.only(how.response.decode(how.version, body).groups)


def _of_another_kind(group: dg.DescribedGroup) -> bool:
    """Returns whether the broker's group is of another kind than classic."""
    return group.error_code == Code.GROUP_ID_NOT_FOUND and "is not a classic group" in (group.error_message or "")
