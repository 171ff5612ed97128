"""A whole cluster on virtual time: brokers, a sidecar beside each, clients; and what is done to them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from functools import cache
from typing import Any

from sidecar.cli.groups import PASSING
from sidecar.core.classic.group import ClassicGroup
from sidecar.core.classic.records import State
from sidecar.core.vocabulary import group_config as cf
from sidecar.core.vocabulary.errors import Code, name_of
from sidecar.kafka.net import NO_ANSWER, BrokerConnection
from sidecar.process.settings import Settings
from sidecar.wire.generated import incremental_alter_configs as ia
from tests.whole.broker.image import Image
from tests.whole.broker.rights import GROUP, READ
from tests.whole.client import PARTITIONS_OF, Client, Habits
from tests.whole.doorkeeper import Doorkeeper
from tests.whole.judge import STATE_TOPIC, Judge
from tests.whole.kafka import PORTS, SIDECAR_PORT, Kafka, host_of
from tests.whole.loop import SimLoop
from tests.whole.members import ClassicMember, ConsumerMember
from tests.whole.moving import BROKER as AT_BROKER
from tests.whole.net import Net
from tests.whole.rowdy import Rowdy
from tests.whole.share import ShareMember
from tests.whole.sidecar import Sidecar
from tests.whole.streams import lacks_standbys
from tests.whole.timeline import line
from tests.whole.universe import Life, Proc, Universe
from tests.whole.violation import Violation

NODES = (1, 2, 3)
PARTITIONS = 2
"""Partitions of the state topic and of the brokers' offsets, in scenes and in half of the seeds."""
MORE_PARTITIONS = (2, 2, 3, 5)
TXN_PARTITIONS = 2
TOLD_TOPICS = (STATE_TOPIC, "__consumer_offsets", "__transaction_state")
AUTHORIZED = 0.1
"""The share of seeds that have an authorizer."""
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
ID_EXPIRATION = "transactional.id.expiration.ms"
WEEK_MS = 604_800_000
SAID_AGAIN_S, ORDERED_S = 0.2, 5.0
"""An order that was not recorded is said again; so long its answer is waited for."""
BROKER = {
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": str(TXN_PARTITIONS),
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "2000",
    "group.initial.rebalance.delay.ms": "100",
    "group.min.session.timeout.ms": "1000",
}

STANDBYS = "streams.num_standby_replicas"
EPOCHS = {
    "session_timeout_ms": 6_000,
    "min_session_timeout_ms": 6_000,
    "heartbeat_interval_ms": 1_000,
    "min_heartbeat_interval_ms": 1_000,
    "assignment_interval_ms": 200,
}
"""Settings of each kind of groups with epochs."""


@cache
def settings_of(node_id: int, include: tuple[str, ...], more: tuple[tuple[str, Any], ...] = ()) -> Settings:
    """Returns the settings of this node's sidecars, which stay as they are. `more`: by `section.name`. Raises
    ValueError."""
    given: dict[str, Any] = {
        "listen": f"{host_of(node_id)}:{SIDECAR_PORT}",
        "broker": f"{host_of(node_id)}:{PORTS['CLIENT']}",
        "bootstrap": ",".join(f"{host_of(n)}:{PORTS['INTERNAL']}" for n in NODES),
        "node_id": node_id,
        "groups": {"include": list(include)},
        "consumer": dict(EPOCHS),
        "share": dict(EPOCHS),
        "streams": {**EPOCHS, "initial_rebalance_delay_ms": 500},
        "classic": {"initial_rebalance_delay_ms": 500},
        "log": {"level": "debug"},
        "loop_probe_ms": 0,
    }
    for name, value in more:
        section, _, field = name.partition(".")
        given.setdefault(section, {})[field] = value
    return Settings(**given)


