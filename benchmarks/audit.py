"""The whole audit of a large state topic, from cold: `sidecar audit run` as a user starts it, beside two other ways.

    make bench NAME=audit [ARGS="--records 10000000 --sizes 1000000 10000000 --from parquet"]

The records are those of 1,000 groups over a week, one of them with 10,000 members (audit_data.py). They are kept below
out/bench/audit, so a second run need not make them. With `--from kafka` they are loaded into a real broker first.

For each size: the time of the command from start to end, JVM included, and of its steps (`start`: until the batch is
planned; `bronze`, `silver`, `gold`; `end`: what the lake says); peak memory and processor time of the Python driver,
of the JVM and of the Python workers. Beside it:

1. audit_replay.py, an audit in plain Python on one core that shares no code with this one. It finds intervals and
   second owners, and nothing else; there must be no differences to gold's. `ratio_replay` is its time by ours, end to
   end.
2. audit_spark.py, Spark's JVM path, with a PySpark of its own (PEER_SPARK): `from_avro` on the values of the same
   records, into Parquet. `ratio_spark_avro` is its time, from a session that has just started, by that of our step
   `silver` (with Kafka: of `bronze` and `silver`, which it does in one). `warm`: once more in the same session.

Last, increments: a lake of a million records gets a few thousand more, with Spark warm. `growth` is the exponent b of
seconds ~ records^b between the smallest and the largest size. The exit code is 1 if there are differences, or
if a part has failed.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb

from benchmarks.audit_data import Shape, dataset, load
from benchmarks.audit_watch import Watched, watched
from benchmarks.common import finish
from sidecar.audit.lake.lake import Lake
from sidecar.audit.tables.gold import GOLD
from sidecar.drill.local import JVM_FAST, LocalKafka

Figures = dict[str, Any]
ROOT = Path(__file__).resolve().parents[1]
TOPIC = "__group_state"
KEPT_LINES = 5
STEPS = ("start", "bronze", "silver", "gold", "end")
PEER_SPARK = "4.1.1"
"""The newest whose spark-avro and Kafka connector were both to be had: pinned, for not every version is published."""
COMPARED = "state_partition, group_id, kind, topic, partition, member_id, from_offset, to_offset"


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


# ---- the audit ------------------------------------------------------------------------------------------------------
def ours(source: str, lake: Path, env: dict[str, str]) -> tuple[Figures, Watched]:
    """`sidecar audit run` from cold, into a new lake."""
    shutil.rmtree(lake, ignore_errors=True)
    command = [sys.executable, "-m", "sidecar.cli.main", "audit", "run", "--from", source, "--lake", str(lake)]
    run = watched([*command, "-o", "json"], env, echo="run")
    figures: Figures = {"seconds": round(run.seconds, 2), "code": run.code}
    figures |= {"peak_mb": run.peak_mb, "cpu_s": run.cpu_s}
    if run.code not in (0, 1) or not run.out:
        figures["failed"] = [line for _, line in run.stderr[-KEPT_LINES:]]
        return figures, run
    texts = (": reads ", "bronze is there", "records of", "gold is up to date")
    marks = [0.0, *(run.when(text) for text in texts), run.seconds]
    figures["steps_s"] = {n: round(b - a, 2) for n, a, b in zip(STEPS, marks, marks[1:], strict=False)}
    verdict = json.loads(run.out.splitlines()[-1])
    figures["records"] = verdict["records"]
    figures["records_per_s"] = round(verdict["records"] / run.seconds)
    figures["found"] = {n: verdict[n] for n in ("proven", "possible", "stale_writes", "unreadable", "missing", "lost")}
    return figures, run


# ---- the others -----------------------------------------------------------------------------------------------------
def replayed(place: str, lake: Path, out: Path) -> Figures:
    """The plain Python replay, and in how many rows its intervals and gold's are not the same."""
    run = watched([sys.executable, "-m", "benchmarks.audit_replay", place, str(out)], echo="")
    if run.code != 0:
        return {"failed": [line for _, line in run.stderr[-KEPT_LINES:]], "differences": -1}
    figures: Figures = json.loads(run.out.splitlines()[-1])
    figures["peak_mb"] = run.peak_mb.get("driver_python", 0)
    intervals, owners = (Lake.at(lake).sql(GOLD[n]) for n in ("intervals", "second_owners"))
    theirs = f"(select {COMPARED} from read_parquet('{out}'))"
    mine = f"(select {COMPARED} from {intervals})"
    with duckdb.connect(config={"threads": len(os.sched_getaffinity(0)), "memory_limit": "4GB"}) as db:
        query = f"select count(*) from (({mine} except all {theirs}) union all ({theirs} except all {mine}))"
        (differences,) = db.execute(query).fetchall()[0]
        (second,) = db.execute(f"select count(*) from {owners}").fetchall()[0]
    figures["differences"] = differences + abs(second - figures["second_owners"])
    return figures


