"""Bugs to plant in the outer layers of the sidecar, each with the words by which it must be found. A simulation that
finds nothing then is no simulation.

python -m tests.whole.planted [name ...]     # how many seeds each one takes
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import sys
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

import sidecar.api.offset_commit as offset_commit
import sidecar.coordinator.writer as writer_module
from sidecar.coordinator.clock import now
from sidecar.coordinator.coordinator import Coordinator
from sidecar.coordinator.ownership import Ownership
from sidecar.coordinator.placeholders import Placeholders, _Group
from sidecar.coordinator.tail import StateLog, Tail
from sidecar.coordinator.under_way import UnderWay
from sidecar.coordinator.writer import FencedWriter
from sidecar.core.errors import Code
from sidecar.core.held import Waiting
from sidecar.core.offsets import FetchCheck
from sidecar.core.owner import Owner, Phase
from sidecar.core.service import Service
from sidecar.core.shard import Shard
from sidecar.front.steady import Grants
from sidecar.state.batch import encode_batch
from sidecar.state.codec import CONFIG, OWNER_CLAIM, SCHEMA
from sidecar.state.fold import PartitionFold
from sidecar.wire.generated import offset_commit as oc
from tests.whole.many import spread
from tests.whole.run import play
from tests.whole.violation import Violation
from tests.whole.world import World

Patch = pytest.MonkeyPatch
ENOUGH = 60
"""Seeds in which a planted bug must have shown."""


@dataclass(frozen=True)
class Bug:
    """`words`: of the violation that it must bring about. `often`: the faults under which it does harm; they strike
    more often than usual, so that it takes few seeds."""

    plant: Callable[[Patch, World], None]
    words: str
    often: Sequence[str] = ()

    @property
    def name(self) -> str:
        return self.plant.__name__


# ---- the fenced writer ----------------------------------------------------------------------------------------
def answers_before_the_commit(patch: Patch, world: World) -> None:
    real = Owner._settle

    def planted(self: Any, fx: Any) -> None:
        replies, fx.replies = fx.replies, []
        real(self, fx)
        for reply in replies:
            self._release(self.shard, reply)

    patch.setattr(Owner, "_settle", planted)


def takes_over_without_a_fence(patch: Patch, world: World) -> None:
    """A producer id that nobody had before: the broker lets it write, and the former owner, too."""
    ids = iter(range(1_000_000, 2_000_000))

    async def planted(self: Any) -> None:
        self.producer_id, self.producer_epoch, self._sequence = next(ids), 0, 0

    patch.setattr(FencedWriter, "init", planted)


def goes_on_after_it_was_fenced(patch: Patch, world: World) -> None:
    """It fences the new owner out in its turn and writes what it had, as it was."""
    real = FencedWriter._answered

    async def again(self: Any) -> None:
        await self.init()
        records = [r for e in self._sending for r in e.records]
        self._batch = encode_batch(records, 0, self.producer_id, self.producer_epoch, 0)
        self._sequence = len(records)
        self._task = None
        self._put()

    def planted(self: Any, code: int, offset: int, lost: Any) -> None:
        if not self.stopped and lost is None and code in (Code.INVALID_PRODUCER_EPOCH, Code.PRODUCER_FENCED):
            self._work(again(self))
        else:
            real(self, code, offset, lost)

    patch.setattr(FencedWriter, "_answered", planted)


def tries_again_under_a_new_sequence(patch: Patch, world: World) -> None:
    """What may have been written is written once more."""
    real = FencedWriter._answered

    def planted(self: Any, code: int, offset: int, lost: Any) -> None:
        if not self.stopped and (lost is not None or code in writer_module.RETRIABLE):
            records = [r for e in self._sending for r in e.records]
            self._batch = encode_batch(records, 0, self.producer_id, self.producer_epoch, self._sequence)
            self._sequence += len(records)
        real(self, code, offset, lost)

    patch.setattr(FencedWriter, "_answered", planted)


def takes_a_lost_connection_for_written(patch: Patch, world: World) -> None:
    real = FencedWriter._answered

    def planted(self: Any, code: int, offset: int, lost: Any) -> None:
        real(self, Code.NONE if lost is not None else code, offset, None)

    patch.setattr(FencedWriter, "_answered", planted)


def asks_the_old_leader_for_ever(patch: Patch, world: World) -> None:
    """Where a partition was led once, it is led for ever."""
    real: Any = FencedWriter._find_leader

    async def planted(self: Any, pause_s: float = 0.0) -> None:
        first = getattr(self, "first_leader", -1)
        if first < 0:
            await real(self, pause_s)
            self.first_leader = self._leader
            return
        self._leader = -1
        await asyncio.sleep(pause_s)
        self._leader, self._task = first, None
        if time.monotonic() < self._deadline:
            self._put()
        else:
            self._deadline += 10.0
            self._put()

    patch.setattr(FencedWriter, "_find_leader", planted)


def gives_a_takeover_up(patch: Patch, world: World) -> None:
    """After the first attempt that failed it never tries again."""
    real = Owner.wake

    def planted(self: Any, now: Any, proved: bool = True) -> None:
        if self.phase is not Phase.PAUSING:
            real(self, now, proved)

    patch.setattr(Owner, "wake", planted)


# ---- the tail -------------------------------------------------------------------------------------------------
def serves_before_its_claim_is_read(patch: Patch, world: World) -> None:
    """Records of the former owner, of before the claim, have not come in yet."""

    async def planted(self: Any, partition: int, offset: int) -> None:
        return

    patch.setattr(StateLog, "wait_past", planted)
    patch.setattr(Coordinator, "_still_mine", lambda self, p: True)


def keeps_what_was_removed(patch: Patch, world: World) -> None:
    """The tail does not see tombstones."""
    real = PartitionFold.apply

    def planted(self: Any, offset: int, key: Any, value: bytes | None, owner_epoch: int = -1) -> None:
        if value is None and key.kind not in (OWNER_CLAIM, SCHEMA, CONFIG):
            self.position = offset + 1
        else:
            real(self, offset, key, value, owner_epoch)

    patch.setattr(PartitionFold, "apply", planted)


def reads_out_of_order(patch: Patch, world: World) -> None:
    """What comes in one piece is applied from its end."""
    real = Tail._apply

    def planted(self: Any, items: Any) -> None:
        real(self, items[::-1])

    patch.setattr(Tail, "_apply", planted)


# ---- the lease ------------------------------------------------------------------------------------------------
def looks_at_no_lease(patch: Patch, world: World) -> None:
    real = Service.request

    def planted(self: Any, token: int, event: Any, now: Any) -> None:
        before, self._lease_until_ms = self._lease_until_ms, 10**15
        try:
            real(self, token, event, now)
        finally:
            self._lease_until_ms = before

    patch.setattr(Service, "request", planted)
    patch.setattr(Ownership, "_lost", lambda self, why: setattr(self, "member_id", ""))


def counts_the_lease_from_the_answer(patch: Patch, world: World) -> None:
    real = Ownership._prove
    patch.setattr(Ownership, "_prove", lambda self, sent: real(self, now()))


def believes_heartbeats_alone(patch: Patch, world: World) -> None:
    """A coordinator of the owners' group that is cut off from the other brokers goes on answering."""

    async def planted(self: Any, conn: Any) -> None:
        self._committed = now()

    patch.setattr(Ownership, "_commit", planted)


