"""The brokers' refusals to the sidecar itself: of its credentials (authentication) and of its rights (authorization).

Each cause has one line in the log, at once and then every REPEAT_S while it lasts, and one when it is over. One that
comes back has the next line AGAIN_S after its last: some brokers may refuse it while others do not. /readyz,
`sidecar health` and `sidecar doctor` show the same. A cause is a right at a resource: all managed groups that the
sidecar may not read are one.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sidecar.core.vocabulary.errors import Code, name_of
from sidecar.link.ports import Logger

AUTHENTICATION, AUTHORIZATION = "authentication", "authorization"
REPEAT_S, AGAIN_S = 60.0, 10.0
LASTS_S = 120.0
"""Time after which a refusal that was not repeated counts as over."""
NAMES_MAX = 100
"""Names that are kept of one cause; further ones are only counted."""
DENIED = frozenset(
    (
        Code.TOPIC_AUTHORIZATION_FAILED,
        Code.GROUP_AUTHORIZATION_FAILED,
        Code.CLUSTER_AUTHORIZATION_FAILED,
        Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    )
)
TOPIC, GROUP, TRANSACTIONAL_ID, CLUSTER = "topic", "group", "transactional-id", "cluster"
KIND = {
    Code.TOPIC_AUTHORIZATION_FAILED: TOPIC,
    Code.GROUP_AUTHORIZATION_FAILED: GROUP,
    Code.CLUSTER_AUTHORIZATION_FAILED: CLUSTER,
    Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: TRANSACTIONAL_ID,
}
OPERATION = {
    "Metadata": "Describe",
    "FindCoordinator": "Describe",
    "DescribeGroups": "Describe",
    "DescribeConfigs": "DescribeConfigs",
    "CreateTopics": "Create",
    "InitProducerId": "Write",
    "Produce": "Write",
}
"""Operation of each API, as kafka-acls names it; of all others it is Read."""
RIGHTS = "give it that right (`sidecar acls` prints the commands for all that it needs)"
NOTHING: Mapping[str, str] = {}
Cause = tuple[str, str, str]
Outcome = tuple[str, str, int]


@dataclass(slots=True)
class Denial:
    """One cause of refusals. `at_ms`, `since_ms`: Unix time of the last and of the first refusal."""

    kind: str
    problem: str
    remedy: str
    since_ms: int
    at_ms: int
    times: int = 0
    over: bool = False
    names: set[str] = field(default_factory=set)
    logged: bool = False
    """Whether it is in the log."""
    last_refused_s: float = 0.0

    def shown(self) -> dict[str, object]:
        fields = {"kind": self.kind, "problem": self.problem, "remedy": self.remedy, "over": self.over}
        return {**fields, "since_ms": self.since_ms, "at_ms": self.at_ms, "times": self.times}


class Denials:
    """The refusals by cause. `own`: topics and groups each of which is a cause of its own -> the remedy, where it is
    more than to give a right; `unneeded`: names that the sidecar may not see, and need not."""

    def __init__(self, log: Logger, own: Mapping[str, str] = NOTHING, unneeded: Collection[str] = ()) -> None:
        self.last: Denial | None = None
        self._log = log
        self._own = own
        self._unneeded = frozenset(unneeded)
        self._lasting: dict[Cause, Denial] = {}
        self._logged_s: dict[Cause, float] = {}
        """Cause -> monotonic time of its last line in the log, in seconds."""

    def __bool__(self) -> bool:
        return bool(self._lasting)

    def lasting(self) -> list[Denial]:
        """Returns the refusals that last, authentication first: without it nothing else is known."""
        now_s = time.monotonic()
        for cause in [c for c, d in self._lasting.items() if now_s - d.last_refused_s > LASTS_S]:
            del self._lasting[cause]
        return sorted(self._lasting.values(), key=lambda d: (d.kind != AUTHENTICATION, d.since_ms))

    def count(self, kind: str) -> int:
        return sum(d.kind == kind for d in self.lasting())

    def shown(self) -> dict[str, object]:
        """Returns the fields of /readyz."""
        last = self.last
        return {"denials": [d.shown() for d in self.lasting()], "last_denial": None if last is None else last.shown()}

    # ---- authorization ------------------------------------------------------------------------------------
    def answered(self, api: str, req: Any, res: Any) -> None:
        """Takes in a broker's answer to a request of the sidecar's own."""
        for kind, name, code in outcomes(api, req, res):
            self.outcome(api, kind, name, code)

    def outcome(self, api: str, kind: str, name: str, code: int) -> None:
        """Takes in one error code, or NONE. `kind`, `name`: of the resource."""
        if name in self._unneeded or (code == Code.NONE and not self._lasting):
            return
        operation = OPERATION.get(api, "Read")
        if code in DENIED:
            kind = KIND[Code(code)]
            where = "the cluster" if kind == CLUSTER else f"{kind} {name}"
            problem = f"{api}: {name_of(code)}: the sidecar's user lacks {operation} of {where}"
            remedy = self._own.get(name) or RIGHTS
            self._denied((operation, kind, self._named(name)), AUTHORIZATION, name, problem, remedy)
        elif code == Code.NONE and self._lasting:
            self._allowed((operation, kind, self._named(name)), name)

    def _named(self, name: str) -> str:
        return name if name in self._own else ""

    # ---- authentication -----------------------------------------------------------------------------------
    def refused(self, settings: str, problem: str, remedy: str) -> None:
        """Takes in refused credentials. `settings`: the setting that names their file."""
        self._denied((AUTHENTICATION, settings, ""), AUTHENTICATION, "", problem, remedy)

    def accepted(self, settings: str) -> None:
        if self._lasting:
            self._allowed((AUTHENTICATION, settings, ""), "")

    # ---- both ---------------------------------------------------------------------------------------------
    def _denied(self, cause: Cause, kind: str, name: str, problem: str, remedy: str) -> None:
        now_s, now_ms = time.monotonic(), int(time.time() * 1000)
        denial = self._lasting.get(cause)
        if denial is None:
            denial = self._lasting[cause] = Denial(kind, problem, remedy, now_ms, now_ms)
        if len(denial.names) < NAMES_MAX:
            denial.names.add(name)
        denial.problem, denial.remedy, denial.at_ms, denial.last_refused_s = problem, remedy, now_ms, now_s
        denial.times += 1
        self.last = denial
        if now_s - self._logged_s.get(cause, float("-inf")) >= (REPEAT_S if denial.logged else AGAIN_S):
            self._logged_s[cause], denial.logged = now_s, True
            fields = {"kind": kind, "problem": problem, "remedy": remedy, "times": denial.times}
            self._log.error("the broker refuses the sidecar", **fields)

    def _allowed(self, cause: Cause, name: str) -> None:
        denial = self._lasting.get(cause)
        if denial is None:
            return
        denial.names.discard(name)
        if not denial.names:
            del self._lasting[cause]
            denial.over = True
            lasted_ms = int(time.time() * 1000) - denial.since_ms
            if denial.logged:
                self._log.info("the broker refuses it no more", kind=denial.kind, problem=denial.problem, ms=lasted_ms)


def outcomes(api: str, req: Any, res: Any) -> Iterator[Outcome]:
    """Yields kind, name and error code of each resource in an answer."""
    if api == "Metadata":
        yield from ((TOPIC, t.name, t.error_code) for t in res.topics if req.topics and t.name)
    elif api == "CreateTopics":
        yield from ((TOPIC, t.name, t.error_code) for t in res.topics)
    elif api == "DescribeConfigs":
        yield from ((_of_type(r.resource_type), r.resource_name, r.error_code) for r in res.results)
    elif api == "FindCoordinator":
        kind = TRANSACTIONAL_ID if req.key_type else GROUP
        yield kind, req.key, res.coordinators[0].error_code if res.coordinators else res.error_code
    elif api == "DescribeGroups":
        yield from ((GROUP, g.group_id, g.error_code) for g in res.groups)
    elif api == "OffsetCommit":
        yield from ((TOPIC, t.name, p.error_code) for t in res.topics for p in t.partitions)
    elif api == "InitProducerId":
        yield TRANSACTIONAL_ID, req.transactional_id or "", res.error_code
    elif (group_id := getattr(req, "group_id", None)) is not None:
        yield GROUP, group_id, getattr(res, "error_code", Code.NONE)


def _of_type(resource_type: int) -> str:
    return {2: TOPIC, 4: CLUSTER, 32: GROUP}.get(resource_type, CLUSTER)
