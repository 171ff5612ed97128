"""The settings in force. Layers, the first that has a value wins: the group's own (state topic, then what the broker
kept for it before it was managed), what was set at the broker, the sidecar's own configuration, Kafka's default.

The broker is asked every `settings_refresh_ms`, and at once when a change passed through this sidecar. What brokers
do not know (offload) is kept in the state topic, too, with an empty group id.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sidecar.api.configs import BROKER, DEFAULT, DYNAMIC_BROKER, DYNAMIC_DEFAULT, GROUP, GROUP_CONFIG
from sidecar.core import configs as cf
from sidecar.core.errors import Code, CoordinatorError
from sidecar.core.events import GroupConfig
from sidecar.kafka.cluster import Cluster
from sidecar.runtime.log import Logger
from sidecar.runtime.settings import Settings
from sidecar.runtime.tail import Tail
from sidecar.state.codec import StateCodec
from sidecar.state.schema import StateError
from sidecar.wire.generated import describe_configs as dc
from sidecar.wire.generated import list_config_resources as lr
from sidecar.wire.primitives import WireError

PREFIX = "group.consumer."
GROUPS_KEPT = 100_000
KAFKA_CLASSES = {
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor": "uniform",
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor": "range",
}


def _kafka_name(field: str) -> str:
    return PREFIX + field.replace("_", ".")


FIELDS = {
    _kafka_name(f): f
    for f in (
        *(
            f"{m}{n}"
            for n in ("session_timeout_ms", "heartbeat_interval_ms", "assignment_interval_ms")
            for m in ("", "min_", "max_")
        ),
        "max_size",
        "regex_refresh_interval_ms",
        "assignor_offload_enable",
        "assignors",
    )
}
AUTHORIZER = "authorizer.class.name"


class Configs:
    def __init__(
        self,
        settings: Settings,
        codec: StateCodec,
        partition_of: Callable[[str], int],
        managed: Callable[[str], bool],
        log: Logger,
    ) -> None:
        self.settings = settings
        self.codec = codec
        self.partition_of = partition_of
        self.managed = managed
        self.log = log
        self.tail: Tail | None = None
        self.assignors: tuple[str, ...] = settings.consumer.assignors
        self.authorizer = True
        """Has the broker one? True until it says no."""
        self.on_change: Callable[[], None] = lambda: None
        self._broker: dict[str, tuple[str, int]] = {}
        self._broker_groups: dict[str, dict[str, str]] = {}
        self._effective: dict[str, int | bool] | None = None
        self._groups: dict[str, GroupConfig] = {}
        self._refused = ""

    # ---- what is in force -----------------------------------------------------------------------------------
    def group(self, group_id: str) -> GroupConfig:
        found = self._groups.get(group_id)
        if found is None:
            if len(self._groups) >= GROUPS_KEPT:
                self._groups.clear()
            found = self._groups[group_id] = self._make(group_id)
        return found

    def _make(self, group_id: str) -> GroupConfig:
        effective = self.effective()
        try:
            values = cf.level(self.own(group_id), effective)
        except CoordinatorError as exc:
            self.log.error("a group's settings are void", group_id=group_id, error=exc.message)
            values = cf.level({}, effective)
        return GroupConfig(
            session_timeout_ms=int(values[cf.SESSION]),
            heartbeat_interval_ms=int(values[cf.HEARTBEAT]),
            assignment_interval_ms=int(values[cf.INTERVAL]),
            assignor_offload_enable=bool(values[cf.OFFLOAD]),
            max_size=int(effective[PREFIX + "max.size"]),
            regex_refresh_interval_ms=int(effective[PREFIX + "regex.refresh.interval.ms"]),
            assignors=self._assignors(),
            assignor_timeout_ms=self.settings.consumer.assignor_timeout_ms,
        )

    def effective(self) -> dict[str, int | bool]:
        """Broker level, by broker names."""
        if self._effective is None:
            found: dict[str, int | bool] = {}
            for name, field in FIELDS.items():
                if field != "assignors":
                    text = self._chosen(name, field)
                    found[name] = text == "true" if field == "assignor_offload_enable" else int(text)
            self._effective = found
        return self._effective

    def _chosen(self, name: str, field: str) -> str:
        text, source = self.broker_value(name)
        if text is None or (source == DEFAULT and field in self.settings.consumer.model_fields_set):
            return cf.text(getattr(self.settings.consumer, field))
        return text

    def broker_value(self, name: str) -> tuple[str | None, int]:
        """As set at the broker, or through a sidecar for it; its source."""
        for resource, source in ((str(self.settings.node_id), DYNAMIC_BROKER), ("", DYNAMIC_DEFAULT)):
            text = self._stored("", 0).get(f"{resource}/{name}")
            if text is not None:
                return text, source
        value = self._broker.get(name)
        return (None, DEFAULT) if value is None else value

    def _assignors(self) -> tuple[str, ...]:
        text, source = self._broker.get(PREFIX + "assignors", ("", DEFAULT))
        if source == DEFAULT or "assignors" in self.settings.consumer.model_fields_set:
            return self.assignors
        names = [KAFKA_CLASSES.get(n.strip(), n.strip()) for n in text.split(",")]
        return tuple(n for n in names if n in self.assignors) or self.assignors

    def own(self, group_id: str) -> dict[str, str]:
        """What is set for this group."""
        theirs = self._broker_groups.get(group_id, {})
        return {**theirs, **self._stored(group_id, self.partition_of(group_id))}

    def at_broker(self, group_id: str) -> Mapping[str, str]:
        return self._broker_groups.get(group_id, {})

    def configured(self) -> list[str]:
        """Managed groups that have settings of their own in the state topic."""
        if self.tail is None:
            return []
        return sorted(g for p in self.tail.partitions for g in p.configs if g and self.managed(g))

    def revision(self, group_id: str, name: str) -> int:
        if self.tail is None:
            return 0
        raw = self.tail.partitions[self.partition_of(group_id) if group_id else 0].configs.get(group_id, {}).get(name)
        return 0 if raw is None else self.codec.config_value(raw)[1]

    def _stored(self, group_id: str, partition: int) -> dict[str, str]:
        if self.tail is None:
            return {}
        found = {}
        for name, raw in self.tail.partitions[partition].configs.get(group_id, {}).items():
            try:
                found[name] = self.codec.config_value(raw)[0]
            except StateError as exc:
                self.log.error("setting skipped", group_id=group_id, name=name, error=str(exc))
        return found

    def changed(self, group_id: str = "") -> None:
        """In the state topic; "" stands for broker level."""
        if group_id:
            self._groups.pop(group_id, None)
        else:
            self._effective = None
            self._groups.clear()
        self.on_change()

    # ---- the broker -----------------------------------------------------------------------------------------
    async def refresh(self, cluster: Cluster) -> None:
        """Ask the broker. Raises ConnectionLost, TimeoutError, WireError."""
        conn = await cluster.node(self.settings.node_id)
        names = [*FIELDS, AUTHORIZER]
        broker = dc.DescribeConfigsResource(BROKER, str(self.settings.node_id), names)
        res = await conn.request(dc, "DescribeConfigs", dc.DescribeConfigsRequest(resources=[broker]))
        result = res.results[0]
        if result.error_code != Code.NONE:
            if self._refused != (text := f"{result.error_code} {result.error_message}"):
                self._refused = text
                self.log.warning("the broker does not tell its settings; the sidecar's own apply", error=text)
            return
        found = {c.name: (c.value, c.config_source) for c in result.configs if c.value is not None}
        self.authorizer = bool(found.pop(AUTHORIZER, ("", 0))[0])
        groups: dict[str, dict[str, str]] = {}
        try:
            listed = await conn.request(lr, "ListConfigResources", lr.ListConfigResourcesRequest([GROUP]), low=1)
            wanted = [r.resource_name for r in listed.config_resources if self.managed(r.resource_name)]
        except WireError:
            wanted = []  # a broker that has no settings of groups
        if wanted:
            asked = [dc.DescribeConfigsResource(GROUP, g, list(cf.SETTINGS)) for g in wanted]
            res = await conn.request(dc, "DescribeConfigs", dc.DescribeConfigsRequest(resources=asked))
            for r in res.results:
                own = {c.name: c.value for c in r.configs if c.config_source == GROUP_CONFIG and c.value is not None}
                if own:
                    groups[r.resource_name] = own
        if found != self._broker or groups != self._broker_groups:
            if self._broker:
                now = {n: v for n, v in found.items() if self._broker.get(n) != v}
                self.log.info("settings of the broker changed", **{n: v for n, (v, _) in now.items()})
            self._broker, self._broker_groups = found, groups
            self.changed()
