"""Sidecars with the rights that `sidecar acls` prints, and nothing more: everything a group needs works. Sidecars that
lack one of them: something does not.

The groups and the topics are named, so that each right stands for itself. Where they are not, `sidecar acls` leaves out
what other rights include."""

from __future__ import annotations

import asyncio
import re
import shlex
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from typer.testing import CliRunner

from sidecar.cli.doctor.model import Grant, Rights
from sidecar.cli.doctor.rights import Need, missing
from sidecar.cli.main import app
from sidecar.core.vocabulary.errors import Code
from sidecar.drill.local import LocalKafka
from sidecar.drill.processes import Process, free_ports, port_open, wait_until
from sidecar.kafka.net import BrokerConnection
from sidecar.process.rights import Right, Scope, own_rights, rights_for_clients_elsewhere, rights_of
from sidecar.wire.generated import consumer_group_heartbeat as ch
from sidecar.wire.generated import delete_groups as dl
from sidecar.wire.generated import incremental_alter_configs as ia
from sidecar.wire.generated import offset_commit as oc
from sidecar.wire.generated import txn_offset_commit as tc
from tests.clients.ground import ENV
from tests.clients.test_tools import Tools
from tests.security.ground import ADMIN, Secured
from tests.security.matrix_bench import MINE, TXN, Bench, Site, until

pytestmark = pytest.mark.tier("all")
SIDECAR, LOOKER = "sidecar", "looker"
GROUPS, TOPICS = ("m",), ("orders",)
"""Prefixes of their names. Groups of "managed" are the sidecars'; the others are the brokers' until adopted."""
DENIED = re.compile(r"AUTHORIZATION_FAILED|authorization failed|not authorized|may not DESCRIBE", re.IGNORECASE)

RESOURCE = re.compile(r"resourceType=(\w+), name=([^,]+), patternType=(\w+)")
ENTRY = re.compile(r"\(principal=([^,]+), host=([^,]+), operation=(\w+), permissionType=ALLOW\)")


@dataclass(frozen=True)
class Operation:
    """One operation of a right."""

    kind: str
    name: str
    prefixed: bool
    operation: str

    def __str__(self) -> str:
        return f"{self.operation} {self.kind} {self.name}"


def single(rights: Iterable[Right]) -> list[Operation]:
    return [Operation(r.kind, r.name, r.prefixed, operation) for r in rights for operation in r.operations]


# ---- what is printed ------------------------------------------------------------------------------------------------
def printed(*more: str) -> list[str]:
    result = CliRunner().invoke(app, ["acls", "--bootstrap", "BOOTSTRAP", "--command-config", "ADMIN", *more])
    assert result.exit_code == 0, result.output
    return [line for line in result.output.splitlines() if not line.startswith("#")]


NAMED = [
    word for flag, names in (("--groups", GROUPS), ("--topics", TOPICS)) for name in names for word in (flag, name)
]


def test_each_right_has_a_command_and_a_reason() -> None:
    result = CliRunner().invoke(app, ["acls", "--principal", "User:x", "--topic", "my state"])
    lines = result.output.splitlines()
    lines, who_else = lines[:-3], lines[-3:]
    assert len(lines) == 2 * len(rights_of("", ""))
    assert all(line.startswith("# nobody else may ") and "--resource-pattern-type match" in line for line in who_else)
    assert all(reason.startswith("# ") for reason in lines[::2])
    assert all(shlex.split(command)[0] == "kafka-acls.sh" for command in lines[1::2])
    assert "--topic 'my state'" in result.output
    assert CliRunner().invoke(app, ["acls", "--principal", "x"]).exit_code == 2
    both = ["--for-audit", "--for-clients-listener"]
    assert CliRunner().invoke(app, ["acls", "--principal", "User:x", *both]).exit_code == 2


def test_those_of_the_audit() -> None:
    """tests/audit/lake/test_secured.py shows that they are enough, and that each is needed."""
    (line,) = printed("--principal", "User:auditor", "--for-audit")
    given = "--operation Read --operation DescribeConfigs --topic __group_state"
    assert line.endswith(f"--add --allow-principal User:auditor {given}")


