"""A broker that stands still takes only those with it who need it: at its sidecar every request is answered, or its
connection is closed, and the others go on (tests/front/test_broker_silence.py has the same to the millisecond)."""

from __future__ import annotations

import asyncio
import signal
import time

from sidecar.drill.local import Broker, LocalKafka
from sidecar.drill.processes import wait_until
from sidecar.wire.apis import SERVED, Api
from sidecar.wire.generated import api_versions as av
from tests.clients.test_three_brokers import GROUP, heartbeat, until_accepted
from tests.clients.wire import talk
from tests.inprocess.messages import smallest, to_frame

PATIENCE_S = 20
"""Less than clients have. The bound itself is 3 s where nothing else is to do."""
VERSIONS = to_frame(av.ApiVersionsRequest(client_software_name="app", client_software_version="1"), 3, 1)
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def connected(node: Broker) -> Streams:
    return await asyncio.open_connection("127.0.0.1", node.sidecar_port)


async def old_connections(node: Broker) -> list[Streams]:
    """The broker has answered on each of them."""
    made = [await connected(node) for _ in SERVED]
    for reader, writer in made:
        writer.write(VERSIONS)
        size = int.from_bytes(await reader.readexactly(4), "big")
        await reader.readexactly(size)
    return made


async def ended(streams: Streams, api: Api) -> tuple[str, float, str]:
    """Returns the result of one request, and its time."""
    reader, writer = streams
    began_s = time.monotonic()
    writer.write(smallest(api, GROUP))
    try:
        async with asyncio.timeout(PATIENCE_S):
            how = "answered" if await reader.read(1) else "closed"
    except TimeoutError:
        how = "hangs"
    except ConnectionError:
        how = "closed"
    writer.close()
    return api.name, time.monotonic() - began_s, how


async def all_apis(streams: list[Streams]) -> list[tuple[str, float, str]]:
    return await asyncio.gather(*(ended(s, api) for s, api in zip(streams, map(Api, SERVED), strict=True)))


def test_every_api_at_the_sidecar_of_a_suspended_broker_is_answered_or_closed(trio: LocalKafka) -> None:
    epoch = until_accepted(trio, -1, "m", 0)
    owner = trio.owner_of(GROUP)
    node = next(n for n in trio.nodes if n is not owner)
    broker = node.process
    assert broker is not None

    async def hang() -> list[list[tuple[str, float, str]]]:
        old = await old_connections(node)
        reader, there = (await old_connections(node))[0]  # it shows that nobody has to authenticate
        there.write(smallest(Api.FIND_COORDINATOR, GROUP))
        await reader.readexactly(4)
        broker.signal(signal.SIGSTOP)
        first = await asyncio.gather(all_apis(old), all_apis([await connected(node) for _ in SERVED]))
        later = await all_apis([await connected(node) for _ in SERVED])
        there.close()
        return [*first, later]

    try:
        told = asyncio.run(hang())
        code, _ = talk(trio, lambda c: heartbeat(c, "m", epoch), node=owner.node_id - 1)
        assert code == 0, "whose owner lives is well"
        problems = trio.problems(node)
        assert any("silent" in p for p in problems), problems
    finally:
        broker.signal(signal.SIGCONT)
    print("problems", problems)
    for which, found in zip(("old", "new", "later"), told, strict=True):
        print(which, "slowest", max(f"{took:.2f} {name}" for name, took, _ in found), found)
        assert not [name for name, _, how in found if how == "hangs"]
    later = {name: (took, how) for name, took, how in told[2]}
    assert {later[api.name][1] for api in (Api.API_VERSIONS, Api.FIND_COORDINATOR)} == {"answered"}
    wait_until("it to be ready again", lambda: not trio.problems(node), 120)
    trio.wait_ready()
