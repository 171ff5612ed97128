"""Renews the fence of a partition that is being served: brokers forget fences. The state in memory stays.

Writes wait meanwhile. The new claim must follow this sidecar's former one directly: then no other sidecar has owned the
partition in between, and the state in memory is that of the log. Else it is dropped, as after any loss of ownership.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sidecar.coordinator.clock import now
from sidecar.coordinator.statelog.encoder import Encoder
from sidecar.coordinator.statelog.fenced_writer import FencedWriter
from sidecar.coordinator.statelog.tail import StateLog
from sidecar.coordinator.statelog.term import RENEWAL_SERIAL, Term, wait_for_own_claim
from sidecar.coordinator.statelog.write_errors import Fenced, WriteLost
from sidecar.core.runtime.commands import Append, Renew
from sidecar.core.runtime.owner import Owner
from sidecar.state.codec import Encoded, StateCodec

IDLE_S = 0.005


@dataclass(frozen=True, slots=True)
class RenewalPorts:
    """The calls of a renewal. `current()`: whether the term still lasts; `writer()`: makes another writer for the
    partition; `claim(writer)`: the records that it appends first; `go_on(appends)`: writes appends that have waited;
    `failed(why)`: ends the term."""

    current: Callable[[], bool]
    writer: Callable[[], FencedWriter]
    claim: Callable[[FencedWriter], Sequence[Encoded]]
    go_on: Callable[[list[Append]], None]
    failed: Callable[[WriteLost], None]


async def renew(c: Renew, term: Term, owner: Owner, codec: StateCodec, state: StateLog, ports: RenewalPorts) -> None:
    partition = c.partition
    term.renewing = True
    while term.writer.busy:
        await asyncio.sleep(IDLE_S)
    if not ports.current():
        return
    fresh = term.fresh = ports.writer()
    try:
        await fresh.init()
    except WriteLost as exc:
        if ports.current():
            term.fresh = None
            owner.lifecycle.not_renewed(c.attempt, str(exc), now())
            ports.go_on(term.resume())
        return
    if not ports.current():
        return
    term.claimed_again = asyncio.get_running_loop().create_future()
    fresh.append(ports.claim(fresh), RENEWAL_SERIAL)
    offset = await term.claimed_again
    if not ports.current():
        return
    try:
        if offset < 0:
            raise WriteLost("the broker does not say where the claim is")
        await wait_for_own_claim(state, partition, offset)
        _check(partition, term, fresh, state)
    except WriteLost as exc:
        ports.failed(exc)
    else:
        if ports.current():
            term.writer, term.fresh = fresh, None
            term.encoder = Encoder(codec, fresh.owner_epoch, state.revisions[partition])
            owner.lifecycle.renewed(c.attempt, fresh.owner_epoch, now())
            ports.go_on(term.resume())


def _check(partition: int, term: Term, fresh: FencedWriter, state: StateLog) -> None:
    owners = state.partitions[partition].owners
    if (owners.before, owners.claimed) != (term.writer.owner_epoch, fresh.owner_epoch):
        raise Fenced(f"{fresh.place}: claimed by owner epochs {owners.before} and {owners.claimed} meanwhile")
