"""The placeholder of each managed group that has members: a member of the broker's group of the same name.

Purpose (docs/design/decisions.md, Placeholder members): a group with a member is not empty, so the broker lets none of
its offsets expire; and a commit goes on in the placeholder's name, so the broker itself refuses the commits of a former
owner, however late they come.

**A placeholder may be used only after a fenced write that was begun when the broker had answered its JoinGroup.** If
that write is committed, no other sidecar had taken the partition over before; one that does so later joins later, and
so takes the placeholder. And a new owner answers no fetch and no commit of a group with members before it has looked at
the placeholder: so no commit that an older owner let pass can land after an offset that the new owner has answered or
let pass.

broker_membership.py sends the requests to the brokers, commit_gate.py knows the requests that wait for a placeholder.
This module decides which placeholders are wanted, and what follows from an answer of the broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from sidecar.coordinator.clock import now
from sidecar.coordinator.placeholder.broker_membership import STRANGERS, BrokerMembership, Placeholder
from sidecar.coordinator.placeholder.commit_gate import CommitGate
from sidecar.coordinator.placeholder.placeholder_heartbeats import PlaceholderHeartbeats
from sidecar.core.runtime.events import Answer
from sidecar.core.runtime.offset_checks import CommitCheck, FetchCheck, MemberIdentity
from sidecar.core.vocabulary.cache import BoundedCache
from sidecar.core.vocabulary.errors import Code
from sidecar.kafka.cluster import Cluster
from sidecar.kafka.net import NO_ANSWER
from sidecar.link.ports import Figures, Logger, Tasks

PAUSE_MS, PAUSE_MAX_MS = 50, 2_000
"""First pause after trouble; it doubles each time, up to the second value."""
REFUSED_MS = 30_000
"""Pause after a refusal that only an administrator can change: the right to the group is missing."""
PATIENCE_MS = 200
"""Longest pause while commits wait, or 2 ms for each group whose commits do, if that is more. When a broker has died,
its successors load for a moment, and commits must not wait much longer. After a refusal it is PAUSE_MAX_MS."""
TICK_S = 1.0
FREE_S = 5.0
LOG_AGAIN_MS = 5_000
OPEN_MS = 5_000
"""Time for which the broker can read a subscription that was shown to it for one OffsetDelete."""


@dataclass(frozen=True)
class PlaceholderSettings:
    """Settings of the placeholders. `wait_ms`: how long a commit waits, for a takeover and then for its placeholder;
    `first_joins`: most JoinGroups that wait at one broker; `parked_max`: most requests that wait."""

    session_timeout_ms: int = 300_000
    wait_ms: int = 5_000
    first_joins: int = 200
    parked_max: int = 100_000


@dataclass(frozen=True)
class PlaceholderPorts:
    """The coordinator's calls. `prove(partition, then)`: calls `then` when a fenced write that begins now is committed;
    `again(token, event)`: asks the core anew; `answer(token, answer)`: answers; `other_members(group)`: called when the
    broker's group has other members than the placeholder."""

    leased: Callable[[int], bool]
    leader_of: Callable[[int], int]
    partition_of: Callable[[str], int]
    managed: Callable[[str], bool]
    prove: Callable[[int, Callable[[], None]], None]
    again: Callable[[int, CommitCheck | FetchCheck], None]
    answer: Callable[[int, Answer], None]
    other_members: Callable[[str], None] = lambda group_id: None


