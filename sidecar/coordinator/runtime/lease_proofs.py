"""Proves the ownership of partitions by fenced writes while the coordinator of the owners' group gives no answer.

When that broker dies, another one takes its place after `broker.session.timeout.ms` (9 s), and a lease outlasts that.
It may take longer: all replicas of that partition of `__consumer_offsets` may be gone. The groups whose own partitions
can be written go on: a commit under the fence proves as much as the lease does (core/runtime/lease.py).

A sidecar that has missed an owner map proves its partitions in the same way: by that map another sidecar may have
taken them over, and the next one gave them back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from sidecar.coordinator.clock import lease_end, now
from sidecar.coordinator.statelog.term import Term
from sidecar.core.runtime.service import Service
from sidecar.core.runtime.turn import Now

LOW = 0.2
"""Part of a lease: a proof is written when less than this is left. While brokers answer there is always more left:
`ownership.session_timeout_ms`."""
ROUNDS = 30
"""Checks within the time of one lease."""


class LeaseProofs:
    def __init__(self, service: Service, terms: Mapping[int, Term], lease_ms: int) -> None:
        self._service = service
        self._terms = terms
        self._lease_ms = lease_ms
        self._under_way: dict[int, Term] = {}
        """Partition -> its term whose proof is being written: the partition's next term writes its own. A missed map
        begins another table: a proof of before proves nothing any more."""
        self._in_doubt: dict[int, Term] = {}
        """Partition -> its term, which has not been proved since a map was missed."""

    async def rounds(self) -> None:
        while True:
            await asyncio.sleep(self._lease_ms / 1000 / ROUNDS)
            self.look()

    def look(self) -> None:
        """Writes a proof for every partition served here whose last one will soon be over."""
        at = now()
        low_ms = at.mono_ms + int(self._lease_ms * LOW)
        if self._service.lease.in_doubt:
            self._end_doubt()
        if self._service.lease.until[0] > low_ms:
            return
        for p in self._service.serving():
            term = self._terms.get(p)
            if term is None or self._under_way.get(p) is term:
                continue
            if self._service.owners[p].lease.proved_until.mono_ms <= low_ms:
                self._write(p, term, lease_end(at, self._lease_ms))

    def map_missed(self) -> None:
        """Has every partition served here proved by a write that begins now. Each is served again when it is proved;
        the sidecar's lease counts again when all are."""
        self._service.map_missed()
        self._under_way = {}
        self._in_doubt = {p: self._terms[p] for p in self._service.serving() if p in self._terms}
        until = lease_end(now(), self._lease_ms)
        for p, term in list(self._in_doubt.items()):
            self._write(p, term, until)
        self._end_doubt()

    def _end_doubt(self) -> None:
        """Lets the lease count again if each term in doubt is proved or over."""
        if not any(self._terms.get(p) is term for p, term in self._in_doubt.items()):
            self._service.lease.in_doubt = False

    def _write(self, p: int, term: Term, until: Now) -> None:
        under_way = self._under_way

        def committed() -> None:
            if under_way is not self._under_way:
                return
            if under_way.get(p) is term:
                del under_way[p]
            self._service.owners[p].proved(term.attempt, until)
            if self._in_doubt.pop(p, None) is not None:
                self._end_doubt()

        under_way[p] = term
        term.prove(committed)