def granted(rights: Iterable[Operation]) -> Rights:
    grants = (Grant("User:s", r.kind, r.name, r.prefixed, r.operation, True) for r in rights)
    return Rights(True, "User:s", (), tuple(grants))


def needs(rights: Iterable[Operation]) -> list[Need]:
    return [Need(r.kind, r.name, r.operation, r.prefixed) for r in rights]


@pytest.mark.parametrize("elsewhere", [True, False])
@pytest.mark.parametrize("topics", [(), TOPICS, ("orders", "orders", "ord")])
@pytest.mark.parametrize("groups", [(), GROUPS, ("__", "m")])
def test_none_is_included_in_the_others(groups: tuple[str, ...], topics: tuple[str, ...], elsewhere: bool) -> None:
    """The rights together still include everything that is wanted."""
    found = single(rights_of("state", "__owners", Scope(groups, topics, elsewhere)))
    for one in found:
        assert missing(needs([one]), granted(r for r in found if r is not one)), one
    wanted = own_rights("state", "__owners", groups, topics)
    wanted += rights_for_clients_elsewhere(groups, topics) if elsewhere else ()
    assert missing(needs(single(wanted)), granted(found)) == []


def test_where_nothing_is_named_the_rights_include_all_others() -> None:
    """The tests below, where groups and topics are named, therefore speak for both."""
    few = single(rights_of("state", "owners", Scope(GROUPS, TOPICS)))
    assert missing(needs(few), granted(single(rights_of("state", "owners")))) == []


# ---- they are enough ------------------------------------------------------------------------------------------------
def give(kafka: LocalKafka, ground: Secured, *named: str) -> None:
    """Run the printed commands, as an administrator does."""
    admin = str(ground.file("administrator", ground.java(ADMIN, ground.internal)))
    lines = printed("--principal", f"User:{SIDECAR}", *named)
    lines += printed("--principal", f"User:{LOOKER}", "--for-clients-listener", *named)
    tools = Tools(kafka.version)
    made: list[AclBinding] = []
    try:
        for line in lines:
            words = [{"BOOTSTRAP": kafka.internal, "ADMIN": admin}.get(w, w) for w in shlex.split(line)][1:]
            said = tools.run("org.apache.kafka.tools.AclCommand", *words)
            assert any("Adding ACLs" in told for told in said), said
            made += added("\n".join(said))
    finally:
        tools.close()
    ground.wait_for_acls(kafka, made)


def added(said: str) -> list[AclBinding]:
    """As the tool prints them: a resource, then its entries."""
    found = []
    for part in said.split("Adding ACLs for resource")[1:]:
        (kind, name, pattern), *_ = RESOURCE.findall(part)
        for who, host, what in ENTRY.findall(part.split("Current ACLs")[0]):
            resource = KINDS[kind.lower().replace("_", "-")], name, ResourcePatternType[pattern]
            found.append(AclBinding(*resource, who, host, AclOperation[what], AclPermissionType.ALLOW))
    return found


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """Three brokers with sidecars: an owner is often not where the offsets of its groups are."""
    few = {"offsets.topic.num.partitions": "8"}  # as many has each state topic
    users = (SIDECAR, LOOKER, *LACKING)
    ground = Secured(tmp_path_factory.mktemp("rights"), users=users, more=few)
    own = ground.file("own", ground.java(SIDECAR, ground.internal, "SCRAM-SHA-512"))
    looks = ground.file("looks", ground.java(LOOKER, ground.clients, "SCRAM-SHA-256"))
    env = {**ENV, "SIDECAR_COMMAND_CONFIG": str(own), "SIDECAR_BROKER_COMMAND_CONFIG": str(looks)}
    kafka = ground.start(sidecar_env=env)
    made = Bench(kafka, ground)
    try:
        ground.create(kafka, "orders", 3)
        give(kafka, ground, *NAMED)
        for node in kafka.nodes:
            kafka.start_sidecar(node)
        kafka.wait_ready()
        made.settle()
        yield made
    finally:
        made.close()
        kafka.stop()


