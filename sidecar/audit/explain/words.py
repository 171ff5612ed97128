"""An explanation as sentences: first the answer, then the facts behind it."""

from __future__ import annotations

from collections.abc import Iterator

from sidecar.audit.explain.model import Explanation, Seen, WhatIf
from sidecar.audit.moments import shown
from sidecar.core.modern.explain import AWAY, BEHIND, GIVES_UP, WAITS
from sidecar.core.runtime.inspect import SETTLED, Wait, listed

EACH = 20
"""Members that are listed one by one; further ones are only counted."""


REASONS = (
    ("session timeout", "it was silent for longer than its session timeout"),
    ("rebalance timeout in epoch", "it did not give up what it had to within its rebalance timeout"),
    ("did not join in time", "it did not join the rebalance within the rebalance timeout"),
    ("did not join again in time", "it did not join again within its rebalance timeout"),
    ("did not sync in time", "it did not sync within the rebalance timeout"),
    ("left", "it left"),
    ("the group is full", "the group is full"),
    ("the group goes back to the broker", "the group goes back to the broker"),
)


def span(ms: int) -> str:
    """Returns a duration in its two largest units, such as `2 min 5 s`; below zero counts as zero."""
    s = max(0, ms) / 1000
    if s < 10:
        return f"{s:.1f} s"
    parts = [(int(s) // 86_400, "d"), (int(s) // 3_600 % 24, "h"), (int(s) // 60 % 60, "min"), (int(s) % 60, "s")]
    amounts = [f"{n} {unit}" for n, unit in parts if n]
    return " ".join(amounts[:2])


def words(e: Explanation, now_ms: int) -> list[str]:
    return [*_head(e, now_ms), *_waits(e, now_ms), *_members(e, now_ms), *_removed(e, now_ms), *e.notes]


def _head(e: Explanation, now_ms: int) -> Iterator[str]:
    is_ = "is not stable" if not e.stable else "is empty" if e.state == "Empty" else "is stable"
    yield f"{e.group} {is_}: {e.meaning} ({e.state} since {_at(e.since_ms, now_ms)})."
    same = e.phases or e.epoch == e.assignment_epoch
    ahead = "" if same else f", the target assignment is of {e.epoch_name} {e.assignment_epoch}"
    epoch = f"{e.epoch_name} {'unknown' if e.epoch is None else e.epoch}{ahead}"
    yield f"It is a {e.kind} group in {epoch}; the {e.assignor_name} is {e.assignor or 'not chosen yet'}."
    if e.because:
        begun = "The last change of its state was" if e.phases else "The last rebalance began because"
        yield f"{begun}: {e.because}."
    c = e.coordinator
    if c is not None:
        yield f"Sidecar {c.node_id} ({c.address}) coordinates it {c.since} {_at(c.since_ms, now_ms)}."


def _waits(e: Explanation, now_ms: int) -> Iterator[str]:
    if not e.waits:
        return
    seen = {s.member: s for s in e.members}
    if e.waits[0].to_do:
        first, waiting = e.waits[0], len({w.member for w in e.waits})
        until = "" if first.until_ms is None else f" {_left(first.until_ms, now_ms)}"
        subject = "1 member waits" if waiting == 1 else f"{waiting} members wait"
        holders = [seen[holder].name for holder in dict.fromkeys(w.holder for w in e.waits)]
        yield f"{subject} for {listed(holders)} {first.to_do} since {_at(first.since_ms, now_ms)}.{until}"
        return
    by_holder: dict[tuple[str, bool], list[Wait]] = {}
    for w in e.waits:
        by_holder.setdefault((w.holder, w.told), []).append(w)
    for (holder, notified), waits in list(by_holder.items())[:EACH]:
        places = [p for w in waits for p in w.partitions]
        subject = listed([seen[w.member].name for w in waits])
        yield (
            f"{subject} {'waits' if len(waits) == 1 else 'wait'} for {seen[holder].name} to give up {listed(places)}. "
            + _holds(seen[holder], notified, waits[0], now_ms)
        )
    if len(by_holder) > EACH:
        yield f"{len(by_holder) - EACH} more members have partitions that others wait for (-o json tells all)."


def _holds(holder: Seen, notified: bool, wait: Wait, now_ms: int) -> str:
    if notified:
        until = "" if wait.until_ms is None else " " + _left(wait.until_ms, now_ms)
        return f"It was told so {_ago(wait.since_ms, now_ms)} ago and has not said yet that it has.{until}"
    if holder.state == AWAY:
        return "It is a static member that left for a while: it comes back, or its session ends."
    return "It is told so with its next heartbeat; if none comes, it is removed when its session ends."


def _left(until_ms: int, now_ms: int) -> str:
    if until_ms > now_ms:
        return f"If it does not within {span(until_ms - now_ms)}, it is removed."
    return f"It should have been removed {span(now_ms - until_ms)} ago: is the sidecar that owns the group alive?"


def _members(e: Explanation, now_ms: int) -> Iterator[str]:
    open_ = [s for s in e.members if s.state != SETTLED]
    settled = len(e.members) - len(open_)
    if e.members:
        yield f"Members: {len(e.members)}, {settled} of them settled."
    order = {state: i for i, state in enumerate((GIVES_UP, WAITS, BEHIND, AWAY))}
    for s in sorted(open_, key=lambda s: order.get(s.state, len(order)))[:EACH]:
        epoch = f", in {e.epoch_name} {s.epoch}"
        if s.state == AWAY:  # its member epoch is the mark of a static member that left
            epoch = ""
        yield f"  {s.name}: {s.state} since {_at(s.since_ms, now_ms)}{epoch}. Next: {s.next}."
    if len(open_) > EACH:
        yield f"  and {len(open_) - EACH} more that are not settled (-o json tells all)."


def reason(why: str) -> str:
    """Returns the reason of a removal as a clause, with the member's own reason for leaving if it gave one."""
    for begin, text in REASONS:
        if why.startswith(begin):
            rest = why[len(begin) :].strip(": ")
            own_reason = rest and rest != "not provided" and begin == "left"
            return f"{text}: {rest}" if own_reason else text
    return why or "no reason is recorded"


def _removed(e: Explanation, now_ms: int) -> Iterator[str]:
    if e.removed:
        yield "Gone:"
    for r in e.removed:
        name = f"{r.member} ({r.client})" if r.client and r.client not in r.member else r.member
        yield f"  {name}, {_ago(r.at_ms, now_ms)} ago: {reason(r.why)}."


def if_words(w: WhatIf) -> list[str]:
    """Returns the outcome of a dry run as sentences."""
    changes = [f"{m} left" for m in w.leaves] + ([f"{_count(w.joins, 'new member')} joined"] if w.joins else [])
    condition = " and ".join(changes)
    if w.note:
        return [f"If {condition}: {w.note}"]
    caused = [m for m in w.moves if not m.anyway]
    by = f" by {w.assignor}" if w.assignor else ""
    stay = "1 would stay where it is" if w.kept == 1 else f"{w.kept} would stay where they are"
    out = [f"If {condition}, {_count(len(caused), 'partition')} would move{by}, and {stay}."]
    if len(w.moves) > len(caused):
        out.append(f"{len(w.moves) - len(caused)} more would move in any case.")
    out += [f"  {m.partition}: {m.holder or 'nobody'} -> {m.to or 'nobody'}" for m in caused]
    return out


def _count(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def _ago(ms: int, now_ms: int) -> str:
    return span(now_ms - ms)


def _at(ms: int, now_ms: int) -> str:
    return f"{shown(ms)}, {_ago(ms, now_ms)} ago" if ms else "nobody knows when"
