"""The scripts of streams groups. streams.py speaks their steps."""

from __future__ import annotations

import random
from typing import Any

from tests.differential.script import Step
from tests.differential.topology import SOURCES, Topo, changed_topology, random_topology

MEMBERS = ("m1", "m2", "m3", "m4", "m5")
TIMEOUT_MS = 600_000
"""The timeout of a rebalance: longer than any script."""
LEAVE, LEAVE_FOR_A_WHILE = -1, -2


def make_streams(seed: int) -> list[Step]:
    rng = random.Random(seed)
    own = (f"streams-{seed}-a", f"streams-{seed}-b") if rng.random() < 0.1 else ()
    topo = random_topology(rng, own + SOURCES[: 4 - len(own)])
    traits = Traits(rng, topo)
    steps = [Step("topic", options={"name": t, "how": "grow"}) for t in own]
    if rng.random() < 0.06:  # an internal topic is there before the group is
        names = [n for n in topo.names() if n.startswith("@")]
        steps += [Step("topic", options={"name": n, "how": "grow"}) for n in names[:1]]
    settings = {}
    if standbys := rng.choice((0, 0, 0, 1, 1, 2)):
        settings["streams.num.standby.replicas"] = str(standbys)
    if rng.random() < 0.05:
        settings["streams.initial.rebalance.delay.ms"] = "3600000"
    if rng.random() < 0.1:
        settings["streams.assignment.interval.ms"] = "3600000"
    if rng.random() < 0.15:
        settings["streams.rack.aware.assignment.tags"] = rng.choice(("zone", "zone, rack"))
    if settings:
        steps.append(Step("alter", options=settings))
    for m in MEMBERS[: rng.randint(1, 3)]:
        steps.append(traits.join(rng, m, good=True))
    for _ in range(rng.randint(16, 45)):
        if own and rng.random() < 0.1:
            how = rng.choice(("grow", "grow", "delete"))
            steps.append(Step("topic", options={"name": rng.choice(own), "how": how}))
            # docs/reference/differences.md: a member that leaves before is another epoch at Kafka
            steps += [Step("silent", m) for m in traits.joined]
        else:
            steps.append(_step(rng, traits.some(rng), traits))
            if steps[-1].verb == "leave":
                # A due target is computed by a timer, at Kafka by the next heartbeat: before offsets tell more
                steps += [Step("silent", m) for m in traits.joined if m != steps[-1].member]
    return [*steps, Step("describe"), *(Step("ack", m) for m in MEMBERS), Step("describe")]


class Traits:
    """A script's application: each member's process, static members, and members with an endpoint."""

    def __init__(self, rng: random.Random, topo: Topo) -> None:
        self.topo = topo
        self.processes = {m: f"p{rng.randrange(rng.choice((1, 2, 4)))}" for m in MEMBERS}
        static = rng.random() < 0.3
        self.instances = {m: f"i{n % 3}" for n, m in enumerate(MEMBERS) if static and rng.random() < 0.7}
        served = rng.random() < 0.3 and topo.good
        self.endpoints = {m: 9000 + n for n, m in enumerate(MEMBERS) if served and rng.random() < 0.8}
        self.tagged = rng.random() < 0.2
        self.joined: dict[str, None] = {}

    def some(self, rng: random.Random) -> str:
        """Mostly one that has joined, whatever has become of it."""
        return rng.choice([*self.joined] if self.joined and rng.random() < 0.85 else MEMBERS)

    def join(self, rng: random.Random, member: str, good: bool = False) -> Step:
        self.joined[member] = None
        options: dict[str, Any] = {"topo": self.topo, "process": self.processes[member]}
        if member in self.instances:
            options["instance"] = self.instances[member]
        if member in self.endpoints:
            options["port"] = self.endpoints[member]
        if self.tagged:
            options["tags"] = {"zone": rng.choice("abc")}
        if not good and rng.random() < 0.12:
            options["topo"] = changed_topology(rng, self.topo)
        if rng.random() < 0.08:
            options["rack"] = rng.choice(("r1", "r2", ""))
        if rng.random() < 0.05:
            options["version"] = 0
        return Step("join", member, options)