def client_of(bench: Bench) -> dict[str, Any]:
    who = bench.ground.client(ADMIN, bench.ground.clients, "SCRAM-SHA-256")
    return {"bootstrap.servers": bench.kafka.bootstrap, "log_level": 2, **who}


def works(bench: Bench, group: str, protocol: str) -> None:
    """A member joins, commits, reads what it has committed, leaves."""
    config = {**client_of(bench), "group.id": group, "group.protocol": protocol, "enable.auto.commit": False}
    consumer = Consumer(config)

    def assigned() -> bool:
        consumer.poll(0.1)
        return bool(consumer.assignment())

    try:
        consumer.subscribe(["orders"])
        wait_until("an assignment", assigned, 40)
        told = consumer.commit(offsets=[TopicPartition("orders", 0, 7)], asynchronous=False)
        assert told is not None
        assert told[0].error is None
        assert consumer.committed([TopicPartition("orders", 0)], 20)[0].offset == 7
    finally:
        consumer.close()


def test_groups_of_both_protocols_with_these_rights_only(bench: Bench) -> None:
    for n in range(6):  # on several owners
        works(bench, f"managed-{n}", "consumer" if n % 2 else "classic")


@pytest.fixture(scope="module")
def away(bench: Bench) -> Site:
    """The sidecar beside the broker that keeps the offsets is gone; from here on, all groups are of that broker."""
    bench.move_owner()
    return bench.through("away")


def test_owners_that_are_not_where_the_offsets_are(bench: Bench, away: Site) -> None:
    two = AdminClient(client_of(bench))
    for protocol in ("classic", "consumer"):
        group = bench.fresh(away, f"away-{protocol}")
        works(bench, group, protocol)
        (offsets,) = two.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
        assert [(p.partition, p.offset) for p in offsets.result(30).topic_partitions] == [(0, 7)]
        (deleted,) = two.delete_consumer_groups([group]).values()
        deleted.result(30)


@pytest.mark.tier("nightly")
def test_groups_that_move_where_an_owner_is_elsewhere(bench: Bench, away: Site) -> None:
    said = str(bench.ground.file("clients", bench.ground.java(ADMIN, bench.ground.clients, "SCRAM-SHA-256")))
    theirs = bench.fresh(Site("", "m-", 0, ""), "theirs")
    bench.run(committed(bench, bench.direct(), theirs))
    for verb in ("adopt", "release"):
        words = ["groups", verb, theirs, "--bootstrap", bench.kafka.bootstrap, "--command-config", said]
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 0, result.output


# ---- what rights are needed for, one request each -------------------------------------------------------------------
async def committed(bench: Bench, site: Site, group: str, member: str = "", epoch: int = -1) -> int:
    rows = [oc.OffsetCommitRequestTopic("orders", partitions=[oc.OffsetCommitRequestPartition(0, 7)])]
    conn = await bench.admin(site)
    res = await conn.request(oc, "OffsetCommit", oc.OffsetCommitRequest(group, epoch, member, topics=rows), high=9)
    return int(res.topics[0].partitions[0].error_code)


async def commit(bench: Bench, site: Site) -> int:
    return await committed(bench, site, bench.fresh(site, "commit"))


async def delete(bench: Bench, site: Site) -> int:
    group = bench.fresh(site, "delete")
    assert await committed(bench, site, group) == Code.NONE
    res = await (await bench.admin(site)).request(dl, "DeleteGroups", dl.DeleteGroupsRequest([group]))
    return int(res.results[0].error_code)


async def commit_in_transaction(bench: Bench, site: Site) -> int:
    if bench.producer == (-1, -1):
        await bench.transaction(site)
    rows = [tc.TxnOffsetCommitRequestTopic("orders", partitions=[tc.TxnOffsetCommitRequestPartition(0, 7)])]
    req = tc.TxnOffsetCommitRequest(TXN, bench.group(site, MINE, "txn"), *bench.producer, topics=rows)
    res = await (await bench.admin(site)).request(tc, "TxnOffsetCommit", req, high=3)
    return int(res.topics[0].partitions[0].error_code)


