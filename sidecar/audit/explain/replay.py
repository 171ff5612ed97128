"""The records of one group, replayed into the core as its owner does it after a takeover."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from sidecar.audit.explain.model import ExplainError, Removed, Sidecar
from sidecar.audit.history.topic import RecordsRead, Row
from sidecar.core.classic.config import CLASSIC, ClassicConfig
from sidecar.core.kinds import REGISTRY
from sidecar.core.runtime.commands import RENEWED
from sidecar.core.runtime.group_loader import load
from sidecar.core.runtime.records import Record, Role
from sidecar.core.runtime.registry import Registry
from sidecar.core.runtime.shard import Shard
from sidecar.core.runtime.turn import Computed, Now, Ports
from sidecar.core.vocabulary.errors import InvariantError
from sidecar.core.vocabulary.topics import TopicImage
from sidecar.state.codec import OWNER_CLAIM, StateCodec
from sidecar.state.fold import PartitionFold
from sidecar.state.keys import StateKey
from sidecar.state.schema import StateError

INTERVAL_MS = 1
"""Assignment interval of a dry run: all events of one moment come into one target assignment."""
MONO_MS = 1_000_000
REPAIR = "If a newer version has written it, start that version. Else see what `sidecar state repair {}` would remove."


@dataclass
class Replayed:
    """A group as its records have it. `records`: the last value of each key; `last_writes`: (kind, sub id) -> row of
    the last write of that key; `former`: members that are gone, the latest last; `unreadable`: how many records cannot
    be read."""

    group_id: str
    records: list[Record] = field(default_factory=list)
    last_writes: dict[tuple[str, str], Row] = field(default_factory=dict)
    former: dict[str, Removed] = field(default_factory=dict)
    unreadable: int = 0
    clients: dict[str, str] = field(default_factory=dict)
    """Member id -> its latest client id."""
    configs: dict[str, str] = field(default_factory=dict)
    coordinator: Sidecar | None = None
    names: dict[bytes, str] = field(default_factory=dict)
    """Topic id -> name, from the records."""

    def since(self, kind: str, sub_id: str = "") -> int:
        return int(self.last_writes.get((str(kind), sub_id), {"time_ms": 0})["time_ms"])

    def offset(self, kind: str, sub_id: str = "") -> int:
        return int(self.last_writes.get((str(kind), sub_id), {"offset": -1})["offset"])

    @property
    def taken_over_ms(self) -> int:
        return 0 if self.coordinator is None else self.coordinator.since_ms

    def member(self, row: Row) -> None:
        """Adds a member's own record. A member that comes back under its id is not gone."""
        member_id = row["sub_id"]
        self.former.pop(member_id, None)
        if row["body"] is None:
            self.former[member_id] = Removed(member_id, self.clients.get(member_id, ""), row["time_ms"], row["why"])
        else:
            self.clients[member_id] = row["body"].get("client_id", "")

    def why_of(self, registry: Registry, role: Role) -> str:
        """Returns the reason in the last record with this role; "" if there is none."""
        rows = (row for (kind, _), row in self.last_writes.items() if registry.role(kind) is role)
        return str(max(rows, key=lambda row: row["offset"], default={"why": ""})["why"])

    def shard(
        self,
        image: TopicImage,
        assignors: Mapping[str, Any] | None = None,
        more: Callable[[Any], Mapping[str, Any]] = lambda group: {},
    ) -> Shard:
        """Returns a shard that holds the group. `assignors`: of its kind; the one of its last target comes first.
        `more`: returns settings that are known from the group itself. Raises ExplainError if the owner could not build
        the group either."""
        known = dict(assignors or {})

        def config(kind: str, group_id: str) -> Any:
            if kind == CLASSIC:
                return ClassicConfig(initial_rebalance_delay_ms=0)
            group = shard.groups.get(group_id)
            last = getattr(group, "assignor", "")
            names = tuple(dict.fromkeys([last, *known] if last in known else known))
            named = {"assignors": names} if names else {}
            own = {} if group is None else more(group)
            dry = {"assignment_interval_ms": INTERVAL_MS, "assignor_offload_enable": False, "join_wait_ms": 0}
            return replace(REGISTRY.kinds[kind].config(), **{**dry, **named, **own})

        settings: Mapping[Any, Any] = Computed(config)
        shard = Shard(REGISTRY, Ports(dict.fromkeys(REGISTRY.kinds, known), settings), image)
        try:
            load(shard, self.group_id, self.records, Now(MONO_MS, 0))
        except InvariantError as exc:
            raise ExplainError(
                f"The records of {self.group_id} contradict each other, so no sidecar serves it: {exc}.",
                REPAIR.format(self.group_id),
            ) from None
        return shard

    def group(self, shard: Shard) -> Any:
        """Returns the group in the shard. Raises ExplainError if there is none."""
        group = shard.groups.get(self.group_id)
        if group is None:
            what = f"The sidecars have no group {self.group_id}: it is the broker's own, or there is none."
            raise ExplainError(what, "sidecar groups list shows all groups and where they are.")
        return group


@dataclass(frozen=True, slots=True)
class Fault:
    """A record of the group that cannot be read."""

    key: StateKey
    offset: int
    why: str


def replayed(group_id: str, taken: RecordsRead, faults: list[Fault] | None = None) -> Replayed:
    """Returns the group as `taken` has it: the group's records and the claims of its partition. `faults` gets the
    records that cannot be read; without it, the first one raises ExplainError."""
    result = Replayed(group_id)
    fold, codec = PartitionFold(), StateCodec()
    codec.schemas = taken.schemas
    for raw, row in zip(taken.records, taken.rows(), strict=True):
        result.unreadable += "problem" in row
        if raw.key is None:
            continue
        void = fold.owners.void
        fold.apply(raw.offset, raw.key, raw.value, raw.owner_epoch)
        body, before = row["body"], result.coordinator
        if raw.key.kind == OWNER_CLAIM and body is not None:
            renewed = row["why"] == RENEWED
            known = before if renewed and before is not None else Sidecar(-1, "", raw.time_ms, exact=not renewed)
            result.coordinator = replace(known, node_id=body["node_id"], address=body["address"])
        elif fold.owners.void == void and raw.key.group_id == group_id:
            result.last_writes[raw.key.kind, raw.key.sub_id] = row
            if REGISTRY.role(raw.key.kind) is Role.MEMBER and "problem" not in row:
                result.member(row)
    for name, value in fold.configs.get(group_id, {}).items():
        with suppress(StateError):  # sidecars ignore a setting that they cannot read
            result.configs[name] = codec.config_value(value)[0]
    for key, value in fold.groups.get(group_id, {}).items():
        try:
            record = codec.decode(key, value)[0]
        except StateError as exc:
            if faults is not None:
                faults.append(Fault(key, result.offset(key.kind, key.sub_id), str(exc)))
                continue
            raise ExplainError(
                f"The record {key.kind} {key.sub_id} of {group_id} cannot be read, so no sidecar serves the group: "
                f"{exc}.",
                REPAIR.format(group_id),
            ) from None
        result.records.append(record)
        result.names.update(getattr(record, "names", {}))
    return result
