"""Times of drills: what counts as a pause, and from when to when."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from sidecar.drill.clients import Client
from sidecar.drill.drills.group_under_test import PARTITIONS, GroupUnderTest
from sidecar.drill.drills.measure import FIGURES, beside, longest_pause, summary, times_of
from sidecar.drill.drills.spec import Mark
from sidecar.drill.members import LATE_S, LOOK_S, PATIENCE_S, Member, Members
from sidecar.drill.percentiles import percentile
from sidecar.drill.processes import Process, wait_until
from sidecar.wire.primitives import WireError

FAULT, HEALED, END = Mark(10, 10_000, "fault"), Mark(15, 15_000, "healed"), Mark(20, 20_000, "well")


def under_test(tmp_path: Any, commits_ms: list[int], accepted: list[tuple[float, float]]) -> GroupUnderTest:
    client = Client("a", Process("a", ["true"], tmp_path / "a"), tmp_path / "a.events")
    client.journal.commit_log = [(at, 0, i) for i, at in enumerate(commits_ms)]
    member = Member("g-m0", "consumer", [], "t")
    member.heartbeats = member.commits = accepted
    return GroupUnderTest("sidecar", "consumer", "g", "", [client], [member])


def test_the_longest_pause_includes_the_ends_of_the_window() -> None:
    assert longest_pause([1, 2, 3], 0, 10) == 7
    assert longest_pause([], 0, 10) == 10
    assert longest_pause([-5, 4, 50], 0, 10) == 6


def test_the_time_from_the_fault_to_the_first_answer(tmp_path: Any) -> None:
    c = under_test(
        tmp_path, [9_900, *range(11_000, 20_000, 100)], [(9.9, 10.1), *((t, t + 0.1) for t in range(12, 20))]
    )
    times = times_of(c, [FAULT], HEALED, END, back_before_heal=True)
    assert times["first commit"] == pytest.approx(2.1), "an answer to what was sent before the fault does not count"
    assert times["no commit"] == 1.0
    assert times["on healing"] == pytest.approx(0.1)


def test_where_nobody_is_served_before_the_healing_the_pause_goes_on(tmp_path: Any) -> None:
    c = under_test(tmp_path, [9_900, *range(17_000, 20_000, 100)], [(18, 18.5)])
    assert times_of(c, [FAULT], HEALED, END, back_before_heal=False)["no commit"] == 7.0
    assert times_of(c, [FAULT], HEALED, END, back_before_heal=True)["no commit"] == 5.0


def test_of_several_faults_the_worst_counts(tmp_path: Any) -> None:
    c = under_test(tmp_path, [10_100, 11_900, 12_100, *range(12_200, 20_000, 100)], [(10.1, 10.2), (12.1, 12.2)])
    marks = [FAULT, Mark(12, 12_000, "the next one")]
    assert times_of(c, marks, HEALED, END, back_before_heal=True)["no commit"] == pytest.approx(1.8)


def on_all(c: GroupUnderTest, *at_ms: int) -> None:
    c.clients[0].journal.commit_log = [(at, p, i) for i, at in enumerate(at_ms) for p in range(PARTITIONS)]


def test_the_partition_that_waits_longest_counts_also_after_the_healing(tmp_path: Any) -> None:
    c = under_test(tmp_path, [], [(t, t + 0.1) for t in range(8, 20)])
    on_all(c, 9_900, 10_200, 19_000)
    times = times_of(c, [FAULT], HEALED, END, back_before_heal=True)
    assert times["all partitions"] == 8.8
    c.clients[0].journal.commit_log += [(at, p, 9) for at in range(10_300, 20_000, 100) for p in range(1, PARTITIONS)]
    times = times_of(c, [FAULT], HEALED, END, back_before_heal=True)
    assert times["all partitions"] == 8.8, "partition 0 alone"
    assert times["no commit"] == 0.2 and times["on healing"] == 0.1, "the group as a whole is served"


def test_the_member_that_waits_longest_counts_also_after_the_healing(tmp_path: Any) -> None:
    c = under_test(tmp_path, [], [(t / 10, t / 10) for t in range(90, 200)])
    on_all(c, *range(9_000, 20_000, 100))
    assert times_of(c, [FAULT], HEALED, END, back_before_heal=True)["all members"] == pytest.approx(0.1)
    lost = Member("g-m1", "consumer", [], "t")
    lost.heartbeats, lost.commits = [(11, 11.1), (19.3, 19.4)], [(13, 13.2)]
    c.members.append(lost)
    assert times_of(c, [FAULT], HEALED, END, back_before_heal=True)["all members"] == pytest.approx(6.2)
    late = Client("b", Process("b", ["true"], tmp_path / "b"), tmp_path / "b.events")
    late.journal.commit_log = [(17_000, 0, 1)]
    c.clients.append(late)
    assert times_of(c, [FAULT], HEALED, END, back_before_heal=True)["all members"] == 7.0


def test_a_group_is_well_when_all_its_partitions_have_a_commit(tmp_path: Any) -> None:
    c = under_test(tmp_path, [], [])
    on_all(c, 9_900, 11_000)
    assert c.all_committed_since(10_000) and not c.all_committed_since(11_000)
    c.clients[0].journal.commit_log.remove((11_000, 3, 1))
    assert not c.all_committed_since(10_000)


def test_percentiles_over_rounds() -> None:
    names = [name for name in FIGURES if name != "joins"]
    rounds = [dict.fromkeys(names, float(i)) for i in range(1, 21)]
    assert summary(rounds)["heartbeats"] == {"p50": 10.5, "p95": 19.0, "max": 20.0}


@pytest.mark.parametrize("n", [1, 2, 10, 19, 20, 21, 50, 100, 1_000])
@pytest.mark.parametrize("percent", [50, 95, 99, 100])
def test_a_percentile_is_the_lowest_value_that_so_many_do_not_exceed(n: int, percent: int) -> None:
    """Symptom: of 20 and of 50 rounds p95 was one rank too high, of 20 the maximum."""
    values = list(range(n, 0, -1))
    enough = [v for v in values if 100 * sum(w <= v for w in values) >= percent * n]
    assert percentile(values, percent / 100) == min(enough)


def test_bystanders_are_not_blamed_for_the_time_in_which_nobody_asked_them() -> None:
    """Symptom: on a busy machine heartbeats elsewhere stopped for 1.55 and 1.79 s. The members' own loop had stood
    still, as had that of Kafka's members."""
    stays, comes = (Member("g", "consumer", [], "t", newcomer) for newcomer in (False, True))
    for one in (stays, comes):
        one.heartbeats = one.commits = [(t, t + 0.1) for t in (10.0, 11.0, 14.0, 15.0, 16.0, 17.0, 18.0, 19.0)]
    assert beside([stays, comes], FAULT, END)["heartbeats"] == pytest.approx(3.0)
    assert beside([stays, comes], FAULT, END, [(9.0, 10.05), (11.5, 13.9)])["heartbeats"] == pytest.approx(1.0)
    assert beside([stays, comes], FAULT, END, [(11.5, 12.0)])["heartbeats"] == pytest.approx(2.5)


