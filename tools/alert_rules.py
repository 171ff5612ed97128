"""The alerts of deploy/prometheus. Each stands here once, with series at which it must fire and series at which it must just
not. docs/operate/runbook.md has a section for each, under its name."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

RULES = Path("deploy/prometheus/rules.yml")
TESTS = Path("deploy/prometheus/rules_test.yml")
RUNBOOK = "docs/operate/runbook.md"
JOB = 'job="kafka-group-sidecar"'
AUDIT_JOB = 'job="group-state-audit"'
HEAD = "# Made by `python -m tools.alerts`: change it there. What each alert means is in docs/operate/runbook.md.\n"
Series = dict[str, str]
"""A series -> its values, a step of 15 s each, in promtool's notation."""


@dataclass(frozen=True)
class Alert:
    """`held`: for how long the expression must be true. `labels`: of the alert that `fires` brings about. `silent`: as
    near to the bound as may be. `by`: when it fires at the latest, where its fault is there from the start. `absent`:
    series that are there when those of the expression are not, which counts as the worst, and the alert's labels then;
    so it is with targets that Prometheus looks for no more.

    What all sidecars see of one cause is one alert of the cluster; what is a sidecar's own is one of each."""

    name: str
    expr: str
    held: str
    severity: str
    summary: str
    fires: Series
    silent: Series
    labels: dict[str, str] = field(default_factory=dict)
    at: str = "30m"
    by: str = ""
    absent: tuple[tuple[Series, dict[str, str]], ...] = ()


RECORDED = {
    "sidecar:loop_lag_seconds:p99": (
        "histogram_quantile(0.99, sum by (cluster, instance, le) (rate(sidecar_loop_lag_seconds_bucket[2m])))"
    ),
    "sidecar:append_seconds:p99": (
        "histogram_quantile(0.99, sum by (cluster, instance, le) (rate(sidecar_append_seconds_bucket[2m])))"
    ),
    "sidecar:request_seconds:p99": (
        "histogram_quantile(0.99, sum by (cluster, api, le) (rate(sidecar_request_seconds_bucket[5m])))"
    ),
    "sidecar:commits_refused:ratio": (
        'sum by (cluster) (rate(sidecar_commits_total{result!="accepted"}[5m]))'
        " / (sum by (cluster) (rate(sidecar_commits_total[5m])) > 0)"
    ),
}
A, B = 'instance="a"', 'instance="b"'
ON_A = {"instance": "a"}


def _histogram(name: str, fast: str, slow: str, bound: str, **labels: str) -> Series:
    """Values up to `bound`, and all of them."""
    pairs = "".join(f',{k}="{v}"' for k, v in labels.items())
    return {f'{name}_bucket{{{A}{pairs},le="{bound}"}}': fast, f'{name}_bucket{{{A}{pairs},le="+Inf"}}': slow}


def above(name: str, metric: str, held: str, severity: str, summary: str) -> Alert:
    """A gauge of one sidecar that should be 0."""
    at = f"{{{A}}}"
    return Alert(name, f"{metric} > 0", held, severity, summary, {metric + at: "1x200"}, {metric + at: "0x200"}, ON_A)


def of_all(name: str, metric: str, held: str, severity: str, summary: str) -> Alert:
    """A gauge that should be 0, and that rises at each sidecar for one cause."""
    fires = {f"{metric}{{{A}}}": "1x200", f"{metric}{{{B}}}": "2x200"}
    expr = f"max by (cluster) ({metric}) > 0"
    return Alert(name, expr, held, severity, summary, fires, dict.fromkeys(fires, "0x200"))


def rises(name: str, metric: str, within: str, severity: str, summary: str, labels: dict[str, str]) -> Alert:
    """A counter of one sidecar that should stand still."""
    pairs = ",".join(f'{k}="{v}"' for k, v in {**ON_A, **labels}.items())
    at = f"{metric}{{{pairs}}}"
    expr = f"increase({metric}[{within}]) > 0"
    return Alert(name, expr, "0s", severity, summary, {at: "0x110 1x90"}, {at: "3x200"}, {**ON_A, **labels})


