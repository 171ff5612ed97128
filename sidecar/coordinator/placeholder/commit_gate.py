"""The gate before the broker's offsets: commits and fetches wait for the placeholder of their group, and for commits of
other members that are under way; deletions of offsets wait until the broker can read the subscription.

placeholders.py makes the placeholders. Nothing waits longer than `wait_ms`, counted from its arrival.
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
"""Time after which a commit that is still under way is in doubt, whatever its front waits for."""
Waits = CommitCheck | FetchCheck | OpenOffsets


class Placed(Protocol):
    """The placeholders, as the gate uses them."""

    def get(self, group_id: str) -> Placeholder | None: ...

    def refused(self, group_id: str, sent_as: MemberIdentity | None) -> Placeholder:
        """Takes in that the broker did not know the member `sent_as` of a commit of this group; None: the commit went
        on in its own member's name."""

    def expose(self, group_id: str, topics: frozenset[str]) -> Placeholder:
        """Makes the broker able to read this subscription for a while, or leaves no placeholder in its group."""

    def renew(self, placeholder: Placeholder) -> None:
        """Gives the placeholder another member id, so that the broker refuses commits in the present one's name."""

    def hurry(self, placeholder: Placeholder) -> None:
        """Called when a request waits for the placeholder."""

    def unneeded(self, placeholder: Placeholder) -> None:
        """Called when no request waits for the placeholder any more."""


def ready_for(placeholder: Placeholder, event: Waits) -> bool:
    """Returns whether this request need not wait for the placeholder any more."""
    if placeholder.gone:
        return True
    if isinstance(event, FetchCheck):
        return placeholder.settled or not placeholder.wanted
    if not placeholder.wanted:
        return placeholder.member_id_at_broker == ""
    if isinstance(event, OpenOffsets):
        return placeholder.final and placeholder.shown == placeholder.topics
    return placeholder.identity is not None


@dataclass(slots=True)
class _Parked:
    token: int
    event: Waits
    until_ms: int
    reply: CheckReply | None = None
    """The core's answer once the placeholder is there: the request then waits only for the commits in `behind`."""
    behind: frozenset[int] = frozenset()


class CommitGate:
    """Requests that wait, by group. `again(token, event)`: asks the core anew; `answer(token, answer)`: answers."""

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
        self._waiting = 0

    # ---- requests and reports of fronts ---------------------------------------------------------------------
    def checked(self, token: int, event: CommitCheck | FetchCheck, reply: CheckReply, front: int) -> CheckReply | None:
        """Takes in a request that the core permits. Returns the core's answer with the placeholder's identity in it, or
        None if the request must wait: for the placeholder, and then the core is asked again; or for commits of other
        members, and then it is answered."""
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
        """Takes in that a commit has ended. Not `sure`: its front does not know whether it still reaches the broker, so
        it is in doubt."""
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
        """Answers a deletion of offsets once the broker can read the subscription, or has no placeholder."""
        if not self._leased(self._partition_of(event.group_id)):
            self._answer(token, event.refused(Code.NOT_COORDINATOR, TEXT[Code.NOT_COORDINATOR]))
            return
        placeholder = self._placed.expose(event.group_id, event.subscribed)
        if ready_for(placeholder, event):
            self._answer(token, Answer())
        else:
            self._park(placeholder, token, event)

    # ---- changes of placeholders ------------------------------------------------------------------------------
    def wake(self, placeholder: Placeholder) -> None:
        """Lets the group's requests go on that need not wait any more."""
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
        """Forgets the group's commits under way, once this sidecar does not coordinate it or it has no members."""
        self._under_way.forget(group_id)

    def renewed(self, group_id: str) -> None:
        """Ends the group's commits in doubt: from now on the broker refuses them."""
        self._under_way.cleared(group_id)

    @property
    def quiet(self) -> bool:
        """Whether no commit that was let pass is under way."""
        return not self._under_way.open

    # ---- waiting ----------------------------------------------------------------------------------------------
    @property
    def groups(self) -> int:
        """Number of groups that have waiting requests."""
        return len(self._parked)

    def waits_for(self, group_id: str) -> bool:
        return group_id in self._parked

    def waited_for(self, ms: int) -> bool:
        """Returns whether a request has waited for `ms` already: for its placeholder, or for the broker's answer."""
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
        since_ms = now().mono_ms if isinstance(event, OpenOffsets) else event.asked_ms
        parked = _Parked(token, event, since_ms + self._wait_ms, reply, behind)
        if self._waiting >= self._parked_max:
            self._refuse(parked, Code.COORDINATOR_NOT_AVAILABLE)
            return
        self._waiting += 1
        self._parked.setdefault(placeholder.group_id, []).append(parked)
        self._placed.hurry(placeholder)

    def _go_on(self, placeholder: Placeholder, p: _Parked, reply: CheckReply) -> None:
        """Lets a request go on whose wait has ended; the placeholder may have another identity since."""
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
        """Refuses the requests whose time is over; called about every 50 ms."""
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
        """Puts commits in doubt that no front has reported on for LOST_SIGHT_MS; called each second."""
        for ticket in list(self._under_way.since(now().mono_ms - LOST_SIGHT_MS)):
            self.ended(ticket, sure=False)
