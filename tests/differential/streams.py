"""Random scripts of streams groups (KIP-1071): applications of several processes, topologies that come and change,
topics that are missing, members that give up their tasks, or do not, and operators. streams_script.py makes them."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Mapping
from typing import Any

from sidecar.core.vocabulary.errors import Code
from sidecar.core.vocabulary.placement import partition_for
from sidecar.kafka.net import BrokerConnection
from sidecar.wire.generated import delete_groups as dl
from sidecar.wire.generated import offset_commit as oc
from sidecar.wire.generated import offset_fetch as of
from sidecar.wire.generated import streams_group_describe as sd
from sidecar.wire.generated import streams_group_heartbeat as st
from tests.differential.classic import AT_MOST_S, UNKNOWN_SERVER_ERROR
from tests.differential.run import until
from tests.differential.script import PARTITIONS, Side, Step, commit_code
from tests.differential.streams_script import LEAVE, LEAVE_FOR_A_WHILE, TIMEOUT_MS
from tests.differential.topology import Sub, Topo

JOIN = 0
MISSING_INTERNAL_TOPICS, ASSIGNMENT_DELAYED = 3, 5
NOT_READY = (1, 2)
"""Statuses: source topics are missing, or topics have unlike numbers of partitions."""
HEARTBEAT_FIELDS, STATUSES, TASKS, ENDPOINT_EPOCH = 10, 5, 6, 7
TARGET, TOPOLOGY = 9, 7
"""Columns of a member in a description, and of the description."""
ROLES = ("active", "standby", "warmup")
Answer = tuple[Any, ...]
Owned = dict[str, dict[str, list[int]]]
"""Role -> subtopology -> partitions."""


class StreamsSide(Side):
    """One coordinator under the script."""

    def __init__(self, conn: BrokerConnection, group: str, ids: dict[str, bytes]) -> None:
        super().__init__(conn, group, ids)
        self.given: dict[str, Owned] = {}
        """Each member's last assignment."""
        self.has: dict[str, Owned] = {}
        """A member's tasks, if they are not those of its last assignment."""
        self.endpoint_epochs: dict[str, int] = {}
        self.process: dict[str, str] = {}
        """Member -> its latest process."""
        self.moved = False
        """A member came back in another process."""
        self.own_topics = False
        """Topics of the script's own come and go."""
        self.served = False
        """A member has said where it can be asked."""
        self.taken = False
        """A request was refused because another member has the instance id. Kafka takes that one's refined assignment
        for the refused member's all the same, and then its tasks (docs/reference/differences.md)."""
        self.details = ""
        """Detail of the last heartbeat's status MISSING_INTERNAL_TOPICS."""

    # ---- topics ---------------------------------------------------------------------------------------------
    async def knows(self, counts: Mapping[str, int], names: Iterable[str]) -> bool:
        """Like Side's, with a subtopology for each of the topics. Those that are gone are missing to it."""
        there = {n: counts[n] for n in names if n in counts}
        gone = [n for n in names if n not in counts]
        return (not there or await self._probe([*there]) == there) and (not gone or await self._probe(gone) == {})

    def new_probe(self) -> str:
        """A group of the same state partition: what its coordinator knows, that of the script's group knows."""
        self.probes += 1
        rest = (f"{self.group}-probe-{self.probes}-{n}" for n in range(10_000))
        return next(g for g in rest if partition_for(g, PARTITIONS) == partition_for(self.group, PARTITIONS))

    async def probe(self, group: str, names: list[str]) -> st.StreamsGroupHeartbeatResponse:
        topo = Topo(tuple(Sub(n, (n,)) for n in names))
        req = st.StreamsGroupHeartbeatRequest(group, "probe", JOIN, rebalance_timeout_ms=TIMEOUT_MS, process_id="p")
        req.topology = topo.topology_of(group)
        req.active_tasks, req.standby_tasks, req.warmup_tasks = [], [], []
        res: st.StreamsGroupHeartbeatResponse = await self.conn.request(st, "StreamsGroupHeartbeat", req)
        gone = st.StreamsGroupHeartbeatRequest(group, "probe", LEAVE)
        await self.conn.request(st, "StreamsGroupHeartbeat", gone)
        await self.conn.request(dl, "DeleteGroups", dl.DeleteGroupsRequest([group]))
        return res

    async def _probe(self, names: list[str]) -> dict[str, int]:
        res = await self.probe(self.new_probe(), names)
        missing = {n for s in res.status or () if s.status_code == 1 for n in re.findall(r"[^ ,]+", s.status_detail)}
        if missing:
            return {} if missing.issuperset(names) else {"some are missing": 0}
        return {t.subtopology_id: len(t.partitions) for t in res.active_tasks or ()}

    async def internal_topics(self) -> dict[str, int]:
        """Returns the internal topics of the group's topology, with their replication factors."""
        g = await self.described()
        return {
            t.name: t.replication_factor
            for s in (g.topology.subtopologies or () if g.topology is not None else ())
            for t in (*s.repartition_source_topics, *s.state_changelog_topics)
        }

    # ---- heartbeats -----------------------------------------------------------------------------------------
    async def beat(self, member: str, req: st.StreamsGroupHeartbeatRequest, version: int | None = None) -> object:
        res = await self.conn.request(st, "StreamsGroupHeartbeat", req, high=version)
        self.details = next((s.status_detail for s in res.status or () if s.status_code == MISSING_INTERNAL_TOPICS), "")
        tasks = None
        if res.active_tasks is not None:
            tasks = {r: by_subtopology(getattr(res, f"{r}_tasks")) for r in ROLES}
        if res.error_code == Code.NONE and req.member_epoch >= JOIN:
            self.epochs[member] = res.member_epoch
            self.endpoint_epochs[member] = res.endpoint_information_epoch
            if tasks is not None:
                if req.member_epoch == JOIN:
                    self.has.pop(member, None)
                self.given[member] = tasks
        self.served |= req.user_endpoint is not None
        if req.process_id is not None:
            self.moved |= self.process.get(member, req.process_id) != req.process_id
            self.process[member] = req.process_id
        if res.error_code in (Code.FENCED_INSTANCE_ID, Code.UNRELEASED_INSTANCE_ID):
            self.taken = True
        if res.error_code == Code.NONE and req.member_epoch == JOIN:
            self.static[member] = req.instance_id
        elif res.error_code in (Code.UNKNOWN_MEMBER_ID, Code.GROUP_ID_NOT_FOUND) or req.member_epoch < JOIN:
            self.static.pop(member, None)
        if res.error_code == Code.GROUP_ID_NOT_FOUND and req.member_epoch > JOIN:
            # docs/reference/differences.md: that ends clients, so no member hears it here.
            res.error_code = int(Code.UNKNOWN_MEMBER_ID)
            res.error_message = f"Member {req.member_id} is not a member of group {self.group}."
        endpoints = res.partitions_by_user_endpoint
        return (
            res.error_code,
            self.plain(res.error_message),
            res.member_id if res.error_code == Code.NONE else None,
            res.member_epoch,
            (res.heartbeat_interval_ms, *_recovery_lags(res), res.task_offset_interval_ms),
            [(s.status_code, self.plain(s.status_detail)) for s in res.status or ()],
            tasks,
            res.endpoint_information_epoch,
            None if endpoints is None else self._endpoints(endpoints),
            res.topology_description_required,
        )

    def _endpoints(self, told: list[st.EndpointToPartitions]) -> list[Any]:
        """In the order of a hash table, except that oneself comes last."""
        return sorted(
            (
                e.user_endpoint.port,
                sorted((self.plain(t.topic), sorted(t.partitions)) for t in e.active_partitions),
                sorted((self.plain(t.topic), sorted(t.partitions)) for t in e.standby_partitions),
            )
            for e in told
        )

    def steady(self, member: str) -> st.StreamsGroupHeartbeatRequest:  # type: ignore[override]
        req = st.StreamsGroupHeartbeatRequest(self.group, member, self.epochs.get(member, 3))
        req.instance_id = self.instances.get(member)
        req.endpoint_information_epoch = self.endpoint_epochs.get(member, 0)
        return req

    def owning(self, member: str, owned: Owned | None = None) -> st.StreamsGroupHeartbeatRequest:
        req = self.steady(member)
        lists = self.has.get(member, self.given.get(member, {})) if owned is None else owned
        req.active_tasks, req.standby_tasks, req.warmup_tasks = (_lists(lists.get(r, {})) for r in ROLES)
        return req

    def joining(self, member: str) -> st.StreamsGroupHeartbeatRequest:  # type: ignore[override]
        req = st.StreamsGroupHeartbeatRequest(self.group, member, JOIN, -1, rebalance_timeout_ms=TIMEOUT_MS)
        req.active_tasks, req.standby_tasks, req.warmup_tasks = [], [], []
        req.process_id = "p0"
        return req

    async def do_join(  # type: ignore[override]
        self,
        member: str,
        topo: Topo,
        process: str,
        instance: str | None = None,
        port: int = 0,
        tags: dict[str, str] | None = None,
        rack: str | None = None,
        version: int | None = None,
    ) -> object:
        if instance is not None and self.static.get(member) == instance:
            return "a static member that joins once more is let in, and at Kafka is not (docs/reference/differences.md)"
        self.instances[member] = instance
        req = self.joining(member)
        req.topology, req.process_id, req.instance_id, req.rack_id = (
            topo.topology_of(self.group),
            process,
            instance,
            rack,
        )
        req.user_endpoint = st.Endpoint("host", port) if port else None
        req.client_tags = [st.KeyValue(k, v) for k, v in (tags or {}).items()]
        return await self.beat(member, req, version)

    async def do_ack(self, member: str) -> object:
        """The member reports that it has exactly the tasks of its last assignment."""
        self.has.pop(member, None)
        return await self.beat(member, self.owning(member))

    async def do_silent(self, member: str) -> object:
        return await self.beat(member, self.steady(member))

    async def do_withhold(self, member: str) -> object:
        """The member keeps the tasks of its assignment before the last one."""
        before = self.given.get(member, {})
        req = self.owning(member)
        answer = await self.beat(member, req)
        self.has.setdefault(member, before)
        return answer

    async def do_details(
        self,
        member: str,
        rack: str | None = None,
        process: str | None = None,
        tags: dict[str, str] | None = None,
        port: int = 0,
        timeout: int = -1,
        endpoint_epoch: int | None = None,
    ) -> object:
        req = self.steady(member)
        req.rack_id, req.process_id, req.rebalance_timeout_ms = rack, process, timeout
        req.client_tags = None if tags is None else [st.KeyValue(k, v) for k, v in tags.items()]
        req.user_endpoint = st.Endpoint("host", port) if port else None
        if endpoint_epoch is not None:
            req.endpoint_information_epoch = endpoint_epoch
        return await self.beat(member, req)

    async def do_offsets(self, member: str, seed: int, twice: bool = False) -> object:
        """The member reports offsets of its own tasks and of others."""
        rng = random.Random(seed)
        req = self.owning(member)
        tasks = [(s, p) for s in ("0", "1", "2") for p in range(4)]
        told = [(s, p, rng.choice((0, 5, 1000, 2**40))) for s, p in rng.sample(tasks, 4)]
        req.task_offsets = [st.TaskOffset(*t) for t in told]
        if rng.random() < 0.5:
            req.task_end_offsets = [st.TaskOffset(s, p, offset + 7) for s, p, offset in told]
        if twice:
            req.task_offsets.append(req.task_offsets[0])
        return await self.beat(member, req)

    async def do_epoch(self, member: str, by: int, owns: bool = True) -> object:
        req = self.owning(member) if owns else self.steady(member)
        req.member_epoch = max(1, req.member_epoch + by)
        return await self.beat(member, req)

    async def do_claims(self, member: str, owned: str) -> object:
        tasks = {"nothing": {}, "strange": {"x": [0]}, "beyond": {"0": [0, 77]}, "all": {"0": [0, 1, 2]}}[owned]
        return await self.beat(member, self.owning(member, {"active": tasks}))

    async def do_leave(self, member: str, epoch: int, shutdown: bool = False) -> object:
        req = st.StreamsGroupHeartbeatRequest(self.group, member, epoch, instance_id=self.instances.get(member))
        # docs/reference/differences.md: at Kafka anybody can say so of a group, also one that is no member and hears
        # that
        req.shutdown_application = shutdown and member in self.static
        return await self.beat(member, req)

    async def do_shutdown(self, member: str) -> object:
        req = self.steady(member)
        req.shutdown_application = True
        return await self.beat(member, req)

    async def do_instance(self, member: str, instance: str) -> object:
        req = self.steady(member)
        req.instance_id = instance
        return await self.beat(member, req)

    async def do_bad(self, member: str, how: str, topo: Topo) -> object:  # type: ignore[override]
        req = self.joining("nobody")
        req.topology = topo.topology_of(self.group)
        if how == "no timeout":
            req.rebalance_timeout_ms = -1
        elif how == "owns at join":
            req.standby_tasks = [st.TaskIds("0", [0])]
        elif how == "no lists at join":
            req.active_tasks = None
        elif how == "no topology":
            req.topology = None
        elif how == "epoch -3":
            req.member_epoch = -3
        elif how == "no member id":
            req.member_id = ""
        elif how == "no group":
            req.group_id = " "
        elif how == "blank rack":
            req.rack_id = " "
        elif how == "blank instance":
            req.instance_id = ""
        elif how == "leave without instance":
            req.member_epoch = LEAVE_FOR_A_WHILE
        elif how == "one list":
            req = self.steady(member)
            req.active_tasks = []
        else:
            known = self.owning(member)
            known.topology = topo.topology_of(self.group)
            req = known
        return await self.beat("nobody", req)

    # ---- offsets --------------------------------------------------------------------------------------------
    async def do_commit(self, member: str, by: int | None, version: int, which: str) -> object:  # type: ignore[override]
        places = [("diff-a", 0), ("diff-a", 1), ("diff-b", 0), ("diff-b", 2)]
        if which == "own":
            places = places[:1]
        topics = {t: [oc.OffsetCommitRequestPartition(p, 7) for x, p in places if x == t] for t, _ in places}
        told = [oc.OffsetCommitRequestTopic(name=t, partitions=ps) for t, ps in topics.items()]
        if by is None:
            req = oc.OffsetCommitRequest(self.group, -1, "", None, topics=told)
        else:
            epoch = self.epochs.get(member, 3) + by
            req = oc.OffsetCommitRequest(self.group, epoch, member, self.instances.get(member), topics=told)
        res = await self.conn.request(oc, "OffsetCommit", req, high=version)
        return [(t.name, p.partition_index, commit_code(p.error_code)) for t in res.topics for p in t.partitions]

    async def do_fetch(self, member: str, by: int) -> object:
        epoch = self.epochs.get(member, 3) + by
        topic = of.OffsetFetchRequestTopics(name="diff-a", partition_indexes=[0, 1])
        group = of.OffsetFetchRequestGroup(self.group, member, epoch, [topic])
        res = await self.conn.request(of, "OffsetFetch", of.OffsetFetchRequest(groups=[group]), high=9)
        return [
            (g.error_code, [(p.committed_offset, p.error_code) for t in g.topics for p in t.partitions])
            for g in res.groups
        ]

    # ---- settings -------------------------------------------------------------------------------------------
    async def do_alter(self, member: str, **values: str) -> object:
        answer = await super().do_alter(member, **values)
        assert isinstance(answer, tuple)
        if answer[0] == Code.NONE:  # what is altered later is known later
            probe, interval = self.new_probe(), 6_000 + self.probes
            config = {"streams.heartbeat.interval.ms": str(interval)}
            assert (await self.altered(probe, config))[0] == Code.NONE

            async def interval_reached() -> bool:
                return (await self.probe(probe, ["diff-a"])).heartbeat_interval_ms == interval

            await until(interval_reached, AT_MOST_S)
        return answer

    # ---- differences on purpose (docs/reference/differences.md) ------------------------------------------------------
    def agrees(self, s: Step, ours: object, theirs: object) -> bool:
        """Called on Kafka's side. Whether these answers differ on purpose, so that the script goes on."""
        if s.verb == "commit" and s.options["version"] < NEW_CODES_SINCE:
            return commit_to_only_offsets(ours, theirs)
        if not isinstance(ours, tuple) or not isinstance(theirs, tuple):
            return False
        if s.verb == "list":
            return lists_with_due_target(ours, theirs)
        if s.verb == "describe":  # a due target is computed by a timer, at Kafka by the next heartbeat
            members = all(
                _but(ours[6][m], TARGET) == _but(theirs[6][m], TARGET) for m in ours[6].keys() & theirs[6].keys()
            )
            if ours[:1] == theirs[:1] == (Code.GROUP_ID_NOT_FOUND,):
                return only_offsets(ours, theirs)
            if ours[:TOPOLOGY] == theirs[:TOPOLOGY]:
                return self._of_now(ours[TOPOLOGY], theirs[TOPOLOGY])
            head = ours[:2] + ours[3:4] == theirs[:2] + theirs[3:4] and ours[6].keys() == theirs[6].keys()
            return head and members and ours[4] > theirs[4] and theirs[2] in ("Assigning", "NotReady")
        if not len(ours) == len(theirs) == HEARTBEAT_FIELDS:
            return False
        if s.verb == "leave":
            return only_offsets(ours, theirs)
        if _created_later(ours[STATUSES]) == _created_later(theirs[STATUSES]):
            ours = (*ours[:STATUSES], theirs[STATUSES], *ours[STATUSES + 1 :])
        if ours == theirs:
            return True
        # an answer that may be lost is told once more
        again = ours[TASKS] is not None and theirs[TASKS] is None and ours[TASKS] == self.given.get(s.member)
        return again and _but(ours, TASKS) == _but(theirs, TASKS)

    def _of_now(self, ours: Any, theirs: Any) -> bool:
        """The numbers of partitions are those of now, at Kafka those of the last heartbeat, or 0."""
        if ours is None or theirs is None:
            return False
        counts = zip(_counts(ours), _counts(theirs), strict=True)
        known = self.own_topics or all(b in (a, 0) for a, b in counts)
        return known and _uncounted(ours) == _uncounted(theirs)

    def ends(self, ours: object, theirs: object) -> str:
        """Returns why the script ends here though both are right; an empty string if it goes on."""
        if isinstance(theirs, tuple) and theirs[0] == UNKNOWN_SERVER_ERROR and self.served:
            unready = isinstance(ours, tuple) and any(code in NOT_READY for code, _ in ours[STATUSES])
            return "endpoints of a topology that is not ready" if unready else ""
        if isinstance(ours, tuple) and isinstance(theirs, tuple) and len(ours) == len(theirs) == HEARTBEAT_FIELDS:
            if _comes_back(ours, theirs):
                return "a member comes back before the next target"
            if len(self.epochs) == 1 and _made_of_offsets(ours, theirs):
                return "a group that had only offsets"
            if self.moved and _withheld(ours, theirs):
                return "a task that another member of the process has still"
        return "a refused member takes the tasks" if self.taken else ""

    # ---- looking --------------------------------------------------------------------------------------------
    async def described(self) -> sd.DescribedGroup:  # type: ignore[override]
        req = sd.StreamsGroupDescribeRequest(group_ids=[self.group])
        res: sd.StreamsGroupDescribeResponse = await self.conn.request(sd, "StreamsGroupDescribe", req)
        return res.groups[0]

    async def do_describe(self, member: str) -> object:
        g = await self.described()
        head = (g.error_code, self.plain(g.error_message), g.group_state, g.group_epoch, g.assignment_epoch)
        return (*head, g.assignor_name, {m.member_id: _member(m) for m in g.members}, self._topology(g.topology))

    def _topology(self, t: sd.Topology | None) -> object:
        if t is None or t.subtopologies is None:
            return None if t is None else (t.epoch, None)

        def topics(infos: list[sd.TopicInfo]) -> list[object]:
            return [
                (self.plain(i.name), i.partitions, i.replication_factor, [(c.key, c.value) for c in i.topic_configs])
                for i in infos
            ]

        return t.epoch, [
            (
                s.subtopology_id,
                s.source_topics,
                [self.plain(n) for n in s.repartition_sink_topics],
                topics(s.repartition_source_topics),
                topics(s.state_changelog_topics),
            )
            for s in t.subtopologies
        ]

    async def do_list(self, member: str, states: list[str]) -> object:
        return await self.listed(states, ["streams"])


