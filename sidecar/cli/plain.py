"""Makes clients' texts harmless for terminals and spreadsheets: ids and reasons may be any text.

Nothing in this package writes to a terminal but through here and output.py.
"""

from __future__ import annotations

import re
from typing import Any

import typer

_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters to escape: C0, DEL and C1, which move the cursor or set the clipboard; lines and directions of their own;
half characters."""
_FORMULA = re.compile("[=+\\-@\uff1d\uff0b\uff0d\uff20]")
_NUMBER = re.compile(r"[-+]?\d+(\.\d*)?([eE][-+]?\d+)?")


def plain(text: str) -> str:
    """Returns the text with escapes, as Python writes them, in the place of characters that a terminal would obey."""
    return _UNPRINTABLE.sub(lambda match: match[0].encode("unicode_escape", "surrogatepass").decode(), text)


def csv_cell(value: Any) -> Any:
    """Returns a cell. Text that a spreadsheet would compute gets an apostrophe before it (OWASP, CSV injection);
    numbers stay."""
    if value is None or isinstance(value, int | float):
        return value
    text = plain(str(value))
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def echo(line: object = "", err: bool = False) -> None:
    """Prints one line, and escapes line breaks in it."""
    typer.echo(plain(str(line)), err=err)
