"""Counts the sleeps of the tests: a file may have no more than SLEEPS says, so that their number only goes down.

python -m tools.sleeps      # the table as it would be now

A sleep is a call of `sleep` of `asyncio` or `time` (but not `asyncio.sleep(0)`, which only lets the others run), or
Playwright's `wait_for_timeout`. A test that waits waits for an event, with a limit that is no part of its verdict, or
on virtual time (tests/inprocess/clock.py, tests/whole/loop.py).
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent / "tests"
CLOCKS = ("asyncio", "time")
VIRTUAL = "on virtual time"
BROKER = "real brokers and processes: what it waits for sends no event, or nobody has asked for it yet"
SLEEPS: Mapping[str, tuple[int, str]] = {
    "audit/lake/standalone.py": (1, BROKER),
    "audit/lake/test_killed.py": (2, BROKER),
    "clients/exactly_once.py": (4, BROKER),
    "clients/moving_rounds.py": (1, BROKER),
    "clients/test_access.py": (4, BROKER),
    "clients/test_ahead.py": (1, BROKER),
    "clients/test_cannot_fence.py": (3, BROKER),
    "clients/test_mixed_fleet.py": (1, BROKER),
    "clients/test_one_listener.py": (4, BROKER),
    "clients/test_placeholders.py": (3, BROKER),
    "clients/test_racks.py": (1, BROKER),
    "clients/test_three_brokers.py": (3, BROKER),
    "clients/test_tools.py": (2, BROKER),
    "clients/test_tools_and_plug_ins.py": (1, BROKER),
    "coordinator/inspect/test_group_metrics.py": (2, VIRTUAL),
    "coordinator/placeholder/test_commit_gate.py": (1, VIRTUAL),
    "coordinator/placeholder/test_placeholder_heartbeats.py": (1, VIRTUAL),
    "coordinator/runtime/test_coordinator.py": (2, VIRTUAL),
    "coordinator/runtime/test_metadata_refresh.py": (3, VIRTUAL),
    "coordinator/runtime/test_topic_refresh.py": (6, VIRTUAL),
    "coordinator/runtime/test_fronts.py": (1, VIRTUAL),
    "coordinator/statelog/test_large_write.py": (1, VIRTUAL),
    "coordinator/membership/test_member_lease.py": (2, VIRTUAL),
    "coordinator/moves/moving.py": (1, VIRTUAL),
    "coordinator/moves/test_forced_rebalance.py": (2, VIRTUAL),
    "coordinator/moves/test_adoption_of_kinds.py": (2, VIRTUAL),
    "coordinator/moves/test_moves.py": (1, VIRTUAL),
    "coordinator/moves/test_parked_requests.py": (1, VIRTUAL),
    "coordinator/moves/test_release.py": (3, VIRTUAL),
    "coordinator/moves/test_unstable_groups.py": (1, VIRTUAL),
    "coordinator/membership/test_owners_group.py": (4, VIRTUAL),
    "coordinator/membership/test_owners_heartbeat.py": (1, VIRTUAL),
    "coordinator/membership/test_peer_links.py": (4, VIRTUAL),
    "coordinator/placeholder/test_placeholders.py": (3, VIRTUAL),
    "coordinator/placeholder/test_share_membership.py": (2, VIRTUAL),
    "coordinator/placeholder/test_share_placeholders.py": (1, VIRTUAL),
    "coordinator/runtime/test_lease_proofs.py": (1, VIRTUAL),
    "coordinator/runtime/test_streams_groups.py": (1, VIRTUAL),
    "coordinator/statelog/test_fence_renewal.py": (1, VIRTUAL),
    "coordinator/statelog/test_tail.py": (
        1,
        "time for a thread to run too far ahead: a slow machine proves less, and fails nothing",
    ),
    "coordinator/statelog/test_fenced_writer.py": (3, VIRTUAL),
    "coordinator/statelog/test_read_index.py": (1, VIRTUAL),
    "deploy/test_prometheus.py": (1, BROKER),
    "differential/classic.py": (1, BROKER),
    "differential/run.py": (2, BROKER),
    "differential/script.py": (1, BROKER),
    "front/test_broker_silence.py": (1, VIRTUAL),
    "front/test_front.py": (3, VIRTUAL),
    "front/test_limits.py": (5, VIRTUAL),
    "front/test_session_ends.py": (4, VIRTUAL),
    "front/test_links.py": (1, VIRTUAL),
    "front/test_waiting_room.py": (3, VIRTUAL),
    "hostile/attacks.py": (2, BROKER),
    "hostile/inside.py": (1, BROKER),
    "hostile/outside.py": (2, BROKER),
    "hostile/run.py": (3, BROKER),
    "hostile/side.py": (2, BROKER),
    "hostile/target.py": (2, BROKER),
    "hostile/test_effect.py": (1, "a bystander beside planted faults for so long: a verdict of CPU time"),
    "hostile/test_hostile.py": (1, BROKER),
    "inprocess/embedded_sidecar.py": (1, "`until` on real time, which has no turn in which nothing is left to do"),
    "kafka/test_silent.py": (4, VIRTUAL),
    "matrix/cluster.py": (2, BROKER),
    "matrix/programs/python/aiokafka_member.py": (1, BROKER),
    "matrix/scenarios.py": (5, BROKER),
    "mutants/warm.py": (1, "processes of its own, which send no event"),
    "page/browser.py": (1, BROKER),
    "process/test_lag.py": (2, VIRTUAL),
    "process/test_systemd.py": (1, VIRTUAL),
    "security/acls.py": (1, BROKER),
    "security/matrix_bench.py": (2, BROKER),
    "security/test_acl_matrix.py": (2, BROKER),
    "security/test_clients.py": (2, BROKER),
    "security/test_own.py": (2, BROKER),
    "security/test_who.py": (1, BROKER),
    "see/load.py": (1, BROKER),
    "see/test_boards.py": (1, BROKER),
    "see/test_fault_groups.py": (2, BROKER),
    "see/test_fault_state.py": (2, BROKER),
    "whole/broker/differential.py": (3, BROKER),
    "whole/broker/script.py": (7, BROKER),
    "whole/bugs.py": (1, VIRTUAL),
    "whole/client.py": (1, VIRTUAL),
    "whole/rowdy.py": (1, VIRTUAL),
    "whole/scenes/failures.py": (2, VIRTUAL),
    "whole/scenes/silence.py": (2, VIRTUAL),
    "whole/test_edges.py": (10, VIRTUAL),
    "whole/world.py": (1, VIRTUAL),
}
"""File, how many sleeps it may have, and why."""
VIRTUAL_FOLDERS = ("coordinator", "front", "kafka", "process")
"""Folders in which time is virtual only by `clock.run`."""


def _is_sleep(call: ast.Call, bare: set[str]) -> bool:
    f = call.func
    if isinstance(f, ast.Attribute) and f.attr == "wait_for_timeout":
        return True
    ours = isinstance(f, ast.Attribute) and f.attr == "sleep" and isinstance(f.value, ast.Name) and f.value.id in CLOCKS
    ours = ours or (isinstance(f, ast.Name) and f.id in bare)
    at_once = len(call.args) == 1 and isinstance(call.args[0], ast.Constant) and call.args[0].value == 0
    return ours and not at_once


def count(source: str) -> int:
    tree = ast.parse(source)
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module in CLOCKS]
    bare = {alias.asname or alias.name for node in imports for alias in node.names if alias.name == "sleep"}
    return sum(isinstance(node, ast.Call) and _is_sleep(node, bare) for node in ast.walk(tree))


def counts(root: Path) -> dict[str, int]:
    """Every file that sleeps, and how often."""
    by_file = {path.relative_to(root).as_posix(): count(path.read_text("utf-8")) for path in sorted(root.rglob("*.py"))}
    return {name: n for name, n in by_file.items() if n}


def on_real_time(source: str) -> bool:
    """Whether something runs on the loop of asyncio itself."""
    return any(
        isinstance(node, ast.Attribute) and ast.unparse(node) == "asyncio.run" for node in ast.walk(ast.parse(source))
    )


def compared(actual: Mapping[str, int], allowed: Mapping[str, tuple[int, str]]) -> Iterator[tuple[str, int, int]]:
    """Name, how often it is there, and how often it may be."""
    for name in sorted({*actual, *allowed}):
        yield name, actual.get(name, 0), allowed.get(name, (0, ""))[0]


def problems(root: Path = TESTS, allowed: Mapping[str, tuple[int, str]] = SLEEPS) -> Iterator[str]:
    for name, n, most in compared(counts(root), allowed):
        if n > most:
            yield f"tests/{name}: {n} sleeps, and it may have {most}: wait for an event, or on virtual time"
        elif n < most:
            yield f"tests/{name}: {n} sleeps, and SLEEPS allows {most}: lower it in tools/sleeps.py"
        elif allowed[name][1] != VIRTUAL or name.partition("/")[0] not in VIRTUAL_FOLDERS:
            continue
        elif on_real_time((root / name).read_text("utf-8")):
            yield f"tests/{name}: it sleeps, and asyncio.run is on real time"


def main() -> int:
    for name, n in counts(TESTS).items():
        why = SLEEPS.get(name, (0, ""))[1]
        known = next((word for word, text in (("VIRTUAL", VIRTUAL), ("BROKER", BROKER)) if text == why), repr(why))
        print(f'    "{name}": ({n}, {known}),')
    return 0


if __name__ == "__main__":
    sys.exit(main())
