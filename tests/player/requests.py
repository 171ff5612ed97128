"""A correct request of each API, as the client would send it that a state knows of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tests.player.states import REBALANCE_MS, SESSION_MS, TOPICS, State, assignment, subscription

Body = dict[str, Any]
GROUP_RESOURCE = 32


def _committed(s: State) -> list[Body]:
    partition = {"partitionIndex": 0, "committedOffset": 7, "committedLeaderEpoch": -1, "committedMetadata": "m"}
    return [{"name": s.topic, "topicId": s.ids[s.topic], "partitions": [partition]}]


def offset_commit(s: State) -> Body:
    return {
        "groupId": s.group,
        "generationIdOrMemberEpoch": s.epoch,
        "memberId": s.member,
        "groupInstanceId": s.instance,
        "topics": _committed(s),
    }


def offset_fetch(s: State) -> Body:
    topics = [{"name": s.topic, "topicId": s.ids[s.topic], "partitionIndexes": [0, 1]}]
    group = {"groupId": s.group, "memberId": s.modern or None, "memberEpoch": s.modern_epoch if s.modern else -1}
    return {"groupId": s.group, "topics": topics, "groups": [{**group, "topics": topics}], "requireStable": True}


def find_coordinator(s: State) -> Body:
    return {"key": s.group, "keyType": 0, "coordinatorKeys": [s.group, s.side.other]}


def join_group(s: State) -> Body:
    return {
        "groupId": s.group,
        "sessionTimeoutMs": SESSION_MS,
        "rebalanceTimeoutMs": REBALANCE_MS,
        "memberId": s.member,
        "groupInstanceId": s.instance,
        "protocolType": s.protocol,
        "protocols": [{"name": "range", "metadata": subscription(TOPICS[1])}],
        "reason": "why",
    }


def heartbeat(s: State) -> Body:
    return {"groupId": s.group, "generationId": s.epoch, "memberId": s.member, "groupInstanceId": s.instance}


def leave_group(s: State) -> Body:
    member = {"memberId": s.member, "groupInstanceId": s.instance, "reason": "why"}
    return {"groupId": s.group, "memberId": s.member, "members": [member]}


def sync_group(s: State) -> Body:
    return {
        **heartbeat(s),
        "protocolType": s.protocol,
        "protocolName": "range",
        "assignments": [{"memberId": s.member, "assignment": assignment(TOPICS[0])}],
    }


def describe_groups(s: State) -> Body:
    return {"groups": [s.group], "includeAuthorizedOperations": True}


def list_groups(s: State) -> Body:
    return {"statesFilter": ["Stable", "Empty"], "typesFilter": ["Classic", "Consumer"]}


def api_versions(s: State) -> Body:
    return {"clientSoftwareName": "player", "clientSoftwareVersion": "1.0"}


def txn_offset_commit(s: State) -> Body:
    return {
        "transactionalId": s.transaction,
        "groupId": s.group,
        "producerId": s.producer,
        "producerEpoch": s.producer_epoch,
        "generationId": s.epoch,
        "memberId": s.member,
        "groupInstanceId": s.instance,
        "topics": _committed(s),
    }


def describe_configs(s: State) -> Body:
    resource = {"resourceType": GROUP_RESOURCE, "resourceName": s.group, "configurationKeys": None}
    return {"resources": [resource], "includeSynonyms": True, "includeDocumentation": True}


def alter_configs(s: State) -> Body:
    configs = [{"name": "consumer.session.timeout.ms", "value": "50000"}]
    return {"resources": [{"resourceType": GROUP_RESOURCE, "resourceName": s.group, "configs": configs}]}


def incremental_alter_configs(s: State) -> Body:
    configs = [{"name": "consumer.session.timeout.ms", "configOperation": 0, "value": "50000"}]
    return {"resources": [{"resourceType": GROUP_RESOURCE, "resourceName": s.group, "configs": configs}]}


def list_config_resources(s: State) -> Body:
    return {"resourceTypes": [GROUP_RESOURCE]}


def delete_groups(s: State) -> Body:
    return {"groupsNames": [s.group]}


def offset_delete(s: State) -> Body:
    partitions = [{"partitionIndex": 0}, {"partitionIndex": 1}]
    return {"groupId": s.group, "topics": [{"name": s.topic, "partitions": partitions}]}


def consumer_group_heartbeat(s: State) -> Body:
    return {
        "groupId": s.group,
        "memberId": s.modern or "a-new-member",
        "memberEpoch": s.modern_epoch,
        "instanceId": s.instance,
        "rackId": None,
        "rebalanceTimeoutMs": SESSION_MS,
        "subscribedTopicNames": [TOPICS[0]],
        "subscribedTopicRegex": None,
        "serverAssignor": None,
        "topicPartitions": [],
    }


def consumer_group_describe(s: State) -> Body:
    return {"groupIds": [s.group], "includeAuthorizedOperations": True}


def share_group_heartbeat(s: State) -> Body:
    return {"groupId": s.group, "memberId": "a-new-member", "memberEpoch": 0, "subscribedTopicNames": [TOPICS[0]]}


def streams_group_heartbeat(s: State) -> Body:
    subtopologies = [{"subtopologyId": "0", "sourceTopics": [TOPICS[0]]}]
    return {
        "groupId": s.group,
        "memberId": "a-new-member",
        "memberEpoch": 0,
        "processId": "p",
        "clientTags": [],
        "rebalanceTimeoutMs": SESSION_MS,
        "topology": {"epoch": 0, "subtopologies": subtopologies},
        "activeTasks": [],
        "standbyTasks": [],
        "warmupTasks": [],
    }


def init_producer_id(s: State) -> Body:
    body = {"transactionalId": s.transaction, "transactionTimeoutMs": 60_000}
    return {**body, "producerId": s.producer, "producerEpoch": s.producer_epoch}


def _transaction(s: State) -> Body:
    return {"transactionalId": s.transaction, "producerId": s.producer, "producerEpoch": s.producer_epoch}


def add_partitions_to_txn(s: State) -> Body:
    topics = [{"name": TOPICS[0], "partitions": [0, 1]}]
    old = {"v3AndBelowTransactionalId": s.transaction, "v3AndBelowProducerId": s.producer}
    old |= {"v3AndBelowProducerEpoch": s.producer_epoch, "v3AndBelowTopics": topics}
    return {**old, "transactions": [{**_transaction(s), "verifyOnly": False, "topics": topics}]}


def add_offsets_to_txn(s: State) -> Body:
    return {**_transaction(s), "groupId": s.group}


def end_txn(s: State) -> Body:
    return {**_transaction(s), "committed": True}


def describe_transactions(s: State) -> Body:
    return {"transactionalIds": [s.transaction]}


def list_transactions(s: State) -> Body:
    return {"durationFilter": -1, "transactionalIdPattern": None}


REQUESTS: Mapping[str, Callable[[State], Body]] = {
    "".join(word.title() for word in f.__name__.split("_")): f
    for f in (
        offset_commit,
        offset_fetch,
        find_coordinator,
        join_group,
        heartbeat,
        leave_group,
        sync_group,
        describe_groups,
        list_groups,
        api_versions,
        txn_offset_commit,
        describe_configs,
        alter_configs,
        incremental_alter_configs,
        list_config_resources,
        delete_groups,
        offset_delete,
        consumer_group_heartbeat,
        consumer_group_describe,
        share_group_heartbeat,
        streams_group_heartbeat,
        init_producer_id,
        add_partitions_to_txn,
        add_offsets_to_txn,
        end_txn,
        describe_transactions,
        list_transactions,
    )
}
"""The APIs that the sidecar serves. Every other one is sent with the defaults of the JSON."""
