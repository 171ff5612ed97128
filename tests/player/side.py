"""One of the two listeners in one case: it sends requests and writes down the answers.

What must differ between the two is replaced by a name, by these rules and no others:

- a group, transactional or instance id has the same length at both and another beginning (PREFIXES);
- a member id that the coordinator made, by the order in which the ids came;
- a producer id, a time at which something began, the bytes of a disk (CHANGING);
- the order of members, and of the topics of one, which is that of a hash table (UNORDERED);
- whether a transaction that is not there makes a commit INVALID_TXN_STATE or TRANSACTION_ABORTABLE, which depends on
  what else a broker is verifying (WITHOUT_TRANSACTION);
- whether the group without a name, which is one for all cases, could be deleted;
- the partition of a group in __consumer_offsets;
- a port of the cluster;
- what a list has beside the names of this case (KEPT).
"""

from __future__ import annotations

import time
import uuid
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from tests.player.line import Line, NoAnswer
from tests.player.schema import Messages

Answered = tuple[str, int, Any]
"""API, version, and the answer, or why there is none."""
PREFIXES: Mapping[str, tuple[str, str]] = {"sidecar": ("managed-", "other-s-"), "broker": ("managecL", "other-rL")}
"""Prefixes of ids that the sidecar manages, and of ids that it does not. At the broker's listener both are Kafka's.

The prefixes of the two sides have the same hash in Java. So two groups are in one partition of __consumer_offsets at
both sides or at neither: a transaction that covers one of them also covers the other one.
"""
CLOSED, SILENT = "closes the connection", "does not answer"
NO_TRANSACTION = "<no transaction>"
OF_GROUPS: Mapping[str, tuple[str, str]] = {
    "DescribeGroups": ("groups", "groups"),
    "ConsumerGroupDescribe": ("groupIds", "groups"),
    "DeleteGroups": ("groupsNames", "results"),
}
"""API -> field with the names in the request, and with the groups in the answer. What was asked is kept, too."""
ASKED = "<asked>"
KEPT: Mapping[str, tuple[str, str]] = {
    "ListGroups": ("groups", "groupId"),
    "ListTransactions": ("transactionStates", "transactionalId"),
    "ListConfigResources": ("configResources", "resourceName"),
}
MEMBERS = frozenset({"memberId", "leader"})
UNORDERED = frozenset({"members", "topicPartitions", "subscribedTopicNames"})
CHANGING = frozenset(
    {"producerId", "transactionStartTimeMs", "usableBytes", "totalBytes", "partitionSize", "finalizedFeaturesEpoch"}
)
KEPT_S = 60
"""Longer than a session, so that a group has no members any more."""
DELETED = 10
"""Groups in one request."""
DELETE_GROUPS = 2
"""A version that every Kafka has."""
OFFSETS_TOPIC = "__consumer_offsets"
WITHOUT_TRANSACTION = frozenset({48, 120})


