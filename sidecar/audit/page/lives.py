"""Columns of spans: members, intervals, unowned time, rebalances. `t`: starts, `d`: lengths, `o` and `e`: offsets.

Rare values have a map of their own, by row: `x` = [from not before, to not before, values missing, start of the
revocation].
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sidecar.audit.page.pack import NONE, Bar, Rows, Texts, deltas, duration

FROM_EXACT, TO_EXACT, CLASSIC = 1, 2, 4
ANEW, SUPERSEDED, PERHAPS, OPEN, OLD_KIND = 1, 2, 4, 8, 16
CAUSES = ("joined", "changed", "left", "other")


def _marks(t: Rows, n: int) -> int:
    begin, end, classic = bool(t["from_exact"][n]), bool(t["to_exact"][n]), t["kind"][n] == "classic"
    return FROM_EXACT * begin + TO_EXACT * end + CLASSIC * int(classic)


def _seldom(t: Rows, n: int) -> list[int] | None:
    revoking = t["revoking_from_ms"][n] if "revoking_from_ms" in t.columns else None
    unseen = t["unseen"][n]
    inexact = not t["from_exact"][n] or (t["to_offset"][n] is not None and not t["to_exact"][n])
    if not (inexact or unseen or revoking is not None):
        return None
    values = (t["from_not_before_offset"][n], t["to_not_before_offset"][n], unseen, revoking)
    return [NONE if v is None else v for v in values]


def _spans(t: Rows, lanes: Sequence[Sequence[Bar]]) -> dict[str, Any]:
    """Packs bars, by lane and time; differences restart at each lane."""
    bars = [bar for lane in lanes for bar in lane]
    return {
        "t": [v for lane in lanes for v in deltas(b.begin for b in lane)],
        "d": [duration(b.begin, b.end) for b in bars],
        "o": [v for lane in lanes for v in deltas(t["from_offset"][b.row] for b in lane)],
        "e": [duration(t["from_offset"][b.row], t["to_offset"][b.row]) for b in bars],
    }


def _in_lanes(lanes: Sequence[Sequence[Bar]]) -> dict[str, Any]:
    """Packs each lane's number of bars (`n`), and how many rows a bar stands for, if more than one (`many`): its other
    values are the first one's."""
    bars = (bar for lane in lanes for bar in lane)
    return {"n": [len(lane) for lane in lanes], "many": {str(k): b.many for k, b in enumerate(bars) if b.many > 1}}


def _held(t: Rows, bars: Sequence[Bar], owners: Mapping[str, int], texts: Texts) -> dict[str, Any]:
    """Packs what members and intervals have: `m`: the number of the owner, `f`: marks, `w` and `v`: reasons."""
    return {
        "m": [owners[t["member_id"][b.row]] for b in bars],
        "f": [_marks(t, b.row) for b in bars],
        "w": [texts.spare(t["from_why"][b.row]) for b in bars],
        "v": [texts.spare(t["to_why"][b.row]) for b in bars],
        "x": {str(k): x for k, b in enumerate(bars) if b.many == 1 and (x := _seldom(t, b.row))},
    }


def lives(t: Rows, picked: Sequence[int], owners: Mapping[str, int], texts: Texts) -> dict[str, Any]:
    """Packs members, by time. The id of an owner is in the owners."""
    bars = [Bar(t["from_ms"][n], t["to_ms"][n], n) for n in picked]
    return {
        **_spans(t, [bars]),
        **_held(t, bars, owners, texts),
        "host": [texts(t["client_host"][n]) for n in picked],
        "rack": [texts(t["rack_id"][n]) for n in picked],
    }


def pack_intervals(t: Rows, lanes: Sequence[Sequence[Bar]], owners: Mapping[str, int], texts: Texts) -> dict[str, Any]:
    """Packs intervals, by partition and time."""
    bars = [bar for lane in lanes for bar in lane]
    return {
        **_spans(t, lanes),
        **_in_lanes(lanes),
        **_held(t, bars, owners, texts),
        "ep": [t["first_epoch"][b.row] for b in bars],
        "le": [t["last_epoch"][b.row] - t["first_epoch"][b.row] for b in bars],
    }


def pack_unowned(t: Rows, lanes: Sequence[Sequence[Bar]], owners: Mapping[str, int]) -> dict[str, Any]:
    """Packs unowned time like intervals. `m`: the former owner; `to`: the next owner; `q`: 1 if it is only possible."""
    first = [bar.row for lane in lanes for bar in lane]
    return {
        **_spans(t, lanes),
        **_in_lanes(lanes),
        "m": [owners.get(t["former_member_id"][n], NONE) for n in first],
        "to": [owners.get(t["member_id"][n] or "", NONE) for n in first],
        "q": [int(t["grade"][n] != "proven") for n in first],
    }


def pack_rebalances(t: Rows, picked: Sequence[int], texts: Texts) -> dict[str, Any]:
    """Packs rebalances, by offset. `target` and `settled`: ms after the start."""

    def marks(n: int) -> int:
        sure, old = t["grade"][n] == "proven", t["kind"][n] == "classic"
        known = ANEW * bool(t["anew"][n]) + SUPERSEDED * bool(t["superseded"][n]) + OPEN * bool(t["open"][n])
        return known + PERHAPS * int(not sure) + OLD_KIND * int(old)

    def count(value: int | None) -> int:
        return NONE if value is None else value

    return {
        "t": deltas(t["from_ms"][n] for n in picked),
        "o": deltas(t["from_offset"][n] for n in picked),
        "epoch": [t["epoch"][n] for n in picked],
        "cause": [CAUSES.index(t["cause"][n]) if t["cause"][n] in CAUSES else 3 for n in picked],
        "member": [texts(t["member_id"][n]) for n in picked],
        "members": [t["members"][n] for n in picked],
        "target": [duration(t["from_ms"][n], t["target_ms"][n]) for n in picked],
        "settled": [duration(t["from_ms"][n], t["settled_ms"][n]) for n in picked],
        "moved": [count(t["partitions_moved"][n]) for n in picked],
        "assignor": [texts(t["assignor"][n]) for n in picked],
        "f": [marks(n) for n in picked],
        "why": [texts(t["why"][n]) for n in picked],
    }
