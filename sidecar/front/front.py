"""The front: clients' connections (socket_server.py), the handlers of their requests (dispatcher.py), and what
the coordinator has sent (scopes.py, steady.py, coordinator_channel.py): a front sees only its messages."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from sidecar.front.clock import now_ms
from sidecar.front.dispatcher import Dispatcher
from sidecar.front.scopes import Scopes
from sidecar.front.settings import FrontSettings
from sidecar.front.socket_server import SocketServer
from sidecar.front.steady import Grants
from sidecar.kafka.cluster import Cluster
from sidecar.link.messages import (
    AskAccess,
    BrokerSilence,
    GroupRules,
    Lease,
    Reply,
    ToCoordinator,
    ToFront,
    TopicsPassed,
    View,
    Void,
)
from sidecar.link.ports import Figures, LinkedFront, Logger, Tasks


class Front:
    def __init__(
        self,
        settings: FrontSettings,
        attach: Callable[[LinkedFront], Callable[[ToCoordinator], None]],
        cluster: Cluster,
        figures: Figures,
        log: Logger,
        tasks: Tasks,
    ) -> None:
        """Connects to the coordinator: `attach(front)` returns the function that sends to it. `cluster`: for requests
        that belong to another broker."""
        self.scopes = Scopes(settings, figures)
        self._grants = Grants()
        self._dispatcher = Dispatcher(settings, attach(self), self.scopes, self._grants, cluster, figures, log, tasks)
        self.channel = self._dispatcher.channel
        self.server = SocketServer(
            settings, self._dispatcher.dispatch, self._silence, self._topics_passed, figures, log
        )

    @property
    def linked(self) -> bool:
        """Whether the coordinator has shown itself."""
        return self.channel.view is not None

    # ---- the coordinator ------------------------------------------------------------------------------------
    def from_coordinator(self, message: ToFront) -> None:
        if type(message) is Reply:
            self.channel.replied(message)
        elif isinstance(message, Lease):
            self._grants.lease_until_ms, self._grants.lease_until_wall_ms = message.until_ms, message.until_wall_ms
        elif isinstance(message, Void):
            self._grants.void(message.groups)
        elif isinstance(message, View):
            again = not self.linked
            self.server.links.limit(message.idle_ms)
            self.channel.show(message)
            if again:
                self.server.watch.tell()
        elif isinstance(message, GroupRules):
            self.scopes.follow(message)
        elif isinstance(message, AskAccess):
            self._dispatcher.ask_access(message)

    def link_lost(self) -> None:
        """Drops all that the coordinator granted and refuses what it has not answered: it is gone."""
        self._grants.void_all()
        self.channel.lost()

    # ---- the broker -----------------------------------------------------------------------------------------
    def _silence(self, quiet_ms: int, to_all: bool) -> None:
        """Reports the broker's silence to the coordinator. `quiet_ms`: time since its last answer; -1: it answers
        again."""
        self.channel.send(BrokerSilence(quiet_ms if to_all else -1))
        learnt, sessions = self.scopes.learnt, self.server.sessions
        learnt.open_meanwhile = quiet_ms >= 0 and (learnt.open_meanwhile or any(s.anonymous for s in sessions))

    def _topics_passed(self) -> None:
        if self.linked:
            self._grants.pause(now_ms())
            self.channel.send(TopicsPassed())

    # ---- ending ---------------------------------------------------------------------------------------------
    def stop(self) -> None:
        """Takes no more connections. The coordinator, which is about to stop, answers every heartbeat."""
        self.server.stop()
        self._grants.stop()

    async def drain(self, timeout_s: float) -> None:
        """Lets answers under way leave; then closes every connection."""
        until_s = time.monotonic() + timeout_s
        while self.channel.busy and time.monotonic() < until_s:
            await asyncio.sleep(0.01)
        await self.server.close(until_s)
