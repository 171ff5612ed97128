"""Writes docs/use/audit-tables.md from the descriptions of the tables. `python -m tools.audit_tables`, from the repository's root."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from sidecar.audit.ask.runs import RUNS
from sidecar.audit.tables.columns import Column, Table, ddl
from sidecar.audit.tables.gold import GOLD, INVARIANTS
from sidecar.audit.tables.gold_columns import EARLIER
from sidecar.audit.tables.layers import BRONZE, GONE, SILVER_TABLES

PAGE = Path("docs/use/audit-tables.md")
TIMES = ("ms", "time", "written_ms", "written_time")
SHARED_BY = 3
"""Tables of a layer that have a column, from which on the page describes it once for all of them."""
HEAD = f"""# Tables of the audit's lake

Made by `python -m tools.audit_tables` from the descriptions in the code, which are also the schemas that are written.
[audit.md](audit.md) says what the tables are for.

- Types are Spark's; times are UTC. `X_time` (timestamp) is the same moment as `X_ms` (bigint, Unix ms).
- "`X_offset` and its times" are five columns: the record's offset (bigint), its timestamp (`X_ms`, `X_time`), and when
  its writer says it wrote it (`X_written_ms`, `X_written_time`). The last two are also null of {EARLIER}.
- "Null:" says when there is no value. Each layer begins with the columns that several of its tables have.
"""


def main() -> None:
    PAGE.write_text(page())


def page() -> str:
    layers: dict[str, Sequence[Table]] = {
        "Gold": (*GOLD.values(), RUNS),
        "Silver": tuple(SILVER_TABLES.values()),
        "Bronze": (BRONZE,),
    }
    parts = [HEAD]
    for name, tables in layers.items():
        lines = {t.name: tuple(_lines(t.columns)) for t in tables}
        count = Counter(line for of_table in lines.values() for line in of_table)
        shared = [line for line in count if count[line] >= SHARED_BY]
        parts.append(f"## {name}\n")
        if shared:
            parts.append("\n".join(f"- {line}" for line in shared) + "\n")
        keys = {t.key for t in tables}
        key_of_all = tables[0].key if len(keys) == 1 and len(tables) > 1 else None
        if key_of_all:
            parts.append(f"Key of each table: {', '.join(key_of_all)}.\n")
        parts += [_table(t, lines[t.name], shared, key_of_all) for t in tables]
        if name == "Gold":
            parts.append(_invariants())
    return "\n".join(parts)


def _table(t: Table, lines: Sequence[str], shared: Sequence[str], key_of_all: tuple[str, ...] | None) -> str:
    own = [f"- {line}" for line in lines if line not in shared]
    common = _runs(shared, set(lines))
    also = f"Described above: {', '.join(common)}.\n\n" if common else ""
    key = f" Key: {', '.join(t.key)}." if t.key != key_of_all else ""
    return f"### {t.name}\n\n{t.doc}{key}\n\n{also}" + "\n".join([*own, ""])


def _runs(shared: Sequence[str], lines: set[str]) -> list[str]:
    """Returns the shared columns that a table has: three or more in a row by the first and the last."""
    found: list[str] = []
    for has, run in groupby(shared, key=lines.__contains__):
        names = [name for line in run for name in re.findall(r"`[^`]+`", line.partition(":")[0])]
        if has:
            found += names if len(names) < 3 else [f"{names[0]} to {names[-1]}"]
    return found


def _lines(columns: Sequence[Column]) -> Iterator[str]:
    """Each column, and as one those that belong together: a record with its times, a time in both forms."""
    at = 0
    while at < len(columns):
        column = columns[at]
        names = [c.name for c in columns[at : at + 5]]
        prefix, found, last = column.name.rpartition("offset")
        if found and not last and names[1:] == [prefix + name for name in TIMES]:
            yield f"`{column.name}` and its times: {_meaning(column)}"
            at += 5
        elif len(names) > 1 and column.name.endswith("ms") and names[1] == column.name[:-2] + "time":
            yield f"`{names[0]}`, `{names[1]}`: {_meaning(column)}"
            at += 2
        else:
            yield f"`{column.name}` ({ddl(column.type)}): {_meaning(column)}"
            at += 1


def _meaning(column: Column) -> str:
    """Without that it is null in a tombstone: the column `deleted` says that of all columns."""
    return f"{column.doc} Null: {column.null}." if column.null not in ("", GONE) else column.doc


def _invariants() -> str:
    names: dict[str, list[str]] = {}
    for name, (sentence, _) in INVARIANTS.items():
        of_key = name.startswith("once_")
        shown = "`once_` and the name of a table" if of_key else f"`{name}`"
        of_sentence = names.setdefault("No two rows have the same key." if of_key else sentence, [])
        if shown not in of_sentence:
            of_sentence.append(shown)
    lines = [
        "### What must hold\n",
        "Each is a query that must give no rows; `sidecar audit check` runs them all.\n",
    ]
    lines += [f"- {', '.join(shown)}: {sentence}" for sentence, shown in names.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
