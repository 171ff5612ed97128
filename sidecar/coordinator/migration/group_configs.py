"""The settings in force. Layers, the first that has a value wins: the group's own (state topic, then what the broker
kept for it before it was managed), what was set at the broker, the sidecar's own configuration, Kafka's default.

The broker is asked again and again, and at once when a change passed through this sidecar. What brokers do not know
(offload) is kept in the state topic, too, with an empty group id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any

from sidecar.coordinator.clock import now
from sidecar.coordinator.migration.managed_groups import Rules
from sidecar.coordinator.statelog.read_index import Written
from sidecar.coordinator.statelog.tail import StateLog
from sidecar.coordinator.statelog.write_errors import WriteLost
from sidecar.core.classic.config import CLASSIC, ClassicConfig
from sidecar.core.consumer.config import CONSUMER
from sidecar.core.kinds import REGISTRY
from sidecar.core.runtime.events import Answer, Event
from sidecar.core.vocabulary import group_config as cf
from sidecar.core.vocabulary.cache import BoundedCache
from sidecar.core.vocabulary.errors import TEXT, Code, CoordinatorError, name_of
from sidecar.core.vocabulary.placement import partition_for
from sidecar.kafka.cluster import Cluster
from sidecar.kafka.net import BrokerConnection
from sidecar.link.messages import (
    AlterReply,
    AlterSettings,
    ConfiguredGroups,
    ConfiguredReply,
    DescribeSettings,
    SettingChange,
    SettingsReply,
    SettingValue,
    WhoseGroup,
)
from sidecar.link.ports import Logger
from sidecar.state.codec import Encoded, StateCodec
from sidecar.state.schema import StateError
from sidecar.wire.generated import describe_configs as dc
from sidecar.wire.generated import list_config_resources as lr
from sidecar.wire.primitives import WireError

CONFIGS_BYTES, CONFIG_BYTES = 8 << 20, 300
"""Of the settings in force of groups: all together, and of one group."""
KNOWN_WITHIN_S = 5.0
"""So long a request for settings waits until the broker has told its own."""
KAFKA_CLASSES = {
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor": "uniform",
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor": "range",
    "org.apache.kafka.coordinator.group.assignor.SimpleAssignor": "simple",
}
AUTHORIZER = "authorizer.class.name"
POLICY = "group.consumer.migration.policy"
RETENTION_CHECK = "offsets.retention.check.interval.ms"
RETENTION_CHECK_MS = 600_000
"""Kafka's default."""
ID_EXPIRATION = "transactional.id.expiration.ms"
ID_EXPIRATION_MS = 604_800_000
"""Kafka's default: so long the brokers remember a transactional id that is not used, and with it a fence."""
IDLE = "connections.max.idle.ms"
IDLE_MS = 600_000
"""Kafka's default: after so long the broker ends an idle connection."""


def _fields(kind: str) -> dict[str, str]:
    """Kafka's names of the settings of this kind that brokers have -> fields."""
    rows = cf.KINDS[kind]
    ranged = [m + s.field for s in rows.rows if s.ranged for m in ("", "min_", "max_")]
    fields = (*ranged, *rows.brokers, *(s.field for s in rows.rows if not s.ranged))
    return {f"group.{kind}.{field.replace('_', '.')}": field for field in fields}


FIELDS = {kind: _fields(kind) for kind in cf.KINDS}
BROKER_NAMES = [name for fields in FIELDS.values() for name in fields]
CLASSIC_FIELDS = {
    "group.min.session.timeout.ms": "min_session_timeout_ms",
    "group.max.session.timeout.ms": "max_session_timeout_ms",
    "group.initial.rebalance.delay.ms": "initial_rebalance_delay_ms",
    "group.max.size": "max_size",
}
"""Kafka's names of the settings of classic groups, none of which a single group can have."""
Append = Callable[[int, list[Encoded]], Awaitable[None]]
"""Appends records to a partition without a fence. Raises WriteLost."""


@dataclass(frozen=True)
class OwnKind:
    """The sidecar's own configuration of one kind of groups: `values` by field, `given`: what was set on purpose,
    `defaults`: Kafka's."""

    values: Mapping[str, Any]
    given: frozenset[str] = frozenset()
    defaults: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class OwnSettings:
    """The sidecar's own configuration. `kinds`: of those in the table of group_config.py that it serves."""

    node_id: int
    kinds: Mapping[str, OwnKind]
    classic: OwnKind = OwnKind({})


