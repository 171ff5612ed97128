"""One partition of `__group_state`: its groups, their timers, and the two ways in: events (`handle`) and records
(`replay`).

It dispatches events, deletes groups on request, and names no kind of group. A handler returns nothing: it writes
records and answers tokens through its turn. The records change the state through `replay`, live and on a rebuild alike;
owner.py appends them and deferred_replies.py holds the answers back until they are committed.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from sidecar.core.runtime.effects import Effects, Grant
from sidecar.core.runtime.events import Answer, DeleteGroup, DeletionCheck, DeletionCheckReply, Event, Listed
from sidecar.core.runtime.member_limits import GROUP_BYTES
from sidecar.core.runtime.offset_checks import (
    CommitCheck,
    FetchCheck,
    check_commit_without_group,
    check_fetch_without_group,
)
from sidecar.core.runtime.quarantine import refuse_joins
from sidecar.core.runtime.records import Record, Tombstone
from sidecar.core.runtime.registry import NO_GROUP, Group, GroupKind, Handler, Registry
from sidecar.core.runtime.timers import Timers, TimersBudget
from sidecar.core.runtime.topic_lookup import TopicsSeen
from sidecar.core.runtime.turn import Now, Ports, Soft, Turn
from sidecar.core.vocabulary.errors import Code, CoordinatorError, InvariantError
from sidecar.core.vocabulary.topics import TopicImage

TOO_LARGE = "The request holds more than the {} bytes that a record of the group's state may have."
"""Error text. Kafka's own answer where its log refuses a record for its size is UNKNOWN_SERVER_ERROR, too
(docs/reference/behaviour.md, 6.10)."""


class Shard:
    """Groups whose id hashes to one partition."""

    def __init__(
        self,
        registry: Registry,
        ports: Ports,
        image: TopicImage | None = None,
        former_leases_end_ms: int = 0,
        closed_until_ms: int = 0,
        waits_ms: Callable[[str, int], int] = lambda group_id, now_ms: 0,
    ) -> None:
        """`former_leases_end_ms`: until then a former owner may still answer members (Turn.arm_removal);
        `closed_until_ms`: until then joins are refused (quarantine.py); `waits_ms(group_id, now_ms)`: how long answers
        to members of this group have waited for its records."""
        self._waits_ms = waits_ms
        self._closed_until_ms = closed_until_ms
        self.registry = registry
        self.groups: dict[str, Group] = {}
        self.soft: dict[str, Soft] = {}
        self.held_bytes = 0
        """Bytes of all groups."""
        self.timers = Timers()
        self._handlers: dict[type[Event], dict[str, Handler]] = {
            **{event: dict(by_kind) for event, by_kind in registry.events.items()},
            DeletionCheck: {NO_GROUP: _check_deletion},
            DeleteGroup: {NO_GROUP: partial(_delete, registry)},
        }
        for event, handler in ((CommitCheck, check_commit_without_group), (FetchCheck, check_fetch_without_group)):
            self._handlers.setdefault(event, {})[NO_GROUP] = handler
        self._turn = Turn(
            ports,
            self.timers,
            self.groups,
            self.replay,
            self.changed,
            self.hold,
            self.soft.__getitem__,
            image or TopicImage(),
            Now(0, 0),
            Effects(),
            former_leases_end_ms=former_leases_end_ms,
        )

    def end(self) -> None:
        """Ends the shard, because the partition is lost. Shard and turn then hold each other no more, so that the
        memory of the groups goes back with the last reference: the collector would find them after days
        (process/shared.py)."""
        proxy, turn = weakref.proxy(self), self._turn
        turn.replay, turn.changed = partial(Shard.replay, proxy), partial(Shard.changed, proxy)
        turn.hold = partial(Shard.hold, proxy)

    # ---- in ---------------------------------------------------------------------------------------------
    def handle(self, event: Event, token: int, now: Now) -> Effects:
        """Handles one request, or the end of background work. A handler that refuses must do so before its first
        write."""
        turn = self._turn
        fx = turn.begin(now)
        turn.looked = type(event) is TopicsSeen
        if isinstance(event, TopicsSeen):
            token, event = event.token, event.request
        try:
            if event.largest_bytes() > turn.ports.record_bytes:
                raise CoordinatorError(Code.UNKNOWN_SERVER_ERROR, TOO_LARGE.format(turn.ports.record_bytes))
            by_kind = self._handlers[type(event)]
            group = self.groups.get(event.group_id)
            if now.mono_ms < self._closed_until_ms:
                refuse_joins(event)
            handler = by_kind[NO_GROUP] if group is None else by_kind.get(group.kind) or by_kind[NO_GROUP]
            handler(turn, event, token)
        except CoordinatorError as exc:
            if fx.records:
                raise InvariantError(f"{type(event).__name__} was refused after it wrote: {exc.message}") from exc
            if exc.limit:
                fx.count("members_refused", exc.limit)
            turn.reply(token, event.refused(exc.code, exc.message))
        return fx

    def wake(self, now: Now, budget: TimersBudget | None = None) -> Effects:
        """Runs the timers that are due, at most as many as `budget` has left. A silent member stays while no member of
        its group can be answered, and gets the lost time back."""
        turn = self._turn
        fx = turn.begin(now)
        for key, tag in self.timers.expired(now.mono_ms, budget):
            group = self.groups.get(key[1])
            if key[0] in self.registry.removing and (waited_ms := self._waits_ms(key[1], now.mono_ms)):
                self.timers.set(key, now.mono_ms + waited_ms, tag)
            elif group is not None and (handler := self._kind_of(group).timers.get(key[0])) is not None:
                # Without a handler it is a timer of an earlier group with this id, of another kind.
                handler(turn, group, key, tag)
        return fx

    def set_former_leases_end(self, until_ms: int, now: Now) -> None:
        """Takes in that the leases of former owners end at `until_ms`, and brings removal timers forward if that is
        earlier than known."""
        if until_ms < self._turn.former_leases_end_ms:
            self._turn.former_leases_end_ms = until_ms
            self.timers.release(until_ms, now.mono_ms)

    @property
    def former_leases_end_ms(self) -> int:
        return self._turn.former_leases_end_ms

    def touch(self, group_id: str, member_id: str, now: Now) -> None:
        """Moves the session of a member whose heartbeat the front answered under a grant."""
        group = self.groups.get(group_id)
        if group is not None:
            self._turn.now = now
            self._kind_of(group).touched(self._turn, group, member_id)

    def topics_changed(self, image: TopicImage, changed: frozenset[str], now: Now) -> Effects:
        turn = self._turn
        fx = turn.begin(now)
        turn.image = image
        for group in self.groups.values():
            self._kind_of(group).topics_changed(turn, group, changed)
        return fx

    def config_changed(self, now: Now, group_id: str = "") -> Effects:
        """Voids the grants of this group, or all for "": their answers carry settings that may have changed."""
        fx = self._turn.begin(now)
        for each in (group_id,) if group_id else self.groups:
            self.changed(each)
        return fx

    def granted(self, grant: Grant) -> bool:
        """Records that a front gets this grant now. Returns False if the group has changed since it was made."""
        soft = self.soft.get(grant.group_id)
        if soft is None or soft.revision != grant.revision:
            return False
        soft.granted = True
        return True

    # ---- queries ------------------------------------------------------------------------------------------
    @property
    def image(self) -> TopicImage:
        return self._turn.image

    def listed(self) -> Sequence[Listed]:
        return [Listed(g.group_id, g.protocol_type, g.state_name(), g.kind) for g in self.groups.values()]

    def has_committers(self, group_id: str) -> bool:
        """Whether the group has members that commit offsets."""
        group = self.groups.get(group_id)
        return group is not None and group.member_count() > 0 and self._kind_of(group).commits

    def in_barrier(self) -> bool:
        """Whether members of any group wait for one another; another owner would have to start that anew."""
        return any(self._kind_of(group).in_barrier(group) for group in self.groups.values())

    def _kind_of(self, group: Group) -> GroupKind:
        return self.registry.kinds[group.kind]

    # ---- state ----------------------------------------------------------------------------------------------
    def replay(self, record: Record) -> None:
        """Applies a record: the only place where hard state changes, and the only one that puts a new group into the
        shard."""
        row = self.registry.records.get(record.kind)
        if row is None:
            raise InvariantError(f"group {record.group_id}: no kind of record is called {record.kind}")
        group_id = record.group_id
        self.changed(group_id)
        group = self.groups.get(group_id)
        if isinstance(record, Tombstone):
            if row.record.root:
                self.unload(group_id)
                return
            if group is None:
                return
        elif group is None:
            group = row.kind.make(group_id)
            self.install(group)
        if group.kind != row.kind.name:
            raise InvariantError(f"group {group_id} is a {group.kind} group and has a record {record.kind}")
        before = group.held_bytes
        group.replay(record)
        self.held_bytes += group.held_bytes - before

    def changed(self, group_id: str) -> None:
        soft = self.soft.get(group_id)
        if soft is not None:
            soft.revision += 1
            if soft.granted:
                soft.granted = False
                self._turn.fx.voided.append(group_id)

    def hold(self, group_id: str, more: int) -> None:
        self.soft[group_id].held_bytes += more
        self.held_bytes += more

    # ---- loading, by group_loader.py -------------------------------------------------------------------------------
    def install(self, group: Group) -> None:
        self.groups[group.group_id] = group
        self.held_bytes += GROUP_BYTES + group.held_bytes
        self.soft[group.group_id] = self._kind_of(group).soft()

    def arm(self, group: Group, members: Iterable[str], now: Now) -> None:
        """Arms the timers of these members of a rebuilt group. Their sessions start anew, with full time."""
        self._turn.begin(now)
        arm = self._kind_of(group).member_loaded
        for member_id in members:
            arm(self._turn, group, member_id)

    def loaded(self, group: Group, now: Now) -> None:
        """Arms the timers of the rebuilt group itself."""
        self._turn.begin(now)
        self._kind_of(group).loaded(self._turn, group)

    def unload(self, group_id: str) -> None:
        """Removes the group from memory: it is deleted, or could not be built."""
        gone = self.groups.pop(group_id, None)
        if gone is not None:
            self.held_bytes -= GROUP_BYTES + gone.held_bytes + self.soft.pop(group_id).held_bytes


def _check_deletion(turn: Turn, event: DeletionCheck, token: int) -> None:
    group = turn.groups.get(event.group_id)
    turn.reply(token, DeletionCheckReply() if group is None else group.deletion_check())


def _delete(registry: Registry, turn: Turn, event: DeleteGroup, token: int) -> None:
    group = turn.groups.get(event.group_id)
    if group is None:
        raise CoordinatorError(Code.GROUP_ID_NOT_FOUND, f"Group {event.group_id} not found.")
    if group.deletion_check().members:
        raise CoordinatorError(Code.NON_EMPTY_GROUP, f"Group {event.group_id} is not empty.")
    registry.kinds[group.kind].answer_waiting(turn, group)
    for tombstone in group.tombstones(event.why):
        turn.write(tombstone)
    turn.fx.log("group deleted", group_id=event.group_id, why=event.why)
    turn.reply(token, Answer())
