"""Settings at this sidecar's broker: its own, and those that it has kept of groups since before they were managed. The
broker is asked at intervals, and at once when a change passed through this sidecar.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from sidecar.core.vocabulary import group_config as cf
from sidecar.core.vocabulary.errors import Code, name_of
from sidecar.kafka.cluster import Cluster
from sidecar.kafka.net import BrokerConnection
from sidecar.link.ports import Logger
from sidecar.wire.frames import response_body
from sidecar.wire.generated import describe_configs as dc
from sidecar.wire.generated import list_config_resources as lr
from sidecar.wire.primitives import WireError

AUTHORIZER = "authorizer.class.name"
POLICY = "group.consumer.migration.policy"
RETENTION_CHECK = "offsets.retention.check.interval.ms"
RETENTION_CHECK_MS = 600_000
"""Kafka's default."""
ID_EXPIRATION = "transactional.id.expiration.ms"
ID_EXPIRATION_MS = 604_800_000
"""Kafka's default time for which brokers remember a transactional id that is not used, and with it a fence."""
IDLE = "connections.max.idle.ms"
IDLE_MS = 600_000
"""Kafka's default time after which the broker ends an idle connection."""
GROUPS_AT_ONCE = 100
"""Groups whose settings are asked for with one request: reading its answer takes a few milliseconds."""
Own = dict[str, dict[str, str]]
"""Group -> its settings at the broker."""


def broker_names(kind: str) -> dict[str, str]:
    """Returns Kafka's names of the broker's settings for groups of this kind -> fields."""
    rows = cf.KINDS[kind]
    ranged = [m + s.field for s in rows.rows if s.ranged for m in ("", "min_", "max_")]
    fields = (*ranged, *rows.brokers, *(s.field for s in rows.rows if not s.ranged and not s.among))
    return {f"group.{kind}.{field.replace('_', '.')}": field for field in fields}


FIELDS = {kind: broker_names(kind) for kind in cf.KINDS}
BROKER_NAMES = [name for fields in FIELDS.values() for name in fields]
CLASSIC_FIELDS = {
    "group.min.session.timeout.ms": "min_session_timeout_ms",
    "group.max.session.timeout.ms": "max_session_timeout_ms",
    "group.initial.rebalance.delay.ms": "initial_rebalance_delay_ms",
    "group.max.size": "max_size",
}
"""Kafka's names of the settings of classic groups -> fields. No single group can have a value of its own."""


