"""Requests whose wait ends together, and those of a coordinator that is gone: clients are answered some in each turn of
the loop."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from sidecar.core.vocabulary.errors import Code
from sidecar.front import waiting_room
from sidecar.front.clock import next_turn
from sidecar.front.waiting_room import WaitingRoom
from sidecar.link import turn_queue
from sidecar.link.loopback import IN_A_ROW
from sidecar.link.messages import View
from sidecar.link.turn_queue import TurnQueue
from sidecar.wire.generated import find_coordinator as fc
from tests.front.test_front import accepted, run
from tests.inprocess.embedded_front import EmbeddedFront
from tests.inprocess.embedded_sidecar import EmbeddedClient, turns
from tests.inprocess.messages import join

FIND = fc.FindCoordinatorRequest("g", 0, ["g"])


async def clients_of(embedded: EmbeddedFront, count: int) -> list[EmbeddedClient]:
    return [await embedded.client() for _ in range(count)]


def answered(clients: list[EmbeddedClient]) -> list[int]:
    return [i for i, client in enumerate(clients) if client.waiting]


@pytest.mark.parametrize("late", [False, True])
def test_requests_whose_wait_is_over_let_the_loop_turn(late: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting_room, "TICK_S", 0)

    async def main() -> None:
        room, made, total = WaitingRoom(), list[int](), 3 * IN_A_ROW + 1
        for i in range(total):
            room.wait(0 if late else 1 << 60, partial(made.append, i))
        if not late:
            room.release()
            assert made == []
        while (before := len(made)) < total:
            await asyncio.sleep(0)
            assert len(made) <= before + IN_A_ROW
        assert made == list(range(total)) and not len(room)

    asyncio.run(main())


def test_a_call_that_raises_ends_no_other_one() -> None:
    async def main() -> None:
        queue, made = TurnQueue(next_turn, broken=told.append), list[int]()

        def breaks() -> None:
            raise ZeroDivisionError

        raised: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: raised.append(context))
        queue.add([breaks, partial(made.append, 1), lambda: queue.add([partial(made.append, 3)])])
        queue.add([partial(made.append, 2)])
        await turns()
        assert made == [1, 2, 3] and not queue, "all stay in their order"
        assert [type(exc) for exc in told] == [type(context["exception"]) for context in raised] == [ZeroDivisionError]

    told: list[Exception] = []
    asyncio.run(main())


def test_calls_that_are_dropped_are_not_made() -> None:
    async def main() -> None:
        room, made = WaitingRoom(), list[int]()
        for i in range(2 * IN_A_ROW):
            room.wait(1 << 60, partial(made.append, i))
        room.release()
        await asyncio.sleep(0)
        room.clear()
        await turns()
        assert len(made) == IN_A_ROW

    asyncio.run(main())


def test_clients_that_waited_for_an_owner_are_answered_some_in_each_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: 10,000 FindCoordinators were answered in one iteration of the loop when a dead owner was replaced."""
    monkeypatch.setattr(turn_queue, "IN_A_ROW", 2)
    brokers = {1: ("b1", 9), 2: ("b2", 9)}

    async def test(embedded: EmbeddedFront) -> None:
        embedded.show()
        embedded.front.from_coordinator(View(owners=(2,), leaders=(1,), brokers=brokers, suspects=(2,)))
        clients = await clients_of(embedded, 5)
        for client in clients:
            client.post(FIND, 4)
        await turns()
        embedded.front.from_coordinator(View(owners=(1,), leaders=(1,), brokers=brokers))
        await turns(1)
        assert answered(clients) == [0, 1]
        await turns(1)
        assert answered(clients) == [0, 1, 2, 3]
        await turns(1)
        assert len(answered(clients)) == 5

    run(test)


def test_clients_of_a_lost_coordinator_are_refused_some_in_each_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: 10,000 clients were refused in one iteration of the loop. What the former coordinator was asked is
    forgotten at once: the next one answers none of it."""
    monkeypatch.setattr(turn_queue, "IN_A_ROW", 2)

    async def test(embedded: EmbeddedFront) -> None:
        embedded.show()
        clients = await clients_of(embedded, 5)
        for i, client in enumerate(clients):
            client.post(join("g", f"m{i}"), 1)
        requests = [await embedded.request() for _ in clients]
        embedded.front.link_lost()
        assert not embedded.front.channel.under_way
        embedded.show()
        embedded.reply(requests[4], accepted())
        await turns(1)
        assert answered(clients) == [0, 1]
        await embedded.front.drain(1.0)
        for client in clients:
            assert (await client.answer(join("g", "m"), 1)).error_code == Code.NOT_COORDINATOR

    run(test)
