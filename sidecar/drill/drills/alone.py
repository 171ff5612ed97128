"""A single broker with Kafka's default of three transaction replicas: no sidecar can fence there. The sidecar must name
the problem and the remedy, instead of letting members wait; and once the remedy is applied, everything works.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from sidecar.core.vocabulary.errors import Code
from sidecar.drill.drills.ground import PROPERTIES, SIDECAR_ENV, Ground
from sidecar.drill.drills.spec import Drill, Mark
from sidecar.drill.local import LocalKafka
from sidecar.drill.members import Member, Members
from sidecar.drill.processes import port_open

DEFAULTS = {"transaction.state.log.replication.factor": "3", "transaction.state.log.min.isr": "2"}
FITTING = {"transaction.state.log.replication.factor": "1", "transaction.state.log.min.isr": "1"}
REMEDY = "transaction.state.log.replication.factor"
REMEDY_S = 30.0
"""Seconds after the sidecar's start in which it must name the remedy."""
ANSWERED_S = 15.0
"""Seconds in which a member must get the error that the coordinator cannot serve it."""


def single(folder: Path, version: str) -> LocalKafka:
    properties = {**PROPERTIES, **DEFAULTS}
    return LocalKafka(folder, brokers=1, version=version, properties=properties, sidecar_env=SIDECAR_ENV)


class SingleBroker(Drill):
    """One broker with three transaction replicas by default: the sidecar must name the remedy. Then it is killed."""

    name = "single-broker"
    stage = "single"

    def start(self, ground: Ground) -> None:
        k = ground.kafka
        node = k.nodes[0]
        k.start_brokers()
        started = time.monotonic()
        k.start_sidecar(node)
        log = k.folder / "sidecar-1.log"
        problems = self._until(lambda: [p for p in ground.kafka.problems(node) if REMEDY in p], REMEDY_S)
        took = time.monotonic() - started
        self.find(
            "/readyz names the remedy",
            f"after {took:.1f} s" if problems else ground.kafka.problems(node),
            bool(problems),
        )
        logged = self._until(lambda: REMEDY in log.read_text(errors="replace"), REMEDY_S)
        self.find("the log names the remedy", "yes" if logged else f"no, see {log}", bool(logged))
        self._members_are_answered(ground)
        ground.report("the remedy: as many transaction replicas as there are brokers, and the broker is restarted")
        k.properties = {**k.properties, **FITTING}
        assert node.process is not None
        node.process.stop(30)
        k.configure(node)
        k.start_broker(node)
        ground.wait("the broker to listen", lambda: port_open(node.clients_port), 60)
        ground.wait_in_sync()
        k.wait_ready(90)

    def _until(self, look: Callable[[], object], timeout_s: float) -> object:
        end = time.monotonic() + timeout_s
        while not (result := look()) and time.monotonic() < end:
            time.sleep(0.1)
        return result

    def _members_are_answered(self, ground: Ground) -> None:
        address = ("127.0.0.1", ground.kafka.nodes[0].sidecar_port)
        asking = [Member(f"drill-early-{kind}", kind, [address], "none") for kind in ("consumer", "classic")]
        crew = Members(asking).start()
        loading = Code.COORDINATOR_LOAD_IN_PROGRESS.name
        try:
            for m in asking:
                answered = self._until(lambda m=m: m.refused[loading], ANSWERED_S)  # type: ignore[misc]
                self.find(f"{m.group} is told {loading}", dict(m.refused), bool(answered))
        finally:
            crew.stop()

    def fault(self, ground: Ground, i: int) -> list[Mark]:
        node = ground.kafka.nodes[0]
        assert node.sidecar is not None
        mark = Mark.now("SIGKILL to the only sidecar, which is started again")
        node.sidecar.kill()
        node.sidecar = None
        ground.kafka.start_sidecar(node)
        return [mark]

    def heal(self, ground: Ground, i: int) -> None:
        ground.kafka.wait_ready()
