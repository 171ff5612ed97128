"""Back to today's version from one of tomorrow, whose records have newer schemas.

Tomorrow's version is today's, with new versions of two schemas that it writes from its first record on.
"""

from __future__ import annotations

import json
import re
import shutil
import urllib.request
from pathlib import Path

from sidecar.audit.topic import Reader, Where
from sidecar.drill.drills.ground import STATE_TOPIC, Ground
from sidecar.drill.drills.sidecars import replace_one
from sidecar.drill.drills.spec import Drill, Mark
from sidecar.drill.processes import DrillError
from sidecar.state.schema import MARK, Schemas, published

PACKAGE = Path(__file__).resolve().parents[2]
NEWER = {"member": "core/consumer/records.py", "classic_group": "core/classic/records.py"}
"""Kind of record -> where the registry names its schema."""
FIELD = {"name": "of_tomorrow", "type": "string", "default": "what today's version does not know"}


def tomorrow(folder: Path) -> tuple[Path, dict[str, bytes]]:
    """Make that version; return where it is, and kind -> the fingerprint of its schema. Raises DrillError if the
    schemas are not where they are looked for."""
    tree = folder / "sidecar-of-tomorrow"
    shutil.rmtree(tree, ignore_errors=True)
    shutil.copytree(PACKAGE, tree / PACKAGE.name, ignore=shutil.ignore_patterns("__pycache__"))
    prints = {}
    for kind, place in NEWER.items():
        registry = tree / PACKAGE.name / place
        text = registry.read_text()
        found = re.findall(rf'"({kind}-v(\d+))"', text)
        if len(found) != 1:
            raise DrillError(f"{place} does not name one schema of {kind}: {found}")
        now, number = found[0]
        newer = f"{kind}-v{int(number) + 1}"
        registry.write_text(text.replace(f'"{now}"', f'"{newer}"'))
        schema = json.loads(published()[now])
        schema["fields"].append(FIELD)
        (tree / PACKAGE.name / "state" / "schemas" / f"{newer}.avsc").write_text(json.dumps(schema))
        prints[kind] = Schemas.empty().learn(json.dumps(schema))
    return tree, prints


class Rollback(Drill):
    """The sidecars become ones of tomorrow, which write newer schemas, then one after the other today's again."""

    name = "rollback"

    def prepare(self, ground: Ground, i: int) -> None:
        self.tree, self.prints = tomorrow(ground.kafka.folder)

    def fault(self, ground: Ground, i: int) -> list[Mark]:
        marks = []
        for node in ground.kafka.nodes:
            marks.append(Mark.now(f"sidecar {node.node_id} becomes one of tomorrow"))
            ground.kafka.trees[node.node_id] = self.tree
            replace_one(self, ground, node)
        ground.settled(self.patience_s)
        for c in ground.companies:  # somebody joins: its group's records are tomorrow's
            client = c.clients[-1]
            client.stop()
            c.replace(client)
        ground.settled(self.patience_s)
        there = self._written(ground)
        self.find("records of newer schemas", there, all(there.values()))
        for node in ground.kafka.nodes:
            marks.append(Mark.now(f"sidecar {node.node_id} becomes one of today"))
            ground.kafka.trees.pop(node.node_id)
            replace_one(self, ground, node)
        ground.settled(self.patience_s)
        return marks

    def heal(self, ground: Ground, i: int) -> None:
        unreadable = sum(unreadable_groups(n.admin_port) for n in ground.kafka.nodes)
        self.find("groups that today's version cannot read", unreadable, unreadable == 0)

    def _written(self, ground: Ground) -> dict[str, int]:
        """By kind, how many values of the newer schema stand in the topic."""
        found = dict.fromkeys(self.prints, 0)
        with Reader(Where(ground.kafka.internal, STATE_TOPIC, {})) as reader:
            for p in range(reader.partitions()):
                values = [raw.value or b"" for raw in reader.taken(p).records]
                for kind, fingerprint in self.prints.items():
                    found[kind] += sum(v.startswith(MARK + fingerprint) for v in values)
        return found


def unreadable_groups(admin_port: int) -> int:
    """What a sidecar's metric says."""
    with urllib.request.urlopen(f"http://127.0.0.1:{admin_port}/metrics", timeout=10) as res:
        told = re.findall(r"^sidecar_unreadable_groups (\S+)$", res.read().decode(), re.M)
    if len(told) != 1:
        raise DrillError(f"the sidecar at {admin_port} does not tell of unreadable groups")
    return int(float(told[0]))
