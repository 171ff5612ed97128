"""Writes docs/use/audit-tables.md from the descriptions of the tables. `python -m tools.audit_tables`, from the repository's root."""

from __future__ import annotations

from pathlib import Path

from sidecar.audit.columns import Table, ddl
from sidecar.audit.gold.tables import GOLD, INVARIANTS
from sidecar.audit.layers import BRONZE, SILVER_TABLES
from sidecar.audit.runs import RUNS

PAGE = Path("docs/use/audit-tables.md")
HEAD = """# Tables of the audit's lake

Made by `python -m tools.audit_tables` from the descriptions in the code, which are also the schemas that are written. What they are for is said in
[audit.md](audit.md). Types are Spark's; times are UTC. "empty if" says when there is no value (null).
"""


def main() -> None:
    PAGE.write_text(page())


def page() -> str:
    layers = {"Gold": (*GOLD.values(), RUNS), "Silver": SILVER_TABLES.values(), "Bronze": (BRONZE,)}
    parts = [HEAD]
    for name, tables in layers.items():
        parts.append(f"## {name}\n")
        parts += [_table(t) for t in tables]
        if name == "Gold":
            parts.append(_invariants())
    return "\n".join(parts)


def _table(t: Table) -> str:
    lines = [
        f"### {t.name}\n",
        f"{t.doc} Key: {', '.join(t.key)}.\n",
        "| column | type | what it says | empty if |",
        "|---|---|---|---|",
    ]
    lines += [f"| {c.name} | {_cell(ddl(c.type))} | {_cell(c.doc)} | {_cell(c.null)} |" for c in t.columns]
    return "\n".join(lines) + "\n"


def _invariants() -> str:
    lines = [
        "### What must hold\n",
        "Each is a query that must give no rows; `sidecar audit check` runs them all.\n",
        "| name | what it says |",
        "|---|---|",
    ]
    lines += [f"| {name} | {_cell(sentence)} |" for name, (sentence, _) in INVARIANTS.items()]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    main()
