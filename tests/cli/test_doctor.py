"""Each check of the doctor: what makes it ok, warn, fail, or unable to tell."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, admin

from sidecar.cli.connect import Client
from sidecar.cli.doctor import checks as c
from sidecar.cli.doctor import facts as facts_module
from sidecar.cli.doctor import others as o
from sidecar.cli.doctor.brokers import brokers_up
from sidecar.cli.doctor.certificates import certificates
from sidecar.cli.doctor.groups import rights_of_patterns
from sidecar.cli.doctor.model import About, Check, Facts, Grant, Node, Rights, Status, Topic, Unknown
from sidecar.cli.doctor.refused import WAIT, refused
from sidecar.cli.doctor.rights import Need, missing, needed_operations
from sidecar.core.vocabulary.internal_topics import OFFSETS, TRANSACTIONS
from sidecar.process.rights import Scope, commands, rights_of
from tests.cli.test_groups import ended
from tests.docs.test_pages import fault

STATE, OWNERS = "__group_state", "__group_state_owners"
WHY = Unknown("not told")
CONFIGS = {
    "cleanup.policy": "compact",
    "min.insync.replicas": "2",
    "unclean.leader.election.enable": "false",
    "min.compaction.lag.ms": "604800000",
    "max.message.bytes": "16777216",
}
BROKER = {
    c.MIN_SESSION: "6000",
    c.MAX_SESSION: "1800000",
    c.INITIAL_DELAY: "3000",
    c.RETENTION: "10080",
    c.BROKER_SESSION: "9000",
    c.EXPIRATION: "604800000",
    c.TXN_REPLICAS: "3",
    c.TXN_LIMIT: "900000",
}


DENIAL = {
    "kind": "authentication",
    "problem": "h1:9094: the broker refuses SASL_SSL SCRAM-SHA-512 as sidecar: no",
    "remedy": "mend /etc/client.properties (command_config)",
    "at_ms": 1_790_000_000_000,
    "times": 7,
}


def node(n: int, sidecar: bool | None = True) -> Node:
    return Node(n, f"h{n}:9092", sidecar, "" if sidecar is not None else "refused")


def side(n: int, skew_ms: int = 0, **settings: Any) -> About:
    told = {"groups.include": ["a.*"], "groups.exclude": [], "consumer.session_timeout_ms": 45_000, "limits.x": n}
    told |= {name.replace("__", "."): value for name, value in settings.items()}
    return About(f"h{n}:8080", "1.0", n, told, skew_ms, (), (1, 2, 3), "compiled")


def halves(*roles: str) -> list[About | Unknown]:
    """Two processes beside the same broker."""
    return [side(1, role=role) for role in roles]


def ends(n: int, days: int) -> About:
    return replace(side(n), certificate_ends_ms=int((time.time() + days * 86_400) * 1000))


def healthy() -> Facts:
    topics = {name: Topic(50, 3) for name in (STATE, OFFSETS, TRANSACTIONS)}
    return Facts(
        STATE,
        [node(n) for n in (1, 2, 3)],
        topics,
        CONFIGS,
        dict.fromkeys((1, 2, 3), BROKER),
        [side(n) for n in (1, 2, 3)],
        {},
        Rights(enforced=False),
    )


def with_topic(name: str, topic: Topic | None) -> Facts:
    f = healthy()
    assert isinstance(f.topics, dict)
    f.topics = {k: v for k, v in f.topics.items() if k != name} | ({} if topic is None else {name: topic})
    return f


def with_(**fields: Any) -> Facts:
    return replace(healthy(), **fields)


def brokers(**changes: str) -> Facts:
    return with_(brokers={1: BROKER | {getattr(c, name): value for name, value in changes.items()}})


def test_a_healthy_cluster_has_nothing_to_find() -> None:
    found = c.examine(healthy())
    assert [x for x in found if x.status is not Status.OK] == []
    assert not any(x.remedy for x in found)


def test_where_nothing_is_known_nothing_is_judged() -> None:
    nothing = Facts(STATE, WHY, WHY, WHY, WHY, [], WHY, WHY, readers=WHY)
    assert {x.status for x in c.examine(nothing)} == {Status.UNKNOWN}


def test_each_check_has_a_name_of_its_own() -> None:
    names = [x.name for x in c.examine(healthy())]
    assert len(set(names)) == len(names) == len(c.CHECKS)


def grant(
    kind: str,
    name: str,
    operation: str,
    allow: bool = True,
    prefixed: bool = False,
    who: str = "User:s",
    host: str = "*",
) -> Grant:
    return Grant(who, kind, name, prefixed, operation, allow, host)


def enough(**more: Any) -> tuple[Grant, ...]:
    """Returns the rights that `sidecar acls` gives."""
    needs = needed_operations(STATE, "__group_state_owners")
    return tuple(grant(n.kind, n.name, n.operation, prefixed=n.prefixed, **more) for n in needs)


def acls(*grants: Grant, **more: Any) -> Facts:
    return with_(rights=Rights(True, "User:s", ("User:root",), grants, **more))


def broker_down() -> Facts:
    """Broker 3 is down: Metadata names it in replicas only. Its sidecar answers, and is not ready."""
    nodes = frozenset((1, 2, 3))
    topics = {name: Topic(50, 3, behind=(0,), nodes=nodes) for name in (STATE, OFFSETS, TRANSACTIONS)}
    waits = replace(side(3), problems=("broker 3 does not answer",))
    return with_(nodes=[node(1), node(2)], topics=topics, sidecars=[side(1), side(2), waits])


WRONG = replace(side(9), problems=("node id 9 is not among the brokers",))
OLD = replace(side(2), version="0.9")
CASES: list[tuple[Callable[[Facts], Check], Facts, Status, str]] = [
    (c.listeners, with_(nodes=[node(1), node(2, False)]), Status.FAIL, "The broker itself answers at node 2 (h2:9092)"),
    (c.listeners, with_(nodes=[node(1, False), node(2, False)]), Status.FAIL, "No sidecar answers at node 1"),
    (c.listeners, with_(nodes=[node(1), node(2, None)]), Status.FAIL, "Nobody answers at node 2 (h2:9092): refused"),
    (c.listeners, with_(nodes=[node(1, False)], sidecars=[WRONG]), Status.UNKNOWN, "The sidecar of node 1 (h1:9092)"),
    (refused, with_(sidecars=[replace(side(1), denials=(DENIAL,))]), Status.FAIL, "h1:9094: the broker refuses"),
    (refused, with_(sidecars=[]), Status.UNKNOWN, "No sidecar was asked"),
    (brokers_up, broker_down(), Status.FAIL, "Broker 3 is down"),
    (c.beside_each_broker, broker_down(), Status.OK, "Each of the 2 brokers"),
    (c.beside_each_broker, with_(nodes=[node(1), node(2)]), Status.FAIL, "No broker has the node id of sidecar 3"),
    (c.listeners, broker_down(), Status.OK, "A sidecar answers"),
    (c.ready, with_(sidecars=[side(1), Unknown("h2:8080: refused")]), Status.FAIL, "h2:8080: refused"),
    (c.ready, with_(sidecars=[replace(side(1), problems=("no owner",))]), Status.FAIL, "sidecar 1: no owner"),
    (c.ready, with_(sidecars=[side(1), replace(side(2), owners=(1, 1, 3))]), Status.WARN, "do not agree"),
    (c.ready, with_(sidecars=[replace(side(1), owners=(1, -1))]), Status.FAIL, "owned by nobody"),
    (c.beside_each_broker, with_(sidecars=[side(1), side(2)]), Status.WARN, "No sidecar beside node 3"),
    (c.beside_each_broker, with_(sidecars=[side(1), side(2), side(2)]), Status.FAIL, "More than one sidecar"),
    (c.beside_each_broker, with_(nodes=[node(1)], sidecars=halves("front", "coordinator")), Status.OK, "has its own"),
    (c.beside_each_broker, with_(sidecars=halves("front", "front")), Status.FAIL, "More than one sidecar"),
    (c.beside_each_broker, with_(sidecars=halves("both", "coordinator")), Status.FAIL, "More than one sidecar"),
    (c.beside_each_broker, with_(sidecars=[side(1), WRONG]), Status.FAIL, "No broker has the node id of sidecar 9"),
    (c.topic_ids, with_topic(OFFSETS, Topic(50, 3, has_id=False)), Status.FAIL, "Kafka 2.8 or later"),
    (c.partitions, with_topic(STATE, Topic(49, 3)), Status.FAIL, "has 49 partitions, __consumer_offsets has 50"),
    (c.partitions, with_topic(STATE, Topic(51, 3)), Status.FAIL, "has 51 partitions, __consumer_offsets has 50"),
    (c.partitions, with_topic(STATE, None), Status.FAIL, "There is no topic __group_state"),
    (c.partitions, with_topic(OFFSETS, None), Status.UNKNOWN, "__consumer_offsets is not to be seen"),
    (c.replicas, with_topic(STATE, None), Status.UNKNOWN, "no topic"),
    (c.replicas, with_topic(STATE, Topic(50, 1)), Status.FAIL, "has 1 replicas"),
    (c.replicas, with_topic(STATE, Topic(50, 2)), Status.WARN, "has 2 replicas"),
    (c.replicas, with_topic(STATE, Topic(50, 3, (4, 5))), Status.FAIL, "Partitions 4, 5 have no leader"),
    (c.replicas, with_topic(STATE, Topic(50, 3, (), (6,))), Status.WARN, "6 have replicas that are not in sync"),
    (
        c.state_configs,
        with_(state_configs=CONFIGS | {"cleanup.policy": "delete"}),
        Status.FAIL,
        "cleanup.policy=delete",
    ),
    (
        c.state_configs,
        with_(state_configs=CONFIGS | {"min.insync.replicas": "1"}),
        Status.FAIL,
        "min.insync.replicas=1",
    ),
    (
        c.state_configs,
        with_(state_configs=CONFIGS | {"unclean.leader.election.enable": "true"}),
        Status.FAIL,
        "unclean.leader.election.enable=true",
    ),
    (c.state_configs, with_(state_configs=CONFIGS | {"min.compaction.lag.ms": "0"}), Status.WARN, "lag.ms=0"),
    (c.state_configs, with_(state_configs=CONFIGS | {"max.message.bytes": "9"}), Status.WARN, "max.message.bytes=9"),
    (c.state_configs, with_(sidecars=[side(1, state__min_compaction_lag_ms=1 << 40)]), Status.WARN, "lag.ms=604800000"),
    (c.transactions, with_topic(TRANSACTIONS, Topic(50, 3, (1,))), Status.FAIL, "1 of __transaction_state have no"),
    (c.transactions, with_topic(TRANSACTIONS, Topic(50, 1)), Status.WARN, "has 1 replicas"),
    (
        c.transactions,
        replace(with_topic(TRANSACTIONS, None), nodes=[node(1)]),
        Status.FAIL,
        "factor=3 with 1 brokers",
    ),
    (c.transactions, brokers(TXN_LIMIT="30000"), Status.FAIL, "transaction.max.timeout.ms=30000"),
    (c.transactions, brokers(EXPIRATION="3600000"), Status.WARN, "transactional.id.expiration.ms=3600000"),
    (c.transactions, with_(brokers={1: WHY}), Status.UNKNOWN, "not known"),
    (c.transactions, with_(brokers={1: BROKER, 2: WHY}), Status.UNKNOWN, "Not every broker told its settings"),
    (c.broker_settings, brokers(MIN_SESSION="7000"), Status.FAIL, "group.min.session.timeout.ms=7000"),
    (c.broker_settings, brokers(BROKER_SESSION="15000"), Status.FAIL, "broker.session.timeout.ms=15000"),
    (c.broker_settings, brokers(MAX_SESSION="200000"), Status.WARN, "group.max.session.timeout.ms=200000"),
    (c.broker_settings, brokers(RETENTION="60"), Status.WARN, "offsets.retention.minutes=60"),
    (c.broker_settings, brokers(INITIAL_DELAY="5000"), Status.WARN, "group.initial.rebalance.delay.ms=5000"),
    (c.broker_settings, with_(brokers={1: WHY}), Status.UNKNOWN, "No broker told its settings"),
    (c.broker_settings, with_(brokers={1: BROKER, 2: WHY}), Status.UNKNOWN, "told its settings: not told"),
    (c.same_groups, with_(sidecars=[side(1), side(2, groups__include=["b"])]), Status.FAIL, "b at sidecar 2"),
    (c.same_groups, with_(sidecars=[side(1), side(2, groups__exclude=["b"])]), Status.FAIL, "groups.exclude differs"),
    (c.same_groups, with_(sidecars=[side(1, groups__include=[])]), Status.WARN, "coordinate no group"),
    (c.same_groups, with_(stored={"sidecar.groups.include": ""}), Status.WARN, "coordinate no group"),
    (
        c.same_groups,
        with_(sidecars=[side(1), side(2, groups__include=["b"])], stored={"sidecar.groups.exclude": "x"}),
        Status.FAIL,
        "groups.include differs",
    ),
    (
        c.same_groups,
        with_(sidecars=[side(1), side(2, groups__exclude=["b"])], stored={"sidecar.groups.include": "x"}),
        Status.FAIL,
        "groups.exclude differs",
    ),
    (
        c.same_groups,
        with_(sidecars=[side(1), side(2, groups__exclude=["b"])], stored={"sidecar.groups.exclude": ""}),
        Status.OK,
        "is a.* everywhere",
    ),
    (
        c.same_groups,
        with_(sidecars=[side(1), side(2, groups__include=["b"])], stored={"sidecar.groups.include": "x"}),
        Status.OK,
        "stored in the state topic",
    ),
    (
        c.same_groups,
        with_(stored={"sidecar.groups.include": "app-^p.*"}),
        Status.WARN,
        "app-^p.* matches no name",
    ),
    (rights_of_patterns, with_(rights=Rights(True)), Status.UNKNOWN, "nobody said"),
    (
        rights_of_patterns,
        with_(rights=Rights(True, "User:s", grants=(grant("group", "a", "Read", prefixed=True, who="User:s"),))),
        Status.OK,
        "may read",
    ),
    (
        rights_of_patterns,
        with_(
            rights=Rights(True, "User:s", grants=(grant("group", "app-", "Read", prefixed=True, who="User:s"),)),
            stored={"sidecar.groups.include": "app-.*,zz-.*,(x|y)"},
        ),
        Status.FAIL,
        "read the groups of zz-.*:",
    ),
    (
        rights_of_patterns,
        replace(acls(grant("group", "app", "Read", prefixed=True)), stored={"sidecar.groups.include": "app.*,.*,a|b"}),
        Status.UNKNOWN,
        "and .*, a|b may name any",
    ),
    (
        rights_of_patterns,
        replace(acls(grant("group", "*", "Read")), stored={"sidecar.groups.include": "app-.*,.*"}),
        Status.OK,
        "may read",
    ),
    (
        c.same_settings,
        with_(sidecars=[side(1), side(2, consumer__session_timeout_ms=1)]),
        Status.WARN,
        "consumer.session_timeout_ms: 45000 at sidecar 1, 1 at sidecar 2",
    ),
    (c.same_settings, with_(sidecars=[side(1)]), Status.UNKNOWN, "nothing to compare"),
    (c.same_versions, with_(sidecars=[side(1), OLD]), Status.WARN, "0.9, 1.0"),
    (c.same_versions, with_(sidecars=[replace(side(1), kernel="python")]), Status.WARN, "without its compiled kernel"),
    (c.clocks, with_(sidecars=[side(1), side(2, 1_001)]), Status.WARN, "within 1001 ms of each other's"),
    (c.clocks, with_(sidecars=[side(1, -6_000), side(2, 5_000)]), Status.FAIL, "within 11000 ms"),
    (c.clocks, with_(sidecars=[side(1, 20_000)]), Status.FAIL, "of this machine's"),
    (c.clocks, with_(sidecars=[side(1, 20_000), side(2, 20_000)]), Status.OK, "within 0 ms of each other's"),
    (certificates, with_(sidecars=[]), Status.UNKNOWN, "No sidecar"),
    (certificates, with_(sidecars=[ends(1, 30), ends(2, 60)]), Status.OK, "sidecar 2 until 20"),
    (certificates, with_(sidecars=[ends(1, 30), ends(2, 13)]), Status.WARN, "expires soon: sidecar 1 until"),
    (certificates, with_(sidecars=[ends(1, 30), ends(2, -1)]), Status.FAIL, "has expired"),
    (
        c.listeners,
        with_(nodes=[node(1), node(2, False)], sidecars=[side(1), replace(side(2), problems=("no rights",))]),
        Status.UNKNOWN,
        "The sidecar of node 2 (h2:9092) is not ready",
    ),
    (
        c.listeners,
        with_(nodes=[node(1), node(2, False), node(3, False)], sidecars=[replace(side(2), problems=("no rights",))]),
        Status.FAIL,
        "itself answers at node 3",
    ),
    (c.rights, with_(rights=Rights(True)), Status.UNKNOWN, "Nobody said who"),
    (c.rights, with_(rights=Rights(True, "User:s", ("User:s",))), Status.OK, "super user"),
    (
        c.rights,
        with_(rights=Rights(True, "User:s", ("User:x",))),
        Status.FAIL,
        "User:s lacks: Write of topic __group_state",
    ),
    (c.rights, acls(*enough(host="10.0.0.1")), Status.WARN, "User:s has from some hosts only: Write of topic"),
    (
        c.rights,
        acls(*enough(), grant("topic", STATE, "Write", allow=False, host="10.0.0.9")),
        Status.WARN,
        "from some hosts only: Write of topic __group_state",
    ),
    (c.rights, acls(*enough(), grant("topic", STATE, "Write", allow=False)), Status.FAIL, "lacks: Write of topic"),
    (c.foreign_writers, acls(*enough()), Status.OK, "Only User:s, and super users"),
    (c.foreign_writers, acls(grant("topic", STATE, "Read", who="User:x")), Status.OK, "Only User:s"),
    (c.foreign_writers, acls(grant("topic", STATE, "Write", who="User:root")), Status.OK, "Only User:s"),
    (c.foreign_writers, acls(grant("topic", STATE, "Write", who="User:x")), Status.WARN, "User:x may write"),
    (c.foreign_writers, acls(grant("topic", "*", "All", who="User:x")), Status.WARN, "User:x may write"),
    (c.foreign_writers, acls(grant("topic", "__", "Write", prefixed=True, who="User:*")), Status.WARN, "User:* may"),
    (c.foreign_writers, acls(grant("topic", STATE, "Write", who="User:x", host="h")), Status.WARN, "User:x may write"),
    (
        c.foreign_writers,
        acls(grant("topic", "*", "All", who="User:x"), grant("topic", STATE, "Write", False, who="User:x")),
        Status.OK,
        "Only User:s",
    ),
    (o.others_rights, with_(rights=WHY), Status.UNKNOWN, "not told"),
    (o.others_rights, with_(rights=Rights(enforced=False)), Status.OK, "no authorizer"),
    (o.others_rights, with_(rights=Rights(True)), Status.UNKNOWN, "Nobody said who"),
    (o.others_rights, acls(*enough()), Status.OK, "Only User:s, and super users, may touch"),
    (o.others_rights, acls(*enough(), grant("group", "*", "Read", who="User:x")), Status.WARN, "User:x may join and"),
    (
        o.others_rights,
        acls(grant("group", "__", "All", prefixed=True, who="User:x")),
        Status.WARN,
        "may delete",
    ),
    (o.others_rights, acls(grant("group", "billing", "Read", who="User:x")), Status.OK, "Only User:s"),
    (o.others_rights, acls(grant("group", "*", "Describe", who="User:x")), Status.OK, "Only User:s"),
    (o.others_rights, acls(grant("group", "*", "Read", who="User:root")), Status.OK, "Only User:s"),
    (
        o.others_rights,
        acls(grant("group", "*", "Read", who="User:x"), grant("group", OWNERS, "Read", False, who="User:x")),
        Status.OK,
        "Only User:s",
    ),
    (
        o.others_rights,
        acls(grant("transactional-id", "__", "Write", prefixed=True, who="User:x")),
        Status.WARN,
        "User:x may shut sidecars out",
    ),
    (
        o.others_rights,
        acls(grant("topic", "*", "AlterConfigs", who="User:x")),
        Status.WARN,
        "set the state",
    ),
    (o.others_rights, acls(open=True), Status.WARN, "everybody may join and disturb"),
    (o.readers, with_(readers=()), Status.OK, "No member of a group reads"),
    (o.readers, with_(readers=("sink", "mirror")), Status.WARN, "Members of sink, mirror are assigned"),
    (o.readers, with_(readers=WHY), Status.UNKNOWN, "not told"),
    (c.foreign_writers, acls(open=True), Status.WARN, "everybody may write to it"),
    (c.foreign_writers, acls(*enough(), open=True), Status.OK, "Only User:s"),
    (c.foreign_writers, with_(rights=Rights(True)), Status.UNKNOWN, "Nobody said who"),
]


@pytest.mark.parametrize(("check", "facts", "status", "says"), CASES)
def test_what_is_wrong_is_found(check: Callable[[Facts], Check], facts: Facts, status: Status, says: str) -> None:
    found = check(facts)
    assert (found.status, says in found.finding) == (status, True), found
    assert bool(found.remedy) == (status is not Status.OK) or status is Status.UNKNOWN


def test_a_broker_that_is_down_comes_before_what_follows_from_it() -> None:
    """Symptom: its sidecar was to get the node id of another broker."""
    first, second, *_ = c.causes_first(c.examine(broker_down()))
    assert (first.name, second.name) == ("brokers", "sidecars ready")
    assert "Start it." in first.remedy and "may follow from: brokers" in second.remedy


class Groups:
    """An admin client of brokers with so many groups. `describe`: the outcome for a group; each batch takes `batch_s`
    of `clock`, unless its time is over before."""

    def __init__(self, count: int, describe: Any, errors: tuple[Any, ...] = (), batch_s: float = 0.0) -> None:
        self.ids = [f"g{i}" for i in range(count)]
        self.describe, self.errors, self.batch_s = describe, errors, batch_s
        self.clock = 0.0

    def list_consumer_groups(self, request_timeout: float) -> Future[Any]:
        valid = [SimpleNamespace(group_id=g) for g in self.ids]
        return ended(SimpleNamespace(valid=valid, errors=list(self.errors)))

    def describe_consumer_groups(self, ids: list[str], request_timeout: float) -> dict[str, Future[Any]]:
        self.clock += min(self.batch_s, request_timeout)
        return {g: ended(self.describe) for g in ids}


def holding(topic: str) -> Any:
    part = SimpleNamespace(topic=topic)
    return SimpleNamespace(members=[SimpleNamespace(assignment=SimpleNamespace(topic_partitions=[part]))])


REFUSED = KafkaException(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED))
SILENT = KafkaException(KafkaError(KafkaError._TIMED_OUT))


@pytest.mark.parametrize(
    ("groups", "found"),
    [
        (Groups(1, holding("t")), ()),
        (Groups(1, holding(STATE)), ("g0",)),
        (Groups(2, REFUSED), Unknown),
        (Groups(0, None, errors=(SILENT,)), Unknown),
        (Groups(1, holding(STATE), errors=(SILENT,)), ("g0",)),
        (Groups(10_000, holding("t"), batch_s=10), Unknown),
    ],
)
def test_readers_are_not_known_where_not_all_groups_are_told(
    monkeypatch: pytest.MonkeyPatch, groups: Groups, found: Any
) -> None:
    """Symptom: no group read the state topic where none could be described, and silent nodes took 1000 s."""
    monkeypatch.setattr(admin, "AdminClient", lambda config: groups)
    monkeypatch.setattr(facts_module, "time", SimpleNamespace(monotonic=lambda: groups.clock))
    readers = facts_module.readers_of(Client(), "h:1", STATE)
    assert isinstance(readers, Unknown) if found is Unknown else readers == found
    assert groups.clock <= facts_module.READERS_S


def test_the_remedy_of_what_is_not_ready_is_its_own_or_to_wait() -> None:
    own = "waiting for the broker: node id 9 is not among the brokers [1]. Check --node-id and --broker"
    told = c.ready(with_(sidecars=[replace(side(1), problems=(own,)), replace(side(2), problems=(own,))]))
    assert told.remedy == "Check --node-id and --broker"
    told = c.ready(with_(sidecars=[replace(side(1), problems=("no owner is known yet", "1 partitions are read"))]))
    assert told.remedy == WAIT


def test_every_status_that_a_check_can_give_is_tried() -> None:
    tried = {(check, status) for check, _, status, _ in CASES}
    assert {check for check in c.CHECKS if not any((check, s) in tried for s in (Status.FAIL, Status.WARN))} == set()


READ, DESCRIBE = Need("topic", "t", "Read"), Need("topic", "*", "Describe")
TXN = Need("transactional-id", "t-", "Write", prefixed=True)


@pytest.mark.parametrize(
    ("need", "grants", "granted"),
    [
        (READ, [], False),
        (READ, [grant("topic", "t", "Read")], True),
        (READ, [grant("topic", "t", "All")], True),
        (READ, [grant("topic", "t", "Write")], False),
        (READ, [grant("topic", "*", "Read")], True),
        (READ, [grant("topic", "t", "Read", who="User:*")], True),
        (READ, [grant("topic", "t", "Read", who="User:x")], False),
        (READ, [grant("group", "t", "Read")], False),
        (READ, [grant("topic", "", "Read", prefixed=True)], True),
        (READ, [grant("topic", "x", "Read", prefixed=True)], False),
        (READ, [grant("topic", "*", "Read"), grant("topic", "t", "Read", allow=False)], False),
        (READ, [grant("topic", "*", "Read"), grant("topic", "x", "Read", allow=False)], True),
        (READ, [grant("topic", "*", "Read"), grant("topic", "t", "All", allow=False, prefixed=True)], False),
        (READ, [grant("topic", "*", "Read"), grant("topic", "t", "Write", allow=False)], True),
        (DESCRIBE, [grant("topic", "*", "Write")], True),
        (DESCRIBE, [grant("topic", "t", "Describe")], False),
        (DESCRIBE, [grant("topic", "*", "Read"), grant("topic", "t", "Describe", allow=False)], False),
        (TXN, [grant("transactional-id", "t-", "Write", prefixed=True)], True),
        (TXN, [grant("transactional-id", "t-", "Write")], False),
        (TXN, [grant("transactional-id", "*", "Write"), grant("transactional-id", "t-1", "Write", allow=False)], False),
        (
            Need("cluster", "kafka-cluster", "DescribeConfigs"),
            [grant("cluster", "kafka-cluster", "AlterConfigs")],
            True,
        ),
    ],
)
def test_what_acls_grant(need: Need, grants: list[Grant], granted: bool) -> None:
    assert (missing([need], Rights(True, "User:s", (), tuple(grants))) == []) == granted


def test_all_that_is_needed_is_enough() -> None:
    grants = tuple(grant(n.kind, n.name, n.operation, prefixed=n.prefixed) for n in needed_operations(STATE, "g"))
    facts = with_(rights=Rights(True, "User:s", (), grants), sidecars=[side(1, ownership__group="g")])
    assert c.rights(facts).status is Status.OK


def test_of_named_groups_and_topics_only_their_rights_are_needed() -> None:
    scope = Scope(("billing",), ("orders",), elsewhere=False)
    grants = tuple(
        grant(n.kind, n.name, n.operation, prefixed=n.prefixed) for n in needed_operations(STATE, "g", scope)
    )
    facts = with_(rights=Rights(True, "User:s", (), grants), sidecars=[side(1, ownership__group="g")])
    assert c.rights(facts).status is Status.FAIL
    facts.scope = scope
    assert c.rights(facts).status is Status.OK
    facts.scope = Scope(("billing", "shipping"), ("orders",), elsewhere=False)
    assert [line.split("--operation ")[1] for line in c.rights(facts).remedy.splitlines()] == [
        "Read --group shipping --resource-pattern-type prefixed",
        "DescribeConfigs --group shipping --resource-pattern-type prefixed",
    ]


def test_the_remedy_is_the_commands_that_are_missing() -> None:
    """The remedy lists the commands of `sidecar acls` for the missing rights, and no others."""
    facts = acls(*(g for g in enough() if (g.kind, g.name, g.operation) not in LACKS))
    facts.bootstrap = "h1:9092"
    head = "kafka-acls.sh --bootstrap-server h1:9092 --add --allow-principal User:s --operation"
    assert c.rights(facts).remedy.splitlines() == [
        f"{head} Write --topic {STATE}",
        f"{head} DescribeConfigs --cluster",
    ]
    told = commands(rights_of(STATE, "__group_state_owners"), "User:s", "h1:9092")
    given = {line for line in told if line[0] != "#"}
    facts = acls()
    facts.bootstrap = "h1:9092"
    assert set(c.rights(facts).remedy.splitlines()) == given - {f"{head} Create --topic {STATE}"}


LACKS = {("topic", STATE, "Write"), ("cluster", "kafka-cluster", "DescribeConfigs")}


def test_the_remedy_is_the_setting_that_is_wrong() -> None:
    def remedy(**configs: str) -> str:
        facts = with_(state_configs=CONFIGS | {name.replace("_", "."): v for name, v in configs.items()})
        facts.bootstrap = "h1:9092"
        return c.state_configs(facts).remedy.partition("--bootstrap-server h1:9092 --alter --entity-type topics ")[2]

    told = remedy(cleanup_policy="delete", min_insync_replicas="1")
    assert told == f"--entity-name {STATE} --add-config cleanup.policy=compact,min.insync.replicas=2"
    assert remedy(unclean_leader_election_enable="true").endswith("--add-config unclean.leader.election.enable=false")
    assert remedy(min_compaction_lag_ms="0").endswith("--add-config min.compaction.lag.ms=604800000")
    assert remedy(max_message_bytes="9").endswith("--add-config max.message.bytes=16777216")


def test_no_remedy_needs_a_checkout() -> None:
    checked = [check(facts) for check, facts, _, _ in CASES]
    assert [x for x in checked if ".md" in x.remedy or "..." in x.remedy] == []


def test_a_remedy_that_is_a_command_is_one_of_this_program() -> None:
    """Symptom: for patterns that differ the doctor named kafka-configs, which drops every bracket of a pattern."""
    remedies = [check(facts).remedy for check, facts, _, _ in CASES]
    told = [words for remedy in remedies for words in re.findall(r"sidecar groups [a-z]+(?: --?\w[\w-]* \S+)*", remedy)]
    assert told and [x for words in told if (x := fault(words.split()[1:]))] == []
    assert [x for x in remedies if "kafka-configs" in x and "sidecar." in x] == []


def test_what_brokers_refuse_stands_first_with_when_and_what_to_do() -> None:
    """Finding 6: the first line of a sidecar with a wrong password was that its clients bypass it."""
    troubled = replace(side(1), denials=(DENIAL,), last_denial=DENIAL)
    first = c.examine(with_(sidecars=[troubled, side(2)]))[0]
    assert first.status is Status.FAIL and first.remedy == DENIAL["remedy"]
    assert "sidecar 1: authentication: h1:9094: the broker refuses" in first.finding and "7 times" in first.finding
    over = c.examine(with_(sidecars=[replace(side(1), last_denial=DENIAL)]))[0]
    assert over.status is Status.OK and "which is over" in over.finding


def test_what_others_may_do_is_denied_to_each_by_name() -> None:
    facts = acls(*(grant("group", "*", "Read", who=f"User:{n}") for n in "abcdefg"))
    facts.bootstrap = "h1:9092"
    remedy = o.others_rights(facts).remedy.splitlines()
    assert remedy[1] == (
        f"kafka-acls.sh --bootstrap-server h1:9092 --add --deny-principal User:a --operation Read --group {OWNERS}"
    )
    assert len(remedy) == 7 and remedy[-1] == "2 more are to be denied"
    txn = o.others_rights(acls(grant("transactional-id", "*", "All", who="User:x"))).remedy.splitlines()
    assert txn[1].endswith(f"--operation Write --transactional-id {STATE}- --resource-pattern-type prefixed")


def test_causes_come_before_what_follows_from_them() -> None:
    ready, rights, listeners = (Check(n, Status.FAIL, "", "do") for n in (c.FOLLOWING[1], "rights", c.FOLLOWING[0]))
    fine = Check("fine", Status.OK, "")
    told = c.causes_first([fine, ready, listeners, rights])
    assert [x.name for x in told] == ["rights", ready.name, listeners.name, "fine"]
    assert told[1].remedy == "This may follow from: rights. See to that first. do"
    assert c.causes_first([fine, ready]) == [ready, fine], "nothing else has failed"


def test_what_may_follow_is_a_check() -> None:
    assert set(c.FOLLOWING) <= {x.name for x in c.examine(healthy())}
