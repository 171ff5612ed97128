"""`sidecar audit`: fill a lake from the state topic, and ask it who owned which partition when, and why it changed.

`run` and `stream` need Spark, and so Java. The questions need neither: they read the lake's files.

Exit codes: 0 clean, 1 findings, 2 wrong usage, 3 cannot read, 4 no findings, but the history is not complete.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sidecar.audit.moments import FOR_EVER_MS
from sidecar.cli.connect import CommandConfig, finite, properties
from sidecar.cli.exits import Code, Failed
from sidecar.cli.history import At, Since, Until, moment_of
from sidecar.cli.output import Format, Output, print_rows
from sidecar.cli.plain import echo

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sidecar.audit.lake.lake import Lake
    from sidecar.audit.run.continuous import Metrics

FINDINGS, USAGE, UNREADABLE, INCOMPLETE = Code.FINDINGS, Code.USAGE, Code.UNREACHED, Code.INCOMPLETE
FILL = "Fill it with `sidecar audit run --from kafka://HOST:PORT --lake FOLDER`."
audit = typer.Typer(no_args_is_help=True, help="Keep the whole history of the groups, and ask it questions.")
LakePath = Annotated[
    str, typer.Option("--lake", metavar="FOLDER", help="Where the lake is: a folder, or s3://, abfss:// or gs://.")
]
Source = Annotated[
    str,
    typer.Option(
        "--from", metavar="URI", help="kafka://HOST:PORT, delta://FOLDER, s3://FOLDER, parquet://FOLDER or file://FILE."
    ),
]
Group = Annotated[str | None, typer.Option(help="Only this group.")]
Pairs = Annotated[
    list[str] | None,
    typer.Option(
        "--option", "-O", metavar="NAME=VALUE", help="kafka.PROPERTY=VALUE is a property of librdkafka, for the source."
    ),
]
Topic = Annotated[str, typer.Option(help="The state topic.")]


class Tool(StrEnum):
    """The tools for which `views` prints SQL."""

    DUCKDB = "duckdb"
    SPARK = "spark"
    DELTA = "delta"
    TRINO = "trino"


@audit.command()
def run(
    source: Source,
    lake: LakePath = "out/audit/lake",
    topic: Topic = "__group_state",
    command_config: CommandConfig = None,
    option: Pairs = None,
    new_incarnation: Annotated[bool, typer.Option(help="The topic was re-created: begin anew beside the old.")] = False,
    fail_on_possible: Annotated[bool, typer.Option(help="A second owner that is only possible is a finding.")] = False,
    output: Format = Output.TABLE,
) -> None:
    """Read what the lake does not have yet, bring its tables up to date, and say what they say."""
    options = {"topic": topic, **_options(option, command_config)}
    if new_incarnation:
        options["new_incarnation"] = "true"
    into = _lake(lake)
    with _errors():
        from sidecar.audit.run import pipeline

        if pipeline.to_do(source, into, options):
            with _spark() as spark:
                pipeline.audit(spark, source, into, options, _say)
        elif into.last_batch() < 0:
            _say(f"{source} has no records yet")
    _tell(_filled(lake), fail_on_possible, output)


@audit.command()
def stream(
    source: Source,
    lake: LakePath = "out/audit/lake",
    topic: Topic = "__group_state",
    command_config: CommandConfig = None,
    option: Pairs = None,
    every: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.1, callback=finite, help="From one batch to the next.")
    ] = 30.0,
    max_records: Annotated[int, typer.Option(min=0, help="Of one batch; 0: no limit.")] = 500_000,
    maintain_every: Annotated[
        int, typer.Option(metavar="BATCHES", min=0, help="Do what `maintain` does after so many batches; 0: never.")
    ] = 100,
    metrics: Annotated[
        str,
        typer.Option(metavar="HOST:PORT", help="Where Prometheus finds its metrics; PORT alone: on 127.0.0.1."),
    ] = "",
) -> None:
    """Do what `run` does over and over, and warn before compaction takes what the lake does not have."""
    import signal

    address = _address(metrics)
    options = {"topic": topic, "max_records": str(max_records), **_options(option, command_config)}
    with _errors(), _spark() as spark:
        from sidecar.audit.run.continuous import Continuous

        job = Continuous(spark, source, _lake(lake), options, every, _say, maintain_every=maintain_every)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: job.stopped.set())
        if address is not None:
            _say(f"metrics at port {_serving(job.metrics, *address)}")
        job.run()
    _say("stopped; the lake has everything that was said to be in it")


@contextmanager
def _errors() -> Iterator[None]:
    """Around what reads the source or the lake, or fills it. Raises Failed."""
    from sidecar.audit.errors import AuditError, Misused

    try:
        yield
    except Misused as exc:
        raise Failed(USAGE, str(exc), "Mend the option, -O or --command-config. Nothing was read.") from None
    except BrokenPipeError:  # of this program's own output
        raise
    except (AuditError, OSError) as exc:  # such as a full disk
        then = "Check --from, --command-config and --lake. What was read before is kept; the next run goes on from it."
        raise Failed(UNREADABLE, str(exc), then) from None


@contextmanager
def _spark() -> Iterator[SparkSession]:
    from sidecar.audit.run.session import session

    spark = session()
    try:
        yield spark
    finally:
        spark.stop()


def _say(text: str) -> None:
    echo(text, err=True)


def _address(text: str) -> tuple[str, int] | None:
    """Returns the address to listen on: a port alone is one of 127.0.0.1, 0.0.0.0:PORT are all addresses."""
    if not text:
        return None
    host, _, port = (f"127.0.0.1:{text}" if text.isdecimal() else text).rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise typer.BadParameter(f"{text!r} is no HOST:PORT.")
    return host.strip("[]"), int(port)


def _serving(metrics: Metrics, host: str, port: int) -> int:
    """The port. Raises Failed where it is not free."""
    try:
        return metrics.serve(host, port)
    except OSError as exc:
        raise Failed(USAGE, f"--metrics {host}:{port}: {exc.strerror}", "Name another port, or leave it out.") from None


@audit.command()
def maintain(
    lake: LakePath = "out/audit/lake",
    retention: Annotated[
        int,
        typer.Option(metavar="HOURS", min=0, help="How long files stay that were replaced: longer than any reader."),
    ] = 168,
) -> None:
    """Put small files together, and remove what no reader needs. `run` and `stream` may go on meanwhile."""
    into = _filled(lake)
    with _errors():
        from sidecar.audit.run.maintain import maintain as maintained

        echo(f"{maintained(into, retention)}.")


@audit.command()
def status(lake: LakePath = "out/audit/lake", fail_on_possible: bool = False, output: Format = Output.TABLE) -> None:
    """Say again what the lake says: findings, and since when its history is complete."""
    _tell(_filled(lake), fail_on_possible, output)


@audit.command()
def ownership(
    lake: LakePath = "out/audit/lake",
    topic: Annotated[str | None, typer.Option(help="Only this topic, or TOPIC-0 for one partition.")] = None,
    partition: Annotated[int | None, typer.Option(min=0, help="Only this partition of the topic.")] = None,
    group: Group = None,
    at: At = None,
    since: Since = None,
    until: Until = None,
    output: Format = Output.TABLE,
) -> None:
    """Print who owned which partition, at a moment or over a time."""
    from sidecar.audit.ask import query

    begin, end = moment_of(since, 0), moment_of(until, FOR_EVER_MS)
    if at is not None or (since is None and until is None):
        begin = end = moment_of(at, FOR_EVER_MS)  # this machine's clock may be behind
    given = {"topic": topic, "partition": partition, "group": group, "since": begin, "until": end}
    _show(_filled(lake), query.OWNERSHIP, given, output)


@audit.command()
def rebalances(
    lake: LakePath = "out/audit/lake",
    group: Group = None,
    since: Since = None,
    until: Until = None,
    output: Format = Output.TABLE,
) -> None:
    """Print why groups rebalanced, how long it took, and how many partitions moved."""
    from sidecar.audit.ask import query

    _show(_filled(lake), query.REBALANCES, _between(group, since, until), output)


@audit.command()
def overlaps(
    lake: LakePath = "out/audit/lake",
    group: Group = None,
    since: Since = None,
    until: Until = None,
    output: Format = Output.TABLE,
) -> None:
    """Partitions that had a second owner. Exit code 1 if there is a proven one."""
    from sidecar.audit.ask import query

    rows = _show(_filled(lake), query.OVERLAPS, _between(group, since, until), output)
    raise typer.Exit(FINDINGS if any(r["grade"] == "proven" for r in rows) else 0)


@audit.command()
def coverage(
    lake: LakePath = "out/audit/lake",
    group: Group = None,
    since: Since = None,
    until: Until = None,
    output: Format = Output.TABLE,
) -> None:
    """Print what was read of each group with records in that time, what is missing, and since when it is complete."""
    from sidecar.audit.ask import query

    _show(_filled(lake), query.COVERAGE, _between(group, since, until), output)


@audit.command()
def check(lake: LakePath = "out/audit/lake", output: Format = Output.TABLE) -> None:
    """Try what must hold of the tables of gold. Exit code 1 if something does not."""
    from sidecar.audit.ask import query

    with _errors():
        broken = query.broken(_filled(lake))
    rows = [{"invariant": name, "rows": count, "broken": sentence} for name, (sentence, count) in broken.items()]
    if rows or output is not Output.TABLE:
        print_rows(rows, output)
    if broken:
        raise typer.Exit(FINDINGS)
    if output is Output.TABLE:
        echo("All that must hold does.")


@audit.command()
def report(
    lake: LakePath = "out/audit/lake",
    group: Group = None,
    out: Annotated[Path, typer.Option(help="The page: one file, which needs no network.")] = Path(
        "out/audit/report.html"
    ),
    since: Since = None,
    until: Until = None,
) -> None:
    """Draw it: a page for the browser, of all groups or of one, of all time or of some. It has a button that saves the
    same as a trace for Perfetto.
    """
    from sidecar.audit.ask.query import at_one_batch
    from sidecar.audit.page import Period, build, view
    from sidecar.audit.run.verdict import verdict
    from sidecar.audit.tables.gold import GOLD

    filled = _filled(lake)
    with _errors():
        tables, lacks = at_one_batch(
            filled, lambda: ({n: filled.read_arrow(table) for n, table in GOLD.items()}, verdict(filled).lacks)
        )
    title, now_ms = f"Group {group}" if group else "Groups", int(time.time() * 1000)
    period = None if since is None and until is None else Period(moment_of(since, 0), moment_of(until, FOR_EVER_MS))
    groups = () if group is None else (group,)
    shown = view(tables, groups=groups, title=title, until_ms=now_ms, period=period, lacks=lacks)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(build(shown), encoding="utf-8")
    except OSError as exc:
        raise Failed(USAGE, f"{out}: {exc.strerror}", "Name another file with --out.") from None
    echo(f"the page: {out}")


@audit.command()
def sql(
    query: Annotated[str, typer.Argument(metavar="SQL", help="DuckDB's dialect; the tables of gold by their names.")],
    lake: LakePath = "out/audit/lake",
    output: Format = Output.TABLE,
) -> None:
    """Ask whatever the other commands do not."""
    import duckdb

    try:
        _show(_filled(lake), query, {}, output)
    except duckdb.Error as exc:
        raise Failed(USAGE, str(exc), "`sidecar audit views` prints the tables that there are.") from None


@audit.command()
def views(
    lake: LakePath = "out/audit/lake",
    tool: Annotated[Tool, typer.Option("--for", help="delta: Spark with Delta's connector. spark: without.")] = (
        Tool.DUCKDB
    ),
) -> None:
    """Print SQL that makes all tables known: `sidecar audit views > views.sql`, then `duckdb -init views.sql`."""
    from sidecar.audit.ask import catalog

    for statement in catalog.statements(_filled(lake), tool):
        for line in f"{statement};".splitlines():
            echo(line)


@audit.command()
def publish(
    lake: LakePath = "out/audit/lake",
    catalog: Annotated[str, typer.Option(help="As pyiceberg's configuration names it.")] = "default",
) -> None:
    """Bring the Iceberg tables of a catalog, in its namespace group_state, to where the lake's gold is."""
    from pyiceberg.catalog import load_catalog

    from sidecar.audit.ask import iceberg

    filled = _filled(lake)
    try:
        opened = load_catalog(catalog)
    except (ValueError, OSError) as exc:
        raise Failed(USAGE, f"--catalog {catalog}: {exc}", "Mend pyiceberg's configuration, .pyiceberg.yaml.") from None
    with _errors():
        echo(f"{iceberg.publish(filled, opened)} tables of {catalog} were changed.")