class Busy(Member):
    """A member that blocks the loop for a while."""

    async def run(self, stopped: Callable[[], bool]) -> None:
        end_s = time.monotonic() + LOOK_S + 2 * LATE_S
        while time.monotonic() < end_s:
            pass


def test_members_know_when_their_loop_stood_still() -> None:
    crew = Members([Busy("g", "consumer", [], "t")]).start()
    try:
        wait_until("it to be seen", lambda: bool(crew.stood_still), 60)
    finally:
        crew.stop()
    ((since, to),) = crew.stood_still[:1]
    assert to - since > LATE_S and crew.failed is None


class Astonished(Member):
    """A member whose coordinator gives an answer that this client has no words for, or that it cannot read."""

    error: Exception = IndexError("no topic in the answer")

    async def _coordinator(self) -> Any:
        return SimpleNamespace(closed=False, close=lambda: None)

    async def _heartbeat(self, conn: Any) -> int:
        raise self.error

    _commit = _heartbeat


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("patience_s", [PATIENCE_S, 0.0], ids=["in time", "late"])
@pytest.mark.parametrize("error", [Astonished.error, WireError("no topic in the answer")], ids=repr)
def test_an_answer_that_astonishes_a_member_fails_the_drill(
    error: Exception, patience_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Symptom: nobody looked at the exception of a request, and the member went on asking."""
    monkeypatch.setattr("sidecar.drill.members.PATIENCE_S", patience_s)
    monkeypatch.setattr(Astonished, "error", error)
    crew = Members([Astonished("g", "consumer", [], "t")]).start()
    try:
        wait_until("the failure", lambda: crew.failed is not None, 60)
    finally:
        crew.stop()
    assert "no topic in the answer" in repr(crew.failed)