def spark_avro(kind: str, place: str, out: Path) -> Figures:
    """Spark's JVM path; `seconds` is null if its packages cannot be had."""
    try:
        python = peer(out.parent / f"pyspark-{PEER_SPARK}")
    except subprocess.CalledProcessError as exc:
        return {"seconds": None, "reason": f"pyspark {PEER_SPARK} cannot be installed: {exc}"}
    run = watched([python, "-m", "benchmarks.audit_spark", kind, place, str(out)], echo="")
    if run.code != 0:
        say("\n".join(line for _, line in run.stderr[-20:]))
        reason = next((line for _, line in run.stderr if "does not start with" in line), "it failed; see stderr")
        return {"seconds": None, "reason": reason}
    figures: Figures = json.loads(run.out.splitlines()[-1])
    cold, *warm = figures.pop("seconds")
    return {**figures, "seconds": cold, "warm": warm[-1] if warm else None, "peak_mb": run.peak_mb}


def peer(folder: Path) -> str:
    """The Python of an environment with the peer's PySpark, which is made once."""
    python = folder / "bin" / "python"
    if not (folder / "complete").is_file():
        say(f"installing pyspark {PEER_SPARK} for the peer, once")
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", f"pyspark=={PEER_SPARK}", "fastavro"], check=True)
        (folder / "complete").touch()
    return str(python)


def increments(source: str, lake: Path, first: int, increment: int, count: int, env: dict[str, str]) -> Figures:
    sizes = ["--first", str(first), "--increment", str(increment), "--count", str(count)]
    run = watched([sys.executable, "-m", "benchmarks.audit_warm", source, str(lake), *sizes], env, echo="warm")
    if run.code != 0:
        return {"failed": [line for _, line in run.stderr[-KEPT_LINES:]]}
    figures: Figures = json.loads(run.out.splitlines()[-1])
    return {**figures, "peak_mb": run.peak_mb}


# ---- all of it ------------------------------------------------------------------------------------------------------
@contextmanager
def source_of(data: Path, kafka: bool) -> Iterator[tuple[str, str]]:
    """The source as the audit names it, and as the others do."""
    if not kafka:
        yield f"parquet://{data}", str(data)
        return
    with tempfile.TemporaryDirectory(prefix="sidecar-bench-") as tmp:
        properties = {"log.segment.bytes": "1073741824"}
        with LocalKafka(Path(tmp) / "run", brokers=1, front="none", properties=properties, jvm=JVM_FAST) as broker:
            begin = time.monotonic()
            count = load(data, broker.bootstrap, TOPIC)
            say(f"{count:,} records loaded into a broker in {time.monotonic() - begin:.1f} s")
            yield f"kafka://{broker.bootstrap}", broker.bootstrap


def size(args: argparse.Namespace, records: int, env: dict[str, str]) -> Figures:
    """All of one size."""
    data = made(args, records)
    kafka, lake = args.source == "kafka", args.folder / "lake"
    with source_of(data, kafka) as (source, place):
        figures, _ = ours(source, lake, env)
        say(f"{records:,} records: {figures}")
        if "failed" in figures:
            return figures
        replay = figures["replay"] = replayed(place, lake, args.folder / "replay.parquet")
        say(f"replay: {replay}")
        figures["differences"] = replay["differences"]
        if "seconds" in replay:
            figures["ratio_replay"] = round(replay["seconds"] / figures["seconds"], 2)
        if not args.no_spark_avro:
            peer = spark_avro(args.source, place, args.folder / "spark-avro")
            say(f"from_avro: {peer}")
            steps = figures["steps_s"]
            comparable = steps["silver"] + (steps["bronze"] if kafka else 0.0)
            figures["peer_spark_avro"] = peer if peer["seconds"] is not None else None
            figures["peer_spark_avro_reason"] = peer.get("reason")
            if peer["seconds"] is not None:
                figures["ratio_spark_avro"] = round(peer["seconds"] / comparable, 2)
                figures["ratio_spark_avro_warm"] = round(peer["warm"] / comparable, 2)
    if not args.keep:
        shutil.rmtree(lake, ignore_errors=True)
    return figures


def made(args: argparse.Namespace, records: int) -> Path:
    begin = time.monotonic()
    data = dataset(Shape(records, args.groups, args.members), args.folder, args.cores)
    say(f"{records:,} records are there after {time.monotonic() - begin:.1f} s")
    return data


