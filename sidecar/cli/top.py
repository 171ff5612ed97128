"""`sidecar top`: the groups that the sidecars coordinate, live, from the state topic."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sidecar.cli.connect import Bootstrap, CommandConfig, StateTopic, client_of, finite, readable
from sidecar.cli.exits import Code
from sidecar.cli.output import Format, Output, print_rows, run
from sidecar.cli.plain import plain

if TYPE_CHECKING:
    from sidecar.audit.history.board import Board
    from sidecar.audit.history.topic import Reader, RecordsRead

KEYS = "q: quit   m: members   r: rebalances   a: age   g: group   s: state"


@cache
def at_rest() -> frozenset[str]:
    """Returns the states of all kinds of groups in which nothing is under way."""
    from sidecar.core.kinds import REGISTRY

    return frozenset().union(*(kind.inspect.at_rest for kind in REGISTRY.kinds.values()))


class Sort(StrEnum):
    REBALANCES = "rebalances"
    MEMBERS = "members"
    AGE = "age"
    GROUP = "group"
    STATE = "state"


BY_KEY = {sort.value[0]: sort for sort in Sort}
ORDERS: dict[Sort, Callable[[dict[str, Any]], Any]] = {
    Sort.REBALANCES: lambda r: (-r["rebalances"], -r["members"], r["group"]),
    Sort.MEMBERS: lambda r: (-r["members"], r["group"]),
    Sort.AGE: lambda r: (r["age_s"], r["group"]),
    Sort.GROUP: lambda r: r["group"],
    Sort.STATE: lambda r: (r["state"] in at_rest(), r["state"], r["group"]),
}
"""Sort keys. By state, groups that are not stable come first; by age, the youngest epoch does."""


def top(
    bootstrap: Bootstrap,
    sort: Annotated[Sort, typer.Option(help="By what; a key changes it.")] = Sort.REBALANCES,
    window: Annotated[
        float,
        typer.Option(metavar="MINUTES", min=0.1, max=60, callback=finite, help="Rebalances are counted for so long."),
    ] = 5,
    interval: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.2, callback=finite, help="Between two looks.")
    ] = 2,
    rows: Annotated[int, typer.Option(min=0, help="So many groups; 0: as many as fit, or all.")] = 0,
    once: Annotated[
        bool, typer.Option("--once", help="Print one look and end, as it does where stdout is no terminal.")
    ] = False,
    topic: StateTopic = "__group_state",
    command_config: CommandConfig = None,
    output: Format = Output.TABLE,
) -> None:
    """Show the sidecars' groups live: members, state, epoch and its age in seconds, rebalances lately, owner node."""

    def show() -> Code:
        with readable(), client_of(command_config).reader(bootstrap, topic) as reader:
            tail = Tail(reader)
            if once or output is not Output.TABLE or not sys.stdout.isatty():
                tail.read()
                groups = tail.rows(sort, window)
                print_rows(groups[:rows] if rows else groups, output)
            else:
                _live(tail, sort, window, interval, rows)
        return Code.OK

    run(show)


class Tail:
    """Reader of all partitions of the topic, each from the end of the last read on."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._begin()

    def _begin(self) -> None:
        from sidecar.audit.history.board import Board

        count = self._reader.partitions()
        self.board: Board = Board(count)
        self._taken: list[RecordsRead | None] = [None] * count

    def read(self) -> None:
        """Reads the new records. Raises AuditError."""
        for p, before in enumerate(self._taken):
            taken = self._reader.read(p, after=before)
            if taken.anew:  # so are the other partitions, though they may have more records than before
                self._begin()
                self.read()
                return
            self.board.read(taken)
            taken.records.clear()
            self._taken[p] = taken

    def rows(self, sort: Sort, window_min: float) -> list[dict[str, Any]]:
        rows = self.board.rows(int(time.time() * 1000), int(window_min * 60_000))
        return sorted(rows, key=ORDERS[sort])


def _live(tail: Tail, sort: Sort, window: float, interval: float, rows: int) -> None:
    from rich.console import Console, Group
    from rich.live import Live
    from rich.table import Table
    from rich.text import Text

    console = Console()

    def frame() -> Group:
        groups = tail.rows(sort, window)
        moving = sum(r["state"] not in at_rest() for r in groups)
        table = Table(box=None, header_style="bold", pad_edge=False)
        for name in groups[0] if groups else ():
            table.add_column(name, justify="left" if name in ("group", "type", "state") else "right")
        for r in groups[: rows or max(1, console.height - 4)]:
            table.add_row(*(Text(plain(str(v))) for v in r.values()))
        return Group(Text(f"{len(groups)} groups, {moving} not stable, by {sort}   {KEYS}"), table)

    with _keys() as key, Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            tail.read()
            live.update(frame(), refresh=True)
            until = time.monotonic() + interval
            while (left := until - time.monotonic()) > 0:
                pressed = key(left)
                if pressed == "q":
                    return
                if pressed in BY_KEY:
                    sort = BY_KEY[pressed]
                    live.update(frame(), refresh=True)


@contextmanager
def _keys() -> Iterator[Callable[[float], str]]:
    """Yields a function that waits so long for a key; "" if none came. Without a keyboard it only waits."""
    import os
    import select

    if not sys.stdin.isatty():

        def wait(seconds: float) -> str:
            time.sleep(seconds)
            return ""

        yield wait
        return
    import termios
    import tty

    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)

    def key(seconds: float) -> str:
        ready, _, _ = select.select([fd], [], [], seconds)
        return os.read(fd, 1).decode(errors="replace") if ready else ""  # stdin would take more and keep it

    try:
        tty.setcbreak(fd)
        yield key
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
