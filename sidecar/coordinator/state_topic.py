"""Is the state topic still the one whose records are in memory, and is it set so that it keeps them?

A topic that was deleted, or made anew, holds nothing of what this sidecar knows; the next owner would know nothing of
any group. So the sidecar starts anew, as if it had just been started: members join again, and their offsets are the
brokers' as before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sidecar.assign.topic import Topic
from sidecar.coordinator.start import StartAnew
from sidecar.core.errors import Code, name_of
from sidecar.kafka.cluster import Cluster, ConnectionLost
from sidecar.link.ports import Logger
from sidecar.wire.generated import describe_configs as dc
from sidecar.wire.primitives import ZERO_UUID, WireError

TOPIC = 2
"""The resource type of DescribeConfigs."""
POLICY, MIN_ISR, UNCLEAN = "cleanup.policy", "min.insync.replicas", "unclean.leader.election.enable"
LOOKS = 3
"""A topic that is missing so often in a row is gone: the list of a broker that has just started may be an old one."""


def policy_fault(topic: str, configs: Mapping[str, str]) -> str:
    """Why records would be lost with time; empty if they are not."""
    policy = configs.get(POLICY, "compact")
    if policy == "compact":
        return ""
    return (
        f"{topic} has {POLICY}={policy}: the brokers would delete the state of groups. "
        f"Set it to compact (kafka-configs.sh --alter --topic {topic} --add-config {POLICY}=compact)"
    )


def faults(topic: str, configs: Mapping[str, str], brokers: int) -> list[str]:
    """What is set so that acknowledged state can be lost."""
    found = [fault] if (fault := policy_fault(topic, configs)) else []
    if brokers > 1 and configs.get(MIN_ISR) == "1":
        found.append(f"{topic} has {MIN_ISR}=1: what one broker alone has acknowledged is lost with it. Set it to 2")
    if configs.get(UNCLEAN) == "true":
        found.append(f"{topic} has {UNCLEAN}=true: a replica that lacks records may lead. Set it to false")
    return found


async def read_configs(cluster: Cluster, topic: str) -> dict[str, str]:
    """Raises ConnectionLost, TimeoutError, WireError; ConnectionLost also where the brokers do not tell."""
    asked = dc.DescribeConfigsResource(TOPIC, topic, [POLICY, MIN_ISR, UNCLEAN])
    res = await cluster.ask_anyone(dc, "DescribeConfigs", dc.DescribeConfigsRequest(resources=[asked]))
    result = res.results[0]
    if result.error_code != Code.NONE:
        raise ConnectionLost(f"DescribeConfigs of {topic}: {name_of(result.error_code)}")
    return {c.name: c.value for c in result.configs if c.value is not None}


class StateTopic:
    """`faults`: what was found wrong with its settings when they were last read."""

    def __init__(self, name: str, topics: Iterable[Topic], log: Logger) -> None:
        self.faults: list[str] = []
        self._name = name
        self._log = log
        self.id = self._find(topics)
        """ZERO_UUID: it was made just now."""
        self._missing = 0
        self._said = False

    def _find(self, topics: Iterable[Topic]) -> bytes:
        return next((t.id for t in topics if t.name == self._name), ZERO_UUID)

    def look(self, topics: Iterable[Topic]) -> None:
        """After each listing of all topics. Raises StartAnew."""
        found = self._find(topics)
        self._missing = self._missing + 1 if found == ZERO_UUID else 0
        if self.id == ZERO_UUID:
            self.id = found  # as it was made just before the start
        elif self._missing >= LOOKS:
            raise self._anew("has been deleted")
        elif found not in (ZERO_UUID, self.id):
            raise self.made_anew()

    def made_anew(self) -> StartAnew:
        return self._anew("was deleted and made anew")

    def went_back(self, partition: int) -> StartAnew:
        return self._anew(f"has lost records of partition {partition}")

    def _anew(self, what: str) -> StartAnew:
        text = f"{self._name} {what}: what this sidecar knows of groups is in no log any more"
        if not self._said:  # each writer finds out for itself
            self._said = True
            self._log.error("the state topic is another one; starting anew, members will join again", problem=text)
        return StartAnew(text)

    async def check(self, cluster: Cluster, brokers: int) -> None:
        """Read its settings, and tell what is new."""
        try:
            found = faults(self._name, await read_configs(cluster, self._name), brokers)
        except (ConnectionLost, TimeoutError, WireError) as exc:
            self._log.debug("settings of the state topic not read", problem=str(exc) or "timed out")
            return
        for fault in found:
            if fault not in self.faults:
                self._log.error("the state topic is not set to keep its records", problem=fault)
        if self.faults and not found:
            self._log.info("the state topic is set to keep its records", topic=self._name)
        self.faults = found
