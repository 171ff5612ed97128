"""Writes the Grafana boards of deploy/grafana. `python -m tools.boards`, from the repository's root.

Every query has data where sidecars run and clients work; those that only faults give anything to say 0 otherwise.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from tools.grafana import RATE, WIDE, Board, G, I, Panel, as_json, each, number, of_cluster, quantiles, rate

FOLDER = Path("deploy/grafana/dashboards")

FLEET = Board(
    "kafka-group-sidecar-fleet",
    "Group sidecars: fleet",
    {
        "Now": (
            number("Sidecars up", "Sidecars that answer Prometheus.", 'sum(up{job="kafka-group-sidecar"})'),
            number("Ready", "Sidecars that serve what they were assigned.", "sum(sidecar_ready)"),
            number(
                "Partitions without owner",
                "Partitions of the state topic that no sidecar serves.",
                "count(sum by (cluster, partition) (sidecar_partition_owned) == 0) or vector(0)",
            ),
            number("Alerts", "Alerts that fire now.", 'count(ALERTS{alertstate="firing"}) or vector(0)'),
            number("Groups", "Groups of all sidecars.", "sum(sidecar_groups)"),
            number("Members", "Members of these groups.", "sum(sidecar_members)"),
        ),
        "Requests": (
            Panel(
                "Requests",
                "A second, by API; steady heartbeats among them.",
                rate("sidecar_requests_total", "api", I),
                "reqps",
            ),
            Panel(
                "Time of a request, p99",
                "Of those that went through a handler. Joins and syncs wait for other members.",
                quantiles("sidecar_request_seconds", "api", I, (0.99,)),
                "s",
            ),
            Panel(
                "Steady heartbeats",
                "Which part of all heartbeats of consumer and classic groups a front answered by itself.",
                (
                    (
                        f"sum(rate(sidecar_steady_replies_total{I}{RATE})) / sum(rate(sidecar_requests_total"
                        f'{{instance=~"$instance",api=~"heartbeat|consumer_group_heartbeat"}}{RATE}))',
                        "share",
                    ),
                ),
                "percentunit",
            ),
            Panel("Commits", "A second, by result.", rate("sidecar_commits_total", "result", I), "reqps"),
            Panel("Requests without an answer", "Parked by the coordinator.", each("sidecar_parked_replies")),
            Panel("Client connections", "Open now.", each("sidecar_connections_active")),
        ),
        "Groups": (
            Panel(
                "Groups",
                "By kind and state.",
                ((f"sum by (kind, state) (sidecar_groups{I})", "{{kind}} {{state}}"),),
                stacked=True,
            ),
            Panel(
                "Members",
                "By the kind of the group and their own protocol.",
                ((f"sum by (kind, protocol) (sidecar_members{I})", "{{kind}}, speaks {{protocol}}"),),
                stacked=True,
            ),
            Panel(
                "Rebalances",
                "A second, by kind and reason.",
                rate("sidecar_rebalances_total", "kind, reason", I),
                "ops",
            ),
            Panel(
                "Time to settle",
                "From the begin of a rebalance to its end.",
                quantiles("sidecar_settle_seconds", "kind", I),
                "s",
            ),
            Panel(
                "Partitions moved",
                "A second, in consumer groups.",
                rate("sidecar_partitions_moved_total", "assignor", I),
                "ops",
            ),
            Panel(
                "Assignments",
                "Targets written, and runs that failed, a second.",
                (
                    *rate("sidecar_assignments_total", "assignor", I),
                    (f"sum by (assignor) (rate(sidecar_assignor_failures_total{I}{RATE}))", "{{assignor}} failed"),
                ),
                "ops",
            ),
        ),
        "Sidecars": (
            Panel(
                "Event loop held up, p99",
                "How late a timer came.",
                quantiles("sidecar_loop_lag_seconds", "instance", I, (0.99,)),
                "s",
            ),
            Panel(
                "Event loop busy by itself, p99",
                "The rest it waited for a processor.",
                quantiles("sidecar_loop_busy_seconds", "instance", I, (0.99,)),
                "s",
            ),
            Panel(
                "Appends", "Until all in-sync replicas have a batch.", quantiles("sidecar_append_seconds", "", I), "s"
            ),
            Panel(
                "Processor", "Share of one processor.", rate("process_cpu_seconds_total", "instance", I), "percentunit"
            ),
            Panel("Memory", "Resident.", each("process_resident_memory_bytes"), "bytes"),
            Panel("Open files", "Of process_max_fds.", each("process_open_fds")),
            Panel(
                "Background threads idle",
                "Assignors and regular expressions; 30 s (KIP-1263).",
                each("kafka_server_group_coordinator_metrics_background_thread_idle_ratio_avg"),
                "percentunit",
            ),
            Panel(
                "Background queue, p99",
                "How long a run waited for a thread.",
                each("kafka_server_group_coordinator_metrics_background_queue_time_ms_p99"),
                "ms",
            ),
            Panel(
                "Frames refused",
                "A second, by reason.",
                ((f"sum by (reason) (rate(sidecar_frames_refused_total{I}{RATE})) or vector(0)", "{{reason}}"),),
                "ops",
            ),
        ),
        "Versions": (
            Panel(
                "Versions",
                "How many sidecars run which version and kernels.",
                (("count by (version, kernel) (sidecar_build_info)", "{{version}} {{kernel}}"),),
                kind="table",
                width=WIDE,
            ),
        ),
    },
    (("instance", "label_values(sidecar_build_info, instance)"),),
)

GROUP = Board(
    "kafka-group-sidecar-group",
    "Group sidecars: group",
    {
        "Now": (
            number("Lag", "Records that are not committed yet.", f"sum(kafka_consumergroup_lag_sum{G})"),
            number("Members", "Members of the groups chosen.", f"sum(kafka_consumergroup_members{G})"),
            number(
                "Rebalances in 10 minutes",
                "If the group is one of the five that have most; else 0.",
                f"sum(sidecar_group_rebalances{G}) or vector(0)",
            ),
            number(
                "Rebalancing for",
                "If the group is one of the five for which it takes longest; else 0.",
                f"max(sidecar_group_unsettled_seconds{G}) or vector(0)",
                "s",
            ),
            number(
                "Age of offsets", "How old the exporter's values are at most.", "max(sidecar_exporter_age_seconds)", "s"
            ),
            number("Series left out", "Because of exporter.series.", "sum(sidecar_exporter_series_cut)"),
        ),
        "Progress": (
            Panel(
                "Lag by topic",
                "",
                ((f"sum by (consumergroup, topic) (kafka_consumergroup_lag_sum{G})", "{{consumergroup}} {{topic}}"),),
                width=12,
            ),
            Panel(
                "Committed",
                "Records a second, by topic.",
                (
                    (
                        f"sum by (consumergroup, topic) (rate(kafka_consumergroup_current_offset_sum{G}{RATE}))",
                        "{{consumergroup}} {{topic}}",
                    ),
                ),
                "ops",
                width=12,
            ),
            Panel(
                "Time behind",
                "Lag, divided by what is committed a second.",
                (
                    (
                        f"sum by (consumergroup) (kafka_consumergroup_lag_sum{G}) / clamp_min("
                        f"sum by (consumergroup) (rate(kafka_consumergroup_current_offset_sum{G}{RATE})), 0.001)",
                        "{{consumergroup}}",
                    ),
                ),
                "s",
                width=12,
            ),
            Panel(
                "Produced",
                "Records a second, by topic; of all topics.",
                ((f"sum by (topic) (rate(kafka_topic_partition_current_offset{RATE}))", "{{topic}}"),),
                "ops",
                width=12,
            ),
        ),
        "Partitions": (
            Panel(
                "Partitions with most lag",
                "Ten of them.",
                (
                    (
                        f"topk(10, sum by (consumergroup, topic, partition) (kafka_consumergroup_lag{G}))",
                        "{{consumergroup}} {{topic}}-{{partition}}",
                    ),
                ),
                width=12,
            ),
            Panel(
                "Partitions that committed least",
                "Ten of them, records a second: a partition that stands still while others move has a problem of its own.",
                (
                    (
                        f"bottomk(10, sum by (consumergroup, topic, partition) (rate(kafka_consumergroup_current_offset{G}{RATE})))",
                        "{{consumergroup}} {{topic}}-{{partition}}",
                    ),
                ),
                "ops",
                width=12,
            ),
        ),
        "Members and rebalances": (
            Panel("Members", "", ((f"sum by (consumergroup) (kafka_consumergroup_members{G})", "{{consumergroup}}"),)),
            Panel(
                "Groups that rebalance most",
                "Within 10 minutes, of all groups.",
                (("topk(5, sidecar_group_rebalances) or vector(0)", "{{consumergroup}}"),),
            ),
            Panel(
                "Groups that do not settle",
                "For how long a rebalance has been under way, of all groups.",
                (("topk(5, sidecar_group_unsettled_seconds) or vector(0)", "{{consumergroup}}"),),
                "s",
            ),
        ),
    },
    (("group", "label_values(kafka_consumergroup_members, consumergroup)"),),
)

FAILOVER = Board(
    "kafka-group-sidecar-failover",
    "Group sidecars: failover",
    {
        "Owners": (
            Panel("Partitions served", "Of the state topic.", each("sidecar_owned_partitions"), width=12, stacked=True),
            Panel(
                "Without owner, and with two",
                "Both should be 0, but for a moment while owners change.",
                (
                    ("count(sum by (cluster, partition) (sidecar_partition_owned) == 0) or vector(0)", "without owner"),
                    ("count(sum by (cluster, partition) (sidecar_partition_owned) > 1) or vector(0)", "with two"),
                ),
                width=12,
            ),
            Panel(
                "Being taken over",
                "Partitions in the phases before they are served.",
                (
                    (
                        'sum by (state) (sidecar_partitions{instance=~"$instance",state!~"elsewhere|serving"})',
                        "{{state}}",
                    ),
                ),
            ),
            Panel(
                "Takeovers",
                "In 5 minutes.",
                ((f"sum by (instance) (increase(sidecar_takeover_seconds_count{I}[5m]))", "{{instance}}"),),
            ),
            Panel(
                "Time of takeovers",
                "From assignment to serving, of the last hour.",
                tuple(
                    (
                        f"histogram_quantile({q}, sum by (le) (increase(sidecar_takeover_seconds_bucket{I}[1h])))",
                        f"p{q * 100:g}",
                    )
                    for q in (0.5, 0.99)
                ),
                "s",
            ),
        ),
        "Sidecars": (
            Panel("Up", "Answers Prometheus.", (('up{job="kafka-group-sidecar"}', "{{instance}}"),)),
            Panel("Ready", "Serves what it was assigned.", each("sidecar_ready")),
            Panel("State topic not read yet", "Offsets; a takeover waits for them.", each("sidecar_tail_lag_records")),
            Panel("Appends", "p99, by sidecar.", quantiles("sidecar_append_seconds", "instance", I, (0.99,)), "s"),
            Panel("Event loop held up, p99", "", quantiles("sidecar_loop_lag_seconds", "instance", I, (0.99,)), "s"),
            Panel(
                "Writes that failed",
                "In 5 minutes, by reason; a few belong to a failover.",
                ((f"sum by (why) (increase(sidecar_fenced_total{I}[5m]))", "{{why}}"),),
            ),
        ),
        "Clients": (
            Panel(
                "FindCoordinator",
                "A second.",
                rate("sidecar_requests_total", "instance", '{instance=~"$instance",api="find_coordinator"}'),
                "reqps",
            ),
            Panel(
                "Connections closed",
                "A second, by cause.",
                ((f"sum by (cause) (rate(sidecar_connections_closed_total{I}{RATE})) or vector(0)", "{{cause}}"),),
                "ops",
            ),
            Panel("Commits", "A second, by result.", rate("sidecar_commits_total", "result", I), "reqps"),
            Panel(
                "Placeholders missing",
                "Groups whose commits wait for one.",
                ((f"sidecar_placeholders_wanted{I} - sidecar_placeholders_joined{I}", "{{instance}}"),),
            ),
            Panel(
                "Time to a placeholder",
                "Of the last hour.",
                (
                    (
                        f"histogram_quantile(0.99, sum by (le) (increase(sidecar_placeholder_seconds_bucket{I}[1h])))",
                        "p99",
                    ),
                ),
                "s",
            ),
            Panel("Rebalances", "A second, by reason.", rate("sidecar_rebalances_total", "reason", I), "ops"),
        ),
        "What must be 0": (
            Panel(
                "State",
                "Each is an alert of its own.",
                (
                    ("sum(sidecar_void_records)", "void records"),
                    ("sum(sidecar_unreadable_groups)", "unreadable groups"),
                    ("sum(sidecar_state_topic_faults)", "faults of the state topic"),
                    ("sum(sidecar_invariant_violations_total)", "contradictions"),
                    ("sum(sidecar_handler_faults_total)", "handlers that broke"),
                    ("sum(sidecar_patterns_differ)", "sidecars with other patterns"),
                ),
                width=12,
            ),
            Panel(
                "Audit",
                "How old the oldest record is that is not in the lake, as part of the age at which compaction may remove it; and what was found.",
                (
                    (
                        "max(group_state_audit_oldest_seconds / group_state_audit_compaction_lag_seconds) or vector(0)",
                        "part of the way",
                    ),
                    ("sum(group_state_audit_findings) or vector(0)", "findings"),
                    ("sum(group_state_audit_lost_records) or vector(0)", "lost records"),
                ),
                width=12,
            ),
        ),
    },
    (("instance", "label_values(sidecar_build_info, instance)"),),
)
BOARDS = (FLEET, GROUP, FAILOVER)


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for board in BOARDS:
        path(board).write_text(text(board))


def path(board: Board) -> Path:
    return FOLDER / f"{board.uid.removeprefix('kafka-group-sidecar-')}.json"


def text(board: Board) -> str:
    return json.dumps(as_json(board), indent=1) + "\n"


def queries() -> list[tuple[str, str]]:
    """Every panel's title, with its board's, and the query as Prometheus gets it when all is chosen."""
    found = []
    for board in BOARDS:
        for row in board.rows.values():
            for panel in row:
                for expr, _ in panel.queries:
                    query = re.sub(r"\$(cluster|instance|group)\b", ".*", of_cluster(expr))
                    found.append((f"{board.title}: {panel.title}", query))
    return found


if __name__ == "__main__":
    main()
