"""Columns of members, intervals, unowned time and rebalances.

Rare values have a map of their own, by row: `x` = [from not before, to not before, values missing, start of the
revocation].
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sidecar.audit.page.pack import NONE, Bar, Row, Texts, bar, deltas, duration, numbers, spans

FROM_EXACT, TO_EXACT, CLASSIC = 1, 2, 4
ANEW, SUPERSEDED, PERHAPS, OLD_KIND = 1, 2, 4, 8
Lanes = Sequence[Sequence[Bar]]


def _marks(r: Row) -> int:
    return int(FROM_EXACT * r.from_exact + TO_EXACT * bool(r.to_exact) + CLASSIC * (r.kind == "classic"))


def _seldom(r: Row) -> list[int] | None:
    revoking = getattr(r, "revoking_from_ms", None)
    inexact = not r.from_exact or (r.to_offset is not None and not r.to_exact)
    if not (inexact or r.unseen or revoking is not None):
        return None
    values = (r.from_not_before_offset, r.to_not_before_offset, r.unseen, revoking)
    return [NONE if v is None else v for v in values]


def _in_lanes(lanes: Lanes) -> dict[str, Any]:
    """Packs spans, each lane's number of bars (`n`), and how many rows a bar stands for, if more than one (`many`): its
    other values are the first one's."""
    bars = (b for lane in lanes for b in lane)
    many = {str(k): b.many for k, b in enumerate(bars) if b.many > 1}
    return {**spans(lanes), "n": [len(lane) for lane in lanes], "many": many}


def _held(bars: Sequence[Bar], owners: Mapping[str, int], texts: Texts) -> dict[str, Any]:
    """Packs what members and intervals have: `m`: the number of the owner, `f`: marks."""
    rows = [b.row for b in bars]
    return {
        "m": [owners[r.member_id] for r in rows],
        "f": [_marks(r) for r in rows],
        **texts.spare_of(rows, "from_why", "to_why"),
        "x": {str(k): x for k, b in enumerate(bars) if b.many == 1 and (x := _seldom(b.row))},
    }


def pack_members(rows: Sequence[Row], owners: Mapping[str, int], texts: Texts) -> dict[str, Any]:
    """Packs members, by time. The id of an owner is in the owners."""
    bars = [bar(r) for r in rows]
    return {**spans([bars]), **_held(bars, owners, texts), **texts.of(rows, "client_host", "rack_id")}


def pack_intervals(lanes: Lanes, owners: Mapping[str, int], texts: Texts) -> dict[str, Any]:
    """Packs intervals, by partition and time. `le`: epochs from the first one to the last."""
    bars = [b for lane in lanes for b in lane]
    rows = [b.row for b in bars]
    epochs = {**numbers(rows, "first_epoch"), "le": [r.last_epoch - r.first_epoch for r in rows]}
    return {**_in_lanes(lanes), **_held(bars, owners, texts), **epochs}


def pack_unowned(lanes: Lanes, owners: Mapping[str, int]) -> dict[str, Any]:
    """Packs unowned time like intervals. `m`: the former owner; `to`: the next owner; `q`: 1 if it is only possible."""
    rows = [b.row for lane in lanes for b in lane]
    return {
        **_in_lanes(lanes),
        "m": [owners.get(r.former_member_id, NONE) for r in rows],
        "to": [owners.get(r.member_id, NONE) for r in rows],
        "q": [int(r.grade != "proven") for r in rows],
    }


def _rebalance_marks(r: Row) -> int:
    unsure, old = r.grade != "proven", r.kind == "classic"
    return int(ANEW * r.anew + SUPERSEDED * r.superseded + PERHAPS * unsure + OLD_KIND * old)


def pack_rebalances(rows: Sequence[Row], texts: Texts) -> dict[str, Any]:
    """Packs rebalances, by offset. `target` and `settled`: ms after the start."""
    return {
        "t": deltas(r.from_ms for r in rows),
        "o": deltas(r.from_offset for r in rows),
        "target": [duration(r.from_ms, r.target_ms) for r in rows],
        "settled": [duration(r.from_ms, r.settled_ms) for r in rows],
        "f": [_rebalance_marks(r) for r in rows],
        **numbers(rows, "epoch", "members", "partitions_moved"),
        **texts.of(rows, "cause", "member_id", "assignor", "why"),
    }
