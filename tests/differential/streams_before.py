"""Scripts of streams groups for a Kafka before 4.4. docs/reference/differences.md says where its answers are others.

They are those of streams_script.py without what it does not know: static members, offsets of tasks, some settings, and
endpoints, whose epoch rises at other times. Half of them have one member only: any assignor gives it the same tasks."""

from __future__ import annotations

from typing import Any

from sidecar.core.vocabulary.errors import Code
from sidecar.kafka.net import BrokerConnection
from sidecar.wire.generated import streams_group_heartbeat as st
from tests.differential.older import EMPTIED, harmless_difference
from tests.differential.script import Step
from tests.differential.streams import ASSIGNMENT_DELAYED, HEARTBEAT_FIELDS, STATUSES, TASKS, StreamsSide
from tests.differential.streams_script import LEAVE, MEMBERS, make_streams

UNKNOWN_VERBS = ("instance", "offsets")
UNKNOWN_WAYS = ("blank instance", "leave without instance")
UNKNOWN_OPTIONS = {
    "instance",
    "port",
    "streams.assignor.name",
    "streams.assignment.interval.ms",
    "streams.rack.aware.assignment.tags",
}
EPOCH, INTERVALS = 3, 4
"""Columns of a heartbeat's answer."""
ASSIGNMENT_EPOCH, ASSIGNOR, TOLD_MEMBERS, DESCRIBED_FIELDS, TOLD_TASKS = 4, 5, 6, 8, slice(8, 10)
"""Columns of a description and their number, and columns of a member in it."""
FULL, STICKY, PROMOTED = "a member of a full group joins again", "another assignor", "a standby becomes active"


def make_streams_before(seed: int) -> list[Step]:
    steps, alone = [], seed % 2 == 0
    for s in make_streams(seed):
        options = {name: value for name, value in s.options.items() if name not in UNKNOWN_OPTIONS}
        if s.verb in UNKNOWN_VERBS or options.get("how") in UNKNOWN_WAYS or (s.options and not options):
            continue
        if s.verb == "leave":
            options["epoch"] = LEAVE
        steps.append(Step(s.verb, MEMBERS[0] if alone and s.member in MEMBERS else s.member, options))
    return steps


class StreamsSideBefore(StreamsSide):
    def __init__(self, conn: BrokerConnection, group: str, ids: dict[str, bytes]) -> None:
        super().__init__(conn, group, ids)
        self.known, self.standbys = False, dict[str, list[int]]()
        """Whether the member of the last heartbeat was there before it, and its standbys then."""

    async def beat(self, member: str, req: st.StreamsGroupHeartbeatRequest, version: int | None = None) -> object:
        self.known = member in self.static
        self.standbys = self.given.get(member, {}).get("standby", {})
        answer = await super().beat(member, req, 0)
        assert isinstance(answer, tuple)
        return (*answer[:INTERVALS], answer[INTERVALS][:1], *answer[INTERVALS + 1 :])

    async def do_describe(self, member: str) -> object:
        answer = await super().do_describe(member)
        assert isinstance(answer, tuple)
        return (*answer[:ASSIGNOR], None, *answer[ASSIGNOR + 1 :])

    def agrees(self, s: Step, ours: object, theirs: object) -> bool:
        if harmless_difference(s, ours, theirs):
            return True
        if s.verb == "describe" and isinstance(ours, tuple) and isinstance(theirs, tuple):
            epoch = slice(ASSIGNMENT_EPOCH, ASSIGNMENT_EPOCH + 1)
            if harmless_difference(s, ours, (*ours[: epoch.start], *theirs[epoch], *ours[epoch.stop :])):
                theirs = (*theirs[: epoch.start], *ours[epoch], *theirs[epoch.stop :])
        return super().agrees(s, ours, theirs)

    def ends(self, ours: object, theirs: object) -> str:
        if not isinstance(ours, tuple) or not isinstance(theirs, tuple):
            return ""
        why = ""
        if len(ours) == len(theirs) == HEARTBEAT_FIELDS:
            why = self._ends_heartbeats(ours, theirs)
        elif len(ours) == len(theirs) == DESCRIBED_FIELDS and len(self.static) > 1:
            why = STICKY if _without_tasks(ours) == _without_tasks(theirs) else ""
        return why or super().ends(ours, theirs)

    def _ends_heartbeats(self, ours: tuple[Any, ...], theirs: tuple[Any, ...]) -> str:
        if theirs[0] == Code.GROUP_MAX_SIZE_REACHED != ours[0]:
            return FULL if self.known else ""
        if ours[0] != Code.NONE or theirs[0] != Code.NONE:
            return ""
        delayed = any(code == ASSIGNMENT_DELAYED for code, _ in ours[STATUSES])
        if delayed and ours[:EPOCH] + ours[EPOCH + 1 :] == theirs[:EPOCH] + theirs[EPOCH + 1 :]:
            return EMPTIED if theirs[EPOCH] < ours[EPOCH] else ""
        if len(self.static) > 1 and ours[TASKS] != theirs[TASKS] and _of_all_members(ours) == _of_all_members(theirs):
            return STICKY
        if not ours[TASKS] or not theirs[TASKS]:
            return ""
        promoted = [
            (sub, p)
            for sub, ps in ours[TASKS]["active"].items()
            for p in ps
            if p not in theirs[TASKS]["active"].get(sub, ())
        ]
        if any(p in self.standbys.get(sub, ()) for sub, p in promoted) and theirs[EPOCH] < ours[EPOCH]:
            return PROMOTED
        return ""


def _of_all_members(answer: tuple[Any, ...]) -> object:
    return (*answer[:EPOCH], *answer[EPOCH + 1 : TASKS], *answer[TASKS + 1 :])


def _without_tasks(described: tuple[Any, ...]) -> object:
    members = {m: (*told[: TOLD_TASKS.start], *told[TOLD_TASKS.stop :]) for m, told in described[TOLD_MEMBERS].items()}
    return (*described[:TOLD_MEMBERS], members, *described[TOLD_MEMBERS + 1 :])
