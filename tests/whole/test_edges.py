"""The world that simulated processes live in: virtual time, connections in memory, and what can go wrong with both."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any

import pytest

from tests.whole.loop import SimLoop, virtual_time
from tests.whole.net import Net
from tests.whole.universe import Proc, Universe


class Bench:
    def __init__(self, seed: int = 1) -> None:
        self.universe = Universe(seed)
        self.net = Net(self.universe)
        self.said: list[tuple[float, str]] = []

    def process(self, name: str, main: Coroutine[Any, Any, None]) -> Proc:
        proc = Proc(self.universe, name, f"host-{name}")
        loop = SimLoop(proc, self.net)
        proc.later(0, lambda: loop.create_task(main))
        return proc

    def say(self, text: str) -> None:
        self.said.append((round(self.universe.now_ms / 1000, 1), text))

    def run(self, s: float) -> None:
        with virtual_time(self.universe):
            self.universe.run_until(self.universe.now_ms + s * 1000)

    async def echo(self) -> None:
        """Answers whatever comes."""

        class Echo(asyncio.Protocol):
            def connection_made(self, transport: Any) -> None:
                self.transport = transport

            def data_received(self, data: bytes) -> None:
                self.transport.write(data)

        await asyncio.get_running_loop().create_server(Echo, "host-a", 1)
        await asyncio.sleep(1e9)

    async def talk(self, words: int, every_s: float) -> None:
        try:
            reader, writer = await asyncio.open_connection("host-a", 1)
            for i in range(words):
                writer.write(f"{i:04d}".encode())
                self.say((await reader.readexactly(4)).decode())
                await asyncio.sleep(every_s)
            writer.close()
            self.say("done")
        except (OSError, asyncio.IncompleteReadError) as exc:
            self.say(type(exc).__name__)


def test_hours_pass_in_no_time() -> None:
    b = Bench()
    seen: list[float] = []

    async def sleeper() -> None:
        before = time.monotonic()
        await asyncio.sleep(3_600)
        seen.append(time.monotonic() - before)
        seen.append(await asyncio.to_thread(lambda: 7.0))

    b.process("b", sleeper())
    began = time.process_time()
    b.run(4_000)
    assert seen == [pytest.approx(3_600), 7.0] and time.process_time() - began < 1


def test_who_sleeps_for_less_than_the_clock_can_tell_does_not_do_so_for_ever() -> None:
    bench = Bench()

    async def sleeps() -> None:
        began_s = time.monotonic()
        while time.monotonic() == began_s:
            await asyncio.sleep(1e-15)
        bench.say("awake")

    bench.process("a", sleeps())
    bench.run(1)
    assert [text for _, text in bench.said] == ["awake"]


def test_words_come_back_in_order() -> None:
    b = Bench()
    b.process("a", b.echo())
    b.process("b", b.talk(3, 1.0))
    b.run(10)
    assert [w for _, w in b.said] == ["0000", "0001", "0002", "done"]


def test_nobody_listens() -> None:
    b = Bench()
    b.process("b", b.talk(1, 1))
    b.run(10)
    assert [w for _, w in b.said] == ["ConnectionRefusedError"]


def test_who_dies_takes_its_connections_with_it() -> None:
    b = Bench()
    server = b.process("a", b.echo())
    b.process("b", b.talk(9, 1))
    b.run(2.5)
    server.crash()
    b.run(5)
    assert b.said[-1][1] in ("ConnectionResetError", "IncompleteReadError") and b.said[-1][0] < 4


def test_of_a_silent_host_nobody_hears_that_its_process_died() -> None:
    b = Bench()
    server = b.process("a", b.echo())
    b.process("b", b.talk(9, 1))
    b.run(2.5)
    b.net.silent.add("host-a")
    server.crash()
    b.run(30)
    assert b.said[-1] == (2.0, "0002")
    b.net.heal()
    b.run(1)
    assert b.said[-1][1] == "ConnectionResetError"


def test_a_cut_holds_back_and_loses_nothing() -> None:
    b = Bench()
    b.process("a", b.echo())
    b.process("b", b.talk(6, 1))
    b.run(2.5)
    b.net.cut.add(("host-a", "host-b"))
    b.run(20)
    assert len(b.said) == 3
    b.net.heal()
    b.run(10)
    assert [w for _, w in b.said] == [*(f"{i:04d}" for i in range(6)), "done"]


def test_what_was_held_back_comes_before_what_is_sent_when_the_way_is_open_again() -> None:
    """One connection keeps its order, whatever happens to the way."""
    for seed in range(20):
        b = Bench(seed)
        got: list[bytes] = []

        class Listens(asyncio.Protocol):
            def data_received(self, data: bytes, got: list[bytes] = got) -> None:
                got.append(data)

        async def listen(kind: type[asyncio.Protocol] = Listens) -> None:
            await asyncio.get_running_loop().create_server(kind, "host-a", 1)
            await asyncio.sleep(1e9)

        async def write() -> None:
            _, writer = await asyncio.open_connection("host-a", 1)
            for i in range(100):
                writer.write(bytes([i]))
                await asyncio.sleep(0.05)
            await asyncio.sleep(10)

        b.process("a", listen())
        b.process("b", write())
        b.run(1)
        b.net.cut.add(("host-b", "host-a"))
        b.run(1)
        b.net.heal()
        b.run(9)
        assert b"".join(got) == bytes(range(100))


def test_the_kernel_answers_for_a_process_that_stands_still() -> None:
    b = Bench()
    server = b.process("a", b.echo())
    b.run(1)
    server.stand_still()
    b.process("b", b.talk(2, 1))
    b.run(10)
    assert b.said == []
    server.go_on()
    b.run(3)
    assert [w for _, w in b.said] == ["0000", "0001", "done"]


def test_a_suspended_host_does_not_count_its_sleep() -> None:
    b = Bench()
    seen: list[float] = []

    async def sleeper() -> None:
        before, wall = time.monotonic(), time.time()
        await asyncio.sleep(10)
        seen.extend((time.monotonic() - before, time.time() - wall))

    proc = b.process("b", sleeper())
    b.run(5)
    proc.stand_still()
    b.run(100)
    proc.go_on(slept=True)
    b.run(4.9)
    assert not seen
    b.run(0.2)
    assert seen == [pytest.approx(10), pytest.approx(110, abs=0.1)]


def test_who_reads_nothing_is_written_to_no_more() -> None:
    b = Bench()
    full: list[str] = []

    class Deaf(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            transport.pause_reading()

    class Writer(asyncio.Protocol):
        def pause_writing(self) -> None:
            full.append("full")

    async def deaf() -> None:
        await asyncio.get_running_loop().create_server(Deaf, "host-a", 1)
        await asyncio.sleep(1e9)

    async def writer() -> None:
        transport, _ = await asyncio.get_running_loop().create_connection(Writer, "host-a", 1)
        while not full:
            transport.write(bytes(10_000))
            await asyncio.sleep(0.01)

    b.process("a", deaf())
    b.run(1)
    b.process("b", writer())
    b.run(10)
    assert full == ["full"]


def test_one_seed_one_order() -> None:
    def said(seed: int) -> list[tuple[float, str]]:
        b = Bench(seed)
        b.net.slow_ms = 500
        b.process("a", b.echo())
        for name in "bcd":
            b.process(name, b.talk(5, 0.3))
        b.run(30)
        return b.said

    assert said(4) == said(4) != said(5)
