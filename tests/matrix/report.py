"""The results of a run: they decide what a cell says, and become a table, a document, JSON and an exit code."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rich.console import Console

from tests.matrix.scenarios import SCENARIOS

YES, NO, KAFKA_TOO, LACKS, NOT_RUN = "yes", "no", "no, nor at Kafka", "–", "not run"
"""A cell's status. KAFKA_TOO: the client fails in the same scenario without sidecars. LACKS: it has no such setting."""
FAILED, INCOMPLETE = 1, 3


@dataclass
class Cell:
    status: str
    why: str = ""
    seconds: float = 0.0


@dataclass
class Row:
    name: str
    title: str
    how: str
    version: str = ""
    """As the program itself says, so it is the version that ran."""
    cells: dict[str, Cell] = field(default_factory=dict)

    @property
    def label(self) -> str:
        return self.version or self.title


@dataclass
class Run:
    kafka: str
    through: str
    scenarios: list[str]
    rows: list[Row] = field(default_factory=list)
    seconds: float = 0.0

    def exit_code(self) -> int:
        found = {c.status for r in self.rows for c in r.cells.values()}
        if NO in found:
            return FAILED
        return INCOMPLETE if NOT_RUN in found or not self.rows else 0


class Notes:
    """Footnotes: the same reason has the same number."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def number(self, text: str) -> int:
        if text not in self.texts:
            self.texts.append(text)
        return self.texts.index(text) + 1

    def cell(self, cell: Cell) -> str:
        if cell.status == YES:
            return YES
        return f"{cell.status} ({self.number(cell.why)})"


def print_aligned(heads: Sequence[str], rows: Sequence[Sequence[str]], console: Console) -> None:
    """Print a table in columns, as wide as it is: what a terminal cuts off, a log should have."""
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    for row in (heads, ["-" * w for w in widths], *rows):
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        console.print(line.rstrip(), markup=False)


def print_table(run: Run, console: Console) -> None:
    notes = Notes()
    print_aligned(header(run), lines(run, notes), console)
    for n, text in enumerate(notes.texts, 1):
        console.print(f"({n}) {text}", markup=False)


def header(run: Run) -> list[str]:
    return ["client", "protocol", *(SCENARIOS[s][0] for s in run.scenarios)]


def lines(run: Run, notes: Notes) -> list[list[str]]:
    return [[row.label, row.how, *(notes.cell(row.cells[s]) for s in run.scenarios)] for row in run.rows]


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


DOCUMENT = """# Clients

`make clients` wrote this file: unmodified clients, each in the same scenarios, {through} of three brokers
of Kafka {kafka}. A cell is what the run saw. The run took {minutes:.0f} minutes on a machine with 2 shared cores.

{table}

{notes}

The scenarios, each with a topic of 6 partitions, a steady producer and a group of its own:

- **join**: one member gets all partitions and consumes every record.
- **rebalance**: a second member joins, both hold a disjoint share and consume; it leaves, and the first gets all back.
- **static restart**: of two members with a `group.instance.id`, one is closed and started again within its session.
  It gets its partitions back, and the other one is told of no change at all.
- **commit and resume**: everything that was consumed is committed, the member closes while the producer goes on, and
  the next one begins at the committed offsets: no record is lost, none is consumed twice.
- **owner killed**: {owner} is killed with SIGKILL while two members consume, and started again
  after {back:g} seconds. Within {within:g} seconds both consume and commit again, and in the end every record has
  been consumed.

In no scenario may two members hold a partition at the same time, by their own account, and the sidecars must own the
group, not the broker. Sessions last 45 s, heartbeats come every second, and clients commit after each batch or twice a
second. So that nothing waits for long, kafkajs and kafka-go fetch for 0.3 s at most, and Connect gives the tasks of a
worker that left away at once. kafka-python learns its topic's partitions before it joins ([below](#kafka-python-30)).
Everything else is as the clients have it by default. The programs are in
[tests/matrix/programs](../../tests/matrix/programs).

"–" is a scenario that the client has no setting for. "no, nor at Kafka" is one that fails without sidecars, too. "not
run" is a client whose tools were not on the machine. `ARGS=--direct` plays everything without sidecars.

## kafka-python 3.0

Call `partitions_for_topic(topic)` before the first `poll()`. Otherwise a leader of 3.0.12 learns the partitions after
it has joined, and joins again. If `poll()` ends before the answer, it forgets that join and sends no more heartbeats,
so its session ends. That happens with the brokers, too.

## librdkafka's first assignment (consumer protocol)

librdkafka 2.16 looks up the names of the first topics that it is assigned, and says in each heartbeat until then that
it owns nothing. If a second member joins meanwhile, the coordinator gives that member its share at once, as Kafka's
does. The first one applies what it was told before, and both have those partitions until its next heartbeat. In drills
on a busy machine this came to 0.8 s. Call `list_topics(topic)` before `subscribe()`: then nothing is looked up.

## franz-go's static members of the consumer protocol

franz-go 1.22.2 leaves with member epoch -2 and without its instance id. Kafka 4.4.0 and the sidecar both refuse that
with INVALID_REQUEST, so the member stays. Its successor is answered UNRELEASED_INSTANCE_ID until the old session ends
(45 s by default).
"""


def write_document(run: Run, path: Path, back_after_s: float, within_s: float) -> None:
    notes = Notes()
    columns = header(run)
    table = [_line(columns), "|" + "---|" * len(columns), *map(_line, lines(run, notes))]
    text = DOCUMENT.format(
        kafka=run.kafka,
        through=run.through,
        minutes=run.seconds / 60,
        table="\n".join(table),
        notes="\n".join(f"{n}. {text}" for n, text in enumerate(notes.texts, 1)),
        owner="the sidecar that owns the group",
        back=back_after_s,
        within=within_s,
    )
    path.write_text(text.replace("\n\n\n", "\n"))


def write_json(run: Run, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(asdict(run), indent=1) + "\n")
