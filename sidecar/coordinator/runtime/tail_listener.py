"""Passes on the tail's news: settings, claims, the end of a partition, and a partition that lost records."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from sidecar.coordinator.clock import now
from sidecar.coordinator.membership.former_owners import FormerOwners
from sidecar.coordinator.membership.roster import Roster
from sidecar.coordinator.runtime.coordinator import Coordinator
from sidecar.coordinator.statelog.startup import Control
from sidecar.coordinator.statelog.tail import StateLog
from sidecar.coordinator.statelog.topic_watch import StateTopic
from sidecar.link.ports import Logger, Tasks
from sidecar.state.keys import ROSTER
from sidecar.state.schema import StateError

FOREIGN = "see that broker and bootstrap of each sidecar lead to one cluster; the claim tells node and address"


class TailListener:
    """The tail's listener. `read()` is called when the topic has been read to its end, or when the wait for that is
    over, so perhaps several times; `claimed()` when all claims of a partition are known, and after each later claim."""

    def __init__(
        self,
        coordinator: Coordinator,
        state: StateLog,
        topic: StateTopic,
        roster: Roster,
        former: FormerOwners,
        control: Control,
        log: Logger,
        tasks: Tasks,
    ) -> None:
        self._coordinator = coordinator
        self._state = state
        self._topic = topic
        self._roster = roster
        self._former = former
        self._control = control
        self._log = log
        self._tasks = tasks
        self.unread = set(range(len(state.partitions)))
        self._waits = True
        """Whether nothing goes on before all partitions are read."""
        self.read: Callable[[], None] = lambda: None
        self.claimed: Callable[[], None] = lambda: None

    def setting_stored(self, group_id: str, name: str) -> None:
        if not group_id and name.endswith(ROSTER):  # which is no setting
            self._roster.record_read()
            self._former.look_again(self._coordinator.service.owners, now())
            return
        self._coordinator.setting_stored(group_id, name)

    def claim_read(self, partition: int) -> None:
        self._former.claim_read(partition, now().mono_ms)
        self._coordinator.takeovers.claim_read(partition)
        if partition not in self.unread:  # earlier claims may have come with a copy of the topic
            self.claimed()
            self._log_foreign_claim(partition)

    def _log_foreign_claim(self, partition: int) -> None:
        """Logs a claim by a sidecar of another cluster: two clusters share a state topic if one sidecar has the other
        cluster's `bootstrap`."""
        claims, own = self._state.partitions[partition].claims, self._control.view.cluster_id
        try:
            cluster_id = self._state.codec.claimed_in(next(reversed(claims.values())))
        except (StateError, StopIteration):
            return  # damaged, or compacted already: the cluster is unknown
        if own and cluster_id not in ("", own) and self._roster.due("foreign"):
            where = {"partition": partition, "own": own, "theirs": cluster_id}
            self._log.error("a sidecar of another cluster has claimed a partition", **where, remedy=FOREIGN)

    def tail_read(self, partition: int) -> None:
        if partition in self.unread:
            self.unread.discard(partition)
            self.claimed()
            if not self.unread or not self._waits:
                self._go_on()

    async def wait(self, most_s: float) -> None:
        """Ends the wait for partitions that are not read to their ends: they may have no leader, and the others must
        not wait for them for ever."""
        await asyncio.sleep(most_s)
        if self.unread:
            self._log.warning("the state topic is not read to its end yet", partitions=len(self.unread))
            self._waits = False
            self._go_on()

    def _go_on(self) -> None:
        """Lets this sidecar own partitions, and answer for the groups of those that are read. It could answer nobody
        before it knows the stored patterns, and would only take partitions from sidecars that can."""
        if self._coordinator.moves.rules.settings.partition_of("") not in self.unread:
            self._coordinator.state_read(frozenset(self.unread))
            self.read()

    def tail_went_back(self, partition: int) -> None:
        self._tasks.broken("state-tail", self._topic.went_back(partition))

    def tail_trouble(self, text: str) -> None:
        self._log.debug("state tail", problem=text)

    def tail_broke(self, exc: BaseException) -> None:
        self._tasks.broken("state-tail", exc)