class Placeholders:
    def __init__(
        self,
        settings: PlaceholderSettings,
        cluster: Cluster,
        ports: PlaceholderPorts,
        figures: Figures,
        log: Logger,
        tasks: Tasks,
    ) -> None:
        self._ports = ports
        self._figures = figures
        self._log = log
        self._groups: dict[str, Placeholder] = {}
        self._generations: BoundedCache[str, int] = BoundedCache()
        """Group whose placeholder was given up -> guessed generation of the broker's group."""
        self.commits = CommitGate(
            self,
            settings.wait_ms,
            settings.parked_max,
            ports.leased,
            ports.partition_of,
            ports.again,
            ports.answer,
        )
        self._membership = BrokerMembership(
            cluster,
            self,
            ports.leased,
            ports.leader_of,
            settings.session_timeout_ms,
            settings.first_joins,
            log,
            tasks,
        )
        self._heartbeats = PlaceholderHeartbeats(self._membership, ports.leased, self._lost, log)
        self._logged_ms = -LOG_AGAIN_MS
        figures("placeholders_wanted").set_function(lambda: sum(g.wanted for g in self._groups.values()))
        figures("placeholders_joined").set_function(lambda: sum(g.final for g in self._groups.values()))
        tasks.spawn(self._rounds(), "placeholders")

    # ---- called for the core ------------------------------------------------------------------------------
    def occupied(self, group_id: str, members: bool) -> None:
        """Takes or gives up the placeholder, as the group has members now or has none. In the second case also one that
        a former owner may have left is given up."""
        wanted = members and self._ports.managed(group_id)
        group = self._groups.get(group_id)
        if group is None:
            group = self._add(group_id, wanted)
        elif group.wanted != wanted:
            group.wanted, group.since_ms = wanted, now().mono_ms
            group.topics, group.open_until_ms = None, 0
            if not wanted:
                group.identity, group.joining, group.final, group.renew = None, None, False, False
        self._look_after(group)
        self.commits.wake(group)

    def stopped(self, partition: int) -> None:
        """Drops the placeholders of a partition whose state the core has dropped."""
        for group in [g for g in self._groups.values() if g.partition == partition]:
            group.gone = True
            del self._groups[group.group_id]
            self.commits.forget(group.group_id)
            self.commits.wake(group)

    def _add(self, group_id: str, wanted: bool) -> Placeholder:
        partition = self._ports.partition_of(group_id)
        group = self._groups[group_id] = Placeholder(group_id, partition, wanted, now().mono_ms)
        group.generation = self._generations.get(group_id, 0)
        self._generations.forget(group_id)
        return group

    # ---- called by commit_gate.py ---------------------------------------------------------------------------
    def get(self, group_id: str) -> Placeholder | None:
        return self._groups.get(group_id)

    def refused(self, group_id: str, sent_as: MemberIdentity | None) -> Placeholder:
        """Takes in that the broker did not know the member `sent_as` of a commit of this group; None: the commit went
        on in its own member's name."""
        group = self._groups.get(group_id) or self._add(group_id, False)
        if sent_as is not None and sent_as == group.identity:
            self._lost(group, "a commit in its name was refused")
        elif sent_as is None and not group.wanted:
            group.member_id_at_broker = (
                None  # the broker's group has a member; if it is a placeholder left behind, it is given up
            )
        return group

    def expose(self, group_id: str, topics: frozenset[str]) -> Placeholder:
        """Makes the broker able to read this subscription for OPEN_MS, or leaves no placeholder in its group."""
        group = self._groups.get(group_id) or self._add(group_id, False)
        if group.wanted:
            group.topics, group.open_until_ms = topics, now().mono_ms + OPEN_MS
        elif group.member_id_at_broker == "":
            group.member_id_at_broker = (
                None  # deletion is rare, and must not fail for a placeholder that was left behind
            )
        return group

    def renew(self, placeholder: Placeholder) -> None:
        """Gives the placeholder another member id, so that the broker refuses commits in the present one's name."""
        placeholder.renew, placeholder.identity, placeholder.final = True, None, False
        self._look_after(placeholder, urgent=True)

    def hurry(self, placeholder: Placeholder) -> None:
        """Works on the placeholder at once, as a request waits for it: shortens its back-off if much of it is left."""
        resting = placeholder.resting
        patience_s = self._patience_ms(placeholder) / 1000
        if resting is not None and resting.when() - asyncio.get_running_loop().time() > patience_s:
            resting.cancel()
            self._rest(placeholder)
        self._look_after(placeholder, urgent=True)

    def unneeded(self, placeholder: Placeholder) -> None:
        """Forgets a group without members whose placeholder is given up, as no request waits for it any more."""
        if (
            not placeholder.wanted
            and placeholder.member_id_at_broker == ""
            and not placeholder.busy
            and self._groups.get(placeholder.group_id) is placeholder
        ):
            del self._groups[placeholder.group_id]
            self.commits.forget(placeholder.group_id)
            if placeholder.generation:
                self._generations[placeholder.group_id] = placeholder.generation

    # ---- called by broker_membership.py -----------------------------------------------------------------------
    def taken(self, placeholder: Placeholder, identity: MemberIdentity, final: bool) -> None:
        placeholder.joining = identity
        self._ports.prove(placeholder.partition, lambda: self._proved(placeholder, identity, final))

    def _proved(self, placeholder: Placeholder, identity: MemberIdentity, final: bool) -> None:
        """Puts the placeholder to use: no other sidecar had taken the partition over when the broker answered."""
        if placeholder.gone or placeholder.joining is not identity:
            return
        placeholder.joining = None
        if placeholder.wanted:
            ms = now().mono_ms
            if placeholder.identity is None:
                self._figures("placeholder_seconds").observe((ms - placeholder.since_ms) / 1000)
            placeholder.identity, placeholder.final = identity, final
            if not placeholder.renew:
                self.commits.renewed(placeholder.group_id)
            if final:
                placeholder.generation = (
                    identity.generation + 1
                )  # the broker raises it when the placeholder is given up
                self._heartbeats.begin(placeholder)
        self._look_after(placeholder)
        self.commits.wake(placeholder)

    def changed(self, placeholder: Placeholder) -> None:
        if not placeholder.gone:
            self.commits.wake(placeholder)

    def trouble(self, placeholder: Placeholder, problem: str) -> None:
        """Starts the back-off, after which the work is tried again."""
        self._figures("placeholder_troubles").inc()
        placeholder.problem = problem
        if placeholder.wanted and problem.startswith((STRANGERS, "JoinGroup")):
            self._ports.other_members(placeholder.group_id)
        placeholder.pause_ms = min(max(2 * placeholder.pause_ms, PAUSE_MS), PAUSE_MAX_MS)
        if problem.endswith(Code.GROUP_AUTHORIZATION_FAILED.name):
            group_id, placeholder.pause_ms = placeholder.group_id, REFUSED_MS
            if not (placeholder.wanted or self._ports.managed(group_id) or self.commits.waits_for(group_id)):
                # The group is the broker's own. A placeholder that a former owner left ends with its session.
                placeholder.gone = True
                del self._groups[group_id]
                self.commits.forget(group_id)
                return
        self._rest(placeholder)
        at_ms = now().mono_ms
        if placeholder.wanted and placeholder.pause_ms >= PAUSE_MAX_MS and at_ms - self._logged_ms >= LOG_AGAIN_MS:
            self._logged_ms = at_ms
            waiting = sum(g.wanted and not g.final for g in self._groups.values())
            self._log.warning(
                "placeholders cannot join", groups=waiting, group_id=placeholder.group_id, problem=problem
            )

    def _patience_ms(self, group: Placeholder) -> int:
        return PAUSE_MAX_MS if group.pause_ms == REFUSED_MS else max(PATIENCE_MS, 2 * self.commits.groups)

    def _rest(self, group: Placeholder) -> None:
        waited_for = self.commits.waits_for(group.group_id)
        pause_ms = min(group.pause_ms, self._patience_ms(group)) if waited_for else group.pause_ms
        group.resting = asyncio.get_running_loop().call_later(pause_ms / 1000, self._rested, group)

    def _rested(self, group: Placeholder) -> None:
        group.resting = None
        self._look_after(group)

    def leaders_moved(self, before: Sequence[int], leaders: Sequence[int]) -> None:
        """Resets the back-off: errors of the former leader of a group's offsets do not apply to the new one."""
        for group in list(self._groups.values()):
            p = group.partition
            if before[p : p + 1] == leaders[p : p + 1]:
                continue
            if group.resting is not None:
                group.resting.cancel()
                group.pause_ms = 0
                self._rested(group)
            elif group.busy or group.queued:
                self._look_after(self._instead_of(group))

    def _instead_of(self, group: Placeholder) -> Placeholder:
        """Replaces the object, so that the answer of the former leader, which may never come, is ignored and the new
        leader is asked. The new leader does not know the placeholder of a JoinGroup that was held back."""
        identity = group.identity if group.final else None
        group.gone = True
        fresh = replace(
            group,
            identity=identity,
            joining=None,
            member_id_at_broker=None,
            gone=False,
            busy=False,
            queued=0,
            pause_ms=0,
            problem="",
        )
        self._groups[group.group_id] = fresh
        return fresh

    def _look_after(self, group: Placeholder, urgent: bool = False) -> None:
        if group.needs_work:
            self._membership.put(group, urgent or self.commits.waits_for(group.group_id))

    def _lost(self, group: Placeholder, why: str) -> None:
        """Joins anew, as the broker does not know the placeholder any more. The next one's proof will show whether this
        sidecar still owns the group."""
        self._log.warning("placeholder lost", group_id=group.group_id, why=why)
        self._figures("placeholders_lost").inc()
        group.identity, group.joining, group.final, group.shown = None, None, False, None
        group.since_ms = now().mono_ms
        self._look_after(group)

    def given_up(self, group_id: str) -> bool:
        """Returns whether no placeholder is left in the broker's group, nor will one be taken."""
        group = self._groups.get(group_id)
        return group is None or (not group.wanted and group.member_id_at_broker == "" and not group.busy)

    @property
    def all_joined(self) -> bool:
        """Whether all wanted placeholders have joined, and all others have left."""
        return all(g.final if g.wanted else g.member_id_at_broker == "" for g in self._groups.values())

    async def _rounds(self) -> None:
        """Runs the periodic work for ever, each TICK_S."""
        while True:
            await asyncio.sleep(TICK_S)
            self.commits.doubt_late()
            at_ms = now().mono_ms
            for group in self._groups.values():
                if group.open_until_ms and group.open_until_ms <= at_ms:
                    group.topics, group.open_until_ms = None, 0
                    self._look_after(group)
            await self._heartbeats.round(self._groups.values())

    # ---- ending -------------------------------------------------------------------------------------------
    async def free(self, groups: Mapping[int, Sequence[str]]) -> None:
        """Removes the placeholders of these groups, by partition, when the last sidecar ends: the groups are the
        brokers' own again."""
        try:
            async with asyncio.timeout(FREE_S):
                freed = await self._membership.free(groups)
        except NO_ANSWER as exc:
            self._log.warning(
                "placeholders stay at the brokers until their sessions end",
                session_timeout_ms=self._membership.session_ms,
                problem=str(exc) or "timed out",
            )
        else:
            self._log.info("placeholders given up", groups=freed)
