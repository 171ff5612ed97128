"""The settings in force. Layers, the first that has a value wins: the group's own (state topic, then what the broker
kept for it before it was managed), what was set at the broker, the sidecar's own configuration, Kafka's default.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any

from sidecar.coordinator.settings.broker_settings import CLASSIC_FIELDS, FIELDS, POLICY, BrokerSettings
from sidecar.coordinator.settings.stored_settings import StoredSettings
from sidecar.core.classic.config import CLASSIC, ClassicConfig
from sidecar.core.consumer.config import CONSUMER
from sidecar.core.kinds import REGISTRY
from sidecar.core.vocabulary import group_config as cf
from sidecar.core.vocabulary.cache import BoundedCache
from sidecar.core.vocabulary.errors import CoordinatorError
from sidecar.kafka.cluster import Cluster
from sidecar.link.messages import SettingValue
from sidecar.link.ports import Logger

CONFIGS_BYTES, CONFIG_BYTES = 8 << 20, 300
"""Size of the cache of groups' settings, and the weight of one group's, in bytes."""
KAFKA_CLASSES = {
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor": "uniform",
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor": "range",
    "org.apache.kafka.coordinator.group.assignor.SimpleAssignor": "simple",
}


@dataclass(frozen=True)
class OwnKind:
    """The sidecar's own configuration of one kind of groups. `values`: by field; `given`: the fields that its
    configuration sets; `defaults`: Kafka's."""

    values: Mapping[str, Any]
    given: frozenset[str] = frozenset()
    defaults: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class OwnSettings:
    """The sidecar's own configuration. `kinds`: the kinds in the table of group_config.py that it serves."""

    node_id: int
    kinds: Mapping[str, OwnKind]
    classic: OwnKind = OwnKind({})


def group_configs(makers: Mapping[str, Callable[[str], Any]]) -> BoundedCache[tuple[str, str], Any]:
    """Returns the settings that groups work with, by kind and id: made on the first use, forgotten when a setting
    changes. Kinds without a maker have their defaults."""

    def make(key: tuple[str, str]) -> Any:
        kind, group_id = key
        own = makers.get(kind)
        return REGISTRY.kinds[kind].config() if own is None else own(group_id)

    return BoundedCache(CONFIGS_BYTES, make, weigh=lambda config: CONFIG_BYTES)


