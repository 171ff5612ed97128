"""Groups at their brokers: describes them, and removes their members that are members here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sidecar.coordinator.moves.core_client import CoreClient
from sidecar.coordinator.moves.fleet_kinds import FleetKinds
from sidecar.core.runtime.service import Service
from sidecar.kafka import native
from sidecar.kafka.cluster import Cluster, ConnectionLost
from sidecar.kafka.lanes import Lane
from sidecar.kafka.native import Native
from sidecar.kafka.net import BrokerConnection

ANSWER_S = 5.0
REMEDIES = {
    native.CONSUMER: "Set the brokers' feature group.version=1 (Kafka 4.0 and later) and allow `consumer` in their "
    "group.coordinator.rebalance.protocols, or stop its members; then release it again.",
    native.SHARE: "Set the brokers' feature share.version=1 (Kafka 4.1 and later), or stop its members; then "
    "release it again.",
    native.STREAMS: "Set the brokers' feature streams.version=1 (Kafka 4.1 and later) and allow `streams` in their "
    "group.coordinator.rebalance.protocols, or stop its members; then release it again.",
}


class NativeGroups:
    """Requests about groups to their brokers. `leader_of(partition)`: node id of the broker that coordinates the
    partition's groups, -1 while unknown; `fleet`: the kinds of all sidecars, which decide whether a group may come."""

    def __init__(
        self,
        service: Service,
        core: CoreClient,
        cluster: Cluster,
        leader_of: Callable[[int], int],
        fleet: FleetKinds,
    ) -> None:
        self.fleet = fleet
        self._service = service
        self._core = core
        self._cluster = cluster
        self._leader_of = leader_of

    async def describe(self, group_id: str) -> Native:
        """Returns the group as its broker describes it. Raises one of NO_ANSWER."""
        return await native.describe(await self._broker_of(group_id), group_id, ANSWER_S)

    async def refusal(self, group_id: str) -> str:
        """Returns why members of this group, which is here, could not continue at its broker; "" if they can. Raises
        one of NO_ANSWER."""
        kind = self._core.kind_of_members(group_id)
        if not kind or await native.serves(await self._broker_of(group_id), kind, group_id, ANSWER_S):
            return ""
        return f"its broker serves no {kind} groups, which would end its members. {REMEDIES[kind]}"

    async def _broker_of(self, group_id: str) -> BrokerConnection:
        node_id = self._leader_of(self._service.partition_of(group_id))
        if node_id < 0:
            raise ConnectionLost("no leader of the offsets is known")
        return await self._cluster.lane(node_id, Lane.MOVES)

    async def remove_adopted(self, group_id: str, group: Native) -> None:
        """Removes from the broker's group the members that are members here. Raises one of NO_ANSWER."""
        member_ids = self._core.member_ids(group_id)
        members = [m for m in group.members if m.member_id in member_ids]
        if members:
            node_id = self._leader_of(self._service.partition_of(group_id))
            conn = await self._cluster.lane(node_id, Lane.MOVES)
            if group.kind in (native.SHARE, native.STREAMS):
                await native.leave_one_by_one(conn, replace(group, members=tuple(members)), group_id, ANSWER_S)
            else:
                await native.send_away(conn, group_id, members, "the group is taken over by the sidecars", ANSWER_S)