NEW_CODES_SINCE = 9
"""Version of OffsetCommit that knows the errors of groups with epochs."""


def _but(answer: Answer, field: int) -> Answer:
    """Returns the answer without this field."""
    return answer[:field] + answer[field + 1 :]


def _comes_back(ours: Answer, theirs: Answer) -> bool:
    """docs/reference/differences.md: under the same member id, and Kafka gives it the tasks that it had."""
    waits = ours[STATUSES] == theirs[STATUSES] and any(code == ASSIGNMENT_DELAYED for code, _ in ours[STATUSES])
    return bool(
        waits and ours[TASKS] and theirs[TASKS] and not any(ours[TASKS].values()) and any(theirs[TASKS].values())
    )


def _made_of_offsets(ours: Answer, theirs: Answer) -> bool:
    """docs/reference/differences.md: of a classic group that a commit has made, Kafka makes a streams group in another
    endpoint epoch than it tells."""
    epochs = ours[ENDPOINT_EPOCH], theirs[ENDPOINT_EPOCH]
    return epochs == (0, 1) and _but(ours, ENDPOINT_EPOCH) == _but(theirs, ENDPOINT_EPOCH)


def _withheld(ours: Answer, theirs: Answer) -> bool:
    """docs/reference/differences.md: Kafka forgets that a member has a standby task when another one of its process
    gives that up, which has come there with it."""
    less, more = ours[TASKS], theirs[TASKS]
    same = _but(ours, TASKS) == _but(theirs, TASKS)
    return bool(same and less and more) and all(
        set(partitions) <= set(more[r].get(s, ())) for r in ROLES for s, partitions in less[r].items()
    )


