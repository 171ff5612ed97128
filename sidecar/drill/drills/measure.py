"""Times of a round, and their percentiles over all rounds, in seconds. Each is the longest pause after the fault.

A request that was under way when the owner died gets no answer, so with a killed owner a pause is the time from the
fault to the first answer. An owner that ends in order goes on answering for a moment, and the pause comes later.

first commit   no commit of the members on the wire was accepted: the coordinator's part
all partitions no commit of this partition was acknowledged to a client; the one that waited longest, until all was well
all members    this client had no commit acknowledged, or this member on the wire neither heartbeat nor commit accepted;
               the one that waited longest, until all was well
heartbeats     a member on the wire had no heartbeat accepted; the one that waited longest
no commit      no client of the group had a commit acknowledged: with what unmodified clients add
each client    the same for each client by itself; the one that waited longest
on healing     no client of the group had a commit acknowledged, after the fault was healed and until all was well
joins          no newcomer joined a group, got its partitions and left; only for groups led elsewhere
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable, Mapping, Sequence

from sidecar.drill.drills.group_under_test import GroupUnderTest
from sidecar.drill.drills.spec import Mark
from sidecar.drill.members import Accepted, Member
from sidecar.drill.percentiles import percentile

FIGURES = (
    "first commit",
    "all partitions",
    "all members",
    "heartbeats",
    "no commit",
    "each client",
    "on healing",
    "joins",
)
Span = tuple[float, float]
Times = dict[str, float]
"""Figure -> seconds."""


def longest_pause(times: Iterable[float], start: float, end: float) -> float:
    """Return the longest time between two of these moments, or between one and an end of the window. The unit is that
    of the arguments."""
    inside = sorted(t for t in times if start < t < end)
    return max(b - a for a, b in itertools.pairwise([start, *inside, end]))


def answered(accepted: Sequence[Accepted], since_s: float) -> list[float]:
    """Return the times at which requests sent after `since_s` were accepted."""
    return [done for member in accepted for sent, done in list(member) if sent > since_s]


def after(c: GroupUnderTest, mark: Mark, end: Mark) -> Times:
    """Return the figures of one group for one fault, in the time from `mark` to `end`."""
    by_client = c.commit_times()
    commits = answered([m.commits for m in c.members], mark.at_s)
    pauses = [longest_pause(answered([m.heartbeats], mark.at_s), mark.at_s, end.at_s) for m in c.members]
    return {
        "first commit": longest_pause(commits, mark.at_s, end.at_s),
        "heartbeats": max(pauses),
        "no commit": longest_pause(c.all_commits(), mark.at_ms, end.at_ms) / 1000,
        "each client": max(longest_pause(times, mark.at_ms, end.at_ms) for times in by_client) / 1000,
    }


def everybody(c: GroupUnderTest, mark: Mark, until: Mark) -> Times:
    """Return the figures of one group's slowest partition and member, in the time from `mark` to `until`: the next
    fault, or when all is well. A member may be lost long after the first one is served."""
    wire = [longest_pause(answered([m.heartbeats, m.commits], mark.at_s), mark.at_s, until.at_s) for m in c.members]
    clients = [longest_pause(times, mark.at_ms, until.at_ms) / 1000 for times in c.commit_times()]
    partitions = [longest_pause(times, mark.at_ms, until.at_ms) / 1000 for times in c.partition_commits()]
    return {"all partitions": max(partitions), "all members": max(*wire, *clients)}


def beside(members: Sequence[Member], start: Mark, end: Mark, stood_still: Sequence[Span] = ()) -> Times:
    """Return the figures of bystanders from `start` to `end`: the longest wait of any of them. Times in which the
    members' own loop stood still are left out: no requests were sent then."""

    def pause(accepted: Accepted) -> float:
        inside = sorted(done for _, done in list(accepted) if start.at_s < done < end.at_s)
        pairs = itertools.pairwise([start.at_s, *inside, end.at_s])
        return max(b - a - _common(stood_still, a, b) for a, b in pairs)

    def worst(accepted: Iterable[Accepted]) -> float:
        return max(map(pause, accepted))

    stay, come = [m for m in members if not m.newcomer], [m for m in members if m.newcomer]
    return {
        "first commit": worst(m.commits for m in stay),
        "heartbeats": worst(m.heartbeats for m in stay),
        "joins": worst(m.heartbeats for m in come),
    }


def _common(spans: Sequence[Span], start: float, end: float) -> float:
    """Return how much of these spans lies between `start` and `end`."""
    return sum(max(0.0, min(to, end) - max(since, start)) for since, to in spans)


def times_of(c: GroupUnderTest, marks: Sequence[Mark], healed: Mark, end: Mark, back_before_heal: bool) -> Times:
    """Return the figures of one round for one group: of several faults the worst counts. Where the groups are not
    expected to be served before the fault is healed, its time lasts until the end of the round."""
    ends = [*marks[1:], healed if back_before_heal else end]
    rows = [after(c, mark, until) for mark, until in zip(marks, ends, strict=True)]
    rows += [everybody(c, mark, until) for mark, until in itertools.pairwise([*marks, end])]
    worst = {name: max(r[name] for r in rows if name in r) for name in FIGURES if any(name in r for r in rows)}
    healing = longest_pause(c.all_commits(), healed.at_ms, end.at_ms) / 1000
    return {**worst, "on healing": healing}


def summary(rounds: Sequence[Times]) -> dict[str, dict[str, float]]:
    """Return, by figure, p50, p95 and the maximum over all rounds."""
    out = {}
    for name in [f for f in FIGURES if f in rounds[0]]:
        values = sorted(r[name] for r in rounds)
        out[name] = {
            "p50": round(statistics.median(values), 3),
            "p95": round(percentile(values, 0.95), 3),
            "max": round(values[-1], 3),
        }
    return out


SHORT = {"first commit": "commit", "no commit": "no commit for"}


def line_of(figures: Mapping[str, Times]) -> str:
    """Return the line of one round. `figures`: by the title of the group."""
    return "; ".join(
        f"{title}: " + ", ".join(f"{SHORT.get(name, name)} {t[name]:.2f}" for name in FIGURES if name in t) + " s"
        for title, t in figures.items()
    )
