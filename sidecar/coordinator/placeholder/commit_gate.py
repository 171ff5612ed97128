"""What must wait before it goes to the broker: commits and fetches for the placeholder of their group, and for commits
of others that are under way; deletions of offsets until the broker can read what is subscribed.

placeholders.py brings the placeholders about. Nothing waits longer than `wait_ms`, counted from its arrival.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from msgspec.structs import replace

from sidecar.coordinator.clock import now
from sidecar.coordinator.placeholder.broker_membership import Placeholder
from sidecar.coordinator.placeholder.inflight_commits import UnderWay
from sidecar.core.runtime.events import Answer
from sidecar.core.runtime.offset_checks import CheckReply, CommitCheck, FetchCheck, MemberIdentity
from sidecar.core.vocabulary.errors import TEXT, Code
from sidecar.link.messages import OpenOffsets

LOST_SIGHT_MS = 15_000
"""A commit that is still under way then is in doubt, whatever its front waits for."""
Waits = CommitCheck | FetchCheck | OpenOffsets


class Placed(Protocol):
    """The placeholders."""

    def get(self, group_id: str) -> Placeholder | None: ...

    def refused(self, group_id: str, sent_as: MemberIdentity | None) -> Placeholder:
        """The broker does not know the member in whose name a commit of this group went on; None: in its own."""

    def expose(self, group_id: str, topics: frozenset[str]) -> Placeholder:
        """The broker must be able to read this subscription for a while, or have no member in the group."""

    def renew(self, placeholder: Placeholder) -> None:
        """It needs another member id: what was sent in the name of the present one is to be refused."""

    def hurry(self, placeholder: Placeholder) -> None:
        """Something waits for it."""

    def unneeded(self, placeholder: Placeholder) -> None:
        """Nothing waits for it any more."""


def ready_for(placeholder: Placeholder, event: Waits) -> bool:
    """Whether nothing has to be waited for any more."""
    if placeholder.gone:
        return True
    if isinstance(event, FetchCheck):
        return placeholder.settled or not placeholder.wanted
    if not placeholder.wanted:
        return placeholder.there == ""
    if isinstance(event, OpenOffsets):
        return placeholder.final and placeholder.shown == placeholder.topics
    return placeholder.identity is not None


@dataclass(slots=True)
class _Parked:
    token: int
    event: Waits
    until_ms: int
    reply: CheckReply | None = None
    """Its placeholder is there; it only waits for commits that were let pass before."""
    behind: frozenset[int] = frozenset()


class CommitGate:
    """`again(token, event)`: ask the core anew; `answer(token, answer)`: this is the answer."""

    def __init__(
        self,
        placed: Placed,
        wait_ms: int,
        parked_max: int,
        leased: Callable[[int], bool],
        partition_of: Callable[[str], int],
        again: Callable[[int, CommitCheck | FetchCheck], None],
        answer: Callable[[int, Answer], None],
    ) -> None:
        self._placed = placed
        self._wait_ms = wait_ms
        self._parked_max = parked_max
        self._leased = leased
        self._partition_of = partition_of
        self._again = again
        self._answer = answer
        self._under_way = UnderWay()
        self._parked: dict[str, list[_Parked]] = {}
        """By group: never an empty list."""
        self._waiting = 0

    # ---- what fronts say ------------------------------------------------------------------------------------
    def checked(self, token: int, event: CommitCheck | FetchCheck, reply: CheckReply, front: int) -> CheckReply | None:
        """The core has no objection. Returns its answer with the placeholder in it, or None: it must wait for the
        placeholder, and then the core is asked again; or for commits of others, and then it is answered."""
        if isinstance(event, CommitCheck) and event.again:
            placeholder: Placeholder | None = self._placed.refused(event.group_id, event.sent_as)
            event = replace(event, again=False, sent_as=None)
        else:
            placeholder = self._placed.get(event.group_id)
        if placeholder is None:
            return reply
        if not ready_for(placeholder, event):
            self._park(placeholder, token, event)
            return None
        if not placeholder.wanted:
            return reply
        if isinstance(event, FetchCheck):
            behind = self._under_way.before_fetch(event.group_id, event.member_id)
        else:
            group_id, member_id, places, way = (
                event.group_id,
                event.member_id,
                event.partitions,
                (front, event.connection),
            )
            behind = self._under_way.before_commit(group_id, member_id, places, way)
            ticket = self._under_way.begin(group_id, member_id, places, way, now().mono_ms)
            reply = replace(reply, identity=placeholder.identity, ticket=ticket)
        if behind:
            self._park(placeholder, token, event, reply, behind)
            return None
        return reply

    def ended(self, ticket: int, sure: bool) -> None:
        """A commit is not under way any more. Not `sure`: only as far as its front can tell."""
        group_id = self._under_way.end(ticket) if sure else self._under_way.doubt(ticket)
        placeholder = self._placed.get(group_id) if group_id is not None else None
        if placeholder is not None:
            if not sure:
                self._placed.renew(placeholder)
            if placeholder.group_id in self._parked:
                self.wake(placeholder)

    def front_gone(self, front: int) -> None:
        for ticket in self._under_way.of_front(front):
            self.ended(ticket, sure=False)

    def open(self, token: int, event: OpenOffsets) -> None:
        """Offsets are to be deleted at the broker: it must see which topics are subscribed, or no member at all."""
        if not self._leased(self._partition_of(event.group_id)):
            self._answer(token, event.refused(Code.NOT_COORDINATOR, TEXT[Code.NOT_COORDINATOR]))
            return
        placeholder = self._placed.expose(event.group_id, event.subscribed)
        if ready_for(placeholder, event):
            self._answer(token, Answer())
        else:
            self._park(placeholder, token, event)

    # ---- what becomes of placeholders -------------------------------------------------------------------------
    def wake(self, placeholder: Placeholder) -> None:
        """Those of its group that need not wait any more go on."""
        waiting: list[_Parked] = []
        go_on: list[_Parked] = []
        for p in self._parked.pop(placeholder.group_id, ()):
            ready = (
                ready_for(placeholder, p.event)
                if p.reply is None
                else placeholder.gone or not self._under_way.still(p.behind)
            )
            (go_on if ready else waiting).append(p)
        self._waiting -= len(go_on)
        if waiting:
            self._parked[placeholder.group_id] = waiting
        else:
            self._placed.unneeded(placeholder)
        for p in go_on:
            if p.reply is not None:
                self._go_on(placeholder, p, p.reply)
            elif not isinstance(p.event, OpenOffsets):
                self._again(p.token, p.event)
            elif placeholder.gone:
                self._refuse(p, Code.NOT_COORDINATOR)
            else:
                self._answer(p.token, Answer())

    def forget(self, group_id: str) -> None:
        """What is under way of this group concerns nobody here any more."""
        self._under_way.forget(group_id)

    def renewed(self, group_id: str) -> None:
        """The broker refuses from now on what is in doubt."""
        self._under_way.cleared(group_id)

    @property
    def quiet(self) -> bool:
        """Nothing that was let pass is under way."""
        return not self._under_way.open

    # ---- waiting ----------------------------------------------------------------------------------------------
    @property
    def groups(self) -> int:
        """Those for which something waits."""
        return len(self._parked)

    def waits_for(self, group_id: str) -> bool:
        return group_id in self._parked

    def waited_for(self, ms: int) -> bool:
        """Whether a commit waits for so long already: for its placeholder, or for the broker's answer."""
        before_ms = now().mono_ms - ms
        asked_ms = (p.until_ms - self._wait_ms for parked in self._parked.values() for p in parked)
        return min(asked_ms, default=before_ms + 1) <= before_ms or any(self._under_way.since(before_ms))

    def _park(
        self,
        placeholder: Placeholder,
        token: int,
        event: Waits,
        reply: CheckReply | None = None,
        behind: frozenset[int] = frozenset(),
    ) -> None:
        if self._waiting >= self._parked_max:
            code = Code.COORDINATOR_NOT_AVAILABLE
            self._answer(token, event.refused(code, TEXT[code]))
            return
        self._waiting += 1
        since_ms = now().mono_ms if isinstance(event, OpenOffsets) else event.asked_ms
        parked = self._parked.setdefault(placeholder.group_id, [])
        parked.append(_Parked(token, event, since_ms + self._wait_ms, reply, behind))
        self._placed.hurry(placeholder)

    def _go_on(self, placeholder: Placeholder, p: _Parked, reply: CheckReply) -> None:
        """A request goes on, as what it waited for has ended; meanwhile the placeholder may have become another."""
        if placeholder.gone or not self._leased(placeholder.partition):
            self._refuse(p, Code.NOT_COORDINATOR)
        elif not reply.ticket:
            self._answer(p.token, reply)
        elif placeholder.identity is None:
            assert not isinstance(p.event, OpenOffsets)
            self._under_way.end(reply.ticket)
            self._again(p.token, p.event)
        else:
            self._answer(p.token, replace(reply, identity=placeholder.identity))

    def _refuse(self, p: _Parked, code: Code) -> None:
        if p.reply is not None:
            self._under_way.end(p.reply.ticket)
        self._answer(p.token, p.event.refused(code, TEXT[code]))

    # ---- time -------------------------------------------------------------------------------------------------
    def tick(self) -> None:
        """Every 50 ms or so: nobody waits for ever."""
        at_ms = now().mono_ms
        for group_id, parked in list(self._parked.items()):
            late = [p for p in parked if p.until_ms <= at_ms]
            if late:
                del self._parked[group_id]
                if waiting := [p for p in parked if p.until_ms > at_ms]:
                    self._parked[group_id] = waiting
                self._waiting -= len(late)
                for p in late:
                    self._refuse(p, Code.COORDINATOR_LOAD_IN_PROGRESS)
                if (placeholder := self._placed.get(group_id)) is not None:
                    self.wake(placeholder)

    def doubt_late(self) -> None:
        """Each second: commits of which no front has said for long what became of them."""
        for ticket in list(self._under_way.since(now().mono_ms - LOST_SIGHT_MS)):
            self.ended(ticket, sure=False)