def only_offsets(ours: tuple[Any, ...], theirs: tuple[Any, ...]) -> bool:
    """docs/reference/differences.md: to the broker there is a classic group where only offsets are."""
    texts = ours[1], theirs[1]
    same = _but(ours, 1) == _but(theirs, 1)
    return same and texts == ("Group G not found.", "Group G is not a streams group.")


def commit_to_only_offsets(ours: object, theirs: object) -> bool:
    """docs/reference/differences.md: the broker has a classic group there, and the sidecar none."""
    if not isinstance(ours, list) or not isinstance(theirs, list):
        return False
    codes = (Code.ILLEGAL_GENERATION, Code.UNKNOWN_MEMBER_ID)
    return [place[:2] for place in ours] == [place[:2] for place in theirs] and all(
        (a[2], b[2]) == codes for a, b in zip(ours, theirs, strict=True)
    )


def lists_with_due_target(ours: Any, theirs: Any) -> bool:
    """A due target is computed by a timer here, so the group's state may be a later one than Kafka's, and a filter by
    state may find the group at one of the two only."""
    (our_code, mine), (their_code, at_kafka) = ours, theirs
    if our_code != their_code or len(mine) > 1 or len(at_kafka) > 1:
        return False
    if mine and at_kafka and (mine[0][0], mine[0][2]) != (at_kafka[0][0], at_kafka[0][2]):
        return False
    due = not at_kafka or at_kafka[0][1] in ("Assigning", "NotReady")
    return due and (not mine or mine[0][1] in ("Reconciling", "Stable", "NotReady"))