def _step(rng: random.Random, member: str, traits: Traits) -> Step:
    what = rng.random()
    if what < 0.2:
        return traits.join(rng, rng.choice(MEMBERS))
    if what < 0.48:
        return Step("ack", member)
    if what < 0.56:
        return Step("silent", member)
    if what < 0.61:
        return Step("withhold", member)
    if what < 0.64:
        details = rng.choice(DETAILS)
        return Step("details", member, DETAILS[0] if "port" in details and not traits.topo.good else details)
    if what < 0.67:
        return Step("offsets", member, {"seed": rng.randrange(1000), "twice": rng.random() < 0.1})
    if what < 0.72:
        return Step("epoch", member, {"by": rng.choice((-2, -1, -1, 1, 5)), "owns": rng.random() < 0.6})
    if what < 0.74:
        return Step("claims", member, {"owned": rng.choice(("nothing", "strange", "beyond", "all"))})
    if what < 0.81:
        often = 0.3 if member in traits.instances else 0.1
        epoch = LEAVE_FOR_A_WHILE if rng.random() < often else LEAVE
        return Step("leave", member, {"epoch": epoch, "shutdown": rng.random() < 0.04})
    if what < 0.82:
        return Step("shutdown", member)
    if what < 0.84:
        return Step("instance", member, {"instance": rng.choice(("i0", "i1", "i9", ""))})
    if what < 0.88:
        return Step("bad", member, {"how": rng.choice(BAD), "topo": traits.topo})
    if what < 0.91:
        options = {"by": rng.choice((0, 0, -1, -1, 1, None)), "version": rng.choice((9, 9, 9, 8))}
        return Step("commit", member, {**options, "which": rng.choice(("own", "own", "all"))})
    if what < 0.93:
        return Step("fetch", member, {"by": rng.choice((0, 0, -1, 1))})
    if what < 0.94:
        return Step("offset delete", options={"topic": rng.choice(SOURCES)})
    if what < 0.96:
        return Step("describe")
    if what < 0.97:
        return Step("delete")
    if what < 0.98:
        return Step("classic describe")
    if what < 0.99:
        return Step("list", options={"states": rng.choice((["Stable"], ["not_ready", "reconciling"], ["Empty"], []))})
    return Step("alter", options=rng.choice(SETTINGS))


DETAILS: tuple[dict[str, Any], ...] = (
    {"rack": "r3"},
    {"process": "p9"},
    {"tags": {"zone": "d"}},
    {"port": 9999},
    {"timeout": TIMEOUT_MS + 1},
    {"endpoint_epoch": -1},
    {"endpoint_epoch": 99},
)
SETTINGS = (
    {"streams.num.standby.replicas": "0"},
    {"streams.num.standby.replicas": "1"},
    {"streams.num.standby.replicas": "2"},
    {"streams.num.standby.replicas": "3"},
    {"streams.heartbeat.interval.ms": "700000"},
    {"streams.heartbeat.interval.ms": "100"},
    {"streams.session.timeout.ms": "x"},
    {"streams.initial.rebalance.delay.ms": "-1"},
    {"streams.rack.aware.assignment.tags": "zone"},
    {"streams.rack.aware.assignment.tags": " zone , rack "},
    {"streams.rack.aware.assignment.tags": ""},
    {"streams.rack.aware.assignment.tags": "zone,zone"},
    {"streams.rack.aware.assignment.tags": "zone,,rack"},
    {"streams.assignor.name": "sticky"},
    {"streams.assignor.name": "nobody's"},
)
BAD = (
    "no timeout",
    "owns at join",
    "no lists at join",
    "no topology",
    "epoch -3",
    "no member id",
    "no group",
    "blank rack",
    "blank instance",
    "leave without instance",
    "one list",
    "topology while in",
)
