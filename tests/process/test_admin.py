"""Operators' requests by HTTP: /readyz with its reasons, /owners, /metrics, /livez."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import ClientSession

from sidecar.drill.processes import free_ports
from sidecar.process.admin import Admin
from sidecar.process.admin_access import Access
from sidecar.process.app import ADMIN_AGAIN_S, App
from sidecar.process.metrics import METRICS, Metrics
from tests.inprocess import clock
from tests.inprocess.embedded_sidecar import Lines, until
from tests.process.admin_ground import Ground, given


class Bench:
    """An admin endpoint on a free port, and what it is told."""

    def __init__(self) -> None:
        (self.port,) = free_ports(1)
        self.problems: list[str] = []
        self.start_ms: int | None = None
        self.owners: dict[str, object] = {"generation": -1, "owners": [], "active": [], "groups": {}}
        self.asked: list[list[str]] = []
        self.metrics = Metrics()
        address = f"127.0.0.1:{self.port}"
        access = Access(address, given(), Lines(), self.metrics)
        problems = lambda: (self.problems, self.start_ms)  # noqa: E731
        self.admin = Admin(address, self._text, problems, self._owners, access=access)

    async def _text(self) -> bytes:
        return self.metrics.text()

    def _owners(self, groups: list[str]) -> dict[str, object]:
        self.asked.append(groups)
        return self.owners

    async def json(self, path: str) -> tuple[int, Any]:
        async with ClientSession() as http, http.get(f"http://127.0.0.1:{self.port}{path}") as response:
            return response.status, await response.json()


def run(test: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        bench = Bench()
        await bench.admin.start()
        try:
            await test(bench)
        finally:
            await bench.admin.stop()

    asyncio.run(main())


def test_not_ready_it_says_why() -> None:
    async def test(b: Bench) -> None:
        b.problems = ["no owner is known yet", "2 partitions are being taken over"]
        status, told = await b.json("/readyz")
        assert (status, told) == (503, {"ready": False, "problems": b.problems, "start_ms": None})

    run(test)


def test_ready_it_says_how_long_the_start_took() -> None:
    async def test(b: Bench) -> None:
        b.start_ms = 321
        assert await b.json("/readyz") == (200, {"ready": True, "problems": [], "start_ms": 321})

    run(test)


def test_a_process_that_is_not_ready_is_alive_all_the_same() -> None:
    async def test(b: Bench) -> None:
        b.problems = ["the broker b:9092 does not answer"]
        assert await b.json("/livez") == (200, {"live": True})

    run(test)


def test_the_owners_of_partitions_and_of_the_groups_asked_for() -> None:
    async def test(b: Bench) -> None:
        assert await b.json("/owners") == (503, b.owners), "nobody knows them yet"
        b.owners = {"generation": 3, "owners": [1, 2], "active": [0], "groups": {"g": 1, "h": None}}
        assert await b.json("/owners?group=g&group=h%20i") == (200, b.owners)
        assert b.asked == [[], ["g", "h i"]]

    run(test)


def test_every_metric_is_told() -> None:
    async def test(b: Bench) -> None:
        b.metrics("fenced", "write lost").inc()
        async with ClientSession() as http, http.get(f"http://127.0.0.1:{b.port}/metrics") as response:
            text = await response.text()
            assert response.headers["Content-Type"].startswith("text/plain")
        assert 'sidecar_fenced_total{why="write lost"} 1.0' in text
        assert all(f"# HELP {m.name}" in text for m in METRICS.values())

    run(test)


def test_after_stop_nobody_listens() -> None:
    async def test(b: Bench) -> None:
        await b.admin.stop()
        with pytest.raises(OSError):
            await asyncio.open_connection("127.0.0.1", b.port)

    run(test)


def test_stop_without_start_does_nothing() -> None:
    asyncio.run(Admin(None, Bench()._text, lambda: ([], None), lambda groups: {}).stop())


def test_an_address_that_is_taken_is_tried_again() -> None:
    """Symptom: no metrics for days. At the start another process had the port for a moment."""

    async def test() -> None:
        ground = Ground(given())
        taken = socket.create_server(("127.0.0.1", ground.port))

        async def load(name: str) -> object:
            return SimpleNamespace(admin_of=lambda app, access: ground.admin)

        shared = SimpleNamespace(environment=SimpleNamespace(load=load))
        settings = SimpleNamespace(admin=f"127.0.0.1:{ground.port}")
        app: Any = SimpleNamespace(ready_ms=1, _parent=None, shared=shared, settings=settings, log=ground.lines)
        work = asyncio.create_task(App._start_admin(app, ground.access))
        await until(lambda: ground.lines.events("error"))
        then_s = time.monotonic() + 3 * ADMIN_AGAIN_S
        await until(lambda: time.monotonic() > then_s)
        assert ground.lines.events("error") == ["no admin address"], "once"
        taken.close()
        then_s = time.monotonic() + 2 * ADMIN_AGAIN_S
        await until(lambda: time.monotonic() > then_s)
        assert await ground.status("/livez") == 200
        work.cancel()
        await ground.admin.stop()

    clock.run(test())


SLOW_IMPORT = """
import asyncio, sys, threading
from sidecar.process.admin import Admin
from sidecar.process.admin_access import Access
from sidecar.process.log import make_logger
from sidecar.process.app import ADMIN_AGAIN_S, App
from sidecar.process.metrics import Metrics
from sidecar.process.sections import AdminAccess

begun, turned = threading.Event(), threading.Event()

class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "aiohttp.web":
            begun.set()
            assert turned.wait(60), "the loop stands still until it is imported"

async def main():
    turns = 0
    access = Access(sys.argv[1], AdminAccess(), make_logger("error", "text"), Metrics())
    admin = Admin(sys.argv[1], bytes, lambda: ([], None), lambda groups: {}, access=access)
    starting = asyncio.create_task(admin.start())
    while not starting.done():
        await asyncio.sleep(0.001)
        turns += begun.is_set()
        if turns == 10:
            turned.set()
    await starting
    await admin.stop()
    print(turns)

assert "aiohttp.web" not in sys.modules
sys.meta_path.insert(0, Slow())
asyncio.run(main())
"""


@pytest.mark.tier("test")
def test_its_import_does_not_hold_up_the_loop() -> None:
    """On a busy machine it takes seconds, and comes in the middle of the start."""
    command = [sys.executable, "-c", SLOW_IMPORT, f"127.0.0.1:{Bench().port}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 10, "the import lasts until the loop has turned so often"
