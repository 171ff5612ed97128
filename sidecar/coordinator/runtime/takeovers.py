"""Takes partitions over, and appends to those that are owned: fence, claim, wait for the tail, and a new fence now and
then (core/runtime/owner.py says when). Each attempt at owning a partition is a tenure."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sidecar.coordinator.clock import now, wall_ms
from sidecar.coordinator.membership.owner_map import Assignment
from sidecar.coordinator.runtime.claim import claim_of
from sidecar.coordinator.runtime.settings import CoordinatorSettings
from sidecar.coordinator.runtime.takeover_order import Turns
from sidecar.coordinator.statelog.encoder import Encoder
from sidecar.coordinator.statelog.fence_renewal import RenewalPorts, renew
from sidecar.coordinator.statelog.fenced_writer import FencedWriter, WriterPorts
from sidecar.coordinator.statelog.tail import StateLog
from sidecar.coordinator.statelog.term import PROOF_SERIAL, RENEWAL_SERIAL, Tenure, Tenures, claim_read_back
from sidecar.coordinator.statelog.write_errors import Fenced, WriteLost
from sidecar.core.runtime.commands import Append, Claim, Fence, Follow, Renew, Stop
from sidecar.core.runtime.owner import RENEWED, Owner
from sidecar.core.runtime.phases import Phase
from sidecar.kafka.cluster import Cluster
from sidecar.kafka.produce import Appender
from sidecar.link.ports import Tasks
from sidecar.state.codec import Encoded, StateCodec

CLAIM_SERIAL = 0


@dataclass(frozen=True, slots=True)
class TakeoverPorts:
    """`drain()` carries out the commands of the core; `stopped(partition)`: it is not owned any more."""

    assignment: Callable[[], Assignment]
    drain: Callable[[], None]
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
        self.tenures = Tenures()
        self._turns = Turns(lambda p: bool(state.groups(p)))

    def commands(self) -> dict[type, Callable[[Any], None]]:
        """What the core says about them."""
        return {
            Fence: self._fence,
            Claim: self._claim,
            Follow: self._follow,
            Append: self._append,
            Renew: self._renew,
            Stop: self._stop,
        }

    def took_over(self, partition: int) -> None:
        self._turns.ends(partition)

    def prove(self, partition: int, then: Callable[[], None]) -> None:
        """`then` is called when it is proved that this sidecar still owns the partition; never, if it does not."""
        if (tenure := self.tenures.get(partition)) is not None and tenure.encoder is not None:
            tenure.prove(then)

    def claim_read(self, partition: int) -> None:
        """By another sidecar, although the fence of this one may still hold: the brokers forget fences."""
        if self._owners[partition].phase is Phase.SERVING:
            self._still_mine(partition)

    async def finish(self, within_s: float) -> None:
        """Let the writers finish what they have."""
        until = time.monotonic() + within_s
        while any(t.writer.busy for t in self.tenures.values()) and time.monotonic() < until:
            await asyncio.sleep(0.01)

    # ---- fence and claim ------------------------------------------------------------------------------------
    def _fence(self, c: Fence) -> None:
        tenure = self.tenures[c.partition] = Tenure(c.attempt, self._writer(c.partition, c.attempt))
        self._turns.begins(c.partition)
        self._tasks.spawn(self._init(c.partition, tenure), f"fence-{c.partition}")

    def _writer(self, p: int, attempt: int) -> FencedWriter:
        s = self._settings

        def written(serial: int, offset: int) -> None:
            if serial == CLAIM_SERIAL:
                self._claimed(p, attempt, offset)
            elif serial == PROOF_SERIAL:
                self.tenures[p].proved()
                self._ports.drain()
            elif serial == RENEWAL_SERIAL:
                self.tenures[p].claims(offset)
            else:
                self._owners[p].committed(attempt, serial, now())
                self._ports.drain()

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

    async def _init(self, p: int, tenure: Tenure) -> None:
        await self._turns.comes(p)
        try:
            await tenure.writer.init()
        except WriteLost as exc:
            self._failed(p, tenure.attempt, exc)
            return
        if self.tenures.get(p) is not tenure:
            return  # the attempt is over; a later one may count its revisions already
        self._state.revisions[p] = {}
        tenure.encoder = Encoder(self._codec, tenure.writer.owner_epoch, self._state.revisions[p])
        self._owners[p].fenced(tenure.attempt, tenure.writer.owner_epoch, now())
        self._ports.drain()

    def _claim(self, c: Claim) -> None:
        tenure = self.tenures[c.partition]
        tenure.claim = self._claim_of(c.partition, tenure.writer, c.why)
        tenure.writer.append(tenure.claim, CLAIM_SERIAL)

    def _claim_of(self, p: int, writer: FencedWriter, why: str) -> list[Encoded]:
        there, assignment = self._state.partitions[p], self._ports.assignment()
        return claim_of(self._codec, there, self._settings, assignment, writer.owner_epoch, why)

    def _claimed(self, p: int, attempt: int, offset: int) -> None:
        if offset < 0:
            self._failed(p, attempt, WriteLost("the broker does not say where the claim is"))
        else:
            self._state.wrote(p, self.tenures[p].writer.claim_at, self.tenures[p].claim)
            self._owners[p].claimed(attempt, offset, now())
            self._ports.drain()

    def _follow(self, c: Follow) -> None:
        self._tasks.spawn(self._wait_past(c), f"follow-{c.partition}")

    async def _wait_past(self, c: Follow) -> None:
        try:
            await claim_read_back(self._state, c.partition, c.offset)
        except WriteLost as exc:
            self._failed(c.partition, c.attempt, exc)
            return
        if self._still_mine(c.partition):
            self._owners[c.partition].replayed(c.attempt, now())
        self._ports.drain()

    def _still_mine(self, p: int) -> bool:
        """Once the own claim has been read: whether it is the last one."""
        tenure, last = self.tenures.get(p), self._state.partitions[p].owners.claimed
        if tenure is None or last in tenure.epochs:
            return True
        self._failed(p, tenure.attempt, Fenced(f"{self._settings.topic}-{p}: claimed by owner epoch {last}"))
        return False

    def _failed(self, p: int, attempt: int, why: WriteLost) -> None:
        self._owners[p].failed(attempt, str(why), isinstance(why, Fenced), now())
        self._ports.drain()

    # ---- while it lasts -------------------------------------------------------------------------------------
    def _append(self, c: Append) -> None:
        tenure = self.tenures.get(c.partition)
        if tenure is not None and tenure.attempt == c.attempt and tenure.encoder is not None:
            if tenure.renewing:
                tenure.later.append(c)
            else:
                tenure.writer.append(tenure.encoder.encode(c.records, wall_ms()), c.serial)

    def _renew(self, c: Renew) -> None:
        p, tenure = c.partition, self.tenures[c.partition]

        def go_on(appends: list[Append]) -> None:
            for append in appends:
                self._append(append)
            self._ports.drain()

        ports = RenewalPorts(
            current=lambda: self.tenures.get(p) is tenure,
            writer=lambda: self._writer(p, c.attempt),
            claim=lambda writer: self._claim_of(p, writer, RENEWED),
            go_on=go_on,
            failed=lambda why: self._failed(p, c.attempt, why),
        )
        self._tasks.spawn(renew(c, tenure, self._owners[p], self._codec, self._state, ports), f"renew-{p}")

    def _stop(self, c: Stop) -> None:
        tenure = self.tenures.get(c.partition)
        if tenure is not None and tenure.attempt == c.attempt:
            del self.tenures[c.partition]
            tenure.stop()
            self._turns.ends(c.partition)
        self._ports.stopped(c.partition)