def gives_no_time_back(patch: Patch, world: World) -> None:
    """A sidecar that stood still removes whoever it could not hear."""
    patch.setattr(Owner, "shift", lambda self, by_ms, now: None)


def keeps_a_problem(patch: Patch, world: World) -> None:
    """What hindered a takeover is told for ever, also when the partition went to another sidecar (track record 53)."""
    real = Owner.released

    def planted(self: Any, why: str) -> None:
        problem = self.problem
        real(self, why)
        self.problem = problem

    patch.setattr(Owner, "released", planted)


def stays_withdrawn(patch: Patch, world: World) -> None:
    """Who has left because its broker was gone does not come back with it."""
    patch.setattr(Ownership, "resume", lambda self: None)


# ---- offsets --------------------------------------------------------------------------------------------------
def has_no_placeholders(patch: Patch, world: World) -> None:
    """Commits go on in nobody's name, and the broker takes those of a former owner."""
    patch.setattr(Placeholders, "occupied", lambda self, partition, group_id, members: None)


def takes_no_seat_over(patch: Patch, world: World) -> None:
    """A new owner lets offsets be fetched while the former one's commits may still arrive."""
    real = _Group.ready_for
    patch.setattr(_Group, "ready_for", lambda self, event: isinstance(event, FetchCheck) or real(self, event))


