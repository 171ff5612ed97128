"""May this connection's principal? The broker says, asked on the client's own connection; answers are kept a while.

READ of a group: a Heartbeat of nobody is refused with GROUP_AUTHORIZATION_FAILED before anything else is looked at.
DESCRIBE of groups: DescribeGroups. DESCRIBE of topics: ListOffsets, which no other right opens. A broker without
an authorizer is asked once per connection and group, so that nothing is served before the client authenticated.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from sidecar.core.errors import Code
from sidecar.proxy.connection import Got
from sidecar.runtime.session import Session
from sidecar.wire.apis import Api
from sidecar.wire.frames import response_body
from sidecar.wire.generated import describe_groups as dg
from sidecar.wire.generated import heartbeat as hb
from sidecar.wire.generated import list_offsets as lo

if TYPE_CHECKING:
    from sidecar.runtime.front import Front

LATEST = -1
KEPT = 1_000
"""Answers kept for a connection, of each kind."""


class Access:
    def __init__(self, front: Front, keep_s: float) -> None:
        self.front = front
        self.keep_s = keep_s

    async def read_group(self, session: Session, got: Got, group_id: str) -> int:
        """NONE or GROUP_AUTHORIZATION_FAILED."""
        known = session.authorised.get(group_id)
        if known is not None and known[1] > time.monotonic():
            return known[0]
        probe = hb.HeartbeatRequest(group_id=group_id, generation_id=-1, member_id="")
        frame = await self.front.ask(session, got, Api.HEARTBEAT, 3, probe.encode(3), flexible=False)
        res = hb.HeartbeatResponse.decode(3, frame, response_body(frame, False))
        refused = res.error_code == Code.GROUP_AUTHORIZATION_FAILED
        code = Code.GROUP_AUTHORIZATION_FAILED if refused else Code.NONE
        self._keep(session.authorised, {group_id: code})
        return code

    async def hidden_groups(self, session: Session, got: Got, group_ids: Iterable[str]) -> set[str]:
        """Those it may not DESCRIBE."""
        groups = list(group_ids)
        if groups and not self.front.configs.authorizer:
            # One probe: a client that has not authenticated is turned away by the broker.
            groups = groups[:1]
        missing = self._missing(session.describable, groups)
        if missing:
            probe = dg.DescribeGroupsRequest(groups=missing).encode(0)
            frame = await self.front.ask(session, got, Api.DESCRIBE_GROUPS, 0, probe, flexible=False)
            res = dg.DescribeGroupsResponse.decode(0, frame, response_body(frame, False))
            said = {g.group_id: g.error_code for g in res.groups}
            self._keep(session.describable, {g: said.get(g, 0) for g in missing})
        return {g for g in groups if session.describable[g][0] == Code.GROUP_AUTHORIZATION_FAILED}

    async def hidden_topics(self, session: Session, got: Got, names: Iterable[str]) -> set[str]:
        """Those it may not DESCRIBE, existing or not."""
        if not self.front.configs.authorizer:
            return set()
        topics = sorted(set(names))
        missing = self._missing(session.topics, topics)
        if missing:
            wanted = [lo.ListOffsetsTopic(t, [lo.ListOffsetsPartition(0, timestamp=LATEST)]) for t in missing]
            probe = lo.ListOffsetsRequest(replica_id=-1, topics=wanted).encode(1)
            frame = await self.front.ask(session, got, Api.LIST_OFFSETS, 1, probe, flexible=False)
            res = lo.ListOffsetsResponse.decode(1, frame, response_body(frame, False))
            said = {t.name: t.partitions[0].error_code for t in res.topics if t.partitions}
            self._keep(session.topics, {t: said.get(t, 0) for t in missing})
        return {t for t in topics if session.topics[t][0] == Code.TOPIC_AUTHORIZATION_FAILED}

    def _missing(self, kept: dict[str, tuple[int, float]], names: list[str]) -> list[str]:
        now = time.monotonic()
        return [n for n in names if n not in kept or kept[n][1] <= now]

    def _keep(self, kept: dict[str, tuple[int, float]], said: dict[str, int]) -> None:
        if len(kept) > KEPT:
            old = time.monotonic()
            for name in [n for n, (_, until) in kept.items() if until <= old]:
                del kept[name]
        until = time.monotonic() + self.keep_s
        kept.update((name, (code, until)) for name, code in said.items())
