"""What clients send: `--wire` lets the brokers log every request, and this file reads the versions out of their logs.

It works with `--direct` only: through sidecars the requests of a group do not reach the brokers. A client is known by
its client id, which begins with the name of its row.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from rich.console import Console

from sidecar.drill.local import LocalKafka
from sidecar.drill.processes import DrillError
from tests.matrix.report import print_aligned

APIS = {
    "FIND_COORDINATOR": "FindCoordinator",
    "JOIN_GROUP": "JoinGroup",
    "SYNC_GROUP": "SyncGroup",
    "HEARTBEAT": "Heartbeat",
    "LEAVE_GROUP": "LeaveGroup",
    "CONSUMER_GROUP_HEARTBEAT": "ConsumerGroupHeartbeat",
    "OFFSET_COMMIT": "OffsetCommit",
    "OFFSET_FETCH": "OffsetFetch",
}
Versions = dict[str, dict[str, list[int]]]
"""By client and API."""


def log_requests(kafka: LocalKafka) -> None:
    for node in kafka.nodes:
        # fmt: off
        code, said = kafka.run_tool(
            "kafka.admin.ConfigCommand", "--bootstrap-server", kafka.internal, "--alter",
            "--entity-type", "broker-loggers", "--entity-name", str(node.node_id),
            "--add-config", "kafka.request.logger=DEBUG",
        )
        # fmt: on
        if code != 0:
            raise DrillError(f"the brokers do not log their requests: {said.strip()[-300:]}")


def read(logs: Iterable[Path], clients: Iterable[str]) -> Versions:
    longest_first = sorted(clients, key=len, reverse=True)
    found: dict[str, dict[str, set[int]]] = {}
    for log in logs:
        with log.open(errors="replace") as lines:
            for line in lines:
                start = line.find('{"isForwarded"')
                if start < 0:
                    continue
                try:
                    header = json.JSONDecoder().raw_decode(line[start:])[0]["requestHeader"]
                except (ValueError, KeyError):
                    continue
                api, sender = header["requestApiKeyName"], header.get("clientId") or ""
                client = next((c for c in longest_first if sender.startswith(c)), None)
                if api in APIS and client is not None:
                    found.setdefault(client, {}).setdefault(APIS[api], set()).add(header["requestApiVersion"])
    return {c: {a: sorted(v) for a, v in apis.items()} for c, apis in found.items()}


def print_versions(versions: Versions, console: Console) -> None:
    rows = [[c, *(",".join(map(str, found.get(a, ()))) or "-" for a in APIS.values())] for c, found in versions.items()]
    print_aligned(["client", *APIS.values()], rows, console)
