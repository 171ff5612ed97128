"""The ground of drills: a cluster with sidecars, and for each drill its own topic, producer, groups and clients.

All groups of a drill hash to the same partition, so they have the same coordinator: one owner among the sidecars, one
broker at Kafka. A group of each protocol is the sidecars'; with `beside_kafka`, one of each is Kafka's own, and its
clients connect to the brokers directly. With three brokers, the sidecars' own group is coordinated by another broker
than the groups, and bystanders have groups at the third: faults of the other two must not stop them.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, ElectionType, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from sidecar.core.streams.config import STREAMS
from sidecar.core.vocabulary.internal_topics import OFFSETS
from sidecar.core.vocabulary.placement import partition_for
from sidecar.drill.clients import Client, ProducerProcess
from sidecar.drill.drills.group_under_test import KINDS, PARTITIONS, GroupUnderTest, group_under_test, sink_of
from sidecar.drill.local import Broker, LocalKafka
from sidecar.drill.members import Member, Members, first_after
from sidecar.drill.probe import sibling_group
from sidecar.drill.processes import DrillError, Process

STATE_PARTITIONS = 50
RATE = 300.0
"""Records that the producer sends a second."""
SIDECAR_ENV = {"SIDECAR_GROUPS__INCLUDE": '["drill.*"]'}
PROPERTIES = {
    # Members of both coordinators heartbeat equally often; with Kafka's 5 s each step of a rebalance takes as long.
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "500",
}
OWNERS_GROUP, STATE_TOPIC = "__group_state_owners", "__group_state"
MEMBERS = 3
"""Members on our own wire client, for each group under test."""


class Ground:
    def __init__(self, kafka: LocalKafka, say: Callable[[str], None]) -> None:
        self.kafka = kafka
        self.report = say
        self.topic = ""
        self.under_test: list[GroupUnderTest] = []
        self.producer: ProducerProcess | None = None
        self.bystanders: dict[str, list[Member]] = {}
        """`sidecar` or `kafka`, the coordinator -> bystanders of its groups."""
        self.crew: Members | None = None
        self.kinds: tuple[str, ...] = KINDS
        """The kinds of the groups under test."""
        self.since_ms = 0
        """The begin of the drill, in Unix ms. Earlier findings of the audit belong to another drill."""
        self.unknown_kinds: set[str] = set()
        """Kinds of records that a drill writes and this version does not know."""
        self.clients_may_end = False
        """Whether a client that ends is started again, as an orchestrator would do."""

    # ---- the cluster --------------------------------------------------------------------------------------
    def start_cluster(self) -> None:
        k = self.kafka
        started = time.monotonic()
        k.start_brokers()
        for n in k.nodes:
            k.start_sidecar(n)
        k.wait_ready()
        took = time.monotonic() - started
        self.report(f"{len(k.nodes)} brokers, Kafka {k.version}, and their sidecars run after {took:.0f} s")

    def admin(self, bootstrap: str = "") -> AdminClient:
        where: dict[str, Any] = {"bootstrap.servers": bootstrap or self.kafka.internal, "log_level": 2}
        return AdminClient({**where, **self.kafka.security.librdkafka()})

    def owner(self) -> Broker:
        return self.kafka.owner_of(self.under_test[0].group)

    def wait_in_sync(self, timeout_s: float = 120) -> None:
        """Wait until all brokers are there and every replica is in sync, then give each partition to its preferred
        leader."""
        admin, n = self.admin(), len(self.kafka.nodes)

        def in_sync() -> bool:
            try:
                metadata = admin.list_topics(timeout=5)
            except KafkaException:
                return False
            parts = [p for t in metadata.topics.values() for p in t.partitions.values()]
            return len(metadata.brokers) == n and all(len(p.isrs) == len(p.replicas) for p in parts)

        self.wait("all replicas in sync", in_sync, timeout_s, step_s=0.25)
        if n > 1:
            admin.elect_leaders(ElectionType.PREFERRED, None).result(timeout=30)

    def wait_as_before(self, timeout_s: float = 120) -> None:
        """Wait until the cluster is as it was before the fault: brokers in sync, sidecars ready, and each partition
        owned beside its leader."""
        self.wait_in_sync(timeout_s)
        self.kafka.wait_ready(timeout_s)
        self.wait("each partition to be owned beside its leader", self.kafka.at_home, timeout_s, step_s=0.25)

    # ---- the cast of one drill ----------------------------------------------------------------------------
    def cast(self, tag: str, beside_kafka: bool) -> None:
        """Make the topic, and start the producer, the clients and the members of one drill."""
        k = self.kafka
        self.since_ms = int(time.time() * 1000)
        self.under_test, self.clients_may_end, self.crew = [], False, None  # those of the drill before have ended
        self.topic = f"topic-{tag}"
        names = [self.topic, *(sink_of(self.topic) for kind in self.kinds if kind == STREAMS)]
        new = [NewTopic(name, PARTITIONS, min(3, len(k.nodes))) for name in names]
        admin = self.admin()
        for future in admin.create_topics(new).values():
            future.result(timeout=30)
        time.sleep(2.5)  # the sidecars read the topics every 2 s
        self.producer = ProducerProcess(k, self.topic, rate=RATE, bootstrap=k.internal, name=f"{tag}-producer").start()
        first, elsewhere = self._places(f"drill-{tag}-{self.kinds[0]}")
        native = KINDS if k.has_consumer_groups else KINDS[1:]
        cast = [("sidecar", kind, k.bootstrap) for kind in self.kinds]
        cast += [("kafka", kind, k.internal) for kind in native if beside_kafka]
        for side, kind, bootstrap in cast:
            prefix = f"{'drill' if side == 'sidecar' else 'native'}-{tag}-{kind}"
            group = first if (side, kind) == cast[0][:2] else sibling_group(first, prefix, STATE_PARTITIONS)
            assert partition_for(group, STATE_PARTITIONS) == partition_for(first, STATE_PARTITIONS)
            self.under_test.append(group_under_test(side, kind, group, bootstrap))
            self._open(tag, self.under_test[-1])
        self.bystanders = self._bystanders(tag, elsewhere) if beside_kafka and elsewhere else {}
        bystanders = [m for members in self.bystanders.values() for m in members]
        self.crew = Members([*(m for c in self.under_test for m in c.members), *bystanders]).start()

    def _places(self, prefix: str) -> tuple[str, str]:
        """Return the id of the first group, and that of a group at another broker, or "". Each broker leads its group's
        offsets and state, and neither coordinates the sidecars' own group."""
        if len(self.kafka.nodes) < 3 or self.kafka.bare:
            return prefix, ""
        groups, arbiter = self._leads_both(prefix)
        if len(groups) < 2:  # a broker that was late at the start leads nothing until it is given its partitions
            self.wait_as_before()
            groups, arbiter = self._leads_both(prefix)
        if len(groups) < 2:
            raise DrillError(f"no two brokers lead both topics of a partition: {groups}, beside {arbiter}")
        return groups.popitem()[1], groups.popitem()[1]

    def _leads_both(self, prefix: str) -> tuple[dict[int, str], int]:
        """Return a group id for each broker that may be chosen, and the broker that coordinates the sidecars' group."""
        topics = self.admin().list_topics(timeout=30).topics
        offsets, state = (topics[t].partitions for t in (OFFSETS, STATE_TOPIC))
        arbiter = offsets[partition_for(OWNERS_GROUP, STATE_PARTITIONS)].leader
        groups: dict[int, str] = {}
        for name in (f"{prefix}-{n}" for n in range(1_000)):
            p = partition_for(name, STATE_PARTITIONS)
            if offsets[p].leader == state[p].leader != arbiter:
                groups.setdefault(offsets[p].leader, name)
        return groups, arbiter

    def _bystanders(self, tag: str, first: str) -> dict[str, list[Member]]:
        """Return members, and newcomers, whose groups are at another broker than the groups under test."""
        out: dict[str, list[Member]] = {}
        places = (("sidecar", "drill", self.kafka.bootstrap), ("kafka", "native", self.kafka.internal))
        for (side, begin, bootstrap), kind, newcomer in itertools.product(places, KINDS, (False, True)):
            prefix = f"{begin}-{tag}-{kind}-{'newcomer' if newcomer else 'bystander'}"
            name = sibling_group(first, prefix, STATE_PARTITIONS)
            where = self.addresses(bootstrap)
            member = Member(name, kind, where, self.topic, newcomer, self.kafka.security)
            out.setdefault(side, []).append(member)
        return out

    @staticmethod
    def addresses(bootstrap: str) -> list[tuple[str, int]]:
        return [(h, int(p)) for h, p in (a.rsplit(":", 1) for a in bootstrap.split(","))]

    def _open(self, tag: str, c: GroupUnderTest) -> None:
        """Start the group's clients, and make its members."""
        c.open(self.kafka, self.topic, f"{tag}-{c.side}-{c.kind}")
        for i in range(MEMBERS):
            name = sibling_group(c.group, f"{c.group}-m{i}", STATE_PARTITIONS)
            where = self.addresses(c.bootstrap)
            c.members.append(Member(name, c.measured_as, where, self.topic, security=self.kafka.security))

    @property
    def clients(self) -> list[Client]:
        return [c for group in self.under_test for c in group.clients]

    # ---- waiting ------------------------------------------------------------------------------------------
    def processes(self) -> list[Process]:
        """Return the processes that must run. Clients that may end are not among them: they can end at any moment, and
        `replace_ended` replaces them."""
        producer = [self.producer.process] if self.producer else []
        clients = [] if self.clients_may_end else [c.process for c in self.clients]
        return [*self.kafka.processes(), *clients, *producer]

    def wait(self, what: str, check: Callable[[], bool], timeout_s: float, step_s: float = 0.05) -> float:
        """Wait until `check()` is true, and return the seconds it took. Raises DrillError if it takes too long, or if
        a process has ended unexpectedly, even if `check()` is true without it."""
        start = time.monotonic()
        self.require_running(what)
        while not check():
            if time.monotonic() - start > timeout_s:
                raise DrillError(f"{what}: not within {timeout_s:g} s; {self._state()}")
            time.sleep(step_s)
            self.require_running(what)
        return time.monotonic() - start

    def require_running(self, what: str) -> None:
        """Raises DrillError if a process has ended unexpectedly, or if a member failed. `what`: what is waited for."""
        if self.clients_may_end:
            self.replace_ended()
        for p in self.processes():
            p.require_running(what)
        if self.crew is not None and self.crew.failed is not None:
            raise DrillError(f"a member failed: {self.crew.failed!r}") from self.crew.failed

    def replace_ended(self) -> None:
        for c in self.under_test:
            for client in [client for client in c.clients if not client.process.alive]:
                self.report(f"{client.name} has ended ({client.journal.errors[-1:]}) and is started again")
                c.replace(client)

    def _state(self) -> str:
        """Write the state of the groups to a file, for an analysis; return a summary with its path."""
        seen: dict[str, object] = {
            "clients hold": {c.name: sorted(c.journal.current()) for c in self.clients},
            "clients' errors": {c.name: c.journal.errors[-5:] for c in self.clients},
            "members were refused": {m.group: dict(m.refused) for c in self.under_test for m in c.members},
        }
        for n in self.kafka.nodes:
            seen[f"sidecar {n.node_id} is not ready"] = self.kafka.problems(n)
            for c in self.under_test:
                seen[f"sidecar {n.node_id}, {c.group}"] = self.kafka.get(n, f"/group?id={c.group}")
        path = self.kafka.folder / f"stuck-{time.strftime('%H%M%S')}.json"
        path.write_text(json.dumps(seen, indent=1))
        return f"clients hold {seen['clients hold']}; more in {path}"

    def bystanders_served_since(self, at_s: float) -> bool:
        bystanders = (m for members in self.bystanders.values() for m in members)
        return all(first_after(m.heartbeats, at_s) is not None for m in bystanders)

    def settled(self, timeout_s: float) -> float:
        """Wait until every group has all its clients and partitions, all are served, and so is every partition."""
        at_s, at_ms = time.monotonic(), int(time.time() * 1000)
        return self.wait(
            "all groups balanced and served",
            lambda: (
                all(c.balanced() and c.served_since(at_s, at_ms) for c in self.under_test)
                and all(c.all_committed_since(at_ms) for c in self.under_test)
                and self.bystanders_served_since(at_s)
            ),
            timeout_s,
        )

    # ---- looking ------------------------------------------------------------------------------------------
    def committed(self, c: GroupUnderTest) -> dict[int, int]:
        """Return the group's committed offsets by partition, asked as any tool asks."""
        request = ConsumerGroupTopicPartitions(c.group)
        admin = self.admin(c.bootstrap)
        future = admin.list_consumer_group_offsets([request])[c.group]
        return {tp.partition: tp.offset for tp in future.result(timeout=30).topic_partitions}

    def coordinator(self, group: str) -> Broker:
        """Return the broker that coordinates a group of Kafka."""
        p = partition_for(group, STATE_PARTITIONS)
        leader = self.admin().list_topics(OFFSETS, timeout=30).topics[OFFSETS].partitions[p].leader
        return next(n for n in self.kafka.nodes if n.node_id == leader)

    # ---- end ----------------------------------------------------------------------------------------------
    def strike(self) -> list[str]:
        """End the clients of this drill in order; the cluster stays. Return the names of all that had to be killed."""
        for c in self.clients:
            c.stop()
        now_ms = int(time.time() * 1000)
        for c in self.clients:
            c.journal.end(now_ms)
        for group in self.under_test:
            group.close()
        if self.crew is not None:
            self.crew.stop()
        return [c.name for group in self.under_test for c in (*group.ended, *group.clients) if c.hung]

    def abandon(self) -> None:
        """End everything at once."""
        if self.crew is not None:
            self.crew.stop()
        for c in self.clients:
            c.process.kill()
        for group in self.under_test:
            group.close()
        if self.producer is not None:
            self.producer.process.kill()
