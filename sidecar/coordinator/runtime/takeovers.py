"""Takes partitions over, and appends to owned ones: fence, claim, wait for the tail, and a fence renewal at intervals
(core/runtime/lifecycle.py decides when). Each attempt at owning a partition is a term."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sidecar.coordinator.clock import now, wall_ms
from sidecar.coordinator.membership.owners_protocol import Assignment
from sidecar.coordinator.runtime.claim import claim_of
from sidecar.coordinator.runtime.settings import CoordinatorSettings
from sidecar.coordinator.runtime.takeover_order import TakeoverOrder
from sidecar.coordinator.statelog.encoder import Encoder
from sidecar.coordinator.statelog.fence_renewal import RenewalPorts, renew
from sidecar.coordinator.statelog.fenced_writer import FencedWriter, WriterPorts
from sidecar.coordinator.statelog.tail import StateLog
from sidecar.coordinator.statelog.term import (
    NO_CLAIM,
    PROOF_SERIAL,
    RENEWAL_SERIAL,
    Term,
    Terms,
    wait_for_confirmation,
    wait_for_own_claim,
)
from sidecar.coordinator.statelog.write_errors import Fenced, WriteLost
from sidecar.core.runtime.commands import RENEWED, Append, Claim, Fence, Follow, Renew, Stop
from sidecar.core.runtime.owner import Owner
from sidecar.core.runtime.phases import Phase
from sidecar.kafka.cluster import Cluster
from sidecar.kafka.produce import Appender
from sidecar.link.ports import Tasks
from sidecar.state.codec import Encoded, StateCodec

CLAIM_SERIAL = 0


@dataclass(frozen=True, slots=True)
class TakeoverPorts:
    """The coordinator's calls. `run_commands()`: carries out the commands of the core; `stopped(partition)`: called
    when the partition is not owned any more; `append_took(seconds)`: called with the duration of each append."""

    assignment: Callable[[], Assignment]
    run_commands: Callable[[], None]
    stopped: Callable[[int], None]
    append_took: Callable[[float], None]


class Takeovers:
    def __init__(
        self,
        settings: CoordinatorSettings,
        cluster: Cluster,
        appender: Appender,
        codec: StateCodec,
        state: StateLog,
        owners: list[Owner],
        ports: TakeoverPorts,
        tasks: Tasks,
    ) -> None:
        self._settings = settings
        self._cluster = cluster
        self._appender = appender
        self._codec = codec
        self._state = state
        self._owners = owners
        self._ports = ports
        self._tasks = tasks
        self.terms = Terms()
        self.confirm_map: Callable[[], asyncio.Future[None]]
        """Asks the brokers whether they know a newer owner map. Done once they, asked from now on, say no."""
        self._order = TakeoverOrder(lambda p: bool(state.groups(p)))

    def commands(self) -> dict[type, Callable[[Any], None]]:
        """Returns the commands of the core about terms -> the calls that carry them out."""
        return {
            Fence: self._fence,
            Claim: self._claim,
            Follow: self._follow,
            Append: self._append,
            Renew: self._renew,
            Stop: self._stop,
        }

    def took_over(self, partition: int) -> None:
        self._order.ends(partition)

    def prove(self, partition: int, then: Callable[[], None]) -> None:
        """Calls `then` when it is proved that this sidecar still owns the partition; never, if it does not."""
        if (term := self.terms.get(partition)) is not None and term.encoder is not None:
            term.prove(then)

    def claim_read(self, partition: int) -> None:
        """Called when the tail has read a claim. It may be another sidecar's, although no fence has shut this one out:
        brokers forget fences."""
        if self._owners[partition].phase is Phase.SERVING:
            self._still_mine(partition)

    async def finish(self, within_s: float) -> None:
        """Waits until the writers have finished their open appends, for `within_s` at most."""
        until = time.monotonic() + within_s
        while any(t.writer.busy for t in self.terms.values()) and time.monotonic() < until:
            await asyncio.sleep(0.01)

    # ---- fence and claim ------------------------------------------------------------------------------------
    def _fence(self, c: Fence) -> None:
        term = self.terms[c.partition] = Term(c.attempt, self._writer(c.partition, c.attempt))
        self._order.begins(c.partition)
        self._tasks.spawn(self._init(c.partition, term, c.again), f"fence-{c.partition}")

    def _writer(self, p: int, attempt: int) -> FencedWriter:
        s = self._settings

        def written(serial: int, offset: int) -> None:
            if serial == CLAIM_SERIAL:
                self._claimed(p, attempt, offset)
            elif serial == PROOF_SERIAL:
                self.terms[p].proved()
                self._ports.run_commands()
            elif serial == RENEWAL_SERIAL:
                self.terms[p].claim_written(offset)
            else:
                self._owners[p].committed(attempt, serial, now())
                self._ports.run_commands()

        return FencedWriter(
            self._cluster,
            self._appender,
            s.topic,
            p,
            s.write_timeout_s,
            WriterPorts(written, lambda why: self._failed(p, attempt, why), self._ports.append_took),
            self._tasks,
            s.batch_bytes,
        )

    async def _init(self, p: int, term: Term, again: bool) -> None:
        await self._order.comes(p)
        try:
            if again:
                await wait_for_confirmation(self.confirm_map())
            await term.writer.init()
        except WriteLost as exc:
            self._failed(p, term.attempt, exc)
            return
        if self.terms.get(p) is not term:
            return  # the attempt is over; a later one may count its revisions already
        term.encoder = Encoder(self._codec, term.writer.owner_epoch, self._state.revisions[p])
        term.confirmed = self.confirm_map()
        self._owners[p].lifecycle.fenced(term.attempt, term.writer.owner_epoch, now())
        self._ports.run_commands()

    def _claim(self, c: Claim) -> None:
        term = self.terms[c.partition]
        term.claim = self._claim_of(c.partition, term.writer, c.why)
        term.writer.append(term.claim, CLAIM_SERIAL)

    def _claim_of(self, p: int, writer: FencedWriter, why: str) -> list[Encoded]:
        fold, assignment = self._state.partitions[p], self._ports.assignment()
        return claim_of(self._codec, fold, self._settings, assignment, writer.owner_epoch, why)

    def _claimed(self, p: int, attempt: int, offset: int) -> None:
        if offset < 0:
            self._failed(p, attempt, WriteLost("the broker does not say where the claim is"))
        else:
            self._state.wrote(p, self.terms[p].writer.claim_at, self.terms[p].claim)
            self._owners[p].lifecycle.claimed(attempt, offset, now())
            self._ports.run_commands()

    def _follow(self, c: Follow) -> None:
        self._tasks.spawn(self._wait_applied(c, self.terms[c.partition]), f"follow-{c.partition}")

    async def _wait_applied(self, c: Follow, term: Term) -> None:
        assert term.confirmed is not None
        try:
            await wait_for_own_claim(self._state, c.partition, c.offset)
            await wait_for_confirmation(term.confirmed)
        except WriteLost as exc:
            self._failed(c.partition, c.attempt, exc)
            return
        if self.terms.get(c.partition) is term and self._still_mine(c.partition):
            self._owners[c.partition].replayed(c.attempt, now())
        self._ports.run_commands()

    def _still_mine(self, p: int) -> bool:
        """Returns whether the partition's last claim is this term's own, once that is read; else ends the term."""
        term, last = self.terms.get(p), self._state.partitions[p].owners.claimed
        if term is None or last in term.epochs:
            return True
        self._failed(p, term.attempt, Fenced(f"{self._settings.topic}-{p}: claimed by owner epoch {last}"))
        return False

    def _failed(self, p: int, attempt: int, why: WriteLost) -> None:
        self._owners[p].failed(attempt, str(why), isinstance(why, Fenced), now())
        self._ports.run_commands()

    # ---- during a term --------------------------------------------------------------------------------------
    def _append(self, c: Append) -> None:
        term = self.terms.get(c.partition)
        if term is not None and term.attempt == c.attempt and term.encoder is not None:
            if term.renewing:
                term.later.append(c)
            else:
                term.writer.append(term.encoder.encode(c.records, wall_ms()) or [NO_CLAIM], c.serial)

    def _renew(self, c: Renew) -> None:
        p, term = c.partition, self.terms[c.partition]

        def go_on(appends: list[Append]) -> None:
            for append in appends:
                self._append(append)
            self._ports.run_commands()

        ports = RenewalPorts(
            current=lambda: self.terms.get(p) is term,
            writer=lambda: self._writer(p, c.attempt),
            claim=lambda writer: self._claim_of(p, writer, RENEWED),
            go_on=go_on,
            failed=lambda why: self._failed(p, c.attempt, why),
        )
        self._tasks.spawn(renew(c, term, self._owners[p], self._codec, self._state, ports), f"renew-{p}")

    def _stop(self, c: Stop) -> None:
        term = self.terms.get(c.partition)
        if term is not None and term.attempt == c.attempt:
            del self.terms[c.partition]
            term.stop()
            self._state.revisions[c.partition] = {}
            self._order.ends(c.partition)
        self._ports.stopped(c.partition)
