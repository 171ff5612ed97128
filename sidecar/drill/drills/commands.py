"""An operator's commands, run by drills."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any
from urllib.error import HTTPError

from sidecar.drill.drills.ground import Ground
from sidecar.drill.drills.spec import Drill
from sidecar.drill.local import Broker
from sidecar.drill.processes import DrillError

INCLUDE = "sidecar.groups.include"
CONFIGS = "org.apache.kafka.tools.ConfigCommand"
"""The main class of kafka-configs.sh."""
TIMEOUT_S = 400.0
BEFORE_ABOUT = "before /about"
"""Stands for the version of a sidecar without /about."""


def _ran(*args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sidecar.cli.main", *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


def command(*args: str) -> tuple[int, str]:
    """Run `sidecar ARGS`; return its exit code and output."""
    done = _ran(*args)
    return done.returncode, (done.stdout + done.stderr).strip()


def rows_of(*args: str, codes: Sequence[int] = (0,)) -> list[dict[str, Any]]:
    """Run `sidecar ARGS -o json`; return the rows of its stdout. librdkafka may complain on stderr meanwhile. Raises
    DrillError if the exit code is none of `codes`, or if a line is no JSON."""
    done = _ran(*args, "-o", "json")
    try:
        if done.returncode in codes:
            return [json.loads(line) for line in done.stdout.splitlines()]
    except ValueError:
        pass  # the error below shows the line
    output = (done.stdout + done.stderr).strip()[-500:]
    raise DrillError(f"sidecar {' '.join(args)}: exit code {done.returncode}: {output}")


def must(*args: str) -> str:
    """Run `sidecar ARGS`; return its output. Raises DrillError if the exit code is not 0."""
    code, output = command(*args)
    if code != 0:
        raise DrillError(f"sidecar {' '.join(args)}: exit code {code}: {output[-500:]}")
    return output


def doctor(ground: Ground) -> dict[str, str]:
    """Run `sidecar doctor` for all sidecars; return check -> status and finding, without the checks that are ok. Raises
    DrillError if it has no result."""
    admins = (word for n in ground.kafka.nodes for word in ("--admin", f"127.0.0.1:{n.admin_port}"))
    where = ("--bootstrap", ground.kafka.bootstrap, *ground.kafka.command_config)
    checks = rows_of("doctor", *where, *admins, codes=(0, 1))
    return {c["name"]: f"{c['status']}: {c['finding']}" for c in checks if c["status"] != "ok"}


def find_well(drill: Drill, ground: Ground, when: str) -> None:
    """Note whether any check of `sidecar doctor` fails. `when`: the moment, for the report."""
    findings = doctor(ground)
    failed = {name: what for name, what in findings.items() if what.startswith("fail")}
    others = f"; to be read: {', '.join(sorted(findings))}" if findings else ""
    drill.find(f"sidecar doctor {when}", failed or f"nothing fails{others}", not failed)


def running_version(node: Broker) -> str:
    """Return the version of the code that this node's sidecar runs, from its /about. Raises DrillError."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{node.admin_port}/about", timeout=10) as res:
            return str(json.load(res)["version"])
    except HTTPError as exc:
        if exc.code != HTTPStatus.NOT_FOUND:
            raise DrillError(f"/about of sidecar {node.node_id}: {exc}") from exc
        return BEFORE_ABOUT


def set_patterns(ground: Ground, patterns: str) -> None:
    """Set the patterns of managed groups for all sidecars; "": back to their own settings. Raises DrillError."""
    change = ("--add-config", f"{INCLUDE}={patterns}") if patterns else ("--delete-config", INCLUDE)
    scope = ("--bootstrap-server", ground.kafka.bootstrap, "--alter", "--entity-type", "brokers", "--entity-default")
    code, output = ground.kafka.run_tool(CONFIGS, *scope, *change, *ground.kafka.command_config, timeout_s=120)
    if code != 0:
        raise DrillError(f"kafka-configs.sh {' '.join(change)}: exit code {code}: {output[-500:]}")


def groups_of(ground: Ground) -> list[str]:
    """Return all groups under test, with the groups of the members that measure."""
    return [name for c in ground.under_test for name in (c.group, *(m.group for m in c.members))]


def whereabouts(ground: Ground, groups: Sequence[str] = ()) -> dict[str, str]:
    """Return where each of these groups, or each group under test, is, by `sidecar groups list`; empty while the
    command fails."""
    where = ("--bootstrap", ground.kafka.bootstrap, *ground.kafka.command_config)
    try:
        places = {row["group"]: str(row["where"]) for row in rows_of("groups", "list", *where)}
    except DrillError:
        return {}
    return {name: places.get(name, "") for name in groups or groups_of(ground)}


def wait_where(ground: Ground, where: str, timeout_s: float) -> None:
    """Wait until all groups under test are at `where`: `sidecar`, or `broker`."""
    wait_whereabouts(ground, groups_of(ground), where, timeout_s)


def wait_whereabouts(ground: Ground, groups: Sequence[str], where: str, timeout_s: float) -> None:
    """Wait until these groups are at `where`: `sidecar`, or `broker`."""

    def there() -> bool:
        places = whereabouts(ground, groups)
        return bool(places) and set(places.values()) == {where}

    if groups:
        ground.wait(f"{len(groups)} groups to be with the {where}", there, timeout_s, step_s=0.5)
