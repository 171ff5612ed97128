"""What becomes of each request that does not simply pass: the table from API to handler, and the heartbeat's fast path.

Handlers of one API family are in `handlers_*.py`. A group the sidecar does not manage is the broker's own: its
requests pass byte for byte.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from uuid import uuid4

import re2

from sidecar.api.translate import from_heartbeat, to_heartbeat
from sidecar.core.consumer.group import ConsumerGroup
from sidecar.core.errors import Code, InvariantError
from sidecar.core.events import ConsumerHeartbeat, Effects, HeartbeatReply, RegexResolved, ResolveRegex
from sidecar.kafka.cluster import Address, ConnectionLost
from sidecar.proxy.connection import Close, Got
from sidecar.runtime.access import Access
from sidecar.runtime.configs import Configs
from sidecar.runtime.host import Host, OwnedShard, now
from sidecar.runtime.log import Logger
from sidecar.runtime.metrics import Metrics
from sidecar.runtime.session import Session, Steady, UpstreamGone
from sidecar.runtime.settings import Settings, split
from sidecar.wire.apis import SERVED, Api, response_flexible
from sidecar.wire.frames import SIZE, Limits, header_end, request_frame, response_frame
from sidecar.wire.generated import consumer_group_heartbeat as ch
from sidecar.wire.primitives import WireError

Handler = Callable[["Front", Session, Got, str | None, int], Awaitable[None]]
CLIENT_ID = "kafka-group-sidecar"
GONE = (UpstreamGone, ConnectionLost, TimeoutError)
"""The client, or the broker that had to be asked."""


class Front:
    def __init__(self, settings: Settings, metrics: Metrics, log: Logger) -> None:
        self.settings = settings
        self.metrics = metrics
        self.log = log
        self.broker: Address = split(settings.broker)
        self.limits = Limits(settings.limits.frame_bytes, settings.limits.group_frame_bytes)
        self.header_timeout_s = settings.limits.header_timeout_ms / 1000
        self.in_flight_max = settings.limits.in_flight
        self.host: Host | None = None
        self.configs: Configs
        """Set before anything is dispatched."""
        self.settings_changed: Callable[[], None] = lambda: None
        self.client_brokers: dict[int, Address] = {}
        self.offsets_leader: Callable[[str], int] = lambda group_id: -1
        self.sessions: set[Session] = set()
        self.parked = 0
        metrics.parked.set_function(lambda: self.parked)
        self.stopping = False
        self.access = Access(self, settings.authorisation_cache_ms / 1000)
        self._tasks: set[asyncio.Task[None]] = set()
        self._include = [re2.compile(p) for p in settings.groups.include]
        self._exclude = [re2.compile(p) for p in settings.groups.exclude]
        self.managed = lru_cache(maxsize=65_536)(self._managed)
        self._seen = {
            api: metrics.requests.labels(api.name.lower(), SERVED[api].decision) for api in Api if api in SERVED
        }
        from sidecar.runtime.handlers import HANDLERS

        self._handlers = HANDLERS

    def _managed(self, group_id: str) -> bool:
        if group_id == self.settings.ownership.group or not any(p.fullmatch(group_id) for p in self._include):
            return False
        return not any(p.fullmatch(group_id) for p in self._exclude)

    @property
    def managing(self) -> bool:
        return bool(self._include)

    # ---- connections --------------------------------------------------------------------------------------
    def opened(self, session: Session) -> bool:
        self.sessions.add(session)
        self.metrics.opened.inc()
        self.metrics.active.inc()
        return len(self.sessions) <= self.settings.limits.connections and not self.stopping

    def gone(self, session: Session, cause: str) -> None:
        if session in self.sessions:
            self.sessions.remove(session)
            self.metrics.active.dec()
            self.metrics.closed.labels(cause).inc()

    def refused(self, session: Session, close: Close) -> None:
        self.metrics.refused.labels(close.cause).inc()
        self.log.warning("frame refused", client=session.host, cause=close.cause, detail=close.detail)

    # ---- requests -----------------------------------------------------------------------------------------
    def dispatch(self, session: Session, got: Got) -> None:
        self._seen[Api(got.api_key)].inc()
        if got.api_key == Api.CONSUMER_GROUP_HEARTBEAT:
            steady = session.steady.get(got.frame[12:])
            if steady is not None and self._still_steady(steady, got.version):
                steady.owned.shard.touch(steady.group.group_id, steady.member_id, now())
                session.reply(got.token, steady.head + SIZE.pack(got.correlation_id) + steady.tail)
                return
            if self._heartbeat_now(session, got):
                return
        task = asyncio.get_running_loop().create_task(self._handle(session, got))
        self._tasks.add(task)
        task.add_done_callback(lambda t: self._ended(t, session, got))

    def _ended(self, task: asyncio.Task[None], session: Session, got: Got) -> None:
        """A handler that broke must not leave its client waiting: the connection is closed, the fault is told."""
        self._tasks.discard(task)
        exc = None if task.cancelled() else task.exception()
        if exc is not None:
            self.metrics.handler_faults.inc()
            self.log.error("handler broke", api=Api(got.api_key).name, version=got.version, error=repr(exc))
            session.close("internal_error", repr(exc))

    async def _handle(self, session: Session, got: Got) -> None:
        try:
            flexible = got.version >= SERVED[got.api_key].flexible_from
            client_id, pos = header_end(got.frame, 12, flexible)
            await self._handlers[got.api_key](self, session, got, client_id, pos)
        except WireError as exc:
            self.refused(session, Close("malformed", str(exc)))
            session.close("malformed", str(exc))
        except GONE as exc:
            # Nobody can say whether the broker did it: the client must see a broken connection, as from a broker.
            session.close("broker_closed", str(exc) or "timed out")

    def body_reply(self, session: Session, got: Got, body: bytes) -> None:
        flexible = response_flexible(got.api_key, got.version)
        session.reply(got.token, response_frame(got.correlation_id, flexible, body))

    async def ask(self, session: Session, got: Got, api_key: int, version: int, body: bytes, flexible: bool) -> bytes:
        """A request of ours on the client's own upstream; returns the whole response frame."""
        return await session.ask(
            got.token, request_frame(api_key, version, got.correlation_id, CLIENT_ID, flexible, body)
        )

    async def owned(self, group_id: str) -> OwnedShard | Code:
        """The shard of a managed group, or the error to answer. A request that comes during a takeover waits for it a
        while: clients do worse with COORDINATOR_LOAD_IN_PROGRESS than with a slow answer."""
        found = self._owned(group_id)
        if found is Code.COORDINATOR_LOAD_IN_PROGRESS and self.host is not None and self.settings.takeover_hold_ms:
            await self.host.wait_loaded(group_id, self.settings.takeover_hold_ms / 1000)
            found = self._owned(group_id)
        return found

    def _owned(self, group_id: str) -> OwnedShard | Code:
        if self.host is None or self.host.ownership is None or self.stopping:
            return Code.COORDINATOR_NOT_AVAILABLE
        if self.parked >= self.settings.limits.parked_replies:
            return Code.COORDINATOR_NOT_AVAILABLE
        return self.host.find(group_id)

    async def delete_group(self, group_id: str) -> Code:
        """Remove an empty group from the state; the answer waits for the commit."""
        owned = await self.owned(group_id)
        if isinstance(owned, Code) or self.host is None:
            return owned if isinstance(owned, Code) else Code.COORDINATOR_NOT_AVAILABLE
        code, fx = owned.shard.delete(group_id, now())
        committed: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.host.commit(owned, fx, committed.set_result)
        return code if await committed else Code.NOT_COORDINATOR

    # ---- ConsumerGroupHeartbeat ---------------------------------------------------------------------------
    def _still_steady(self, s: Steady, version: int) -> bool:
        host = self.host
        return (
            host is not None
            and s.version == version
            and s.group.revision == s.revision
            and host.active.get(s.owned.partition) is s.owned
            and s.owned.shard.groups.get(s.group.group_id) is s.group
            and s.expires > time.monotonic()
            and host.ownership is not None
            and host.ownership.lease_valid()
            and not self.stopping
        )

    def _heartbeat_now(self, session: Session, got: Got) -> bool:
        """The common case without a task: the broker's word on this group is known, its shard is here."""
        try:
            client_id, pos = header_end(got.frame, 12, True)
            req = ch.ConsumerGroupHeartbeatRequest.decode(got.version, got.frame, pos)
        except WireError:
            return False  # the slow way refuses it
        if req.subscribed_topic_names and self.configs.authorizer:
            return False  # the broker must be asked
        known = session.authorised.get(req.group_id)
        if known is None or known[0] != Code.NONE or known[1] <= time.monotonic():
            return False
        owned = self._owned(req.group_id)
        if isinstance(owned, Code):
            return False
        self._heartbeat(session, got, client_id, req, owned)
        return True

    async def consumer_heartbeat(self, session: Session, got: Got, client_id: str | None, pos: int) -> None:
        req = ch.ConsumerGroupHeartbeatRequest.decode(got.version, got.frame, pos)
        if not self.managed(req.group_id):
            theirs = session.broker_versions or {}
            if session.broker_versions is not None and got.api_key not in theirs:
                self._heartbeat_error(session, got, Code.UNSUPPORTED_VERSION)
            else:
                session.forward(got)
            return
        refused = await self.access.read_group(session, got, req.group_id)
        if refused:
            self._heartbeat_error(session, got, Code(refused))
            return
        if req.subscribed_topic_names and await self.access.hidden_topics(session, got, req.subscribed_topic_names):
            self._heartbeat_error(session, got, Code.TOPIC_AUTHORIZATION_FAILED)
            return
        owned = await self.owned(req.group_id)
        if isinstance(owned, Code):
            self._heartbeat_error(session, got, owned)
            return
        self._heartbeat(session, got, client_id, req, owned)

    def _heartbeat(
        self,
        session: Session,
        got: Got,
        client_id: str | None,
        req: ch.ConsumerGroupHeartbeatRequest,
        owned: OwnedShard,
    ) -> None:
        assert self.host is not None
        new_id = "" if req.member_id else str(uuid4())
        event = to_heartbeat(req, got.version, client_id, session.host, new_id)
        try:
            reply, fx = owned.shard.heartbeat(event, now())
        except InvariantError as exc:
            self.host.broken(owned, exc)
            self._heartbeat_error(session, got, Code.NOT_COORDINATOR)
            return
        group = owned.shard.groups.get(req.group_id)
        revision = group.revision if group is not None else 0
        ask = self._asked_for(fx)
        later = event.member_epoch == 0 and reply.code == Code.NONE and self._worth_waiting(owned, req.group_id)
        plain = not fx.records and not fx.commands and reply.code == Code.NONE and reply.assignment is None
        self.parked += 1

        def done(ok: bool) -> None:
            self.parked -= 1
            if not ok:
                self._heartbeat_error(session, got, Code.NOT_COORDINATOR)
                return
            if later or ask is not None:
                self.parked += 1
                work = self._answer_later(session, got, owned, event, reply, ask, later)
                task = asyncio.get_running_loop().create_task(work)
                self._tasks.add(task)
                task.add_done_callback(lambda t: self._ended(t, session, got))
                return
            frame = self._heartbeat_frame(got, reply)
            if plain and group is not None and req.member_epoch > 0:
                self._remember(session, got, owned, group, revision, req.member_id, frame)
            session.reply(got.token, frame)

        self.host.commit(owned, fx, done)

    def _worth_waiting(self, owned: OwnedShard, group_id: str) -> bool:
        """Is something under way in this group that the answer to a joining member had better wait for?"""
        if not self.settings.consumer.join_wait_ms:
            return False
        group = owned.shard.groups.get(group_id)
        return group is not None and (group.flight is not None or group_id in owned.shard.regexes_in_flight)

    def _asked_for(self, fx: Effects) -> ResolveRegex | None:
        """Take the resolution of regular expressions out of the effects where it needs the client's rights."""
        for command in fx.commands if self.configs.authorizer else ():
            if isinstance(command, ResolveRegex):
                fx.commands.remove(command)
                return command
        return None

    async def _answer_later(
        self,
        session: Session,
        got: Got,
        owned: OwnedShard,
        event: ConsumerHeartbeat,
        reply: HeartbeatReply,
        ask: ResolveRegex | None,
        later: bool,
    ) -> None:
        try:
            if ask is not None:
                await self._resolve(session, got, owned, ask)
            if later:
                reply = await self._join(session, got, owned, event, reply)
            session.reply(got.token, self._heartbeat_frame(got, reply))
        except GONE as exc:
            session.close("broker_closed", str(exc) or "timed out")
        finally:
            self.parked -= 1

    async def _resolve(self, session: Session, got: Got, owned: OwnedShard, ask: ResolveRegex) -> None:
        """Only topics that this member's principal may DESCRIBE (KIP-848 'Regular expressions')."""
        assert self.host is not None
        image = owned.shard.image
        allowed: Mapping[str, tuple[str, ...]] = {}  # as long as nothing is known; the next heartbeat then asks again
        try:
            found = await self.host.resolve(ask.regexes, image)
            hidden = await self.access.hidden_topics(session, got, {t for ts in found.values() for t in ts})
            allowed = {r: tuple(t for t in ts if t not in hidden) for r, ts in found.items()}
        finally:
            self.host.resolved(owned, RegexResolved(ask.group_id, allowed, image.names_version))

    async def _join(
        self, session: Session, got: Got, owned: OwnedShard, joined: ConsumerHeartbeat, reply: HeartbeatReply
    ) -> HeartbeatReply:
        """A member that has joined while its first assignment is being computed need not come again for it: the answer
        waits a while, then is that of a second heartbeat (KIP-1263 has it wait one heartbeat interval)."""
        assert self.host is not None
        until = time.monotonic() + self.settings.consumer.join_wait_ms / 1000
        while (left := until - time.monotonic()) > 0 and self._worth_waiting(owned, joined.group_id):
            await self.host.moves.wait(joined.group_id, left)
        if self.host.active.get(owned.partition) is not owned or session.conn.closed:
            return reply
        again = replace(
            joined,
            member_id=reply.member_id or "",
            member_epoch=reply.member_epoch,
            rebalance_timeout_ms=-1,
            topic_names=None,
            topic_regex=None,
            server_assignor=None,
            owned=reply.assignment or {},
        )
        try:
            second, fx = owned.shard.heartbeat(again, now())
        except InvariantError as exc:
            self.host.broken(owned, exc)
            return HeartbeatReply(Code.NOT_COORDINATOR, ERROR_TEXT[Code.NOT_COORDINATOR])
        ask = self._asked_for(fx)
        committed: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.host.commit(owned, fx, committed.set_result)
        if ask is not None:
            await self._resolve(session, got, owned, ask)
        if second.code == Code.NONE and await committed:
            second.assignment = reply.assignment if second.assignment is None else second.assignment
            return second
        return reply

    def _remember(
        self,
        session: Session,
        got: Got,
        owned: OwnedShard,
        group: ConsumerGroup,
        revision: int,
        member_id: str,
        frame: bytes,
    ) -> None:
        room = self.settings.limits.steady_replies
        if room == 0:
            return
        if len(session.steady) >= room:
            session.steady.clear()
        expires = session.authorised[group.group_id][1]
        session.steady[got.frame[12:]] = Steady(
            got.version, owned, group, revision, member_id, expires, frame[:4], frame[8:]
        )

    def _heartbeat_frame(self, got: Got, reply: HeartbeatReply) -> bytes:
        return response_frame(got.correlation_id, True, from_heartbeat(reply).encode(got.version))

    def _heartbeat_error(self, session: Session, got: Got, code: Code) -> None:
        session.reply(got.token, self._heartbeat_frame(got, HeartbeatReply(code, ERROR_TEXT.get(code))))

    # ---- ending -------------------------------------------------------------------------------------------
    async def drain(self, timeout_s: float) -> None:
        """Answers under way leave; then every connection is closed."""
        until = time.monotonic() + timeout_s
        while self.parked and time.monotonic() < until:
            await asyncio.sleep(0.01)
        for session in list(self.sessions):
            session.close("shutdown")
        while self.sessions and time.monotonic() < until:
            await asyncio.sleep(0.01)


ERROR_TEXT = {  # what is not here has none, as Kafka's refusals for want of rights
    Code.UNSUPPORTED_VERSION: "The consumer group protocol is not enabled for this group.",
    Code.NOT_COORDINATOR: "This is not the correct coordinator.",
    Code.COORDINATOR_NOT_AVAILABLE: "The coordinator is not available.",
    Code.COORDINATOR_LOAD_IN_PROGRESS: "The coordinator is loading and hence can't process requests.",
}
