"""The answers of the admin endpoint's API as values for JSON: the overview, a page of groups, one group. Any sidecar
can answer for any group, from its copy of the state topic; owners are those of the owner map.

The views are generators that yield after little work and return the answer (`group_list.py`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from sidecar.coordinator.inspect.broker_groups import BrokerGroups
from sidecar.coordinator.inspect.group_list import UNKNOWN_EPOCH, UNKNOWN_MEMBERS, Row, Rows, Slices
from sidecar.coordinator.inspect.rebalance_history import RebalanceHistory
from sidecar.coordinator.membership.owners_protocol import Assignment, SidecarInfo
from sidecar.coordinator.moves.managed_groups import Rules
from sidecar.coordinator.statelog.tail import StateLog
from sidecar.core.runtime.inspect import listed, topic_place
from sidecar.core.vocabulary.placement import partition_for
from sidecar.kafka.group_lists import PartitionLag
from sidecar.kafka.offsets import Place
from sidecar.kafka.resolver import joined
from sidecar.state.codec import StateCodec
from sidecar.state.rebuilt import Rebuilt, rebuilt

LOOKED_AT = 32
Json = dict[str, Any]
MembersByRole = dict[str, list[str]]
"""`owner`, `target` or `leaves` -> ids of the members that own a partition, have it as target, or must give it up."""


async def _none(rows: Collection[Row]) -> None:
    """Asks nothing: no lags can be known."""


@dataclass(frozen=True)
class Lag:
    """A source of groups' lags. `of(group)`: the lags by topic and partition; None: not known here. `version()`:
    changes whenever the lags do. `look(rows)`: asks for the lags of these groups, and waits a little."""

    of: Callable[[str], Mapping[Place, PartitionLag] | None] = lambda group_id: None
    version: Callable[[], object] = lambda: 0
    look: Callable[[Collection[Row]], Awaitable[None]] = _none


@dataclass(frozen=True)
class ClusterFacts:
    """Facts about the cluster. `id()`: its id, "" while unknown; `suspects()`: nodes whose sidecars do not answer this
    one; `sidecar(node)`: a sidecar's record in the roster, and whether it reports to be ready; None for unknown."""

    brokers: BrokerGroups
    id: Callable[[], str] = lambda: ""
    suspects: Callable[[], Collection[int]] = tuple
    sidecar: Callable[[int], tuple[SidecarInfo | None, bool | None]] = lambda node: (None, None)


UNKNOWN = Lag()


