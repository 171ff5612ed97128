"""The printed report of a drill: a table of times, and the judge's table."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sidecar.drill.drills.measure import FIGURES
from sidecar.drill.drills.run import Result

SHOWN = ("first commit", "all partitions", "all members", "heartbeats", "no commit")
"""Figures in the table of all drills."""


def show(result: Result, console: Console) -> None:
    if result.rounds:
        console.print(_times(result))
    console.print(_verdict(result))
    for line in result.verdict.evidence:
        console.print(f"  {line}", style="red", markup=False)
    if result.problem:
        console.print(f"the drill did not come to its end: {result.problem}", style="red", markup=False)


def _times(result: Result) -> Table:
    groups = result.by_group()
    table = Table(title=f"{result.drill}, {len(result.rounds)} rounds: seconds, p50 / p95 / max")
    table.add_column("")
    for title in groups:
        table.add_column(title, justify="right")
    for name in FIGURES:
        cells = [
            " / ".join(f"{g[name][p]:.2f}" for p in ("p50", "p95", "max")) if name in g else "" for g in groups.values()
        ]
        if any(cells):
            table.add_row(name, *cells)
    return table


def _verdict(result: Result) -> Table:
    table = Table(title=f"{result.drill}: the judge")
    for head in ("check", "found", ""):
        table.add_column(head)
    for name, count in result.verdict.counts().items():
        table.add_row(name.replace("_", " "), str(count), _word(count == 0))
    for f in result.findings:  # texts of logs and commands: what stands in brackets there is no markup
        table.add_row(escape(f.what), escape(str(f.found)), _word(f.ok))
    return table


def _word(ok: bool) -> str:
    return "[green]ok[/]" if ok else "[red]BAD[/]"


def show_all(results: Sequence[Result], console: Console) -> None:
    table = Table(title="all drills: seconds p50 / max of the sidecars' groups, the slower of the two")
    for head in ("drill", "rounds", *SHOWN, "took", ""):
        table.add_column(head)
    for r in results:
        ours = [g for title, g in r.by_group().items() if title.startswith("sidecar") and "no commit" in g]
        cells = [
            " / ".join(f"{max(g[name][p] for g in ours):.2f}" for p in ("p50", "max")) if ours else "-"
            for name in SHOWN
        ]
        table.add_row(r.drill, str(len(r.rounds)), *cells, f"{r.took_s:.0f}", _word(r.ok))
    console.print(table)
