"""A front without a coordinator: a test reads what the front sends and answers for the coordinator.

embedded = EmbeddedFront()
embedded.show()                              the coordinator is there, and this is the cluster
client = await embedded.client()
client.post(join("g", "m1"), 1)
request = await embedded.request()           what the front makes of it
embedded.reply(request, HeartbeatReply())    what the coordinator says
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from sidecar.core.runtime.events import Answer
from sidecar.front.front import Front
from sidecar.front.settings import FrontSettings
from sidecar.link.messages import Grant, GroupRules, Lease, Reply, Request, ToCoordinator, View
from sidecar.link.ports import LinkedFront
from sidecar.process.tasks import Supervisor
from sidecar.wire.frames import Limits
from tests.inprocess.broker import FakeBrokers
from tests.inprocess.cluster import FakeCluster
from tests.inprocess.embedded_sidecar import Counted, EmbeddedClient, Lines, until

T = TypeVar("T")


class EmbeddedFront:
    """`given`: fields of `FrontSettings`. Every group is managed but those whose name begins with "theirs"."""

    def __init__(self, **given: Any) -> None:
        self.brokers = FakeBrokers(nodes=(1, 2))
        self.cluster = FakeCluster(self.brokers, "sidecar-1")
        self.lines = Lines()
        self.metrics = Counted()
        self.tasks = Supervisor()
        self.tasks.watch(asyncio.get_running_loop())
        self.sent: list[ToCoordinator] = []
        self._read = 0
        managed = given.pop("managed", lambda group_id: not group_id.startswith("theirs"))
        settings = FrontSettings(1, self.brokers.address(1), Limits(), managed, True)
        self.front = Front(replace(settings, **given), self._attach, self.cluster, self.metrics, self.lines, self.tasks)

    def _attach(self, front: LinkedFront) -> Callable[[ToCoordinator], None]:
        return self.sent.append

    async def client(self, host: str = "10.0.0.9") -> EmbeddedClient:
        return EmbeddedClient(self.front, self.brokers, 1, host)

    # ---- what the coordinator does ------------------------------------------------------------------------------
    def show(self, **given: Any) -> None:
        """The coordinator shows itself, with a lease that lasts; `given`: fields of the view."""
        brokers = {n: self.brokers.address(n) for n in self.brokers.nodes}
        view = View(**{"owners": (1,), "leaders": (1,), "brokers": brokers, "authorizer": False, **given})
        self.front.from_coordinator(Lease(1 << 60))
        self.front.from_coordinator(GroupRules())
        self.front.from_coordinator(view)

    async def request(self) -> Request:
        """The next request that the front has sent."""
        await until(lambda: len(self.of(Request)) > self._read)
        self._read += 1
        return self.of(Request)[self._read - 1]

    def of(self, kind: type[T]) -> list[T]:
        return [m for m in self.sent if isinstance(m, kind)]

    def reply(self, request: Request, answer: Answer, grant: Grant | None = None) -> None:
        self.front.from_coordinator(Reply(request.token, answer, grant))
