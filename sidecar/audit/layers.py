"""The tables of bronze and silver: what was in the topic, as bytes and by kind of record. Gold: gold/tables.py.

Bronze is the topic itself. A record is named by its partition and offset, so writing it twice changes nothing, and
everything else can be made from it again. Silver has a table for each kind of record, with the fields of all versions
of its schema: a field that a version does not have is null.
"""

from __future__ import annotations

from sidecar.audit.columns import (
    BYTES,
    DATE,
    FLAG,
    INT,
    LONG,
    TEXT,
    TIME,
    Column,
    Table,
    by_name,
    many,
    record,
)

BRONZE = Table(
    "bronze",
    "records",
    "Every record of the state topic that was read, as it was.",
    ("state_partition", "offset"),
    (
        Column("day", DATE, "Of `log_time`, in UTC."),
        Column("state_partition", INT, "Partition of the state topic. A group has all its records in one."),
        Column("offset", LONG, "Of the record in its partition."),
        Column("log_ms", LONG, "Timestamp of the record, Unix ms: by its writer's clock, or the broker's."),
        Column("log_time", TIME, "The same."),
        Column("log_time_type", TEXT, "`create`: by its writer's clock; `append`: by the broker's.", "unknown"),
        Column("kind", TEXT, "Kind of the record, from its key.", "the key cannot be read"),
        Column("group_id", TEXT, "From the key; empty where the record is no group's.", "the key cannot be read"),
        Column("sub_id", TEXT, "From the key.", "the key cannot be read"),
        Column("key", BYTES, "The key itself.", "there was none"),
        Column("value", BYTES, "The value itself.", "a tombstone"),
        Column("headers", many(record(name=TEXT, value=BYTES)), "The headers, in their order."),
        Column("fingerprint", TEXT, "Of the value's schema (CRC-64-AVRO, hex).", "the value names none"),
    ),
    by=("day", "state_partition"),
)

COMMON = (
    Column("state_partition", INT, "Partition of the state topic."),
    Column("offset", LONG, "Of the record in its partition."),
    Column("log_ms", LONG, "Timestamp of the record, Unix ms."),
    Column("log_time", TIME, "The same."),
    Column("written_ms", LONG, "By the writer's clock, Unix ms.", "a tombstone of an earlier version"),
    Column("written_time", TIME, "The same.", "a tombstone of an earlier version"),
    Column("group_id", TEXT, "The group; empty where the record is no group's."),
    Column("owner_epoch", LONG, "Fence of the writer.", "the record names none"),
    Column("claimed_epoch", LONG, "Owner epoch of the last claim before this record.", "no claim is known"),
    Column("revision", LONG, "Rises by one with each record of its key.", "a tombstone of an earlier version"),
    Column("deleted", FLAG, "A tombstone: all columns behind `why` are null but those that are in its key."),
    Column("why", TEXT, "What made it be written."),
)
PLACES = many(record(topic_id=TEXT, topic=TEXT, partitions=many(INT)))
"""`topic_id` as Kafka's tools show it (base64); `topic`: its name when this was written, empty if unknown."""
OWNED = many(record(topic_id=TEXT, topic=TEXT, partitions=many(INT), epochs=many(INT)))
"""`epochs`: of each partition, in which it was assigned (KIP-1251)."""
NAMED = many(record(topic=TEXT, partitions=many(INT)))
TASKS = many(record(subtopology=TEXT, partitions=many(INT)))
OWNED_TASKS = many(record(subtopology=TEXT, partitions=many(INT), epochs=many(INT)))
PAIRS = many(record(name=TEXT, value=TEXT))
INTERNAL_TOPICS = many(
    record(name=TEXT, partitions=INT, replication_factor=INT, configs=many(record(key=TEXT, value=TEXT)))
)
SUBTOPOLOGIES = many(
    record(
        subtopology=TEXT,
        source_topics=many(TEXT),
        repartition_sink_topics=many(TEXT),
        repartition_source_topics=INTERNAL_TOPICS,
        changelog_topics=INTERNAL_TOPICS,
        copartition_groups=many(record(source_topics=many(INT), repartition_source_topics=many(INT))),
    )
)
ROLES = ("active", "standby", "warmup")
MEMBER = Column("member_id", TEXT, "The member.")


