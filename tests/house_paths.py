"""The four paths that `make house` runs and prints, over a sidecar in memory: from the client's bytes to the answer's.

Each entry of `PATHS` sets its stage and returns the action. What would blur the picture is kept off the stage: the
coordinator's tick, the work of the broker, and on the path of a joining member the tail, which in a real process hears
of the records some other time. The client has asked about its group before, so that the broker's authorizer need not
be asked again.
"""

from __future__ import annotations

import asyncio
import atexit
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from sidecar.core.runtime.phases import Phase
from sidecar.core.vocabulary.errors import Code
from tests.inprocess.clock import VirtualLoop, clocks
from tests.inprocess.embedded_sidecar import EmbeddedClient, EmbeddedSidecar, turns
from tests.inprocess.messages import assigned, beat, commit, join, to_frame

GROUP = "g"
CORRELATION = 4711
NEVER_DUE_MS = 1 << 60
LONGEST_INTERVAL_MS = 15_000
"""Virtual time passes as it really does while a thread works: on a loaded machine one second would be over."""


@dataclass
class Stage:
    """One sidecar on a loop of its own, with a client that has been heard before."""

    loop: VirtualLoop
    sidecar: EmbeddedSidecar
    client: EmbeddedClient
    sent: bytes = b""
    """Bytes that the client will send."""

    def action(self, begin: Callable[[], None], ended: Callable[[], object]) -> Callable[[], None]:
        """The loop begins it, and turns until it has ended."""
        loop = self.loop

        def act() -> None:
            with clocks(loop):
                loop.call_soon(begin)
                while not ended():
                    loop.call_soon(loop.stop)  # and so no timer comes due
                    loop.run_forever()

        return act

    def exchange(self) -> Callable[[], None]:
        """The client's bytes come in, and their answer goes out."""
        transport = self.client.transport
        before = len(transport.written)
        return self.action(lambda: transport.feed(self.sent), lambda: len(transport.written) > before)


def stage(prepare: Callable[[Stage], Coroutine[Any, Any, None]], serve: bool = True) -> Stage:
    loop = VirtualLoop()

    async def build() -> Stage:
        sidecar = EmbeddedSidecar(
            partitions=1, serve=serve, watched=False, consumer={"assignment_interval_ms": LONGEST_INTERVAL_MS}
        )
        await sidecar.__aenter__()
        await sidecar.topics(orders=4)
        for task in asyncio.all_tasks():
            if task.get_name() == "tick":
                task.cancel()
        made = Stage(loop, sidecar, await sidecar.client())
        await prepare(made)
        await turns()
        return made

    with clocks(loop):
        made = loop.run_until_complete(build())
    atexit.register(_end, made)
    return made


def _end(s: Stage) -> None:
    """After the action everything may go."""
    s.sidecar.background.stop()
    for task in asyncio.all_tasks(s.loop):
        task.cancel()
    s.loop.run_until_complete(turns(3))
    s.loop.close()


async def joined(s: Stage) -> int:
    """A member that has what it is due; returns its epoch."""
    reply = await s.client.ask(join(GROUP, "m1"), 1)
    reply = await s.client.ask(beat(GROUP, "m1", reply.member_epoch, assigned(reply)), 1)
    assert reply.error_code == Code.NONE
    return int(reply.member_epoch)


def steady_heartbeat() -> Callable[[], None]:
    """The same bytes as before, under a grant; the coordinator need not hear of it yet."""

    async def prepare(s: Stage) -> None:
        s.sent = to_frame(beat(GROUP, "m1", await joined(s)), 1, CORRELATION)
        s.client.send(s.sent)
        for steady in s.client.session.steady.values():
            steady.touched_ms = NEVER_DUE_MS

    return stage(prepare).exchange()


def joining_heartbeat() -> Callable[[], None]:
    """The first heartbeat of a second member: through the state machine, and answered when its records are written.
    The assignment interval is not over, so no assignor runs, and nobody holds a grant that would be void."""

    async def prepare(s: Stage) -> None:
        assert (await s.client.ask(join(GROUP, "m1"), 1)).error_code == Code.NONE
        s.sidecar.tail.hold()
        s.sent = to_frame(join(GROUP, "m2"), 1, CORRELATION)

    return stage(prepare).exchange()


def offset_commit() -> Callable[[], None]:
    """The member is checked at the coordinator, and the broker stores the offset."""

    async def prepare(s: Stage) -> None:
        s.sent = to_frame(commit(GROUP, "m1", await joined(s), "orders", {0: 7}), 9, CORRELATION)

    return stage(prepare).exchange()


def takeover() -> Callable[[], None]:
    """From the new map to the moment when the partition is served."""

    async def prepare(s: Stage) -> None:
        s.sidecar.prove()

    s = stage(prepare, serve=False)
    owner = s.sidecar.service.owners[0]
    return s.action(lambda: s.sidecar.assign(1), lambda: owner.phase is Phase.SERVING)


PATHS: dict[str, Callable[[], Callable[[], None]]] = {
    "steady heartbeat": steady_heartbeat,
    "joining heartbeat": joining_heartbeat,
    "OffsetCommit": offset_commit,
    "takeover": takeover,
}
