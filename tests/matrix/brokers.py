"""The broker matrix: on which versions of Kafka the sidecars work, with clients of today.

    python -m tests.matrix.brokers --doc docs/reference/versions.md                        all cells
    python -m tests.matrix.brokers --kafka 2.8.2 --cell demo,tools               these

Each cell is a run on three brokers of that version. The table in the document keeps what was not run now.

Exit code: 0 if every cell is yes, 1 if not.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import KafkaException
from rich.console import Console

from sidecar.drill.artifacts import KAFKA, ArtifactError
from sidecar.drill.processes import DrillError, interrupt_on_sigterm, wait_until
from tests.matrix.broker_table import CELLS, VERSIONS, Found, cells_of, updated
from tests.matrix.build import BuildError, NotRun
from tests.matrix.cluster import Cluster
from tests.matrix.report import LACKS, NO, YES, print_aligned
from tests.matrix.run import names
from tests.matrix.scenarios import SCENARIOS, Failed, Play, topic_name
from tests.matrix.table import EVERY, OLD_CLIENTS

CLIENTS_OF = {
    "consumer": ("rebalance", (f"java-{KAFKA}-consumer", "librdkafka-consumer")),
    "classic": ("rebalance", (f"java-{KAFKA}-cooperative", "java-2.8.2-range", "librdkafka-range")),
    "takeover": ("owner", (f"java-{KAFKA}-consumer", "librdkafka-range")),
    "old": ("resume", tuple(c.name for c in OLD_CLIENTS)),
}
"""By cell, the scenario and the clients that play it."""
TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
CONSOLE = "org.apache.kafka.tools.consumer.ConsoleConsumer"
DEMO_S, TOOL_S, RECORDS = 900, 120, 60


def demo(version: str, folder: Path) -> None:
    """`make demo`, with its audit. Raises Failed."""
    log = folder / "demo.log"
    command = [sys.executable, "-m", "sidecar.drill.demo", "--kafka", version, "--out", str(folder / "demo")]
    with log.open("w") as out:
        done = subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, timeout=DEMO_S, check=False)
    if done.returncode != 0:
        raise Failed(f"the demo ended with {done.returncode}: {log}")


def clients(cluster: Cluster, cell: str) -> None:
    """Raises Failed, NotRun, BuildError."""
    scenario, wanted = CLIENTS_OF[cell]
    known = {c.name: c for c in EVERY}
    cluster.make_topics(topic_name(cluster, known[name], scenario) for name in wanted)
    for name in wanted:
        play = Play(cluster, known[name], known[name].kit.build(), scenario)
        try:
            SCENARIOS[scenario][1](play)
        except Failed as exc:
            raise Failed(f"{name}: {exc}") from None
        finally:
            play.end()


def tools(cluster: Cluster) -> None:
    """Kafka's own tools list, describe, reset and delete a group of each protocol. Raises Failed."""
    topic = cluster.topic("topic." + cluster.group("tools"))
    feed = cluster.feed(topic).start()
    for protocol in ("consumer", "classic"):
        group = cluster.group(f"tools.{protocol}")
        read = ("--topic", topic, "--from-beginning", "--max-messages", str(RECORDS), "--timeout-ms", "60000")
        said = _tool(cluster, CONSOLE, *read, "--group", group, "--command-property", f"group.protocol={protocol}")
        _expect(said, f"Processed a total of {RECORDS} messages", "the console consumer")
        _expect(_tool(cluster, TOOL, "--list"), group, "the list of groups")
        _expect(_tool(cluster, TOOL, "--describe", "--group", group), topic, "the description")
        if not sum(cluster.committed(group, topic).values()):
            raise Failed(f"{group} has committed nothing")
        state = ("--describe", "--state", "--group", group)  # a client that resets its connection may not have left
        wait_until("the group to be empty", lambda state=state: "Empty" in _tool(cluster, TOOL, *state), TOOL_S)  # type: ignore[misc]
        reset = ("--reset-offsets", "--to-earliest", "--execute", "--group", group, "--topic", topic)
        _expect(_tool(cluster, TOOL, *reset), topic, "the reset")
        if sum(cluster.committed(group, topic).values()):
            raise Failed(f"the offsets of {group} are not reset")
        _expect(_tool(cluster, TOOL, "--delete", "--group", group), "was successful", "the deletion")
        if group in _tool(cluster, TOOL, "--list"):
            raise Failed(f"{group} is there after its deletion")
    feed.stop()


def _tool(cluster: Cluster, main: str, *args: str) -> str:
    code, said = cluster.kafka.run_tool(main, "--bootstrap-server", cluster.bootstrap, *args, timeout_s=TOOL_S)
    if code != 0:
        raise Failed(f"{main.rpartition('.')[2]} {args[0]} ended with {code}: {said.strip()[-200:]}")
    return said


def _expect(said: str, part: str, what: str) -> None:
    if part not in said:
        raise Failed(f"{what} does not say {part!r}: {said.strip()[-200:]}")


def one_cell(act: Callable[[], None]) -> Found:
    began = time.monotonic()
    try:
        act()
        found = Found(YES)
    except (Failed, NotRun, BuildError, DrillError, ArtifactError, KafkaException, subprocess.TimeoutExpired) as exc:
        found = Found(NO, " ".join(str(exc).split("\n")[0].split()))
    found.seconds = round(time.monotonic() - began)
    return found


def one_version(version: str, cells: list[str], folder: Path, say: Callable[[str, Found], None]) -> None:
    """One cluster for all cells but the demo, which has its own."""
    folder.mkdir(parents=True, exist_ok=True)
    if "demo" in cells:
        say("demo", one_cell(lambda: demo(version, folder)))
    rest = [c for c in cells if c != "demo"]
    if not rest:
        return
    cluster = Cluster(folder / "clients", version, direct=False)
    try:
        started = one_cell(cluster.start)
        for cell in rest:
            act = (lambda: tools(cluster)) if cell == "tools" else (lambda c=cell: clients(cluster, c))  # type: ignore[misc]
            say(cell, one_cell(act) if started.status == YES else started)
    finally:
        cluster.stop()


def main(argv: list[str]) -> int:
    ap = argparse.ArgumentParser(
        prog="brokers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    ap.add_argument("--kafka", default="", help="versions: " + ", ".join(VERSIONS))
    ap.add_argument("--cell", default="", help="cells: " + ", ".join(CELLS))
    ap.add_argument("--doc", type=Path, help="write what was found into the table of this document")
    ap.add_argument("--folder", type=Path, default=Path("out/brokers"), help="logs go below this folder")
    a = ap.parse_args(argv)
    versions, cells = names(a.kafka, list(VERSIONS), "version"), names(a.cell, list(CELLS), "cell")
    console = Console(highlight=False, soft_wrap=True)
    interrupt_on_sigterm()
    found: dict[tuple[str, str], Found] = {}

    def record_result(version: str, cell: str, result: Found) -> None:
        found[version, cell] = result
        console.print(f"{version} {cell}: {result.status}, {result.seconds} s {result.why}", markup=False)
        if a.doc:
            a.doc.write_text(updated(a.doc.read_text(), {(version, cell): result}))

    for version in versions:
        folder = a.folder / f"{version}-{time.strftime('%H%M%S')}"
        there = [c for c in cells if c in cells_of(version)]
        one_version(version, there, folder, lambda cell, result, v=version: record_result(v, cell, result))  # type: ignore[misc]
    lines = [[v, *(found[v, c].status if (v, c) in found else LACKS for c in cells)] for v in versions]
    print_aligned(["broker", *cells], lines, console)
    return 0 if all(f.status == YES for f in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