GONE = "a tombstone"
EPOCH = (
    Column("epoch", INT, "Group epoch.", GONE),
    Column("metadata_hash", LONG, "Over what is known of the topics that the group reads.", GONE),
)
TARGET = (
    Column("epoch", INT, "Epoch of the target assignment.", GONE),
    Column("assignment_timestamp_ms", LONG, "When the calculation ended; 0: never.", GONE),
    Column("assignor", TEXT, "Which assignor.", GONE),
)
EPOCHS = (
    Column("member_epoch", INT, "Member epoch.", GONE),
    Column("previous_epoch", INT, "The one before.", GONE),
)
INSTANCE = Column("instance_id", TEXT, "Of a static member.", "a dynamic member")
CLIENT = (
    Column("rack_id", TEXT, "Its rack.", "it names none"),
    Column("client_id", TEXT, "Its client id.", GONE),
    Column("client_host", TEXT, "Where it connects from.", GONE),
)
NAMES = Column("topic_names", many(TEXT), "What it subscribes to by name.", GONE)
REBALANCE_TIMEOUT = Column("rebalance_timeout_ms", INT, "How long it may take to give partitions up.", GONE)


def _silver(kind: str, name: str, doc: str, *columns: Column) -> tuple[str, Table]:
    return kind, Table("silver", name, doc, ("state_partition", "offset"), (*COMMON, *columns))


