"""The checks. Each is a pure function of the facts; its finding names the setting, and its remedy the value to set."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from sidecar.cli.doctor.brokers import brokers_up, of_all_brokers, of_no_broker
from sidecar.cli.doctor.certificates import certificates
from sidecar.cli.doctor.groups import rights_of_patterns
from sidecar.cli.doctor.model import About, Check, Configs, Facts, Node, Status, Topic, Unknown
from sidecar.cli.doctor.others import others_rights, readers
from sidecar.cli.doctor.refused import refused, remedies
from sidecar.cli.doctor.rights import Need, acls, covers, holders, missing, needed_operations
from sidecar.coordinator.statelog.fence import TIMEOUT_MS
from sidecar.coordinator.statelog.startup import NO_IDS
from sidecar.coordinator.statelog.topic_watch import command, faults, wanted
from sidecar.core.vocabulary.group_patterns import doubts
from sidecar.core.vocabulary.internal_topics import OFFSETS, TRANSACTIONS
from sidecar.process.rights import Right, commands

LAG, LARGEST = "min.compaction.lag.ms", "max.message.bytes"
SKEW_WARN_MS, SKEW_FAIL_MS = 1_000, 10_000
DAY_MS = 86_400_000
MIN_SESSION, MAX_SESSION = "group.min.session.timeout.ms", "group.max.session.timeout.ms"
INITIAL_DELAY, RETENTION = "group.initial.rebalance.delay.ms", "offsets.retention.minutes"
BROKER_SESSION, EXPIRATION = "broker.session.timeout.ms", "transactional.id.expiration.ms"
TXN_REPLICAS, TXN_LIMIT = "transaction.state.log.replication.factor", "transaction.max.timeout.ms"
EVERYONE = "allow.everyone.if.no.acl.found"
ADMINS = "Name the admin address of each sidecar: --admin HOST:PORT, once for each (its setting is `admin`)."
SAME = (
    "groups.",
    "consumer.",
    "classic.",
    "share.",
    "streams.",
    "compat.",
    "state.",
    "offsets.",
    "ownership.group",
    "ownership.session_timeout_ms",
    "ownership.heartbeat_ms",
    "ownership.proof_ms",
    "ownership.follow_leader_ms",
)
"""Settings, or prefixes of their names, that should be the same at all sidecars."""


# ---- who answers clients --------------------------------------------------------------------------------------------
def listeners(f: Facts) -> Check:
    name = "listeners"
    if isinstance(f.nodes, Unknown):
        return Check(name, Status.UNKNOWN, f.nodes.why, "Name the clients' listener in --bootstrap.")
    starting = {s.node_id for s in f.answered() if s.problems}
    answered = {s.node_id for s in f.answered()}
    if of_no_broker(f):  # it may be any of those that were not asked under their own node id
        starting |= {n.node_id for n in f.nodes} - answered
    bare = [n for n in f.nodes if n.sidecar is False and n.node_id not in starting]
    dead = [n for n in f.nodes if n.sidecar is None]
    if bare and len(bare) + len(dead) == len(f.nodes):
        finding = f"No sidecar answers at {_nodes(bare)}: clients of this listener bypass the sidecars."
        remedy = "If clients use another listener, name that in --bootstrap. Else advertise the sidecars' addresses: "
        return Check(name, Status.FAIL, finding, remedy + "advertised.listeners of each broker.")
    if bare:
        finding = f"The broker itself answers at {_nodes(bare)}: its clients bypass the sidecar."
        remedy = "Set advertised.listeners of its listener for clients to the address of its sidecar; if it has none, "
        return Check(name, Status.FAIL, finding, remedy + "run one beside it.")
    if dead:
        finding = f"Nobody answers at {_nodes(dead)}: {dead[0].problem}."
        return Check(name, Status.FAIL, finding, "Start the sidecar there, or correct advertised.listeners.")
    if mute := [n for n in f.nodes if n.sidecar is False]:
        finding = f"The sidecar of {_nodes(mute)} is not ready: whether clients reach it cannot be told."
        return Check(name, Status.UNKNOWN, finding, "See the check of the sidecars first.")
    return Check(name, Status.OK, f"A sidecar answers at each of {_nodes(f.nodes)}.")


def ready(f: Facts) -> Check:
    name = "sidecars ready"
    if not f.sidecars:
        return Check(name, Status.UNKNOWN, "No sidecar was asked.", ADMINS)
    silent = [s.why for s in f.sidecars if isinstance(s, Unknown)]
    if silent:
        return Check(name, Status.FAIL, "; ".join(silent), "Start that sidecar, or correct its --admin address.")
    troubled = [f"sidecar {s.node_id}: {', '.join(s.problems)}" for s in f.answered() if s.problems]
    if troubled:
        remedy = "; ".join(remedies(p for s in f.answered() for p in s.problems))
        return Check(name, Status.FAIL, "; ".join(troubled), remedy)
    views = {s.owners for s in f.answered() if s.owners}
    if len(views) > 1:
        finding = "The sidecars do not agree who owns which partition."
        return Check(
            name, Status.WARN, finding, "That passes within seconds after a change. If not: are all in one group?"
        )
    if any(owner < 0 for view in views for owner in view):
        return Check(name, Status.FAIL, "Some partitions are owned by nobody.", "Look into the sidecars' logs.")
    return Check(name, Status.OK, f"{len(f.answered())} sidecars are ready and agree who owns what.")


def beside_each_broker(f: Facts) -> Check:
    name = "a sidecar for each broker"
    if isinstance(f.nodes, Unknown) or not f.sidecars:
        return Check(name, Status.UNKNOWN, "No sidecar was asked.", ADMINS)
    have = [s.node_id for s in f.answered()]
    roles = [(s.settings.get("role"), s.node_id) for s in f.answered()]
    halves = [[n for role, n in roles if role != other] for other in ("front", "coordinator")]
    twice = sorted({n for half in halves for n in half if half.count(n) > 1})
    if twice:
        finding = f"More than one sidecar says that it is beside node {_list(twice)}."
        return Check(name, Status.FAIL, finding, "Give each the node id of its own broker (node_id).")
    if wrong := of_no_broker(f):
        finding = f"No broker has the node id of sidecar {_list(wrong)}: they are {_list(n.node_id for n in f.nodes)}."
        return Check(name, Status.FAIL, finding, "Give it the node id of its own broker (node_id), and restart it.")
    without = sorted({n.node_id for n in f.nodes} - set(have))
    if without:
        finding = f"No sidecar beside node {_list(without)} was asked."
        return Check(
            name, Status.WARN, finding, "Name its --admin as well; if there is none, run one beside that broker."
        )
    return Check(name, Status.OK, f"Each of the {len(f.nodes)} brokers has its own.")


# ---- topics ---------------------------------------------------------------------------------------------------------
def topic_ids(f: Facts) -> Check:
    name = "topic ids"
    if isinstance(f.topics, Unknown):
        return Check(name, Status.UNKNOWN, f.topics.why, "DESCRIBE of the topics is needed.")
    if without := [t for t, topic in f.topics.items() if not topic.has_id]:
        finding = f"{', '.join(without)}: {NO_IDS}."
        return Check(name, Status.FAIL, finding, "Upgrade the brokers, or run no sidecars beside them.")
    return Check(name, Status.OK, "Topics have ids.")


def partitions(f: Facts) -> Check:
    name = "partitions of the state topic"
    if isinstance(f.topics, Unknown):
        return Check(name, Status.UNKNOWN, f.topics.why, "DESCRIBE of both topics is needed.")
    state, offsets = f.topics.get(f.state_topic), f.topics.get(OFFSETS)
    if state is None:
        finding = f"There is no topic {f.state_topic}, or this user may not see it."
        return Check(
            name, Status.FAIL, finding, "The first sidecar makes it when it starts. Is --topic its state.topic?"
        )
    if offsets is None:
        return Check(
            name, Status.UNKNOWN, f"{OFFSETS} is not to be seen.", "DESCRIBE of it is needed; sidecars make it."
        )
    if state.partitions != offsets.partitions:
        finding = f"{f.state_topic} has {state.partitions} partitions, {OFFSETS} has {offsets.partitions}."
        remedy = f"They must be as many. Release all groups, delete {f.state_topic}, and start the sidecars again."
        return Check(name, Status.FAIL, finding, remedy)
    return Check(name, Status.OK, f"{state.partitions}, as many as {OFFSETS} has.")


def replicas(f: Facts) -> Check:
    name = "replicas of the state topic"
    if isinstance(f.topics, Unknown) or isinstance(f.nodes, Unknown):
        return Check(name, Status.UNKNOWN, "Topics or nodes are not known.", "DESCRIBE of the topic is needed.")
    topic: Topic | None = f.topics.get(f.state_topic)
    if topic is None:
        return Check(name, Status.UNKNOWN, f"There is no topic {f.state_topic}, or this user may not see it.")
    if topic.leaderless:
        finding = f"Partitions {_list(topic.leaderless)} have no leader: their groups are not served."
        return Check(name, Status.FAIL, finding, "Start the brokers that have their replicas.")
    want = min(3, len(f.nodes))
    if topic.replicas < want:
        finding = f"A partition has {topic.replicas} replicas, and there are {len(f.nodes)} brokers."
        remedy = f"Add replicas with kafka-reassign-partitions.sh: {want} for each partition."
        return Check(name, Status.FAIL if topic.replicas == 1 else Status.WARN, finding, remedy)
    if topic.behind:
        finding = f"Partitions {_list(topic.behind)} have replicas that are not in sync."
        return Check(name, Status.WARN, finding, "Are all brokers up? It passes when they have caught up.")
    return Check(name, Status.OK, f"{topic.replicas} for each partition, all in sync.")


def state_configs(f: Facts) -> Check:
    name = "settings of the state topic"
    if isinstance(f.state_configs, Unknown):
        return Check(name, Status.UNKNOWN, f.state_configs.why, "DESCRIBE_CONFIGS of the topic is needed.")
    brokers = 1 if isinstance(f.nodes, Unknown) else len(f.nodes)
    problems = faults(f.state_topic, f.state_configs, brokers)
    if problems:
        remedy = command(f.state_topic, wanted(f.state_topic, f.state_configs, brokers), f.bootstrap)
        return Check(name, Status.FAIL, "; ".join(problems), remedy)
    weak, better = [], {}
    lag, largest = f.state_configs.get(LAG), f.state_configs.get(LARGEST)
    want_lag, want_largest = (
        f.setting("state.min_compaction_lag_ms", 604_800_000),
        f.setting("state.max_message_bytes", 16_777_216),
    )
    if lag is not None and int(lag) < want_lag:
        weak.append(f"{LAG}={lag}: history goes after that, not after {want_lag} ms")
        better[LAG] = str(want_lag)
    if largest is not None and int(largest) < want_largest:
        weak.append(f"{LARGEST}={largest}: batches are smaller than those of {want_largest}")
        better[LARGEST] = str(want_largest)
    if weak:
        return Check(name, Status.WARN, "; ".join(weak), command(f.state_topic, better, f.bootstrap))
    return Check(name, Status.OK, "They keep what is acknowledged, and history for as long as the sidecars want it.")


def transactions(f: Facts) -> Check:
    name = "transaction topic"
    if isinstance(f.topics, Unknown) or isinstance(f.nodes, Unknown):
        return Check(name, Status.UNKNOWN, "Topics or nodes are not known.", f"DESCRIBE of {TRANSACTIONS} is needed.")
    known = _known(f)
    topic = f.topics.get(TRANSACTIONS)
    configured = [int(c[TXN_REPLICAS]) for c in known if TXN_REPLICAS in c]
    if topic is None and configured and max(configured) > len(f.nodes):
        finding = f"{TXN_REPLICAS}={max(configured)} with {len(f.nodes)} brokers: {TRANSACTIONS} cannot be made."
        return Check(name, Status.FAIL, finding, f"Set {TXN_REPLICAS}={len(f.nodes)} at the brokers and restart them.")
    if topic is not None and topic.leaderless:
        finding = f"Partitions {_list(topic.leaderless)} of {TRANSACTIONS} have no leader: some fences cannot be taken."
        return Check(name, Status.FAIL, finding, "Start the brokers that have their replicas.")
    if topic is not None and topic.replicas < min(3, len(f.nodes)):
        finding = f"{TRANSACTIONS} has {topic.replicas} replicas, and there are {len(f.nodes)} brokers."
        return Check(name, Status.WARN, finding, "Add replicas with kafka-reassign-partitions.sh.")
    low = [int(c[TXN_LIMIT]) for c in known if TXN_LIMIT in c and int(c[TXN_LIMIT]) < TIMEOUT_MS]
    if low:
        finding = f"{TXN_LIMIT}={min(low)}: brokers refuse every fence, as its timeout is {TIMEOUT_MS} ms."
        return Check(name, Status.FAIL, finding, f"Set {TXN_LIMIT} to no less than {TIMEOUT_MS} at the brokers.")
    fence = int(f.setting("state.fence_interval_ms", 3_600_000))
    short = [int(c[EXPIRATION]) for c in known if EXPIRATION in c and int(c[EXPIRATION]) < 2 * fence]
    if short:
        finding = (
            f"{EXPIRATION}={min(short)}: brokers forget fences nearly as quickly as they are renewed ({fence} ms)."
        )
        return Check(
            name,
            Status.WARN,
            finding,
            f"Raise {EXPIRATION} (Kafka's default is 7 days), or lower state.fence_interval_ms.",
        )
    if not known:
        return Check(
            name, Status.UNKNOWN, "The brokers' settings are not known.", "DESCRIBE_CONFIGS of the cluster is needed."
        )
    return of_all_brokers(f, Check(name, Status.OK, "It can be written, and brokers remember fences long enough."))


# ---- settings -------------------------------------------------------------------------------------------------------
def broker_settings(f: Facts) -> Check:
    name = "settings of the brokers"
    known = _known(f)
    if not known:
        why = f.brokers.why if isinstance(f.brokers, Unknown) else "No broker told its settings."
        return Check(name, Status.UNKNOWN, why, "DESCRIBE_CONFIGS of the cluster is needed.")
    session = int(f.setting("ownership.session_timeout_ms", 6_000))
    placeholder = int(f.setting("offsets.placeholder_session_timeout_ms", 300_000))
    proof = int(f.setting("ownership.proof_ms", 15_000))
    bad = [
        *_each(
            known,
            MIN_SESSION,
            lambda v: v > session,
            f"above ownership.session_timeout_ms={session}: no sidecar can join its group",
        ),
        *_each(
            known,
            BROKER_SESSION,
            lambda v: v >= proof,
            f"not below ownership.proof_ms={proof}: leases end too soon",
        ),
    ]
    if bad:
        return Check(
            name, Status.FAIL, "; ".join(bad), "Change the sidecars' setting, the same at all of them, or the brokers'."
        )
    weak = [
        *_each(
            known,
            MAX_SESSION,
            lambda v: v < placeholder,
            f"below offsets.placeholder_session_timeout_ms={placeholder}",
        ),
        *_each(
            known, RETENTION, lambda v: v * 60_000 < DAY_MS, "offsets of groups without members expire within a day"
        ),
        *_each(
            known,
            INITIAL_DELAY,
            lambda v: v > 3_000,
            "placeholders of new groups, and the sidecars' own group, take that long to form",
        ),
    ]
    if weak:
        return Check(
            name,
            Status.WARN,
            "; ".join(weak),
            "Sidecars work with these values. Change the brokers' setting, unless you have chosen it for that effect.",
        )
    return of_all_brokers(f, Check(name, Status.OK, "They go with the sidecars'."))


def same_versions(f: Facts) -> Check:
    name = "versions"
    sidecars = f.answered()
    if not sidecars:
        return Check(name, Status.UNKNOWN, "No sidecar was asked.", ADMINS)
    versions = sorted({s.version for s in sidecars})
    if len(versions) > 1:
        finding = f"The sidecars are of versions {_list(versions)}."
        return Check(name, Status.WARN, finding, "Finish the rolling upgrade.")
    slow = [s.node_id for s in sidecars if s.kernel == "python"]
    if slow:
        finding = f"Sidecar {_list(slow)} runs without its compiled kernel, and so more slowly."
        return Check(name, Status.WARN, finding, "Install it where there is a C compiler, or from a wheel.")
    return Check(name, Status.OK, f"{len(sidecars)} of version {versions[0]}.")


def same_groups(f: Facts) -> Check:
    name = "patterns of groups"
    sidecars = f.answered()
    if not sidecars:
        return Check(name, Status.UNKNOWN, "No sidecar was asked.", ADMINS)
    if problems := [d for patterns in f.patterns() for d in doubts(patterns)]:
        remedy = (
            f"sidecar groups patterns --bootstrap {f.bootstrap} stores patterns as they are written, and says first "
        )
        return Check(name, Status.WARN, "; ".join(problems) + ".", remedy + "which groups they move.")
    stored = {} if isinstance(f.stored, Unknown) else f.stored
    own = [name for name in ("groups.include", "groups.exclude") if stored.get(f"sidecar.{name}") is None]
    for setting in own:
        values = _by_value(sidecars, setting)
        if len(values) > 1:
            finding = (
                f"{setting} differs: {_differ(values)}. Some fronts send clients to sidecars, others to the broker."
            )
            option = f"--{setting.removeprefix('groups.')} PATTERN"
            remedy = "Set it alike everywhere, or store it once for all: "
            remedy += f"sidecar groups patterns {option} --bootstrap {f.bootstrap}"
            return Check(name, Status.FAIL, finding, remedy)
    include = f.patterns()[0]
    if not include:
        return Check(name, Status.WARN, "groups.include is empty: sidecars coordinate no group.", "Set groups.include.")
    if "groups.include" not in own:
        return Check(name, Status.OK, "They are stored in the state topic, which all sidecars follow.")
    return Check(name, Status.OK, f"groups.include is {_list(include)} everywhere.")


def same_settings(f: Facts) -> Check:
    name = "settings of the sidecars"
    sidecars = f.answered()
    if len(sidecars) < 2:
        return Check(name, Status.UNKNOWN, f"{len(sidecars)} sidecars were asked: there is nothing to compare.", ADMINS)
    names = sorted(
        {n for s in sidecars for n in s.settings if n.startswith(SAME)} - {"groups.include", "groups.exclude"}
    )
    different = [f"{n}: {_differ(v)}" for n in names if len(v := _by_value(sidecars, n)) > 1]
    if different:
        finding = f"They differ. {'; '.join(different)}"
        return Check(name, Status.WARN, finding, "Whoever owns a group decides by its own. Set them alike everywhere.")
    return Check(name, Status.OK, "Those that should be the same are.")


def clocks(f: Facts) -> Check:
    name = "clocks"
    sidecars = f.answered()
    if not sidecars:
        return Check(name, Status.UNKNOWN, "No sidecar was asked.", ADMINS)
    skews = {s.node_id: s.skew_ms for s in sidecars} | ({-1: 0} if len(sidecars) == 1 else {})
    apart = max(skews.values()) - min(skews.values())
    against = "this machine's" if len(sidecars) == 1 else "each other's"
    finding = f"The sidecars' clocks are within {apart} ms of {against}."
    remedy = "Times in records and in the audit are wrong by so much. Let NTP or chrony set the clocks."
    if apart > SKEW_FAIL_MS:
        return Check(name, Status.FAIL, finding, remedy)
    return Check(name, Status.WARN, finding, remedy) if apart > SKEW_WARN_MS else Check(name, Status.OK, finding)


def rights(f: Facts) -> Check:
    name = "rights of the sidecars"
    r = f.rights
    if isinstance(r, Unknown):
        return Check(name, Status.UNKNOWN, r.why, "DESCRIBE of the cluster is needed to read ACLs.")
    if not r.enforced:
        return Check(name, Status.OK, "The brokers have no authorizer: everybody may do everything.")
    if not r.principal:
        return Check(name, Status.UNKNOWN, "Nobody said who the sidecars are.", "Name them: --principal User:NAME.")
    if r.principal in r.super_users:
        return Check(name, Status.OK, f"{r.principal} is a super user.")
    names = f.state_topic, f.setting("ownership.group", "__group_state_owners"), f.scope
    needs = needed_operations(*names)
    if lacking := missing(needs, r, anywhere=False):
        finding = f"{r.principal} lacks: " + "; ".join(n.text() for n in lacking)
        return Check(name, Status.FAIL, finding, _commands(f, r.principal, acls(lacking, *names)))
    if partly := missing(needs, r):
        finding = f"{r.principal} has from some hosts only: " + "; ".join(n.text() for n in partly)
        remedy = "If a sidecar connects from another host, remove what denies it there, and grant it from every host:\n"
        return Check(name, Status.WARN, finding, remedy + _commands(f, r.principal, acls(partly, *names)))
    return Check(name, Status.OK, f"{r.principal} has all that it needs.")


def foreign_writers(f: Facts) -> Check:
    """Checks that only the sidecars may write to the state topic: a writer can decide who owns what."""
    name = "writers of the state topic"
    r = f.rights
    if isinstance(r, Unknown):
        return Check(name, Status.UNKNOWN, r.why, "DESCRIBE of the cluster is needed to read ACLs.")
    if not r.enforced:
        return Check(name, Status.OK, "The brokers have no authorizer: everybody may write to every topic.")
    if r.open and not any(g.kind == "topic" and covers(g, f.state_topic) for g in r.grants):
        finding = f"{f.state_topic} has no ACL, and {EVERYONE}=true: everybody may write to it."
        return Check(name, Status.WARN, finding, "Give Write of it to the sidecars: sidecar acls --principal User:NAME")
    if not r.principal:
        return Check(name, Status.UNKNOWN, "Nobody said who the sidecars are.", "Name them: --principal User:NAME.")
    others = holders(Need("topic", f.state_topic, "Write"), r)
    if others:
        finding = f"{_list(others)} may write to {f.state_topic} as well: whoever may can decide who owns what."
        remedy = f"Look at their ACLs (kafka-acls.sh --bootstrap-server {f.bootstrap} --list --topic {f.state_topic}; "
        remedy += "those of the topic * count, too) and remove Write, and All, from all but the sidecars."
        return Check(name, Status.WARN, finding, remedy)
    return Check(name, Status.OK, f"Only {r.principal}, and super users, may write to {f.state_topic}.")


CHECKS: tuple[Callable[[Facts], Check], ...] = (
    refused,
    brokers_up,
    listeners,
    ready,
    beside_each_broker,
    topic_ids,
    partitions,
    replicas,
    state_configs,
    transactions,
    broker_settings,
    same_groups,
    rights_of_patterns,
    same_settings,
    same_versions,
    clocks,
    certificates,
    rights,
    foreign_writers,
    others_rights,
    readers,
)


FOLLOWING = ("listeners", "sidecars ready", "a sidecar for each broker")
"""Names of checks whose failure may follow from that of another one."""


def examine(f: Facts) -> list[Check]:
    return [check(f) for check in CHECKS]


def causes_first(checks: Sequence[Check]) -> list[Check]:
    """Sorts failed checks first, and of these the causes before what may follow from them."""
    failed = [c for c in checks if c.status is Status.FAIL]
    causes = [c for c in failed if c.name not in FOLLOWING]
    why = f"This may follow from: {', '.join(c.name for c in causes)}. See to that first. "
    late = [replace(c, remedy=why + c.remedy) if causes else c for c in failed if c.name in FOLLOWING]
    return [*causes, *late, *(c for c in checks if c.status is not Status.FAIL)]


# ---- words ----------------------------------------------------------------------------------------------------------
def _commands(f: Facts, principal: str, rights: Sequence[Right]) -> str:
    """Returns the commands of `sidecar acls`, without reasons. An administrator's --command-config has to be added."""
    return "\n".join(c for c in commands(rights, principal, f.bootstrap) if not c.startswith("#"))


def _known(f: Facts) -> list[Configs]:
    return [] if isinstance(f.brokers, Unknown) else [c for c in f.brokers.values() if not isinstance(c, Unknown)]


def _each(known: Sequence[Configs], name: str, bad: Callable[[int], bool], text: str) -> list[str]:
    values = sorted({int(c[name]) for c in known if name in c and bad(int(c[name]))})
    return [f"{name}={v}: {text}" for v in values]


def _by_value(sidecars: Sequence[About], setting: str) -> dict[str, list[int]]:
    values: dict[str, list[int]] = {}
    for s in sidecars:
        values.setdefault(_list(_parts(s.settings.get(setting))), []).append(s.node_id)
    return values


def _differ(values: dict[str, list[int]]) -> str:
    return ", ".join(f"{value or 'nothing'} at sidecar {_list(nodes)}" for value, nodes in values.items())


def _parts(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _list(values: Iterable[object]) -> str:
    return ", ".join(map(str, values))


def _nodes(nodes: Sequence[Node]) -> str:
    return ", ".join(f"node {n.node_id} ({n.address})" for n in nodes)
