"""The planted bugs, as the files of `planted/` list them: one file a room."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TIERS = ("quick", "test", "all")
"""From the cheapest. Each runs the tests of the tiers before it, too."""
KINDS = frozenset(
    {
        "skipped check",
        "wrong comparison",
        "wrong order",
        "wrong value",
        "wrong error code",
        "wrong unit",
        "off by one",
        "lost write",
        "lost reply",
        "stale state",
        "missing authorisation",
        "missing limit",
        "missing timer",
        "leak",
    }
)


@dataclass(frozen=True, slots=True)
class Planted:
    """`before` occurs once in `file` and is replaced by `after`. `by`: the tests that find it (a node id, a file or a
    folder, several with blanks between), `tier`: the cheapest tier that has one of them."""

    id: str
    room: str
    kind: str
    file: str
    before: str
    after: str
    by: str
    tier: str = "quick"

    def problem(self, root: Path = ROOT) -> str:
        """Returns why this bug cannot be planted; an empty string if it can."""
        path = root / self.file
        if not path.is_file():
            return f"{self.id}: there is no {self.file}"
        if self.kind not in KINDS:
            return f"{self.id}: {self.kind} is no kind of bug"
        if self.tier not in TIERS:
            return f"{self.id}: {self.tier} is no tier"
        if (n := path.read_text().count(self.before)) != 1:
            return f"{self.id}: its text occurs {n} times in {self.file}"
        if self.before == self.after:
            return f"{self.id}: nothing is changed"
        if missing := [t for t in self.by.split() if not (root / t.partition("::")[0]).exists()]:
            return f"{self.id}: no test {missing[0]}"
        return ""

    def plant(self, text: str) -> str:
        return text.replace(self.before, self.after)


def read(path: Path) -> list[Planted]:
    """The bugs of one room, which is the name of the file."""
    rows = tomllib.loads(path.read_text())["bug"]
    return [Planted(room=path.stem, **row) for row in rows]


def all_planted() -> list[Planted]:
    return [bug for path in sorted((HERE / "planted").glob("*.toml")) for bug in read(path)]
