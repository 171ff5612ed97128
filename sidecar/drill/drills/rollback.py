"""A rollback to today's version from one of tomorrow, whose records have newer schemas, and one a new kind.

Tomorrow's version is today's, with new versions of two schemas, which it writes from its first record on; and beside
the record of a consumer group it writes one of a new kind, for the groups that are chosen for it.
"""

from __future__ import annotations

import json
import re
import shutil
import urllib.request
from collections.abc import Sequence
from importlib.metadata import distribution
from pathlib import Path

from sidecar.audit.history.topic import Reader
from sidecar.drill.drills.commands import must, running_version, wait_whereabouts
from sidecar.drill.drills.ground import STATE_TOPIC, Ground
from sidecar.drill.drills.sidecars import replace_one
from sidecar.drill.drills.spec import Drill, Mark
from sidecar.drill.drills.upgrade import as_installed
from sidecar.drill.processes import DrillError
from sidecar.process.version import PACKAGE as PROJECT
from sidecar.process.version import package_version
from sidecar.state.keys import StateKey
from sidecar.state.schema import MARK, Schemas, published

PACKAGE = Path(__file__).resolve().parents[2]
NEWER = {"member": "core/consumer/records.py", "classic_group": "core/classic/records.py"}
"""Kind of record -> the file of the registry that names its schema."""
FIELD = {"name": "of_tomorrow", "type": "string", "default": "what today's version does not know"}
KIND = "of_tomorrow"
VERSION = "of-tomorrow"
TABLE, ROWS = "core/kinds.py", "KINDS = (CONSUMER, CLASSIC, SHARE, STREAMS)\n"
"""The file with the kinds of groups and the records of each, and the line that is replaced."""
NEW_KIND = """
from dataclasses import dataclass, replace

from sidecar.core.consumer import group as consumer_group
from sidecar.core.consumer.records import GroupRecord
from sidecar.core.runtime.records import RecordKind, Tombstone
from sidecar.core.runtime.turn import Turn


@dataclass(frozen=True, slots=True)
class OfTomorrow:
    group_id: str
    why: str = "a record of a new kind"

    kind = "{kind}"
    sub_id = ""

    def body(self):
        return {{}}

    @classmethod
    def of(cls, group_id, sub_id, body):
        return cls(group_id, body["why"])


write, tombstones = Turn.write, consumer_group.ConsumerGroup.tombstones


def write_beside(turn, record):
    write(turn, record)
    if isinstance(record, GroupRecord) and record.group_id in {groups!r}:
        write(turn, OfTomorrow(record.group_id))


Turn.write = write_beside
of_tomorrow = {{OfTomorrow: lambda group, record: None}}
consumer_group.ConsumerGroup.replays = {{**consumer_group.ConsumerGroup.replays, **of_tomorrow}}
consumer_group.ConsumerGroup.tombstones = lambda group, why: [
    *([Tombstone("{kind}", group.group_id, "", why)] if group.group_id in {groups!r} else []),
    *tombstones(group, why),
]
TOMORROW = replace(CONSUMER, records=(*CONSUMER.records, RecordKind("{kind}", OfTomorrow, "{kind}-v1")))
KINDS = (TOMORROW, CLASSIC, SHARE, STREAMS)
"""


def tomorrow(folder: Path, have_new_kind: Sequence[str] = ()) -> tuple[Path, dict[str, bytes]]:
    """Make tomorrow's version; return its folder, and kind -> the fingerprint of its new schema. `have_new_kind`:
    consumer groups with records of the new kind. Raises DrillError if a text that must be changed is not found."""
    tree = folder / "sidecar-of-tomorrow"
    shutil.rmtree(tree, ignore_errors=True)
    shutil.copytree(PACKAGE, tree / PACKAGE.name, ignore=shutil.ignore_patterns("__pycache__"))
    prints = {}
    for kind, place in NEWER.items():
        registry = tree / PACKAGE.name / place
        text = registry.read_text()
        names = re.findall(rf'"({kind}-v(\d+))"', text)
        if len(names) != 1:
            raise DrillError(f"{place} does not name one schema of {kind}: {names}")
        now, number = names[0]
        newer = f"{kind}-v{int(number) + 1}"
        registry.write_text(text.replace(f'"{now}"', f'"{newer}"'))
        schema = json.loads(published()[now])
        schema["fields"].append(FIELD)
        (tree / PACKAGE.name / "state" / "schemas" / f"{newer}.avsc").write_text(json.dumps(schema))
        prints[kind] = Schemas.empty().learn(json.dumps(schema))
    _with_new_kind(tree / PACKAGE.name, have_new_kind)
    points = distribution(PROJECT).entry_points
    groups = {group: {e.name: e.value for e in points.select(group=group)} for group in points.groups}
    as_installed(tree, f"{package_version()}+{VERSION}", groups)
    return tree, prints


