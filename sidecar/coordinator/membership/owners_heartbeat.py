"""Heartbeats of this sidecar's membership in the owners' group, on a connection of their own: a parked JoinGroup must
not hold them up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from sidecar.coordinator.clock import now
from sidecar.coordinator.membership.member_lease import MemberLease
from sidecar.coordinator.membership.ports import OwnershipSettings
from sidecar.core.runtime.turn import Now
from sidecar.core.vocabulary.errors import Code
from sidecar.kafka.cluster import Cluster
from sidecar.kafka.net import NO_ANSWER, BrokerConnection
from sidecar.link.ports import Logger
from sidecar.wire.generated import heartbeat as hb

BRISK_S = 0.1
"""Seconds between two heartbeats while the coordinator of the owners' group is looked up, and a little longer: a
rebalance is likely then. The broker that died may have had a sidecar too, and its partitions have no owner until all
have joined again."""
BRISK_FOR_S = 2.0


@dataclass(frozen=True, slots=True)
class HeartbeatPorts:
    """The heartbeats' calls. `member()`: the member id and generation, or None while there is no member;
    `rebalances()`: there is a rebalance, or another generation; `lost(why)`: the broker does not know the member."""

    member: Callable[[], tuple[str, int] | None]
    rebalances: Callable[[], None]
    lost: Callable[[str], None]


class OwnersHeartbeats:
    def __init__(
        self, cluster: Cluster, settings: OwnershipSettings, lease: MemberLease, ports: HeartbeatPorts, log: Logger
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._lease = lease
        self._ports = ports
        self._log = log
        self._conn: BrokerConnection | None = None
        self._brisk_until_s = 0.0
        self._due = asyncio.Event()
        self._sent = 0
        """The number of heartbeats that were sent."""
        self._confirming: list[tuple[int, asyncio.Future[None]]] = []
        """For each question about the map: how many heartbeats had been sent when it was asked, and what is done once a
        later one answers it."""

    def confirm_map(self) -> asyncio.Future[None]:
        """Sends a heartbeat now. Done once a broker has answered one that was sent from now on in the generation of the
        map that this sidecar knows: it knew no newer map then."""
        confirmed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._confirming.append((self._sent, confirmed))
        self._due.set()
        return confirmed

    async def rounds(self) -> None:
        """Sends a heartbeat every `heartbeat_ms`, for ever."""
        beat_s = self._settings.heartbeat_ms / 1000
        try:
            while True:
                pause_s = min(beat_s, BRISK_S) if time.monotonic() < self._brisk_until_s else beat_s
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause_s):
                        await self._due.wait()
                self._due.clear()
                if (member := self._ports.member()) is not None:
                    await self._beat(*member)
        finally:
            self._close()

    async def _beat(self, member_id: str, generation: int) -> None:
        try:
            if self._conn is None or self._conn.closed:
                sent = now()
                node = await self._cluster.coordinator_node(self._settings.group_id, 0)
                if self._is_still(member_id):
                    self._lease.answered(sent)  # if that node does not answer, another will soon be coordinator
                self._conn = await self._cluster.open(node)
            if (member := self._ports.member()) is None:
                return
            member_id, generation = member
            sent = now()
            self._sent = number = self._sent + 1
            req = hb.HeartbeatRequest(group_id=self._settings.group_id, generation_id=generation, member_id=member_id)
            timeout_s = self._settings.session_timeout_ms / 2000
            res = await self._conn.request(hb, "Heartbeat", req, timeout_s=timeout_s)
        except NO_ANSWER as exc:
            self._log.debug("owners' heartbeat failed", error=str(exc) or "timed out")
            self._close()
            return
        if member == self._ports.member():  # else it has joined again since, and this answer is out of date
            self._heartbeat_answered(res.error_code, sent, number)

    def _is_still(self, member_id: str) -> bool:
        member = self._ports.member()
        return member is not None and member[0] == member_id

    def _heartbeat_answered(self, code: int, sent: Now, number: int) -> None:
        if code in (Code.NONE, Code.REBALANCE_IN_PROGRESS):  # in the generation that was sent
            self._lease.answered(sent)
            self._map_confirmed(number)
            if code == Code.REBALANCE_IN_PROGRESS:
                self._ports.rebalances()
        elif code == Code.ILLEGAL_GENERATION:
            self._ports.rebalances()
        elif code in (Code.UNKNOWN_MEMBER_ID, Code.FENCED_INSTANCE_ID):
            self._ports.lost(f"owners' group: {Code(code).name}")
        else:
            self._close()

    def _map_confirmed(self, number: int) -> None:
        asked, self._confirming = self._confirming, []
        for sent_before, confirmed in asked:
            if sent_before >= number:
                self._confirming.append((sent_before, confirmed))
            elif not confirmed.done():
                confirmed.set_result(None)

    def _close(self) -> None:
        """Closes the connection: the next heartbeat comes soon, and looks the coordinator up first."""
        if self._conn is not None:
            self._conn.close()
        self._conn = None
        self._brisk_until_s = time.monotonic() + BRISK_FOR_S
