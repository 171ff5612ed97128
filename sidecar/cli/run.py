"""`sidecar run`: opens the clients' port and becomes the parent (process/parent.py), which starts workers
(cli/worker.py)."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, NoReturn

from sidecar.cli.exits import Code, Failed
from sidecar.coordinator.statelog.startup_errors import StartError
from sidecar.process import parent
from sidecar.process.settings import Settings
from sidecar.process.sockets import are_handed_over, bound, hand_over

WORKER: tuple[str, ...] = ("-P", str(Path(__file__).with_name("worker.py")))
"""Python's arguments that run a worker; tests and benchmarks have their own."""
THEN = "Mend that and start it again; `sidecar doctor` checks the rest of the cluster."


def become_parent(s: Settings, config: Path | None, given: dict[str, Any]) -> NoReturn:
    """Opens the sockets and becomes the parent. Raises Failed."""
    try:
        sockets = [] if s.role == "coordinator" or are_handed_over() else bound(s.listen, s.limits.accept_backlog)
    except StartError as exc:
        raise Failed(Code.FINDINGS, f"sidecar: {exc}", THEN) from None
    env = dict(os.environ)
    hand_over(sockets, env)
    form = s.log.format if s.log.format != "auto" else "text" if sys.stderr.isatty() else "json"
    arguments = json.dumps({"config": None if config is None else str(config), **given})
    worker = (sys.executable, *WORKER, arguments)
    # Without the site's packages it takes a third of the memory and of the time.
    command = (sys.executable, "-I", "-S", parent.__file__, s.log.level, form, str(s.node_id), *worker)
    sys.stdout.flush()
    os.execve(command[0], command, env)
