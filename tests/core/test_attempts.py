"""Events of an earlier attempt at a partition change nothing; and what an attempt leaves behind when it fails."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sidecar.core.runtime.commands import Claim, Fence, Stop, Void
from sidecar.core.runtime.lifecycle import FENCED_MS, RETRY_MAX_MS, RETRY_MS
from sidecar.core.runtime.owner import Owner
from sidecar.core.runtime.phases import Phase
from sidecar.core.runtime.turn import Now
from sidecar.core.vocabulary.errors import Code
from tests.core.test_loading import Heir, beat, written

Late = Callable[[Owner, int, Now], None]
LATE: dict[str, Late] = {
    "fenced": lambda owner, attempt, now: owner.lifecycle.fenced(attempt, 9, now),
    "claimed": lambda owner, attempt, now: owner.lifecycle.claimed(attempt, 5, now),
    "replayed": lambda owner, attempt, now: owner.replayed(attempt, now),
    "failed": lambda owner, attempt, now: owner.failed(attempt, "late", False, now),
    "proved": lambda owner, attempt, now: owner.proved(attempt, Now(10**9, 10**9)),
    "renewed": lambda owner, attempt, now: owner.lifecycle.renewed(attempt, 9, now),
    "not renewed": lambda owner, attempt, now: owner.lifecycle.not_renewed(attempt, "late", now),
    "committed": lambda owner, attempt, now: owner.committed(attempt, 1, now),
}
STEPS = {
    Phase.FENCING: 0,
    Phase.CLAIMING: 1,
    Phase.REPLAYING: 2,
    Phase.SERVING: 3,
}


def told(owner: Owner) -> list[object]:
    lifecycle = owner.lifecycle
    fence = lifecycle.owner_epoch, lifecycle.fenced_ms, lifecycle.renew_again_ms, lifecycle.renewing
    return [owner.phase, owner.attempt, owner.shard, owner.lease.proved_until, *fence]


def second_attempt(phase: Phase) -> Heir:
    """The first has failed, and the second has come so far."""
    heir = Heir(written(g=2)[0])
    owner = heir.owner
    heir.service.assigned([1], 1, {1}, heir.now)
    owner.failed(owner.attempt, "trouble", False, heir.now)
    heir.at += RETRY_MAX_MS
    heir.service.wake(heir.now)
    steps: list[Callable[[], None]] = [
        lambda: owner.lifecycle.fenced(owner.attempt, 8, heir.now),
        lambda: owner.lifecycle.claimed(owner.attempt, 3, heir.now),
        lambda: owner.replayed(owner.attempt, heir.now),
    ]
    for step in steps[: STEPS[phase]]:
        step()
    assert owner.phase is phase and owner.attempt == 2
    heir.service.out.clear()
    return heir


@pytest.mark.parametrize("phase", STEPS)
@pytest.mark.parametrize("late", LATE)
def test_what_belongs_to_an_earlier_attempt_changes_nothing(late: str, phase: Phase) -> None:
    heir = second_attempt(phase)
    before = told(heir.owner)
    heir.at += 1
    LATE[late](heir.owner, 1, heir.now)
    assert told(heir.owner) == before and heir.service.out == []


def test_pauses_between_attempts_grow_to_a_limit() -> None:
    heir = Heir(written(g=2)[0])
    heir.service.assigned([1], 1, {1}, heir.now)
    pauses = []
    for _ in range(12):
        heir.owner.failed(heir.owner.attempt, "trouble", False, heir.now)
        began, attempt = heir.at, heir.owner.attempt
        while heir.owner.attempt == attempt:
            heir.at += 10
            heir.service.wake(heir.now)
        pauses.append(heir.at - began)
    assert pauses == sorted(pauses) and pauses[0] == RETRY_MS and pauses[-1] == RETRY_MAX_MS == pauses[-2]
    assert pauses[:4] == [RETRY_MS, 2 * RETRY_MS, 4 * RETRY_MS, 8 * RETRY_MS]


def test_whoever_was_shut_out_waits_for_the_word_who_owns_the_partition() -> None:
    heir = Heir(written(g=2)[0]).take_over()
    heir.owner.failed(heir.owner.attempt, "fenced", True, heir.now)
    heir.at += FENCED_MS - 1
    heir.service.wake(heir.now)
    phases = [heir.owner.phase]
    heir.at += 1
    heir.service.wake(heir.now)
    assert [*phases, heir.owner.phase] == [Phase.PAUSING, Phase.FENCING]


@pytest.mark.parametrize("how", ["a lost write", "a turn that broke", "another owner"])
def test_what_was_granted_is_void_before_anybody_else_can_own_the_partition(how: str) -> None:
    log, clients = written(g=2)
    heir = Heir(log).take_over()
    heir.all()
    heir.ask(1, beat(clients["g"]))
    assert heir.owner.shard is not None and heir.owner.shard.soft["g"].granted
    if how == "a lost write":
        heir.owner.failed(heir.owner.attempt, "lost", False, heir.now)
    elif how == "a turn that broke":
        heir.owner._broken(ValueError("a bug"), heir.now)
    else:
        heir.service.assigned([2], 2, {1, 2}, heir.now)
    out = heir.service.out
    voided = [i for i, c in enumerate(out) if isinstance(c, Void) and "g" in c.groups]
    assert voided and all(not isinstance(c, Fence | Claim) for c in out[: voided[0]])
    assert any(isinstance(c, Stop) for c in out)


def test_a_refused_request_is_counted_as_open_no_more() -> None:
    log, clients = written(g=50)
    heir = Heir(log)
    heir.service.assigned([1], 1, {1}, heir.now)
    heir.service.request(1, beat(clients["g"]), heir.now)
    assert heir.service.tally.open == 1
    heir.at += 10_000
    heir.service.wake(heir.now)
    heir.drive()
    assert heir.replies[1].code == Code.COORDINATOR_LOAD_IN_PROGRESS and heir.service.tally.open == 0


@pytest.mark.parametrize("phase", STEPS)
def test_a_fence_is_renewed_only_while_the_partition_is_served(phase: Phase) -> None:
    heir = second_attempt(phase)
    lifecycle = heir.owner.lifecycle
    lifecycle.renewing = True
    heir.at += 1
    lifecycle.renewed(lifecycle.attempt, 99, heir.now)
    served = phase is Phase.SERVING
    renewed = lifecycle.owner_epoch == 99, lifecycle.fenced_ms == heir.at, not lifecycle.renewing
    assert renewed == (served, served, served)
