"""`make demo`: sidecars coordinate a consumer group, a share group and an application on Kafka Streams; an owner is
killed, and Spark audits what happened.

Everything is real: Apache Kafka, unmodified clients, Spark. The demo fails if anything was lost or owned twice.
"""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from sidecar.audit.page import Mark, build, view
from sidecar.audit.run.verdict import verdict as verdict_of
from sidecar.audit.tables.gold import GOLD
from sidecar.core.share.config import SHARE
from sidecar.core.streams.config import STREAMS
from sidecar.drill.artifacts import kafka_libs
from sidecar.drill.clients import backward_commits, double_owned, missing, not_in_audit
from sidecar.drill.drills.group_under_test import GroupUnderTest
from sidecar.drill.drills.run import STOPS_OF_CLIENTS
from sidecar.drill.lake import audited, owned, rows
from sidecar.drill.processes import interrupt_on_sigterm
from sidecar.drill.scenario import GROUP, PARTITIONS, TOPIC, Scenario

COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "red")


class Screen:
    """Shows a live view on a terminal, and plain lines elsewhere."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.lines: list[str] = []
        self.started = time.monotonic()
        self.scenario: Scenario | None = None
        self._live: Live | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def report(self, text: str) -> None:
        line = f"[dim]{time.monotonic() - self.started:6.1f} s[/]  {text}"
        self.lines.append(line)
        if self._live is None:
            self.console.print(line)

    def open(self) -> None:
        if not self.console.is_terminal:
            return
        self._live = Live(self._render(), console=self.console, refresh_per_second=8, transient=True)
        self._live.start()
        self._thread = threading.Thread(target=self._refresh, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=2)
        if self._live is not None:
            self._live.update(self._render())
            self._live.stop()
            self._live = None
            for line in self.lines:
                self.console.print(line)

    def _refresh(self) -> None:
        while not self._stop.wait(0.15):
            if self._live is not None:
                self._live.update(self._render())

    def _render(self) -> Any:
        parts: list[Any] = []
        s = self.scenario
        if s is not None:
            parts.append(self.status(s))
        parts.append(Panel(Text.from_markup("\n".join(self.lines[-9:])), title="what happened", border_style="dim"))
        return Group(*parts)

    def status(self, s: Scenario) -> Any:
        view = s.probe.view if s.probe else None
        owners, lag = s.owners(), s.lag()
        names = [c.name for c in s.clients]
        colour = {n: COLOURS[i % len(COLOURS)] for i, n in enumerate(names)}
        table = Table(title=None, expand=False, pad_edge=False)
        table.add_column("partition")
        for p in range(PARTITIONS):
            table.add_column(str(p), justify="center")
        table.add_row(
            "owner",
            *[f"[{colour[owners[p]]}]{_short(owners[p])}[/]" if p in owners else "-" for p in range(PARTITIONS)],
        )
        table.add_row("lag", *[str(lag.get(p, 0)) for p in range(PARTITIONS)])
        epochs = {m["client"]: m["epoch"] for m in view.members} if view else {}
        people = "  ".join(
            f"[{colour[c.name]}]{c.name}[/] ({_short(c.name)}) epoch {epochs.get(c.name, '-')}, {c.journal.count} records"
            for c in s.clients
            if not c.journal.ended
        )
        head = "no answer yet"
        if view is not None and view.owner >= 0:
            head = f"owner [bold]sidecar {view.owner}[/], state [bold]{view.state}[/], group epoch {view.group_epoch}, assignment epoch {view.assignment_epoch}"
        below = "\n".join([people or "no clients yet", *map(_progress, s.beside)])
        body = Group(Text.from_markup(head), table, Text.from_markup(below))
        return Panel(body, title=f"group {GROUP}", border_style="cyan")


DOES = {SHARE: "acknowledged", STREAMS: "counted exactly once"}


def _progress(group: GroupUnderTest) -> str:
    """Return the progress of a share or streams group's clients, in one line."""
    what = "  ".join(f"{c.name} {c.journal.count}" for c in group.clients)
    return f"[dim]{group.kind} group {group.group}:[/] {what} records {DOES[group.kind]}"


def _short(name: str) -> str:
    kind, _, n = name.partition("-")
    return f"{kind[0]}{n}"


def run_demo(out: Path, kafka: str) -> int:
    console = Console(highlight=False)
    screen = Screen(console)
    interrupt_on_sigterm()
    scenario: Scenario | None = None
    try:
        screen.report(f"fetching Kafka {kafka} from its Maven artifacts, if it is not here yet")
        kafka_libs(kafka)
        run = out / "run"
        for old in (run, out / "lake"):
            shutil.rmtree(old, ignore_errors=True)
        scenario = screen.scenario = Scenario(run, kafka, screen.report)
        screen.open()
        marks = _play(scenario, screen)
        screen.close()
        return _judge(scenario, screen, console, marks, out)
    except KeyboardInterrupt:
        screen.close()
        console.print(f"[yellow]interrupted[/]; logs: {out / 'run'}")
        return 130
    except STOPS_OF_CLIENTS as exc:
        screen.close()
        console.print(f"[red]failed:[/] {escape(str(exc) or repr(exc))}")
        console.print(f"logs: {out / 'run'}")
        return 1
    finally:
        if scenario is not None:
            scenario.stop()


