"""The table of brokers in docs/reference/versions.md: its rows, its columns, and what a cell may say."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass

from sidecar.drill.artifacts import ANCHORS
from tests.matrix.report import LACKS, NO, NOT_RUN, YES

VERSIONS: Mapping[str, str] = {
    "2.8.2": "ZooKeeper",
    "3.3.2": "KRaft",
    "3.6.2": "KRaft",
    "3.7.2": "KRaft",
    "3.9.1": "KRaft",
    "4.0.0": "KRaft",
    **dict.fromkeys(reversed(ANCHORS), "KRaft"),
}
CELLS: Mapping[str, str] = {
    "demo": "demo",
    "consumer": "consumer clients",
    "classic": "classic clients",
    "takeover": "owner killed",
    "tools": "admin tools",
    "old": "clients of 2015 to 2023",
}
"""The names that `--cell` takes, with the heads of their columns."""
HEAD = "| Kafka | " + " | ".join(CELLS.values()) + " |"
CELL = re.compile(rf"{NOT_RUN}|{LACKS}|(?:{YES}|{NO}) \d{{4}}-\d\d-\d\d(?:: .+)?")


def cells_of(version: str) -> list[str]:
    """Kafka 4 took away what clients of 2015 to 2023 send."""
    return [cell for cell in CELLS if cell != "old" or int(version.split(".")[0]) < 4]


@dataclass
class Found:
    """`why`: what failed."""

    status: str
    why: str = ""
    seconds: int = 0

    def text(self) -> str:
        day = time.strftime("%Y-%m-%d")
        return f"{self.status} {day}" + (f": {self.why.replace('|', '/')}" if self.why else "")


def row_of(version: str) -> str:
    """Returns the beginning of this version's row."""
    return f"| {version} ({VERSIONS[version]}) |"


def rows(text: str) -> dict[str, list[str]]:
    """The cells by version. Raises ValueError if the table has another form."""
    lines = text.splitlines()
    at = lines.index(HEAD) + 2
    found = {}
    for version, line in zip(VERSIONS, lines[at : at + len(VERSIONS)], strict=True):
        if not line.startswith(row_of(version)):
            raise ValueError(f"no row of {version}: {line}")
        found[version] = [c.strip() for c in line[len(row_of(version)) :].strip(" |").split("|")]
    return found


def updated(text: str, found: Mapping[tuple[str, str], Found]) -> str:
    """The document with these cells. The others stay as they are. Raises ValueError."""
    table = rows(text)
    for (version, cell), result in found.items():
        table[version][list(CELLS).index(cell)] = result.text()
    lines = text.split("\n")
    at = lines.index(HEAD) + 2
    lines[at : at + len(VERSIONS)] = [f"{row_of(v)} " + " | ".join(cells) + " |" for v, cells in table.items()]
    return "\n".join(lines)
