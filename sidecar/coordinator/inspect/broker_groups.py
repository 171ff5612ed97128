"""Asks brokers, while somebody looks at the page, for the groups that they coordinate themselves and for the lags that
this sidecar's exporter does not have.

Nothing is asked when nobody looks. All who look share one question, and its answer counts for some seconds. A look
waits for answers for WAIT_S at most, and not for a broker that did not answer the last time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

from sidecar.coordinator.clock import wall_ms
from sidecar.coordinator.inspect.group_list import UNKNOWN_EPOCH, UNKNOWN_MEMBERS, Row
from sidecar.coordinator.inspect.lag_exporter import Page
from sidecar.core.vocabulary.placement import group_hash
from sidecar.kafka.cluster import ClusterView
from sidecar.kafka.group_lists import ConnectTo, LagReader, ListedGroup, PartitionLag, groups_at
from sidecar.kafka.net import NO_ANSWER
from sidecar.kafka.offsets import Place
from sidecar.link.ports import Tasks

FRESH_S, LAGS_FRESH_S = 5.0, 10.0
WAIT_S = 1.0
NOT_YET = "no answer yet"
ANSWER_S = 10.0
GROUPS_MAX = 50_000
"""Groups of one broker that are shown; the others are counted."""
LAGS_MAX, PLACES_MAX = 2_000, 20_000
"""Groups whose lags are kept; partitions that one question is about."""


@dataclass
class _Broker:
    rows: dict[str, Row] = field(default_factory=dict)
    answered_ms: int | None = None
    """Unix time of the last answer."""
    problem: str = ""
    asked_s: float = float("-inf")
    asking: asyncio.Task[None] | None = None


class BrokerGroups:
    """The groups that each broker lists, those that sidecars coordinate among them (as placeholders)."""

    def __init__(
        self, connect_to: ConnectTo, nodes: Callable[[], Collection[int]], partitions: int, own_group: str, tasks: Tasks
    ) -> None:
        self._connect_to = connect_to
        self._nodes = nodes
        self._partitions = partitions
        self._own_group = own_group
        self._tasks = tasks
        self._brokers: dict[int, _Broker] = {}
        self._changes = 0

    def version(self) -> int:
        """Rises whenever the answers change."""
        return self._changes

    def rows(self) -> Iterator[Row]:
        for broker in self._brokers.values():
            yield from broker.rows.values()

    def row(self, group_id: str) -> Row | None:
        return next((b.rows[group_id] for b in self._brokers.values() if group_id in b.rows), None)

    def last_answers(self) -> dict[int, dict[str, object]]:
        """Returns, by node id of each broker that was asked, when it answered last and why not since."""
        return {n: {"answered_ms": b.answered_ms, "problem": b.problem} for n, b in sorted(self._brokers.items())}

    async def look(self) -> None:
        now_s, nodes = time.monotonic(), self._nodes()
        for gone in self._brokers.keys() - set(nodes):  # others coordinate its groups by now
            del self._brokers[gone]
            self._changes += 1
        for node in nodes:
            broker = self._brokers.setdefault(node, _Broker())
            if not _under_way(broker.asking) and now_s - broker.asked_s >= FRESH_S:
                broker.asking = self._tasks.spawn(self._ask(node, broker), f"groups of broker {node}")
        await _waited(b.asking for b in self._brokers.values() if not b.problem)
        for broker in self._brokers.values():
            if _under_way(broker.asking) and not broker.problem:
                broker.problem = NOT_YET
                self._changes += 1

    async def _ask(self, node: int, broker: _Broker) -> None:
        try:
            listed = await groups_at(await self._connect_to(node), ANSWER_S)
            listed.pop(self._own_group, None)
            rows = await asyncio.to_thread(self._rows, node, listed)
            more = len(listed) - len(rows)
            problem = f"{more} more groups are not shown" if more else ""
            self._changes += rows != broker.rows
            broker.rows, broker.answered_ms = rows, wall_ms()
        except NO_ANSWER as exc:
            problem = str(exc) or "no answer in time"
        self._changes += problem != broker.problem
        broker.problem, broker.asked_s = problem, time.monotonic()

    def _rows(self, node: int, listed: Mapping[str, ListedGroup]) -> dict[str, Row]:
        """In a thread: there may be many."""
        return {
            group_id: Row(
                group_id,
                group_hash(group_id) % self._partitions,
                g.kind,
                g.state,
                UNKNOWN_EPOCH,
                UNKNOWN_MEMBERS,
                0,
                "",
                broker=node,
            )
            for group_id, g in islice(listed.items(), GROUPS_MAX)
        }


class PageLags:
    """Lags of the groups on the page: of those that the exporter has, its own."""

    def __init__(
        self,
        exported: Callable[[], Page],
        connect_to: ConnectTo,
        view: Callable[[], ClusterView],
        leader_of: Callable[[int], int],
        tasks: Tasks,
    ) -> None:
        """`exported()`: what the exporter has; `leader_of(partition)`: the broker that keeps the offsets of its groups,
        -1 while unknown."""
        self._exported = exported
        self._connect_to = connect_to
        self._view = view
        self._leader_of = leader_of
        self._tasks = tasks
        self._known: dict[str, tuple[float, Mapping[Place, PartitionLag] | None]] = {}
        """Group id -> monotonic time of the question, and its answer; the last asked at the end."""
        self._asking: asyncio.Task[None] | None = None
        self._failed = False
        self._answers = 0

    def of(self, group_id: str) -> Mapping[Place, PartitionLag] | None:
        return self._exported().lags.get(group_id) or self._known.get(group_id, (0.0, None))[1]

    def version(self) -> str:
        """Another one also when it is time to ask again, so that whoever looks does so."""
        return f"{self._exported().at_s}.{self._answers}.{time.monotonic() // LAGS_FRESH_S}"

    async def look(self, rows: Collection[Row]) -> None:
        at_s, exported = time.monotonic(), self._exported().lags
        due = [r for r in rows if not exported.get(r.group) and at_s - self._asked_s(r) >= LAGS_FRESH_S]
        if due and not _under_way(self._asking):
            due.sort(key=self._asked_s)  # PLACES_MAX leaves out the last ones
            self._asking = self._tasks.spawn(self._ask(due), "lags for the page")
        if due and not self._failed:
            await _waited((self._asking,))
            self._failed |= _under_way(self._asking)

    def _asked_s(self, row: Row) -> float:
        return self._known[row.group][0] if row.group in self._known else float("-inf")

    async def _ask(self, rows: Collection[Row]) -> None:
        kinds: dict[int, dict[str, str]] = {}
        for r in rows:
            node = self._leader_of(r.partition) if r.broker < 0 else r.broker
            if node >= 0:
                kinds.setdefault(node, {})[r.group] = r.kind
        reader = LagReader(self._connect_to, ANSWER_S, PLACES_MAX)
        await reader.read(kinds, self._view().leaders)
        at_s = time.monotonic()
        for r in rows:
            self._known.pop(r.group, None)
            self._known[r.group] = (at_s, reader.lags.get(r.group))
        while len(self._known) > LAGS_MAX:
            del self._known[next(iter(self._known))]
        self._failed = bool(reader.problems)
        self._answers += 1


def _under_way(asking: asyncio.Task[None] | None) -> bool:
    return asking is not None and not asking.done()


async def _waited(asking: Iterable[asyncio.Task[None] | None]) -> None:
    if tasks := {task for task in asking if task is not None and not task.done()}:
        await asyncio.wait(tasks, timeout=WAIT_S)
