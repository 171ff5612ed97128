"""One client connection and its upstream, without sockets.

It decides where each request goes, in which order responses leave (that of the requests), and what may stream and
what is held whole. It does not decide what the answer to a group request is, nor when to read or write a socket.

    client bytes ──► from_client ──► ToUpstream | Got(request) | Close
    broker bytes ──► from_upstream ─► ToClient | Answered(token, frame) | Close
    answer(token) ─► ToClient          ask(token, frame) ─► ToUpstream

There are two queues. `order` holds the requests as the client sent them; its head is the one to be answered next.
`upstream` holds what the broker still owes us, in the order in which we asked. A passed request is in both.

A request that the sidecar handles (`Got`) holds back what the client sent after it until it is answered or forwarded,
just as a broker handles the requests of a connection one by one. So no later request can get to the broker before one
that the answer still has to send there, and a response never waits for one behind it.

A broker begins with a request when the answer before it has left. Here that is so for what may take much memory: a
large request, and one that may have a large answer (`ALONE`). Others begin while answers of the broker are still owed,
but not behind a reply of the sidecar's own that waits for these: one is kept, whatever a client sends.

A SaslHandshake holds back what is behind it, too: with version 0 tokens follow that are no requests (raw_sasl.py).

Only so many requests are looked at before others have their turn (`more`, `go_on`), and only so many may be under way.
"""

from __future__ import annotations

from collections import deque

from sidecar.proxy.acks import Acks
from sidecar.proxy.actions import Action, Answered, Close, Got, ToClient, ToUpstream
from sidecar.proxy.internal import NOT_SHOWN, TOPIC_APIS, Internal
from sidecar.proxy.order import TURN_SHIFT, Order, Slot, Token
from sidecar.proxy.other_protocols import spoken
from sidecar.proxy.raw_sasl import HEADER_BYTES, LAST_KEY, Exchange, accepted, mechanism_of
from sidecar.wire.apis import PASSING, Api, ApiSpec
from sidecar.wire.frames import PREFIX, SIZE, Limits, client_id_of

SASL = (Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE)
"""Requests that authenticate a client."""
HANDSHAKES = (0, 1)
"""Versions of SaslHandshake whose answers can be read here."""


