"""A real Apache Kafka on the local JVM, with sidecars in front of its brokers: combined KRaft nodes, or brokers and one
ZooKeeper where KRaft was early access (zookeeper.py).

With `front="two"` the listener CLIENTS advertises the sidecar's address, and INTERNAL is for the brokers and the
sidecars' own clients. With `front="one"` a single listener serves everything and advertises the sidecar's address.
With `front="none"` there are brokers only.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import urllib.request
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

from sidecar.core.vocabulary.internal_topics import OFFSETS
from sidecar.drill.artifacts import KAFKA, cache_dir, class_archive, java, kafka_libs
from sidecar.drill.processes import DrillError, Process, SocketUnits, free_ports, port_open, wait_until
from sidecar.drill.secured import private
from sidecar.drill.zookeeper import KRAFT_SINCE, ZooKeeper, numbers
from sidecar.kafka.security import PLAINTEXT, Security

JVM = ("-Xms128m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
JVM_FAST = ("-Xms512m", "-Xmx1g", "-XX:+UseG1GC")
LOG4J = """<Configuration>
  <Appenders>
    <Console name="out"><PatternLayout pattern="[%d] %p %m (%c{1})%n"/></Console>
  </Appenders>
  <Loggers>
    <Root level="WARN"><AppenderRef ref="out"/></Root>
  </Loggers>
