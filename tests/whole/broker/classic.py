"""Members of classic groups: join, sync, heartbeat, leave. Source: the methods of GroupMetadataManager that begin with
classicGroup; the branches stand in the same order."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.whole.broker.codes import Err, Refused
from tests.whole.broker.group import Group, Joined, Member, Protocols, State, StoredGroup, Synced
from tests.whole.broker.replica import Replica
from tests.whole.broker.shard import Shard

if TYPE_CHECKING:
    from tests.whole.broker.node import Node

NEW_MEMBER_JOIN_MS = 300_000
"""group.new.member.join.timeout.ms, which is internal."""


class JoinAsked:
    """A JoinGroup request, read for the coordinator."""

    __slots__ = (
        "client_host", "client_id", "instance_id", "knows_ids", "member_id", "protocol_type", "protocols",
        "rebalance_ms", "session_ms", "skips",
    )  # fmt: skip

    def __init__(
        self,
        member_id: str,
        instance_id: str | None,
        protocol_type: str,
        protocols: Protocols,
        timeouts_ms: tuple[int, int],
        client: tuple[str, str],
        version: int,
    ) -> None:
        self.member_id, self.instance_id = member_id, instance_id
        self.protocol_type, self.protocols = protocol_type, protocols
        self.session_ms, self.rebalance_ms = timeouts_ms
        self.client_id, self.client_host = client
        self.knows_ids = version >= 4
        self.skips = version >= 9


class ClassicShard(Shard):
    def __init__(self, node: Node, replica: Replica) -> None:
        super().__init__(node, replica)
        self.groups: dict[str, Group] = {}

    def _now_ms(self) -> int:
        return self.node.host.wall_ms()

    def group_or_new(self, group_id: str) -> Group:
        if group_id not in self.groups:
            self.groups[group_id] = Group(group_id, self._now_ms())
        return self.groups[group_id]

    def _new_id(self, prefix: str) -> str:
        raw = self.node.cluster.new_id().hex()
        return f"{prefix}-{raw[:8]}-{raw[8:12]}-{raw[12:16]}-{raw[16:20]}-{raw[20:]}"

    # ---- join -----------------------------------------------------------------------------------------------
    def join(self, group_id: str, asked: JoinAsked, answer: Callable[[Joined], None]) -> None:
        unknown = not asked.member_id
        is_new = group_id not in self.groups
        if is_new and not unknown:
            answer(Joined(Err.UNKNOWN_MEMBER_ID, asked.member_id))
            return
        group = self.group_or_new(group_id)
        if not self._accepts(group, asked.member_id):
            group.remove(asked.member_id)
            answer(Joined(Err.GROUP_MAX_SIZE_REACHED))
        elif not group.supports(asked.protocol_type, [name for name, _ in asked.protocols]):
            answer(Joined(Err.INCONSISTENT_GROUP_PROTOCOL, asked.member_id))
        elif unknown:
            self._join_new(group, asked, answer)
        else:
            self._join_existing(group, asked, answer)
        if is_new:
            self.write(
                [(("group", group_id), StoredGroup("", group.generation, None, None, group.state_ms or -1))], _ignore
            )

    def _accepts(self, group: Group, member_id: str) -> bool:
        most = self.node.settings.number("group.max.size")
        if group.state is State.EMPTY:
            return True
        if group.state is State.PREPARING:
            m = group.members.get(member_id)
            return (m is not None and m.joining is not None) or group.waiting_to_join < most
        return member_id in group.members or len(group.members) < most

    def _join_new(self, group: Group, asked: JoinAsked, answer: Callable[[Joined], None]) -> None:
        if asked.instance_id is not None:
            new_id = self._new_id(asked.instance_id)
            existing = group.static.get(asked.instance_id)
            if existing is not None:
                self._update_static(group, asked, existing, new_id, answer)
            else:
                self._add_member(group, asked, new_id, answer)
            return
        new_id = self._new_id(asked.client_id)
        if not asked.knows_ids:
            self._add_member(group, asked, new_id, answer)
            return
        group.pending[new_id] = None
        self.timer(("beat", group.group_id, new_id), asked.session_ms, lambda: self._expired(group.group_id, new_id))
        answer(Joined(Err.MEMBER_ID_REQUIRED, new_id))

    def _join_existing(self, group: Group, asked: JoinAsked, answer: Callable[[Joined], None]) -> None:
        member_id = asked.member_id
        if member_id in group.pending:
            if asked.instance_id is not None:
                raise Refused(Err.UNKNOWN_SERVER_ERROR)
            self._add_member(group, asked, member_id, answer)
            return
        try:
            group.validate(member_id, asked.instance_id)
        except Refused as exc:
            answer(Joined(exc.code, member_id))
            return
        m = group.members[member_id]
        same = m.protocols == asked.protocols
        if group.state is State.EMPTY:
            answer(Joined(Err.UNKNOWN_MEMBER_ID, member_id))
        elif (group.state is State.COMPLETING and same) or (
            group.state is State.STABLE and same and group.leader != member_id
        ):
            answer(group.joined(member_id))
        else:
            self._update(m, asked, answer)
            self._prepare_or_complete(group)

    @staticmethod
    def _update(m: Member, asked: JoinAsked, answer: Callable[[Joined], None]) -> None:
        m.protocols, m.rebalance_ms, m.session_ms = asked.protocols, asked.rebalance_ms, asked.session_ms
        m.joining = answer

    def _add_member(self, group: Group, asked: JoinAsked, member_id: str, answer: Callable[[Joined], None]) -> None:
        m = Member(
            member_id, asked.instance_id, asked.client_id, asked.client_host, asked.rebalance_ms, asked.session_ms,
            asked.protocols,
        )  # fmt: skip
        m.is_new = True
        m.joining = answer
        if group.state is State.PREPARING and group.previous is State.EMPTY:
            group.new_member_added = True
        group.add(m, asked.protocol_type)
        self._beat_again(group, m, NEW_MEMBER_JOIN_MS)
        self._prepare_or_complete(group)

    def _update_static(
        self, group: Group, asked: JoinAsked, old_id: str, new_id: str, answer: Callable[[Joined], None]
    ) -> None:
        assert asked.instance_id is not None
        leader = group.leader
        m = group.replace_static(asked.instance_id, old_id, new_id)
        self._beat_again(group, m)
        was = m.protocols, m.rebalance_ms, m.session_ms
        self._update(m, asked, answer)
        if group.state is State.COMPLETING:
            self._prepare(group)
            return
        if group.state is not State.STABLE:
            self._complete_if_all_joined(group)
            return
        if group.select() != group.protocol:
            self._prepare_or_complete(group)
            return

        def stored(code: Err) -> None:
            if code != Err.NONE:
                m.protocols, m.rebalance_ms, m.session_ms = was
                m.joining = None
                if group.members.get(new_id) is m:
                    self._beat_again(group, group.replace_static(asked.instance_id or "", new_id, old_id))
                said = group.protocol_type, group.protocol
                answer(Joined(code, "", group.generation, said[0], said[1], leader))
            elif asked.skips:
                is_leader = group.leader == new_id
                self._answer_join(m, group.joined(new_id, skip=is_leader))
            else:
                self._answer_join(m, group.joined(new_id, leader=leader, members=()))

        assignment = {i.member_id: i.assignment for i in group.members.values()}
        self.write([(("group", group.group_id), group.stored(assignment))], stored)

    @staticmethod
    def _answer_join(m: Member, said: Joined) -> None:
        answer, m.joining = m.joining, None
        if answer is not None:
            answer(said)

    # ---- rebalances -----------------------------------------------------------------------------------------
    def _prepare_or_complete(self, group: Group) -> None:
        if group.state is State.PREPARING:
            self._complete_if_all_joined(group)
        else:
            self._prepare(group)

    def _prepare(self, group: Group) -> None:
        if group.state is State.COMPLETING:
            for m in group.members.values():
                m.assignment = b""
            self._tell_assignments(group, Err.REBALANCE_IN_PROGRESS)
        group.pending_sync.clear()
        self.cancel(("sync", group.group_id))
        first = group.state is State.EMPTY
        if first:
            delay_ms = self.node.settings.number("group.initial.rebalance.delay.ms")
            left_ms = max(group.rebalance_ms - delay_ms, 0)
            self.timer(("join", group.group_id), delay_ms, lambda: self._initial(group.group_id, delay_ms, left_ms))
        group.to(State.PREPARING, self._now_ms())
        if not first:
            self._complete_or_wait(group)

    def _initial(self, group_id: str, delay_ms: int, left_ms: int) -> None:
        group = self.groups.get(group_id)
        if group is None:
            return
        if group.new_member_added and left_ms:
            group.new_member_added = False
            next_ms = min(self.node.settings.number("group.initial.rebalance.delay.ms"), left_ms)
            after_ms = max(left_ms - delay_ms, 0)
            self.timer(("join", group_id), next_ms, lambda: self._initial(group_id, next_ms, after_ms))
        else:
            self._complete(group)

    def _complete_or_wait(self, group: Group) -> None:
        if group.all_joined:
            self._complete(group)
        else:
            self.timer(("join", group.group_id), group.rebalance_ms, lambda: self._complete_by_id(group.group_id))

    def _complete_by_id(self, group_id: str) -> None:
        if group_id in self.groups:
            self._complete(self.groups[group_id])

    def _complete_if_all_joined(self, group: Group) -> None:
        if group.state is State.PREPARING and group.previous is not State.EMPTY and group.all_joined:
            self._complete(group)

    def _complete(self, group: Group) -> None:
        self.cancel(("join", group.group_id))
        for m in [m for m in group.members.values() if m.joining is None and m.instance_id is None]:
            group.remove(m.member_id)
            self.cancel(("beat", group.group_id, m.member_id))
        if group.members and not self._elect_joined(group):
            self.timer(("join", group.group_id), group.rebalance_ms, lambda: self._complete_by_id(group.group_id))
            return
        group.next_generation(self._now_ms())
        if not group.members:
            self.write([(("group", group.group_id), group.stored({}))], _ignore)
            return
        for m in list(group.members.values()):
            self._beat_again(group, m)
            m.is_new = False
            group.pending_sync[m.member_id] = None
            self._answer_join(m, group.joined(m.member_id))
        generation = group.generation
        self.timer(("sync", group.group_id), group.rebalance_ms, lambda: self._sync_late(group.group_id, generation))

    @staticmethod
    def _elect_joined(group: Group) -> bool:
        """The leader must have joined (maybeElectNewJoinedLeader)."""
        leader = group.members.get(group.leader or "")
        if leader is not None and leader.joining is not None:
            return True
        chosen = next((m.member_id for m in group.members.values() if m.joining is not None), None)
        if chosen is not None:
            group.leader = chosen
        return chosen is not None

    def _sync_late(self, group_id: str, generation: int) -> None:
        group = self.groups.get(group_id)
        if group is None or group.generation != generation:
            return
        if group.state in (State.COMPLETING, State.STABLE) and group.pending_sync:
            for member_id in list(group.pending_sync):
                group.remove(member_id)
                self.cancel(("beat", group_id, member_id))
            self._prepare(group)

    # ---- sessions -------------------------------------------------------------------------------------------
    def _beat_again(self, group: Group, m: Member, ms: int | None = None) -> None:
        key = ("beat", group.group_id, m.member_id)
        self.timer(key, m.session_ms if ms is None else ms, lambda: self._expired(group.group_id, m.member_id))

    def member_lives(self, group: Group, member_id: str) -> None:
        m = group.members.get(member_id)
        if m is None:
            raise Refused(Err.UNKNOWN_SERVER_ERROR)
        self._beat_again(group, m)

    def _expired(self, group_id: str, member_id: str) -> None:
        group = self.groups.get(group_id)
        if group is None:
            return
        if member_id in group.pending:
            group.remove(member_id)
            if group.state is State.PREPARING and group.all_joined:
                self._complete(group)
            return
        m = group.members.get(member_id)
        if m is None or (not m.is_new and (m.joining is not None or m.syncing is not None)):
            return
        self._answer_join(m, Joined(Err.UNKNOWN_MEMBER_ID))
        group.remove(member_id)
        if group.state in (State.STABLE, State.COMPLETING):
            self._prepare_or_complete(group)
        elif group.state is State.PREPARING and group.all_joined:
            self._complete(group)

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation: int) -> Err:
        group = self.groups.get(group_id)
        if group is None:
            raise Refused(Err.UNKNOWN_MEMBER_ID)
        group.validate(member_id, instance_id)
        if generation != group.generation:
            raise Refused(Err.ILLEGAL_GENERATION)
        if group.state is State.EMPTY:
            return Err.UNKNOWN_MEMBER_ID
        self.member_lives(group, member_id)
        return Err.REBALANCE_IN_PROGRESS if group.state is State.PREPARING else Err.NONE

    # ---- sync -----------------------------------------------------------------------------------------------
    def sync(
        self,
        group_id: str,
        member: tuple[str, str | None, int],
        protocol: tuple[str | None, str | None],
        assignments: dict[str, bytes],
        answer: Callable[[Synced], None],
    ) -> None:
        """`member`: id, instance id and generation; `protocol`: its type and name, if told."""
        group = self.groups.get(group_id)
        if group is None or group.state is State.EMPTY:
            answer(Synced(Err.UNKNOWN_MEMBER_ID))
            return
        member_id, instance_id, generation = member
        try:
            group.validate(member_id, instance_id)
        except Refused as exc:
            answer(Synced(exc.code))
            return
        ours = group.protocol_type, group.protocol
        if generation != group.generation:
            answer(Synced(Err.ILLEGAL_GENERATION))
        elif any(a is not None and b is not None and a != b for a, b in zip(protocol, ours, strict=True)):
            answer(Synced(Err.INCONSISTENT_GROUP_PROTOCOL))
        elif group.state is State.PREPARING:
            answer(Synced(Err.REBALANCE_IN_PROGRESS))
        elif group.state is State.STABLE:
            self._synced(group, member_id)
            answer(Synced(Err.NONE, *ours, group.members[member_id].assignment))
        else:
            group.members[member_id].syncing = answer
            self._synced(group, member_id)
            if group.leader == member_id:
                self._store_assignment(group, {m: assignments.get(m, b"") for m in group.members} | assignments)

    def _synced(self, group: Group, member_id: str) -> None:
        group.pending_sync.pop(member_id, None)
        if not group.pending_sync:
            self.cancel(("sync", group.group_id))

    def _store_assignment(self, group: Group, assignment: dict[str, bytes]) -> None:
        generation = group.generation

        def stored(code: Err) -> None:
            if group.state is not State.COMPLETING or group.generation != generation:
                return
            if code != Err.NONE:
                for m in group.members.values():
                    m.assignment = b""
                self._tell_assignments(group, code)
                self._prepare_or_complete(group)
                return
            for m in group.members.values():
                m.assignment = assignment.get(m.member_id, b"")
            self._tell_assignments(group, Err.NONE)
            group.to(State.STABLE, self._now_ms())

        self.write([(("group", group.group_id), group.stored(assignment))], stored)

    def _tell_assignments(self, group: Group, code: Err) -> None:
        protocol = (group.protocol_type, group.protocol) if code == Err.NONE else (None, None)
        for m in list(group.members.values()):
            answer, m.syncing = m.syncing, None
            if answer is not None:
                self._beat_again(group, m)
                answer(Synced(code, *protocol, m.assignment))

    # ---- leave ----------------------------------------------------------------------------------------------
    def leave(self, group_id: str, members: list[tuple[str, str | None]]) -> list[Err]:
        """One code for each. Raises Refused if there is no such group."""
        group = self.groups.get(group_id)
        if group is None:
            raise Refused(Err.UNKNOWN_MEMBER_ID)
        codes = [self._leave_one(group, member_id, instance_id) for member_id, instance_id in members]
        if Err.NONE in codes:
            if group.state in (State.STABLE, State.COMPLETING):
                self._prepare_or_complete(group)
            elif group.state is State.PREPARING:
                self._complete_if_all_joined(group)
        return codes

    def _leave_one(self, group: Group, member_id: str, instance_id: str | None) -> Err:
        if not member_id:
            if instance_id is None or instance_id not in group.static:
                return Err.UNKNOWN_MEMBER_ID
            self._remove(group, group.static[instance_id])
        elif member_id in group.pending:
            group.remove(member_id)
            self.cancel(("beat", group.group_id, member_id))
        else:
            try:
                group.validate(member_id, instance_id)
            except Refused as exc:
                return exc.code
            self._remove(group, member_id)
        return Err.NONE

    def _remove(self, group: Group, member_id: str) -> None:
        self.cancel(("beat", group.group_id, member_id))
        self._answer_join(group.members[member_id], Joined(Err.UNKNOWN_MEMBER_ID))
        group.remove(member_id)

    def resigned(self) -> None:
        """Another broker leads: whoever waits is told so."""
        for group in self.groups.values():
            for m in group.members.values():
                self._answer_join(m, Joined(Err.NOT_COORDINATOR, m.member_id))
                answer, m.syncing = m.syncing, None
                if answer is not None:
                    answer(Synced(Err.NOT_COORDINATOR))


def _ignore(code: Err) -> None:
    """Does nothing: no request waits for it."""
