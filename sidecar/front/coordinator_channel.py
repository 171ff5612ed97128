"""A front's end of the link: requests that the coordinator has not answered, and the cluster as it has shown it.

A request waits here while there is no coordinator, and while the owner of its group may be gone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from sidecar.core.runtime.events import Answer, Event
from sidecar.core.runtime.offset_checks import CheckReply
from sidecar.core.vocabulary.errors import TEXT, Code
from sidecar.front.clock import next_turn, now_ms
from sidecar.front.run import Run
from sidecar.front.waiting_room import WaitingRoom, in_doubt
from sidecar.link.messages import CommitEnded, Reply, Request, ToCoordinator, View
from sidecar.link.turn_queue import TurnQueue

SETTLE_MS = 1_000
"""FindCoordinator holds up what the client has sent behind it, so it does not wait for long."""


class CoordinatorChannel:
    """Sends requests to the coordinator and keeps them until their replies. `hold_ms`: how long a request waits here;
    `resume(run, answer)`: goes on with a request that is answered."""

    def __init__(
        self, send: Callable[[ToCoordinator], None], hold_ms: int, resume: Callable[[Run, Answer], None]
    ) -> None:
        self.send = send
        self.view: View | None = None
        """The cluster as the coordinator last showed it; None while there is no coordinator."""
        self.under_way: dict[int, Run] = {}
        """Requests that the coordinator has not answered, by token."""
        self.settling = WaitingRoom()
        """Requests for groups whose owner may be gone."""
        self._early = WaitingRoom()
        """Requests that came before the coordinator was there."""
        self._refusals = TurnQueue(next_turn)
        """Refuses requests that a former coordinator has not answered."""
        self._hold_ms, self._resume = hold_ms, resume
        self._last_token = 0

    @property
    def busy(self) -> bool:
        """Whether a request for the coordinator has no answer yet."""
        return bool(self.under_way or self._refusals)

    def ask(self, run: Run, event: Event) -> None:
        if run.comes_too_late(event):
            self._came_too_late(run)
            return
        self._last_token = token = self._last_token + 1
        run.event = event
        self.under_way[token] = run
        if self.view is None:
            late = partial(self._refuse_held, token)
            self._early.wait(now_ms() + self._hold_ms, lambda: self._send_held(token), late)
        elif self.view.suspects and event.group_id and in_doubt(self.view, (event.group_id,)):
            # The one whose turn it is may be this sidecar, which does not know yet.
            until_ms = now_ms() + self._hold_ms
            self.settling.wait(until_ms, lambda: self._send_held(token), groups=(event.group_id,))
        else:
            self.send(Request(token, event))

    def send_oneway(self, event: Event) -> None:
        """Sends an event without waiting for an answer."""
        if self.view is not None:
            self._last_token += 1
            self.send(Request(self._last_token, event))

    def settles(self, groups: tuple[str, ...], go_on: Callable[[], None]) -> bool:
        """Whether the owner of one of these groups may be gone; `go_on` is called when that is over, or takes long."""
        if self.view is None or not in_doubt(self.view, groups):
            return False
        self.settling.wait(now_ms() + SETTLE_MS, go_on, groups=groups)
        return True

    def give_up(self, run: Run) -> None:
        """Ends the request's handler early, and sends the coordinator the message that the request owes it."""
        if run.handler is not None:
            run.handler.close()
        if run.owed is not None:
            self.send(run.owed)
            run.owed = None

    # ---- messages of the coordinator ----------------------------------------------------------------------
    def show(self, view: View) -> None:
        first, self.view = self.view is None, view
        if first:
            self._early.release()
        self.settling.release(lambda groups: not in_doubt(view, groups))

    def replied(self, reply: Reply) -> None:
        self._answer(self.under_way.pop(reply.token, None), reply)

    def _answer(self, run: Run | None, reply: Reply) -> None:
        if run is None or run.session.conn.closed:
            if isinstance(reply.answer, CheckReply) and reply.answer.ticket:
                self.send(CommitEnded(reply.answer.ticket, sure=True))  # it is not sent at all
            elif run is not None and run.event is not None:
                event = reply.answer.undelivered(run.event.group_id)
                if event is not None:
                    self.send_oneway(event)
            return
        run.event, run.grant, run.now_ms = None, reply.grant, now_ms()
        self._resume(run, reply.answer)

    def lost(self) -> None:
        """The coordinator is gone, and with it all that it has not answered: the next one knows no token of these
        requests. Clients are refused in order, some in each turn of the loop."""
        self.view = None
        self._early.clear()
        left = dict(self.under_way)
        self.under_way.clear()
        self._refusals.add(partial(self._refuse, run, token, Code.NOT_COORDINATOR) for token, run in left.items())

    def _refuse(self, run: Run, token: int, code: Code) -> None:
        if run.event is not None:
            self._answer(run, Reply(token, run.event.refused(code, TEXT[code])))

    def _refuse_held(self, token: int) -> None:
        run = self.under_way.pop(token, None)
        if run is not None:
            self._refuse(run, token, Code.COORDINATOR_NOT_AVAILABLE)

    def _send_held(self, token: int) -> None:
        run = self.under_way.get(token)
        if run is None or run.event is None:
            return
        if run.comes_too_late(run.event):
            del self.under_way[token]
            self._came_too_late(run)
        else:
            self.send(Request(token, run.event))

    def _came_too_late(self, run: Run) -> None:
        self.give_up(run)
        run.session.close("client_closed")