</Configuration>
"""
LOG4J_OLD = """log4j.rootLogger=WARN, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=[%d] %p %m (%c{1})%n
"""


def _uuid() -> str:
    """Make an id as Kafka does: it never begins with a dash, which a command line would take for an option."""
    while (text := urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return text


def compiled() -> dict[str, str]:
    """Returns the environment of a compiled sidecar, as an installed one is: compiling takes as long as the rest of a
    start."""
    if not sys.dont_write_bytecode:
        return {}
    return {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(cache_dir() / "compiled")}


def _answer(admin_port: int, path: str) -> tuple[bool, Any]:
    """Returns whether an admin address gives a good answer, and its JSON: None if there is none, or a part of it, as of
    a sidecar that is killed meanwhile."""
    try:
        try:
            answer = urllib.request.urlopen(f"http://127.0.0.1:{admin_port}{path}", timeout=1.0)
        except HTTPError as exc:
            answer = exc
        with answer:
            return answer.status == HTTPStatus.OK, json.load(answer)
    except (HTTPException, OSError, ValueError):
        return False, None


@dataclass
class Broker:
    node_id: int
    clients_port: int
    internal_port: int
    controller_port: int
    sidecar_port: int
    admin_port: int
    peer_port: int
    process: Process | None = None
    sidecar: Process | None = None
    coordinator: Process | None = None
    """The second process of a sidecar that is split in two; then `sidecar` is its front."""


PORTS = 6
"""Ports of one broker and its sidecar."""


@dataclass
class LocalKafka:
    """A cluster. Start it with `start()`, end it with `stop()`; everything that it writes is under `folder`."""

    folder: Path
    brokers: int = 3
    version: str = KAFKA
    front: str = "two"
    properties: Mapping[str, str] = field(default_factory=dict)
    sidecar_env: Mapping[str, str] = field(default_factory=dict)
    jvm: tuple[str, ...] = JVM
    sidecar_main: str = "sidecar.cli.main"
    split: bool = False
    """Whether each sidecar is two processes, a front and a coordinator."""
    halved: set[int] = field(default_factory=set)
    """Node ids of sidecars that are two processes although the others are not."""
    socket_units: SocketUnits | None = None
    """The holder of the sidecars' listening sockets; None: each sidecar opens its own."""
    proxied: dict[int, int] = field(default_factory=dict)
    """Port of a listener -> port of a proxy before it, which others use instead."""
    trees: dict[int, Path] = field(default_factory=dict)
    """Node id -> another checkout of this project, whose sidecar runs there."""
    bare: set[int] = field(default_factory=set)
    """Node ids of brokers without a sidecar: their listener for clients has the port that the sidecar would have."""
    client: Mapping[str, str] = field(default_factory=dict)
    """Kafka's properties for all connections of sidecars, clients and commands. Empty: the cluster is open."""
    scram: Mapping[str, str] = field(default_factory=dict, repr=False)
    """User -> password. The users exist from the start, so brokers may be users, too."""
    nodes: list[Broker] = field(default_factory=list)
    started: list[Process] = field(default_factory=list, repr=False)
    """All brokers and sidecars that were started, also those that a drill has taken from their nodes."""

    def __post_init__(self) -> None:
        self.folder = self.folder.absolute()
        ports = free_ports(PORTS * self.brokers)
        rows = (ports[PORTS * i : PORTS * (i + 1)] for i in range(self.brokers))
        self.nodes = [Broker(i, a, b, c, d, e, f) for i, (a, b, c, d, e, f) in enumerate(rows, 1)]
        self.zookeeper = None if numbers(self.version) >= KRAFT_SINCE else ZooKeeper(self.folder)
        self.libs = kafka_libs(self.version)
        self.tools = kafka_libs(KAFKA)

    # ---- addresses ----------------------------------------------------------------------------------------
    def proxied_port(self, port: int) -> int:
        """Return the port that others use to reach the listener on `port`."""
        return self.proxied.get(port, port)

    @property
    def bootstrap(self) -> str:
        """The clients' bootstrap servers: the sidecars, or the brokers if there are none."""
        ports = [n.clients_port if self.front == "none" else n.sidecar_port for n in self.nodes]
        return ",".join(f"127.0.0.1:{self.proxied_port(p)}" for p in ports)

    @property
    def internal(self) -> str:
        """The brokers' listener without a sidecar in front, or their own ports where one listener serves everything."""
        ports = [n.clients_port if self.front == "one" else n.internal_port for n in self.nodes]
        return ",".join(f"127.0.0.1:{self.proxied_port(p)}" for p in ports)

    def internal_sidecars(self) -> str:
        """Return the sidecars' addresses, for any `front`."""
        return ",".join(f"127.0.0.1:{self.proxied_port(n.sidecar_port)}" for n in self.nodes)

    @property
    def has_consumer_groups(self) -> bool:
        """Whether the brokers have consumer groups: Kafka 3 has none by default, and Kafka 2 none at all."""
        return numbers(self.version) >= (4,)

    def clients_listener(self, n: Broker) -> int:
        """Return the port of the broker's own listener for clients."""
        return n.sidecar_port if n.node_id in self.bare else n.clients_port

    # ---- credentials --------------------------------------------------------------------------------------
    @property
    def command_config(self) -> tuple[str, ...]:
        """Options with the credentials for Kafka's tools and for our own commands; none if the cluster is open."""
        return ("--command-config", str(self._client_file)) if self.client else ()

    @cached_property
    def security(self) -> Security:
        """Credentials for our own wire client. All connections share them, and read the certificates once."""
        if not self.client:
            return PLAINTEXT
        from sidecar.kafka.properties import of  # takes a while, and few need it

        return of(self.client)

    @property
    def _client_file(self) -> Path:
        return self.folder / "client.properties"

    # ---- brokers ------------------------------------------------------------------------------------------
    def start(self) -> LocalKafka:
        self.start_brokers()
        if self.front != "none":
            for node in self.nodes:
                self.start_sidecar(node)
        return self

    def start_brokers(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.cluster_id = _uuid()
        for node in self.nodes:
            self.configure(node)
        if self.client:
            private(self._client_file, "".join(f"{name}={value}\n" for name, value in self.client.items()))
        (self.folder / "log4j2.xml").write_text(LOG4J)
        (self.folder / "log4j.properties").write_text(LOG4J_OLD)
        if self.zookeeper is None:
            self._format_all()
        elif self.scram:
            raise DrillError(f"Kafka {self.version} with ZooKeeper has no users from the start: drill on 3.3 or later")
        else:
            self.zookeeper.start(self._java())
        for node in self.nodes:
            self.start_broker(node)
        ports = [self.clients_listener(n) for n in self.nodes]
        wait_until("the brokers", lambda: all(map(port_open, ports)), 90, self.processes())

    def _format_all(self) -> None:
        first = self.nodes[0]
        self.format(first)
        for node in self.nodes[1:]:  # one JVM start instead of one for each node
            shutil.copytree(self._data(first), self._data(node))
            meta = self._data(node) / "meta.properties"
            lines = [ln for ln in meta.read_text().splitlines() if not ln.startswith(("node.id", "directory.id"))]
            meta.write_text("\n".join([*lines, f"node.id={node.node_id}", f"directory.id={_uuid()}", ""]))

    def format(self, node: Broker) -> None:
        """Give a broker an empty disk."""
        shutil.rmtree(self._data(node), ignore_errors=True)
        if self.zookeeper is not None:
            return  # brokers of this kind format it themselves
        users = [f"--add-scram=SCRAM-SHA-512=[name={u},password={password}]" for u, password in self.scram.items()]
        where = ("-t", self.cluster_id, "-c", str(self._config(node)))
        done = subprocess.run(
            [*self._java(), "kafka.tools.StorageTool", "format", *where, *users],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise DrillError(f"StorageTool format failed:\n{done.stdout}{done.stderr}")

    def configure(self, node: Broker) -> None:
        """Write the broker's properties; they count when it is started next."""
        private(self._config(node), self._server_properties(node))

    def start_broker(self, node: Broker) -> None:
        if self.zookeeper is not None:
            self.zookeeper.wait_without(node.node_id)
        command = [*self._java(self.jvm), "kafka.Kafka", str(self._config(node))]
        node.process = Process(f"broker-{node.node_id}", command, self.folder / f"broker-{node.node_id}.log").start()
        self.started.append(node.process)

    def _java(self, opts: tuple[str, ...] = JVM) -> list[str]:
        """Return the command of a JVM with the brokers' classes, up to the main class."""
        log = [
            f"-Dlog4j2.configurationFile={self.folder}/log4j2.xml",
            f"-Dlog4j.configuration=file:{self.folder}/log4j.properties",
        ]
        return [java(), *opts, *class_archive(self.version), *log, "-cp", f"{self.libs}/*"]

    def _config(self, node: Broker) -> Path:
        return self.folder / f"broker-{node.node_id}.properties"

    def _data(self, node: Broker) -> Path:
        return self.folder / f"data-{node.node_id}"

    def _server_properties(self, n: Broker) -> str:
        one = self.front == "one"
        outside = n.clients_port if self.front == "none" else n.sidecar_port
        listeners = [f"CLIENTS://127.0.0.1:{self.clients_listener(n)}"]
        advertised = [f"CLIENTS://127.0.0.1:{self.proxied_port(outside)}"]
        if not one:
            listeners.append(f"INTERNAL://127.0.0.1:{n.internal_port}")
            advertised.append(f"INTERNAL://127.0.0.1:{self.proxied_port(n.internal_port)}")
        replicas = str(min(3, self.brokers))
        if self.zookeeper is None:
            listeners.append(f"CONTROLLER://127.0.0.1:{n.controller_port}")
        p = {
            **(self._kraft(n) if self.zookeeper is None else self.zookeeper.broker_properties(n.node_id)),
            "listeners": ",".join(listeners),
            "advertised.listeners": ",".join(advertised),
            "listener.security.protocol.map": "CLIENTS:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "CLIENTS" if one else "INTERNAL",
            "log.dirs": str(self._data(n)),
            "broker.rack": f"rack-{n.node_id}",
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": "2" if self.brokers > 2 else "1",
            "offsets.topic.num.partitions": "50",
            "transaction.state.log.num.partitions": "10",
            "share.coordinator.state.topic.replication.factor": replicas,
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            "auto.create.topics.enable": "false",
            "num.network.threads": "2",
            "num.io.threads": "4",
            "log.cleaner.dedupe.buffer.size": "8388608",
            **self.properties,
        }
        if not self.has_consumer_groups:
            p.pop("share.coordinator.state.topic.replication.factor")
            p.pop("share.coordinator.state.topic.min.isr")
        return "".join(f"{k}={v}\n" for k, v in p.items())

    def _kraft(self, n: Broker) -> dict[str, str]:
        voters = (f"{m.node_id}@127.0.0.1:{self.proxied_port(m.controller_port)}" for m in self.nodes)
        return {
            "process.roles": "broker,controller",
            "node.id": str(n.node_id),
            "controller.quorum.voters": ",".join(voters),
            "controller.listener.names": "CONTROLLER",
        }

    # ---- sidecars -----------------------------------------------------------------------------------------
    def sidecar_settings(self, n: Broker) -> dict[str, str]:
        """Return the environment of the sidecar in front of this broker; docker-compose.yml sets the same names."""
        env = {
            "SIDECAR_LISTEN": f"127.0.0.1:{n.sidecar_port}",
            "SIDECAR_BROKER": f"127.0.0.1:{self.proxied_port(n.clients_port)}",
            "SIDECAR_NODE_ID": str(n.node_id),
            "SIDECAR_ADMIN": f"127.0.0.1:{n.admin_port}",
            "SIDECAR_LOG__FORMAT": "text",
            **({"SIDECAR_COMMAND_CONFIG": str(self._client_file)} if self.client else {}),
            **self.sidecar_env,
        }
        if n.peer_port in self.proxied:
            env["SIDECAR_OWNERSHIP__PEER_PORT"] = str(n.peer_port)
            env["SIDECAR_OWNERSHIP__PEER_ADVERTISED_PORT"] = str(self.proxied_port(n.peer_port))
        if self.front == "two":
            env["SIDECAR_BOOTSTRAP"] = self.internal
        return env

    def start_sidecar(self, n: Broker) -> Process:
        if self.split or n.node_id in self.halved:
            self.start_coordinator(n)
            return self.start_front(n)
        sock = self.socket_units.at(n.sidecar_port) if self.socket_units else None
        n.sidecar = self._sidecar(f"sidecar-{n.node_id}", self.sidecar_settings(n), self.trees.get(n.node_id), sock)
        return n.sidecar

    def start_coordinator(self, n: Broker) -> Process:
        """Start the coordinator of a split sidecar, which answers the admin address."""
        env = {**self.sidecar_settings(n), **self._link(n, "coordinator")}
        n.coordinator = self._sidecar(f"coordinator-{n.node_id}", env, self.trees.get(n.node_id))
        return n.coordinator

    def start_front(self, n: Broker) -> Process:
        """Start the front of a split sidecar, which holds the clients' connections."""
        env = {**self.sidecar_settings(n), **self._link(n, "front")}
        del env["SIDECAR_ADMIN"]
        n.sidecar = self._sidecar(f"sidecar-{n.node_id}", env, self.trees.get(n.node_id))
        return n.sidecar

    def _link(self, n: Broker, role: str) -> dict[str, str]:
        return {"SIDECAR_ROLE": role, "SIDECAR_LINK": str(self.folder / f"link-{n.node_id}")}

    def _sidecar(
        self, name: str, env: dict[str, str], tree: Path | None = None, sock: socket.socket | None = None
    ) -> Process:
        command = [sys.executable, "-m", self.sidecar_main, "run"]
        if tree is not None:
            env = {**env, "PYTHONPATH": str(tree)}
        log, env = self.folder / f"{name}.log", {**env, **compiled()}
        self.started.append(Process(name, command, log, env, cwd=tree, sock=sock).start())
        return self.started[-1]

    def wait_ready(self, timeout_s: float = 60) -> None:
        """Wait until every running sidecar serves its partitions, and all of them agree on the owners."""
        running = [n for n in self.nodes if n.sidecar is not None and n.sidecar.alive]
        procs = [n.sidecar for n in running if n.sidecar is not None]
        if not procs:
            raise DrillError(f"no sidecar runs; logs: {self.folder}")

        def ready() -> bool:
            views = [self.owners(n) for n in running]
            if any(v is None for v in views) or not all(self.get(n, "/readyz") for n in running):
                return False
            first = views[0]
            assert first is not None
            nodes = {n.node_id for n in running}
            return (
                bool(first["owners"])
                and all(v == first["owners"] for v in (w and w["owners"] for w in views))
                and set(first["owners"]) <= nodes
            )

        wait_until("the sidecars to own all partitions", ready, timeout_s, procs)

    def get(self, n: Broker, path: str) -> Any:
        """Return JSON from a sidecar's admin address, or None if it gives no good answer."""
        good, answer = _answer(n.admin_port, path)
        return answer if good else None

    def problems(self, n: Broker) -> list[str]:
        """Return the problems in a sidecar's /readyz; none if it is ready, or gives no answer."""
        good, answer = _answer(n.admin_port, "/readyz")
        return [str(p) for p in answer.get("problems", ())] if not good and isinstance(answer, dict) else []

    @cached_property
    def _admin(self) -> Any:
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.internal, "log_level": 2, **self.security.librdkafka()})

    def at_home(self) -> bool:
        """Return whether each partition is owned beside its leader in `__consumer_offsets`, which ownership follows
        only after `ownership.follow_leader_ms`."""
        from confluent_kafka import KafkaException

        try:
            parts = self._admin.list_topics(OFFSETS, timeout=5).topics[OFFSETS].partitions
        except KafkaException:
            return False
        owners = (self.owners(self.nodes[0]) or {}).get("owners", [])
        return bool(owners) and owners == [parts[p].leader for p in sorted(parts)]

    def owners(self, n: Broker, group: str = "") -> dict[str, Any] | None:
        view: dict[str, Any] | None = self.get(n, f"/owners?group={group}" if group else "/owners")
        return view

    def owner_of(self, group: str, skip: int = -1) -> Broker:
        """Return the broker whose sidecar owns the group, according to the first sidecar that knows the owner."""
        for n in self.nodes:
            if n.node_id != skip and n.sidecar is not None and n.sidecar.alive:
                view = self.owners(n, group)
                node_id = view["groups"].get(group) if view else None
                if node_id is not None:
                    return next(m for m in self.nodes if m.node_id == node_id)
        raise DrillError(f"no sidecar knows the owner of group {group}")

    # ---- clients ------------------------------------------------------------------------------------------
    def tool(self, main: str, *args: str, name: str = "", lines: bool = False, jvm: tuple[str, ...] = JVM) -> Process:
        """Make a process of one of Kafka's own Java programs, in the default version. It is not started yet."""
        log = f"-Dlog4j2.configurationFile={self.folder}/log4j2.xml"
        command = [java(), *jvm, *class_archive(KAFKA), log, "-cp", f"{self.tools}/*", main, *args]
        return Process(name or main.rsplit(".", 1)[-1], command, self.folder / f"{name or main}.log", lines=lines)

    def run_tool(self, main: str, *args: str, timeout_s: float = 60) -> tuple[int, str]:
        """Run a Kafka program to its end; return its exit code and output."""
        p = self.tool(main, *args)
        done = subprocess.run(p.command, capture_output=True, text=True, timeout=timeout_s, check=False)
        return done.returncode, done.stdout + done.stderr

    # ---- end ----------------------------------------------------------------------------------------------
    def processes(self) -> list[Process]:
        parts = [p for n in self.nodes for p in (n.process, n.sidecar, n.coordinator)]
        if self.zookeeper is not None:
            parts.append(self.zookeeper.process)
        return [p for p in parts if p is not None]

    def stop(self) -> None:
        for n in self.nodes:
            for part in (n.sidecar, n.coordinator):
                if part is not None:
                    part.stop()
        for process in self.started:
            process.kill()
        if self.zookeeper is not None:
            self.zookeeper.stop()
        if self.socket_units is not None:
            self.socket_units.close()

    def __enter__(self) -> LocalKafka:
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(self, *exc: object) -> None:
        self.stop()
