"""Limits that are set reach what they limit. That they hold there is tested beside each of them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from sidecar.link.messages import ToCoordinator, ToFront, Void
from sidecar.process.limits import LimitsSection
from sidecar.process.parts import own_cluster
from sidecar.process.settings import load
from sidecar.process.tasks import Supervisor
from sidecar.process.unix_link import UnixClient, serve_unix
from tests.inprocess.embedded_sidecar import Lines, until

GIVEN = {"listen": "127.0.0.1:9092", "broker": "127.0.0.1:19092", "node_id": 1}


def test_the_sidecars_own_connections_have_the_limit_that_is_set(tmp_path: Path) -> None:
    config = tmp_path / "limits.yaml"
    config.write_text("limits: {response_bytes: 70000}")
    assert own_cluster(load(config, GIVEN), "c").response_bytes == 70_000
    assert own_cluster(load(None, GIVEN), "c").response_bytes == LimitsSection().response_bytes  # type: ignore[call-arg]


class Ends:
    """Both ends of a link: what each of them has got."""

    def __init__(self) -> None:
        self.fronts: list[Any] = []
        self.got: list[ToFront] = []
        self.lost = 0

    def connect(self, front: Any) -> None:
        self.fronts.append(front)

    def disconnect(self, front: Any) -> None:
        self.fronts.remove(front)

    def from_front(self, front: Any, message: ToCoordinator) -> None:
        raise AssertionError(message)

    def from_coordinator(self, message: ToFront) -> None:
        self.got.append(message)

    def link_lost(self) -> None:
        self.lost += 1


def test_a_message_over_the_limit_closes_the_link_and_the_log_says_what_to_set(tmp_path: Path) -> None:
    async def main() -> None:
        ends, lines, tasks, path = Ends(), Lines(), Supervisor(), tmp_path / "link"
        tasks.watch(asyncio.get_running_loop())
        server = await serve_unix(path, ends, lines, 2_000)
        UnixClient(path, lines, tasks, 1_000).attach(ends)
        await until(lambda: len(ends.fronts) == 1)
        ends.fronts[0].send(Void(("g" * 900,)))
        await until(lambda: len(ends.got) == 1)
        ends.fronts[0].send(Void(("g" * 1_100,)))
        await until(lambda: ends.lost == 1)
        error = lines.fields("the link between front and coordinator is closed")["error"]
        assert "limits.link_frame_bytes 1000: raise it in both processes" in error
        await until(lambda: len(ends.fronts) == 1)
        assert len(ends.got) == 1, "it is connected again, without the message"
        server.close()

    asyncio.run(main())
