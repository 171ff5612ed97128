"""Ids of groups, members and clients are whatever a client says: in a terminal and in a spreadsheet they do nothing."""

from __future__ import annotations

import ast
import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from sidecar.cli.exits import Code, Failed
from sidecar.cli.output import Document, Output, print_document, print_rows
from sidecar.cli.plain import echo, plain
from sidecar.cli.program import print_failure

CLI = Path(__file__).parents[2] / "sidecar" / "cli"
HOSTILE = "a\x1b]52;c;Y3VybA==\x07\x9b2J\x85\r\n\u202eb"
"""Sets the clipboard, empties the screen, begins another line, writes backwards."""
HARMLESS = r"a\x1b]52;c;Y3VybA==\x07\x9b2J\x85\r\n\u202eb"
HARMFUL = {c for c in HOSTILE if not c.isprintable()} - {"\n"}
WRITERS = {"output.py", "plain.py", "drill.py"}
"""Files that may write to stdout by themselves; a drill has no clients but its own."""


@pytest.mark.parametrize("output", [Output.TABLE, Output.CSV])
def test_what_clients_say_stays_in_its_cell(output: Output, capsys: pytest.CaptureFixture[str]) -> None:
    """Symptom: a group id with an escape sequence set the operator's clipboard."""
    print_rows([{"group": HOSTILE, "members": [HOSTILE, "m"], "epoch": 7}], output)
    out = capsys.readouterr().out
    assert not HARMFUL & set(out) and HARMLESS in out and len(out.splitlines()) == 2


def test_so_it_does_in_lines(capsys: pytest.CaptureFixture[str]) -> None:
    print_document({}, Document.TABLE, [f"group: {HOSTILE}", "second"])
    echo(f"group: {HOSTILE}")
    print_failure(Failed(Code.FINDINGS, f"{plain(HOSTILE)}: no such group\nand more \x1b", "Do that."))
    out, err = capsys.readouterr()
    assert not HARMFUL & set(out + err)
    assert out.splitlines() == [f"group: {HARMLESS}", "second", f"group: {HARMLESS}"]
    assert err.splitlines() == [f"{HARMLESS}: no such group", r"and more \x1b", "Do that."]


def test_programs_get_what_was_said(capsys: pytest.CaptureFixture[str]) -> None:
    row = {"group": HOSTILE, "formula": "=1+1"}
    print_rows([row], Output.JSON)
    out = capsys.readouterr().out
    assert json.loads(out) == row and not HARMFUL & set(out)
    print_rows([row], Output.YAML)
    out = capsys.readouterr().out
    assert yaml.safe_load(out) == [row] and not (HARMFUL - {"\u202e"}) & set(out)


def test_a_spreadsheet_computes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    cells: dict[str, Any] = {
        "=HYPERLINK(1)": "'=HYPERLINK(1)",
        "+1-1": "'+1-1",
        "@SUM(A1)": "'@SUM(A1)",
        "-group": "'-group",
        "\t=1": r"\t=1",
        "\uff1d1": "'\uff1d1",
        "orders-3": "orders-3",
        "-1": "-1",
        "+2.5": "+2.5",
        "-1e9": "-1e9",
        "": "",
    }
    rows = [{"n": -1, "none": None, "text": text} for text in cells]
    print_rows(rows, Output.CSV)
    read = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [r["text"] for r in read] == list(cells.values())
    assert {(r["n"], r["none"]) for r in read} == {("-1", "")}


def test_all_commands_print_through_here() -> None:
    """The output of a new command is made plain, too."""
    direct = []
    for file in CLI.rglob("*.py"):
        if file.name in WRITERS:
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                raw_text = called == "Text" and not ast.unparse(node.args[0]).startswith(("plain(", "f'"))
                if called in ("print", "typer.echo", "typer.secho", "click.echo", "sys.stdout.write") or raw_text:
                    direct.append(f"{file.relative_to(CLI)}:{node.lineno} {ast.unparse(node)[:60]}")
    assert not direct
