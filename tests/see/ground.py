"""A cluster with three real sidecars under clients of both protocols, a real Prometheus that scrapes them, and the
faults that are brought about on it: each with the alerts that it must raise, and the time for which it lasted."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)

from sidecar.core.consumer.records import GroupRecord
from sidecar.core.vocabulary.placement import partition_for
from sidecar.drill.local import Broker, LocalKafka
from sidecar.drill.processes import DrillError, free_ports, wait_until
from sidecar.state.codec import Encoded, Stamp, StateCodec
from tests.audit.lake.topics import Topics
from tests.clients.ground import ENV
from tests.clients.wire import owner_node
from tests.see.prometheus import Prometheus
from tests.see.tolerated import RAISES_TOO

TOPIC, MODERN, CLASSIC = "boards", "managed-boards-modern", "managed-boards-classic"
STATE, TRANSACTIONS = "__group_state", "__transaction_state"
PARTITIONS = 50
"""Partitions of the state topic."""
SIDECARS, AUDIT = "kafka-group-sidecar", "group-state-audit"
"""Jobs of Prometheus."""
SEE = {
    **ENV,
    "SIDECAR_EXPORTER__INTERVAL_MS": "2000",
    "SIDECAR_CONSUMER__ASSIGNORS": '["uniform", "range", "broken"]',
}
FIRES_S, CALM_S = 60.0, 90.0
FOR_EVER = float("inf")
STEP_S, LATE_S = 2.0, 6.0
"""A longer gap is a break; so late after a fault an alert may still begin to fire: Prometheus looks, and the alert
waits for its time."""


@dataclass
class Fault:
    """`fires`: what it must raise. `begun`, `ended`: Unix time; it ends when its alerts have."""

    name: str
    fires: frozenset[str]
    prometheus: Prometheus
    begun: float = field(default_factory=time.time)
    ended: float = FOR_EVER

    @property
    def raises(self) -> frozenset[str]:
        return self.fires | RAISES_TOO.get(self.name, {}).keys()

    def fired(self) -> set[str]:
        until = min(self.ended, time.time())
        return {alert for alert, at in self.prometheus.fired(self.begun, until) if at <= self.ended}

    def until_firing(self, *alerts: str, timeout_s: float = FIRES_S) -> None:
        """Waits until all of the fault's alerts, or these, have fired, not necessarily at once."""
        wanted = set(alerts or self.fires)
        try:
            wait_until("the alerts", lambda: wanted <= self.fired(), timeout_s, step_s=0.5)
        except DrillError:
            firing = sorted(self.prometheus.firing())
            raise AssertionError(f"{self.name}: {sorted(wanted - self.fired())} do not fire, {firing} do") from None