def _with_new_kind(package: Path, groups: Sequence[str]) -> None:
    table = package / TABLE
    text = table.read_text()
    if text.count(ROWS) != 1:
        raise DrillError(f"{TABLE} does not have the line {ROWS.strip()!r}")
    table.write_text(text.replace(ROWS, NEW_KIND.format(kind=KIND, groups=tuple(groups))))
    schema = json.loads(published()["group-v1"])
    head = [f for f in schema["fields"] if f["name"] in ("owner_epoch", "time_ms", "revision", "why")]
    schema |= {"name": KIND, "fields": head}
    (package / "state" / "schemas" / f"{KIND}-v1.avsc").write_text(json.dumps(schema))


class Rollback(Drill):
    """The sidecars become ones of tomorrow, which write newer schemas and a new kind, then one after the other today's
    again. The group with records of the new kind is released before, and adopted afterwards."""

    name = "rollback"

    def prepare(self, ground: Ground, i: int) -> None:
        first = ground.under_test[0]
        self.new = [first.members[0].group] if ground.kafka.has_consumer_groups else []
        """The group with the new kind. Kafka has to coordinate it while the sidecars cannot."""
        self.tree, self.prints = tomorrow(ground.kafka.folder, self.new)
        ground.unknown_kinds.add(KIND)

    def fault(self, ground: Ground, i: int) -> list[Mark]:
        marks, nodes, seen = [], ground.kafka.nodes, []
        where = ("--bootstrap", ground.kafka.bootstrap, *ground.kafka.command_config)
        for node in nodes:
            marks.append(Mark.now(f"sidecar {node.node_id} becomes one of tomorrow"))
            ground.kafka.trees[node.node_id] = self.tree
            replace_one(self, ground, node)
            seen.append(of_tomorrow(ground))
        ground.settled(self.patience_s)
        for c in ground.under_test:  # a member joins: its group's records are tomorrow's
            c.restart(c.clients[-1])
        for group in self.new:
            must("groups", "rebalance", group, *where, "--reason", "a record of the new kind is written")
        ground.settled(self.patience_s)
        written = self._written(ground)
        wanted = [*self.prints, *([KIND] if self.new else [])]
        self.find("records of newer schemas and of a new kind", written, all(written[kind] for kind in wanted))
        for group in self.new:
            must("groups", "release", group, *where)
        wait_whereabouts(ground, self.new, "broker", self.patience_s)
        for node in nodes:
            marks.append(Mark.now(f"sidecar {node.node_id} becomes one of today"))
            ground.kafka.trees.pop(node.node_id)
            replace_one(self, ground, node)
            seen.append(of_tomorrow(ground))
        steps = list(range(1, len(nodes) + 1))
        self.find("sidecars of tomorrow after each step", seen, seen == [*steps, *reversed(steps[:-1]), 0])
        for group in self.new:
            must("groups", "adopt", group, *where)
        wait_whereabouts(ground, self.new, "sidecar", self.patience_s)
        ground.settled(self.patience_s)
        return marks

    def heal(self, ground: Ground, i: int) -> None:
        unreadable = sum(unreadable_groups(n.admin_port) for n in ground.kafka.nodes)
        self.find("groups that today's version cannot read", unreadable, unreadable == 0)

    def _written(self, ground: Ground) -> dict[str, int]:
        """Return, by kind, the number of values of the newer schema, or of the new kind, in the topic."""
        counts = dict.fromkeys((*self.prints, KIND), 0)
        with Reader(ground.kafka.internal, STATE_TOPIC, ground.kafka.security.librdkafka()) as reader:
            for p in range(reader.partitions()):
                for raw in reader.read(p).records:
                    value = raw.value or b""
                    for kind, fingerprint in self.prints.items():
                        counts[kind] += value.startswith(MARK + fingerprint)
                    counts[KIND] += bool(value) and isinstance(raw.key, StateKey) and raw.key.kind == KIND
        return counts


def of_tomorrow(ground: Ground) -> int:
    return sum(running_version(n).endswith(VERSION) for n in ground.kafka.nodes)


def unreadable_groups(admin_port: int) -> int:
    """Return a sidecar's metric of unreadable groups. Raises DrillError if there is none."""
    with urllib.request.urlopen(f"http://127.0.0.1:{admin_port}/metrics", timeout=10) as res:
        values = re.findall(r"^sidecar_unreadable_groups (\S+)$", res.read().decode(), re.M)
    if len(values) != 1:
        raise DrillError(f"the sidecar at {admin_port} does not tell of unreadable groups")
    return int(float(values[0]))
