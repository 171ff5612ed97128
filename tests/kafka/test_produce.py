"""A Produce request has each partition once."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sidecar.kafka.produce import BY_NAME, Appender, _Item, _Leader
from sidecar.wire.frames import response_frame
from sidecar.wire.generated import produce as pr
from tests.inprocess import clock
from tests.inprocess.embedded_sidecar import turns


def test_no_partition_twice_in_a_request() -> None:
    """Symptom: an acknowledged batch was not in the log. Of two a broker takes one, and answers for both."""

    leader = _Leader(cast(Any, None), 1, 1.0, {})
    batches = ((0, b"a"), (1, b"b"), (0, b"c"), (0, b"d"))
    leader.queue = [_Item("t", p, batch, lambda code, offset, lost: None) for p, batch in batches]
    taken = [[i.batch for i in leader._take()] for _ in range(3)]
    assert taken == [[b"a", b"b"], [b"c"], [b"d"]] and not leader.queue


class Connection:
    def __init__(self) -> None:
        self.closed = False
        self.answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def close(self) -> None:
        self.closed = True

    def offers(self, *given: object) -> bool:
        return False

    def start(self, *given: object) -> tuple[int, bool, asyncio.Future[bytes]]:
        return BY_NAME, True, self.answer


class Opening:
    """A cluster whose only connection opens when it may."""

    def __init__(self) -> None:
        self.conn, self.may = Connection(), asyncio.Event()
        self.security = SimpleNamespace(outcome=lambda *given: None)

    async def open(self, node_id: int) -> Connection:
        await self.may.wait()
        return self.conn


@pytest.mark.parametrize("put", (Appender.put, Appender.put_apart))
@pytest.mark.parametrize("sent", (False, True))
def test_a_connection_that_is_in_use_when_its_appender_closes_is_closed_then(put: Any, sent: bool) -> None:
    """Symptom: it stayed open until the broker's idle limit. `sent`: a request is under way on it; else it opens."""

    async def test() -> None:
        cluster, ended = Opening(), asyncio.Event()
        appender = Appender(cast(Any, cluster), 1.0)
        put(appender, 1, "t", 0, b"x", lambda code, offset, lost: ended.set())
        if sent:
            cluster.may.set()
        await turns()
        appender.close()
        cluster.may.set()
        answered = pr.ProduceResponse(
            [pr.TopicProduceResponse("t", partition_responses=[pr.PartitionProduceResponse(0)])]
        )
        cluster.conn.answer.set_result(response_frame(1, True, answered.encode(BY_NAME)))
        await ended.wait()
        assert cluster.conn.closed

    clock.run(test())