class ClientConnection:
    def __init__(self, limits: Limits, internal: Internal = NOT_SHOWN) -> None:
        self._limits = limits
        self._internal = internal
        self.served = PASSING
        """APIs that the sidecar looks into, with their versions (`looked_into`)."""
        self._in_flight_max = limits.in_flight
        self._frame_max = limits.frame_bytes
        self._whole_max = min(limits.frame_bytes, limits.group_frame_bytes, limits.list_frame_bytes)
        self.order = Order(limits.turn_requests)
        self._acks = Acks()
        self._local: dict[int, Slot] = {}
        self._upstream: deque[Slot | int] = deque()
        self._held: bytes | bytearray = b""  # bytes of the client not handled yet, from `_at` on
        self._at = 0
        self._client_pass = 0  # bytes of a passed request still to come
        self._broker_rest: bytes | bytearray = b""
        self._broker_pass = 0  # bytes of a passed response still to come
        self._shaking = ("", False)  # mechanism of the SaslHandshake under way, and whether it is of version 0
        self._exchange: Exchange | None = None  # tokens are due; `_whole_max` is 0 then, so that none is `_alone`
        self.closed = False
        # What a reader of sockets needs to know, true after each call.
        self.in_flight = 0
        """Number of the client's requests without a response so far."""
        self.local_pending = False
        """Whether a request that the sidecar handles has no reply yet."""
        self.held_bytes = 0
        """Bytes of the client that wait for such a reply, or for the rest of their request."""
        self.authenticates = False
        """Whether a SASL request has passed, or a frame that is none of Kafka's, as bare GSSAPI tokens once were."""
        self.let_in = False
        """Whether the broker has answered a passed request. Without `authenticates`, it needs no authentication."""
        self.mechanism = ""
        """SASL mechanism that the broker has accepted; a listener without SASL accepts none."""
        self.partial = False
        """Whether part of a request has arrived and only its rest is waited for."""
        self.partial_bytes = 0
        """Size of that request by its prefix; 0: not known yet."""
        self.more = False
        """Whether the turn is over and bytes are left for the next one (`go_on`)."""
        self.stopped = False
        """Set by flow_control.py: nothing new is looked at, as the client waits for its turn or reads no answers."""
        self.requests = 0
        """Requests looked at so far; the number of a handled request is its token."""

    @property
    def idle(self) -> bool:
        """Whether nothing is under way, and nothing waits for its turn."""
        return not self.order and not self._upstream and not self.waiting

    @property
    def waiting(self) -> bool:
        """Whether there may be requests that were not looked at yet."""
        return self.held_bytes > 0 and not self.partial

    def _note(self, out: list[Action]) -> list[Action]:
        self.in_flight = len(self.order)
        self.held_bytes = held = len(self._held) - self._at
        self.local_pending = pending = bool(self._local)
        self.partial = self.more = False
        if held > 0 and not (pending or self.order.waits or self.stopped) and self.in_flight < self._in_flight_max:
            if self.order.left > 0:
                self.partial = True
                self.partial_bytes = 4 + SIZE.unpack_from(self._held, self._at)[0] if held >= 4 else 0
            else:
                self.more = True
        return out

    def go_on(self) -> list[Action]:
        """Begins the connection's next turn with what was left."""
        self.order.left = self._limits.turn_requests
        return [] if self.closed or len(self._held) == self._at else self._note(self._parse())

    # ---- from the client ----------------------------------------------------------------------------------
    def from_client(self, data: bytes, turn_requests: int = 0) -> list[Action]:
        """Takes in bytes of the client. `turn_requests`: requests that may be looked at now; 0: as the limits say."""
        if not self.more:
            self.order.left = turn_requests or self._limits.turn_requests
        if self.closed:
            return []
        if self._client_pass:  # the body of a passed request streams, whatever its size
            if len(data) <= self._client_pass:
                self._client_pass -= len(data)
                return [ToUpstream(data)]
            head, data = data[: self._client_pass], data[self._client_pass :]
            self._client_pass = 0
            return [ToUpstream(head), *self.from_client(data, turn_requests)]
        if len(self._held) == self._at:
            got = None if self._local or self.stopped else self._alone(data)
            if got is not None:
                self.in_flight, self.local_pending = len(self.order), True
                return [got]
            self._held, self._at = data, 0
        else:
            if not isinstance(self._held, bytearray):
                self._held = bytearray(self._held[self._at :])
            elif self._at:
                del self._held[: self._at]  # else what a client that never pauses has sent would all be kept
            self._at = 0
            self._held += data
        return self._note(self._parse())

    def _parse(self) -> list[Action]:
        out: list[Action] = []
        self.order.waits = False
        if self._local or self.stopped or (self._exchange is not None and not self._pass_tokens(self._exchange, out)):
            return out
        buf, end = self._held, len(self._held)
        pos = run = self._at  # [run, pos) is a run of passed requests, sent on as one piece
        last: Close | None = None
        while end - pos >= PREFIX.size and self.order.left > 0 and len(self.order) < self._in_flight_max:
            size, api_key, version, correlation = PREFIX.unpack_from(buf, pos)
            whole = pos + 4 + size
            spec = self.served.get(api_key)
            if (
                size < 8
                or size > self._frame_max
                or (spec is not None and (size > self._whole_max or not spec.low <= version <= spec.high))
            ):
                last = self._refused(buf, pos, size, api_key, version, spec)
                if last is not None:
                    break
            if spec is not None:
                if whole > end or (self.order and self.order.holds_back(api_key, size)):
                    break
                if run < pos:
                    out.append(ToUpstream(bytes(buf[run:pos])))
                self.order.left -= 1 + (size >> TURN_SHIFT)
                out.append(self._got(api_key, version, correlation, bytes(buf[pos:whole])))
                self._held, self._at = (buf, whole) if whole < end else (b"", 0)
                return out
            if (api_key in SASL or not 0 <= api_key <= LAST_KEY) and self._authenticating(api_key, version):
                return self._handshake(out, run, pos, size, version)
            silent = api_key == Api.PRODUCE and self._acks.silent(buf, pos, version, size)
            if silent is None:
                break
            self.order.left -= 1
            self.requests += 1
            if not silent:
                slot = Slot(self._internal.marker(api_key, version) if api_key in TOPIC_APIS else None)
                self.order.append(slot)
                self._upstream.append(slot)
            pos = min(whole, end)
            self._client_pass = whole - pos
            if self._client_pass:
                break
        if last is None and 4 <= end - pos < PREFIX.size:  # a size that is wrong is not waited with
            last = self._refused(buf, pos, SIZE.unpack_from(buf, pos)[0], 0, 0, None)
        if run < pos:
            out.append(ToUpstream(bytes(buf[run:pos])))
        if last is not None:
            out.append(last)
        self._at = pos
        if pos == end:
            self._held, self._at = b"", 0
        return out

    # ---- SASL ---------------------------------------------------------------------------------------------
    def _authenticating(self, api_key: int, version: int) -> bool:
        """Returns whether this is a handshake whose answer can be read."""
        self.authenticates = True
        if api_key == Api.SASL_HANDSHAKE:
            self.mechanism = self.mechanism if version in HANDSHAKES else ""
            return version in HANDSHAKES
        if api_key not in SASL:
            self.mechanism = self.mechanism or "GSSAPI"  # alone it could begin without a handshake, before Kafka 4
        return False

    def _handshake(self, out: list[Action], run: int, pos: int, size: int, version: int) -> list[Action]:
        """Passes the SaslHandshake that begins at `pos`, once it is whole."""
        buf, whole = self._held, pos + 4 + size
        if run < pos:
            out.append(ToUpstream(bytes(buf[run:pos])))
        self._at = pos
        if size > self._whole_max:
            out.append(self._close("frame_too_large", f"SaslHandshake, {size} bytes"))
        elif whole <= len(buf):
            self.order.left -= 1
            self.requests = token = self.requests + 1
            slot = Slot()
            self.order.append(slot)
            self._local[token] = slot
            self._upstream.append(-token)
            frame = bytes(buf[pos:whole])
            self._shaking = (mechanism_of(frame), version == 0)
            out.append(ToUpstream(frame))
            self._held, self._at = (buf, whole) if whole < len(buf) else (b"", 0)
        return out

    def _shaken(self, token: int, frame: bytes) -> list[Action]:
        if accepted(frame):
            self.mechanism, raw = self._shaking
            if raw:
                self._exchange, self._whole_max = Exchange(self.mechanism), 0
        return self.answer(token, frame)

    def _pass_tokens(self, exchange: Exchange, out: list[Action]) -> bool:
        """Passes the client's bytes as far as they are tokens. Returns whether the rest begins with a request."""
        buf, end, pos = self._held, len(self._held), self._at
        while end - pos >= 4 and self.order.left > 0 and len(self.order) < self._in_flight_max:
            (size,) = SIZE.unpack_from(buf, pos)
            if not 0 <= size <= self._frame_max:
                out.append(self._bad_size(bytes(buf[pos : pos + 4]), size))
                return False
            api_key = 0
            if not exchange.due and size >= HEADER_BYTES:
                if end - pos < PREFIX.size:
                    break
                api_key = PREFIX.unpack_from(buf, pos)[1]
            if not exchange.takes(size, api_key):
                limits = self._limits
                self._exchange = None
                self._whole_max = min(limits.frame_bytes, limits.group_frame_bytes, limits.list_frame_bytes)
                return True
            self.order.left -= 1
            self.requests += 1
            if exchange.answered:
                slot = Token()
                self.order.append(slot)
                self._upstream.append(slot)
            stop = min(pos + 4 + size, end)
            self._client_pass = pos + 4 + size - stop
            out.append(ToUpstream(bytes(buf[pos:stop])))
            self._at = pos = stop
        if pos == end:
            self._held, self._at = b"", 0
        return False

    def _refused(
        self, buf: bytes | bytearray, pos: int, size: int, api_key: int, version: int, spec: ApiSpec | None
    ) -> Close | None:
        if not 8 <= size <= self._limits.frame_bytes:
            return self._bad_size(bytes(buf[pos : pos + 4]), size)
        if spec is None:
            return None
        large = api_key == Api.SYNC_GROUP and version >= spec.flexible_from  # read by a compiled layout
        limits = self._limits
        if size > (limits.group_frame_bytes if large else min(limits.group_frame_bytes, limits.list_frame_bytes)):
            return self._close("frame_too_large", f"api {api_key}, {size} bytes", client_id_of(buf, pos))
        if not spec.low <= version <= spec.high and api_key != Api.API_VERSIONS:
            return self._close("unsupported_version", f"api {api_key} version {version}", client_id_of(buf, pos))
        return None

    def _alone(self, data: bytes) -> Got | None:
        """Returns the action if, as usual, `data` is one request that the sidecar handles; else None."""
        if len(data) < PREFIX.size:
            return None
        size, api_key, version, correlation = PREFIX.unpack_from(data)
        spec = self.served.get(api_key)
        if spec is None or 4 + size != len(data) or size > self._whole_max or not spec.low <= version <= spec.high:
            return None
        if self.order and self.order.holds_back(api_key, size):
            return None
        return self._got(api_key, version, correlation, data)

    def _got(self, api_key: int, version: int, correlation: int, frame: bytes) -> Got:
        if api_key == Api.SASL_AUTHENTICATE:
            self.authenticates = True
        self.requests = token = self.requests + 1
        slot = Slot(self._internal.marker(api_key, version) if api_key == Api.METADATA else None)
        self.order.append(slot)
        self._local[token] = slot
        return Got(token, api_key, version, correlation, frame)

    # ---- from the broker ----------------------------------------------------------------------------------
    def from_upstream(self, data: bytes) -> list[Action]:
        if self.closed:
            return []
        if self._broker_pass and not self._broker_rest and len(data) <= self._broker_pass:
            self._broker_pass -= len(data)
            passed = self._passed(data)
            return passed if self._broker_pass else self._unblocked(passed)
        if not self._broker_rest:
            self._broker_rest = data
        else:
            if not isinstance(self._broker_rest, bytearray):
                self._broker_rest = bytearray(self._broker_rest)
            self._broker_rest += data
        return self._unblocked(self._pump())

    def _unblocked(self, out: list[Action]) -> list[Action]:
        """Goes on after responses have left, with requests that waited because too many were under way."""
        if len(self._held) > self._at and not self.closed:
            out += self._parse()
        return self._note(out)

    def _pump(self) -> list[Action]:
        """Takes complete and streamable responses from what the broker sent, as far as the order allows."""
        out: list[Action] = []
        buf, pos, end = self._broker_rest, 0, len(self._broker_rest)
        if self._broker_pass:
            pos = min(self._broker_pass, end)
            self._broker_pass -= pos
            out += self._passed(bytes(buf[:pos]))
        while end - pos >= 4 and not self._broker_pass:
            if not self._upstream:
                if self._exchange is None or self.order:
                    return [*out, self._close("unexpected_response")]
                answered = Token()  # that this token has an answer is known when it comes
                self.order.append(answered)
                self._upstream.append(answered)
            first = self._upstream[0]
            (size,) = SIZE.unpack_from(buf, pos)
            whole = pos + 4 + size
            if size < 4 and not (size >= 0 and type(first) is Token):
                return [*out, self._close("bad_response_size", f"size {size}")]
            if isinstance(first, int):
                if size > self._limits.group_frame_bytes:
                    return [*out, self._close("response_too_large", f"{size} bytes")]
                if whole > end:
                    break
                self._upstream.popleft()
                frame = bytes(buf[pos:whole])
                if first:  # else it was abandoned
                    out += [Answered(first, frame)] if first > 0 else self._shaken(-first, frame)
                pos = whole
                continue
            assert self.order[0] is first, "a passed response is due only when all before it are answered"
            self._upstream.popleft()
            self.let_in = True
            if whole <= end:
                out += self._passed(bytes(buf[pos:whole]))
                pos = whole
            else:
                self._broker_pass = whole - end
                out += self._passed(bytes(buf[pos:]))
                pos = end
        self._broker_rest = buf[pos:] if pos else buf
        return out

    def _passed(self, data: bytes) -> list[Action]:
        """Passes on a part of the answer to the head of `order`; `_broker_pass` bytes of it are still to come. After
        its end come the replies that have waited for it."""
        marker, last = self.order[0].marker, not self._broker_pass
        if marker is not None:
            data = marker.take(data, last)
        if last:
            self.order.popleft()
        out: list[Action] = [ToClient(data)] if data else []
        return [*out, *self.order.due()] if last else out

    # ---- answers ------------------------------------------------------------------------------------------
    def answer(self, token: int, frame: bytes) -> list[Action]:
        """Gives the reply to a `Got` as a whole frame, and goes on with what the client has sent after it. A reply to a
        request that is gone is dropped."""
        slot = self._local.pop(token, None)
        if slot is None or self.closed:
            return []
        if len(self.order) == 1:  # the usual case: nothing is before it
            self.order.clear()
            self.order.replied = True
            out: list[Action] = [ToClient(frame)] if frame else []
            if len(self._held) == self._at:
                self.in_flight, self.local_pending = 0, False
                return out
            self.order.left -= len(frame) >> TURN_SHIFT
        else:
            slot.reply = frame
            self.order.reply_bytes += len(frame)
            out = self.order.due()
        if len(self._held) > self._at:
            out += self._parse()
        return self._note(out)

    def ask(self, token: int, frame: bytes) -> list[Action]:
        """Sends a request of the sidecar's own. The response comes as `Answered(token, ...)`, but not for token 0."""
        if self.closed:
            return []
        assert self.between(), "the client's request would go on behind it"
        self._upstream.append(token)
        return [ToUpstream(frame)]

    @property
    def owed(self) -> bool:
        """Whether the broker owes an answer, or the rest of one."""
        return bool(self._upstream) or self._broker_pass > 0

    @property
    def asks(self) -> bool:
        """Whether the broker's next response answers a request of the sidecar's own."""
        return bool(self._upstream) and isinstance(self._upstream[0], int) and not self._broker_pass

    def between(self) -> bool:
        """Returns whether a request of the sidecar's own may follow what the client has sent to the broker so far."""
        return not self._client_pass and self._exchange is None

    def abandon(self) -> bool:
        """Drops answers to requests of `ask` when they come. Returns whether the broker owes nothing else."""
        if self._broker_pass or self._client_pass or any(not isinstance(a, int) or a < 0 for a in self._upstream):
            return False
        self._upstream = deque([0] * len(self._upstream))
        return True

    def forward(self, token: int, frame: bytes) -> list[Action]:
        """Passes a handled request after all, as `frame`, and goes on with what the client has sent after it."""
        slot = self._local.pop(token, None)
        if slot is None or self.closed:
            return []
        self._upstream.append(slot)
        return self._note([ToUpstream(frame), *self._parse()])

    def _bad_size(self, first: bytes, size: int) -> Close:
        other = None if self.requests else spoken(first)
        return self._close(*(other or ("bad_frame_size", f"size {size}")))

    def _close(self, cause: str, detail: str = "", client_id: str = "") -> Close:
        self.closed = True
        return Close(cause, detail, client_id)
