"""Lines of the log are not as long as a client wants."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from sidecar.process.log import ELEMENTS, TEXT_CHARS, TRACE_CHARS, make_logger


def test_no_value_is_as_long_as_a_client_says(capsys: pytest.CaptureFixture[str]) -> None:
    """Symptom: a group id of 32,767 bytes stood in a line of each attempt."""
    log = make_logger("info", "json", sidecar="s")
    log.info("said", group_id="g" * 32_767, members=["m"] * 5_000, count=7, short="as it is")
    line = json.loads(capsys.readouterr().err)
    assert line["group_id"].startswith("g" * TEXT_CHARS + "... (32767")
    assert line["members"] == ["m"] * ELEMENTS + ["4900 more"]
    assert (line["count"], line["short"], line["event"]) == (7, "as it is", "said")


def test_of_a_long_trace_the_fault_stays(capsys: pytest.CaptureFixture[str]) -> None:
    """Symptom: a trace ended after 1,000 characters, before the line that had raised, and without the exception."""
    try:
        raise KeyError("why") from ValueError("x" * TRACE_CHARS)
    except KeyError as exc:
        make_logger("info", "json").error("it broke", trace=exc)
    trace = json.loads(capsys.readouterr().err)["trace"]
    assert len(trace) == TRACE_CHARS and trace.endswith("KeyError: 'why'\n") and __file__ in trace


UNWRITABLE = """
import asyncio, json, logging, os, sys
from sidecar.process.log import make_logger
from sidecar.process.metrics import Metrics
from sidecar.process.log_output import lose_what_cannot_be_written
from sidecar.process.tasks import Lasting, Supervisor

lose_what_cannot_be_written()
log = make_logger("info", "json")
ran = []

async def breaks():
    ran.append(len(ran))
    if len(ran) < 3:
        raise ValueError("a bug")

async def main():
    tasks, coordinator = Lasting(log, Metrics()), Supervisor()
    tasks.watch(asyncio.get_running_loop())
    told = coordinator.spawn(asyncio.to_thread(log.warning, "x" * 100_000), "of the coordinator")
    await asyncio.gather(tasks.keep(breaks, "breaks"), told)
    assert not coordinator.failed.done(), coordinator.failed

import sidecar.process.tasks
sidecar.process.tasks.AGAIN_S = 0.0
logging.getLogger("asyncio").error("as libraries do")
asyncio.run(main())
print("and people", file=sys.stderr)
sys.exit(40 + len(ran))
"""


@pytest.mark.tier("test")
@pytest.mark.parametrize("cause", ["full disk", "no reader", "busy reader"])
def test_a_log_that_cannot_be_written_ends_nothing(cause: str) -> None:
    """Symptom: with the disk of the log full, each line ended the coordinator, a task that should last did not, and a
    worker's code was 120. Cause: a line raised OSError where it was logged, and at the interpreter's end once more."""
    reads, writes = os.pipe()
    if cause == "full disk":
        os.dup2(os.open("/dev/full", os.O_WRONLY), writes)
    elif cause == "no reader":
        os.close(reads)
    else:
        os.set_blocking(writes, False)
    done = subprocess.run([sys.executable, "-c", UNWRITABLE], stdout=subprocess.PIPE, stderr=writes, timeout=240)
    assert (done.returncode, done.stdout) == (43, b"")