def waits_for_no_commits(patch: Patch, world: World) -> None:
    """A commit of the former member is still under way when the new one fetches."""
    patch.setattr(UnderWay, "before_commit", lambda self, *args: frozenset())
    patch.setattr(UnderWay, "before_fetch", lambda self, *args: frozenset())


def forgets_commits_in_doubt(patch: Patch, world: World) -> None:
    """A commit whose front has lost its connection counts as ended."""
    real = Placeholders.ended
    patch.setattr(Placeholders, "ended", lambda self, ticket, sure: real(self, ticket, True))


def says_that_all_is_stored(patch: Patch, world: World) -> None:
    """Whatever the broker answers."""
    real: Any = vars(offset_commit)["store"]

    def planted(call: Any, group_id: str, version: int, body: bytes) -> Generator[Any, Any, bytes]:
        answer = yield from real(call, group_id, version, body)
        res = oc.OffsetCommitResponse.decode(version, answer)
        codes = {p.error_code for t in res.topics for p in t.partitions}
        if not codes - {Code.NONE}:
            return bytes(answer)
        for t in res.topics:
            for p in t.partitions:
                p.error_code = Code.NONE
        return res.encode(version)

    patch.setattr(offset_commit, "store", planted)


# ---- answers --------------------------------------------------------------------------------------------------
def withdraws_no_grant(patch: Patch, world: World) -> None:
    """The front goes on answering from its memory when a group has changed."""
    patch.setattr(Grants, "void", lambda self, groups: None)


def hears_no_touch(patch: Patch, world: World) -> None:
    """Whom the front answers from its memory is silent to the coordinator."""
    patch.setattr(Shard, "touch", lambda self, group_id, member_id, now: None)


def tells_of_no_other_owner(patch: Patch, world: World) -> None:
    """Clients are led to the owners of the first day."""
    real = Coordinator.show

    def planted(self: Any, view: Any) -> None:
        if not self.view.owners:
            real(self, view)

    patch.setattr(Coordinator, "show", planted)


def holds_requests_for_ever(patch: Patch, world: World) -> None:
    """As long as a takeover lasts."""
    patch.setattr(Waiting, "refuse", lambda self, code, now_ms=None: None)


def forgets_who_waits(patch: Patch, world: World) -> None:
    """An owner that drops its state answers nobody."""
    real: Any = Owner._drop

    def planted(self: Any, *args: Any, **more: Any) -> None:
        self._open.clear()
        real(self, *args, **more)

    patch.setattr(Owner, "_drop", planted)


def forgets_who_waits_for_a_seat(patch: Patch, world: World) -> None:
    """A commit or fetch that waits for a placeholder when the partition goes away is never answered."""

    def planted(self: Any, partition: int, keep: bool) -> None:
        for group in [g for g in self._groups.values() if g.partition == partition and not keep]:
            group.gone = True
            del self._groups[group.group_id]
            self._under_way.forget(group.group_id)

    patch.setattr(Placeholders, "stopped", planted)
    patch.setattr(Placeholders, "tick", lambda self: None)