Asks = Callable[[Bench, Site], Awaitable[int]]
ELSEWHERE: dict[tuple[str, str], tuple[Asks, Code]] = {
    ("topic", "Read"): (commit, Code.TOPIC_AUTHORIZATION_FAILED),
    ("group", "Delete"): (delete, Code.GROUP_AUTHORIZATION_FAILED),
    ("transactional-id", "Write"): (commit_in_transaction, Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
}


def test_requests_of_clients_elsewhere(bench: Bench, away: Site) -> None:
    for asks, _ in ELSEWHERE.values():
        assert bench.run(asks(bench, away)) == Code.NONE, asks


def test_nobody_was_refused_anything(bench: Bench, away: Site) -> None:
    """By all the tests above, and before those that take rights away."""
    for node in bench.kafka.nodes:
        assert node.sidecar is not None
        refused = [line for line in node.sidecar.log.read_text().splitlines() if DENIED.search(line)]
        assert refused == []
        assert bench.kafka.problems(node) == []


# ---- each is needed -------------------------------------------------------------------------------------------------
KINDS = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
    "cluster": ResourceType.BROKER,
}
OPERATIONS = {
    "Read": AclOperation.READ,
    "Write": AclOperation.WRITE,
    "Create": AclOperation.CREATE,
    "Delete": AclOperation.DELETE,
    "Describe": AclOperation.DESCRIBE,
    "DescribeConfigs": AclOperation.DESCRIBE_CONFIGS,
}


def binding(user: str, r: Operation) -> AclBinding:
    pattern = ResourcePatternType.PREFIXED if r.prefixed else ResourcePatternType.LITERAL
    who = (f"User:{user}", "*", OPERATIONS[r.operation], AclPermissionType.ALLOW)
    return AclBinding(KINDS[r.kind], r.name, pattern, *who)


def give_all(bench: Bench, acls: list[AclBinding]) -> None:
    bench.ground.create_acls(bench.kafka, acls)


@pytest.mark.parametrize("right", single(rights_for_clients_elsewhere(GROUPS, TOPICS)), ids=str)
def test_each_right_for_clients_elsewhere_is_needed(bench: Bench, away: Site, right: Operation) -> None:
    asks, refused = ELSEWHERE[right.kind, right.operation]
    bench.ground.take(bench.kafka, SIDECAR, KINDS[right.kind], right.name, OPERATIONS[right.operation])
    try:
        assert bench.run(asks(bench, away)) == refused
    finally:
        give_all(bench, [binding(SIDECAR, right)])


def own(n: int) -> list[Operation]:
    return single(own_rights(f"state-{n}", f"owners-{n}", GROUPS, TOPICS))


SAYS = (
    "'state tail' .*Topic authorization failed",
    "'the others cannot be told who this sidecar is; .*TOPIC_AUTHORIZATION_FAILED",
    "'settings of the state topic not read' .*TOPIC_AUTHORIZATION_FAILED",
    "'waiting for the state topic' .* cannot be created: TOPIC_AUTHORIZATION_FAILED",
    "'partitions cannot be taken over' .*TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    "coordinator of owners-.*GROUP_AUTHORIZATION_FAILED",
    "the broker does not tell its settings; .*Cluster authorization failed",
    "'waiting for __consumer_offsets' .*may not DESCRIBE it",
    "",
    "level='warning' event='the broker does not tell of a group' .*GROUP_AUTHORIZATION_FAILED",
    "'the broker does not tell its settings of groups; .*GROUP_AUTHORIZATION_FAILED",
)
"""Patterns for the log of a sidecar that lacks the right of the same number; empty if it does not know what."""
BLIND, DEAF = 8, 9
"""Sidecars whose lack shows when a member joins a group: it is assigned nothing, or has no answer."""
MEMBER = "member-of-admin"
LACKING = [f"lacks-{n}" for n in range(len(SAYS) + 1)]
"""The users of these sidecars. The last one lacks nothing."""


@dataclass(frozen=True)
class OwnSidecar:
    """A sidecar of its own, with a state topic and an owners' group of its own, beside the broker of the groups."""

    process: Process
    site: Site