def _near(name: str, used: str, limit: str, summary: str) -> Alert:
    bound = {f'sidecar_limit{{{A},of="{limit}"}}': "100x200"}
    return Alert(
        name,
        f'{used} / ignoring (of) sidecar_limit{{of="{limit}"}} > 0.8',
        "1m",
        "warning",
        summary,
        {f"{used}{{{A}}}": "81x200", **bound},
        {f"{used}{{{A}}}": "80x200", **bound},
        ON_A,
    )


OWNED = "sidecar_partition_owned"
FLEET = [
    Alert(
        "SidecarDown",
        f"up{{{JOB}}} == 0 or absent(up{{{JOB}}})",
        "1m",
        "critical",
        "A sidecar does not answer Prometheus.",
        {f"up{{{JOB},{A}}}": "0x200"},
        {f"up{{{JOB},{A}}}": "1x200"},
        {"job": "kafka-group-sidecar", **ON_A},
        absent=(({f"up{{{AUDIT_JOB},{A}}}": "1x200"}, {"job": "kafka-group-sidecar"}),),
    ),
    Alert(
        "SidecarGone",
        f"(count by (cluster) (up{{{JOB}}}) or 0 * count by (cluster) (up{{{JOB}}} offset 1h))"
        f" < count by (cluster) (up{{{JOB}}} offset 1h)",
        "5m",
        "warning",
        "Prometheus has fewer sidecars than an hour ago.",
        {f"up{{{JOB},{A}}}": "1x400", f"up{{{JOB},{B}}}": "1x250 stale"},
        {f"up{{{JOB},{A}}}": "1x400", f"up{{{JOB},{B}}}": "1x400"},
        at="70m",
        # All of one cluster are gone, and there is another cluster: SidecarDown does not see it.
        absent=(
            (
                {f'up{{{JOB},{A},cluster="one"}}': "1x250 stale", f'up{{{JOB},{A},cluster="two"}}': "1x400"},
                {"cluster": "one"},
            ),
        ),
    ),
    Alert(
        "SidecarNotReady",
        f"sidecar_ready == 0 or (up{{{JOB}}} == 1 unless on (cluster, instance) sidecar_ready)",
        "2m",
        "warning",
        "A sidecar runs, and does not serve what it was assigned.",
        {f"sidecar_ready{{{A}}}": "0x200"},
        {f"sidecar_ready{{{A}}}": "1x200", f"up{{{JOB},{A}}}": "1x200"},
        ON_A,
        absent=(({f"up{{{JOB},{A}}}": "1x200"}, {"job": "kafka-group-sidecar", **ON_A}),),
    ),
    Alert(
        "SidecarPartitionWithoutOwner",
        f"count by (cluster) (sum by (cluster, partition) ({OWNED}) == 0)"
        f" or (count by (cluster) (sidecar_ready) unless on (cluster) {OWNED})",
        "1m",
        "critical",
        "Partitions of the state topic are served by no sidecar: their groups have no coordinator.",
        {f'{OWNED}{{{i},partition="{p}"}}': "0x200" for i in (A, B) for p in (7, 8)},
        {f'{OWNED}{{{A},partition="7"}}': "0x200", f'{OWNED}{{{B},partition="7"}}': "1x200"},
        absent=(({f"sidecar_ready{{{i}}}": "0x200" for i in (A, B)}, {}),),
    ),
    Alert(
        "SidecarPartitionWithTwoOwners",
        f"count by (cluster) (sum by (cluster, partition) ({OWNED}) > 1)",
        "1m",
        "critical",
        "Two sidecars say that they serve the same partitions of the state topic.",
        {f'{OWNED}{{{i},partition="{p}"}}': "1x200" for i in (A, B) for p in (7, 8)},
        {f'{OWNED}{{{A},partition="7"}}': "1x200", f'{OWNED}{{{B},partition="7"}}': "0x200"},
    ),
    of_all("SidecarPatternsDiffer", "sidecar_patterns_differ", "1m", "critical", "Sidecars have different patterns."),
    Alert(
        "SidecarVersionsDiffer",
        "count by (cluster) (count by (cluster, version) (sidecar_build_info)) > 1",
        "1h",
        "info",
        "Sidecars of different versions have been running for an hour.",
        {f'sidecar_build_info{{{A},version="1"}}': "1x400", f'sidecar_build_info{{{B},version="2"}}': "1x400"},
        {f'sidecar_build_info{{{A},version="1"}}': "1x400", f'sidecar_build_info{{{B},version="1"}}': "1x400"},
        at="90m",
    ),
    Alert(
        "SidecarCertificateExpires",
        "(sidecar_tls_certificate_expiry_seconds > 0) - time() < 14 * 86400",
        "10m",
        "warning",
        "A certificate of a sidecar expires within two weeks.",
        {f"sidecar_tls_certificate_expiry_seconds{{{A}}}": "86400x200"},
        {
            f"sidecar_tls_certificate_expiry_seconds{{{A}}}": f"{14 * 86400 + 1800}x200",
            f"sidecar_tls_certificate_expiry_seconds{{{B}}}": "0x200",
        },
        ON_A,
    ),
]
WORK = [
    Alert(
        "SidecarLoopLag",
        "sidecar:loop_lag_seconds:p99 > 0.1",
        "3m",
        "warning",
        "The event loop of a sidecar is held up: heartbeats wait.",
        {
            **_histogram("sidecar_loop_lag_seconds", "0+9x200", "0+10x200", "0.1"),
            f'sidecar_loop_lag_seconds_bucket{{{A},le="0.2"}}': "0+10x200",
        },
        {
            **_histogram("sidecar_loop_lag_seconds", "0+991x200", "0+1000x200", "0.1"),
            f'sidecar_loop_lag_seconds_bucket{{{A},le="0.2"}}': "0+1000x200",
        },
        ON_A,
        by="4m",
    ),
    Alert(
        "SidecarAppendSlow",
        "sidecar:append_seconds:p99 > 1",
        "3m",
        "warning",
        "Writes to the state topic take longer than a second: answers wait for them.",
        {
            **_histogram("sidecar_append_seconds", "0+9x200", "0+10x200", "1.0"),
            f'sidecar_append_seconds_bucket{{{A},le="2.0"}}': "0+10x200",
        },
        {
            **_histogram("sidecar_append_seconds", "0+991x200", "0+1000x200", "1.0"),
            f'sidecar_append_seconds_bucket{{{A},le="2.0"}}': "0+1000x200",
        },
        ON_A,
        by="4m",
    ),
    Alert(
        "SidecarTakeoverSlow",
        "increase(sidecar_takeover_seconds_count[10m])"
        ' - ignoring (le) increase(sidecar_takeover_seconds_bucket{le="5.0"}[10m]) > 0.5',
        "0s",
        "warning",
        "Taking over a partition of the state topic took longer than 5 seconds.",
        {
            f"sidecar_takeover_seconds_count{{{A}}}": "50x110 60x90",
            f'sidecar_takeover_seconds_bucket{{{A},le="5.0"}}': "50x110 58x90",
        },
        {
            f"sidecar_takeover_seconds_count{{{A}}}": "50x110 60x90",
            f'sidecar_takeover_seconds_bucket{{{A},le="5.0"}}': "50x110 60x90",
        },
        ON_A,
    ),
    Alert(
        "SidecarTailLags",
        "sidecar_tail_lag_records > 1000",
        "2m",
        "warning",
        "A sidecar reads the state topic more slowly than it grows: its next takeover takes longer.",
        {f"sidecar_tail_lag_records{{{A}}}": "1001x200"},
        {f"sidecar_tail_lag_records{{{A}}}": "1000x200"},
        ON_A,
    ),
    _near("SidecarParkedReplies", "sidecar_parked_replies", "parked_replies", "Too many requests wait for an answer."),
    _near(
        "SidecarConnections",
        "sidecar_connections_active",
        "connections",
        "A sidecar has almost as many clients as it may.",
    ),
    Alert(
        "SidecarPlaceholdersMissing",
        "sidecar_placeholders_wanted - sidecar_placeholders_joined > 0",
        "5m",
        "warning",
        "Groups have no placeholder at their broker: their commits are refused.",
        {f"sidecar_placeholders_wanted{{{A}}}": "5x200", f"sidecar_placeholders_joined{{{A}}}": "4x200"},
        {f"sidecar_placeholders_wanted{{{A}}}": "5x200", f"sidecar_placeholders_joined{{{A}}}": "5x200"},
        ON_A,
    ),
    Alert(
        "SidecarExporterStale",
        "sidecar_exporter_age_seconds > 300",
        "1m",
        "info",
        "Offsets and lags on /metrics are older than five minutes.",
        {f"sidecar_exporter_age_seconds{{{A}}}": "301x200"},
        {f"sidecar_exporter_age_seconds{{{A}}}": "300x200", f"sidecar_exporter_age_seconds{{{B}}}": "-1x200"},
        ON_A,
    ),
    above(
        "SidecarExporterCut", "sidecar_exporter_series_cut", "5m", "info", "Offsets and lags are left out on /metrics."
    ),
]
GROUPS = [
    Alert(
        "SidecarRebalanceStorm",
        "sidecar_group_rebalances > 20",
        "5m",
        "warning",
        "A group has rebalanced more than 20 times within 10 minutes.",
        {f'sidecar_group_rebalances{{{A},consumergroup="g"}}': "21x200"},
        {f'sidecar_group_rebalances{{{A},consumergroup="g"}}': "20x200"},
        {**ON_A, "consumergroup": "g"},
    ),
    Alert(
        "SidecarGroupNotSettling",
        "sidecar_group_unsettled_seconds > 600",
        "1m",
        "warning",
        "A rebalance of a group has been under way for more than 10 minutes.",
        {f'sidecar_group_unsettled_seconds{{{A},consumergroup="g"}}': "601x200"},
        {f'sidecar_group_unsettled_seconds{{{A},consumergroup="g"}}': "600x200"},
        {**ON_A, "consumergroup": "g"},
    ),
    Alert(
        "SidecarCommitsRefused",
        "sidecar:commits_refused:ratio > 0.05",
        "10m",
        "warning",
        "More than 5 % of all commits have been refused for 10 minutes.",
        {
            f'sidecar_commits_total{{{A},result="accepted"}}': "0+90x200",
            f'sidecar_commits_total{{{A},result="unknown_member_id"}}': "0+10x200",
        },
        {
            f'sidecar_commits_total{{{A},result="accepted"}}': "0+951x200",
            f'sidecar_commits_total{{{A},result="unknown_member_id"}}': "0+49x200",
        },
    ),
    rises(
        "SidecarAssignorFails",
        "sidecar_assignor_failures_total",
        "10m",
        "warning",
        "An assignor failed: groups stay on their last assignment.",
        {"assignor": "uniform"},
    ),
    above(
        "SidecarUnreadableGroups",
        "sidecar_unreadable_groups",
        "0s",
        "critical",
        "Groups cannot be read from the state topic.",
    ),
]
STATE = [
    rises(
        "SidecarFenced",
        "sidecar_fenced_total",
        "10m",
        "warning",
        "A write to the state topic failed, and its partition was dropped.",
        {"why": "fenced"},
    ),
    of_all(
        "SidecarVoidRecords",
        "sidecar_void_records",
        "0s",
        "critical",
        "Somebody who was not the owner has written to the state topic.",
    ),
    of_all(
        "SidecarStateTopicFaults",
        "sidecar_state_topic_faults",
        "0s",
        "critical",
        "The state topic is set so that state may be lost.",
    ),
    rises(
        "SidecarInvariantViolated",
        "sidecar_invariant_violations_total",
        "1h",
        "critical",
        "The coordinator has found a contradiction.",
        {},
    ),
    rises("SidecarHandlerFault", "sidecar_handler_faults_total", "1h", "critical", "A request broke its handler.", {}),
]
OLDEST, ALLOWED = "group_state_audit_oldest_seconds", "group_state_audit_compaction_lag_seconds"
AUDIT = [
    Alert(
        "AuditFallsBehind",
        f"max by (cluster, instance) ({OLDEST} / {ALLOWED}) > 0.5",
        "5m",
        "warning",
        "The audit is half way to losing history to compaction.",
        {f'{n}{{{A},partition="{p}"}}': v for n, v in ((OLDEST, "60x200"), (ALLOWED, "100x200")) for p in (7, 8)},
        {f'{OLDEST}{{{A},partition="7"}}': "50x200", f'{ALLOWED}{{{A},partition="7"}}': "100x200"},
        ON_A,
    ),
    Alert(
        "AuditFails",
        f"group_state_audit_up == 0 or up{{{AUDIT_JOB}}} == 0"
        f" or (up{{{AUDIT_JOB}}} == 1 unless on (cluster, instance) group_state_audit_up)"
        f" or (up{{{AUDIT_JOB}}} offset 1h unless on (cluster) up{{{AUDIT_JOB}}})",
        "10m",
        "warning",
        "The audit does not run, or its last batches failed.",
        # The audit dies with each batch, and is started again each time.
        {
            f"group_state_audit_up{{{AUDIT_JOB},{A}}}": " ".join(["0 _"] * 200),
            f"up{{{AUDIT_JOB},{A}}}": " ".join(["1 0"] * 200),
        },
        {f"group_state_audit_up{{{AUDIT_JOB},{A}}}": "1x400", f"up{{{AUDIT_JOB},{A}}}": "1x400"},
        {"job": "group-state-audit", **ON_A},
        at="80m",
        absent=(
            ({f"up{{{AUDIT_JOB},{A}}}": "1x400"}, {"job": "group-state-audit", **ON_A}),
            (
                {
                    f"{name}{{{AUDIT_JOB},{i}}}": values
                    for name in ("up", "group_state_audit_up")
                    for i, values in ((A, "1x200 stale"), (f'{B},cluster="two"', "1x400"))
                },
                {"job": "group-state-audit", **ON_A},
            ),
        ),
    ),
    above(
        "AuditLostRecords",
        "group_state_audit_lost_records",
        "0s",
        "warning",
        "Records were gone before the audit had read them.",
    ),
    above(
        "AuditFindings",
        "group_state_audit_findings",
        "0s",
        "critical",
        "The audit has proved a second owner, or a write of a fenced owner.",
    ),
]
GROUPED = {"sidecars": FLEET, "work": WORK, "groups": GROUPS, "state": STATE, "audit": AUDIT}
ALERTS = [alert for alerts in GROUPED.values() for alert in alerts]


