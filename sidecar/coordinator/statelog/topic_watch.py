"""Watches the state topic: it must still be the one whose records are in memory, and its settings must keep them.

A topic that was deleted, or made anew, has none of the records in this sidecar's memory; the next owner would have no
groups. So the coordinator starts anew, as if the sidecar had just been started: members join again, and their offsets
are the brokers' as before. A topic that this sidecar may not see any more, or that no broker answers for, has lost
nothing: the coordinator goes on, as far as it can.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterable, Mapping

from sidecar.assign.topic import Topic
from sidecar.coordinator.statelog.startup_errors import StartAnew
from sidecar.coordinator.statelog.topic_existence import Existence, TopicAnswer, ask_for
from sidecar.core.vocabulary.errors import Code, name_of
from sidecar.kafka.cluster import Address, Cluster, ConnectionLost
from sidecar.kafka.net import NO_ANSWER
from sidecar.kafka.resolver import joined
from sidecar.link.ports import Logger
from sidecar.wire.generated import describe_configs as dc
from sidecar.wire.primitives import ZERO_UUID

TOPIC = 2
"""The resource type of DescribeConfigs."""
POLICY, MIN_ISR, UNCLEAN = "cleanup.policy", "min.insync.replicas", "unclean.leader.election.enable"
LOOKS = 3
"""Looks in a row without the topic after which it is gone: a broker that has just started may have an old list. They
must take as long as so many regular ones."""
LOG_AGAIN_S = 60.0
REMEDIES = {
    Existence.DENIED: "give the sidecar's user its rights at that topic back (`sidecar acls` prints the commands); "
    "nothing is lost, and nothing else is to be done",
    Existence.MISSING: "find out who deleted it; if it stays away, it is made anew, and members join again",
    Existence.UNREACHABLE: "look at the brokers and at the network between",
    Existence.RECREATED: "find out who deleted it: members join again",
}


def policy_fault(topic: str, configs: Mapping[str, str]) -> str:
    """Returns why records would be lost with time; "" if they are not."""
    policy = configs.get(POLICY, "compact")
    if policy == "compact":
        return ""
    return f"{topic} has {POLICY}={policy}: the brokers would delete the state of groups. Set it to compact"


def faults(topic: str, configs: Mapping[str, str], brokers: int) -> list[str]:
    """Returns the faults in the topic's settings by which acknowledged state can be lost."""
    problems = [fault] if (fault := policy_fault(topic, configs)) else []
    if brokers > 1 and configs.get(MIN_ISR) == "1":
        problems.append(f"{topic} has {MIN_ISR}=1: what one broker alone has acknowledged is lost with it. Set it to 2")
    if configs.get(UNCLEAN) == "true":
        problems.append(f"{topic} has {UNCLEAN}=true: a replica that lacks records may lead. Set it to false")
    return problems


def wanted(topic: str, configs: Mapping[str, str], brokers: int) -> dict[str, str]:
    """Returns the right values of the settings in which `faults` finds fault."""
    kept = {POLICY: "compact", UNCLEAN: "false"} | ({MIN_ISR: "2"} if brokers > 1 else {})
    return {n: v for n, v in kept.items() if faults(topic, {n: configs.get(n, v)}, brokers)}


def command(topic: str, configs: Mapping[str, str], bootstrap: str) -> str:
    """Returns the command line that sets these values at the state topic."""
    args = ["kafka-configs.sh", "--bootstrap-server", bootstrap, "--alter", "--entity-type", "topics"]
    args += ["--entity-name", topic, "--add-config", ",".join(f"{n}={v}" for n, v in configs.items())]
    return shlex.join(args)


def remedy(topic: str, configs: Mapping[str, str], brokers: int, bootstrap: Iterable[Address]) -> str:
    """Returns one command for all faults. `bootstrap`: the addresses at which the sidecar itself reaches brokers."""
    return command(topic, wanted(topic, configs, brokers), joined(bootstrap))


