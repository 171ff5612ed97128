"""Events of an earlier attempt at a partition change nothing; and what an attempt leaves behind when it fails."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sidecar.core.runtime.commands import Claim, Fence, Stop, Void
from sidecar.core.runtime.lifecycle import REBUILD_MS, RETRY_MAX_MS, RETRY_MS, Lifecycle
from sidecar.core.runtime.owner import Owner
from sidecar.core.runtime.phases import Phase
from sidecar.core.runtime.turn import Now
from sidecar.core.vocabulary.errors import Code
from tests.core.test_loading import NewOwner, beat, written

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


def state_of(owner: Owner) -> list[object]:
    lifecycle = owner.lifecycle
    fence = lifecycle.owner_epoch, lifecycle.fenced_ms, lifecycle.renew_again_ms, lifecycle.renewing
    return [owner.phase, owner.attempt, owner.shard, owner.lease.proved_until, *fence]


def second_attempt(phase: Phase) -> NewOwner:
    """Returns an owner whose first attempt failed and whose second one has reached `phase`."""
    new_owner = NewOwner(written(g=2)[0])
    owner = new_owner.owner
    new_owner.service.assigned([1], 1, {1}, new_owner.now)
    owner.failed(owner.attempt, "trouble", False, new_owner.now)
    new_owner.at += RETRY_MAX_MS
    new_owner.service.wake(new_owner.now)
    steps: list[Callable[[], None]] = [
        lambda: owner.lifecycle.fenced(owner.attempt, 8, new_owner.now),
        lambda: owner.lifecycle.claimed(owner.attempt, 3, new_owner.now),
        lambda: owner.replayed(owner.attempt, new_owner.now),
    ]
    for step in steps[: STEPS[phase]]:
        step()
    assert owner.phase is phase and owner.attempt == 2
    new_owner.service.out.clear()
    return new_owner


@pytest.mark.parametrize("phase", STEPS)
@pytest.mark.parametrize("late", LATE)
def test_what_belongs_to_an_earlier_attempt_changes_nothing(late: str, phase: Phase) -> None:
    new_owner = second_attempt(phase)
    before = state_of(new_owner.owner)
    new_owner.at += 1
    LATE[late](new_owner.owner, 1, new_owner.now)
    assert state_of(new_owner.owner) == before and new_owner.service.out == []


@pytest.mark.parametrize("phase", STEPS)
def test_after_a_missed_map_a_takeover_begins_anew_and_what_is_served_is_kept(phase: Phase) -> None:
    """The confirmation that an attempt under way has of its map may be older than the map that was missed."""
    new_owner = second_attempt(phase)
    new_owner.service.map_missed()
    new_owner.service.assigned([1], 4, {1}, new_owner.now)
    kept = (Phase.SERVING, 2)
    assert (new_owner.owner.phase, new_owner.owner.attempt) == (kept if phase is Phase.SERVING else (Phase.FENCING, 3))


def test_pauses_between_attempts_grow_to_a_limit() -> None:
    new_owner = NewOwner(written(g=2)[0])
    new_owner.service.assigned([1], 1, {1}, new_owner.now)
    pauses = []
    for _ in range(12):
        new_owner.owner.failed(new_owner.owner.attempt, "trouble", False, new_owner.now)
        began, attempt = new_owner.at, new_owner.owner.attempt
        while new_owner.owner.attempt == attempt:
            new_owner.at += 10
            new_owner.service.wake(new_owner.now)
        pauses.append(new_owner.at - began)
    assert pauses == sorted(pauses) and pauses[0] == RETRY_MS and pauses[-1] == RETRY_MAX_MS == pauses[-2]
    assert pauses[:4] == [RETRY_MS, 2 * RETRY_MS, 4 * RETRY_MS, 8 * RETRY_MS]


def test_an_attempt_after_a_failed_one_fences_only_with_a_confirmed_map() -> None:
    """A newer map may name the sidecar that has shut this one out."""
    new_owner = NewOwner(written(g=2)[0])
    new_owner.service.assigned([1], 1, {1}, new_owner.now)
    fences = [c for c in new_owner.service.out if isinstance(c, Fence)]
    new_owner.drive()
    new_owner.owner.failed(new_owner.owner.attempt, "fenced", True, new_owner.now)
    new_owner.at += REBUILD_MS
    new_owner.service.wake(new_owner.now)
    fences += [c for c in new_owner.service.out if isinstance(c, Fence)]
    assert [f.again for f in fences] == [False, True]


@pytest.mark.parametrize("how", ["a lost write", "a turn that broke", "another owner"])
def test_what_was_granted_is_void_before_anybody_else_can_own_the_partition(how: str) -> None:
    log, clients = written(g=2)
    new_owner = NewOwner(log).take_over()
    new_owner.all()
    new_owner.ask(1, beat(clients["g"]))
    assert new_owner.owner.shard is not None and new_owner.owner.shard.soft["g"].granted
    if how == "a lost write":
        new_owner.owner.failed(new_owner.owner.attempt, "lost", False, new_owner.now)
    elif how == "a turn that broke":
        new_owner.owner._broken(ValueError("a bug"), new_owner.now)
    else:
        new_owner.service.assigned([2], 2, {1, 2}, new_owner.now)
    out = new_owner.service.out
    voided = [i for i, c in enumerate(out) if isinstance(c, Void) and "g" in c.groups]
    assert voided and all(not isinstance(c, Fence | Claim) for c in out[: voided[0]])
    assert any(isinstance(c, Stop) for c in out)


def test_a_refused_request_is_counted_as_open_no_more() -> None:
    log, clients = written(g=50)
    new_owner = NewOwner(log)
    new_owner.service.assigned([1], 1, {1}, new_owner.now)
    new_owner.service.request(1, beat(clients["g"]), new_owner.now)
    assert new_owner.service.tally.open == 1
    new_owner.at += 10_000
    new_owner.service.wake(new_owner.now)
    new_owner.drive()
    assert new_owner.replies[1].code == Code.COORDINATOR_LOAD_IN_PROGRESS and new_owner.service.tally.open == 0


@pytest.mark.parametrize("phase", STEPS)
def test_a_fence_is_renewed_only_while_the_partition_is_served(phase: Phase) -> None:
    new_owner = second_attempt(phase)
    lifecycle = new_owner.owner.lifecycle
    lifecycle.renewing = True
    new_owner.at += 1
    lifecycle.renewed(lifecycle.attempt, 99, new_owner.now)
    served = phase is Phase.SERVING
    renewed = lifecycle.owner_epoch == 99, lifecycle.fenced_ms == new_owner.at, not lifecycle.renewing
    assert renewed == (served, served, served)


def test_a_partition_that_was_served_begins_its_next_takeover_without_a_long_pause() -> None:
    """Symptom: after one long outage the first failed attempt of each later one, perhaps weeks later, was followed by a
    pause of two seconds."""
    one = Lifecycle(0, [])
    now = Now(0, 0)
    one.assigned(now, "assigned")
    for _ in range(2):
        for _ in range(8):
            one.failed(one.attempt, "no coordinator", False, now)
            now = Now(now.mono_ms + RETRY_MAX_MS, 0)
            one.wake(now)
        one.fenced(one.attempt, 1, now)
        one.claimed(one.attempt, 0, now)
        assert one.replayed(one.attempt, now)
        one.failed(one.attempt, "fenced", True, now)
        now = Now(now.mono_ms + REBUILD_MS, 0)
        one.wake(now)
        attempt = one.attempt
        one.failed(attempt, "no coordinator", False, now)
        one.wake(now := Now(now.mono_ms + RETRY_MS, 0))
        assert one.attempt == attempt + 1