def _now_ms() -> int:
    return int(time.time() * 1000)


def _play(s: Scenario, screen: Screen) -> list[Mark]:
    """Play the scenario, and return a mark for each step with its time."""
    say = screen.report
    marks: list[Mark] = []

    def mark(label: str, fault: bool = False) -> None:
        marks.append(Mark(_now_ms(), label, fault))

    s.start()
    for name in ("java-1", "py-1", "java-2", "py-2"):
        s.consumer(name)
    mark("four start")
    took = s.wait("four consumers sharing all partitions", lambda: s.balanced(4), 60)
    say(f"two Java and two librdkafka consumers share {PARTITIONS} partitions after {took:.1f} s")
    if s.beside:
        s.wait("records for all further groups", lambda: all(g.balanced() for g in s.beside), 60)
        say("\n          ".join(_progress(g) for g in s.beside))
    time.sleep(3)

    mark("py-3 joins")
    s.consumer("py-3")
    took = s.wait("five consumers sharing all partitions", lambda: s.balanced(5), 60)
    say(f"py-3 joined: five share them after {took:.1f} s")
    time.sleep(3)

    mark("java-2 leaves")
    next(c for c in s.clients if c.name == "java-2").stop()
    took = s.wait("four consumers sharing all partitions again", lambda: s.balanced(4), 60)
    say(f"java-2 left: four share them after {took:.1f} s")
    time.sleep(3)

    _kill_owner(s, say, mark)
    time.sleep(4)
    s.wait("four consumers sharing all partitions after the kill", lambda: s.balanced(4), 60)
    assert s.producer is not None
    s.producer.stop()
    mark("producer stops")
    took = s.wait("everything consumed and committed", lambda: not any(s.lag().values()) and s.committed_all(), 60)
    s.wait("the further groups to be through with everything", s.consumed_all, 90)
    say(f"the producer stopped after {sum(s.producer.counts.values())} records; all are consumed and committed")
    mark("consumers stop")
    s.stop_clients()
    return marks


def _kill_owner(s: Scenario, say: Callable[[str], None], mark: Callable[[str, bool], None]) -> None:
    owner = s.kafka.owner_of(GROUP)
    assert owner.sidecar is not None and s.probe is not None
    pid = owner.sidecar.worker_pid
    at = time.monotonic()
    at_ms = _now_ms()
    mark(f"SIGKILL sidecar {owner.node_id}", True)
    owner.sidecar.kill()
    owner.sidecar = None
    say(f"[red]SIGKILL[/] to sidecar {owner.node_id} (pid {pid}), which owned the group")
    probe = s.probe
    s.wait("a heartbeat accepted by another owner", lambda: probe.first_after(at) is not None, 30)
    new = s.kafka.owner_of(GROUP, skip=owner.node_id)
    accepted_s = probe.first_after(at) or 0.0
    say(f"first heartbeat accepted [bold]{accepted_s:.2f} s[/] after the kill, by sidecar {new.node_id}")
    accepted_ms = at_ms + accepted_s * 1000

    def commits_ms() -> list[float]:
        """Return the commits after that heartbeat: an earlier answer may be the former owner's from before the kill."""
        return [c[0] for j in s.journals for c in j.commit_log if c[0] >= accepted_ms]

    s.wait("a commit by a consumer", lambda: bool(commits_ms()), 30)
    first = min(commits_ms())
    say(f"first commit acknowledged to a consumer {(first - at_ms) / 1000:.2f} s after the kill")
    time.sleep(max(0.0, 4 - (time.monotonic() - at)))
    mark(f"sidecar {owner.node_id} back", False)
    s.kafka.start_sidecar(owner)
    s.kafka.wait_ready()
    say(f"sidecar {owner.node_id} is back and owns what lies beside its broker again")