def anchor(alert: Alert) -> str:
    """As Markdown viewers make it of a heading."""
    return alert.name.lower()


def rules(runbook: str = RUNBOOK) -> str:
    """`runbook`: address of the page that has a section for each alert."""
    groups: list[dict[str, Any]] = [
        {"name": "kafka-group-sidecar-recorded", "rules": [{"record": n, "expr": e} for n, e in RECORDED.items()]}
    ]
    for name, alerts in GROUPED.items():
        groups.append({"name": f"kafka-group-sidecar-{name}", "rules": [_rule(a, runbook) for a in alerts]})
    return HEAD + dump({"groups": groups})


def _rule(a: Alert, runbook: str) -> dict[str, Any]:
    rule: dict[str, Any] = {"alert": a.name, "expr": a.expr}
    if a.held != "0s":
        rule["for"] = a.held
    return {**rule, "labels": {"severity": a.severity}, "annotations": annotations_of(a, runbook)}


def annotations_of(a: Alert, runbook: str = RUNBOOK) -> dict[str, str]:
    return {"summary": a.summary, "runbook_url": f"{runbook}#{anchor(a)}"}


def dump(data: object) -> str:
    return yaml.safe_dump(data, sort_keys=False, width=120, allow_unicode=True)


def metrics_in(expr: str) -> set[str]:
    """The names of metrics in an expression, those that rules record left out."""
    bare = re.sub(r'"[^"]*"', "", expr)
    bare = re.sub(r"\b(by|ignoring|on|without)\s*\([^)]*\)", "", bare)
    bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]", "", bare)
    words = re.findall(r"(?<![\w:])[a-z_][a-z0-9_:]*(?!\s*\(|[\w:])", bare)
    return {w for w in words if w not in WORDS and w not in RECORDED}


WORDS = {"or", "and", "unless", "by", "bool", "offset"}