# ---- the lake -------------------------------------------------------------------------------------------------------
def _lake(path: str) -> Lake:
    from sidecar.audit.errors import AuditError
    from sidecar.audit.lake.lake import Lake

    try:
        return Lake.at(path)
    except AuditError as exc:
        raise Failed(USAGE, str(exc), "Check --lake.") from None


def _options(pairs: list[str] | None, command_config: Path | None) -> dict[str, str]:
    options = {} if command_config is None else {f"kafka.{n}": v for n, v in properties(command_config).items()}
    for pair in pairs or ():
        name, separator, value = pair.partition("=")
        if not separator:
            raise typer.BadParameter(f"{pair!r} is no NAME=VALUE.")
        options[name.strip().lower()] = value.strip()
    return options


def _between(group: str | None, since: str | None, until: str | None) -> dict[str, Any]:
    return {"group": group, "since": moment_of(since, 0), "until": moment_of(until, FOR_EVER_MS)}


def _filled(path: str) -> Lake:
    """Raises Failed if there is nothing in it."""
    lake = _lake(path)
    if lake.last_batch() < 0:
        raise Failed(UNREADABLE, f"There is no audit in {lake.base} yet.", FILL)
    return lake


def _show(lake: Lake, sql: str, given: dict[str, Any], output: Output) -> list[dict[str, Any]]:
    from sidecar.audit.ask import query
    from sidecar.audit.moments import shown

    with _errors():
        rows = query.ask(lake, sql, given)
    formatted = [
        {n.removesuffix("_ms") if _is_time(n) else n: shown(v) if _is_moment(n, v) else v for n, v in row.items()}
        for row in rows
    ]
    if output is Output.TABLE:
        formatted = [{n: "" if v is None else v for n, v in row.items()} for row in formatted]
    print_rows(formatted, output)
    if not formatted:
        echo("Nothing was found.", err=True)
    return rows


def _is_moment(name: str, value: Any) -> bool:
    return isinstance(value, datetime) or (_is_time(name) and isinstance(value, int) and value != 0)


def _is_time(name: str) -> bool:
    """Whether the column is a point in time, and no duration. Tables have it as a TIMESTAMP, too."""
    from sidecar.audit.ask import query

    return name.partition(":")[0] in query.MOMENTS  # of two columns of a name, the second has a number


def _tell(lake: Lake, fail_on_possible: bool, output: Output) -> None:
    from sidecar.audit.run.verdict import verdict

    with _errors():
        v = verdict(lake)
    if output is Output.TABLE:
        for line in v.lines():
            echo(line)
    else:
        print_rows([v.row()], output)
    if v.findings or (fail_on_possible and v.possible):
        raise typer.Exit(FINDINGS)
    if not v.complete:
        raise typer.Exit(INCOMPLETE)
