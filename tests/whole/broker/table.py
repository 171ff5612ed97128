"""The APIs of the simulated brokers, with the versions that Kafka 4.3.1 tells, and who answers each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sidecar.wire.generated import add_offsets_to_txn as ao
from sidecar.wire.generated import add_partitions_to_txn as ap
from sidecar.wire.generated import alter_configs as ac
from sidecar.wire.generated import api_versions as av
from sidecar.wire.generated import consumer_group_describe as cd
from sidecar.wire.generated import consumer_group_heartbeat as ch
from sidecar.wire.generated import create_topics as ct
from sidecar.wire.generated import delete_groups as dl
from sidecar.wire.generated import delete_topics as dt
from sidecar.wire.generated import describe_configs as dc
from sidecar.wire.generated import describe_groups as dg
from sidecar.wire.generated import describe_share_group_offsets as do
from sidecar.wire.generated import end_txn as et
from sidecar.wire.generated import find_coordinator as fc
from sidecar.wire.generated import heartbeat as hb
from sidecar.wire.generated import incremental_alter_configs as ia
from sidecar.wire.generated import init_producer_id as ip
from sidecar.wire.generated import join_group as jg
from sidecar.wire.generated import leave_group as lg
from sidecar.wire.generated import list_config_resources as lr
from sidecar.wire.generated import list_groups as ls
from sidecar.wire.generated import list_offsets as lo
from sidecar.wire.generated import metadata as md
from sidecar.wire.generated import offset_commit as oc
from sidecar.wire.generated import offset_delete as od
from sidecar.wire.generated import offset_fetch as of
from sidecar.wire.generated import produce as pr
from sidecar.wire.generated import share_group_describe as sd
from sidecar.wire.generated import share_group_heartbeat as sh
from sidecar.wire.generated import streams_group_describe as td
from sidecar.wire.generated import streams_group_heartbeat as th
from sidecar.wire.generated import sync_group as sg
from sidecar.wire.generated import txn_offset_commit as tc
from tests.whole.broker import api_cluster as cluster
from tests.whole.broker import api_configs as configs
from tests.whole.broker import api_data as data
from tests.whole.broker import api_groups as groups
from tests.whole.broker import api_offsets as offsets
from tests.whole.broker import api_share as share
from tests.whole.broker import api_streams as streams
from tests.whole.broker.codes import Err
from tests.whole.broker.context import Context, Reply
from tests.whole.broker.node import Node

API_VERSIONS = 18
FEATURES = {
    "group.version": (0, 1, 1),
    "kraft.version": (0, 1, 0),
    "metadata.version": (7, 30, 30),
    "share.version": (0, 1, 1),
    "streams.version": (0, 1, 1),
    "transaction.version": (0, 2, 2),
    "eligible.leader.replicas.version": (0, 1, 1),
}
"""Least and most supported level, and the one that is finalized."""
Handler = Callable[[Context, Any, Reply], None]


@dataclass(frozen=True, slots=True)
class ApiRow:
    key: int
    low: int
    high: int
    flexible_from: int
    decode: Callable[[int, bytes, int], Any]
    handle: Handler


def _api_versions(ctx: Context, req: av.ApiVersionsRequest, reply: Reply) -> None:
    reply(_told(ctx.version, ctx.node.image.version))


class _Encoded:
    """An answer that many are given."""

    def __init__(self, version: int, response: av.ApiVersionsResponse) -> None:
        self._version, self._bytes = version, response.encode(version)

    def encode(self, version: int) -> bytes:
        assert version == self._version
        return self._bytes


@lru_cache(maxsize=256)
def _told(version: int, epoch: int) -> _Encoded:
    supported = [
        av.SupportedFeatureKey(name, low, high)
        for name, (low, high, _) in FEATURES.items()
        if low or version >= 4 or name not in ("kraft.version", "group.version")
    ]
    finalized = [av.FinalizedFeatureKey(name, level, level) for name, (_, _, level) in FEATURES.items() if level]
    return _Encoded(version, av.ApiVersionsResponse(0, _keys(), 0, supported, epoch, finalized))


def _keys() -> list[av.ApiVersion]:
    return [av.ApiVersion(a.key, a.low, a.high) for a in APIS.values()]


def unsupported_api_versions(node: Node) -> av.ApiVersionsResponse:
    """To a client that asks in a version that is not known here: it learns which are (KIP-511)."""
    row = APIS[API_VERSIONS]
    return av.ApiVersionsResponse(Err.UNSUPPORTED_VERSION, [av.ApiVersion(row.key, row.low, row.high)])


# fmt: off
_ROWS: list[tuple[int, int, int, Any, str, Handler]] = [
    (0, 0, 13, pr, "Produce", data.produce),
    (2, 1, 11, lo, "ListOffsets", cluster.list_offsets),
    (3, 0, 13, md, "Metadata", cluster.metadata),
    (8, 2, 10, oc, "OffsetCommit", offsets.offset_commit),
    (9, 1, 10, of, "OffsetFetch", offsets.offset_fetch),
    (10, 0, 6, fc, "FindCoordinator", cluster.find_coordinator),
    (11, 0, 9, jg, "JoinGroup", groups.join_group),
    (12, 0, 4, hb, "Heartbeat", groups.heartbeat),
    (13, 0, 5, lg, "LeaveGroup", groups.leave_group),
    (14, 0, 5, sg, "SyncGroup", groups.sync_group),
    (15, 0, 6, dg, "DescribeGroups", groups.describe_groups),
    (16, 0, 5, ls, "ListGroups", groups.list_groups),
    (18, 0, 4, av, "ApiVersions", _api_versions),
    (19, 2, 7, ct, "CreateTopics", cluster.create_topics),
    (20, 1, 6, dt, "DeleteTopics", cluster.delete_topics),
    (22, 0, 5, ip, "InitProducerId", data.init_producer_id),
    (24, 0, 3, ap, "AddPartitionsToTxn", data.add_partitions_to_txn),
    (25, 0, 4, ao, "AddOffsetsToTxn", data.add_offsets_to_txn),
    (26, 0, 5, et, "EndTxn", data.end_txn),
    (28, 0, 5, tc, "TxnOffsetCommit", offsets.txn_offset_commit),
    (32, 1, 4, dc, "DescribeConfigs", configs.describe_configs),
    (33, 0, 2, ac, "AlterConfigs", configs.alter_configs),
    (42, 0, 2, dl, "DeleteGroups", groups.delete_groups),
    (44, 0, 1, ia, "IncrementalAlterConfigs", configs.alter_incrementally),
    (47, 0, 0, od, "OffsetDelete", offsets.offset_delete),
    (68, 0, 1, ch, "ConsumerGroupHeartbeat", groups.consumer_group_heartbeat),
    (69, 0, 1, cd, "ConsumerGroupDescribe", groups.consumer_group_describe),
    (74, 0, 1, lr, "ListConfigResources", configs.list_config_resources),
    (76, 1, 1, sh, "ShareGroupHeartbeat", share.share_group_heartbeat),
    (77, 1, 1, sd, "ShareGroupDescribe", share.share_group_describe),
    (88, 0, 0, th, "StreamsGroupHeartbeat", streams.streams_group_heartbeat),
    (89, 0, 0, td, "StreamsGroupDescribe", streams.streams_group_describe),
    (90, 0, 1, do, "DescribeShareGroupOffsets", share.describe_share_group_offsets),
]
# fmt: on


def _row(key: int, low: int, high: int, module: Any, name: str, handle: Handler) -> ApiRow:
    upper = "".join(f"_{c}" if c.isupper() else c for c in name).lstrip("_").upper()
    flexible_from = getattr(module, f"{upper}_REQUEST_FLEXIBLE_FROM")
    return ApiRow(key, low, high, flexible_from, getattr(module, f"{name}Request").decode, handle)


APIS: dict[int, ApiRow] = {row[0]: _row(*row) for row in _ROWS}
