"""Faults of the state topic, while sidecars and clients run: deleted, made anew, or set to delete old records.

The groups' state is gone then, and members have to join again. Requirements: offsets are the broker's and stay, the
sidecars report the problem, and they serve again, after a restart at the latest.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from sidecar.core.vocabulary.errors import Code, name_of
from sidecar.drill.drills.ground import STATE_PARTITIONS, Ground
from sidecar.drill.drills.judge import find_before_deletion
from sidecar.drill.drills.sidecars import replace_one
from sidecar.drill.drills.spec import Drill, Mark
from sidecar.drill.processes import DrillError
from sidecar.kafka.cluster import Cluster
from sidecar.process.make_topic import made_by_default

STATE_TOPIC = "__group_state"
ANEW, READY = "starting anew", "event='ready'"
"""Log lines of a sidecar that ends because of the topic, and of one that is ready again."""
REPORT_S = 15.0
"""Seconds in which a sidecar must report the problem, in its log or in /readyz."""
ALONE_S = 30.0
"""Seconds in which every sidecar must be ready again, and then seconds in which the groups must be served, both without
help; else the sidecars are restarted, as an operator would."""


def delete(ground: Ground) -> None:
    admin = ground.admin()
    for future in admin.delete_topics([STATE_TOPIC], operation_timeout=30).values():
        future.result(timeout=60)


def delete_and_create(ground: Ground) -> None:
    """Delete the topic, and create it at once as a sidecar would. Raises DrillError."""
    delete(ground)
    error = asyncio.run(_created(ground))
    if error:
        raise DrillError(f"{STATE_TOPIC} is not made anew: {name_of(error)}")


async def _created(ground: Ground) -> int:
    """Create the topic, unless a sidecar was quicker; return the error code."""
    cluster = Cluster(ground.addresses(ground.kafka.internal), "drill", {}, security=ground.kafka.security)
    try:
        code = await made_by_default(cluster, STATE_TOPIC, STATE_PARTITIONS)
    finally:
        cluster.close()
    return 0 if code == Code.TOPIC_ALREADY_EXISTS else code


def _set_policy(ground: Ground, policy: str) -> None:
    entry = ConfigEntry("cleanup.policy", policy, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, STATE_TOPIC, incremental_configs=[entry])
    admin = ground.admin()
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(timeout=30)


def _forget(ground: Ground) -> None:
    _set_policy(ground, "delete")


FAULTS: tuple[tuple[str, Callable[[Ground], None]], ...] = (
    ("deleted", delete),
    ("deleted and made anew", delete_and_create),
    ("set to cleanup.policy=delete", _forget),
)


class StateTopic(Drill):
    """The state topic is deleted, deleted and made anew, and set to forget: one after the other, a round each."""

    name = "state-topic"
    back_before_heal = False

    def fault(self, ground: Ground, i: int) -> list[Mark]:
        self.what, act = FAULTS[i % len(FAULTS)]
        if not self._forgets(i):
            find_before_deletion(self, ground)
        self.read_from = {n.node_id: len(_log(ground, n.node_id)) for n in ground.kafka.nodes}
        ground.clients_may_end = True  # Java's consumer gives up if its group is not there any more, as at Kafka
        mark = Mark.now(f"{STATE_TOPIC} is {self.what}")
        act(ground)
        end = time.monotonic() + REPORT_S
        while not (report := self._reported(ground)) and time.monotonic() < end:
            ground.replace_ended()
            time.sleep(0.2)
        took = time.monotonic() - mark.at_s
        self.find(f"{self.what}: a sidecar says so", f"after {took:.1f} s: {report}" if report else "no", bool(report))
        return [mark]

    def _reported(self, ground: Ground) -> str:
        """Return a sidecar's report about the state topic, in /readyz or as a warning or error in its log; else ""."""
        for n in ground.kafka.nodes:
            reports = [str(p) for p in ground.kafka.problems(n) if STATE_TOPIC in str(p)]
            new = _log(ground, n.node_id)[self.read_from[n.node_id] :].splitlines()
            reports += [ln for ln in new if STATE_TOPIC in ln and ("level='warning'" in ln or "level='error'" in ln)]
            if reports:
                return reports[0][:200]
        return ""

    def heal(self, ground: Ground, i: int) -> None:
        if self._forgets(i):
            _set_policy(ground, "compact")
        try:
            if not self._forgets(i):  # the sidecars notice one after the other, and serve until then
                ground.wait("every sidecar to be there again", lambda: self._all_anew(ground), ALONE_S)
            ground.settled(ALONE_S)
        except DrillError as exc:
            problem = f"not within {ALONE_S:g} s: {str(exc)[:200]}"
            self.find(f"{self.what}: served again without help", problem, ok=False)
            for node in ground.kafka.nodes:
                replace_one(self, ground, node)
        else:
            self.find(f"{self.what}: served again without help", "yes", ok=True)

    @staticmethod
    def _forgets(i: int) -> bool:
        return FAULTS[i % len(FAULTS)][1] is _forget

    def _all_anew(self, ground: Ground) -> bool:
        """Return whether each sidecar has noticed the fault, has started anew, and is ready since."""
        nodes = ground.kafka.nodes
        logs = (_log(ground, n.node_id)[self.read_from[n.node_id] :] for n in nodes)
        return all(map(came_back, logs)) and all(ground.kafka.get(n, "/readyz") for n in nodes)


def came_back(log: str) -> bool:
    """Return whether the sidecar with this log has ended because of the topic, and has been ready since."""
    return READY in log.partition(ANEW)[2]


def _log(ground: Ground, node_id: int) -> str:
    return (ground.kafka.folder / f"sidecar-{node_id}.log").read_text(errors="replace")