class BrokerSettings:
    """The settings as last read. `names`: the settings of groups that this sidecar serves; `managed(group)`: whether
    the sidecars coordinate the group."""

    def __init__(self, node_id: int, names: list[str], managed: Callable[[str], bool], log: Logger) -> None:
        self.authorizer = True
        """Whether the broker has an authorizer. True until the broker has answered that it has none."""
        self.wanted = asyncio.Event()
        """Set when the broker must be asked at once."""
        self.known = asyncio.Event()
        """Set once the broker has answered."""
        self.groups: Own = {}
        """Settings of managed groups."""
        self.levels: dict[str, tuple[tuple[str, int], ...]] = {}
        """Name -> all values that are set at the broker with their sources, the one in force first."""
        self._node_id = node_id
        self._names = names
        self._managed = managed
        self._log = log
        self._values: dict[str, tuple[str, int]] = {}
        self._refused = self._refused_list = ""
        self._refused_groups: dict[str, int] = {}
        self._answers: dict[bytes, tuple[Own, dict[str, int]]] = {}
        """The last answers on groups, and what they say: the same bytes are not read again."""

    def value(self, name: str) -> tuple[str | None, int]:
        """Returns the value in force at the broker, and its source; None before the broker has answered."""
        return self._values.get(name, (None, cf.DEFAULT))

    def _number(self, name: str, default: int) -> int:
        text = self.value(name)[0]
        return default if text is None else int(text)

    @property
    def retention_check_ms(self) -> int:
        """Interval at which the broker looks for expired offsets, and so for groups that have none left."""
        return self._number(RETENTION_CHECK, RETENTION_CHECK_MS)

    @property
    def fences_kept_ms(self) -> int:
        """Time for which the brokers remember a fence that is not renewed."""
        return self._number(ID_EXPIRATION, ID_EXPIRATION_MS)

    @property
    def idle_ms(self) -> int:
        """Time after which the broker ends an idle connection."""
        return self._number(IDLE, IDLE_MS)

    async def refresh(self, cluster: Cluster) -> bool:
        """Asks the broker; returns whether anything changed. Raises ConnectionLost, TimeoutError, WireError."""
        conn = await cluster.node(self._node_id)
        names = [*BROKER_NAMES, *CLASSIC_FIELDS, POLICY, AUTHORIZER, RETENTION_CHECK, ID_EXPIRATION, IDLE]
        broker = dc.DescribeConfigsResource(cf.BROKER, str(self._node_id), names)
        res = await conn.request(dc, "DescribeConfigs", dc.DescribeConfigsRequest([broker], include_synonyms=True))
        result = res.results[0]
        if result.error_code != Code.NONE:
            if self._refused != (text := f"{result.error_code} {result.error_message}"):
                self._refused = text
                self._log.warning("the broker does not tell its settings; the sidecar's own apply", error=text)
            self.known.set()
            return False
        self._refused = ""
        values = {c.name: (c.value, c.config_source) for c in result.configs if c.value is not None}
        self.levels = {c.name: _set_there(c) for c in result.configs}
        had = self.authorizer
        self.authorizer = bool(values.pop(AUTHORIZER, ("", 0))[0])
        groups = await self._of_groups(conn)
        self.known.set()
        changed = values != self._values or groups != self.groups
        if changed:
            if self._values:
                new = {n: v for n, v in values.items() if self._values.get(n) != v}
                self._log.info("settings of the broker changed", **{n: v for n, (v, _) in new.items()})
            self._values, self.groups = values, groups
        return changed or had != self.authorizer

    async def _of_groups(self, conn: BrokerConnection) -> Own:
        """Returns the broker's settings of managed groups. Raises ConnectionLost, TimeoutError, WireError."""
        try:
            listed = await conn.request(lr, "ListConfigResources", lr.ListConfigResourcesRequest([cf.GROUP]), low=1)
        except WireError:
            return {}  # a broker that has no settings of groups
        if listed.error_code != Code.NONE:
            if self._refused_list != (text := name_of(listed.error_code)):
                self._refused_list = text
                self._log.warning(
                    "the broker does not tell which groups have settings; the former ones go on", error=text
                )
            return self.groups
        self._refused_list = ""
        wanted = [r.resource_name for r in listed.config_resources if self._managed(r.resource_name)]
        own: Own = {}
        refused: dict[str, int] = {}
        answers: dict[bytes, tuple[Own, dict[str, int]]] = {}
        for at in range(0, len(wanted), GROUPS_AT_ONCE):
            resources = [dc.DescribeConfigsResource(cf.GROUP, g, self._names) for g in wanted[at : at + GROUPS_AT_ONCE]]
            req = dc.DescribeConfigsRequest(resources=resources)
            version, flexible, raw = await conn.exchange(dc, "DescribeConfigs", req)
            start = response_body(raw, flexible)
            body = raw[start:]
            answers[body] = self._answers.get(body) or _read(dc.DescribeConfigsResponse.decode(version, raw, start))
            own |= answers[body][0]
            refused |= answers[body][1]
        self._answers = answers
        if refused and self._refused_groups != refused:
            group_id, code = next(iter(refused.items()))
            self._log.warning(
                "the broker does not tell its settings of groups; they do not count",
                groups=len(refused),
                group_id=group_id,
                error=name_of(code),
            )
        self._refused_groups = refused
        return own


def _read(res: dc.DescribeConfigsResponse) -> tuple[Own, dict[str, int]]:
    """Returns the settings of groups that have any, and the error codes of refused groups."""
    own = {
        r.resource_name: {
            c.name: c.value for c in r.configs if c.config_source == cf.GROUP_CONFIG and c.value is not None
        }
        for r in res.results
    }
    refused = {r.resource_name: r.error_code for r in res.results if r.error_code != Code.NONE}
    return {group_id: settings for group_id, settings in own.items() if settings}, refused


def _set_there(config: dc.DescribeConfigsResourceResult) -> tuple[tuple[str, int], ...]:
    """Returns the set values of a setting with their sources, without Kafka's default."""
    levels = ((s.value, s.source) for s in config.synonyms)
    return tuple((value, source) for value, source in levels if value is not None and source < cf.DEFAULT)
