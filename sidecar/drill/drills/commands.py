"""The commands that an operator would give, as drills give them."""

from __future__ import annotations

import json
import subprocess
import sys

from sidecar.drill.drills.ground import Ground
from sidecar.drill.processes import DrillError

INCLUDE = "sidecar.groups.include"
CONFIGS = "kafka.admin.ConfigCommand"
"""kafka-configs.sh."""
TIMEOUT_S = 400.0


def command(*args: str) -> tuple[int, str]:
    """Run `sidecar ARGS`; return its exit code and what it said."""
    done = subprocess.run(
        [sys.executable, "-m", "sidecar.cli.main", *args],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    return done.returncode, (done.stdout + done.stderr).strip()


def must(*args: str) -> str:
    """The same; raises DrillError if the command does not exit with 0."""
    code, said = command(*args)
    if code != 0:
        raise DrillError(f"sidecar {' '.join(args)}: exit code {code}: {said[-500:]}")
    return said


def set_patterns(ground: Ground, patterns: str) -> None:
    """Which groups the sidecars coordinate, for all of them; "": as their own settings say. Raises DrillError."""
    change = ("--add-config", f"{INCLUDE}={patterns}") if patterns else ("--delete-config", INCLUDE)
    whom = ("--bootstrap-server", ground.kafka.bootstrap, "--alter", "--entity-type", "brokers", "--entity-default")
    code, said = ground.kafka.run_tool(CONFIGS, *whom, *change, *ground.kafka.command_config, timeout_s=120)
    if code != 0:
        raise DrillError(f"kafka-configs.sh {' '.join(change)}: exit code {code}: {said[-500:]}")


def groups_of(ground: Ground) -> list[str]:
    """All groups under test, those of the members that measure included."""
    return [name for c in ground.companies for name in (c.group, *(m.group for m in c.members))]


def whereabouts(ground: Ground) -> dict[str, str]:
    """Where each group under test is, as `sidecar groups list` shows it; nothing while it cannot be told."""
    where = ("--bootstrap", ground.kafka.bootstrap, *ground.kafka.command_config)
    code, said = command("groups", "list", *where, "-o", "json")
    if code != 0:
        return {}
    told = {row["group"]: str(row["where"]) for row in map(json.loads, said.splitlines())}
    return {name: told.get(name, "") for name in groups_of(ground)}


def wait_where(ground: Ground, where: str, timeout_s: float) -> None:
    """Wait until all groups under test are there: `sidecar`, or `broker`."""

    def there() -> bool:
        found = whereabouts(ground)
        return bool(found) and set(found.values()) == {where}

    ground.wait(f"all groups to be with the {where}", there, timeout_s, step_s=0.5)
