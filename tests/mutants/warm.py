"""A process that has imported pytest and what the product imports of others, and forks for each run of tests.

To start Python anew takes longer than most tests that find a bug. It reads one JSON line a run from stdin, `where` the
tree is, the `args` of pytest, the file that takes the output (`told`) and `limit_s`; and writes the exit code, null if
the time was over.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import sys
import time
import traceback
from contextlib import suppress
from typing import Any

import pytest

OTHERS = (
    *("_pytest.assertion.rewrite", "hypothesis", "msgspec", "aiohttp", "aiohttp.web", "cryptography"),
    *("cryptography.x509", "confluent_kafka", "confluent_kafka.admin", "pydantic", "pydantic_settings", "typer"),
    *("structlog", "re2", "xxhash", "crc32c", "fastavro", "uvloop", "prometheus_client", "rich.console", "yaml"),
    *("trustme", "javaproperties", "scramp", "typer.testing"),
)
LOOK_S = 0.02


def run(ask: dict[str, Any]) -> int | None:
    child = os.fork()
    if not child:
        os.setsid()
        _tests(ask)
    until = time.monotonic() + ask["limit_s"]
    code: int | None = None
    while time.monotonic() < until:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            break
        time.sleep(LOOK_S)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    if code is None:
        os.waitpid(child, 0)
    return code


def _tests(ask: dict[str, Any]) -> None:
    """In the child, which ends with it."""
    told = os.open(ask["told"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(told, 1)
    os.dup2(told, 2)
    os.environ["PYTHONPATH"] = ask["where"]
    os.environ["NO_COLOR"] = "1"
    sys.path[:] = [ask["where"], *(p for p in sys.path if p and p != os.getcwd())]
    os.chdir(ask["where"])
    for name in [m for m in sys.modules if m.partition(".")[0] in ("tests", "sidecar")]:
        del sys.modules[name]  # of the tree that this process began in
    code = 3
    try:
        code = int(pytest.main(["-W", "ignore::pytest.PytestAssertRewriteWarning", *ask["args"]]))
    except BaseException:  # noqa: BLE001 - the child must not go on as its parent
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def main() -> None:
    for name in OTHERS:
        with suppress(ImportError):
            importlib.import_module(name)
    gc.freeze()
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