@dataclass
class Ground:
    kafka: LocalKafka
    prometheus: Prometheus
    begun: float = field(default_factory=time.time)
    faults: list[Fault] = field(default_factory=list)

    # ---- faults -----------------------------------------------------------------------------------------------------
    @contextmanager
    def fault(self, name: str, *fires: str) -> Iterator[Fault]:
        """The body brings it about, waits for its alerts, and mends it. Then they end."""
        fault = Fault(name, frozenset(fires), self.prometheus)
        self.faults.append(fault)
        yield fault
        fault.until_firing(timeout_s=10)
        self.wait_until_no_alert(fault)
        fault.ended = time.time()

    def lasting_fault(self, name: str, *fires: str) -> Fault:
        """A fault that is not repaired: its alerts stay."""
        self.faults.append(Fault(name, frozenset(fires), self.prometheus))
        return self.faults[-1]

    def wait_for_end(self, fault: Fault) -> None:
        """The alerts of a lasting fault have ended, because who told of it has."""
        wait_until(fault.name, lambda: not self.prometheus.firing() & fault.fires, CALM_S, step_s=0.5)
        fault.ended = time.time()

    def wait_until_no_alert(self, fault: Fault | None = None) -> None:
        """Waits until no alert fires but those of other faults that last."""
        others = {alert for f in self.faults if f.ended == FOR_EVER and f is not fault for alert in f.raises}
        try:
            wait_until("silence", lambda: not self.prometheus.firing() - others, CALM_S, step_s=0.5)
        except DrillError:
            firing = sorted(self.prometheus.firing() - others)
            raise AssertionError(f"{fault.name if fault else 'without a fault'}: {firing} do not end") from None

    def noise(self) -> list[str]:
        """Returns alerts that began to fire outside of the time of a fault that raises them."""
        found = [
            f"{alert} from {begun - self.begun:.0f} to {ended - self.begun:.0f} s"
            for alert, begun, ended in spans(self.prometheus.fired(self.begun, time.time()))
            if not any(f.begun <= begun <= f.ended + LATE_S and alert in f.raises for f in self.faults)
        ]
        times = [f"{f.name}: {f.begun - self.begun:.0f} to {f.ended - self.begun:.0f} s" for f in self.faults]
        return found + (times if found else [])

    # ---- sidecars and brokers ---------------------------------------------------------------------------------------
    def owner(self, group: str) -> Broker:
        return self.kafka.nodes[owner_node(self.kafka, group)]

    @contextmanager
    def replaced_sidecar(
        self, name: str, node: Broker, env: Mapping[str, str], *fires: str, main: str = ""
    ) -> Iterator[Fault]:
        """Kills the node's sidecar and starts it with other settings or as another program; at the end with its
        own."""
        kafka = self.kafka
        own_env, own_main = kafka.sidecar_env, kafka.sidecar_main
        with self.fault(name, *fires) as fault:
            kafka.sidecar_env, kafka.sidecar_main = {**own_env, **env}, main or own_main
            try:
                self.start_anew(node)
                yield fault
            finally:
                kafka.sidecar_env, kafka.sidecar_main = own_env, own_main
                self.start_anew(node)
            kafka.wait_ready()

    def start_anew(self, node: Broker) -> None:
        assert node.sidecar is not None
        node.sidecar.kill()
        self.kafka.start_sidecar(node)

    @contextmanager
    def one_more(self, node: Broker, env: Mapping[str, str]) -> Iterator[Broker]:
        """A second sidecar before the broker of this node, on ports of its own, which Prometheus scrapes too."""
        listens, admin, peers = free_ports(3)
        more = replace(node, sidecar_port=listens, admin_port=admin, peer_port=peers, process=None, sidecar=None)
        own_env = self.kafka.sidecar_env
        self.kafka.sidecar_env = {**own_env, **env}
        process = self.kafka.start_sidecar(more)
        self.kafka.sidecar_env = own_env
        try:
            wait_until("one more sidecar", lambda: self.kafka.get(more, "/about") is not None, 60, [process])
            self.prometheus.scrape(SIDECARS, [f"127.0.0.1:{more.admin_port}"])
            yield more
        finally:
            self.prometheus.scrape(SIDECARS)
            process.stop()

    def write(self, records: Mapping[int, Sequence[Encoded]], topic: str = STATE) -> None:
        """Writes to the state topic as a client other than a sidecar."""
        Topics(self.kafka.internal).write(topic, records, int(time.time() * 1000))

    def alter(self, topic: str, name: str, value: str) -> None:
        """A setting of a topic; "" takes it back."""
        admin = AdminClient({"bootstrap.servers": self.kafka.internal, "log_level": 3})
        what = AlterConfigOpType.SET if value else AlterConfigOpType.DELETE
        entry = ConfigEntry(name, value, incremental_operation=what)
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
        for future in admin.incremental_alter_configs([resource]).values():
            future.result(timeout=20)


def spans(fired: Collection[tuple[str, float]]) -> list[tuple[str, float, float]]:
    """Alert, and from when to when it fired without a break."""
    found: list[tuple[str, float, float]] = []
    for alert, at in sorted(fired):
        if found and found[-1][0] == alert and at - found[-1][2] <= STEP_S:
            found[-1] = (alert, found[-1][1], at)
        else:
            found.append((alert, at, at))
    return found


def plug_in(folder: Path) -> Path:
    """A folder with an installed package, as Python sees it: an assignor that fails whenever it is asked."""
    about = folder / "broken_assignor-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-assignor\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[kafka_group_sidecar.assignors]\nbroken = broken_assignor:assign\n")
    (folder / "broken_assignor.py").write_text("def assign(spec):\n    raise RuntimeError('broken')\n")
    return folder


def other_version(folder: Path) -> Path:
    """The same, and another version of this project is installed."""
    about = plug_in(folder) / "kafka_group_sidecar-99.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: kafka-group-sidecar\nVersion: 99.0\n")
    return folder


def foreign(group: str) -> dict[int, list[Encoded]]:
    """A record of this group by somebody who does not own its partition."""
    stranger = Stamp(1 << 40, int(time.time() * 1000))
    return {partition_for(group, PARTITIONS): [StateCodec().encode(GroupRecord(group, 1, 0, "test"), stranger, 1)]}


def alerts_in(faults: Collection[Fault]) -> set[str]:
    """Returns the alerts that fired by a fault that must raise them."""
    return {alert for f in faults for alert in f.fires & f.fired()}
