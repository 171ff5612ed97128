"""Reconciliation of one member's tasks, sentence by sentence; test_kafka_equal.py has every combination."""

from __future__ import annotations

from sidecar.core.streams.group import Member
from sidecar.core.streams.reconcile import reconcile
from sidecar.core.streams.records import MemberState
from sidecar.core.streams.tasks import NO_TASKS, NOTHING_ASSIGNED, AssignedTasks, Holders, Tasks, merged

OWNER = "m"


def holders(*others: tuple[str, str, AssignedTasks], own: Member | None = None) -> Holders:
    found = Holders()
    for member_id, process_id, tasks in others:
        found.add(member_id, process_id, tasks)
    if own is not None:
        found.add(own.member_id, own.process_id, own.assigned, own.pending)
    return found


def member(
    assigned: AssignedTasks = NOTHING_ASSIGNED,
    pending: AssignedTasks = NOTHING_ASSIGNED,
    state: MemberState = MemberState.STABLE,
    epoch: int = 3,
) -> Member:
    return Member(OWNER, process_id="p", member_epoch=epoch, state=state, assigned=assigned, pending=pending)


def move(m: Member, target: Tasks, owned: Tasks | None = None, others: Holders | None = None, epoch: int = 5) -> Member:
    return reconcile(m, epoch, target, owned, others or holders(own=m))


def active(*partitions: int, epoch: int = 3) -> AssignedTasks:
    return AssignedTasks({"0": dict.fromkeys(partitions, epoch)})


def test_a_member_at_the_target_stays() -> None:
    m = member(active(0), epoch=5)
    assert move(m, NO_TASKS) is m


def test_free_tasks_are_given_at_the_epoch_of_the_target() -> None:
    new = move(member(active(0)), Tasks({"0": (0, 1)}))
    assert new.assigned.active == {"0": {0: 3, 1: 5}}  # what it had keeps its epoch
    assert (new.state, new.member_epoch, new.previous_epoch) == (MemberState.STABLE, 5, 3)


def test_revoke_before_assign() -> None:
    m = member(active(0, 1))
    asked = move(m, Tasks({"0": (1, 2)}))
    assert (asked.state, asked.member_epoch, asked.pending) == (MemberState.UNREVOKED_TASKS, 3, active(0))
    assert asked.assigned == active(1)
    for owned in (None, Tasks({"0": (0, 1)})):  # silence is no revocation
        assert move(asked, Tasks({"0": (1, 2)}), owned) is asked
    done = move(asked, Tasks({"0": (1, 2)}), Tasks({"0": (1,)}))
    assert done.assigned.active == {"0": {1: 3, 2: 5}} and not done.pending and done.member_epoch == 5


def test_a_member_that_owns_nothing_of_it_need_not_revoke() -> None:
    new = move(member(active(0)), NO_TASKS, NO_TASKS)
    assert new.state is MemberState.STABLE and new.member_epoch == 5 and not new.assigned


def test_more_to_revoke_counts_as_an_epoch() -> None:
    """Kafka: the epoch after a revocation is one more, if the next target takes something, too."""
    m = member(active(1), active(0), MemberState.UNREVOKED_TASKS)
    new = move(m, NO_TASKS, Tasks({"0": (1,)}), epoch=9)
    assert (new.member_epoch, new.previous_epoch, new.state) == (4, 3, MemberState.UNREVOKED_TASKS)
    assert new.pending == active(1)


def test_an_active_task_of_anybody_is_waited_for() -> None:
    m = member()
    wanted = Tasks({"0": (0, 1)})
    waiting = move(m, wanted, others=holders(("n", "elsewhere", active(0))))
    assert (waiting.state, waiting.member_epoch) == (MemberState.UNRELEASED_TASKS, 5)
    assert waiting.assigned == active(1, epoch=5)
    assert move(waiting, wanted, others=holders(own=waiting)).assigned == active(0, 1, epoch=5)


def test_a_process_never_has_a_task_twice() -> None:
    """A task is refused whichever member of the process has it, in whatever role; another process may have it, too."""
    for taken in (active(0), AssignedTasks({}, {"0": (0,)}), AssignedTasks({}, {}, {"0": (0,)})):
        for wanted in (Tasks({}, {"0": (0,)}), Tasks({}, {}, {"0": (0,)})):
            assert not move(member(), wanted, others=holders(("n", "p", taken))).assigned
            assert move(member(), wanted, others=holders(("n", "elsewhere", taken))).assigned
    for taken in (AssignedTasks({}, {"0": (0,)}), AssignedTasks({}, {}, {"0": (0,)})):
        assert not move(member(), Tasks({"0": (0,)}), others=holders(("n", "p", taken))).assigned


def test_an_active_task_becomes_a_standby_at_once() -> None:
    new = move(member(active(0)), Tasks({}, {"0": (0,)}))
    assert new.assigned == AssignedTasks({}, {"0": (0,)}) and new.pending == active(0)
    assert new.state is MemberState.UNREVOKED_TASKS


def test_a_warmup_becomes_a_standby_and_back() -> None:
    for had, wanted in (
        (AssignedTasks({}, {}, {"0": (0,)}), Tasks({}, {"0": (0,)})),
        (AssignedTasks({}, {"0": (0,)}), Tasks({}, {}, {"0": (0,)})),
    ):
        new = move(member(had), wanted)
        assert new.assigned.without_epochs() == wanted and new.state is MemberState.STABLE


def test_a_standby_waits_for_its_promotion() -> None:
    m = member(AssignedTasks({}, {"0": (0,)}))
    wanted = Tasks({"0": (0,)})
    waiting = move(m, wanted, others=holders(("n", "q", active(0)), own=m))
    assert waiting.assigned == m.assigned and waiting.state is MemberState.UNRELEASED_TASKS
    assert move(waiting, wanted).assigned == active(0, epoch=5)


def test_a_task_that_it_gives_up_itself_is_waited_for() -> None:
    """A new target wants it back: Kafka gives it with the next heartbeat."""
    m = member(NOTHING_ASSIGNED, active(0), MemberState.UNREVOKED_TASKS)
    released = move(m, Tasks({"0": (0,)}), NO_TASKS)
    assert released.state is MemberState.UNRELEASED_TASKS and not released.assigned
    assert move(released, Tasks({"0": (0,)}), NO_TASKS).assigned == active(0, epoch=5)


def test_lists_of_a_request_are_merged() -> None:
    assert merged([("1", (2, 1)), ("0", ()), ("1", (1, 0))]) == {"1": (0, 1, 2)}
