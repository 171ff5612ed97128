"""The controller: who is alive, who leads, which topics there are. One state without a life of its own.

The quorum of controllers is not modelled: a broker talks to the controller while it reaches most of the nodes (itself
among them), which is where combined nodes would have their quorum. Elections follow PartitionChangeBuilder with
eligible leader replicas (KIP-966), which clusters of 4.3 are made with; no unclean election.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from tests.whole.broker.codes import Err, Refused
from tests.whole.broker.image import BROKER, NO_LEADER, TOPIC, Image, Partition, Resource, Topic
from tests.whole.broker.ports import Host
from tests.whole.broker.settings import Settings

MIN_ISR = "min.insync.replicas"
BLOCK = 1_000
"""Producer ids that a broker is given at once (KIP-730)."""


class Around(Protocol):
    """The cluster, as far as the controller needs it."""

    def changed(self, was: Image, image: Image) -> None:
        """Called when there is a new image."""

    def new_id(self) -> bytes: ...


@dataclass(slots=True)
class Registered:
    """`heard_ms`: when its last heartbeat came; `leaving`: in a controlled shutdown, so it leads nothing more."""

    incarnation: int
    heard_ms: int
    leaving: bool = False


class Controller:
    def __init__(self, host: Host, around: Around, static: Mapping[str, str], nodes: Iterable[int]) -> None:
        self.nodes = sorted(nodes)
        self.brokers: dict[int, Registered] = {}
        self.settings = Settings(-1, static)
        self._host = host
        self._around = around
        self._next_block = 0
        # A cluster that is made with eligible leader replicas keeps this one as a setting of all brokers.
        self.image = Image(configs={(BROKER, ""): {MIN_ISR: self.settings.text(MIN_ISR)}})
        self._told = self.settings.image = self.image

    def _publish(self, image: Image) -> None:
        was, self.image = self._told, replace(image, version=self.image.version + 1)
        self._told = self.settings.image = self.image
        self._around.changed(was, self.image)

    # ---- brokers --------------------------------------------------------------------------------------------
    @property
    def session_ms(self) -> int:
        return self.settings.number("broker.session.timeout.ms")

    def register(self, node_id: int, incarnation: int, clean: bool) -> bool:
        """A broker has started. False while the session of the same broker before it has not ended
        (DUPLICATE_BROKER_REGISTRATION)."""
        was = self.brokers.get(node_id)
        if was is not None and was.incarnation != incarnation and node_id in self.image.alive and not was.leaving:
            return False
        self.brokers[node_id] = Registered(incarnation, self._host.mono_ms())
        if not clean:
            self._recompute(lost=frozenset((node_id,)), unclean=frozenset((node_id,)))
        self._watch(node_id, incarnation)
        return True

    def heartbeat(self, node_id: int, incarnation: int, caught_up: bool) -> None:
        """`caught_up`: the broker knows the newest metadata, so it may be unfenced."""
        known = self.brokers.get(node_id)
        if known is None or known.incarnation != incarnation:
            return
        known.heard_ms = self._host.mono_ms()
        if node_id not in self.image.alive and caught_up and not known.leaving:
            self._publish(self._elected(replace(self.image, alive=self.image.alive | {node_id})))
            self._watch(node_id, incarnation)

    def _watch(self, node_id: int, incarnation: int) -> None:
        """Fence it when it has not been heard for a session."""

        def look() -> None:
            known = self.brokers.get(node_id)
            if known is None or known.incarnation != incarnation:
                return
            left = known.heard_ms + self.session_ms - self._host.mono_ms()
            if left > 0:
                self._host.later(left, look)
            elif node_id in self.image.alive:
                self._fence(node_id)

        self._host.later(self.session_ms, look)

    def _fence(self, node_id: int) -> None:
        self.image = replace(self.image, alive=self.image.alive - {node_id})
        self._recompute(lost=frozenset((node_id,)))

    def leave(self, node_id: int, incarnation: int) -> None:
        """A controlled shutdown: others lead, and then the broker is fenced."""
        known = self.brokers.get(node_id)
        if known is not None and known.incarnation == incarnation:
            known.leaving = True
            self._fence(node_id)

    # ---- leaders --------------------------------------------------------------------------------------------
    def min_isr(self, topic: str, p: Partition) -> int:
        return min(int(self.settings.topic(topic, MIN_ISR)), len(p.replicas))

    def _recompute(self, lost: frozenset[int], unclean: frozenset[int] = frozenset()) -> None:
        self._publish(self._elected(self.image, lost, unclean))

    def _elected(
        self, image: Image, lost: frozenset[int] = frozenset(), unclean: frozenset[int] = frozenset()
    ) -> Image:
        """The image in which the lost are in no ISR, and everybody leads who can."""
        topics = dict(image.topics)
        for t in image.topics.values():
            parts = []
            for p in t.partitions:
                touched = lost & {*p.isr, *p.elr, p.leader} or (p.leader == NO_LEADER and not lost)
                isr = tuple(n for n in p.isr if n not in lost)
                parts.append(self._change(t.name, p, isr, image.alive, unclean) if touched else p)
            if any(a is not b for a, b in zip(parts, t.partitions, strict=True)):
                topics[t.name] = replace(t, partitions=tuple(parts))
        return replace(image, topics=topics)

    def _change(
        self,
        topic: str,
        p: Partition,
        isr: tuple[int, ...],
        alive: frozenset[int],
        unclean: frozenset[int] = frozenset(),
    ) -> Partition:
        elr: tuple[int, ...] = ()
        if len(isr) < self.min_isr(topic, p):
            elr = tuple(sorted(({*p.elr, *p.isr} - set(isr)) - unclean))
        fit = [n for n in (p.leader, *p.replicas) if n in alive and n in (isr or elr)]
        if fit:
            leader = fit[0]
            if leader not in isr:
                isr, elr = (leader,), tuple(n for n in elr if n != leader)
        elif not isr and not elr and p.last_known in alive:
            leader, isr = p.last_known, (p.last_known,)
        else:
            leader = NO_LEADER
        last_known = -1 if leader >= 0 else p.last_known if p.last_known >= 0 else p.leader
        moved = leader != p.leader
        if not moved and (isr, elr, last_known) == (p.isr, p.elr, p.last_known):
            return p
        return Partition(p.replicas, isr, leader, p.leader_epoch + moved, p.version + 1, elr, last_known)

    def alter_isr(
        self, node_id: int, topic_id: bytes, index: int, leader_epoch: int, version: int, isr: tuple[int, ...]
    ) -> Partition | None:
        """AlterPartition by a leader. None if somebody else leads; else the partition as it is now, which has not
        changed if the leader's view was out of date, or if it lets in a broker that is fenced."""
        t = self.image.by_id(topic_id)
        if t is None:
            return None
        p = t.partitions[index]
        if (p.leader, p.leader_epoch) != (node_id, leader_epoch):
            return None
        if p.version != version or any(n not in self.image.alive for n in isr if n not in p.isr):
            return p
        changed = self._change(t.name, p, isr, self.image.alive)
        if changed is not p:
            self._put(replace(t, partitions=(*t.partitions[:index], changed, *t.partitions[index + 1 :])))
        return changed

    def _put(self, topic: Topic) -> None:
        self._publish(replace(self.image, topics={**self.image.topics, topic.name: topic}))

    # ---- topics ---------------------------------------------------------------------------------------------
    def create_topic(
        self,
        name: str,
        partitions: int,
        replicas: int,
        configs: Mapping[str, str],
        first: int,
        check_only: bool = False,
        nodes: Sequence[tuple[int, ...]] = (),
    ) -> Topic:
        """`first`: where the leaders begin; `nodes`: which replicas each partition is to have. Raises Refused."""
        if name in self.image.topics:
            raise Refused(Err.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        parts = self._as_wanted(nodes) if nodes else self._in_turn(partitions, replicas, first)
        topic = Topic(name, self._around.new_id(), tuple(parts))
        if not check_only:
            image = self.image
            if configs:
                image = replace(image, configs={**image.configs, (TOPIC, name): dict(configs)})
            self._publish(replace(image, topics={**image.topics, name: topic}))
        return topic

    def _as_wanted(self, nodes: Sequence[tuple[int, ...]]) -> list[Partition]:
        parts = []
        for p, chosen in enumerate(nodes):
            alive = tuple(n for n in chosen if n in self.image.alive)
            known = len({*chosen} & {*self.brokers}) == len(chosen) == len(nodes[0])
            if not (alive and known):
                raise Refused(Err.INVALID_REPLICA_ASSIGNMENT, f"The replicas of partition {p} cannot be {chosen}.")
            parts.append(Partition(chosen, alive, alive[0]))
        return parts

    def _in_turn(self, partitions: int, replicas: int, first: int) -> list[Partition]:
        if replicas < 1:
            raise Refused(
                Err.INVALID_REPLICATION_FACTOR,
                "Replication factor must be larger than 0, or -1 to use the default value.",
            )
        if partitions < 1:
            raise Refused(Err.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value.")
        known = sorted(self.brokers)
        if replicas > len(known):
            raise Refused(
                Err.INVALID_REPLICATION_FACTOR,
                f"Unable to replicate the partition {replicas} time(s): The target replication factor of {replicas} "
                f"cannot be reached because only {len(known)} broker(s) are registered or some brokers have all their "
                "log directories cordoned.",
            )
        alive = [n for n in known if n in self.image.alive]
        if not alive:
            raise Refused(
                Err.INVALID_REPLICATION_FACTOR,
                f"Unable to replicate the partition {replicas} time(s): All brokers are currently fenced.",
            )
        fenced = [n for n in known if n not in self.image.alive]
        parts = []
        for i in range(partitions):
            at = (first + i) % len(alive)
            chosen = tuple([*alive[at:], *alive[:at], *fenced][:replicas])
            parts.append(Partition(chosen, tuple(n for n in chosen if n in self.image.alive), chosen[0]))
        return parts

    def delete_topic(self, name: str) -> None:
        if name not in self.image.topics:
            raise Refused(Err.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
        topics = {n: t for n, t in self.image.topics.items() if n != name}
        configs = {r: c for r, c in self.image.configs.items() if r != (TOPIC, name)}
        self._publish(replace(self.image, topics=topics, configs=configs))

    def set_configs(self, resource: Resource, own: Mapping[str, str]) -> None:
        """Sets the resource's own settings: these, and no others."""
        configs = {r: c for r, c in self.image.configs.items() if r != resource}
        if own:
            configs[resource] = dict(own)
        self._publish(replace(self.image, configs=configs))

    def producer_ids(self) -> range:
        block = range(self._next_block, self._next_block + BLOCK)
        self._next_block += BLOCK
        return block
