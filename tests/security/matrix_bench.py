"""The bench of the matrix of rights: users with every right present or missing, groups in every condition, and
connections of each user to the broker and to the sidecar.

All groups of the matrix are in one partition of `__consumer_offsets`, so that one broker keeps their offsets and one
sidecar owns them: first the one beside that broker, and after `move_owner` another one.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import struct
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from msgspec import Struct

from sidecar.core.vocabulary.errors import Code
from sidecar.core.vocabulary.placement import partition_for
from sidecar.drill.local import LocalKafka
from sidecar.drill.processes import wait_until
from sidecar.kafka.net import BrokerConnection
from sidecar.kafka.properties import of
from sidecar.kafka.security import PLAINTEXT as OPEN_DOOR
from sidecar.wire.generated import add_offsets_to_txn as ao
from sidecar.wire.generated import consumer_group_heartbeat as ch
from sidecar.wire.generated import find_coordinator as fc
from sidecar.wire.generated import init_producer_id as ip
from sidecar.wire.generated import join_group as jg
from sidecar.wire.generated import metadata as md
from sidecar.wire.generated import offset_commit as oc
from sidecar.wire.generated import sync_group as sy
from tests.clients.ground import ENV
from tests.security.ground import ADMIN, Secured

T = TypeVar("T")
OPEN, SECRET, ABSENT = "open", "secret", "absent"
"""Topics: users may do with OPEN what their rights say, and nothing with SECRET, or with ABSENT, which is not there."""
MINE, OTHER = "mine", "other"
"""Groups that the users' rights are about, and groups on which nobody but ADMIN has any."""
TXN = "txn-mine"
NOBODY, LEAVER = "nobody", "leaver"
"""A client that does not authenticate, and a user who has rights for a while."""
LONG_MS = 600_000
PROPERTIES = {
    "group.consumer.max.session.timeout.ms": str(LONG_MS),
    "group.consumer.session.timeout.ms": str(LONG_MS),
}
OPERATIONS = {
    "R": AclOperation.READ,
    "D": AclOperation.DESCRIBE,
    "X": AclOperation.DELETE,
    "W": AclOperation.WRITE,
    "C": AclOperation.DESCRIBE_CONFIGS,
    "A": AclOperation.ALTER_CONFIGS,
}
KINDS = {"g": ResourceType.GROUP, "t": ResourceType.TOPIC, "x": ResourceType.TRANSACTIONAL_ID, "k": ResourceType.BROKER}


def product(**letters: str) -> tuple[str, ...]:
    """A user for each subset of these rights. The name says what it may: `gRX.tD` is READ and DELETE of groups, and
    DESCRIBE of topics."""
    kinds = []
    for kind, choice in letters.items():
        subsets = (c for n in range(len(choice) + 1) for c in itertools.combinations(choice, n))
        kinds.append([kind + "".join(s) for s in subsets])
    return tuple(".".join(parts) for parts in itertools.product(*kinds))


USERS = {
    "groups": product(g="RDX", t="RD"),
    "transactions": product(x="W", g="R", t="R"),
    "settings": product(g="DCA", k="C"),
    "cluster": product(k="D", g="D"),
    "brokers": product(k="CA"),
    "some": ("gRDX.tRD", "gRD.tD", "gR.t", "gD.tD", "gX.tR", "g.tRD", "gRDX.t", "g.t"),
}
EVERYBODY = (*dict.fromkeys(user for users in USERS.values() for user in users), LEAVER)


Row = tuple[ResourceType, str, AclOperation]


def bindings(user: str, rows: Iterable[Row]) -> list[AclBinding]:
    """Returns ACLs for these rows; those of groups are prefixed ones."""
    found = []
    for kind, name, what in rows:
        pattern = ResourcePatternType.PREFIXED if kind is ResourceType.GROUP else ResourcePatternType.LITERAL
        found.append(AclBinding(kind, name, pattern, f"User:{user}", "*", what, AclPermissionType.ALLOW))
    return found


def rights() -> list[AclBinding]:
    found = []
    for user in (u for u in EVERYBODY if u != LEAVER):
        for part in user.split("."):
            kind = KINDS[part[0]]
            names = {"g": (f"native-{MINE}", f"managed-{MINE}"), "t": (OPEN,), "x": (TXN,), "k": ("kafka-cluster",)}
            found += bindings(user, ((kind, n, OPERATIONS[c]) for n in names[part[0]] for c in part[1:]))
    return found


