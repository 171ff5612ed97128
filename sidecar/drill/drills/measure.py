"""Times of a round, and what they come to over all rounds. All in seconds.

first commit    from the fault to the answer of the first commit that was sent after it and accepted; on the wire
heartbeats      from the fault until each member on the wire had a heartbeat accepted that it sent after it
no commit       the longest time in which no client of the group had a commit acknowledged, from fault to healing
each client     the same for each client by itself; the longest of them
on healing      the longest time without a commit after the fault was healed, until all was well again
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable, Mapping, Sequence

from sidecar.drill.drills.ground import Company
from sidecar.drill.drills.spec import Mark
from sidecar.drill.members import first_after

FIGURES = ("first commit", "heartbeats", "no commit", "each client", "on healing")
Times = dict[str, float]
"""Figure -> seconds."""


def longest_gap(times_ms: Iterable[int], from_ms: int, to_ms: int) -> float:
    """Return the longest time in seconds between two of these moments, or an end of the window, within the window."""
    inside = sorted(t for t in times_ms if from_ms < t < to_ms)
    return max(b - a for a, b in itertools.pairwise([from_ms, *inside, to_ms])) / 1000


def times_of(c: Company, marks: Sequence[Mark], healed_ms: int, end_ms: int) -> Times:
    """Return the figures of one round for one group: of several faults the worst counts."""
    by_client = c.commit_times()
    rows = []
    for mark, end in zip(marks, [*(m.at_ms for m in marks[1:]), healed_ms], strict=True):
        together = [t for times in by_client for t in times]
        commits = [s for m in c.members if (s := first_after(m.commits, mark.at_s)) is not None]
        beats = [s for m in c.members if (s := first_after(m.heartbeats, mark.at_s)) is not None]
        rows.append(
            {
                "first commit": min(commits),
                "heartbeats": max(beats),
                "no commit": longest_gap(together, mark.at_ms, end),
                "each client": max(longest_gap(times, mark.at_ms, end) for times in by_client),
            }
        )
    worst = {name: max(r[name] for r in rows) for name in rows[0]}
    together = [t for times in c.commit_times() for t in times]
    return {**worst, "on healing": longest_gap(together, healed_ms, end_ms)}


def summary(rounds: Sequence[Times]) -> dict[str, dict[str, float]]:
    """Return, by figure, p50, p95 and the maximum over all rounds."""
    out = {}
    for name in FIGURES:
        values = sorted(r[name] for r in rounds)
        p95 = values[min(len(values) - 1, round(0.95 * len(values)))]
        out[name] = {
            "p50": round(statistics.median(values), 3),
            "p95": round(p95, 3),
            "max": round(values[-1], 3),
        }
    return out


def line_of(figures: Mapping[str, Times]) -> str:
    """One round in a line: `figures` by the title of the group."""
    return "; ".join(
        f"{title}: commit {t['first commit']:.2f}, heartbeats {t['heartbeats']:.2f}, "
        f"no commit for {t['no commit']:.2f}, on healing {t['on healing']:.2f} s"
        for title, t in figures.items()
    )