def _recovery_lags(res: st.StreamsGroupHeartbeatResponse) -> tuple[int, int]:
    return res.acceptable_recovery_lag, res.acceptable_recovery_lag_legacy


def _created_later(statuses: list[tuple[int, str]]) -> list[tuple[int, str]]:
    """Without the topics that could not be created: whether the answer knows it already is chance."""
    return [(code, text.partition("; Creation failed")[0]) for code, text in statuses]


def _counts(topology: Any) -> list[int]:
    return [t[1] for s in topology[1] for topics in s[3:] for t in topics]


def _uncounted(topology: Any) -> object:
    epoch, subs = topology
    return epoch, [(*s[:3], *([(t[0], *t[2:]) for t in topics] for topics in s[3:])) for s in subs]


def _member(m: sd.Member) -> tuple[object, ...]:
    told = tuple(
        {r: by_subtopology(getattr(a, f"{r}_tasks")) for r in ROLES} for a in (m.assignment, m.target_assignment)
    )
    return (
        m.instance_id,
        m.rack_id,
        m.member_epoch,
        m.client_id,
        m.client_host,
        m.topology_epoch,
        m.process_id,
        None if m.user_endpoint is None else (m.user_endpoint.host, m.user_endpoint.port),
        told[0],
        told[1],
        sorted((t.key, t.value) for t in m.client_tags),
        m.is_classic,
        (m.task_offsets, m.task_end_offsets),
    )


def by_subtopology(lists: Any) -> dict[str, list[int]]:
    return {t.subtopology_id: sorted(t.partitions) for t in sorted(lists or (), key=lambda t: t.subtopology_id)}


def _lists(tasks: Mapping[str, list[int]]) -> list[st.TaskIds]:
    return [st.TaskIds(s, list(ps)) for s, ps in tasks.items()]