ALONE = ("host_is_alone", "broker_stands_still", "sidecar_stands_still")
CUT = ("owner_is_cut_off", "client_comes", "client_crashes")
HELD_UP = ("commit_is_held_up",)
DOWN = ("fence_is_out_of_reach",)
PLANTED = [
    Bug(answers_before_the_commit, "before its records"),
    Bug(takes_over_without_a_fence, "behind the claim|went back|differs|two owners", CUT),
    Bug(goes_on_after_it_was_fenced, "behind the claim", CUT),
    Bug(tries_again_under_a_new_sequence, "in the log twice", ("broker_crashes", "broker_stands_still")),
    Bug(takes_a_lost_connection_for_written, "before its records|in the log|differs|live", ALONE),
    Bug(asks_the_old_leader_for_ever, "not within|waits for its answer", ("broker_crashes",)),
    Bug(gives_a_takeover_up, "not within|waits for its answer", DOWN),
    Bug(serves_before_its_claim_is_read, "in the log|live|went back|differs", ("tail_lags", "sidecar_crashes", *CUT)),
    Bug(keeps_what_was_removed, "the tail of"),
    Bug(reads_out_of_order, "the tail of"),
    Bug(looks_at_no_lease, "no lease|all is well", ALONE),
    Bug(counts_the_lease_from_the_answer, "longer than the brokers know"),
    Bug(believes_heartbeats_alone, "nobody who could commit", ("owners_coordinator_is_cut_off",)),
    Bug(stays_withdrawn, "not within", ("broker_crashes", "broker_stands_still")),
    Bug(gives_no_time_back, "could be heard for", ("sidecar_stands_still",)),
    Bug(keeps_a_problem, "not within.*cannot be taken over", DOWN),
    Bug(has_no_placeholders, "goes back|was acknowledged", HELD_UP),
    Bug(takes_no_seat_over, "goes back|was acknowledged", HELD_UP),
    Bug(waits_for_no_commits, "goes back|was acknowledged", (*HELD_UP, "disk_is_slow")),
    Bug(forgets_commits_in_doubt, "goes back|was acknowledged", HELD_UP),
    Bug(says_that_all_is_stored, "were acknowledged", HELD_UP),
    Bug(withdraws_no_grant, "all is well", ("client_comes", "client_stands_still")),
    Bug(hears_no_touch, "could be heard for"),
    Bug(tells_of_no_other_owner, "not within|was acknowledged", ("sidecar_crashes",)),
    Bug(holds_requests_for_ever, "longer than it should|waits for its answer", DOWN),
    Bug(forgets_who_waits, "waits for its answer", ALONE),
    Bug(forgets_who_waits_for_a_seat, "waits for its answer", HELD_UP),
]


@dataclass(frozen=True)
class Finding:
    name: str
    seeds: int
    """So many were played."""
    found: str
    """The violation, or what came instead."""
    right: bool
    cpu_s: float


def search(name: str, enough: int = ENOUGH) -> Finding:
    """Play until it is found."""
    bug = next(b for b in PLANTED if b.name == name)
    began, last = time.process_time(), "nothing"
    for seed in range(enough):
        try:
            with Patch.context() as patch:

                def plant(world: World, patch: Patch = patch) -> None:
                    world.often = tuple(bug.often)
                    bug.plant(patch, world)

                play(seed, plant)
        except Violation as exc:
            last = f"seed {seed}: {exc}"
            if re.search(bug.words, str(exc)):
                return Finding(name, seed + 1, last, True, time.process_time() - began)
        except Exception as exc:  # noqa: BLE001 - told with its seed
            last = f"seed {seed}: {exc!r}"
    return Finding(name, enough, last, False, time.process_time() - began)


def main() -> int:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("names", nargs="*")
    ap.add_argument("--jobs", type=int, default=os.cpu_count())
    ap.add_argument("--enough", type=int, default=ENOUGH)
    a = ap.parse_args()
    names = a.names or [b.name for b in PLANTED]
    bad = 0
    for f in spread(partial(search, enough=a.enough), names, a.jobs, each=1):
        bad += not f.right
        seeds = f"{f.seeds}" if f.right else "never"
        print(f"{f.name:38} {seeds:>5} {f.cpu_s:6.1f} s  {f.found[:140]}", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
