"""Printing of results: tables for people, JSON, YAML and CSV for programs; once, or again and again."""

from __future__ import annotations

import base64
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any

import typer

from sidecar.cli.connect import finite
from sidecar.cli.exits import Code, Failed
from sidecar.cli.plain import csv_cell, echo, plain
from sidecar.cli.program import print_failure

CLEAR = "\033[2J\033[H"
"""Empties the screen of a terminal."""
WIDTH = 200
"""Columns where stdout is no terminal."""
UNBROKEN = 10_000
"""Columns of a table for a terminal: more than any row has."""
NUMBERS = frozenset({"offset", "epoch", "members", "partitions", "generation", "moved"})


class Output(StrEnum):
    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    CSV = "csv"


class Document(StrEnum):
    """Formats of a result that is not rows of one kind."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


Format = Annotated[Output, typer.Option("--output", "-o", help="How to print it. json: one object a line.")]
DocumentFormat = Annotated[Document, typer.Option("--output", "-o", help="How to print it; table: for people.")]
Watch = Annotated[
    float,
    typer.Option(metavar="SECONDS", min=0, callback=finite, help="Look again so often, until Ctrl-C; 0: look once."),
]


def print_rows(rows: Sequence[Mapping[str, Any]], output: Output, columns: Sequence[str] = ()) -> None:
    """Prints rows. `columns`: those of a table without rows."""
    names = list(rows[0]) if rows else columns
    if output is Output.JSON:
        for row in rows:
            typer.echo(json.dumps(row, default=_in_json))
        return
    if output is Output.YAML:
        typer.echo(_yaml([json.loads(json.dumps(row, default=_in_json)) for row in rows]))
        return
    if output is Output.CSV:
        import csv

        writer = csv.DictWriter(sys.stdout, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: csv_cell(value) for name, value in row.items()} for row in rows)
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in names:
        table.add_column(Text(plain(name)), justify="right" if name in NUMBERS else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(plain(_cell(v))) for v in row.values()))
    # A terminal breaks a line that is too long for it where it ends; no word is broken within its column.
    Console(width=UNBROKEN if sys.stdout.isatty() else WIDTH).print(table)


def print_document(body: Mapping[str, Any], output: Document, lines: Sequence[str] | Callable[[], None]) -> None:
    """Prints a document. `lines`: the text for people, or a function that prints it."""
    if output is Document.JSON:
        typer.echo(json.dumps(body, indent=2))
    elif output is Document.YAML:
        typer.echo(_yaml(dict(body)))
    elif callable(lines):
        lines()
    else:
        for line in lines:
            echo(line)


def _in_json(value: Any) -> float | str:
    """Returns a value of a type that JSON does not have, as a query may give it. Bytes are base64, as in a dump."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return float(value) if isinstance(value, Decimal) else str(value)


def _cell(value: Any) -> str:
    if isinstance(value, list | tuple):
        return " ".join(map(str, value))
    return "" if value is None else str(value)


def _yaml(value: Any) -> str:
    import yaml

    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=WIDTH).rstrip()


def run(show: Callable[[], Code], watch: float = 0) -> None:
    """Shows once and exits with the result's code; or shows again and again, also after failures. Raises Failed."""
    try:
        code = Code.OK
        while True:
            if watch and sys.stdout.isatty():
                typer.echo(CLEAR, nl=False)
            try:
                code = show()
            except Failed as failed:
                if not watch or failed.code is Code.USAGE:
                    raise
                print_failure(failed)
                code = failed.code
            if not watch:
                break
            sys.stdout.flush()
            time.sleep(watch)
            if not sys.stdout.isatty():
                typer.echo("")
    except KeyboardInterrupt:
        raise typer.Exit(int(Code.INTERRUPTED)) from None
    raise typer.Exit(int(code))
