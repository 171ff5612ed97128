"""The audit at the end of a drill or of the demo: the command that users run, and queries of its lake."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sidecar.audit.ask import query
from sidecar.audit.errors import AuditError
from sidecar.audit.lake.lake import Lake
from sidecar.audit.moments import FOR_EVER_MS
from sidecar.audit.tables.gold import GOLD

TIMEOUT_S = 600.0
COMPLETE_CODES = (0, 1, 4)
"""Exit codes of a complete audit, with or without findings."""


def audited(bootstrap: str, folder: Path, command_config: Sequence[str] = ()) -> Lake:
    """Bring the lake in this folder up to date, and return it. A state topic that was made anew begins a new
    incarnation beside the old one. Raises AuditError, with the command's output."""
    command = [sys.executable, "-m", "sidecar.cli.main", "audit", "run", "--from", f"kafka://{bootstrap}"]
    command += ["--lake", str(folder), "--new-incarnation", "-o", "json", *command_config]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as exc:
        raise AuditError(f"the audit was not ready within {TIMEOUT_S:g} s") from exc
    if done.returncode not in COMPLETE_CODES or not done.stdout:
        raise AuditError(f"the audit ended with {done.returncode}: {done.stderr[-2000:]}")
    return Lake.at(folder)


def rows(lake: Lake, table: str) -> list[dict[str, Any]]:
    content: list[dict[str, Any]] = lake.read_arrow(GOLD[table]).to_pylist()
    return content


def owned(lake: Lake, group: str) -> list[dict[str, Any]]:
    """Return the ownership intervals of the group's members, in the order of the log, each with its `client_id`."""
    everything = {"topic": None, "partition": None, "group": group, "since": 0, "until": FOR_EVER_MS}
    return query.ask(lake, query.OWNERSHIP, everything)
