"""The rollout of sidecars in a cluster without any, and their removal, while clients run.

The cluster has the listener INTERNAL from the start. The broker's listener for clients has the address that clients
know; when the broker gets its sidecar, the sidecar takes that address, and the broker's listener gets another one.
"""

from __future__ import annotations

import time
from pathlib import Path

from confluent_kafka import KafkaException

from sidecar.drill.drills.brokers import broker_of
from sidecar.drill.drills.commands import find_well, groups_of, must, set_patterns, wait_where, whereabouts
from sidecar.drill.drills.ground import OWNERS_GROUP, PROPERTIES, STATE_TOPIC, Ground
from sidecar.drill.drills.group_under_test import KINDS
from sidecar.drill.drills.judge import find_before_deletion
from sidecar.drill.drills.sidecars import STOPS_WITHIN_S, sidecar_of
from sidecar.drill.drills.spec import Drill, Mark
from sidecar.drill.local import Broker, LocalKafka
from sidecar.drill.processes import port_open

BROKER_S = 30.0
MOVED_S = 330.0
"""Seconds in which all groups must have moved: as long as `sidecar groups release` waits."""
CALM_S = 3.0
"""Seconds that the clients run with each mixed fleet."""
PATTERN = "drill-.*"
STAY = "stay"
"""Option of take-out: the brokers stay without sidecars."""


def without_sidecars(folder: Path, version: str) -> LocalKafka:
    """Return a cluster without sidecars, whose later sidecars have no patterns of their own."""
    made = LocalKafka(folder, version=version, properties=PROPERTIES)
    made.bare = {n.node_id for n in made.nodes}
    return made


class _Deployment(Drill):
    stage = "bare"
    patience_s = 150.0

    def start(self, ground: Ground) -> None:
        """Start brokers without sidecars. Kafka coordinates the groups at times, so they are of kinds that it has."""
        if not ground.kafka.has_consumer_groups:
            ground.kinds = KINDS[1:]
        ground.kafka.start_brokers()
        ground.report(f"{len(ground.kafka.nodes)} brokers, Kafka {ground.kafka.version}, run without sidecars")

    # ---- there --------------------------------------------------------------------------------------------
    def roll_out(self, ground: Ground) -> list[Mark]:
        """Start a sidecar before each broker, then take the groups in: one by command, the others by a pattern."""
        marks = []
        for node in ground.kafka.nodes:
            marks.append(Mark.now(f"broker {node.node_id} gets its sidecar"))
            self._restart(ground, node, bare=False)
            ground.kafka.start_sidecar(node)
            ground.kafka.wait_ready(90)
            ground.wait_in_sync()
            ground.settled(self.patience_s)
            time.sleep(CALM_S)
        where = set(whereabouts(ground).values())
        self.find("groups before they are taken in are with", sorted(where), where == {"broker"})
        ground.wait_as_before()
        find_well(self, ground, "before a group is taken in")
        first = ground.under_test[0].group
        marks.append(Mark.now("the groups are taken in"))
        must("groups", "adopt", first, "--bootstrap", ground.kafka.bootstrap)
        set_patterns(ground, PATTERN)
        wait_where(ground, "sidecar", MOVED_S)
        find_well(self, ground, "after the rollout")
        return marks

    # ---- and back -----------------------------------------------------------------------------------------
    def take_out(self, ground: Ground) -> list[Mark]:
        """Give the groups back, then remove the sidecars, then the state topic."""
        marks = [Mark.now("the groups are given back")]
        must("groups", "release", ground.under_test[0].group, "--bootstrap", ground.kafka.bootstrap)
        set_patterns(ground, "")
        wait_where(ground, "broker", MOVED_S)
        ground.settled(self.patience_s)
        find_before_deletion(self, ground)
        for node in ground.kafka.nodes:
            marks.append(Mark.now(f"broker {node.node_id} is without its sidecar"))
            process, node.sidecar = sidecar_of(node), None
            code = process.stop(STOPS_WITHIN_S)
            self.find(f"sidecar {node.node_id} exits with 0", code, code == 0)
            self._restart(ground, node, bare=True)
            ground.wait_in_sync()
            ground.settled(self.patience_s)
            time.sleep(CALM_S)
        self._nothing_is_left(ground)
        return marks

    def _restart(self, ground: Ground, node: Broker, bare: bool) -> None:
        """Restart the broker in order, with the other listener for clients."""
        k = ground.kafka
        process, node.process = broker_of(node), None
        process.stop(BROKER_S)
        (k.bare.add if bare else k.bare.discard)(node.node_id)
        k.configure(node)
        k.start_broker(node)
        ground.wait("the broker to listen", lambda: port_open(k.clients_listener(node)), 90)

    def _nothing_is_left(self, ground: Ground) -> None:
        admin = ground.admin()
        for future in admin.delete_topics([STATE_TOPIC], operation_timeout=30).values():
            future.result(timeout=60)
        try:
            admin.delete_consumer_groups([OWNERS_GROUP])[OWNERS_GROUP].result(timeout=30)
            outcome, ok = "deleted", True
        except KafkaException as exc:
            outcome = exc.args[0].str()
            ok = exc.args[0].name() == "GROUP_ID_NOT_FOUND"
        self.find(f"the group {OWNERS_GROUP}", outcome, ok)
        left = [t for t in admin.list_topics(timeout=30).topics if t == STATE_TOPIC]
        self.find("of the sidecars' topic there is left", left, not left)


class RollOut(_Deployment):
    """One broker after the other gets its sidecar under live groups of Kafka's, which are taken in at the end."""

    name = "roll-out"

    def prepare(self, ground: Ground, i: int) -> None:
        if not ground.kafka.bare:
            self.take_out(ground)

    def fault(self, ground: Ground, i: int) -> list[Mark]:
        return self.roll_out(ground)

    def heal(self, ground: Ground, i: int) -> None:
        places = whereabouts(ground)
        held, everything = sum(where == "sidecar" for where in places.values()), len(groups_of(ground))
        self.find("groups with the sidecars", f"{held} of {everything}", held == everything)


class TakeOut(_Deployment):
    """The groups are given back, the sidecars and their topic go, under live members; then all come back."""

    name = "take-out"

    def prepare(self, ground: Ground, i: int) -> None:
        if ground.kafka.bare:
            self.roll_out(ground)
        else:  # the pattern is there already
            must("groups", "adopt", ground.under_test[0].group, "--bootstrap", ground.kafka.bootstrap)
            wait_where(ground, "sidecar", MOVED_S)
        ground.settled(self.patience_s)

    def fault(self, ground: Ground, i: int) -> list[Mark]:
        return self.take_out(ground)

    def heal(self, ground: Ground, i: int) -> None:
        """Roll the sidecars out again, which shows that nothing left over prevents it."""
        if not self.options.get(STAY):
            self.roll_out(ground)
