"""What becomes of each request that does not simply pass: runs its handler, answers what it wants.

A handler (api/) is a generator and runs until it must wait: for the broker, on the client's connection; for another
broker; for the coordinator. Nothing here knows a group. Of the coordinator a front sees messages, nothing else.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from sidecar.api.access import lets_in
from sidecar.api.call import (
    Ask,
    BrokerSilent,
    Coordinate,
    Forward,
    Owe,
    OwnNames,
    Scope,
    Settle,
    Start,
    Store,
    Tell,
    Want,
)
from sidecar.api.handlers import HANDLERS, READ_THEIR_HEADER
from sidecar.core.runtime.events import Answer, Event
from sidecar.core.runtime.offset_checks import CheckReply
from sidecar.core.vocabulary.cache import Shared
from sidecar.core.vocabulary.errors import TEXT, Code, name_of
from sidecar.front import other_brokers
from sidecar.front.access_steps import AccessSteps
from sidecar.front.api_sets import BEFORE_ALL, MEMBERS_ASK, WAIT_FOR_OTHERS
from sidecar.front.broker_watch import SILENT, BrokerWatch
from sidecar.front.door import Door
from sidecar.front.large import LargeRequests
from sidecar.front.links import Links
from sidecar.front.managed import Managed
from sidecar.front.memory import shared
from sidecar.front.run import Run
from sidecar.front.session import Session
from sidecar.front.settings import FrontSettings
from sidecar.front.settling import WaitingRoom, in_doubt
from sidecar.front.slices import Slices
from sidecar.front.steady import Grants, touch_due
from sidecar.front.unread import Unread
from sidecar.front.upstream import Broker
from sidecar.kafka.cluster import Cluster
from sidecar.kafka.net import NO_ANSWER
from sidecar.link.clock import CLOCK
from sidecar.link.messages import (
    AskAccess,
    BrokerSilence,
    CommitEnded,
    Grant,
    GroupRules,
    Lease,
    Reply,
    Request,
    ToCoordinator,
    ToFront,
    TopicsPassed,
    View,
    Void,
)
from sidecar.link.ports import Figures, LinkedFront, Logger, Tasks
from sidecar.proxy.actions import Close, Got
from sidecar.proxy.internal import Internal
from sidecar.wire.apis import ALONE, SERVED, Api, looked_into, response_flexible
from sidecar.wire.frames import PREFIX, SIZE, client_id_of, header_end, response_frame
from sidecar.wire.primitives import WireError

HEADER = PREFIX.size
"""Where the header of a request goes on behind its correlation id."""
NO_VIEW = View()
SETTLE_MS = 1_000
"""FindCoordinator holds up what the client has sent behind it, so it does not wait for long."""
AT_ONCE, ASKED_IN_VAIN = (Tell, Owe, Start), (Coordinate, Settle)


def now_ms() -> int:
    return int(time.clock_gettime(CLOCK) * 1000)


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
        """`attach` connects to the coordinator and returns how to send to it. `cluster`: for requests that belong to
        another broker."""
        self.settings = settings
        self.broker = Broker(settings.broker, settings.upstream_tls, settings.upstream_host)
        self.limits, self.header_timeout_s = settings.limits, settings.header_timeout_s
        self.internal = Internal(settings.internal_topic, self._topics_passed)
        self.held_bytes, self.unread_bytes = settings.held_bytes, settings.unread_bytes
        unread = Unread(settings.all_unread_bytes, settings.unread_bytes)
        self.memory = shared(settings.memory_bytes, settings.door.connections_max, settings.held_bytes, unread)
        self.door = Door(settings.door, figures, log)
        self.sessions, self.pauses = self.door.sessions, self.door.pauses
        self.stopping = False
        self.gone, self.refused, self.broker_refused = self.door.gone, self.door.refused, self.door.broker_refused
        self.large = LargeRequests(settings.large_requests, self.pauses)
        self.log, self.links = log, Links(self.sessions, figures)
        connect = self.broker.connect
        self.watch = BrokerWatch(settings.silence_ms, connect, self.sessions, self._silence, figures, log)
        self._cluster, self._figures, self._tasks = cluster, figures, tasks
        self._faults = figures("handler_faults")
        self._seen, self._steady_replies, self._probes = dict.fromkeys(SERVED, 0), 0, 0
        self._rights = Shared(settings.remembered_bytes // 4)
        self._steady = Shared(settings.remembered_bytes - self._rights.limit_bytes)
        """What is remembered of all connections."""
        self._took = {api: figures("request_seconds", Api(api).name.lower()).observe for api in SERVED}
        self._managed = Managed(settings.managed, settings.managing, settings.own.group)
        self._scope = self._scope_of(settings, figures)
        self._trusted = replace(self._scope, managed=self._managed_but_own, own=OwnNames())
        """For the other sidecars, where they come over this listener."""
        self._doubtful = replace(self._scope, managed=lambda group_id: True, moved=lambda group_id: False)
        """For requests that have waited in vain for the word on which groups are managed: any group may be."""
        self._grants = Grants()
        self._view: View | None = None
        self._waiting: dict[int, Run] = {}
        self._early = WaitingRoom(now_ms)
        """The coordinator is not there yet."""
        self._unsure = WaitingRoom(now_ms)
        """It is not known yet which groups are managed. The settings say it only of a sidecar that starts where nothing
        was stored, and a member that is let through to its broker may find a second coordinator there."""
        self._settling = WaitingRoom(now_ms)
        """The owner of a group may be gone."""
        self._slices = Slices()
        self._last_token = 0
        self._tell(figures)
        self._send = attach(self)
        self._access = AccessSteps(self._send, self._slices, self._malformed, now_ms)

    def _scope_of(self, settings: FrontSettings, figures: Figures) -> Scope:
        return Scope(
            settings.node_id,
            self._managed.managed,
            settings.managing,
            settings.access_keep_ms,
            settings.new_id,
            settings.modern_as_classic,
            settings.share,
            settings.streams,
            self._managed.moved,
            committed=lambda code: figures("commits", name_of(code).lower() if code else "accepted").inc(),
            sizes=settings.sizes,
            cut=lambda limit: figures("cut", limit).inc(),
            own=settings.own,
        )

    def _tell(self, figures: Figures) -> None:
        """What is counted here anyway, when somebody looks."""
        figures("reserved").set_function(lambda: self.memory.reserved_bytes)
        figures("unread").set_function(lambda: self.memory.answers.total_bytes)
        figures("steady").set_function(lambda: self._steady_replies)
        figures("probes").set_function(lambda: self._probes)
        for what, shared_ in (("rights", self._rights), ("steady", self._steady)):
            figures("remembered", what).set_function(partial(getattr, shared_, "used_bytes"))
            figures("forgotten", what).set_function(partial(getattr, shared_, "forgotten"))
        for api in SERVED:
            seen = partial(self._seen.__getitem__, api)
            figures("requests", Api(api).name.lower(), SERVED[api].decision).set_function(seen)

    def _managed_but_own(self, group_id: str) -> bool:
        return not self.settings.own.is_group(group_id) and self._managed.managed(group_id)

    @property
    def linked(self) -> bool:
        """The coordinator has shown itself."""
        return self._view is not None

    def opened(self, session: Session) -> str:
        """Why this connection is one too many; "": it is not."""
        session.facts.share(self._rights)
        session.steady.shared = self._steady
        cause = self.door.opened(session)
        self.links.begin()
        return "shutdown" if self.stopping else cause

    def arriving(self, host: str) -> tuple[str, float]:
        """The same of a connection that has to prove itself first, and for how many seconds it waits for its turn."""
        return ("shutdown", 0.0) if self.stopping else self.door.arriving(host)

    # ---- requests -----------------------------------------------------------------------------------------
    def dispatch(self, session: Session, got: Got) -> None:
        self._seen[got.api_key] += 1
        at_ms = now_ms()
        steady = session.steady.get(got.frame[HEADER:]) if session.steady else None
        if steady is not None and self._grants.allows(steady, got.api_key, got.version, at_ms) and not self.stopping:
            if touch_due(steady, at_ms):
                self._send(steady.touch)
            session.reply(got.token, steady.head + SIZE.pack(got.correlation_id) + steady.tail)
            self._steady_replies += 1
            return
        if len(got.frame) > self.settings.unproven_bytes and not session.facts.let_in and got.api_key not in BEFORE_ALL:
            self._probes += 1
            session.upstream.ask(got.token, lets_in(got.correlation_id), partial(self._proved, session, got))
        else:
            self._handle(session, got, at_ms)

    def _proved(self, session: Session, got: Got, answer: bytes | None) -> None:
        """The broker has answered, so it lets this client in; or it has closed the connection."""
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
        served = self._scope.learnt.served
        if served is not None and (api_key, got.version) not in served and api_key != Api.API_VERSIONS:
            detail = f"api {api_key} version {got.version}, which the broker does not serve"
            session.run([Close("unsupported_version", detail, client_id_of(frame, 0))])
            return
        view = self._view or NO_VIEW
        session.facts.authenticates, session.facts.mechanism = session.conn.authenticates, session.conn.mechanism
        run = Run(
            self._trusted if session.facts.principal in self.settings.own_principals else self._scope,
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
        if self._managed.known or api_key not in MEMBERS_ASK:
            self._advance(run, None)
        else:
            self._unsure.wait(at_ms + self.settings.hold_ms, lambda: self._go_on(run), lambda: self._doubt(run))

    def _advance(self, run: Run, value: Any, silent: bool = False) -> None:
        """Resume the handler with what came of its last want, until it waits again or ends. `silent`: the broker does
        not answer."""
        handler = run.handler
        assert handler is not None
        if self._view is not None:
            run.view = self._view  # ownership and leaders may have moved while it waited
        try:
            want = handler.throw(BrokerSilent()) if silent else handler.send(value)
            while type(want) in AT_ONCE or (run.scope is self._doubtful and type(want) in ASKED_IN_VAIN):
                want = handler.send(self._at_once(run, want))
        except StopIteration as ended:
            self._finish(run, ended.value)
        except WireError as exc:
            self._give_up(run)
            self._malformed(run.session, exc, run.got)
        except BrokerSilent:
            self._give_up(run)
            run.session.close(SILENT)
        except Exception as exc:  # noqa: BLE001 - a bug: its client must not wait for ever, the others go on
            self._give_up(run)
            self._faults.inc()
            name = Api(run.got.api_key).name
            self.log.error("handler broke", api=name, version=run.got.version, error=repr(exc))
            run.session.close("internal_error", repr(exc))
        else:
            if type(want) is Coordinate:
                self._coordinate(run, want.event)
            elif isinstance(want, Ask):
                run.session.upstream.ask(run.got.token, want.frame, lambda frame: self._answered(run, frame))
            elif isinstance(want, Store):
                self._tasks.spawn(self._store(run, want), "store")
            elif isinstance(want, Settle):
                self._settle(run, want.groups)
            else:
                go_on = partial(self._slices.wait, partial(self._go_on, run))
                if run.api_key not in ALONE or run.session.flow.begin_large(0, go_on):
                    go_on()

    def _at_once(self, run: Run, want: Want) -> Answer | None:
        """What comes of a want for which nothing is waited."""
        if isinstance(want, Owe):
            run.owed = want.message
        elif isinstance(want, Tell):
            run.owed = None
            self._send(want.message)
        elif isinstance(want, Start):
            run.session.upstream.ask(run.got.token, want.frame, partial(self._started, run, want))
        elif isinstance(want, Coordinate):
            code = Code.COORDINATOR_NOT_AVAILABLE
            return want.event.refused(code, TEXT[code])
        return None

    def _started(self, run: Run, want: Start, frame: bytes | None) -> None:
        """What was started has ended. Its client was answered long ago."""
        try:
            event = want.then(frame)
        except WireError as exc:
            event = want.then(None)
            self._malformed(run.session, exc, run.got)
        if self._view is not None:
            self._last_token += 1
            self._send(Request(self._last_token, event))

    def _answered(self, run: Run, frame: bytes | None) -> None:
        if frame is None and run.session.conn.closed:
            self._give_up(run)
            return
        run.now_ms = now_ms()
        if frame is not None and run.api_key not in BEFORE_ALL:
            run.session.facts.let_in = True
        self._advance(run, frame, silent=frame is None)

    def _silence(self, quiet_ms: int, to_all: bool) -> None:
        """The broker is silent, and was last heard so long ago; -1: it answers again."""
        self._send(BrokerSilence(quiet_ms if to_all else -1))
        learnt = self._scope.learnt
        learnt.open_meanwhile = quiet_ms >= 0 and (learnt.open_meanwhile or any(s.anonymous for s in self.sessions))

    def _give_up(self, run: Run) -> None:
        if run.handler is not None:
            run.handler.close()
        if run.owed is not None:
            self._send(run.owed)
            run.owed = None

    def _finish(self, run: Run, result: bytes | Forward) -> None:
        session, got = run.session, run.got
        if isinstance(result, Forward):
            session.forward(got, result.frame)
            return
        if got.api_key == Api.API_VERSIONS:
            session.conn.served = looked_into(session.facts.broker_versions)
        frame = response_frame(got.correlation_id, response_flexible(got.api_key, got.version), result)
        if run.grant is not None:
            self._remember(run, run.grant, frame)
        session.reply(got.token, frame)
        self._took[run.api_key](time.perf_counter() - run.began_s)

    def _remember(self, run: Run, grant: Grant, frame: bytes) -> None:
        steady, room, until_ms = run.session.steady, self.settings.steady_replies, run.rights_until_ms
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
            frame = await other_brokers.ask(self._cluster, want, run.client.number % self.settings.commit_lanes)
        except NO_ANSWER as exc:
            # Nobody can say whether the broker did it: the client must see a broken connection, as from a broker.
            self._give_up(run)
            run.session.close("broker_closed", str(exc) or "timed out")
        else:
            run.now_ms = now_ms()
            self._advance(run, frame)

    def _settle(self, run: Run, groups: tuple[str, ...]) -> None:
        if in_doubt(self._view or NO_VIEW, groups):
            self._settling.wait(now_ms() + SETTLE_MS, lambda: self._go_on(run), groups=groups)
        else:
            self._advance(run, None)

    # ---- the coordinator ------------------------------------------------------------------------------------
    def _coordinate(self, run: Run, event: Event) -> None:
        if run.comes_too_late(event):
            self._came_too_late(run)
            return
        if run.api_key in WAIT_FOR_OTHERS:
            run.session.flow.end_large()
        self._last_token = token = self._last_token + 1
        run.event = event
        self._waiting[token] = run
        if self._view is None:
            late = partial(self._refuse, token, Code.COORDINATOR_NOT_AVAILABLE)
            self._early.wait(now_ms() + self.settings.hold_ms, lambda: self._send_held(token), late)
        elif self._view.suspects and event.group_id and in_doubt(self._view, (event.group_id,)):
            # The one whose turn it is may be this sidecar, which does not know yet.
            until_ms = now_ms() + self.settings.hold_ms
            self._settling.wait(until_ms, lambda: self._send_held(token), groups=(event.group_id,))
        else:
            self._send(Request(token, event))

    def _go_on(self, run: Run) -> None:
        """It has waited; its client may have gone meanwhile."""
        if run.session.conn.closed:
            self._give_up(run)
        else:
            self._advance(run, None)

    def _doubt(self, run: Run) -> None:
        if run.scope is not self._trusted:
            run.scope = self._doubtful
        self._go_on(run)

    def _refuse(self, token: int, code: Code) -> None:
        run = self._waiting.get(token)
        if run is not None and run.event is not None:
            self._replied(Reply(token, run.event.refused(code, TEXT[code])))

    def from_coordinator(self, message: ToFront) -> None:
        if type(message) is Reply:
            self._replied(message)
        elif isinstance(message, Lease):
            self._grants.lease_until_ms, self._grants.lease_until_wall_ms = message.until_ms, message.until_wall_ms
        elif isinstance(message, Void):
            self._grants.void(message.groups)
        elif isinstance(message, View):
            self._looked(message)
        elif isinstance(message, GroupRules):
            self._managed.follow(message)
            self._scope.managing = self._trusted.managing = self._managed.managing
            self._unsure.release()
        elif isinstance(message, AskAccess):
            self._access.begin(self._waiting.get(message.token), message)

    def _topics_passed(self) -> None:
        if self._view is not None:
            self._grants.rest(now_ms())
            self._send(TopicsPassed())

    def link_lost(self) -> None:
        """The coordinator is gone, and with it all that it granted or has not answered."""
        self._view = None
        self._early.clear()
        self._grants.void_all()
        for token in list(self._waiting):
            self._refuse(token, Code.NOT_COORDINATOR)

    def _replied(self, reply: Reply) -> None:
        run = self._waiting.pop(reply.token, None)
        if run is None or run.session.conn.closed:
            if isinstance(reply.answer, CheckReply) and reply.answer.ticket:
                self._send(CommitEnded(reply.answer.ticket, sure=True))  # it is not sent at all
            return
        run.event, run.grant, run.now_ms = None, reply.grant, now_ms()
        self._advance(run, reply.answer)

    def _looked(self, view: View) -> None:
        first, self._view = self._view is None, view
        self.links.limit(view.idle_ms)
        if first:
            self._early.release()
        self._settling.release(lambda groups: not in_doubt(view, groups))

    def _send_held(self, token: int) -> None:
        run = self._waiting.get(token)
        if run is None or run.event is None:
            return
        if run.comes_too_late(run.event):
            del self._waiting[token]
            self._came_too_late(run)
        else:
            self._send(Request(token, run.event))

    def _came_too_late(self, run: Run) -> None:
        self._give_up(run)
        run.session.close("client_closed")

    # ---- ending -------------------------------------------------------------------------------------------
    async def drain(self, timeout_s: float) -> None:
        """Answers under way leave; then every connection is closed."""
        until = time.monotonic() + timeout_s
        while self._waiting and time.monotonic() < until:
            await asyncio.sleep(0.01)
        for session in list(self.sessions):
            session.close("shutdown")
        while self.sessions and time.monotonic() < until:
            await asyncio.sleep(0.01)
