"""One group built from the last values of its keys, for people: a little at a time. A value that cannot be read is
reported and hides no other. (Its owner serves a group as a whole or not at all: core/runtime/group_loader.py.)"""

from __future__ import annotations

from collections.abc import Collection, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

from sidecar.core.runtime.inspect import Inspect
from sidecar.core.runtime.records import Role
from sidecar.core.runtime.registry import Group
from sidecar.core.vocabulary.errors import InvariantError
from sidecar.state.codec import StateCodec
from sidecar.state.keys import StateKey
from sidecar.state.schema import StateError

LOOKED_AT = 16
"""Records that are replayed before others have their turn."""
NO_TARGETS = frozenset((Role.TARGET,))
"""Roles to leave out where kind, state, epoch and the number of members are enough."""


@dataclass(slots=True)
class Rebuilt:
    """A group and its problems. `group` None: no value of it can be read. `names`: topic id -> name, as in the records;
    `changed_ms`, `why`: of the group's own record, or of the first one where there is none yet; `problems`: a text for
    each value that cannot be used."""

    kind: str = ""
    group: Group | None = None
    inspect: Inspect | None = None
    names: dict[bytes, str] = field(default_factory=dict)
    changed_ms: int = 0
    why: str = ""
    problems: list[str] = field(default_factory=list)

    @property
    def state(self) -> str:
        return "" if self.group is None else self.group.state_name()

    @property
    def members(self) -> int:
        return 0 if self.group is None else self.group.member_count()

    def facts(self) -> dict[str, Any]:
        """Returns the kind's facts about the group. `epoch` is its epoch or generation, None if it is not known."""
        return {"epoch": None} if self.group is None or self.inspect is None else self.inspect.facts(self.group)


def rebuilt(
    codec: StateCodec, values: Sequence[tuple[StateKey, bytes]], without: Collection[Role] = ()
) -> Generator[None, None, Rebuilt]:
    """Builds a group, and yields so that others have their turn. `values`: all of the group's; `without`: roles whose
    records are left out."""
    result, registry = Rebuilt(), codec.registry
    ordered: dict[int, list[tuple[StateKey, bytes]]] = {}
    for i, item in enumerate(values):
        if i % 256 == 255:
            yield
        key, row = item[0], registry.records.get(item[0].kind)
        if row is None:
            result.problems.append(f"{key.kind} {key.sub_id}: a newer version may have written it")
            continue
        if row.record.root or not result.kind:
            result.kind, result.inspect = row.kind.name, row.kind.inspect
        if row.record.role not in without:
            ordered.setdefault(row.order, []).append(item)
    looked = 0
    for order in sorted(ordered):
        for key, value in ordered[order]:
            if looked % LOOKED_AT == LOOKED_AT - 1:
                yield
            looked += 1
            _replay(codec, key, value, result)
    return result


def _replay(codec: StateCodec, key: StateKey, value: bytes, result: Rebuilt) -> None:
    if codec.registry.records[key.kind].kind.name != result.kind:
        result.problems.append(f"{key.kind} {key.sub_id}: left over from when it was a group of another kind")
        return
    try:
        record, body = codec.decode_with_body(key, value)
        if not result.changed_ms or codec.registry.role(key.kind) is Role.GROUP:
            result.changed_ms, result.why = round(body["time_ms"].timestamp() * 1000), record.why
        result.group = codec.registry.replayed(record, result.group)
    except (StateError, InvariantError) as exc:
        result.problems.append(f"{key.kind} {key.sub_id}: {exc}")
        return
    if (names := getattr(record, "names", None)) is not None:
        result.names.update(names)


def at_once(work: Generator[None, None, Rebuilt]) -> Rebuilt:
    """Returns the group without turns for others, where there is no loop to serve."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: Rebuilt = end.value
            return result
