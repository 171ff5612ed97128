"""Operators remove the rights of the sidecars' own user at the state topic while clients run, make them anew, and
change its password. No port is closed to anybody, and no process ends. Findings 1 and 3 of the operators' review."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    UserScramCredentialUpsertion,
)

from sidecar.coordinator.runtime.cluster_watch import CHECK_S
from sidecar.drill.local import Broker, LocalKafka
from sidecar.drill.processes import wait_until
from sidecar.process.rights import Scope, rights_of
from tests.clients.ground import ENV
from tests.security.ground import ADMIN, SCRAM, Secured, secret_of
from tests.security.test_rights import KINDS, OPERATIONS

pytestmark = pytest.mark.tier("all")
SIDECAR, NEXT, TOPIC, STATE = "sidecar", "sidecar-next", "orders", "__group_state"
MANAGED, UNMANAGED = "managed-denied", "theirs"
FLAP_S, LONG_S = 6.0, 25.0
"""The latter is longer than a lease: nobody owns anything any more."""
GAP_S = FLAP_S + 15.0
"""A member has heard nothing for the flap, and may join anew after it; no verdict on a loaded machine."""
MECHANISM = "SCRAM-SHA-512"


@dataclass
class Bench:
    kafka: LocalKafka
    ground: Secured
    pids: dict[int, int] = field(default_factory=dict)

    def client(self, **more: Any) -> dict[str, Any]:
        who = self.ground.client(ADMIN, self.ground.clients, "SCRAM-SHA-256")
        return {"bootstrap.servers": self.kafka.bootstrap, "log_level": 2, **who, **more}

    def logs(self, word: str) -> list[str]:
        lines = (ln for n in self.kafka.nodes for ln in self.log(n).splitlines())
        return [line for line in lines if word in line]

    def log(self, n: Broker) -> str:
        assert n.sidecar is not None
        return n.sidecar.log.read_text()

    def readyz(self, n: Broker) -> dict[str, Any]:
        import json
        import urllib.error
        import urllib.request

        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{n.admin_port}/readyz", timeout=5) as res:
                return dict(json.load(res))
        except urllib.error.HTTPError as exc:
            return dict(json.load(exc))

    def same_processes(self) -> bool:
        found = [n.sidecar for n in self.kafka.nodes]
        return all(
            p is not None and p.alive and p.pid == self.pids[n.node_id]
            for p, n in zip(found, self.kafka.nodes, strict=True)
        )


def give(bench: Bench, user: str) -> None:
    rights = rights_of(STATE, "__group_state_owners", Scope(("managed", UNMANAGED), (TOPIC,)))
    acls = [
        AclBinding(
            KINDS[r.kind],
            r.name,
            ResourcePatternType.PREFIXED if r.prefixed else ResourcePatternType.LITERAL,
            f"User:{user}",
            "*",
            OPERATIONS[operation],
            AclPermissionType.ALLOW,
        )
        for r in rights
        for operation in r.operations
    ]
    bench.ground.create_acls(bench.kafka, acls)


def take_the_state_topic(bench: Bench) -> list[AclBinding]:
    """Deletes all of the user's ACLs at that name, as infrastructure as code does. Returns them."""
    gone = AclBindingFilter(
        ResourceType.TOPIC,
        STATE,
        ResourcePatternType.LITERAL,
        f"User:{SIDECAR}",
        "*",
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    admin = bench.ground.admin(bench.kafka)
    (future,) = admin.delete_acls([gone]).values()
    return list(future.result(30))


def give_back(bench: Bench, acls: list[AclBinding]) -> None:
    admin = bench.ground.admin(bench.kafka)
    for future in admin.create_acls(acls).values():
        future.result(30)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    few = {"offsets.topic.num.partitions": "8"}
    ground = Secured(tmp_path_factory.mktemp("denied"), users=(SIDECAR, NEXT), more=few)
    own = ground.file("own", ground.java(SIDECAR, ground.internal, MECHANISM))
    looks = ground.file("looks", ground.java(SIDECAR, ground.clients, MECHANISM))
    env = {
        **ENV,
        "SIDECAR_COMMAND_CONFIG": str(own),
        "SIDECAR_BROKER_COMMAND_CONFIG": str(looks),
        "SIDECAR_GROUPS__INCLUDE": '["managed.*"]',
    }
    kafka = ground.start(sidecar_env=env)
    made = Bench(kafka, ground)
    try:
        ground.create(kafka, TOPIC, 6)
        give(made, SIDECAR)
        for node in kafka.nodes:
            kafka.start_sidecar(node)
        kafka.wait_ready(90)
        made.pids = {
            n.node_id: n.sidecar.pid for n in kafka.nodes if n.sidecar is not None and n.sidecar.pid is not None
        }
        yield made
    finally:
        kafka.stop()


# ---- clients ------------------------------------------------------------------------------------------------------
class Traffic:
    """Producers and consumers through all three sidecars, and a connection to each port every 50 ms."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.refused: list[str] = []
        self.undelivered: list[str] = []
        self.delivered = 0
        self.fatal: list[str] = []
        self.last_s: dict[str, float] = {}
        self.longest_s: dict[str, float] = {}
        self.produced_s, self.produce_gap_s = 0.0, 0.0
        self._over = threading.Event()
        works: list[Callable[[], None]] = [self._connects, self._produces]
        for group, protocol in ((MANAGED, "classic"), (f"{MANAGED}-new", "consumer"), (UNMANAGED, "classic")):
            works += [lambda g=group, p=protocol, i=i: self._consumes(g, p, i) for i in range(2)]  # type: ignore[misc]
        self._threads = [threading.Thread(target=work, daemon=True) for work in works]

    def __enter__(self) -> Traffic:
        for thread in self._threads:
            thread.start()
        wait_until("records for every member", lambda: len(self.last_s) == 6, 90)
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(60)

    def reset_gaps(self) -> None:
        """Starts to measure the longest gaps anew."""
        self.longest_s.clear()
        self.produce_gap_s = 0.0

    def _connects(self) -> None:
        while not self._over.wait(0.05):
            for n in self.bench.kafka.nodes:
                try:
                    socket.create_connection(("127.0.0.1", n.sidecar_port), 2).close()
                except OSError as exc:
                    self.refused.append(f"{n.node_id}: {exc}")

    def _produces(self) -> None:
        producer = Producer(self.bench.client(**{"linger.ms": 5, "message.timeout.ms": 30_000}))

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self.undelivered.append(str(error))
                return
            self.delivered += 1
            now_s = time.monotonic()
            if self.produced_s:
                self.produce_gap_s = max(self.produce_gap_s, now_s - self.produced_s)
            self.produced_s = now_s

        while not self._over.wait(0.01):
            producer.produce(TOPIC, b"x" * 100, on_delivery=on_delivery)
            producer.poll(0)
        producer.flush(30)

    def _consumes(self, group: str, protocol: str, number: int) -> None:
        name = f"{group}-{number}"
        config = self.bench.client(**{"group.id": group, "group.protocol": protocol, "auto.commit.interval.ms": 500})
        consumer = Consumer(config | {"auto.offset.reset": "earliest"})
        consumer.subscribe([TOPIC])
        while not self._over.is_set():
            m = consumer.poll(0.1)
            if m is None:
                continue
            if (error := m.error()) is not None:
                if error.fatal():
                    self.fatal.append(f"{name}: {error}")
                continue
            now_s = time.monotonic()
            if name in self.last_s:
                self.longest_s[name] = max(self.longest_s.get(name, 0.0), now_s - self.last_s[name])
            self.last_s[name] = now_s
        consumer.close()


@contextmanager
def traffic(bench: Bench) -> Iterator[Traffic]:
    with Traffic(bench) as t:
        yield t
        wait_until("records for every member again", lambda: min(t.last_s.values()) > time.monotonic() - 2, 60)
        for name, last_s in t.last_s.items():
            t.longest_s[name] = max(t.longest_s.get(name, 0.0), time.monotonic() - last_s)
    print(f"gaps: produce {t.produce_gap_s:.2f} s, consume {max(t.longest_s.values()):.2f} s; delivered {t.delivered}")
    assert t.refused == [] and t.undelivered == [] and t.fatal == []
    assert bench.same_processes()


# ---- the rights at the state topic ---------------------------------------------------------------------------------
def test_rights_that_are_made_anew_cost_nothing_but_the_time(bench: Bench) -> None:
    node = bench.kafka.nodes[0]

    def each_owns_partitions() -> bool:
        """A partition follows its leader some time after a sidecar has come back."""
        found = bench.kafka.owners(node)
        return found is not None and set(found["owners"]) == {n.node_id for n in bench.kafka.nodes}

    with traffic(bench) as t:
        wait_until("each sidecar to own partitions", each_owns_partitions, 60)
        before = bench.kafka.owners(node)
        t.reset_gaps()
        acls = take_the_state_topic(bench)
        assert len(acls) >= 3
        began_s = time.monotonic()
        for n in bench.kafka.nodes:
            wait_until("the cause in /readyz", lambda n=n: bench.readyz(n)["denials"], 10)  # type: ignore[misc]
        (denial, *_) = bench.readyz(node)["denials"]
        assert denial["kind"] == "authorization" and STATE in denial["problem"] and "sidecar acls" in denial["remedy"]
        wait_until("the end of the flap", lambda: time.monotonic() > began_s + FLAP_S, FLAP_S + 5)
        give_back(bench, acls)
        bench.kafka.wait_ready(60)
    after = bench.kafka.owners(node)
    assert before is not None and after is not None
    assert after["owners"] == before["owners"]
    assert max(t.longest_s.values()) < GAP_S
    assert t.produce_gap_s < FLAP_S, "producers have nothing to do with it"
    assert bench.logs("starting anew") == [] and bench.logs("the coordinator has ended") == []
    assert len(bench.logs("the broker refuses the sidecar")) <= 5 * len(bench.kafka.nodes), "a line for each cause"


def test_while_they_are_gone_for_long_the_state_is_named_and_all_goes_on_by_itself(bench: Bench) -> None:
    node = bench.kafka.nodes[0]
    with traffic(bench) as t:
        t.reset_gaps()
        acls = take_the_state_topic(bench)
        told = f"may not DESCRIBE topic {STATE}"
        for n in bench.kafka.nodes:
            wait_until("the state of the topic", lambda n=n: any(told in p for p in bench.readyz(n)["problems"]), 15)  # type: ignore[misc]
        end_s = time.monotonic() + LONG_S
        wait_until("the end of every lease", lambda: time.monotonic() > end_s, LONG_S + 5)
        assert t.produce_gap_s < FLAP_S
        unmanaged = max(s for name, s in t.longest_s.items() if name.startswith(UNMANAGED))
        assert unmanaged < FLAP_S, "groups of the brokers go on"
        give_back(bench, acls)
        bench.kafka.wait_ready(60)
    wait_until("no denial", lambda: bench.readyz(node)["denials"] == [], 3 * CHECK_S)
    assert bench.readyz(node)["last_denial"]["over"]
    assert bench.logs("starting anew") == []


# ---- credentials -----------------------------------------------------------------------------------------------------
def change_password(bench: Bench, user: str, password: str) -> None:
    admin = bench.ground.admin(bench.kafka)
    for how in SCRAM.values():
        change = UserScramCredentialUpsertion(user, ScramCredentialInfo(how, 4096), password.encode())
        for future in admin.alter_user_scram_credentials([change]).values():
            future.result(60)


def write_files(bench: Bench, user: str, password: str) -> None:
    g = bench.ground
    for name, protocol in (("own", g.internal), ("looks", g.clients)):
        said = g.java(user, protocol, MECHANISM)
        said["sasl.jaas.config"] = said["sasl.jaas.config"].replace(secret_of(user), password)
        g.file(name, said)


def restart(bench: Bench, node: Broker) -> None:
    assert node.process is not None
    node.process.kill()
    bench.kafka.start_broker(node)


def test_a_changed_password_is_read_again_when_the_broker_refuses_the_old_one(bench: Bench) -> None:
    """Connections from before go on. When a broker is restarted, its sidecars' connections are new: they are refused,
    that is named once, and when the file is right the sidecars go on by themselves."""
    password = f"{secret_of(SIDECAR)}-new"
    node = bench.kafka.nodes[2]
    change_password(bench, SIDECAR, password)
    restart(bench, node)
    for n in bench.kafka.nodes:
        wait_until("the refusal", lambda n=n: bool(authentication(bench, n)), 60)  # type: ignore[misc]
    denial = authentication(bench, bench.kafka.nodes[0])[0]
    assert "refuses SASL" in denial["problem"] and "read again by itself" in denial["remedy"]
    assert password not in str(denial)
    write_files(bench, SIDECAR, password)
    bench.kafka.wait_ready(60)
    for n in bench.kafka.nodes:
        wait_until("no refusal", lambda n=n: not authentication(bench, n), 60)  # type: ignore[misc]
        lines = [
            ln for ln in bench.log(n).splitlines() if "the broker refuses the sidecar" in ln and "authentication" in ln
        ]
        assert 1 <= len(lines) <= 4, "two files; each is a cause, which is told once a minute"
    assert bench.same_processes()
    with traffic(bench):
        pass


def authentication(bench: Bench, n: Broker) -> list[dict[str, Any]]:
    return [d for d in bench.readyz(n)["denials"] if d["kind"] == "authentication"]


def test_rotation_by_two_users(bench: Bench) -> None:
    """docs/operate/procedures.md: the next user gets the same rights, the files name it, SIGHUP reads them, the former
    user is removed. Nobody's credentials are refused meanwhile. (A right that was missing before is told once a
    minute.)"""
    import os
    import signal

    give(bench, NEXT)
    with traffic(bench) as t:
        t.reset_gaps()
        refused = len(bench.logs("kind='authentication'"))
        write_files(bench, NEXT, secret_of(NEXT))
        for pid in bench.pids.values():
            os.kill(pid, signal.SIGHUP)
        wait_until("the files to be read", lambda: len(bench.logs(f"as {NEXT}")) >= 6, 30)
        change_password(bench, SIDECAR, "nobody-knows-it")
        restart(bench, bench.kafka.nodes[1])
        bench.kafka.wait_ready(90)
        assert len(bench.logs("kind='authentication'")) == refused
