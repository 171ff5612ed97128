"""Runs the handler of each request that does not simply pass, and answers what it wants.

A handler (api/) is a generator and runs until it must wait: for the broker, on the client's connection; for another
broker; for the coordinator. Nothing here knows a group.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from sidecar.api.access import lets_in
from sidecar.api.call import Ask, BrokerSilent, Coordinate, Forward, Owe, SendToCoordinator, Settle, Start, Store, Want
from sidecar.api.handlers import HANDLERS, READ_THEIR_HEADER
from sidecar.core.runtime.events import Answer
from sidecar.core.vocabulary.errors import TEXT, Code
from sidecar.front import other_brokers
from sidecar.front.access_steps import AccessSteps
from sidecar.front.api_sets import BEFORE_ALL, MEMBERS_ASK, WAIT_FOR_OTHERS
from sidecar.front.broker_watch import SILENT
from sidecar.front.clock import now_ms
from sidecar.front.coordinator_channel import CoordinatorChannel
from sidecar.front.request_metrics import RequestMetrics
from sidecar.front.run import Run
from sidecar.front.scopes import Scopes
from sidecar.front.session import Session
from sidecar.front.settings import FrontSettings
from sidecar.front.slices import Slices
from sidecar.front.steady import Grants, touch_due
from sidecar.kafka.cluster import Cluster
from sidecar.kafka.net import NO_ANSWER
from sidecar.link.messages import AskAccess, Grant, ToCoordinator, View
from sidecar.link.ports import Figures, Logger, Tasks
from sidecar.proxy.actions import Close, Got
from sidecar.wire.apis import ALONE, SERVED, Api, looked_into, response_flexible
from sidecar.wire.frames import PREFIX, SIZE, client_id_of, header_end, response_frame
from sidecar.wire.primitives import WireError

HEADER = PREFIX.size
"""Position in a request at which its header goes on after the correlation id."""
NO_VIEW = View()
AT_ONCE, ASKED_IN_VAIN = (SendToCoordinator, Owe, Start), (Coordinate, Settle)


class Dispatcher:
    """Runs the handlers. `cluster`: for requests that belong to another broker."""

    def __init__(
        self,
        settings: FrontSettings,
        send: Callable[[ToCoordinator], None],
        scopes: Scopes,
        grants: Grants,
        cluster: Cluster,
        figures: Figures,
        log: Logger,
        tasks: Tasks,
    ) -> None:
        self.channel = CoordinatorChannel(send, settings.hold_ms, self._advance)
        self._settings, self._scopes, self._grants = settings, scopes, grants
        self._cluster, self._log, self._tasks = cluster, log, tasks
        self._metrics = RequestMetrics(figures)
        self._slices = Slices()
        self._access = AccessSteps(self.channel.under_way, send, self._slices, self._malformed)

    def dispatch(self, session: Session, got: Got) -> None:
        self._metrics.seen[got.api_key] += 1
        at_ms = now_ms()
        steady = session.steady.get(got.frame[HEADER:]) if session.steady else None
        if steady is not None and self._grants.allows(steady, got.api_key, got.version, at_ms):
            if touch_due(steady, at_ms):
                self.channel.send(steady.touch)
            session.reply(got.token, steady.head + SIZE.pack(got.correlation_id) + steady.tail)
            self._metrics.steady += 1
            return
        facts = session.facts
        if len(got.frame) > self._settings.unproven_bytes and not facts.let_in and got.api_key not in BEFORE_ALL:
            self._metrics.probes += 1
            session.upstream.ask(got.token, lets_in(got.correlation_id), partial(self._proved, session, got))
        else:
            self._handle(session, got, at_ms)

    def _proved(self, session: Session, got: Got, answer: bytes | None) -> None:
        """Handles the request if the broker has let this client in. Closes the connection if the broker gave no
        answer."""
        if answer is not None and not session.conn.closed:
            session.facts.let_in = True
            self._handle(session, got, now_ms())
        elif answer is None:
            session.close(SILENT)

    def _handle(self, session: Session, got: Got, at_ms: int) -> None:
        api_key, frame = got.api_key, got.frame
        client_id, pos = None, HEADER
        if api_key not in READ_THEIR_HEADER:
            try:
                client_id, pos = header_end(frame, HEADER, got.version >= SERVED[api_key].flexible_from)
            except WireError as exc:
                self._malformed(session, exc, got)
                return
        served = self._scopes.learnt.served
        if served is not None and (api_key, got.version) not in served and api_key != Api.API_VERSIONS:
            detail = f"api {api_key} version {got.version}, which the broker does not serve"
            session.run([Close("unsupported_version", detail, client_id_of(frame, 0))])
            return
        view = self.channel.view or NO_VIEW
        session.facts.authenticates, session.facts.mechanism = session.conn.authenticates, session.conn.mechanism
        run = Run(
            self._scopes.of(session.facts.principal),
            session.facts,
            view,
            api_key,
            got.version,
            got.correlation_id,
            frame,
            pos,
            client_id,
            at_ms,
            session,
            got,
        )
        run.handler = HANDLERS[api_key](run)
        if self._scopes.known or api_key not in MEMBERS_ASK:
            self._advance(run, None)
        else:
            until_ms = at_ms + self._settings.hold_ms
            self._scopes.wait_until_known(until_ms, partial(self._go_on, run), partial(self._doubt, run))

    def _advance(self, run: Run, value: Any, silent: bool = False) -> None:
        """Resumes the handler with the result of its last want, until it waits again or ends. `silent`: the broker does
        not answer."""
        handler = run.handler
        assert handler is not None
        if self.channel.view is not None:
            run.view = self.channel.view  # ownership and leaders may have moved while it waited
        try:
            want = handler.throw(BrokerSilent()) if silent else handler.send(value)
            while type(want) in AT_ONCE or (run.scope is self._scopes.doubtful and type(want) in ASKED_IN_VAIN):
                want = handler.send(self._at_once(run, want))
        except StopIteration as ended:
            self._finish(run, ended.value)
        except WireError as exc:
            self.channel.give_up(run)
            self._malformed(run.session, exc, run.got)
        except BrokerSilent:
            self.channel.give_up(run)
            run.session.close(SILENT)
        except Exception as exc:  # noqa: BLE001 - a bug: its client must not wait for ever, the others go on
            self.channel.give_up(run)
            self._metrics.handler_faults.inc()
            name = Api(run.got.api_key).name
            self._log.error("handler broke", api=name, version=run.got.version, error=repr(exc))
            run.session.close("internal_error", repr(exc))
        else:
            if type(want) is Coordinate:
                if run.api_key in WAIT_FOR_OTHERS:
                    run.session.flow.end_large()
                else:
                    run.session.flow.park_large()
                self.channel.ask(run, want.event)
            elif isinstance(want, Ask):
                run.session.upstream.ask(run.got.token, want.frame, lambda frame: self._answered(run, frame))
            elif isinstance(want, Store):
                run.session.flow.park_large()
                self._tasks.spawn(self._store(run, want), "store")
            elif isinstance(want, Settle):
                if not self.channel.settles(want.groups, partial(self._go_on, run)):
                    self._advance(run, None)
            else:
                go_on = partial(self._slices.wait, partial(self._go_on, run))
                large = run.api_key in ALONE or run.session.flow.place is not None
                if not large or run.session.flow.begin_large(0, go_on):
                    go_on()

    def _at_once(self, run: Run, want: Want) -> Answer | None:
        """Carries out a want that needs no waiting, and returns its result."""
        if isinstance(want, Owe):
            run.owed = want.message
        elif isinstance(want, SendToCoordinator):
            run.owed = None
            self.channel.send(want.message)
        elif isinstance(want, Start):
            run.session.upstream.ask(run.got.token, want.frame, partial(self._started, run, want))
        elif isinstance(want, Coordinate):
            code = Code.COORDINATOR_NOT_AVAILABLE
            return want.event.refused(code, TEXT[code])
        return None

    def _started(self, run: Run, want: Start, frame: bytes | None) -> None:
        """Sends the coordinator the result of a request to the broker that was started without waiting. The client was
        answered long ago."""
        try:
            event = want.then(frame)
        except WireError as exc:
            event = want.then(None)
            self._malformed(run.session, exc, run.got)
        self.channel.send_oneway(event)

    def _answered(self, run: Run, frame: bytes | None) -> None:
        if frame is None and run.session.conn.closed:
            self.channel.give_up(run)
            return
        run.now_ms = now_ms()
        if frame is not None and run.api_key not in BEFORE_ALL:
            run.session.facts.let_in = True
        self._advance(run, frame, silent=frame is None)

    def _finish(self, run: Run, result: bytes | Forward) -> None:
        session, got = run.session, run.got
        if isinstance(result, Forward):
            session.forward(got, result.frame)
            return
        if got.api_key == Api.API_VERSIONS:
            session.shown(looked_into(run.broker_versions))
        frame = response_frame(got.correlation_id, response_flexible(got.api_key, got.version), result)
        if run.grant is not None:
            self._remember(run, run.grant, frame)
        session.reply(got.token, frame)
        self._metrics.took[run.api_key](time.perf_counter() - run.began_s)

    def _remember(self, run: Run, grant: Grant, frame: bytes) -> None:
        steady, room, until_ms = run.session.steady, self._settings.steady_replies, run.rights_until_ms
        if room == 0 or until_ms is None:
            return
        if len(steady) >= room:
            steady.clear()
        steady[run.frame[HEADER:]] = self._grants.remember(
            grant, run.api_key, run.got.version, until_ms, frame, now_ms()
        )

    def _malformed(self, session: Session, exc: WireError, got: Got) -> None:
        session.run([Close("malformed", str(exc), client_id_of(got.frame, 0))])

    async def _store(self, run: Run, want: Store) -> None:
        try:
            frame = await other_brokers.ask(self._cluster, want, run.client.number % self._settings.commit_lanes)
        except NO_ANSWER as exc:
            # Whether the broker did it is unknown: the client must see a broken connection, as from a broker.
            self.channel.give_up(run)
            run.session.close("broker_closed", str(exc) or "timed out")
        else:
            run.now_ms = now_ms()
            self._advance(run, frame)

    def _go_on(self, run: Run) -> None:
        """Resumes a handler after a wait, unless its client has gone meanwhile."""
        if run.session.conn.closed:
            self.channel.give_up(run)
        else:
            self._advance(run, None)

    def _doubt(self, run: Run) -> None:
        run.scope = self._scopes.in_doubt(run.scope)
        self._go_on(run)

    def ask_access(self, ask: AskAccess) -> None:
        """Answers the coordinator's question which topics the principal behind a request may not see."""
        self._access.begin(ask)
