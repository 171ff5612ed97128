"""The state topic as rosters see it: one log, which every sidecar has read as soon as somebody has written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sidecar.coordinator.clock import wall_ms
from sidecar.coordinator.membership.roster import Roster
from sidecar.coordinator.statelog.tail import StateLog
from sidecar.coordinator.statelog.write_errors import WriteLost
from sidecar.state.codec import Encoded, Stamp, StateCodec
from sidecar.state.keys import ROSTER, decode_key
from tests.inprocess.embedded_sidecar import Counted, Lines

PARTITIONS = 4


class Records:
    def __init__(self) -> None:
        self.codec = StateCodec()
        self.written: list[list[Encoded]] = [[] for _ in range(PARTITIONS)]
        self.refusing: set[int] = set()
        """Partitions that take no record."""
        self.all_read = True
        self._readers: list[tuple[StateLog, Roster]] = []

    def roster(self, lines: Lines) -> Roster:
        async def all_read() -> bool:
            return self.all_read

        log = StateLog(PARTITIONS, self.codec, lines, Counted())
        made = Roster(log, self.append, all_read, lines)
        self._readers.append((log, made))
        for p, records in enumerate(self.written):
            for offset, record in enumerate(records):
                log.apply(p, offset, decode_key(record.key), record.value)
        return made

    async def append(self, partition: int, records: list[Encoded]) -> None:
        if partition in self.refusing:
            raise WriteLost(f"partition {partition} takes nothing")
        for record in records:
            offset = len(self.written[partition])
            self.written[partition].append(record)
            for log, _ in self._readers:
                log.apply(partition, offset, decode_key(record.key), record.value)
        for _, roster in self._readers:
            roster.record_read()

    async def claim(self, node_id: int, ago_ms: int = 0, partition: int = 0, epoch: int = 1) -> None:
        """The sidecar of that node has taken a partition over."""
        stamp = Stamp(epoch, wall_ms() - ago_ms)
        await self.append(partition, [self.codec.claim(stamp, node_id, "h:1", "m", 1, "assigned")])

    def revisions(self, member_id: str) -> list[int]:
        """Returns the revisions of the member's records, in the order in which they were written."""
        written = (r for records in self.written for r in records if f"/{member_id}/" in decode_key(r.key).sub_id)
        return [
            int(dict(r.headers)["revision"]) if r.value is None else self.codec.config_value(r.value)[1]
            for r in written
        ]

    def stand(self) -> Mapping[str, Any]:
        """Member id -> what is written of it, as the log says now."""
        found: dict[str, Any] = {}
        for records in self.written:
            for record in records:
                key = decode_key(record.key)
                if key.sub_id.endswith(ROSTER):
                    member_id = key.sub_id.split("/")[1]
                    found.pop(member_id, None)
                    if record.value is not None:
                        found[member_id] = json.loads(self.codec.config_value(record.value)[0])
        return found