def _judge(s: Scenario, screen: Screen, console: Console, marks: list[Mark], out: Path) -> int:
    screen.report("the PySpark audit reads __group_state into a lake")
    started = time.monotonic()
    lake = audited(s.kafka.internal, out / "lake")
    verdict = verdict_of(lake)
    screen.report(f"{verdict.records} records audited in {time.monotonic() - started:.1f} s")
    end_ms = max(m.time_ms for m in marks) + 1500
    mine = owned(lake, GROUP)
    here = [c["state_partition"] for c in rows(lake, "coverage") if c["group_id"] == GROUP]
    claims = [c for c in rows(lake, "coordinators") if c["state_partition"] in here]
    claims.sort(key=lambda c: c["from_offset"])
    assert s.producer is not None
    produced = sum(s.producer.counts.values())
    hung = [c.name for c in s.all_clients if c.hung]
    checks: list[tuple[str, object, bool]] = [
        ("records lost", missing(s.producer.ends, s.journals), missing(s.producer.ends, s.journals) == 0),
        ("sends refused", s.producer.failed, s.producer.failed == 0),
        ("clients that had to be killed", len(hung), not hung),
        ("second owners in the audit", verdict.proven + verdict.possible, not verdict.proven + verdict.possible),
        ("overlaps by the clients' own word", len(double_owned(s.journals)), not double_owned(s.journals)),
        ("client records not in the audit", len(not_in_audit(s.journals, mine)), not not_in_audit(s.journals, mine)),
        ("commits that went back", len(backward_commits(s.journals)), not backward_commits(s.journals)),
        *(check for group in s.beside for check in _checks(group, s.producer.ends)),
        ("writes of a fenced owner", verdict.stale_writes, not verdict.stale_writes),
        ("epochs that went back", verdict.went_back, not verdict.went_back),
        (
            "records that the audit lacks",
            verdict.completeness.missing + verdict.lost + verdict.unreadable,
            verdict.complete,
        ),
    ]
    _print_intervals(console, mine)
    _print_owners(console, here[0] if here else -1, claims)
    _print_checks(console, checks)
    for line in [*double_owned(s.journals), *not_in_audit(s.journals, mine), *backward_commits(s.journals)][:10]:
        console.print(f"  {line}", style="red", markup=False)
    ok = all(c[2] for c in checks) and bool(mine) and produced > 0
    cards: list[tuple[str, object, bool | None]] = [
        ("records produced and consumed", produced, None),
        ("ownership intervals", len(mine), None),
        ("takeovers of its coordinator", len(claims), None),
        *checks,
    ]
    page = out / "report.html"
    tables = {name: lake.read_arrow(table) for name, table in GOLD.items()}
    title = f"Groups on {TOPIC}: demo on Kafka {s.kafka.version}"
    groups = [GROUP, *(g.group for g in s.beside)]
    shown = view(tables, groups=groups, marks=marks, checks=cards, title=title, until_ms=end_ms)
    page.write_text(build(shown))
    screen.report(f"report: {page}   lake: {out / 'lake'}   logs: {out / 'run'}")
    console.print(f"ask it: sidecar audit ownership --lake {out / 'lake'} --topic {TOPIC}-0 --since 1h")
    console.print("[green]nothing lost, nothing owned by two at once[/]" if ok else "[red]the run FAILED its checks[/]")
    return 0 if ok else 1


BAD = {
    SHARE: ("records lost", "records acknowledged twice"),
    STREAMS: ("records not counted, or twice", "counts that went back"),
}


def _checks(group: GroupUnderTest, produced: dict[int, int]) -> list[tuple[str, object, bool]]:
    """Return the checks of a share or streams group at the end: label, count, and whether it is good."""
    counts = zip(BAD[group.kind], (group.lost(produced), len(group.went_back())), strict=True)
    return [(f"{group.kind} group: {label}", count, not count) for label, count in counts]


def _clock(ms: int | None) -> str:
    return "" if ms is None else time.strftime("%H:%M:%S", time.gmtime(ms / 1000)) + f".{ms % 1000:03d}"


def _print_owners(console: Console, partition: int, claims: list[dict[str, Any]]) -> None:
    table = Table(title=f"Owners of state partition {partition}, where group {GROUP} lives")
    for head in ("from (UTC)", "sidecar", "owner epoch", "why"):
        table.add_column(head)
    for c in claims:
        table.add_row(_clock(c["from_ms"]), str(c["node_id"]), str(c["claim"]), c["from_why"])
    console.print(table)


def _print_checks(console: Console, checks: list[tuple[str, object, bool]]) -> None:
    table = Table(title="Audit against the clients' own records and what was produced")
    for head in ("check", "found", ""):
        table.add_column(head)
    for label, value, ok in checks:
        table.add_row(label, str(value), "[green]ok[/]" if ok else "[red]BAD[/]")
    console.print(table)


def _print_intervals(console: Console, mine: list[dict[str, Any]]) -> None:
    table = Table(title=f"Ownership of {TOPIC} by group {GROUP}, from __group_state")
    for head in ("partition", "owner", "epoch", "from (UTC)", "to", "ended because"):
        table.add_column(head)
    last = None
    for i in mine:
        place = f"{i['topic']}-{i['partition']}"
        table.add_row(
            place if place != last else "",
            i["client_id"],
            str(i["epoch"]),
            _clock(i["from_ms"]),
            _clock(i["to_ms"]),
            i["to_why"] or "",
        )
        last = place
    console.print(table)


def main(argv: list[str]) -> int:
    import argparse

    from sidecar.drill.artifacts import KAFKA

    ap = argparse.ArgumentParser(prog="demo", description=__doc__)
    ap.add_argument("--kafka", default=KAFKA, help="version of the brokers")
    ap.add_argument("--out", type=Path, default=Path("out/demo"))
    a = ap.parse_args(argv)
    return run_demo(a.out, a.kafka)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
