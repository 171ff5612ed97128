"""The odd values of a field, by its type and by its name, and the change of a request that has one of them."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.player.schema import NUMBERS, Field
from tests.player.states import TOPICS, State

Path = tuple[str | int, ...]
Make = Callable[[State, Any], Any]
"""Gives the odd value, from the state and the correct value."""
ELSE = uuid.UUID(int=0x1234_5678_9ABC_4DEF_8000_0000_0000_0001)
ODD = "a \u00fc\u0000\n%s"
LONG = 300

BITS: Mapping[str, tuple[int, int]] = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "uint16": (0, 2**16 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "uint32": (0, 2**32 - 1),
    "int64": (-(2**63), 2**63 - 1),
}
IDS = frozenset({"groupId", "groupIds", "groups", "groupsNames", "key", "coordinatorKeys", "resourceName"})
"""Fields with the name of a group: the odd one stays a name of the sidecar's."""
MINE: Mapping[str, Mapping[str, Make]] = {
    name: {
        "unknown": lambda s, v: f"{s.group}-unknown",
        "other": lambda s, v: s.side.other,
        "other, unknown": lambda s, v: f"{s.side.other}-unknown",
    }
    for name in IDS
}


def _always(*values: Any) -> dict[str, Make]:
    return {repr(value): lambda s, v, value=value: value for value in values}  # type: ignore[misc]


NAMED: Mapping[str, Mapping[str, Make]] = {
    **MINE,
    "memberId": _always("unknown") | {"the other one": lambda s, v: s.modern or "modern"},
    "groupInstanceId": _always("unknown") | {"its own": lambda s, v: f"{s.group}-i"},
    "instanceId": _always("unknown") | {"its own": lambda s, v: f"{s.group}-i"},
    "generationId": {"next": lambda s, v: v + 1, "former": lambda s, v: v - 1},
    "memberEpoch": {"next": lambda s, v: v + 1, "former": lambda s, v: v - 1},
    "generationIdOrMemberEpoch": {"next": lambda s, v: v + 1, "former": lambda s, v: v - 1},
    "protocolType": _always("connect", "consumer"),
    "protocolName": _always("roundrobin"),
    "serverAssignor": _always("uniform", "range", "unknown"),
    "subscribedTopicRegex": _always("player-.*", "(", "*", "no-such-.*"),
    "topicId": {"the other topic": lambda s, v: s.ids[TOPICS[1]]},
    "producerId": {"next": lambda s, v: v + 1},
    "producerEpoch": {"next": lambda s, v: v + 1},
    "transactionalId": {"unknown": lambda s, v: f"{s.transaction}-unknown"},
    "v3AndBelowTransactionalId": {"unknown": lambda s, v: f"{s.transaction}-unknown"},
    "transactionalIdPattern": _always(".*", "("),
    "sessionTimeoutMs": _always(5_999, 6_000, 1_800_001),
    "keyType": _always(2),
    "resourceType": _always(2, 4, 16, 99),
    "configOperation": _always(2, 3),
    "clientSoftwareName": _always("-", "a b"),
    "metadata": {"version 99": lambda s, v: b"\x00\x63" + v[2:], "cut": lambda s, v: v[:-5]},
    "assignment": {"cut": lambda s, v: v[:-5]},
    "partitionIndex": _always(3),
    "name": _always(TOPICS[1], "no-such-topic", "roundrobin", "no.such", "consumer.heartbeat.interval.ms"),
    "value": _always("x", "0", "6000"),
    "committedMetadata": _always("m" * 5_000),
}


def _several(s: State) -> list[str]:
    """Names of groups as `states.several` makes them, one of them twice, and some that are not there."""
    mine, others = s.group, s.side.other
    return [others, f"{mine}-2", mine, f"{others}-2", "", f"{mine}-no", f"{others}-no", mine]


def _named(s: State, value: Any, names: list[str]) -> Any:
    if not value:
        return value
    if not isinstance(value[0], dict):
        return names
    key = next((k for k in ("groupId", "resourceName") if k in value[0]), None)
    return value if key is None else [{**value[0], key: name} for name in names]


