"""The table of metrics: base units, closed label sets, no ids of members. docs/reference/metrics.md is made from it.

The core's `Count` and `Observe` effects, the coordinator and the fronts name their metrics by the keys of `METRICS`.
`kafka` names what Kafka itself has for it: a metric of its group coordinator (KIP-848, KIP-1263; the group
`group-coordinator-metrics`, if nothing else is said), or another one; "" if there is nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from prometheus_client import Counter, Gauge, Histogram


@dataclass(frozen=True)
class Metric:
    kind: type[Counter | Gauge | Histogram]
    name: str
    help: str
    labels: tuple[str, ...] = ()
    kafka: str = ""
    buckets: tuple[float, ...] = ()
    """Upper bounds of a histogram, in its unit."""


def _seconds(*ms: float) -> tuple[float, ...]:
    return tuple(m / 1000 for m in ms)


LAGS = _seconds(1, 2, 5, 10, 15, 20, 30, 40, 50, 75, 100, 150, 200, 300, 500, 750, 1_000, 2_000, 5_000)
ANSWERS = _seconds(0.1, 0.25, 0.5, 1, 2, 5, 10, 20, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 60_000)
APPENDS = _seconds(0.5, 1, 2, 3, 5, 7.5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000)
TAKEOVERS = _seconds(5, 10, 20, 50, 100, 200, 300, 500, 750, 1_000, 2_000, 5_000, 10_000, 30_000)
SETTLED = _seconds(10, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 120_000, 300_000, 900_000)

FRONT: dict[str, Metric] = {
    "opened": Metric(
        Counter,
        "sidecar_connections_opened",
        "Client connections that were accepted.",
        kafka="socket-server-metrics: connection-creation-rate",
    ),
    "closed": Metric(
        Counter,
        "sidecar_connections_closed",
        "Client connections that were closed; cause: see Limits in docs/operate/operations.md.",
        ("cause",),
        kafka="socket-server-metrics: connection-close-rate",
    ),
    "active": Metric(
        Gauge,
        "sidecar_connections_active",
        "Client connections open now.",
        kafka="socket-server-metrics: connection-count",
    ),
    "tls_handshakes": Metric(
        Counter,
        "sidecar_tls_handshakes",
        "Clients that came for TLS, by what became of them: done, or why it did not come about.",
        ("outcome",),
        kafka="socket-server-metrics: successful-authentication-total, failed-authentication-total",
    ),
    "tls_under_way": Metric(Gauge, "sidecar_tls_handshakes_under_way", "TLS handshakes that have begun."),
    "tls_reloads": Metric(
        Counter, "sidecar_tls_reloads", "How often the listener's TLS files were read again.", ("result",)
    ),
    "requests": Metric(
        Counter,
        "sidecar_requests",
        "Requests that the sidecar looked into, steady heartbeats among them.",
        ("api", "decision"),
        kafka="kafka.network:type=RequestMetrics,name=RequestsPerSec",
    ),
    "steady": Metric(
        Counter,
        "sidecar_steady_replies",
        "Heartbeats that a front answered under a grant of the coordinator. They are in sidecar_requests_total, and not "
        "in sidecar_request_seconds.",
    ),
    "request_seconds": Metric(
        Histogram,
        "sidecar_request_seconds",
        "From a request to its answer, of requests that went through a handler, with what waits on "
        "purpose: other members (join_group, sync_group), brokers (offset_commit), a takeover.",
        ("api",),
        kafka="kafka.network:type=RequestMetrics,name=TotalTimeMs",
        buckets=ANSWERS,
    ),
    "commits": Metric(
        Counter,
        "sidecar_commits",
        "OffsetCommit and TxnOffsetCommit requests of managed groups; result: accepted, or the error of "
        "the first partition that was refused.",
        ("result",),
        kafka="offset-commit-count, which counts partitions",
    ),
    "refused": Metric(
        Counter,
        "sidecar_frames_refused",
        "Frames that closed their connection: malformed, too large, of an unknown version, or not Kafka's at all.",
        ("reason",),
    ),
    "tls_expiry": Metric(
        Gauge,
        "sidecar_tls_certificate_expiry_seconds",
        "When the listener's certificate ends, in Unix time; 0: it has none.",
    ),
    "paused": Metric(
        Counter,
        "sidecar_reading_paused",
        "How often a client was read no further for a while, by reason.",
        ("why",),
        kafka="socket-server-metrics: MemoryPoolAvgDepletedPercent, for the reason memory",
    ),
    "links_kept": Metric(
        Counter,
        "sidecar_links_kept",
        "Requests of the sidecar's own on a client's connection to the broker, which would end it as idle "
        "while the client sends heartbeats.",
    ),
    "probes": Metric(
        Counter,
        "sidecar_probes",
        "Requests of more than limits.unproven_bytes before which the broker was asked whether it lets the client in.",
    ),
    "remembered": Metric(
        Gauge,
        "sidecar_remembered_bytes",
        "What is remembered of connections, of limits.remembered_bytes: `rights` or `steady` heartbeats.",
        ("what",),
    ),
    "forgotten": Metric(
        Counter,
        "sidecar_forgotten",
        "How often all of that was forgotten, because it had come to the limit.",
        ("what",),
    ),
    "broker_silent": Metric(
        Gauge,
        "sidecar_broker_silent",
        "1 while the broker owes answers and gives none (limits.broker_silence_ms): connections that need it are closed.",
    ),
    "broker_silences": Metric(Counter, "sidecar_broker_silences", "How often the broker has fallen silent."),
    "members_refused": Metric(
        Counter,
        "sidecar_members_refused",
        "Joins refused by a limit: `bytes` of the members of a group or of all, their number (`size`), `protocols` of one, "
        "regular `expressions` of a group, or the oldest `pending` member id; also task `offsets` that were left out.",
        ("limit",),
    ),
    "held_bytes": Metric(
        Gauge,
        "sidecar_members_bytes",
        "About what the members of all groups here take in memory, of limits.members_bytes.",
    ),
    "regex_cut": Metric(
        Counter,
        "sidecar_regex_runs_cut",
        "Runs that matched regular expressions of a group and ended before the last one, after consumer.regex_time_ms.",
    ),
    "topic_looks": Metric(
        Counter,
        "sidecar_topic_looks",
        "Looks at topics that were `looked`, and waits for one that were over before it, `late`. metadata_look_ms has the rate.",
        ("outcome",),
    ),
    "reserved": Metric(
        Gauge,
        "sidecar_reserved_bytes",
        "What sessions have together of the common half of limits.queued_bytes.",
        kafka="kafka.network:type=SocketServer,name=MemoryPoolUsed",
    ),
    "unread": Metric(
        Gauge,
        "sidecar_unread_bytes",
        "What was sent to clients and to the broker, and is not read there: limits.all_unread_bytes.",
    ),
    "cut": Metric(
        Counter,
        "sidecar_requests_cut",
        "Requests that were refused or answered in part because of a limit; limit: its name in `limits`.",
        ("limit",),
    ),
    "handler_faults": Metric(
        Counter,
        "sidecar_handler_faults",
        "Requests whose handler broke, which is a bug: the connection was closed, and the log names the handler.",
    ),
    "task_faults": Metric(
        Counter,
        "sidecar_task_faults",
        "Background tasks of the process that broke, which is a bug: the log names the task. Ports stay open.",
    ),
    "worker_restarts": Metric(
        Gauge,
        "sidecar_worker_restarts",
        "Workers that died and were started again by this worker's parent, since `sidecar run`.",
    ),
    "coordinator_ends": Metric(
        Counter,
        "sidecar_coordinator_ends",
        "Coordinators that ended and were started again in this process, by cause: bug; state_topic: "
        "deleted, made anew or has lost records; start: something that it needs is not as it must be.",
        ("cause",),
    ),
    "denials": Metric(
        Gauge,
        "sidecar_denials",
        "What brokers refuse to the sidecar itself now: credentials (authentication) or rights (authorization). The log "
        "and /readyz name each.",
        ("kind",),
    ),
}

GROUPS: dict[str, Metric] = {
    "groups": Metric(
        Gauge,
        "sidecar_groups",
        "Groups whose owner is this sidecar, by kind and state.",
        ("kind", "state"),
        kafka="group-count{protocol}, consumer-group-count{state}; NumGroups, NumGroupsStable ... of GroupMetadataManager",
    ),
    "members": Metric(
        Gauge,
        "sidecar_members",
        "Members of these groups, by kind of the group and protocol that they speak. Where the two "
        "differ, an online upgrade is under way.",
        ("kind", "protocol"),
    ),
    "rebalances": Metric(
        Counter,
        "sidecar_rebalances",
        "Rises of a consumer group's epoch; rebalances of classic groups that began. reason: joined, rejoined, left, "
        "session_timeout, rebalance_timeout, subscription, topics, operator, moved, protocol or size.",
        ("kind", "reason"),
        kafka="consumer-group-rebalance-count, for kind consumer",
    ),
    "completed_rebalances": Metric(
        Counter,
        "sidecar_completed_rebalances",
        "Rebalances of classic groups that came to an assignment.",
        ("kind",),
        kafka="group-completed-rebalance-count",
    ),
    "settle_seconds": Metric(
        Histogram,
        "sidecar_settle_seconds",
        "From the begin of a rebalance until all members have reached a consumer group's epoch, or the "
        "leader's assignment of a classic group is there. A rebalance that begins meanwhile prolongs it.",
        ("kind",),
        buckets=SETTLED,
    ),
    "group_rebalances": Metric(
        Gauge,
        "sidecar_group_rebalances",
        "Rebalances within the last 10 minutes, of the 5 groups here that had most; 64 are counted at most.",
        ("consumergroup",),
    ),
    "group_unsettled": Metric(
        Gauge,
        "sidecar_group_unsettled_seconds",
        "For how long a rebalance has been under way, of the 5 groups here for which that is longest.",
        ("consumergroup",),
    ),
    "assignments": Metric(
        Counter,
        "sidecar_assignments",
        "Target assignments that were computed and written. If there are many more than rebalances, look "
        "at consumer.assignment.interval.ms.",
        ("assignor",),
    ),
    "partitions_moved": Metric(
        Counter,
        "sidecar_partitions_moved",
        "Partitions that a new target gives to another member, or to a first one. Not of classic groups.",
        ("assignor",),
    ),
    "assignor_failures": Metric(
        Counter,
        "sidecar_assignor_failures",
        "Assignor runs that failed or took too long. The group stays on its last target, and the log says why.",
        ("assignor",),
    ),
    "migrations": Metric(
        Counter, "sidecar_migrations", "Groups that changed their protocol while they lived; to: which.", ("to",)
    ),
    "stale_claims": Metric(
        Counter,
        "sidecar_stale_claims",
        "Topics of which a classic member claimed partitions that others have (KIP-792); told: whether the member said "
        "its generation.",
        ("told",),
    ),
    "groups_leaving": Metric(
        Gauge, "sidecar_groups_leaving", "Groups that are to go back to the brokers and have records here still."
    ),
    "groups_forgotten": Metric(
        Counter,
        "sidecar_groups_forgotten",
        "Groups without members that were removed because their offsets were gone.",
        kafka="offset-expiration-count, which counts partitions",
    ),
    "moves": Metric(
        Counter, "sidecar_group_moves", "Groups taken in from the brokers and given back to them.", ("to", "outcome")
    ),
    "unreadable_groups": Metric(
        Gauge,
        "sidecar_unreadable_groups",
        "Groups served by nobody, because their records are damaged, contradict each other, or are of a newer version.",
    ),
}

STATE: dict[str, Metric] = {
    "partitions": Metric(
        Gauge,
        "sidecar_partitions",
        "Partitions of the state topic as this sidecar stands to them: elsewhere, fencing, claiming, replaying, serving "
        "or pausing.",
        ("state",),
        kafka="num-partitions{state}: active is serving; loading is fencing, claiming and replaying; failed is pausing",
    ),
    "partition_owned": Metric(
        Gauge,
        "sidecar_partition_owned",
        "1 if this sidecar serves the partition of the state topic. The sum over all sidecars is 1 for each partition.",
        ("partition",),
    ),
    "owned": Metric(
        Gauge,
        "sidecar_owned_partitions",
        "Partitions of the state topic served here. The sum over all sidecars is their number.",
    ),
    "takeover_seconds": Metric(
        Histogram,
        "sidecar_takeover_seconds",
        "From the assignment of a partition of the state topic to serving it.",
        kafka="partition-load-time-avg, partition-load-time-max",
        buckets=TAKEOVERS,
    ),
    "append_seconds": Metric(
        Histogram,
        "sidecar_append_seconds",
        "From when a batch of records is put to the leader of its partition until all in-sync replicas have it. Answers "
        "wait for that.",
        kafka="event-purgatory-time-ms, batch-flush-time-ms",
        buckets=APPENDS,
    ),
    "tail_lag": Metric(
        Gauge,
        "sidecar_tail_lag_records",
        "Offsets of the state topic that this sidecar has not read yet. A takeover has to wait for them.",
    ),
    "parked": Metric(
        Gauge,
        "sidecar_parked_replies",
        "Requests that the coordinator has not answered yet. At limits.parked_replies, clients get "
        "COORDINATOR_NOT_AVAILABLE.",
        kafka="event-queue-size",
    ),
    "fenced": Metric(
        Counter,
        "sidecar_fenced",
        "Partitions dropped after a failed append; why: fenced, another sidecar owns it now, or write lost, mostly a "
        "timeout. Expect a few at a failover.",
        ("why",),
    ),
    "void_records": Metric(
        Gauge,
        "sidecar_void_records",
        "Records of the state topic from others than the owner at that time, seen since the start. "
        "Readers ignore them; there should be none.",
    ),
    "state_topic_faults": Metric(
        Gauge, "sidecar_state_topic_faults", "Settings of the state topic that may lose state; the log names them."
    ),
    "invariant_violations": Metric(
        Counter,
        "sidecar_invariant_violations",
        "Contradictions in the state, turns that broke, records that cannot be decoded.",
    ),
    "patterns_differ": Metric(
        Gauge,
        "sidecar_patterns_differ",
        "Sidecars whose own patterns of groups are others than ours, while none are stored.",
    ),
    "placeholders_wanted": Metric(
        Gauge, "sidecar_placeholders_wanted", "Groups with members here: each has a placeholder at its broker."
    ),
    "placeholders_joined": Metric(Gauge, "sidecar_placeholders_joined", "Placeholders that their brokers know."),
    "placeholders_lost": Metric(
        Counter,
        "sidecar_placeholders_lost",
        "Placeholders that their brokers did not know any more. Expect some at failovers.",
    ),
    "placeholder_troubles": Metric(
        Counter, "sidecar_placeholder_troubles", "Attempts to let a placeholder join, or to give one up, that failed."
    ),
    "share_placeholders": Metric(
        Gauge,
        "sidecar_share_placeholders",
        "Placeholders in the brokers' share groups: joining, initialising (a broker has not initialised the state of "
        "all partitions: they are not assigned), held, refused (a right is missing, or the name is another group's), "
        "leaving.",
        ("state",),
    ),
    "placeholder_seconds": Metric(
        Histogram,
        "sidecar_placeholder_seconds",
        "From when a placeholder is wanted until commits go on in its name.",
        buckets=TAKEOVERS,
    ),
}

PROCESS: dict[str, Metric] = {
    "ready": Metric(Gauge, "sidecar_ready", "1 if /readyz says so: the sidecar serves what it was assigned."),
    "build": Metric(
        Gauge,
        "sidecar_build_info",
        "Always 1; the version that runs, and whether its kernels are compiled or Python.",
        ("version", "kernel"),
        kafka="kafka.server:type=app-info",
    ),
    "limit": Metric(
        Gauge,
        "sidecar_limit",
        "The limits.connections and limits.parked_replies in force, for comparison with what is used.",
        ("of",),
    ),
    "loop_lag": Metric(
        Histogram,
        "sidecar_loop_lag_seconds",
        "How much later than asked a timer came: for so long the event loop was busy, and whoever sent "
        "something waited.",
        kafka="event-queue-time-ms",
        buckets=LAGS,
    ),
    "loop_busy": Metric(
        Histogram,
        "sidecar_loop_busy_seconds",
        "How much of that the event loop worked itself; the rest it waited for a processor.",
        kafka="event-processing-time-ms",
        buckets=LAGS,
    ),
    "admin_closed": Metric(
        Counter,
        "sidecar_admin_connections_closed",
        "Connections to the admin endpoint that it closed: crowded_out (all places were taken, and another one came), "
        "first_request_timeout, request_timeout, handshake.",
        ("cause",),
    ),
    "exporter_seconds": Metric(
        Gauge, "sidecar_exporter_refresh_seconds", "How long the last round of the exporter of offsets and lags took."
    ),
    "exporter_age": Metric(
        Gauge,
        "sidecar_exporter_age_seconds",
        "How old the exporter's values are; -1: there are none, because it is off or has not ended its first round.",
    ),
    "exporter_series": Metric(Gauge, "sidecar_exporter_series", "Series that the exporter of offsets and lags gives."),
    "exporter_cut": Metric(
        Gauge,
        "sidecar_exporter_series_cut",
        "Series that the exporter leaves out because there would be more than exporter.series.",
    ),
    "exporter_troubles": Metric(
        Counter,
        "sidecar_exporter_troubles",
        "Questions of the exporter that brokers did not answer; what they concern is missing until the next round.",
    ),
}

METRICS: dict[str, Metric] = {**FRONT, **GROUPS, **STATE, **PROCESS}
PARTS = {"Clients": FRONT, "Groups": GROUPS, "State": STATE, "Process": PROCESS}