def group_configs(makers: Mapping[str, Callable[[str], Any]]) -> BoundedCache[tuple[str, str], Any]:
    """The settings that groups work with, by kind and id: made when they are first asked for, forgotten when a setting
    changes. Kinds without settings of their own here have their defaults."""

    def make(key: tuple[str, str]) -> Any:
        kind, group_id = key
        own = makers.get(kind)
        return REGISTRY.kinds[kind].config() if own is None else own(group_id)

    return BoundedCache(CONFIGS_BYTES, make, weigh=lambda config: CONFIG_BYTES)


class Configs:
    def __init__(
        self, own: OwnSettings, codec: StateCodec, state: StateLog, written: Written, rules: Rules, log: Logger
    ) -> None:
        self.authorizer = True
        """Whether the broker has one. True until it says no."""
        self.wanted = asyncio.Event()
        """Somebody wants the broker to be asked at once."""
        self._own = own
        self._consumer = own.kinds[CONSUMER]
        self._codec = codec
        self._state = state
        self._written = written
        self.managed = rules.managed
        self._rules = rules
        self._log = log
        self._known = asyncio.Event()
        self._broker: dict[str, tuple[str, int]] = {}
        self._levels: dict[str, tuple[tuple[str, int], ...]] = {}
        """All values that were set at the broker, the one in force first."""
        self._broker_groups: dict[str, dict[str, str]] = {}
        self._effective: dict[str, int | bool] | None = None
        self._common: dict[str, dict[str, Any]] = {}
        """By kind: what all of its groups have, unless they have something of their own."""
        self._rows = {kind: rows for kind, rows in cf.KINDS.items() if kind in own.kinds}
        """Settings of the kinds that this sidecar serves; the others are the broker's."""
        self._names = [s.name for rows in self._rows.values() for s in rows.rows]
        makers: dict[str, Callable[[str], Any]] = {kind: partial(self._make, kind) for kind in self._rows}
        self.groups = group_configs({**makers, CLASSIC: self._make_classic})
        self._refused = ""
        self._refused_groups: dict[str, int] = {}

    def poll(self) -> None:
        self.wanted.set()

    def assignor_timeout_s(self, kind: str) -> float:
        own = self._own.kinds.get(kind)
        if own is None:  # its settings are the defaults, as in group_configs
            return float(REGISTRY.kinds[kind].config().assignor_timeout_ms) / 1000
        return float(own.values["assignor_timeout_ms"]) / 1000

    @property
    def regex_time_s(self) -> float:
        return float(self._consumer.values["regex_time_ms"]) / 1000

    @property
    def retention_check_ms(self) -> int:
        """How often the broker looks for offsets that have expired, and so for groups that have none left."""
        return int(self._broker.get(RETENTION_CHECK, (str(RETENTION_CHECK_MS), cf.DEFAULT))[0])

    @property
    def fences_kept_ms(self) -> int:
        """How long the brokers remember a fence that is not renewed."""
        return int(self._broker.get(ID_EXPIRATION, (str(ID_EXPIRATION_MS), cf.DEFAULT))[0])

    @property
    def idle_ms(self) -> int:
        """After which time the broker ends an idle connection."""
        return int(self._broker.get(IDLE, (str(IDLE_MS), cf.DEFAULT))[0])

    # ---- what is in force -----------------------------------------------------------------------------------
    def _make(self, kind: str, group_id: str) -> Any:
        effective = self.effective()
        try:
            values = cf.level(kind, self.own(group_id), effective)
        except CoordinatorError as exc:
            self._log.error("a group's settings are void", group_id=group_id, error=exc.message)
            values = cf.level(kind, {}, effective)
        return REGISTRY.kinds[kind].config(**{**self._of_kind(kind), **values})

    def _of_kind(self, kind: str) -> dict[str, Any]:
        found = self._common.get(kind)
        if found is None:
            own, effective = self._own.kinds[kind].values, self.effective()
            known = {f.name for f in fields(REGISTRY.kinds[kind].config())}
            found = {f: own[f] for f in known & own.keys()}
            found |= {f: effective[name] for name, f in FIELDS[kind].items() if f in known and f not in cf.LISTS}
            found["assignors"] = self._assignors(kind)
            for name, f in FIELDS[kind].items():
                text, source = self._broker.get(name, ("", cf.DEFAULT))
                if f in cf.LISTS and f != "assignors" and source != cf.DEFAULT:
                    found[f] = tuple(filter(None, (part.strip() for part in text.split(","))))
            if kind == CONSUMER:
                found["migration_policy"] = self._policy()
            self._common[kind] = found
        return found

    def _policy(self) -> str:
        text, source = self._broker.get(POLICY, ("", cf.DEFAULT))
        if not text or (source == cf.DEFAULT and "migration_policy" in self._consumer.given):
            return str(self._consumer.values["migration_policy"])
        return text.lower()

    def _make_classic(self, group_id: str) -> ClassicConfig:
        values = dict(self._own.classic.values)
        for name, own in CLASSIC_FIELDS.items():
            text, source = self._broker.get(name, (None, cf.DEFAULT))
            if text is not None and not (source == cf.DEFAULT and own in self._own.classic.given):
                values[own] = int(text)
        return ClassicConfig(**values)

    def effective(self) -> dict[str, int | bool]:
        """Broker level, by broker names."""
        if self._effective is None:
            found: dict[str, int | bool] = {}
            for kind in self._rows:
                for name, own in FIELDS[kind].items():
                    if own not in cf.LISTS:
                        text = self._chosen(name, self._own.kinds[kind], own)
                        found[name] = text == "true" if name in cf.BROKER_OFFLOADS else int(text)
            self._effective = found
        return self._effective

    def _chosen(self, name: str, own: OwnKind, field: str) -> str:
        text, source = self.broker_value(name)
        if text is None or (source == cf.DEFAULT and field in own.given):
            return cf.text(own.values[field])
        return text

    def broker_value(self, name: str) -> tuple[str | None, int]:
        """As set at the broker, or through a sidecar for it; its source."""
        for resource, source in ((str(self._own.node_id), cf.DYNAMIC_BROKER), ("", cf.DYNAMIC_DEFAULT)):
            text = self._stored("").get(f"{resource}/{name}")
            if text is not None:
                return text, source
        value = self._broker.get(name)
        return (None, cf.DEFAULT) if value is None else value

    def _assignors(self, kind: str) -> tuple[str, ...]:
        own = self._own.kinds[kind]
        here: tuple[str, ...] = own.values["assignors"]
        text, source = self._broker.get(f"group.{kind}.assignors", ("", cf.DEFAULT))
        if source == cf.DEFAULT or "assignors" in own.given:
            return here
        names = [KAFKA_CLASSES.get(n.strip(), n.strip()) for n in text.split(",")]
        return tuple(n for n in names if n in here) or here

    def own(self, group_id: str) -> dict[str, str]:
        """What is set for this group."""
        theirs = self._broker_groups.get(group_id, {})
        return {**theirs, **{n: v for n, v in self._stored(group_id).items() if n in self._names}}

    def _moves(self, group_id: str) -> dict[str, str]:
        """What only sidecars know: whose the group is."""
        names = cf.GROUP_MOVES if group_id else cf.BROKER_MOVES
        stored = self._stored(group_id)
        found = {n: stored.get(n if group_id else f"/{n}") for n in names}
        told = {n: v for n, v in found.items() if v is not None}
        if group_id:
            told[cf.STATE] = self._rules.whereabouts(group_id)
            told[cf.WHY] = self._rules.why(group_id)
            if (word := self._rules.overrides.get(group_id)) is not None:
                told[cf.MANAGED] = word
            told[cf.EPOCH] = str(self._state.last_assignment(group_id))
        return told

    def configured(self) -> list[str]:
        """Managed groups that have settings of their own in the state topic."""
        return sorted(g for p in self._state.partitions for g in p.configs if g and self.managed(g))

    def _partition_of(self, group_id: str) -> int:
        """Settings of brokers are in partition 0."""
        return partition_for(group_id, len(self._state.partitions)) if group_id else 0

    def _stored(self, group_id: str) -> dict[str, str]:
        found = {}
        for name, raw in self._state.partitions[self._partition_of(group_id)].configs.get(group_id, {}).items():
            try:
                found[name] = self._codec.config_value(raw)[0]
            except StateError as exc:
                self._log.error("setting skipped", group_id=group_id, name=name, error=str(exc))
        return found

    def changed(self, group_id: str = "") -> None:
        """In the state topic; "" stands for broker level."""
        if group_id:
            for kind in cf.KINDS:
                self.groups.forget((kind, group_id))
        else:
            self._effective = None
            self._common.clear()
            self.groups.clear()

    # ---- requests -------------------------------------------------------------------------------------------
    async def handle(self, event: Event, append: Append) -> Answer:
        """Nothing is said of settings before the broker has told its own."""
        if isinstance(event, WhoseGroup):
            return await self._whose(event)
        try:
            async with asyncio.timeout(KNOWN_WITHIN_S):
                await self._known.wait()
        except TimeoutError:
            return _not_available(event)
        if isinstance(event, AlterSettings):
            return await self._alter(event, append)
        if isinstance(event, DescribeSettings):
            groups = {g: self._describe(g) for g in event.groups}
            at_broker = {g: self._broker_groups.get(g, {}) for g in event.groups}
            return SettingsReply(
                groups=groups, at_broker=at_broker, moves={g: self._moves(g) for g in ("", *event.groups)}
            )
        assert isinstance(event, ConfiguredGroups)
        return ConfiguredReply(groups=tuple(self.configured()))

    async def _whose(self, event: WhoseGroup) -> Answer:
        """The fronts have been told what has been read: it is said here only that nothing is missing."""
        if await self._written.is_read({self._partition_of(""), self._partition_of(event.name)}):
            return Answer(Code.NONE)
        return _not_available(event)

    async def all_read(self) -> bool:
        """Whether the tail knows everything that stands in the state topic now."""
        return await self._written.is_read(range(len(self._state.partitions)))

    def _describe(self, group_id: str) -> tuple[SettingValue, ...]:
        own, effective = self.own(group_id), self.effective()
        out = []
        for kind, s in ((kind, s) for kind, rows in self._rows.items() for s in rows.rows):
            text, plain = cf.text(effective[s.broker_name]), cf.text(self._own.kinds[kind].defaults[s.field])
            source = self.broker_value(s.broker_name)[1]
            hidden = tuple(level for level in self._levels.get(s.broker_name, ()) if level[1] > source)
            if source == cf.DEFAULT and text != plain:
                source = cf.STATIC
            out.append(SettingValue(s.name, own.get(s.name), text, source, plain, hidden))
        return tuple(out)

    async def _alter(self, event: AlterSettings, append: Append) -> AlterReply:
        refused: dict[str, tuple[int, str | None]] = {}
        for change in event.changes:
            key = f"{change.resource_type}/{change.name}"
            try:
                self._check(change)
                if not event.validate_only and change.values:
                    await self._store(change, event.client, append)
            except CoordinatorError as exc:
                refused[key] = (exc.code, exc.message)
            except WriteLost as exc:
                refused[key] = (Code.REQUEST_TIMED_OUT, str(exc))
        return AlterReply(refused=refused)

    def _check(self, change: SettingChange) -> None:
        """Raises CoordinatorError in Kafka's words."""
        moves = {n: v for n, v in change.values.items() if n in (*cf.GROUP_MOVES, *cf.BROKER_MOVES)}
        for name, value in moves.items():
            if value is not None:
                cf.check_move(name, value)
        settings = {n: v for n, v in change.values.items() if n not in moves}
        if settings and change.resource_type == cf.GROUP:
            after = {**self.own(change.name), **settings}
            cf.validate({n: v for n, v in after.items() if v is not None}, self.effective())
        for name, value in change.values.items() if change.resource_type == cf.BROKER else ():
            if value is not None and name in cf.BROKER_OFFLOADS:
                cf.parse(cf.BROKER_OFFLOADS[name], value)

    async def _store(self, change: SettingChange, client: str, append: Append) -> None:
        group_id = change.name if change.resource_type == cf.GROUP else ""
        values = {key if group_id else f"{change.name}/{key}": value for key, value in change.values.items()}
        if group_id and cf.MANAGED in values and cf.VERDICT in self._stored(group_id):
            values[cf.VERDICT] = None
        await self.put(group_id, values, f"changed by {client}", append)

    async def put(self, group_id: str, values: Mapping[str, str | None], why: str, append: Append) -> None:
        """Store these; None removes one. Raises WriteLost."""
        records, there = [], self._state.partitions[self._partition_of(group_id)].configs.get(group_id, {})
        for sub_id, value in values.items():
            revision = self._codec.next_revision(there.get(sub_id))
            records.append(self._codec.config(group_id, sub_id, value, now().wall_ms, revision, why))
        await append(self._partition_of(group_id), records)

    # ---- the broker -----------------------------------------------------------------------------------------
    async def refresh(self, cluster: Cluster) -> bool:
        """Ask the broker; returns whether anything is different. Raises ConnectionLost, TimeoutError, WireError."""
        conn = await cluster.node(self._own.node_id)
        names = [*BROKER_NAMES, *CLASSIC_FIELDS, POLICY, AUTHORIZER, RETENTION_CHECK, ID_EXPIRATION, IDLE]
        broker = dc.DescribeConfigsResource(cf.BROKER, str(self._own.node_id), names)
        res = await conn.request(dc, "DescribeConfigs", dc.DescribeConfigsRequest([broker], include_synonyms=True))
        result = res.results[0]
        if result.error_code != Code.NONE:
            if self._refused != (text := f"{result.error_code} {result.error_message}"):
                self._refused = text
                self._log.warning("the broker does not tell its settings; the sidecar's own apply", error=text)
            self._known.set()
            return False
        found = {c.name: (c.value, c.config_source) for c in result.configs if c.value is not None}
        self._levels = {c.name: _set_there(c) for c in result.configs}
        had = self.authorizer
        self.authorizer = bool(found.pop(AUTHORIZER, ("", 0))[0])
        groups = await self._of_groups(conn)
        self._known.set()
        changed = found != self._broker or groups != self._broker_groups
        if changed:
            if self._broker:
                new = {n: v for n, v in found.items() if self._broker.get(n) != v}
                self._log.info("settings of the broker changed", **{n: v for n, (v, _) in new.items()})
            self._broker, self._broker_groups = found, groups
            self.changed()
        return changed or had != self.authorizer

    async def _of_groups(self, conn: BrokerConnection) -> dict[str, dict[str, str]]:
        """What managed groups have at the broker. Raises ConnectionLost, TimeoutError, WireError."""
        try:
            listed = await conn.request(lr, "ListConfigResources", lr.ListConfigResourcesRequest([cf.GROUP]), low=1)
            wanted = [r.resource_name for r in listed.config_resources if self.managed(r.resource_name)]
        except WireError:
            return {}  # a broker that has no settings of groups
        if not wanted:
            return {}
        asked = [dc.DescribeConfigsResource(cf.GROUP, g, self._names) for g in wanted]
        res = await conn.request(dc, "DescribeConfigs", dc.DescribeConfigsRequest(resources=asked))
        refused = {r.resource_name: r.error_code for r in res.results if r.error_code != Code.NONE}
        if refused and self._refused_groups != refused:
            group_id, code = next(iter(refused.items()))
            self._log.warning(
                "the broker does not tell its settings of groups; they do not count",
                groups=len(refused),
                group_id=group_id,
                error=name_of(code),
            )
        self._refused_groups = refused
        own = {
            r.resource_name: {
                c.name: c.value for c in r.configs if c.config_source == cf.GROUP_CONFIG and c.value is not None
            }
            for r in res.results
        }
        return {group_id: settings for group_id, settings in own.items() if settings}


def _set_there(config: dc.DescribeConfigsResourceResult) -> tuple[tuple[str, int], ...]:
    """Values with their sources, without Kafka's default."""
    there = ((s.value, s.source) for s in config.synonyms)
    return tuple((value, source) for value, source in there if value is not None and source < cf.DEFAULT)


def _not_available(event: Event) -> Answer:
    code = Code.COORDINATOR_NOT_AVAILABLE
    return event.refused(code, TEXT[code])