SEVERAL: Mapping[str, Make] = {
    "several": lambda s, v: _named(s, v, _several(s)),
    "several, backwards": lambda s, v: _named(s, v, _several(s)[::-1]),
}
LISTED: Mapping[str, Mapping[str, Make]] = {
    **dict.fromkeys(("groups", "groupIds", "groupsNames", "coordinatorKeys", "resources"), SEVERAL),
    "subscribedTopicNames": {
        "both": lambda s, v: list(TOPICS),
        "no such": lambda s, v: ["no-such-topic"],
        "odd names": lambda s, v: ["", "a b", ".", "x" * LONG],
    },
    "resourceTypes": {"all": lambda s, v: [2, 4, 8, 16, 32]},
    "configurationKeys": _always(["consumer.session.timeout.ms"], ["no.such"]),
    "statesFilter": _always(["stable"], ["PreparingRebalance"], ["Dead"], ["no such"]),
    "typesFilter": _always(["classic"], ["CONSUMER"], ["no such"]),
    "partitionIndexes": _always([99], [0, 0, 1], [-1]),
}


def values(f: Field, kind: str) -> dict[str, Make]:
    found: dict[str, Make] = {}
    if kind.startswith("[]"):
        found |= {"null": lambda s, v: None, "empty": lambda s, v: []}
        found["twice"] = lambda s, v: [e for e in v for _ in (0, 1)] if v else v
        if f.fields:
            found["with defaults"] = lambda s, v: [{}]
        elif kind == "[]string":
            found["of nothing"] = lambda s, v: [*(v or ()), ""]
    elif kind == "string":
        found |= {"null": lambda s, v: None, "empty": lambda s, v: ""}
        mine = f.name in IDS or f.name.lower().endswith("transactionalid")
        found["odd"] = (lambda s, v: f"{v}{ODD}") if mine else lambda s, v: ODD
        found["long"] = (lambda s, v: f"{v}{'x' * LONG}") if mine else lambda s, v: "x" * LONG
    elif kind in ("bytes", "records"):
        found |= {"null": lambda s, v: None, **_always(b"", b"\xff", b"garbage of some length")}
    elif kind == "uuid":
        found |= _always(uuid.UUID(int=0), uuid.UUID(int=1), ELSE)
    elif kind == "bool":
        found["not"] = lambda s, v: not v
    elif kind in BITS:
        found |= _always(*(n for n in (0, 1, -1, -2) if BITS[kind][0] <= n), *BITS[kind])
    elif kind not in NUMBERS:
        found |= {"null": lambda s, v: None, "defaults": lambda s, v: {}}
    named = LISTED if kind.startswith("[]") else NAMED
    return found | dict(named.get(f.name, {}))


@dataclass(frozen=True)
class Change:
    path: Path
    name: str
    make: Make

    def __str__(self) -> str:
        return f"{'.'.join(map(str, self.path))}: {self.name}"

    def apply(self, s: State, body: dict[str, Any]) -> None:
        """Changes the field; does nothing if the body does not have it."""
        at: Any = body
        for step in self.path[:-1]:
            if isinstance(step, int):
                if not isinstance(at, list) or step >= len(at):
                    return
            elif not isinstance(at, dict) or step not in at:
                return
            at = at[step]
        last = self.path[-1]
        if isinstance(last, int):
            if isinstance(at, list) and last < len(at):
                at[last] = self.make(s, at[last])
        elif isinstance(at, dict):
            at[last] = self.make(s, at.get(last))


@dataclass(frozen=True)
class Filled(Change):
    """A change of a field whose correct value is the default of the JSON."""

    default: Any = None

    def apply(self, s: State, body: dict[str, Any]) -> None:
        if len(self.path) == 1:
            body.setdefault(str(self.path[0]), self.default)
        super().apply(s, body)


def changes(fields: tuple[Field, ...], version: int, above: Path = ()) -> Iterator[Change]:
    """Each odd value of each field that this version has, down to the first element of each list."""
    for f in fields:
        if version not in f.versions:
            continue
        path = (*above, f.name)
        for name, make in values(f, f.type).items():
            yield Filled(path, name, make, f.without_value())
        if f.type.startswith("[]"):
            if f.fields:
                yield from changes(f.fields, version, (*path, 0))
            else:
                for name, make in values(f, f.type[2:]).items():
                    yield Change((*path, 0), name, make)
        elif f.fields:
            yield from changes(f.fields, version, path)
