"""The handler of each API. Their versions are in wire/apis.py; each file has the notes on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sidecar.api.api_versions import api_versions
from sidecar.api.call import Call, Handler
from sidecar.api.classic import heartbeat, join_group, leave_group, sync_group
from sidecar.api.configs import alter_configs, describe_configs, incremental_alter_configs, list_config_resources
from sidecar.api.consumer_group_describe import consumer_group_describe
from sidecar.api.consumer_group_heartbeat import consumer_group_heartbeat
from sidecar.api.delete_groups import delete_groups
from sidecar.api.describe_groups import describe_groups
from sidecar.api.find_coordinator import find_coordinator
from sidecar.api.list_groups import list_groups
from sidecar.api.metadata import metadata
from sidecar.api.offset_commit import offset_commit, txn_offset_commit
from sidecar.api.offset_delete import offset_delete
from sidecar.api.offset_fetch import offset_fetch
from sidecar.api.sasl import sasl_authenticate
from sidecar.api.share_group_describe import share_group_describe
from sidecar.api.share_group_heartbeat import share_group_heartbeat
from sidecar.api.share_group_offsets import (
    alter_share_group_offsets,
    delete_share_group_offsets,
    describe_share_group_offsets,
)
from sidecar.api.streams_group_describe import streams_group_describe
from sidecar.api.streams_group_heartbeat import (
    streams_group_heartbeat,
    streams_group_topology_description_update,
)
from sidecar.api.transactions import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    describe_transactions,
    end_txn,
    init_producer_id,
    list_transactions,
)
from sidecar.wire.apis import Api

HANDLERS: Mapping[int, Callable[[Call], Handler]] = {
    Api.OFFSET_COMMIT: offset_commit,
    Api.OFFSET_FETCH: offset_fetch,
    Api.FIND_COORDINATOR: find_coordinator,
    Api.JOIN_GROUP: join_group,
    Api.HEARTBEAT: heartbeat,
    Api.LEAVE_GROUP: leave_group,
    Api.SYNC_GROUP: sync_group,
    Api.DESCRIBE_GROUPS: describe_groups,
    Api.LIST_GROUPS: list_groups,
    Api.API_VERSIONS: api_versions,
    Api.METADATA: metadata,
    Api.TXN_OFFSET_COMMIT: txn_offset_commit,
    Api.DESCRIBE_CONFIGS: describe_configs,
    Api.ALTER_CONFIGS: alter_configs,
    Api.INCREMENTAL_ALTER_CONFIGS: incremental_alter_configs,
    Api.LIST_CONFIG_RESOURCES: list_config_resources,
    Api.SASL_AUTHENTICATE: sasl_authenticate,
    Api.DELETE_GROUPS: delete_groups,
    Api.OFFSET_DELETE: offset_delete,
    Api.CONSUMER_GROUP_HEARTBEAT: consumer_group_heartbeat,
    Api.CONSUMER_GROUP_DESCRIBE: consumer_group_describe,
    Api.SHARE_GROUP_HEARTBEAT: share_group_heartbeat,
    Api.SHARE_GROUP_DESCRIBE: share_group_describe,
    Api.DESCRIBE_SHARE_GROUP_OFFSETS: describe_share_group_offsets,
    Api.ALTER_SHARE_GROUP_OFFSETS: alter_share_group_offsets,
    Api.DELETE_SHARE_GROUP_OFFSETS: delete_share_group_offsets,
    Api.STREAMS_GROUP_HEARTBEAT: streams_group_heartbeat,
    Api.STREAMS_GROUP_DESCRIBE: streams_group_describe,
    Api.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE: streams_group_topology_description_update,
    Api.INIT_PRODUCER_ID: init_producer_id,
    Api.ADD_PARTITIONS_TO_TXN: add_partitions_to_txn,
    Api.ADD_OFFSETS_TO_TXN: add_offsets_to_txn,
    Api.END_TXN: end_txn,
    Api.DESCRIBE_TRANSACTIONS: describe_transactions,
    Api.LIST_TRANSACTIONS: list_transactions,
}
READ_THEIR_HEADER = frozenset(
    {Api.CONSUMER_GROUP_HEARTBEAT, Api.JOIN_GROUP, Api.SYNC_GROUP, Api.HEARTBEAT, Api.SHARE_GROUP_HEARTBEAT}
)
"""APIs whose handlers read header and body in one go: their calls begin at the header."""