def growth(sizes: dict[int, Figures]) -> float | None:
    good = {n: f["seconds"] for n, f in sizes.items() if "failed" not in f}
    if len(good) < 2:
        return None
    low, high = min(good), max(good)
    return round(math.log(good[high] / good[low]) / math.log(high / low), 2)


def table(sizes: dict[int, Figures]) -> str:
    lines = [f"{'records':>12}{'s':>9}{'rec/s':>9}" + "".join(f"{n:>9}" for n in STEPS)]
    lines[0] += f"{'jvm MB':>9}{'python':>8}{'workers':>9}{'replay s':>10}{'avro s':>8}{'differ':>8}"
    for n, f in sizes.items():
        row = f"{n:>12,}{f['seconds']:>9.1f}{f.get('records_per_s', 0):>9,}"
        row += "".join(f"{f['steps_s'][s]:>9.1f}" if "steps_s" in f else f"{'-':>9}" for s in STEPS)
        row += "".join(
            f"{f['peak_mb'].get(p, 0):>{w},}" for p, w in (("driver_jvm", 9), ("driver_python", 8), ("workers", 9))
        )
        replay, peer = f.get("replay", {}).get("seconds"), (f.get("peer_spark_avro") or {}).get("seconds")
        shown = [f"{x:>{w}.1f}" if x is not None else f"{'-':>{w}}" for x, w in ((replay, 10), (peer, 8))]
        lines.append(row + "".join(shown) + f"{f.get('differences', '-'):>8}")
    return "\n".join(lines)


def arguments() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--records", type=int, default=10_000_000, help="the largest size")
    p.add_argument("--sizes", type=int, nargs="+", help="all sizes; by default a tenth of --records, and --records")
    p.add_argument("--groups", type=int, default=1_000)
    p.add_argument("--members", type=int, default=10_000, help="of the largest group")
    p.add_argument("--cores", type=int, default=2, help="so many processors, for everything")
    p.add_argument("--from", dest="source", choices=["parquet", "kafka"], default="parquet")
    p.add_argument("--conf", action="append", default=[], metavar="NAME=VALUE", help="of Spark, for the audit only")
    p.add_argument("--no-spark-avro", action="store_true")
    p.add_argument("--first", type=int, default=1_000_000, help="records of the lake that increments come to")
    p.add_argument("--increment", type=int, default=10_000)
    p.add_argument("--increments", type=int, default=3, help="how many; 0: none")
    p.add_argument("--folder", type=Path, default=ROOT / "out" / "bench" / "audit")
    p.add_argument("--keep", action="store_true", help="leave the last lake where it is")
    return p.parse_args()


def main() -> None:
    args = arguments()
    args.folder = args.folder.absolute()
    args.folder.mkdir(parents=True, exist_ok=True)
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: args.cores])
    conf = "".join(f"--conf {c} " for c in args.conf)
    env = {"PYSPARK_SUBMIT_ARGS": f"{conf}pyspark-shell"} if conf else {}
    wanted = args.sizes or sorted({max(1, args.records // 10), args.records})
    sizes = {n: size(args, n, env) for n in wanted}
    figures: Figures = {"bench": "audit", "from": args.source, "cores": args.cores, "groups": args.groups}
    figures |= {"members": args.members, "conf": args.conf, "load_average": round(os.getloadavg()[0], 1)}
    figures["sizes"] = {str(n): f for n, f in sizes.items()}
    figures["growth"] = growth(sizes)
    if args.increments:
        data = made(args, args.first + args.increments * args.increment)
        with source_of(data, args.source == "kafka") as (source, _):
            lake = args.folder / "lake-warm"
            warm = increments(source, lake, args.first, args.increment, args.increments, env)
            shutil.rmtree(lake, ignore_errors=True)
        figures["increments"] = warm
        figures["first_increment_s"], *figures["increment_s"] = [i["seconds"] for i in warm.get("increments", ())] or [
            None
        ]
    print(table(sizes))
    if args.increments:
        print(f"increments of {args.increment:,} with Spark warm: ", end="")
        print(", ".join(f"{s:.1f} s" for s in (figures["first_increment_s"], *figures["increment_s"]) if s) or "failed")
    finish(figures)
    sys.exit(code_of(figures))


def code_of(figures: Figures) -> int:
    """Returns the exit code: 1 if there are differences, or if a part has failed."""
    same = all(f.get("differences") == 0 for f in figures["sizes"].values())
    return 0 if same and "failed" not in figures.get("increments", {}) else 1


if __name__ == "__main__":
    main()
