"""The client matrix: many unmodified clients, each through the same scenarios, on a real cluster with sidecars.

    make clients
    python -m tests.matrix.run --direct --only kafkajs,sarama-range --scenario join,rebalance

It decides the order (one client after another, on one cluster) and what is not worth trying: a client that cannot be
built here is "not run", and one that cannot join is not put through the rest. What fails is played once more at the
brokers themselves, on the same cluster, and a cell says so if it fails there too.

Exit code: 0 if every cell is yes or is nothing that sidecars could help, 1 if a cell failed, 3 if a row could not be
run.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from confluent_kafka import KafkaException
from rich.console import Console

from sidecar.drill.artifacts import KAFKA, ArtifactError
from sidecar.drill.processes import DrillError, interrupt_on_sigterm
from tests.matrix.build import BuildError, NotRun, Program
from tests.matrix.cluster import Cluster
from tests.matrix.report import (
    FAILED,
    KAFKA_TOO,
    LACKS,
    NO,
    NOT_RUN,
    YES,
    Cell,
    Row,
    Run,
    print_aligned,
    print_table,
    write_document,
    write_json,
)
from tests.matrix.scenarios import BACK_AFTER_S, OWNER_S, SCENARIOS, Failed, Play, topic_name
from tests.matrix.table import CLIENTS, EVERY, Client
from tests.matrix.wire import APIS, versions


def names(text: str, known: Sequence[str], what: str) -> list[str]:
    wanted = [w for w in text.split(",") if w]
    unknown = [w for w in wanted if w not in known]
    if unknown:
        raise SystemExit(f"no such {what}: {', '.join(unknown)}; known: {', '.join(known)}")
    return [k for k in known if k in wanted] if wanted else list(known)


def build_all(clients: Sequence[Client], console: Console) -> dict[str, Program | Cell]:
    """Build every client before anything is started. A cell instead of a program says why there is none."""
    programs: dict[str, Program | Cell] = {}
    for client in clients:
        try:
            programs[client.name] = client.kit.build()
        except NotRun as exc:
            programs[client.name] = Cell(NOT_RUN, str(exc))
        except BuildError as exc:
            console.print(str(exc), markup=False)
            programs[client.name] = Cell(NO, f"the build failed: {str(exc).splitlines()[0]}")
    console.print(f"{sum(isinstance(p, Program) for p in programs.values())} of {len(programs)} clients are built")
    return programs


def play(cluster: Cluster, client: Client, program: Program, scenario: str, row: Row) -> Cell:
    began = time.monotonic()
    try:
        stage = Play(cluster, client, program, scenario)
        try:
            SCENARIOS[scenario][1](stage)
            cell = Cell(YES)
        except Failed as exc:
            cell = Cell(NO, str(exc))
        finally:
            stage.end()
            row.version = row.version or next((m.journal.version for m in stage.members), "")
    except (DrillError, KafkaException) as exc:
        cell = Cell(NO, f"the cluster failed: {str(exc).splitlines()[0]}")
    cell.seconds = round(time.monotonic() - began, 1)
    return cell


def one_client(cluster: Cluster, client: Client, program: Program | Cell, run: Run, console: Console) -> None:
    row = Row(client.name, client.title, client.how)
    run.rows.append(row)
    joined = True
    for scenario in run.scenarios:
        if isinstance(program, Cell):
            cell = replace(program)
        elif scenario in client.lacks:
            cell = Cell(LACKS, client.lacks[scenario])
        elif not joined:
            cell = Cell(NO, "not tried, since the client did not join")
        else:
            cell = play(cluster, client, program, scenario, row)
            joined = scenario != "join" or cell.status == YES
        row.cells[scenario] = cell
    said = ", ".join(f"{s} {c.status}" + (f" {c.seconds:.0f} s" * (c.seconds > 0)) for s, c in row.cells.items())
    console.print(f"{client.name}: {said}")
    for scenario, cell in row.cells.items():
        if cell.status == NO and cell.seconds:
            console.print(f"  {scenario}: {cell.why}", markup=False)


def compare(cluster: Cluster, programs: dict[str, Program | Cell], run: Run, console: Console) -> None:
    """Play what failed once more without sidecars: what fails there too says something of the client, not of us."""
    cluster.direct = True
    for row in run.rows:
        client = next(c for c in EVERY if c.name == row.name)
        program = programs[row.name]
        for scenario, cell in row.cells.items():
            if cell.status != NO or cell.seconds == 0 or isinstance(program, Cell):
                continue
            at_kafka = play(cluster, client, program, scenario, row)
            console.print(f"{row.name}: {scenario} directly at the brokers: {at_kafka.status}")
            if at_kafka.status == NO:
                other = "the same" if at_kafka.why == cell.why else at_kafka.why
                row.cells[scenario] = Cell(KAFKA_TOO, f"{cell.why}; without sidecars: {other}")


def arguments(argv: list[str]) -> argparse.Namespace:
    ap = argparse.ArgumentParser(
        prog="clients", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    ap.add_argument("--only", default="", help="clients: " + ", ".join(c.name for c in EVERY))
    ap.add_argument("--scenario", default="", help="scenarios: " + ", ".join(SCENARIOS))
    ap.add_argument("--direct", action="store_true", help="members connect to the brokers, and there are no sidecars")
    ap.add_argument("--wire", action="store_true", help="with --direct: tell the versions of what each client sends")
    ap.add_argument("--kafka", default=KAFKA, help="the version of the brokers")
    ap.add_argument("--json", type=Path, help="write what the run saw to this file")
    ap.add_argument("--doc", type=Path, help="write the table as a document; only a complete run through sidecars does")
    ap.add_argument("--folder", type=Path, default=Path("out/clients"), help="logs go below this folder")
    a = ap.parse_args(argv)
    if a.wire and not a.direct:
        ap.error("--wire needs --direct")
    return a


def run_all(a: argparse.Namespace, run: Run, clients: Sequence[Client], folder: Path, console: Console) -> None:
    programs = build_all(clients, console)
    cluster = Cluster(folder, a.kafka, a.direct, a.wire)
    try:
        cluster.start()
        for client, after in zip(clients, [*clients[1:], None], strict=True):
            for soon in filter(None, (client, after)):  # topics should not be new when members ask for them
                cluster.make_topics(topic_name(cluster, soon, scenario) for scenario in run.scenarios)
            one_client(cluster, client, programs[client.name], run, console)
        if not a.direct:
            compare(cluster, programs, run, console)
    finally:
        cluster.stop()
    if cluster.taps is not None:
        print_aligned(["client", *APIS.values()], versions(cluster.taps.seen, [c.name for c in clients]), console)


def main(argv: list[str]) -> int:
    a = arguments(argv)
    wanted = names(a.only, [c.name for c in EVERY], "client") if a.only else [c.name for c in CLIENTS]
    clients = [c for c in EVERY if c.name in wanted]
    through = "directly" if a.direct else "through the sidecars"
    run = Run(a.kafka, through, names(a.scenario, list(SCENARIOS), "scenario"))
    console = Console(highlight=False, soft_wrap=True)
    interrupt_on_sigterm()
    folder = a.folder / time.strftime("%H%M%S")
    began = time.monotonic()
    try:
        run_all(a, run, clients, folder, console)
    except KeyboardInterrupt:
        console.print(f"interrupted; logs: {folder}")
        return 130
    except (DrillError, ArtifactError) as exc:
        console.print(f"failed: {exc}\nlogs: {folder}", markup=False)
        return FAILED
    run.seconds = round(time.monotonic() - began, 1)
    print_table(run, console)
    console.print(f"{run.seconds:.0f} s; logs: {folder}")
    if a.json:
        write_json(run, a.json)
    if a.doc and not a.direct and len(clients) == len(CLIENTS) and len(run.scenarios) == len(SCENARIOS):
        write_document(run, a.doc, BACK_AFTER_S, OWNER_S)
        console.print(f"written: {a.doc}")
    return run.exit_code()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