# ---- sites --------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Site:
    """A listener that is asked. `prefix`: of its groups' names."""

    name: str
    prefix: str
    port: int
    protocol: str

    @property
    def managed(self) -> bool:
        return self.prefix == "managed-"


@dataclass
class Bench:
    """Open connections, and what is known of the groups."""

    kafka: LocalKafka
    ground: Secured
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)
    conns: dict[tuple[str, int], asyncio.Task[BrokerConnection]] = field(default_factory=dict)
    members: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Group -> id and generation (or epoch) of its member."""
    topic_ids: dict[str, bytes] = field(default_factory=dict)
    producer: tuple[int, int] = (-1, -1)
    salt: int = 0

    def run(self, conversation: Awaitable[T]) -> T:
        return self.loop.run_until_complete(conversation)

    async def conn(self, user: str, port: int, protocol: str) -> BrokerConnection:
        key = (user, port)
        if key not in self.conns:
            self.conns[key] = self.loop.create_task(self._open(user, port, protocol))
        return await self.conns[key]

    async def _open(self, user: str, port: int, protocol: str) -> BrokerConnection:
        how = OPEN_DOOR if user == NOBODY else of(self.ground.java(user, protocol, "SCRAM-SHA-256"))
        return await BrokerConnection.open("127.0.0.1", port, "matrix", timeout_s=30, security=how)

    def forget(self, *ports: int, user: str = "") -> None:
        """Close these connections; the next question opens new ones."""
        for key in [k for k in self.conns if k[1] in ports or k[0] == user]:
            task = self.conns.pop(key)
            if task.done() and not task.cancelled() and task.exception() is None:
                task.result().close()

    def close(self) -> None:
        self.forget(*(port for _, port in self.conns))
        self.loop.run_until_complete(asyncio.sleep(0.1))
        self.loop.close()

    # ---- places -------------------------------------------------------------------------------------------
    def settle(self) -> None:
        """Choose the partition: its leader has a sidecar that owns it."""
        topics = self.ground.admin(self.kafka).list_topics("__consumer_offsets", timeout=20).topics
        leaders = {p: m.leader for p, m in topics["__consumer_offsets"].partitions.items()}
        self.partitions, self.partition = len(leaders), 7
        self.keeper = next(n for n in self.kafka.nodes if n.node_id == leaders[self.partition])

        def at_home() -> bool:
            owners = (self.kafka.owners(self.keeper) or {}).get("owners", [])
            return bool(owners) and owners[self.partition] == self.keeper.node_id

        wait_until("the sidecar beside its leader to own it", at_home, 60)

    def group(self, site: Site, whose: str, label: str) -> str:
        """A name in the chosen partition, always the same for this label."""
        for n in itertools.count():
            name = f"{site.prefix}{whose}-{label}.{n}"
            if partition_for(name, self.partitions) == self.partition:
                return name
        raise AssertionError

    def fresh(self, site: Site, label: str, whose: str = MINE) -> str:
        """A name that was never used."""
        while True:
            self.salt += 1
            name = f"{site.prefix}{whose}-{label}.{self.salt}"
            if partition_for(name, self.partitions) == self.partition:
                return name

    def direct(self) -> Site:
        return Site("direct", "native-", self.keeper.internal_port, self.ground.internal)

    def through(self, name: str) -> Site:
        """The sidecar that owns the groups at the moment."""
        running = [n for n in self.kafka.nodes if n.sidecar is not None and n.sidecar.alive]
        found = self.kafka.owners(running[0])
        assert found is not None
        owner = next(n for n in running if n.node_id == found["owners"][self.partition])
        return Site(name, "managed-", owner.sidecar_port, self.ground.clients)

    def restart_with(self, **env: str) -> None:
        """Starts the sidecar beside the offsets with these settings."""
        self.kafka.sidecar_env = {**self.kafka.sidecar_env, **env}
        self.forget(self.keeper.sidecar_port)
        self.kafka.start_sidecar(self.keeper)
        self.kafka.wait_ready()

        def owns() -> bool:
            found = self.kafka.owners(self.keeper)
            return found is not None and found["owners"][self.partition] == self.keeper.node_id

        wait_until("the owner to be beside the offsets again", owns, 120)  # members may hold it up for 30 s

    def allow(self, user: str, *rows: Row, allowed: bool = True) -> None:
        """Give these rights, or take them away."""
        acls = bindings(user, rows)
        if allowed:
            self.ground.create_acls(self.kafka, acls)
        else:
            what = [(a.restype, a.name, a.resource_pattern_type, a.principal, a.host, a.operation) for a in acls]
            filters = [AclBindingFilter(*w, AclPermissionType.ALLOW) for w in what]
            self.ground.delete_acls(self.kafka, filters)

    def move_owner(self) -> None:
        """The sidecar beside the broker that keeps the offsets goes, that broker stays."""
        assert self.keeper.sidecar is not None
        self.keeper.sidecar.kill()
        other = next(n for n in self.kafka.nodes if n is not self.keeper)

        def others_own_all() -> bool:
            found = self.kafka.owners(other)
            return found is not None and not {self.keeper.node_id, -1} & set(found["owners"])

        wait_until("the others to own everything", others_own_all, 40)
        self.kafka.wait_ready()

    # ---- groups, made by ADMIN ----------------------------------------------------------------------------
    async def admin(self, site: Site) -> BrokerConnection:
        return await self.conn(ADMIN, site.port, site.protocol)

    async def learn(self) -> None:
        conn = await self.admin(self.direct())
        req = md.MetadataRequest([md.MetadataRequestTopic(name=n) for n in (OPEN, SECRET)])
        res = await conn.request(md, "Metadata", req, high=12)
        self.topic_ids = {t.name: t.topic_id for t in res.topics}
        assert all(t.error_code == 0 for t in res.topics)

    async def with_offsets(self, site: Site, group: str) -> str:
        """A group of which nothing but offsets is there."""
        rows = [oc.OffsetCommitRequestPartition(0, 7)]
        topics = [oc.OffsetCommitRequestTopic(t, partitions=rows) for t in (OPEN, SECRET)]
        req = oc.OffsetCommitRequest(group, topics=topics)

        def fine(res: Any) -> bool:
            return all(p.error_code == 0 for t in res.topics for p in t.partitions)

        await until(lambda c: c.request(oc, "OffsetCommit", req, high=9), await self.admin(site), fine)
        return group

    async def classic(self, site: Site, group: str, instance: str | None = None) -> str:
        """A classic group with one member, which subscribes to OPEN. `instance`: of a static one."""
        conn = await self.admin(site)
        names = struct.pack(">hih", 0, 1, len(OPEN)) + OPEN.encode() + struct.pack(">i", -1)
        protocols = [jg.JoinGroupRequestProtocol("range", names)]
        member = ""
        for _ in range(2):
            req = jg.JoinGroupRequest(group, LONG_MS, LONG_MS, member, instance, "consumer", protocols)
            res = await conn.request(jg, "JoinGroup", req)
            member = res.member_id
        assert res.error_code == Code.NONE, (group, res)
        given = [sy.SyncGroupRequestAssignment(member, b"\0\0\0\0\0\0\xff\xff\xff\xff")]
        sync = sy.SyncGroupRequest(group, res.generation_id, member, instance, "consumer", "range", given)
        assert (await conn.request(sy, "SyncGroup", sync)).error_code == Code.NONE
        self.members[group] = (member, res.generation_id)
        return group

    async def consumer(self, site: Site, group: str, *topics: str) -> str:
        """A consumer group with one member."""
        conn = await self.admin(site)
        req = ch.ConsumerGroupHeartbeatRequest(group, "member-of-admin", 0, topic_partitions=[])
        req.rebalance_timeout_ms, req.subscribed_topic_names = LONG_MS, list(topics)
        res = await conn.request(ch, "ConsumerGroupHeartbeat", req)
        assert res.error_code == Code.NONE, (group, res)
        self.members[group] = (res.member_id, res.member_epoch)
        return group

    async def transaction(self, *sites: Site) -> None:
        """Begin one, with the offsets of a group at each site."""
        at = fc.FindCoordinatorRequest(key=TXN, key_type=1)
        told = await until(
            lambda c: c.request(fc, "FindCoordinator", at, high=3),
            await self.admin(self.direct()),
            lambda r: r.error_code == 0,
        )
        node = next(n for n in self.kafka.nodes if n.node_id == told.node_id)
        conn = await self.conn(ADMIN, node.internal_port, self.ground.internal)
        begin = ip.InitProducerIdRequest(TXN, LONG_MS)
        made = await until(lambda c: c.request(ip, "InitProducerId", begin, high=4), conn, lambda r: r.error_code == 0)
        self.producer = (made.producer_id, made.producer_epoch)
        self.txn_site = Site("transactions", "", node.internal_port, self.ground.internal)
        for site in sites:
            req = ao.AddOffsetsToTxnRequest(TXN, *self.producer, self.group(site, MINE, "txn"))
            await until(lambda c, r=req: c.request(ao, "AddOffsetsToTxn", r), conn, lambda r: r.error_code == 0)  # type: ignore[misc]

    async def populate(self, site: Site) -> None:
        """The groups that no question changes."""
        for whose in (MINE, OTHER):
            await self.with_offsets(site, self.group(site, whose, "offsets"))
            await self.classic(site, await self.with_offsets(site, self.group(site, whose, "classic")))
            await self.consumer(site, await self.with_offsets(site, self.group(site, whose, "consumer")), OPEN)
        await self.consumer(site, self.group(site, MINE, "both-topics"), OPEN, SECRET)


async def until(
    ask: Callable[[BrokerConnection], Awaitable[Any]], conn: BrokerConnection, fine: Callable[[Any], bool]
) -> Any:
    """Coordinators may have to load first."""
    for _ in range(100):
        res = await ask(conn)
        if fine(res):
            return res
        await asyncio.sleep(0.1)
    raise AssertionError(res)


# ---- answers that can be compared -----------------------------------------------------------------------------------
LEFT_OUT = frozenset(
    (
        "throttle_time_ms",
        "host",
        "port",
        "node_id",
        "client_id",
        "client_host",
        "member_id",
        "leader",
        "member_metadata",
    )
)
NAME = re.compile(rf"(?:native|managed)-({MINE}|{OTHER})-([a-z-]+)\.\d+")


def plain(told: Any) -> Any:
    """The answer without what is never the same twice, its lists in order."""
    if isinstance(told, Struct):
        names = (name for name in told.__struct_fields__ if name not in LEFT_OUT)
        return {name: plain(getattr(told, name)) for name in names}
    if isinstance(told, list | tuple):
        return sorted((plain(x) for x in told), key=repr)
    return NAME.sub(r"\1-\2", told) if isinstance(told, str) else told


def different(theirs: Any, mine: Any, path: str = "") -> Iterator[str]:
    """Returns the differences of two plain answers: Kafka's value, the sidecar's value."""
    if isinstance(theirs, dict) and isinstance(mine, dict):
        for key in theirs:
            yield from different(theirs[key], mine[key], f"{path}.{key}")
    elif isinstance(theirs, list | tuple) and isinstance(mine, list | tuple) and len(theirs) == len(mine):
        for n, pair in enumerate(zip(theirs, mine, strict=True)):
            yield from different(*pair, f"{path}[{n}]")
    elif theirs != mine:
        yield f"{path} {theirs!r} != {mine!r}"


def start(ground: Secured) -> Bench:
    """Three brokers with sidecars, users, rights, topics, groups."""
    own = ground.file("own", ground.java(ADMIN, ground.internal, "SCRAM-SHA-512"))
    looks = ground.file("looks", ground.java(ADMIN, ground.clients, "SCRAM-SHA-256"))
    env = {**ENV, "SIDECAR_COMMAND_CONFIG": str(own), "SIDECAR_BROKER_COMMAND_CONFIG": str(looks)}
    kafka = ground.start(sidecar_env={**env, "SIDECAR_AUTHORISATION_CACHE_MS": "0"})
    try:
        admin = ground.admin(kafka)
        wanted = [NewTopic(OPEN, 2, 3), NewTopic(SECRET, 2, 3)]
        for future in admin.create_topics(wanted).values():
            future.result(60)
        ground.create_acls(kafka, list(rights()))
        for node in kafka.nodes:
            kafka.start_sidecar(node)
        kafka.wait_ready()
        bench = Bench(kafka, ground)
        bench.settle()
        bench.run(bench.learn())
        return bench
    except BaseException:
        kafka.stop()
        raise