class Side:
    """All cases of one worker at one listener."""

    def __init__(self, name: str, port: int, messages: Messages, ports: frozenset[int], limit_s: float) -> None:
        self.name, self.messages = name, messages
        self._port, self._ports, self._limit_s = port, ports, limit_s
        self._line: Line | None = None
        self._api = ""
        self._old: deque[tuple[float, str]] = deque()
        """Groups of ended cases that are still there, and since when."""
        self._foreign = next(ids for side, ids in PREFIXES.items() if side != name)
        self.begin("")

    def begin(self, case: str) -> None:
        mine, others = PREFIXES[self.name]
        self.group, self.other, self.case = f"{mine}{case}", f"{others}{case}", case
        self.received: list[Answered] = []
        self._sent: set[str] = set()
        self._made: dict[str, str] = {}

    def tidy(self) -> None:
        """Deletes groups of old cases: each case lists all groups, and would take the longer the more there are."""
        while len(self._old) >= DELETED and self._old[DELETED - 1][0] < time.monotonic() - KEPT_S:
            names = [self._old.popleft()[1] for _ in range(DELETED)]
            with suppress(NoAnswer, ConnectionError):
                self._connected().ask("DeleteGroups", DELETE_GROUPS, {"groupsNames": names})

    def _connected(self) -> Line:
        if self._line is None:
            self._line = Line(self._port, self.messages, self._limit_s)
        return self._line

    def close(self) -> None:
        if self._line is not None:
            self._line.close()
            self._line = None

    def ask(self, api: str, version: int, body: Mapping[str, Any], raw: bytes | None = None) -> dict[str, Any]:
        """The answer, which is written down; nothing if there is none."""
        self._remember(body)
        data = self.messages[f"{api}Request"].encode(body, version) if raw is None else raw
        line = self._connected()
        try:
            line.send(api, version, data)
            answer = line.receive(api, version)
        except NoAnswer:
            return self._none(api, version, SILENT)
        except ConnectionError:
            return self._none(api, version, CLOSED)
        self.received.append((api, version, self._comparable(api, body, answer)))
        return answer

    def _none(self, api: str, version: int, why: str) -> dict[str, Any]:
        self.close()
        self.received.append((api, version, why))
        return {}

    def _remember(self, value: Any) -> None:
        """Keeps ids that the coordinator made, but not those that the client sent."""
        if isinstance(value, Mapping):
            for name, v in value.items():
                if name in MEMBERS and isinstance(v, str):
                    self._sent.add(v)
                self._remember(v)
        elif isinstance(value, list):
            for v in value:
                self._remember(v)

    def _comparable(self, api: str, body: Mapping[str, Any], answer: dict[str, Any]) -> Any:
        if api in KEPT:
            name, key = KEPT[api]
            kept = [e for e in answer.get(name) or () if self.case in e[key] and not e[key].startswith(self._foreign)]
            if api == "ListGroups":
                self._old += ((time.monotonic(), e[key]) for e in kept)
            answer = {**answer, name: sorted(kept, key=lambda e: str(self._plain("", e[key])))}
        if api in OF_GROUPS:
            asked, name = OF_GROUPS[api]
            told = [g for g in answer[name] if api != "DeleteGroups" or g["groupId"]]
            answer = {**answer, name: told, ASKED: body[asked]}
        self._learn("", answer)
        self._api = api
        return self._plain("", answer)

    def _learn(self, name: str, value: Any) -> None:
        """The member ids that the coordinator made."""
        if isinstance(value, Mapping):
            for k, v in value.items():
                self._learn(k, v)
        elif isinstance(value, list):
            for v in value:
                self._learn(name, v)
        elif name in MEMBERS and value and value not in self._sent:
            self._made.setdefault(value, f"<member {len(self._made) + 1}>")

    def _plain(self, name: str, value: Any) -> Any:
        if isinstance(value, Mapping):
            if value.get("topic") == OFFSETS_TOPIC:
                return {**value, "partitions": "<that of the group>"}
            return {k: self._plain(k, v) for k, v in value.items()}
        if isinstance(value, list):
            plain = [self._plain(name, v) for v in value]
            return sorted(plain, key=str) if name in UNORDERED else plain
        if isinstance(value, str):
            return self._renamed(value)
        if isinstance(value, bytes):
            return value.hex()
        if isinstance(value, uuid.UUID):
            return str(value)
        if name == "errorCode" and value in WITHOUT_TRANSACTION and self._api == "TxnOffsetCommit":
            return NO_TRANSACTION
        if name in CHANGING and value >= 0:
            return f"<{name}>"
        if name == "port" and value in self._ports:
            return "<port>"
        return value

    def _renamed(self, value: str) -> str:
        mine, others = PREFIXES[self.name]
        for made, name in (*self._made.items(), (mine, "<mine>"), (others, "<others>")):
            value = value.replace(made, name)
        return value
