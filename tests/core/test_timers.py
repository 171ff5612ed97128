"""Timers fire once, in order, and when they are due."""

from __future__ import annotations

from sidecar.core.runtime.timers import SMALL, Timers, TimersBudget


def test_a_deadline_moved_later_fires_late_and_once() -> None:
    t = Timers()
    t.set(("a",), 10)
    t.set(("b",), 20, tag=7)
    t.set(("a",), 30)
    assert t.next_ms() == 20
    assert list(t.expired(25)) == [(("b",), 7)]
    t.set(("a",), 26)
    assert list(t.expired(26)) == [(("a",), 0)]
    assert list(t.expired(100)) == [] and len(t) == 0


def test_a_cancelled_timer_does_not_fire_and_a_shift_gives_time_back() -> None:
    t = Timers()
    t.set(("a",), 10)
    t.set(("b",), 10)
    t.cancel(("a",))
    t.shift(100)
    assert list(t.expired(50)) == []
    assert list(t.expired(110)) == [(("b",), 0)]


def test_what_is_done_about_one_timer_may_move_or_cancel_later_ones() -> None:
    """Symptom: members that waited for a dead leader were removed together with it."""
    t = Timers()
    for name in ("first", "moved", "cancelled", "renewed", "last"):
        t.set((name,), 10)
    seen = []
    for (name,), _ in t.expired(10):
        seen.append(name)
        if name == "cancelled":
            t.set(("moved",), 20)
            t.cancel(("first",))
            t.cancel(("renewed",))
            t.set(("renewed",), 30)
            t.set(("cancelled",), 10)
    assert seen == ["cancelled", "last"], "in order of their names, as they are due at once"
    assert list(t.expired(15)) == [(("cancelled",), 0)], "what is due again at once waits for the next time"
    assert [t.next_ms(), list(t.expired(25)), t.next_ms()] == [20, [(("moved",), 0)], 30]
    assert list(t.expired(100)) == [(("renewed",), 0)] and t.next_ms() is None and len(t) == 0


def test_cancelled_timers_take_no_more_memory_than_those_in_force() -> None:
    """Symptom: each JoinGroup without a member id left an entry in the heap for its session timeout, 30 minutes."""
    t = Timers()
    for n in range(100):
        t.set((f"stays-{n}",), 100 + n, tag=n)
    for n in range(10 * SMALL):
        t.set((f"goes-{n}",), 1_000)
        t.cancel((f"goes-{n}",))
    assert len(t._heap) <= 2 * len(t) + SMALL + 1
    assert [tag for _, tag in t.expired(1_000, TimersBudget(due=100))] == list(range(100)) and len(t) == 0
