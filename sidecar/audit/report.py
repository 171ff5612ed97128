"""A self-contained HTML page that opens offline: who owned each partition when, who coordinated, what was done to it."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from sidecar.audit.job import Audit

WIDTH, LEFT, RIGHT, ROW, TOP, LANES = 1120, 120, 20, 26, 46, 3
COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bb5566", "#004488", "#997700", "#44aa99")
OWNER_COLOURS = ("#dbe7f3", "#fbe3e6", "#dff0e2", "#f6f1d6", "#dff4fb", "#f3dfea")
STYLE = """
:root{color-scheme:light}body{font:14px/1.45 system-ui,sans-serif;margin:32px auto;max-width:1160px;color:#1d2733;padding:0 16px}
h1{font-size:22px;margin:0 0 4px}h2{font-size:16px;margin:32px 0 8px}.sub{color:#5a6a7a;margin:0 0 20px}
.cards{display:flex;gap:12px;flex-wrap:wrap}.card{border:1px solid #d5dde5;border-radius:8px;padding:10px 16px;min-width:120px}
.card b{display:block;font-size:22px}.good b{color:#1b7a3d}.bad b{color:#b3261e}.card span{color:#5a6a7a;font-size:12px}
table{border-collapse:collapse;font-size:12.5px;width:100%}th{text-align:left;color:#5a6a7a;font-weight:600;border-bottom:1px solid #c3ccd5}
td,th{padding:3px 10px 3px 0;white-space:nowrap}td{border-bottom:1px solid #eef1f4}td.w{white-space:normal}.mono{font-family:ui-monospace,monospace}
.legend{display:flex;gap:16px;flex-wrap:wrap;margin:6px 0 0;font-size:12.5px}.legend i{display:inline-block;width:12px;height:12px;border-radius:2px;margin-right:5px;vertical-align:-1px}
svg{width:100%;height:auto}details summary{cursor:pointer;color:#33557a}
"""


@dataclass(frozen=True)
class Mark:
    """Something that was done at a time: a fault, or a client that came or went."""

    time_ms: int
    label: str
    fault: bool = False


def _esc(value: object) -> str:
    return html.escape(str(value))


def _clock(ms: int | None) -> str:
    return "" if ms is None else datetime.fromtimestamp(ms / 1000, UTC).strftime("%H:%M:%S.%f")[:-3]


class _Axis:
    def __init__(self, start_ms: int, end_ms: int) -> None:
        self.start_ms, self.end_ms = start_ms, max(end_ms, start_ms + 1000)

    def x(self, ms: int) -> float:
        ms = min(max(ms, self.start_ms), self.end_ms)
        return LEFT + (WIDTH - LEFT - RIGHT) * (ms - self.start_ms) / (self.end_ms - self.start_ms)

    def ticks(self) -> list[int]:
        span = self.end_ms - self.start_ms
        step = next(
            s for s in (500, 1000, 2000, 5000, 10_000, 30_000, 60_000, 300_000, 3_600_000, 10**12) if span / s <= 14
        )
        return list(range(0, span + 1, step))


def gantt(audit: Audit, group: str, marks: Sequence[Mark], end_ms: int) -> str:
    """Draw the SVG: the owner sidecar on top, a row for each partition of each topic, and marks through all rows."""
    rows = [i for i in audit.intervals if i["group_id"] == group]
    if not rows:
        return f"<p>No member of {_esc(group)} ever owned a partition.</p>"
    places = sorted({(i["topic"], i["partition"]) for i in rows})
    start = min([i["from_ms"] for i in rows] + [m.time_ms for m in marks])
    axis = _Axis(start, end_ms)
    members = list(dict.fromkeys(i["member_id"] for i in rows))
    colour = {m: COLOURS[n % len(COLOURS)] for n, m in enumerate(members)}
    name = {i["member_id"]: i["client_id"] or i["member_id"] for i in rows}
    height = TOP + ROW * (len(places) + 1) + 20 + 16 * LANES
    bottom = TOP + ROW * (len(places) + 1)
    out = [f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="Ownership of each partition over time">']
    for t in axis.ticks():
        x = axis.x(start + t)
        out.append(f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{bottom}" stroke="#e6ebf0"/>')
        out.append(
            f'<text x="{x:.1f}" y="{TOP - 8}" font-size="11" fill="#5a6a7a" text-anchor="middle">{t / 1000:g} s</text>'
        )
    out += _owners(audit, rows[0]["state_partition"], axis)
    for n, place in enumerate(places):
        y = TOP + ROW * (n + 1)
        out.append(
            f'<text x="{LEFT - 8}" y="{y + 17}" font-size="12" text-anchor="end" fill="#1d2733">{_esc(place[0])}-{place[1]}</text>'
        )
        for i in rows:
            if (i["topic"], i["partition"]) != place:
                continue
            x1, x2 = axis.x(i["from_ms"]), axis.x(i["to_ms"] or end_ms)
            told = f"{name[i['member_id']]}: {_clock(i['from_ms'])} to {_clock(i['to_ms']) or 'now'}; {i['from_why']}"
            out.append(
                f'<rect x="{x1:.1f}" y="{y + 4}" width="{max(x2 - x1, 1):.1f}" height="{ROW - 8}" rx="2" '
                f'fill="{colour[i["member_id"]]}"><title>{_esc(told)}</title></rect>'
            )
    out += _marks(marks, axis, bottom)
    out.append("</svg>")
    legend = "".join(f'<span><i style="background:{colour[m]}"></i>{_esc(name[m])}</span>' for m in members)
    return "".join(out) + f'<div class="legend">{legend}</div>'


def _owners(audit: Audit, state_partition: int, axis: _Axis) -> list[str]:
    """Draw the row of owner sidecars, coloured by node, with a line where the owner changed."""
    out = [
        f'<text x="{LEFT - 8}" y="{TOP + 17}" font-size="12" text-anchor="end" font-weight="600" fill="#1d2733">coordinator</text>'
    ]
    claims = [c for c in audit.claims if c["state_partition"] == state_partition]
    for c in claims:
        end = c["to_ms"] if c["to_ms"] is not None else axis.end_ms
        if end < axis.start_ms:
            continue
        x1, x2 = axis.x(c["from_ms"]), axis.x(end)
        fill = OWNER_COLOURS[c["node_id"] % len(OWNER_COLOURS)]
        told = f"sidecar {c['node_id']} from {_clock(c['from_ms'])}, owner epoch {c['owner_epoch']}: {c['why']}"
        out.append(
            f'<rect x="{x1:.1f}" y="{TOP + 2}" width="{max(x2 - x1, 1):.1f}" height="{ROW - 4}" fill="{fill}" '
            f'stroke="#9fb0c0"><title>{_esc(told)}</title></rect>'
        )
        if x2 - x1 > 60:
            out.append(
                f'<text x="{(x1 + x2) / 2:.1f}" y="{TOP + 17}" font-size="11.5" text-anchor="middle" fill="#33404d">sidecar {c["node_id"]}</text>'
            )
    return out


def _marks(marks: Sequence[Mark], axis: _Axis, bottom: int) -> list[str]:
    """Draw each mark as a line through all rows, with its label below in the first lane where it hides no other."""
    out = []
    lanes: list[list[tuple[float, float]]] = [[] for _ in range(LANES)]
    for m in sorted(marks, key=lambda m: m.time_ms):
        x = axis.x(m.time_ms)
        width = 6.4 * len(m.label) + 10
        flip = x + width > WIDTH
        span = (x - width, x) if flip else (x, x + width)
        lane = next((n for n, taken in enumerate(lanes) if all(span[1] < a or span[0] > b for a, b in taken)), 0)
        lanes[lane].append(span)
        colour = "#b3261e" if m.fault else "#5a6a7a"
        dash = "" if m.fault else ' stroke-dasharray="3 3"'
        y = bottom + 16 + 16 * lane
        out.append(
            f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{y - 4}" stroke="{colour}" stroke-width="1.4"{dash}/>'
        )
        anchor, dx = ("end", -4) if flip else ("start", 4)
        out.append(
            f'<text x="{x + dx:.1f}" y="{y}" font-size="11.5" fill="{colour}" text-anchor="{anchor}">{_esc(m.label)}</text>'
        )
    return out


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    top = "".join(f"<th>{_esc(h)}</th>" for h in head)
    body = "".join("<tr>" + "".join(f"<td>{_esc(c)}</td>" for c in r) + "</tr>" for r in rows)
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def _stale_claims(audit: Audit, group: str) -> str:
    """What members of a classic group said that they owned, and others had. Nothing if there is nothing to say."""
    rows = [
        (
            _clock(c["time_ms"]),
            c["client_id"] or c["member_id"],
            f"{c['topic']}: {', '.join(map(str, c['partitions']))}",
            c["generation"] if c["generation"] >= 0 else "not said",
            c["holder"] or "nobody",
        )
        for c in audit.stale_claims
        if c["group_id"] == group
    ]
    head = ("time", "client", "partitions", "got in generation", "whose they were")
    return f"<h2>Stale claims</h2>{_table(head, rows)}" if rows else ""


def render(
    audit: Audit,
    group: str,
    marks: Sequence[Mark],
    end_ms: int,
    cards: Sequence[tuple[str, object, bool | None]],
    title: str,
) -> str:
    """Render the page. A card is (label, value, good); a `good` of None is neutral."""
    boxes = "".join(
        f'<div class="card {"" if ok is None else "good" if ok else "bad"}"><b>{_esc(v)}</b><span>{_esc(label)}</span></div>'
        for label, v, ok in cards
    )
    mine = [i for i in audit.intervals if i["group_id"] == group]
    told = [e for e in audit.epochs if e["group_id"] == group]
    partition = next((r["state_partition"] for r in (*mine, *told)), -1)
    intervals = [
        (
            f"{i['topic']}-{i['partition']}",
            i["client_id"],
            i["member_epoch"],
            _clock(i["from_ms"]),
            _clock(i["to_ms"]),
            i["from_why"],
            i["to_why"] or "",
        )
        for i in sorted(mine, key=lambda i: (i["topic"], i["partition"], i["from_ms"], i["from_offset"]))
    ]
    epochs = [(e["epoch"], e["state"] or "", _clock(e["time_ms"]), e["why"]) for e in told]
    claims = [
        (_clock(c["from_ms"]), f"sidecar {c['node_id']}", c["owner_epoch"], c["offset"], c["why"])
        for c in audit.claims
        if c["state_partition"] == partition
    ]
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{_esc(title)}</title><style>{STYLE}</style></head><body>'
        f"<h1>{_esc(title)}</h1><p class='sub'>Replayed from {audit.records} records of __group_state; times are UTC, "
        f"the axis starts with the first event. Group {_esc(group)} lives in state partition {partition}.</p>"
        f'<div class="cards">{boxes}</div><h2>Who owned which partition when</h2>{gantt(audit, group, marks, end_ms)}'
        f"<h2>Why it rebalanced</h2>{_table(('group epoch or generation', 'state', 'time', 'why'), epochs)}"
        f"{_stale_claims(audit, group)}"
        f"<h2>Who coordinated it</h2>{_table(('from', 'sidecar', 'owner epoch', 'offset', 'why'), claims)}"
        f"<h2>Ownership intervals</h2><details><summary>{len(intervals)} intervals</summary>"
        f"{_table(('partition', 'client', 'member epoch or generation', 'from', 'to', 'began', 'ended'), intervals)}</details>"
        "</body></html>"
    )
