"""`make audit ARGS="--bootstrap host:port --group G"`: replay `__group_state` on Spark, write tables and a page."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from sidecar.audit.job import audit, session
from sidecar.audit.report import render


def main(argv: list[str]) -> int:
    ap = argparse.ArgumentParser(prog="audit", description=__doc__)
    ap.add_argument("--bootstrap", required=True, help="brokers or sidecars, HOST:PORT[,HOST:PORT...]")
    ap.add_argument("--topic", default="__group_state")
    ap.add_argument("--group", help="also write report.html of this group")
    ap.add_argument("--out", type=Path, default=Path("out/audit"))
    a = ap.parse_args(argv)
    console = Console()
    spark = session()
    try:
        found = audit(spark, a.bootstrap, a.topic, a.out / "tables")
    finally:
        spark.stop()
    table = Table(title=f"{found.records} records of {a.topic}")
    table.add_column("table")
    table.add_column("rows", justify="right")
    for name in ("intervals", "claims", "epochs", "gaps", "settings", "stale_claims", "overlaps", "stale"):
        table.add_row(name, str(len(getattr(found, name))))
    console.print(table)
    if a.group:
        page = a.out / "report.html"
        a.out.mkdir(parents=True, exist_ok=True)
        cards: list[tuple[str, object, bool | None]] = [
            ("overlaps", len(found.overlaps), not found.overlaps),
            ("writes of a fenced owner", len(found.stale), not found.stale),
        ]
        page.write_text(render(found, a.group, [], int(time.time() * 1000), cards, f"Group {a.group}"))
        console.print(f"report: {page}")
    return 1 if found.overlaps or found.stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
