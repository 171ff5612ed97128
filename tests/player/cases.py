"""The cases that are played: a state, an API in one version, and the changes of its correct request."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations, zip_longest
from typing import Any

from tests.player import states
from tests.player.requests import REQUESTS
from tests.player.schema import Messages
from tests.player.side import Answered, Side
from tests.player.states import State
from tests.player.values import Change, changes

Versions = Mapping[str, tuple[int, int]]
"""API -> lowest and highest version that both listeners announce."""
CHECKED = (
    "JoinGroup",
    "SyncGroup",
    "Heartbeat",
    "LeaveGroup",
    "OffsetCommit",
    "TxnOffsetCommit",
    "OffsetFetch",
    "ConsumerGroupHeartbeat",
)
"""APIs of which each pair of faults in one request is a case."""
ALL_GROUPS = frozenset({*CHECKED, "DescribeGroups", "ConsumerGroupDescribe", "DeleteGroups", "OffsetDelete"})
PRODUCERS = frozenset({"InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn", "DescribeTransactions"})
NOT_SENT = frozenset(
    {
        "ControlledShutdown",  # the broker would stop, or leave its cluster
        "UnregisterBroker",
        "UpdateFeatures",
        "SaslHandshake",  # tests/security
        "SaslAuthenticate",
        "DeleteTopics",  # the topics of the cases
        "AlterClientQuotas",
        "DescribeLogDirs",  # the disk, which others use, too
        "LeaderAndIsr",
        "StopReplica",
        "UpdateMetadata",
        "AddRaftVoter",
        "RemoveRaftVoter",
        "Fetch",  # waits
        "Produce",
    }
)


LASTING = frozenset({str(2**31 - 1)})


@dataclass(frozen=True)
class Case:
    api: str
    version: int
    state: states.Make
    changes: tuple[Change, ...] = ()

    def __str__(self) -> str:
        said = ", ".join(map(str, self.changes)) or "correct"
        return f"{self.api} v{self.version} in {self.state.__name__}: {said}"

    @property
    def id(self) -> str:
        return f"{zlib.crc32(str(self).encode()):08x}"

    def play(self, side: Side, ids: Mapping[str, Any], newest: Mapping[str, int], run: str) -> list[Answered]:
        side.tidy()
        side.begin(f"{run}-{self.id}")
        s = State(side, ids, states.REBALANCE_MS if self.api == "JoinGroup" else states.SESSION_MS)
        self.state(s)
        make = REQUESTS.get(self.api)
        body = make(s) if make is not None else {}
        for change in self.changes:
            change.apply(s, body)
        side.ask(self.api, self.version, body)
        if make is not None:
            states.looks(s, newest)
        return side.received


def of_states(api: str, modern: bool) -> tuple[states.Make, ...]:
    """The states in which an API is asked."""
    if api == "TxnOffsetCommit":
        made = (states.producer, *states.TRANSACTIONS)
    elif api in PRODUCERS:
        made = (states.no_group, states.producer, states.transaction)
    elif api in ALL_GROUPS:
        made = (*states.CLASSIC, *states.MODERN)
    elif api in ("ShareGroupHeartbeat", "StreamsGroupHeartbeat"):
        made = (states.no_group, states.offsets, states.classic, states.consumer)
    elif api == "ListGroups":
        made = (states.classic, states.consumer)
    else:
        made = (states.no_group,)
    return tuple(m for m in made if modern or m not in states.NEED_MODERN)


def _odd(messages: Messages, api: str, version: int) -> Iterator[Change]:
    for change in changes(messages[f"{api}Request"].fields, version):
        if api == "JoinGroup" and change.path == ("rebalanceTimeoutMs",) and change.name not in LASTING:
            continue  # the member would be removed at once, before the looks or after
        yield change


def singles(messages: Messages, versions: Versions) -> Iterator[Case]:
    """Every API in every version and every state: the correct request, and each odd value of each field alone."""
    modern = "ConsumerGroupHeartbeat" in versions
    for api, (low, high) in versions.items():
        if api in NOT_SENT:
            continue
        for version in range(low, high + 1):
            odd = list(_odd(messages, api, version))
            if api not in REQUESTS:
                odd = [c for c in odd if len(c.path) == 1]
            for state in of_states(api, modern):
                yield Case(api, version, state)
                yield from (Case(api, version, state, (change,)) for change in odd)


def pairs(messages: Messages, versions: Versions) -> Iterator[Case]:
    """Two faults in one request of the newest version: which one is answered?"""
    modern = "ConsumerGroupHeartbeat" in versions
    for api in CHECKED:
        if api not in versions:
            continue
        version = versions[api][1]
        odd = list(_odd(messages, api, version))
        for state in of_states(api, modern):
            for a, b in combinations(odd, 2):
                if a.path != b.path and b.path[: len(a.path)] != a.path:
                    yield Case(api, version, state, (a, b))


def sample(cases: list[Case], seed: int, count: int) -> list[Case]:
    """As many of each API, state and number of odd values, so that those with few cases are played, too."""
    choice = random.Random(seed)
    kinds: dict[tuple[str, str, int], list[Case]] = {}
    for case in cases:
        kinds.setdefault((case.api, case.state.__name__, len(case.changes)), []).append(case)
    for kind in kinds.values():
        choice.shuffle(kind)
    rounds = zip_longest(*kinds.values())
    return [case for row in rounds for case in row if case is not None][:count]