async def read_configs(cluster: Cluster, topic: str) -> dict[str, str]:
    """Returns the topic's settings. Raises ConnectionLost, also if the brokers refuse, TimeoutError, WireError."""
    resource = dc.DescribeConfigsResource(TOPIC, topic, [POLICY, MIN_ISR, UNCLEAN])
    res = await cluster.ask_anyone(dc, "DescribeConfigs", dc.DescribeConfigsRequest(resources=[resource]))
    result = res.results[0]
    if result.error_code != Code.NONE:
        raise ConnectionLost(f"DescribeConfigs of {topic}: {name_of(result.error_code)}")
    return {c.name: c.value for c in result.configs if c.value is not None}


class StateTopic:
    """The state topic as last seen. `faults`: faults in its settings; `problem`: why it cannot be used now, or ""."""

    def __init__(self, name: str, topics: Iterable[Topic], log: Logger, refresh_s: float) -> None:
        """`refresh_s`: the interval of the listings; members may ask for others in between."""
        self.faults: list[str] = []
        self.problem = ""
        self._name = name
        self._log = log
        self.id = self._find(topics)
        """Topic id; ZERO_UUID: the topic was made just before the start, and is not listed yet."""
        self._refresh_s = refresh_s
        self._missing = 0
        self._missing_since_s = 0.0
        self._end_logged = False
        self._state = Existence.THERE
        self._logged_s = 0.0

    def _find(self, topics: Iterable[Topic]) -> bytes:
        return next((t.id for t in topics if t.name == self._name), ZERO_UUID)

    async def look(self, topics: Iterable[Topic], cluster: Cluster) -> None:
        """Checks each listing of all topics. If the state topic is not in it, the brokers are asked for it: it may only
        be forbidden to describe it. Raises StartAnew."""
        listed = self._find(topics)
        if listed != ZERO_UUID and self.id == ZERO_UUID:
            self.id = listed  # as it was made just before the start
        if listed == self.id and listed != ZERO_UUID:
            self._is(TopicAnswer(Existence.THERE))
        elif listed != ZERO_UUID:
            raise self.made_anew()
        else:
            self._is(await ask_for(cluster, self._name, self.id))
            if self._state is Existence.RECREATED:
                raise self.made_anew()
            missing_s = time.monotonic() - self._missing_since_s
            if self._missing >= LOOKS and missing_s >= (LOOKS - 1) * self._refresh_s and self.id != ZERO_UUID:
                raise self._anew("has been deleted")

    def _is(self, answer: TopicAnswer) -> None:
        before, self._state, self.problem = self._state, answer.state, answer.problem
        now_s = time.monotonic()
        self._missing = self._missing + 1 if answer.state is Existence.MISSING else 0
        if self._missing == 1:
            self._missing_since_s = now_s
        if answer.state is not Existence.THERE and (
            before is not answer.state or now_s - self._logged_s >= LOG_AGAIN_S
        ):
            self._logged_s = now_s
            what = {"state": answer.state.value, "problem": answer.problem, "remedy": REMEDIES[answer.state]}
            # A broker that has just started may not know it yet, which is over in a moment.
            log = self._log.error if answer.state is Existence.DENIED else self._log.warning
            log("no use of the state topic", topic=self._name, **what)
        elif answer.state is Existence.THERE and before is not Existence.THERE:
            self._log.info("the state topic is there again", topic=self._name, before=before.value)

    def made_anew(self) -> StartAnew:
        return self._anew("was deleted and made anew")

    def went_back(self, partition: int) -> StartAnew:
        return self._anew(f"has lost records of partition {partition}")

    def _anew(self, what: str) -> StartAnew:
        text = f"{self._name} {what}: what this sidecar knows of groups is in no log any more"
        if not self._end_logged:  # each writer finds out for itself
            self._end_logged = True
            self._log.error("the state topic is another one; starting anew, members will join again", problem=text)
        return StartAnew(text)

    async def check(self, cluster: Cluster, brokers: int) -> None:
        """Reads the topic's settings, and logs new faults."""
        try:
            configs = await read_configs(cluster, self._name)
        except NO_ANSWER as exc:
            self._log.debug("settings of the state topic not read", problem=str(exc) or "timed out")
            return
        current = faults(self._name, configs, brokers)
        for fault in current:
            if fault not in self.faults:
                problem = f"{fault}: {remedy(self._name, configs, brokers, cluster.bootstrap)}"
                self._log.error("the state topic is not set to keep its records", problem=problem)
        if self.faults and not current:
            self._log.info("the state topic is set to keep its records", topic=self._name)
        self.faults = current