class World:
    def __init__(
        self,
        seed: int,
        tell: Callable[[str], None] | None = None,
        broker: Mapping[str, str] | None = None,
        partitions: int = 0,
        authorizer: bool | None = False,
    ) -> None:
        """`broker`: settings of all brokers, over those that the seed chooses. It chooses how many partitions there
        are, if that is 0, and whether there is an authorizer, if that is None."""
        self.universe = Universe(seed)
        self.rng = self.universe.rng
        self.net = Net(self.universe)
        self.tell = tell
        self.partitions = partitions or self.rng.choice(MORE_PARTITIONS)
        self.authorizer = self.rng.random() < AUTHORIZED if authorizer is None else authorizer
        given = {**BROKER, "offsets.topic.num.partitions": str(self.partitions), **self._rare_settings()}
        if self.authorizer:
            given["authorizer.class.name"] = AUTHORIZER
        every = {**given, **(broker or {})}
        self.forgets_ids = int(every.get(ID_EXPIRATION, str(WEEK_MS))) < WEEK_MS
        """Brokers forget within seconds, not after a week, the ids by which writers are fenced."""
        self.kafka = Kafka(self.universe, self.net, dict.fromkeys(NODES), every, self.authorizer)
        for topic, count in PARTITIONS_OF.items():
            self.kafka.cluster.create_topic(topic, count, 3)
        self.judge = Judge(self.universe, self.kafka, self.partitions)
        if tell is not None:
            self.judge.say = self.judge.fold.say = self.say
            self.kafka.cluster.on_image = self._changed
        self.universe.after_each = self.judge.look
        self.sidecars: dict[int, Sidecar] = {}
        self.judge.inside.sidecars = self.sidecars
        self.often: tuple[str, ...] = ()
        """Faults that are to strike more often than usual."""
        self.clients: list[Client] = self.judge.clients
        self.include: dict[int, tuple[str, ...]] = {}
        """Groups that a sidecar's own settings name, where that is not all of them."""
        self.exactly_once = False
        """Clients commit in transactions in any case, and not only where chance wants it."""
        self.ordering: set[str] = set()
        """Groups of which somebody says where they are to be, and no sidecar has answered that this is recorded."""
        self.kinds: tuple[str, ...] = ()
        """Kinds of groups that there are beside classic and consumer groups."""
        self.more: dict[str, Any] = {}
        """Settings of all sidecars, by `section.name`, over those that they have in every run."""
        self._desks: list[SimLoop] = []
        self._rowdies: list[Rowdy] = []
        self.strangers: list[Client] = []
        """Clients that come to a group and may not."""
        self.lives: list[Sidecar] = []
        """All that ever were."""

    def _rare_settings(self) -> dict[str, str]:
        """Returns settings of brokers, for some seeds: what takes days elsewhere takes seconds."""
        return {ID_EXPIRATION: "30000"} if self.rng.random() < 0.3 else {}

    def serve_kinds(self) -> None:
        """Before the first sidecar: all of them serve what there is in this run."""
        if self.kinds:
            self.more["groups.kinds"] = ("classic", "consumer", *self.kinds)
        if "streams" in self.kinds:
            self.more = {STANDBYS: self.rng.randrange(2), **self.more}

    def say(self, who: str, text: str) -> None:
        if self.tell is not None:
            self.tell(line(self.universe.now_ms, who, text))

    def _changed(self, was: Image, image: Image) -> None:
        """The controller has decided something: who is alive, who leads."""
        if was.alive != image.alive:
            self.say("cluster", f"brokers {sorted(image.alive)} are alive")
        for name, t in image.topics.items():
            before = was.topics.get(name)
            if name in TOLD_TOPICS and before is not None and before is not t:
                for i, (a, b) in enumerate(zip(before.partitions, t.partitions, strict=True)):
                    if (a.leader, a.isr) != (b.leader, b.isr):
                        self.say("cluster", f"{name}-{i}: leader {b.leader}, in sync {sorted(b.isr)}")

    # ---- sidecars -------------------------------------------------------------------------------------------
    def settings(self, node_id: int) -> Settings:
        return settings_of(node_id, self.include.get(node_id, ("g.*",)), tuple(self.more.items()))

    def start_sidecar(self, node_id: int) -> None:
        self.sidecars[node_id] = self._new_sidecar(self.settings(node_id), host_of(node_id))

    def _new_sidecar(self, settings: Settings, host: str) -> Sidecar:
        proc = Proc(self.universe, f"sidecar-{settings.node_id}.{len(self.lives) + 1}", host)
        made = Sidecar(proc, self.kafka, settings, None if self.tell is None else self.say)
        self.lives.append(made)
        return made

    def start_twin(self, node_id: int) -> Sidecar:
        """A second one with this node id, on another host. No client comes to it."""
        host = f"{host_of(node_id)}b"
        settings = self.settings(node_id).model_copy(update={"listen": f"{host}:{SIDECAR_PORT}"})
        return self._new_sidecar(settings, host)

    def prepare_state_topic(self, replicas: int = 3) -> None:
        """As a sidecar would create it."""
        configs = {"cleanup.policy": "compact", "min.insync.replicas": "2"}
        self.kafka.cluster.create_topic(STATE_TOPIC, self.partitions, replicas, configs)
        self.universe.run_until(self.universe.now_ms + 500)

    def at_a_desk(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Runs an administrator's work at another host. A failure of it ends the run."""
        proc = Proc(self.universe, "desk", "desk")
        loop = SimLoop(proc, self.net)
        self._desks.append(loop)

        async def guarded() -> None:
            try:
                await work()
            except Exception as exc:  # noqa: BLE001 - it travels to the judge
                self.judge.broke(exc)

        proc.later(0, lambda: loop.create_task(guarded()))

    def store_patterns(self, include: str) -> None:
        """As an administrator does it, at the first sidecar."""

        async def say() -> None:
            conn = await BrokerConnection.open(host_of(NODES[0]), SIDECAR_PORT, "kafka-configs", 5.0)
            value = ia.AlterableConfig("sidecar.groups.include", 0, include)
            req = ia.IncrementalAlterConfigsRequest([ia.AlterConfigsResource(4, "", [value])])
            res = await conn.request(ia, "IncrementalAlterConfigs", req)
            conn.close()
            self.say("desk", f"sidecar.groups.include={include}: {res.responses[0].error_message or 'stored'}")
            if res.responses[0].error_code:
                raise Violation(f"settings are refused: {res.responses[0].error_message}")

        self.at_a_desk(say)

    def order(self, group_id: str, managed: bool) -> None:
        """As `sidecar groups adopt` and `release` say it: to one sidecar after the other, until one has recorded it."""
        value = "true" if managed else "false"
        self.ordering.add(group_id)

        async def say() -> None:
            while (told := await self._ordered(group_id, value)) != Code.NONE:
                if told is not None and told not in PASSING:
                    raise Violation(f"{group_id}: sidecar.managed={value} is refused: {name_of(told)}")
                await asyncio.sleep(SAID_AGAIN_S)
            self.ordering.discard(group_id)

        self.at_a_desk(say)

    async def _ordered(self, group_id: str, value: str) -> int | None:
        """Orders a group to a home, and returns the sidecar's answer; None: there was none."""
        host = host_of(self.rng.choice(NODES))
        req = ia.IncrementalAlterConfigsRequest(
            [ia.AlterConfigsResource(cf.GROUP, group_id, [ia.AlterableConfig(cf.MANAGED, 0, value)])]
        )
        try:
            conn = await BrokerConnection.open(host, SIDECAR_PORT, cf.CLI_CLIENT, 2.0)
            try:
                res = await conn.request(ia, "IncrementalAlterConfigs", req, timeout_s=ORDERED_S)
            finally:
                conn.close()
        except NO_ANSWER as exc:
            self.say("desk", f"{group_id}: sidecar.managed={value}: no answer from {host} ({exc!r})")
            return None
        code = int(res.responses[0].error_code)
        self.say("desk", f"{group_id}: sidecar.managed={value}: {name_of(code)} from {host}")
        return code

    def start_the_stopped(self) -> None:
        """As whoever runs them does. One that has ended by itself is a violation."""
        for n, s in list(self.sidecars.items()):
            if s.ended is not None:
                raise Violation(f"sidecar {n} ended by itself: {s.ended!r}") from s.ended
            if not s.proc.alive:
                self.start_sidecar(n)

    def ready(self) -> bool:
        return all(s.proc.life is Life.RUNS and not s.problems for s in self.sidecars.values())

    # ---- clients --------------------------------------------------------------------------------------------
    def add_client(self, kind: type[Client], habits: Habits) -> Client:
        name = f"client-{len(self.clients)}"
        proc = Proc(self.universe, name, f"c{len(self.clients)}")
        brokers = [(host_of(n), SIDECAR_PORT) for n in NODES]
        made = kind(proc, self.net, brokers, habits, self.judge, self._topic_ids)
        self.clients.append(made)
        return made

    def add_stranger(self, kind: type[Client], habits: Habits, hidden: bool) -> Client:
        """`hidden`: it may not even see the group; else it may not read it."""
        name = f"stranger-{len(self.strangers)}"
        denied = () if hidden else (READ,)
        self.kafka.cluster.rights.deny(name, GROUP, habits.group_id, *denied)
        proc = Proc(self.universe, name, name)
        brokers = [(host_of(n), SIDECAR_PORT) for n in NODES]
        made = kind(proc, self.net, brokers, habits, Doorkeeper(self.judge, self.say), self._topic_ids)
        self.strangers.append(made)
        return made

    def add_rowdy(self) -> Rowdy:
        number = len(self._rowdies)
        proc = Proc(self.universe, f"rowdy-{number}", f"r{number}")
        self._rowdies.append(Rowdy(proc, self, [(host_of(n), SIDECAR_PORT) for n in NODES]))
        return self._rowdies[-1]

    def _topic_ids(self) -> dict[str, bytes]:
        return {n: t.topic_id for n, t in self.kafka.cluster.controller.image.topics.items()}

    # ---- the end --------------------------------------------------------------------------------------------
    def settled(self) -> str:
        """Empty when everything is as it should be; else what is missing."""
        image = self.kafka.cluster.controller.image
        if len(image.alive) < len(NODES):
            return f"brokers {sorted(image.alive)} are there"
        for t in image.topics.values():
            if any(len(p.isr) < len(p.replicas) for p in t.partitions):
                return f"{t.name} has replicas that are not in sync"
        for n, s in self.sidecars.items():
            if not s.proc.alive:
                return f"sidecar {n} is down"
            if s.problems:
                return f"sidecar {n}: {s.problems}"
        return next((problem for g in self.groups() if (problem := self.unsettled(g))), "")

    def groups(self) -> list[str]:
        return sorted({c.habits.group_id for c in self.clients})

    def unsettled(self, group_id: str) -> str:
        """Returns what this group lacks; empty if it is stable."""
        live = [c for c in self.clients if c.habits.group_id == group_id and c.proc.alive]
        wanted = {place for c in live for place in c.wanted()}
        owned = [place for c in live for place in c.owned]
        if any(c.leaving for c in live):
            return f"{group_id}: somebody is leaving"
        shared = any(isinstance(c, ShareMember) for c in live)
        if (len(owned) != len(set(owned)) and not shared) or set(owned) != wanted:
            return f"{group_id}: {len(owned)} partitions are owned of {len(wanted)}"
        if group_id not in self.judge.moving.homes and (problem := lacks_standbys(live, self.more.get(STANDBYS, 0))):
            return problem  # a group that has come is assigned anew for a change only, and the brokers assign none
        group = self.judge.fold.group(group_id)
        known = set() if group is None else set(group.members)
        members = {c.member_id for c in live}
        home, has_records = self.judge.moving.homes.get(group_id), self.judge.fold.has_records(group_id)
        if group_id in self.ordering:
            return f"{group_id}: where it is to be has not been recorded"
        if group_id in self.judge.sharing.groups:
            problem = self.judge.sharing.unsettled(group_id, members, home == AT_BROKER, has_records)
        elif home is not None:
            problem = self.judge.moving.unsettled(group_id, members, has_records)
        if problem:
            return problem
        if known != members and home != AT_BROKER:
            return f"{group_id}: its members are {sorted(known)}"
        if isinstance(group, ClassicGroup) and live and group.state is not State.STABLE:
            return f"{group_id}: it is {group.state}"
        if group is not None and not isinstance(group, ClassicGroup) and live and group.assignment_epoch < group.epoch:
            return f"{group_id}: epoch {group.epoch} is not assigned yet"
        if home is not None and (problem := self.judge.not_heard_since(group_id, live)):
            return problem
        late_ms = self.universe.now_ms - 2_500
        if any(c.steady < 2 or c.well_ms < late_ms for c in live):
            return f"{group_id}: somebody has not been answered yet"
        return ""

    def reconciling(self) -> str:
        """Members that have not come to their group's epoch, and may yet be removed for it; empty if there are none."""
        for group_id in self.groups():
            group = self.judge.fold.group(group_id)
            if group is None or isinstance(group, ClassicGroup):
                continue
            if behind := sorted(m for m, member in group.members.items() if member.member_epoch != group.epoch):
                return f"{group_id}: {behind} have not come to epoch {group.epoch}"
        return ""

    def bury(self) -> None:
        self.tell = None  # the collector throws coroutines away when it likes, and they have last words
        for loop in self.loops():
            loop.bury()

    def loops(self) -> list[SimLoop]:
        """Returns the loops of all administrators, sidecars and clients that ever were."""
        return [
            *self._desks,
            *(r.loop for r in self._rowdies),
            *(s.loop for s in self.lives),
            *(c.loop for c in (*self.clients, *self.strangers)),
        ]


__all__ = ["STATE_TOPIC", "ClassicMember", "ConsumerMember", "World"]
