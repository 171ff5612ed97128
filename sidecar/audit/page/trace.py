"""The page's data as Chrome trace JSON, which Perfetto opens. export.js makes the same events in the page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, count
from typing import Any

from sidecar.audit.page.lives import CAUSES, SUPERSEDED
from sidecar.audit.page.pack import NONE

Event = dict[str, Any]
Slice = tuple[int, int, str, dict[str, Any]]
COORDINATORS, MARKS, GROUPS = 1, 2, 10
"""Numbers of the processes: Perfetto shows each with its threads. A group is GROUPS plus its number."""


def trace(view: Mapping[str, Any], group: int | None = None) -> dict[str, Any]:
    """Times are Unix time in microseconds. `group`: the number of one in the view; None: all.

    Slices of a thread must not cross, so what crosses goes to a second thread beside the first."""
    chosen = range(len(view["groups"])) if group is None else [group]
    partitions = {view["groups"][n]["sp"] for n in chosen} if group is not None else None
    events: list[Event] = []
    events += _process(COORDINATORS, "coordinators")
    ids = count(1)
    for c in view["coordinators"]:
        if partitions is None or c["sp"] in partitions:
            events += _lane(COORDINATORS, ids, f"state partition {c['sp']}", _claims(view, c))
    events += _process(MARKS, "marks")
    events += [_instant(MARKS, ms, text, {"fault": fault}) for ms, text, fault in view["marks"]]
    for n in chosen:
        events += _group(view, n)
    events += _findings(view, set(chosen), partitions)
    return {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {"title": view["title"], "verdict": view["verdict"]["head"]},
    }


def _process(pid: int, name: str) -> list[Event]:
    return [
        {"ph": "M", "pid": pid, "tid": 0, "name": "process_name", "args": {"name": name}},
        {"ph": "M", "pid": pid, "tid": 0, "name": "process_sort_index", "args": {"sort_index": pid}},
    ]


def _lane(pid: int, ids: Iterator[int], name: str, slices: Sequence[Slice]) -> list[Event]:
    """`ids`: numbers for its threads."""
    threads: list[int] = []
    free: list[int] = []
    out: list[Event] = []
    for begin, end, text, args in sorted(slices, key=lambda s: s[0]):
        at = next((n for n, until in enumerate(free) if until <= begin), len(free))
        if at == len(free):
            free.append(0)
            label = name if at == 0 else f"{name} ({at + 1})"
            tid = next(ids)
            threads.append(tid)
            out.append({"ph": "M", "pid": pid, "tid": tid, "name": "thread_name", "args": {"name": label}})
            out.append({"ph": "M", "pid": pid, "tid": tid, "name": "thread_sort_index", "args": {"sort_index": tid}})
        free[at] = end
        event = {"ph": "X", "pid": pid, "tid": threads[at], "ts": begin * 1000, "dur": (end - begin) * 1000}
        out.append({**event, "name": text, "args": args})
    return out


def _instant(pid: int, ms: int, name: str, args: dict[str, Any]) -> Event:
    return {"ph": "i", "s": "p", "pid": pid, "tid": 0, "ts": ms * 1000, "name": name, "args": args}


def _text(view: Mapping[str, Any], number: int) -> str:
    return "" if number == NONE else str(view["texts"][number])


def _until(view: Mapping[str, Any], begin: int, length: int) -> int:
    return max(int(view["until"]), begin) if length == NONE else begin + length


def _claims(view: Mapping[str, Any], c: Mapping[str, Any]) -> list[Slice]:
    claims, outages = c["claims"], c["outages"]
    out: list[Slice] = []
    for n, (begin, offset) in enumerate(zip(accumulate(claims["t"]), accumulate(claims["o"]), strict=True)):
        args = {"offset": offset, "why": _text(view, claims["why"][n]), "address": _text(view, claims["address"][n])}
        name = f"sidecar {claims['node'][n]}, claim {claims['claim'][n]}"
        out.append((begin, _until(view, begin, claims["d"][n]), name, args))
    for n, begin in enumerate(accumulate(outages["t"])):
        out.append((begin, begin + outages["d"][n], "no coordinator", {"at_most_ms": outages["most"][n]}))
    return out


def _group(view: Mapping[str, Any], number: int) -> list[Event]:
    g, pid = view["groups"][number], GROUPS + number
    owners, members = g["owners"], g["lives"]
    events = _process(pid, f"group {g['id']}")
    ids = count(1)
    epochs, settling = _rebalances(view, g["epochs"])
    events += _lane(pid, ids, "group epoch", epochs)
    events += _lane(pid, ids, "settling", settling)
    by_client: dict[str, list[Slice]] = {}
    for n, begin in enumerate(accumulate(members["t"])):
        owner = members["m"][n]
        member_id = _text(view, owners["id"][owner])
        lane = _text(view, owners["instance"][owner]) or _text(view, owners["client"][owner]) or member_id
        args = {"member_id": member_id, "began": _text(view, members["w"][n]), "ended": _text(view, members["v"][n])}
        end = _until(view, begin, members["d"][n])
        by_client.setdefault(lane, []).append((begin, end, f"m{owner + 1}", args))
    for name, slices in [*((f"member {m}", s) for m, s in by_client.items()), *_owned(view, g)]:
        events += _lane(pid, ids, name, slices)
    return events


def _rebalances(view: Mapping[str, Any], r: Mapping[str, Any]) -> tuple[list[Slice], list[Slice]]:
    begins = list(accumulate(r["t"]))
    epochs: list[Slice] = []
    settling: list[Slice] = []
    for n, begin in enumerate(begins):
        then = max(begins[n + 1] if n + 1 < len(begins) else view["until"], begin)
        args = {"why": _text(view, r["why"][n]), "cause": CAUSES[r["cause"][n]], "members": r["members"][n]}
        epochs.append((begin, then, f"epoch {r['epoch'][n]}", args))
        settled = r["settled"][n]
        told = "superseded" if r["f"][n] & SUPERSEDED else "settled" if settled != NONE else "not settled yet"
        end = then if settled == NONE else begin + settled
        settling.append((begin, end, f"epoch {r['epoch'][n]} {told}", {"moved": r["moved"][n]}))
    return epochs, settling


def _owned(view: Mapping[str, Any], g: Mapping[str, Any]) -> Iterator[tuple[str, list[Slice]]]:
    own, owners, at = g["own"], g["owners"], 0
    for place, bars in zip(g["places"], own["n"], strict=True):
        slices: list[Slice] = []
        begin = offset = 0
        for n in range(at, at + bars):
            begin, offset = begin + own["t"][n], offset + own["o"][n]
            many = own["many"].get(str(n), 1)
            owner = own["m"][n]
            name = f"m{owner + 1}" if many == 1 else f"{many} intervals"
            args = {
                "member_id": _text(view, owners["id"][owner]),
                "offset": offset,
                "epoch": own["ep"][n],
                "began": _text(view, own["w"][n]),
                "ended": _text(view, own["v"][n]),
            }
            slices.append((begin, _until(view, begin, own["d"][n]), name, args))
        at += bars
        yield _text(view, place), slices


def _findings(view: Mapping[str, Any], chosen: set[int], partitions: set[int] | None) -> Iterator[Event]:
    f = view["findings"]
    for n, ms in enumerate(f["t"]):
        group = f["g"][n]
        if group in chosen or (group == NONE and (partitions is None or f["sp"][n] in partitions)):
            pid = COORDINATORS if group == NONE else GROUPS + group
            kind = f["kinds"][f["k"][n]][1]
            yield _instant(pid, ms, f"{kind}: {_text(view, f['text'][n])}", {"offset": f["o"][n]})
