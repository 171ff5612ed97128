"""Settings in the state topic: of groups, and of brokers with an empty group id. This module reads and writes them;
managed_groups.py and settings_in_force.py interpret them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from sidecar.coordinator.clock import now
from sidecar.coordinator.statelog.tail import StateLog
from sidecar.core.vocabulary import group_config as cf
from sidecar.core.vocabulary.placement import partition_for
from sidecar.link.ports import Logger
from sidecar.state.codec import Encoded, StateCodec
from sidecar.state.schema import StateError

Append = Callable[[int, list[Encoded]], Awaitable[None]]
"""Appends records to a partition without a fence. Raises WriteLost."""


def order_of(body: Mapping[str, Any] | None) -> str:
    """Returns a text that identifies this write of a setting: the value, the reason, and the time; "" for none."""
    if body is None:
        return ""
    return f"{body['value']} ({body['why']}, {body['time_ms'].isoformat(timespec='milliseconds')})"


class StoredSettings:
    """The settings of the topic. `state`: the tail's copy. A broker's setting is named `<broker id>/<name>`, or
    `/<name>` for all brokers."""

    def __init__(self, codec: StateCodec, state: StateLog, log: Logger) -> None:
        self.state = state
        self._codec = codec
        self._log = log

    def partition_of(self, group_id: str) -> int:
        """Returns the partition of a group's settings; those of brokers are in partition 0."""
        return partition_for(group_id, len(self.state.partitions)) if group_id else 0

    def all(self, group_id: str) -> dict[str, str]:
        """Returns the group's settings that can be read, by name."""
        values = {name: self._value(group_id, name, raw) for name, raw in self._there(group_id).items()}
        return {name: value for name, value in values.items() if value is not None}

    def value(self, group_id: str, name: str) -> str | None:
        raw = self._there(group_id).get(name)
        return None if raw is None else self._value(group_id, name, raw)

    def _value(self, group_id: str, name: str, raw: bytes) -> str | None:
        try:
            return self._codec.config_value(raw)[0]
        except StateError as exc:
            self._log.error("setting skipped", group_id=group_id, name=name, error=str(exc))
            return None

    def _there(self, group_id: str) -> Mapping[str, bytes]:
        return self.state.partitions[self.partition_of(group_id)].configs.get(group_id, {})

    def groups_with(self, name: str) -> list[str]:
        """Returns the groups that have a setting of this name."""
        return [g for part in self.state.partitions for g, configs in part.configs.items() if g and name in configs]

    async def put(self, group_id: str, values: Mapping[str, str | None], why: str, append: Append) -> None:
        """Stores these settings; None removes one. Raises WriteLost."""
        records, stored = [], self._there(group_id)
        for name, value in values.items():
            revision = self._codec.next_revision(stored.get(name))
            records.append(self._codec.config(group_id, name, value, now().wall_ms, revision, why))
        await append(self.partition_of(group_id), records)

    # ---- orders, and owners' verdicts about them ------------------------------------------------------------
    def order(self, group_id: str, name: str = cf.REBALANCE) -> str:
        """Returns the group's order as a text that identifies it (`order_of`); "" if there is none."""
        return order_of(self._body(group_id, name))

    def verdict(self, group_id: str) -> str:
        """Returns the owner's verdict about the present order; "" if there is none."""
        verdict, _, order = (self.value(group_id, cf.VERDICT) or "").partition(": ")
        return verdict if order == self.order(group_id, cf.MANAGED) else ""

    def as_verdict(self, group_id: str, verdict: str) -> str:
        """Returns the verdict in its stored form, which names the present order."""
        return f"{verdict}: {self.order(group_id, cf.MANAGED)}"

    def why(self, group_id: str) -> str:
        """Returns the reason of the group's verdict, or else of its order; "" if it has neither."""
        body = self._body(group_id, cf.VERDICT if self.verdict(group_id) else cf.MANAGED)
        return "" if body is None else str(body["why"])

    def _body(self, group_id: str, name: str) -> dict[str, Any] | None:
        """Returns the decoded setting; None if it is not there, or cannot be read."""
        raw = self._there(group_id).get(name)
        try:
            return None if raw is None else self._codec.config_body(raw)
        except StateError:
            return None