class SettingsInForce:
    """All layers of the settings. `settings`: the settings in the state topic; `managed(group)`: whether the sidecars
    coordinate the group."""

    def __init__(self, own: OwnSettings, settings: StoredSettings, managed: Callable[[str], bool], log: Logger) -> None:
        self._own = own
        self._consumer = own.kinds[CONSUMER]
        self._settings = settings
        self._log = log
        self._rows = {kind: rows for kind, rows in cf.KINDS.items() if kind in own.kinds}
        """Settings of the kinds that this sidecar serves; the others are the broker's."""
        self._names = [s.name for rows in self._rows.values() for s in rows.rows]
        self.broker = BrokerSettings(own.node_id, self._names, managed, log)
        self._effective: dict[str, cf.Value] | None = None
        self._common: dict[str, dict[str, Any]] = {}
        """Kind -> the values of its groups that have none of their own."""
        makers: dict[str, Callable[[str], Any]] = {kind: partial(self._make, kind) for kind in self._rows}
        self.not_followed = False
        """Whether settings at broker level have changed, and the core does not follow them yet: grants may be older."""
        self.groups = group_configs({**makers, CLASSIC: self._make_classic})

    async def refresh(self, cluster: Cluster) -> bool:
        """Asks the broker; returns whether anything changed. Raises ConnectionLost, TimeoutError, WireError."""
        changed = await self.broker.refresh(cluster)
        if changed:
            self.changed()
        return changed

    def assignor_timeout_s(self, kind: str) -> float:
        own = self._own.kinds.get(kind)
        if own is None:  # its settings are the defaults, as in group_configs
            return float(REGISTRY.kinds[kind].config().assignor_timeout_ms) / 1000
        return float(own.values["assignor_timeout_ms"]) / 1000

    @property
    def regex_time_s(self) -> float:
        return float(self._consumer.values["regex_time_ms"]) / 1000

    # ---- values in force ------------------------------------------------------------------------------------
    def _make(self, kind: str, group_id: str) -> Any:
        effective = self.effective()
        try:
            values = cf.level(kind, self.own(group_id), effective)
        except CoordinatorError as exc:
            self._log.error("a group's settings are void", group_id=group_id, error=exc.message)
            values = cf.level(kind, {}, effective)
        return REGISTRY.kinds[kind].config(**{**self._of_kind(kind), **values})

    def _of_kind(self, kind: str) -> dict[str, Any]:
        values = self._common.get(kind)
        if values is None:
            own, effective = self._own.kinds[kind].values, self.effective()
            known = {f.name for f in fields(REGISTRY.kinds[kind].config())}
            values = {f: own[f] for f in known & own.keys()}
            values |= {f: effective[name] for name, f in FIELDS[kind].items() if f in known}
            if kind == CONSUMER:
                values["migration_policy"] = self._policy()
            self._common[kind] = values
        return values

    def _policy(self) -> str:
        text, source = self.broker.value(POLICY)
        if not text or (source == cf.DEFAULT and "migration_policy" in self._consumer.given):
            return str(self._consumer.values["migration_policy"])
        return text.lower()

    def _make_classic(self, group_id: str) -> ClassicConfig:
        values = dict(self._own.classic.values)
        for name, own in CLASSIC_FIELDS.items():
            text, source = self.broker.value(name)
            if text is not None and not (source == cf.DEFAULT and own in self._own.classic.given):
                values[own] = int(text)
        return ClassicConfig(**values)

    def effective(self) -> cf.Level:
        """Returns the values at broker level, by the brokers' names of the settings."""
        if self._effective is None:
            values: dict[str, cf.Value] = {}
            for kind in self._rows:
                for name, own in FIELDS[kind].items():
                    if own in cf.LISTS:
                        values[name] = self._assignors(kind) if own == "assignors" else self._list(kind, name, own)
                        continue
                    text = self._chosen(name, self._own.kinds[kind], own)
                    values[name] = cf.truth(text) if name in cf.BROKER_OFFLOADS else int(text)
            self._effective = values
        return self._effective

    def _list(self, kind: str, name: str, field: str) -> tuple[str, ...]:
        text, source = self.broker.value(name)
        if source == cf.DEFAULT:
            return tuple(self._own.kinds[kind].values[field])
        return tuple(filter(None, cf.listed(text or "")))

    def _chosen(self, name: str, own: OwnKind, field: str) -> str:
        text, source = self.broker_value(name)
        if text is None or (source == cf.DEFAULT and field in own.given):
            return cf.text(own.values[field])
        return text

    def broker_value(self, name: str) -> tuple[str | None, int]:
        """Returns the value set through a sidecar for the broker, or else at the broker, and its source."""
        for resource, source in ((str(self._own.node_id), cf.DYNAMIC_BROKER), ("", cf.DYNAMIC_DEFAULT)):
            text = self._settings.value("", f"{resource}/{name}")
            if text is not None:
                return text, source
        return self.broker.value(name)

    def _assignors(self, kind: str) -> tuple[str, ...]:
        own = self._own.kinds[kind]
        own_names: tuple[str, ...] = own.values["assignors"]
        text, source = self.broker.value(f"group.{kind}.assignors")
        if source == cf.DEFAULT or "assignors" in own.given:
            return own_names
        names = [KAFKA_CLASSES.get(n.strip(), n.strip()) for n in (text or "").split(",")]
        return tuple(n for n in names if n in own_names) or own_names

    def own(self, group_id: str) -> dict[str, str]:
        """Returns the group's own values: those in the state topic, then those that the broker has kept for it."""
        at_broker = self.broker.groups.get(group_id, {})
        return {**at_broker, **{n: v for n, v in self._settings.all(group_id).items() if n in self._names}}

    def describe(self, group_id: str) -> tuple[SettingValue, ...]:
        own, effective = self.own(group_id), self.effective()
        out = []
        for kind, s in ((kind, s) for kind, rows in self._rows.items() for s in rows.rows):
            field = FIELDS[kind][s.broker_name]
            text, plain = cf.text(effective[s.broker_name]), cf.text(self._own.kinds[kind].defaults[field])
            source = self.broker_value(s.broker_name)[1]
            hidden = tuple(level for level in self.broker.levels.get(s.broker_name, ()) if level[1] > source)
            if source == cf.DEFAULT and text != plain:
                source = cf.STATIC
            value = own.get(s.name)
            if value is not None and s.kind in ("string", "list"):  # as Kafka shows them
                value = ",".join(cf.listed(value)) if s.kind == "list" else value.strip()
            out.append(SettingValue(s.name, value, text, source, plain, hidden))
        return tuple(out)

    def changed(self, group_id: str = "") -> None:
        """Forgets cached settings after a change in the state topic: of one group, or at broker level for ""."""
        if group_id:
            for kind in cf.KINDS:
                self.groups.forget((kind, group_id))
        else:
            self._effective = None
            self._common.clear()
            self.groups.clear()