def own_sidecar(bench: Bench, n: int) -> OwnSidecar:
    """Starts a sidecar with all `own_rights` but that of this number."""
    kafka, ground, user = bench.kafka, bench.ground, LACKING[n]
    listen, admin = free_ports(2)
    env = {
        **kafka.sidecar_settings(bench.keeper),
        "SIDECAR_LISTEN": f"127.0.0.1:{listen}",
        "SIDECAR_ADMIN": f"127.0.0.1:{admin}",
        "SIDECAR_COMMAND_CONFIG": str(ground.file(user, ground.java(user, ground.internal))),
        "SIDECAR_BROKER_COMMAND_CONFIG": str(ground.file(f"{user}-looks", ground.java(user, ground.clients))),
        "SIDECAR_STATE__TOPIC": f"state-{n}",
        "SIDECAR_OWNERSHIP__GROUP": f"owners-{n}",
        "SIDECAR_LOG__LEVEL": "debug",
    }
    command = [sys.executable, "-m", kafka.sidecar_main, "run"]
    process = Process(user, command, kafka.folder / f"{user}.log", env).start()
    return OwnSidecar(process, Site(user, f"managed-{n}-", listen, ground.clients))


@pytest.fixture(scope="module")
def lones(bench: Bench) -> Iterator[list[OwnSidecar]]:
    """All at once: each takes a while to start, and some never get ready."""
    left = ((n, [r for k, r in enumerate(own(n)) if k != n]) for n in range(len(LACKING)))
    give_all(bench, [binding(LACKING[n], r) for n, rights in left for r in rights])
    bench.run(configured(bench, "managed-set"))
    found = [own_sidecar(bench, n) for n in range(len(LACKING))]
    try:
        ports = [it.site.port for it in found]
        wait_until("the sidecars to listen", lambda: all(map(port_open, ports)), 60, [it.process for it in found])
        yield found
    finally:
        for it in found:
            it.process.kill()


async def configured(bench: Bench, group: str) -> None:
    """The group has a setting at the broker."""
    setting = [ia.AlterableConfig("consumer.heartbeat.interval.ms", 0, "5001")]
    req = ia.IncrementalAlterConfigsRequest([ia.AlterConfigsResource(32, group, setting)])
    res = await (await bench.admin(bench.direct())).request(ia, "IncrementalAlterConfigs", req)
    assert res.responses[0].error_code == Code.NONE, res


async def joined(bench: Bench, site: Site) -> tuple[str, int, int]:
    """A new group with one member: its name, the member's epoch, and of how many topics it has partitions."""
    group = bench.fresh(site, "joins")
    req = ch.ConsumerGroupHeartbeatRequest(group, MEMBER, 0, topic_partitions=[])
    req.rebalance_timeout_ms, req.subscribed_topic_names = 30_000, ["orders"]

    async def beat(conn: BrokerConnection) -> ch.ConsumerGroupHeartbeatResponse:
        found: ch.ConsumerGroupHeartbeatResponse = await conn.request(ch, "ConsumerGroupHeartbeat", req)
        return found

    res = await until(beat, await bench.admin(site), lambda r: r.error_code == Code.NONE)
    return group, res.member_epoch, len(res.assignment.topic_partitions)


def test_beside_the_offsets_its_own_rights_are_enough(bench: Bench, lones: list[OwnSidecar]) -> None:
    it = lones[-1]
    group, epoch, topics = bench.run(joined(bench, it.site))
    assert topics == 1
    assert bench.run(committed(bench, it.site, group, MEMBER, epoch)) == Code.NONE
    assert [line for line in log_of(it).splitlines() if DENIED.search(line)] == []


@pytest.mark.parametrize("n", range(len(SAYS)), ids=map(str, own(0)))
def test_each_right_of_its_own_is_needed(bench: Bench, lones: list[OwnSidecar], n: int) -> None:
    it = lones[n]
    if n == BLIND:
        _, _, topics = bench.run(joined(bench, it.site))
        assert topics == 0
    if n == DEAF:
        with pytest.raises(TimeoutError):
            bench.run(asyncio.wait_for(joined(bench, it.site), 5))
    wait_until(f"{SAYS[n]!r} in {it.process.log}", lambda: bool(re.search(SAYS[n], log_of(it))), 30)


def log_of(it: OwnSidecar) -> str:
    return it.process.log.read_text()
