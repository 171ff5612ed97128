"""Counts the waits of a sidecar that have no bound of their own: a function may have no more than WAITS says.

python -m tools.waits      # the table as it would be now

A wait without a bound hangs with the peer or broker that it waits for, and takes along whatever waits behind it.
docs/reference/waits.md lists what a sidecar waits for. A wait is: an `await` of a future or task, or of a call of a name
in CALLS; `async with` of anything but a timeout. It has a bound inside `async with asyncio.timeout(...)` of the same
function, or with an argument `timeout`. Requests to brokers are no waits here: kafka/net.py gives each of them a bound.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from tools.sleeps import compared

ROOT = Path(__file__).resolve().parent.parent / "sidecar"
ELSEWHERE = ("audit", "cli", "drill")
"""No part of a running sidecar."""
CALLS = {
    "acquire",
    "create_connection",
    "create_unix_connection",
    "gather",
    "get",
    "getaddrinfo",
    "open_connection",
    "run_in_executor",
    "shield",
    "sock_accept",
    "sock_connect",
    "sock_recv",
    "sock_sendall",
    "start_tls",
    "to_thread",
    "wait",
    "wait_closed",
}
"""Methods and functions that return when another task, thread, process or host has done something."""
CANCELLED = "tasks that were cancelled"
CALLER = "its caller has the bound"
EACH = "each of them has a bound of its own"
IDLE = "until there is something to do: nobody waits for it"
THREAD = "work on this machine, in a thread"
TURN = "behind others, each of which has a bound"
WRITTEN = "state.write_timeout_ms: then the partition is rebuilt, and that ends it"
LINK = "until the other half is gone; nobody waits for it"
PARENT = "until the worker before it has ended, which drain_ms bounds; clients are served meanwhile"
WAITS: Mapping[str, tuple[int, str]] = {
    "coordinator/inspect/broker_groups.py BrokerGroups._ask": (1, THREAD),
    "coordinator/inspect/group_metrics.py Census.take": (1, TURN),
    "coordinator/inspect/lag_exporter.py Exporter.look": (1, THREAD),
    "coordinator/membership/owners_group.py OwnersGroup._run": (3, IDLE),
    "coordinator/membership/owners_group.py OwnersGroup.stop": (1, CANCELLED),
    "coordinator/membership/peer_links.py Peers._follow": (1, "the peer's silence: ownership.peer_silence_ms"),
    "coordinator/membership/peer_links.py Peers.stop": (1, CANCELLED),
    "coordinator/moves/core_client.py CoreClient.ask": (1, WRITTEN),
    "coordinator/placeholder/broker_membership.py BrokerMembership._rounds": (1, TURN),
    "coordinator/placeholder/broker_membership.py BrokerMembership._slowly": (1, EACH),
    "coordinator/placeholder/broker_membership.py _all": (1, EACH),
    "coordinator/placeholder/placeholder_heartbeats.py PlaceholderHeartbeats.round": (1, EACH),
    "coordinator/placeholder/share_membership.py ShareMembership._ask": (1, TURN),
    "coordinator/placeholder/share_membership.py ShareMembership.initialised": (1, TURN),
    "coordinator/runtime/cluster_watch.py ClusterWatch.stop": (1, THREAD),
    "coordinator/runtime/topic_refresh.py TopicRefresh.during": (1, EACH),
    "coordinator/statelog/fence_renewal.py renew": (1, WRITTEN),
    "coordinator/statelog/fenced_writer.py FencedWriter._encode_large": (1, THREAD),
    "coordinator/statelog/fenced_writer.py FencedWriter.init": (1, EACH),
    "coordinator/statelog/large_write.py LargeWrite._write_piece": (1, THREAD),
    "coordinator/statelog/read_index.py ReadIndex._end": (1, CALLER),
    "coordinator/statelog/read_index.py ReadIndex._of_replicas": (2, EACH),
    "coordinator/statelog/tail.py StateLog.wait_applied": (1, CALLER),
    "front/accepting.py Acceptor._bind": (1, "names of this machine, before the start"),
    "front/upstream.py Broker.connect": (1, CALLER),
    "kafka/cluster.py Cluster._controller": (1, EACH),
    "kafka/cluster.py Cluster._shared": (1, EACH),
    "kafka/cluster.py MetadataReader.read": (1, THREAD),
    "kafka/group_lists.py LagReader.read": (2, EACH),
    "kafka/group_lists.py groups_at": (1, THREAD),
    "kafka/native.py leave_one_by_one": (1, CALLER),
    "kafka/net.py BrokerConnection._at_once": (1, CALLER),
    "kafka/offsets.py committed": (1, THREAD),
    "kafka/offsets.py listed": (1, THREAD),
    "kafka/produce.py Appender.append": (1, WRITTEN),
    "kafka/resolver.py addresses_of": (1, "RESOLVE_S, of the lookup"),
    "kafka/resolver.py connected.connect": (1, CALLER),
    "process/admin.py Admin._plain.group": (1, TURN),
    "process/admin.py Admin.keep": (1, THREAD),
    "process/admin.py Admin.start": (1, THREAD),
    "process/admin_page.py Pages._worked": (1, TURN),
    "process/app.py App._may_coordinate": (1, PARENT),
    "process/app.py App._start_admin": (1, PARENT),
    "process/app.py App.run": (1, IDLE),
    "process/coordination.py CoordinatorRunner._round": (1, IDLE),
    "process/shared.py load": (1, THREAD),
    "process/tasks.py Supervisor.end": (1, CANCELLED),
    "process/unix_link.py UnixClient._keep": (2, LINK),
}
"""File and function, how many waits without a bound it may have, and what ends them."""


def _has_bound(item: ast.withitem) -> bool:
    return ast.unparse(item.context_expr).startswith(("asyncio.timeout(", "asyncio.timeout_at("))


def _waits(node: ast.AST) -> bool:
    if not isinstance(node, ast.Await):
        return False
    if not isinstance(call := node.value, ast.Call):
        return True
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    return name in CALLS and not any(k.arg == "timeout" for k in call.keywords)


def _unbounded(node: ast.AST, where: tuple[str, ...], bounded: bool) -> Iterator[str]:
    """The function of each wait below `node`."""
    for child in ast.iter_child_nodes(node):
        inside, has_bound = where, bounded
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            inside, has_bound = (*where, child.name), False
        elif isinstance(child, ast.AsyncWith):
            has_bound = bounded or any(map(_has_bound, child.items))
            yield from [".".join(where)] * (0 if has_bound else len(child.items))
        elif _waits(child) and not bounded:
            yield ".".join(where)
        yield from _unbounded(child, inside, has_bound)


def counts(root: Path) -> dict[str, int]:
    """Every function that waits without a bound, and how often."""
    found: Counter[str] = Counter()
    for path in sorted(root.rglob("*.py")):
        file = path.relative_to(root)
        if file.parts[0] in ELSEWHERE or "async def" not in (text := path.read_text("utf-8")):
            continue
        found.update(f"{file.as_posix()} {name}" for name in _unbounded(ast.parse(text), (), False))
    return dict(found)


def dropped_cancellations(root: Path) -> Iterator[str]:
    """Yields a problem for each file with `asyncio.wait_for`. Python 3.11's drops a cancellation that comes together
    with what it waits for: then the task goes on, and whatever awaits its end hangs."""
    for path in sorted(root.rglob("*.py")):
        if "asyncio.wait_for(" in path.read_text("utf-8"):
            yield f"{path.relative_to(root).as_posix()}: asyncio.wait_for may drop a cancellation: use asyncio.timeout"


def problems(root: Path = ROOT, allowed: Mapping[str, tuple[int, str]] = WAITS) -> Iterator[str]:
    yield from dropped_cancellations(root)
    for name, n, most in compared(counts(root), allowed):
        if n > most:
            yield f"{name}: {n} waits without a bound, and it may have {most}: give it one, and a row in waits.md"
        elif n < most:
            yield f"{name}: {n} waits without a bound, and WAITS allows {most}: lower it in tools/waits.py"


def main() -> int:
    for name, n in sorted(counts(ROOT).items()):
        print(f'    "{name}": ({n}, {WAITS.get(name, (0, ""))[1]!r}),')
    return 0


if __name__ == "__main__":
    sys.exit(main())
