"""A Spark standalone cluster on this machine: a master and its workers, each a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
STARTS_S = 60.0
MASTER_AT = re.compile(r"Starting Spark master at (spark://\S+)")
REGISTERED = "Successfully registered with master"


@contextmanager
def cluster(folder: Path, workers: int) -> Iterator[str]:
    """The master's address. Each worker offers one core, and keeps the folders of its applications in `worker-N`."""
    with ExitStack() as stack:
        log = stack.enter_context(_started(folder / "master", "master.Master", "--port", "0"))
        (master,) = _found(log, MASTER_AT)
        for n in range(workers):
            room = folder / f"worker-{n}"
            words = ("--cores", "1", "--memory", "700m", "--work-dir", str(room), master)
            log = stack.enter_context(_started(room, "worker.Worker", *words))
            _found(log, re.compile(f"({REGISTERED})"))
        yield master


@contextmanager
def _started(room: Path, name: str, *words: str) -> Iterator[Path]:
    """Starts a process; returns its log."""
    room.mkdir(parents=True)
    log = room / "log"
    command = [str(CLASS), f"org.apache.spark.deploy.{name}", "--host", "127.0.0.1", "--webui-port", "0", *words]
    env = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "128m"}
    with log.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=out, env=env) as process:
        try:
            yield log
        finally:
            process.terminate()


def _found(log: Path, wanted: re.Pattern[str]) -> list[str]:
    end = time.monotonic() + STARTS_S
    while not (found := wanted.findall(log.read_text(errors="replace"))):
        assert time.monotonic() < end, f"not within {STARTS_S:g} s: {wanted.pattern}: {log.read_text()[-2000:]}"
        time.sleep(0.1)
    return found