SILVER: dict[str, Table] = dict(
    (
        _silver(
            "group",
            "groups",
            "Group epochs (KIP-848).",
            *EPOCH,
        ),
        _silver(
            "member",
            "members",
            "Members of consumer groups, as they subscribe.",
            MEMBER,
            INSTANCE,
            *CLIENT,
            REBALANCE_TIMEOUT,
            NAMES,
            Column("topic_regex", TEXT, "What it subscribes to by pattern.", "no pattern"),
            Column("server_assignor", TEXT, "The assignor that it asks for.", "it leaves that to the group"),
            Column("session_timeout_ms", INT, "Of a member that speaks the classic protocol.", "it does not"),
            Column("protocol_names", many(TEXT), "Of a member that speaks the classic protocol.", "it does not"),
        ),
        _silver(
            "static_member",
            "static_members",
            "Which member holds an instance id (KIP-345).",
            Column("instance_id", TEXT, "The instance id."),
            Column("member_id", TEXT, "The member that holds it.", GONE),
        ),
        _silver(
            "target_metadata",
            "targets",
            "Epochs of target assignments, and when they were computed (KIP-1263).",
            *TARGET,
        ),
        _silver(
            "target_member",
            "target_members",
            "What a member shall own.",
            MEMBER,
            Column("partitions", PLACES, "The partitions.", GONE),
        ),
        _silver(
            "current",
            "current",
            "What a member of a consumer group owns.",
            MEMBER,
            *EPOCHS,
            Column("state", TEXT, "STABLE, UNREVOKED_PARTITIONS or UNRELEASED_PARTITIONS.", GONE),
            Column("assigned", OWNED, "What it may own.", GONE),
            Column("pending", OWNED, "What it must give up and has not yet given up.", GONE),
        ),
        _silver(
            "regex",
            "regexes",
            "Topics that a pattern stands for.",
            Column("regex", TEXT, "The pattern."),
            Column("topics", many(TEXT), "The topics.", GONE),
            Column("names_version", INT, "Of the list of topics in which they were looked up.", GONE),
            Column("resolved_ms", LONG, "When, Unix ms.", GONE),
        ),
        _silver(
            "config",
            "settings",
            "Settings of a group, or of the brokers where the group id is empty.",
            Column("name", TEXT, "Name of the setting."),
            Column("value", TEXT, "Its value, as text.", GONE),
        ),
        _silver(
            "owner_claim",
            "claims",
            "A sidecar took the partition over.",
            Column("claim", TEXT, "The owner epoch that the key names; one of -1 is a proof and claims nothing."),
            Column("node_id", INT, "Broker that the owner stands beside.", GONE),
            Column("address", TEXT, "Where clients reach it.", GONE),
            Column("member_id", TEXT, "Its member id in the sidecars' own group.", GONE),
            Column("generation", INT, "Generation of the sidecars' own group.", GONE),
            Column("producer_id", LONG, "Of its fence.", GONE),
            Column("producer_epoch", INT, "Of its fence.", GONE),
        ),
        _silver(
            "classic_group",
            "classic_groups",
            "States of classic groups.",
            Column("state", TEXT, "Empty, PreparingRebalance, CompletingRebalance or Stable.", GONE),
            Column("generation", INT, "Rises by one whenever a join phase ends.", GONE),
            Column("protocol_type", TEXT, "`consumer` for consumers.", "none is known"),
            Column("protocol", TEXT, "The protocol that was selected.", "none is"),
            Column("leader", TEXT, "The member that assigns.", "there is none"),
            Column("assigned_generation", INT, "The last generation whose assignments are known.", GONE),
            Column("since_ms", LONG, "When it came into this state, Unix ms.", GONE),
            Column("adopted", FLAG, "Taken over from the broker, and its members have not joined yet.", GONE),
        ),
        _silver(
            "classic_member",
            "classic_members",
            "Members of classic groups, as they joined.",
            MEMBER,
            Column("instance_id", TEXT, "Of a static member.", "a dynamic member"),
            Column("client_id", TEXT, "Its client id.", GONE),
            Column("client_host", TEXT, "Where it connects from.", GONE),
            Column("session_timeout_ms", INT, "Its session.", GONE),
            Column("rebalance_timeout_ms", INT, "How long it may take to join again.", GONE),
            Column("protocol_names", many(TEXT), "In the member's order of preference.", GONE),
            Column("topic_names", many(TEXT), "What it subscribes to.", "it is no consumer"),
            Column("rack_id", TEXT, "Its rack.", "it names none"),
            Column("id_told", FLAG, "Its client knew its member id then.", GONE),
            Column("generation", INT, "That of the group when this was written.", GONE),
            Column(
                "stale_claims",
                many(record(topic=TEXT, partitions=many(INT), generation=INT, holder=TEXT)),
                "Partitions that it says it owns, but that were given to others since (KIP-792).",
                GONE,
            ),
        ),
        _silver(
            "classic_assignment",
            "classic_assignments",
            "What the leader of a classic group assigned.",
            MEMBER,
            Column("generation", INT, "In which it was first assigned so.", GONE),
            Column("assigned", NAMED, "The partitions.", "these bytes are no assignment of a consumer"),
            Column("assignment_bytes", INT, "How many bytes the leader sent.", GONE),
        ),
        _silver("share_group", "share_groups", "Group epochs of share groups (KIP-932).", *EPOCH),
        _silver("share_member", "share_members", "Members of share groups, as they subscribe.", MEMBER, *CLIENT, NAMES),
        _silver("share_target_metadata", "share_targets", "Epochs of target assignments of share groups.", *TARGET),
        _silver(
            "share_target_member",
            "share_target_members",
            "What a member of a share group shall have.",
            MEMBER,
            Column("partitions", PLACES, "The partitions.", GONE),
        ),
        _silver(
            "share_current",
            "share_current",
            "What a member of a share group has. Others may have it, too.",
            MEMBER,
            *EPOCHS,
            Column("assigned", PLACES, "The partitions.", GONE),
        ),
        _silver(
            "share_placeholder",
            "share_placeholders",
            "The owner's member in the broker's share group of the same name, and what the broker has initialised.",
            Column("member_id", TEXT, "The member's id at the broker.", GONE),
            Column("keeper", INT, "Node id of the broker that coordinates that group.", GONE),
            Column("topic_names", many(TEXT), "What the member subscribes to there.", GONE),
            Column("since_ms", LONG, "When the broker took the member, Unix ms.", GONE),
            Column("initialised", PLACES, "Partitions whose share state the broker has initialised.", GONE),
        ),
        _silver(
            "streams_group",
            "streams_groups",
            "Group epochs of streams groups (KIP-1071).",
            *EPOCH,
            Column("validated_topology_epoch", INT, "Epoch of the topology that was ready then; -1: none was.", GONE),
            Column("assignment_configs", PAIRS, "Settings of the assignor.", GONE),
            Column("delay_until_ms", LONG, "There is no target before then, Unix ms; 0: at any time.", GONE),
            Column("endpoint_epoch", INT, "Epoch of the endpoint information.", GONE),
            Column("shutdown_member", TEXT, "Who asked for the end of the application.", "nobody has"),
        ),
        _silver(
            "streams_topology",
            "streams_topologies",
            "Topologies of streams applications.",
            Column("epoch", INT, "Topology epoch.", GONE),
            Column("subtopologies", SUBTOPOLOGIES, "As its members sent it.", GONE),
            Column("partial", FLAG, "Taken over from a broker, which says nothing of copartition groups.", GONE),
        ),
        _silver(
            "streams_member",
            "streams_members",
            "Members of streams groups.",
            MEMBER,
            INSTANCE,
            *CLIENT,
            REBALANCE_TIMEOUT,
            Column("topology_epoch", INT, "Epoch of the topology that it joined with.", GONE),
            Column("process_id", TEXT, "The Streams instance that it is a thread of.", GONE),
            Column("endpoint", record(host=TEXT, port=INT), "For Interactive Queries.", "it names none"),
            Column("client_tags", PAIRS, "Its tags.", GONE),
        ),
        _silver(
            "streams_target_metadata", "streams_targets", "Epochs of target assignments of streams groups.", *TARGET
        ),
        _silver(
            "streams_target_member",
            "streams_target_members",
            "Tasks that a member of a streams group shall have.",
            MEMBER,
            *(Column(role, TASKS, f"Its {role} tasks.", GONE) for role in ROLES),
        ),
        _silver(
            "streams_current",
            "streams_current",
            "Tasks that a member of a streams group has.",
            MEMBER,
            *EPOCHS,
            Column("state", TEXT, "STABLE, UNREVOKED_TASKS or UNRELEASED_TASKS.", GONE),
            Column("active", OWNED_TASKS, "Its active tasks.", GONE),
            Column("standby", TASKS, "Its standby tasks.", GONE),
            Column("warmup", TASKS, "Its warm-up tasks.", GONE),
            Column("pending_active", OWNED_TASKS, "Active tasks that it must give up and has not yet.", GONE),
            Column("pending_standby", TASKS, "Standby tasks that it must give up and has not yet.", GONE),
            Column("pending_warmup", TASKS, "Warm-up tasks that it must give up and has not yet.", GONE),
        ),
        _silver(
            "schema",
            "schemas",
            "Schemas of values.",
            Column("fingerprint", TEXT, "CRC-64-AVRO, hex."),
            Column("text", TEXT, "The schema, JSON.", GONE),
        ),
    )
)
"""Kind of record -> its table."""

CORRUPT = Table(
    "silver",
    "corrupt",
    "Records that cannot be read, or whose kind is not known here.",
    ("state_partition", "offset"),
    (
        *COMMON[:4],
        Column("kind", TEXT, "From the key.", "the key cannot be read"),
        Column("group_id", TEXT, "From the key.", "the key cannot be read"),
        Column("sub_id", TEXT, "From the key.", "the key cannot be read"),
        Column("reason", TEXT, "Why it cannot be read."),
        Column("key", BYTES, "The key itself.", "there was none"),
        Column("value", BYTES, "The value itself.", GONE),
    ),
)
SILVER_TABLES = by_name((*SILVER.values(), CORRUPT))