class Views:
    def __init__(
        self,
        node_id: int,
        state: StateLog,
        codec: StateCodec,
        rules: Rules,
        history: RebalanceHistory,
        assignment: Callable[[], Assignment],
        cluster: ClusterFacts,
        lag: Lag = UNKNOWN,
    ) -> None:
        self._node_id = node_id
        self._state = state
        self._codec = codec
        self._rules = rules
        self._history = history
        self._assignment = assignment
        self.lag = lag
        self._cluster = cluster
        self.brokers = cluster.brokers
        self.rows = Rows(state, codec, history, self._owner, self.brokers.rows)

    def _owner(self, partition: int) -> int:
        owners = self._assignment().owners
        return owners[partition] if partition < len(owners) else -1

    def version(self) -> str:
        """Returns a text that changes whenever the overview or the list does, lags apart."""
        suspects, written = sorted(self._cluster.suspects()), f"{self.rows.version()}.{self.brokers.version()}"
        a = self._assignment()
        peers = [self._cluster.sidecar(node)[1] for node in self._nodes(a)]
        return f"{written}.{a.generation}.{self._cluster.id()}.{suspects}.{peers}"

    def _nodes(self, a: Assignment) -> list[int]:
        """Returns the nodes that have a sidecar, or have had one and still own a partition."""
        return sorted({*a.members, *a.owners})

    def version_of(self, group_id: str) -> str:
        """Returns a text that changes whenever the view of this group does, lags apart."""
        number = partition_for(group_id, len(self._state.partitions))
        moves = f"{self._rules.whereabouts(group_id)}.{self.brokers.version()}"
        return f"{self._state.partitions[number].position}.{self._assignment().generation}.{moves}"

    # ---- all ----------------------------------------------------------------------------------------------
    def overview(self) -> Slices:
        yield from self.rows.refresh()
        counts = yield from self.rows.counts()
        a, sidecars = self._assignment(), []
        for node in self._nodes(a):
            _, host, port = a.members.get(node, ("", "", 0))
            info, ready = self._cluster.sidecar(node)
            sidecars.append(
                {
                    "node": node,
                    "here": node == self._node_id,
                    "broker": joined([(host, port)]) if host else "",
                    "answers": None if node == self._node_id or not host else node not in self._cluster.suspects(),
                    "ready": ready,
                    "version": (info and info.version) or None,
                    "since_ms": (info and info.started_ms) or None,
                    "partitions": a.owners.count(node),
                    "groups": counts["owners"][node],
                }
            )
        brokers = [
            {"node": n, "groups": counts["brokers"][n], **answer} for n, answer in self.brokers.last_answers().items()
        ]
        groups = {"total": sum(counts["kinds"].values()), "kinds": counts["kinds"], "states": counts["states"]}
        head = {"cluster": self._cluster.id(), "generation": a.generation}
        return {**head, "sidecars": sidecars, "brokers": brokers, "groups": groups}

    def find(self, search: str, kind: str, state: str, sort: str, begin: int, limit: int) -> Slices:
        """Returns how many groups match, and the rows of a page that begins at `begin`."""
        yield from self.rows.refresh()
        page = yield from self.rows.find(search, kind, state, sort, begin, limit)
        return page

    def row(self, group_id: str) -> Slices:
        """Returns the row of a group; None if the sidecars do not have it and no broker lists it."""
        yield from self.rows.refresh()
        return self.rows.row(group_id) or self.brokers.row(group_id)

    def row_json(self, r: Row) -> Json:
        owner = self._owner(r.partition) if r.broker < 0 else -1
        return {
            "group": r.group,
            "kind": r.kind,
            "state": r.state,
            "epoch": None if r.epoch == UNKNOWN_EPOCH else r.epoch,
            "members": None if r.members == UNKNOWN_MEMBERS else r.members,
            "where": self._rules.whereabouts(r.group),
            "owner": owner if owner >= 0 else None,
            "broker": r.broker if r.broker >= 0 else None,
            "changed_ms": r.changed_ms or None,
            "why": r.why,
            "lag": _sum(self.lag.of(r.group)),
        }

    # ---- one group ----------------------------------------------------------------------------------------
    def group(self, group_id: str, members_from: int, partitions_from: int, limit: int) -> Slices:
        """Returns head, a page of the members, a page of the partitions, and the last rebalances. None if the group has
        no records, no broker lists it, and no order or pattern is about it. A broker's group has only its head and the
        lags of its partitions."""
        head = yield from self._head(group_id)
        if head is None:
            return None
        members: dict[str, Json] = head.pop("members")
        partitions = yield from self._partitions(head, members, partitions_from, limit)
        rows = [members[m] for m in islice(sorted(members), members_from, members_from + limit)]
        total = len(members)
        yield from _freed(members)
        rebalances = yield from self._history.of(group_id)
        if rebalances and not head["at_rest"]:
            rebalances[0]["settled_ms"] = None  # it goes on, whatever has come of it so far
        page = {"total": total, "begin": members_from, "rows": rows}
        return {**head, "members": page, "partitions": partitions, "rebalances": rebalances}

    def whole(self, group_id: str) -> Slices:
        """Returns the head and all members, in order; None as `group`."""
        head = yield from self._head(group_id)
        if head is not None:
            members = head["members"]
            head["members"] = [members[m] for m in sorted(members)]
        return head

    def _head(self, group_id: str) -> Slices:
        """Returns the facts about the group as a whole, with all members by id in `members`; None as `group`."""
        number = partition_for(group_id, len(self._state.partitions))
        values = list(self._state.partitions[number].groups.get(group_id, {}).items())
        row = None if values else self.brokers.row(group_id)
        managed = group_id in self._rules.overrides or self._rules.wanted(group_id)
        if not values and not managed and row is None:
            return None
        owner = self._owner(number) if row is None else -1
        seen = yield from rebuilt(self._codec, values)
        head = {
            "group": group_id,
            "partition": number,
            "owner": owner if owner >= 0 else None,
            "broker": None if row is None else row.broker,
            "here": owner == self._node_id,
            "where": self._rules.whereabouts(group_id),
            "managed": self._rules.overrides.get(group_id, "as the patterns say"),
            "managed_why": self._rules.settings.why(group_id),
            "rebalance_asked": self._rules.settings.order(group_id),
            **self._facts(seen),
            "lag": _sum(self.lag.of(group_id)),
            "members": (yield from self._members(seen)),
        }
        if row is not None:
            head |= {"kind": row.kind, "state": row.state}
        del seen, values  # thousands of members: in a step of their own
        yield
        return head

    def _facts(self, seen: Rebuilt) -> Json:
        """Returns `kind`, `state`, `at_rest` (no rebalance is under way), `because`, `problems`, the kind's facts."""
        facts: Json = {"kind": seen.kind, "state": seen.state, "because": seen.why, "problems": seen.problems}
        if seen.inspect is None:
            return facts | {"at_rest": True}
        names = {"epoch_name": seen.inspect.epoch_name, "assignor_name": seen.inspect.assignor_name}
        return facts | {"at_rest": seen.state in seen.inspect.at_rest} | names | seen.facts()

    def _members(self, seen: Rebuilt) -> Slices:
        """Returns member id -> its fields."""
        members: dict[str, Json] = {}
        if seen.group is not None and seen.inspect is not None:
            for i, member_id in enumerate(tuple(seen.group.member_ids())):
                if i % LOOKED_AT == 0:
                    yield
                if (view := seen.inspect.member(seen.group, member_id, seen.names)) is not None:
                    members[member_id] = view.json()
        yield
        return members

    def _partitions(self, head: Json, members: Mapping[str, Json], begin: int, limit: int) -> Slices:
        """Returns a page of partitions by topic (or role and subtopology): the members that own each, have it as
        target, or still have to give it up. There are several where the kind allows it."""
        by_topic: dict[str, dict[int, MembersByRole]] = {}
        for member_id, m in members.items():
            yield
            for name, part in (("owner", "owns"), ("target", "target"), ("leaves", "gives_up")):
                for topic, numbers in ({} if isinstance(m[part], str) else m[part]).items():
                    rows = by_topic.setdefault(topic, {})
                    for n in numbers:
                        if n not in rows:
                            rows[n] = {"owner": [], "target": [], "leaves": []}
                        rows[n][name].append(member_id)
        kind, lag = self._codec.registry.kinds.get(head["kind"]), self.lag.of(head["group"])
        for topic, n in lag or ():
            by_topic.setdefault(topic, {}).setdefault(n, {"owner": [], "target": [], "leaves": []})
        out, total = [], 0
        for topic in sorted(by_topic):
            yield
            rows = by_topic[topic]
            for n in islice(sorted(rows), max(0, begin - total), max(0, begin + limit - total)):
                if n % LOOKED_AT == 0:
                    yield
                roles = {name: listed(ids) if ids else None for name, ids in rows[n].items()}
                offsets = None if lag is None else lag.get((topic, n))
                place = topic_place if kind is None or not any(rows[n].values()) else kind.inspect.place
                out.append({"topic": topic, "partition": n, "name": place(topic, n), **roles, **_behind(offsets)})
            total += len(rows)
            yield from _freed(rows)
        return {"total": total, "begin": begin, "rows": out}


def _freed(things: dict[Any, Any]) -> Slices:
    """Frees a dict in small steps: thousands of values at once would hold the loop longer than any other step."""
    while things:
        for _ in range(min(LOOKED_AT, len(things))):
            things.popitem()
        yield


def _behind(known: PartitionLag | None) -> dict[str, int | None]:
    return {"committed": None, "end": None, "lag": None} if known is None else known._asdict()


def _sum(lag: Mapping[Place, PartitionLag] | None) -> int | None:
    """Returns the group's total lag; None if it is not known, or if the group has committed nothing."""
    return sum(p.lag for p in lag.values()) if lag else None
